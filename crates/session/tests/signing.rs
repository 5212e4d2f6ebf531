//! kXR_sigver: requests that must be signed, and signatures that are accepted or refused.
//!
//! The table of requests is listed a second time, independent of the code, so that a change of it
//! fails.

#![allow(clippy::unwrap_used)]

mod support;

use session::{DriverTask, Settings, Signing, SigningByDistance};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use support::*;
use wire::xroot::codes::SecurityLevel;

fn settings(level: SecurityLevel, force: bool) -> Settings {
    let signing = SigningByDistance::of_all(Signing::new(level, force, false, &[]));
    Settings { signing, ..Settings::default() }
}

/// The text of each refusal. The reason is in the log of the server only.
const REFUSED: &str = "Request signature not verified";

fn demanding() -> Bench {
    Bench::with(settings(SecurityLevel::INTENSE, true), 5)
}

fn code_of(request: &Raw) -> u16 {
    u16::from_be_bytes([request.header()[2], request.header()[3]])
}

fn sigver(request: &Raw, sequence: u64, flags: u8, hash: &[u8]) -> Raw {
    let header = request.header();
    Raw::new(SIGVER)
        .at(0, &header[..2])
        .u16(4, code_of(request))
        .u8(7, flags)
        .at(8, &sequence.to_be_bytes())
        .u8(16, 1)
        .payload(hash)
}

/// Returns a signature as a client without a key makes it.
fn signed(request: &Raw, sequence: u64, flags: u8) -> Raw {
    let mut hash = Sha256::new();
    hash.update(sequence.to_be_bytes());
    let bytes = request.bytes();
    hash.update(if flags & 1 == 0 { &bytes[..] } else { &bytes[..24] });
    sigver(request, sequence, flags, &hash.finalize())
}

fn takes(bench: &mut Bench, signature: &Raw) {
    assert!(matches!(bench.ask(signature), DriverTask::Nothing));
    bench.is_silent();
}

#[test]
fn a_signed_request_is_executed() {
    let mut bench = demanding();
    let request = by_path(MKDIR, "/data/sg1");
    // Gaps in the sequence are allowed.
    for (sequence, flags) in [(1, 0), (2, 0), (1000, 0), (u64::MAX, 0)] {
        takes(&mut bench, &signed(&request, sequence, flags));
        bench.operation(&request);
    }
}

#[test]
fn the_recorded_signature_is_accepted() {
    let scenario =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/xroot/auth_unix_sigver.json");
    let scenario: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(scenario).unwrap()).unwrap();
    let mut seen = 0;
    for connection in scenario["connections"].as_array().unwrap() {
        let mut bench = demanding();
        let mut signs = false;
        for frame in connection["frames"].as_array().unwrap() {
            let Some(request) = frame["request"].as_str().filter(|_| frame["dir"] == "c2s") else { continue };
            let hex = frame["hex"].as_str().unwrap();
            let bytes: Vec<u8> = (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            if request == "kXR_sigver" {
                assert!(matches!(bench.feed(&bytes), DriverTask::Nothing));
                bench.is_silent();
                signs = true;
                seen += 1;
            } else if signs {
                let todo = bench.feed(&bytes);
                assert!(!matches!(todo, DriverTask::Close), "{request}: {:?}", bench.all_replies(0));
                signs = false;
            }
        }
    }
    assert!(seen > 0);
}

#[test]
fn an_unsigned_request_that_must_be_signed_ends_the_session() {
    let refusal = (3022, REFUSED.to_owned());
    assert_eq!(demanding().ended_by(&by_path(MKDIR, "/data/d")), refusal);
    // A request that need not be signed is executed.
    demanding().operation(&by_path(STAT, "/data/d"));
}

#[test]
fn mismatched_signatures_end_the_session() {
    let request = by_path(MKDIR, "/data/d");
    let other = by_path(MKDIR, "/data/e");
    let good = signed(&request, 5, 0);
    let cases: [(Raw, Raw, &str); 7] = [
        (good.clone(), other.clone(), REFUSED),
        (sigver(&request, 5, 0, &[0; 32]), request.clone(), REFUSED),
        (good.clone().at(8, &6u64.to_be_bytes()), request.clone(), REFUSED),
        (good.clone().u8(7, 1), request.clone(), REFUSED),
        // Only writes may leave out their payload.
        (signed(&request, 5, 1), request.clone(), REFUSED),
        (good.clone().stream(9), request.clone(), REFUSED),
        (good.clone().u16(4, RMDIR), request.clone(), REFUSED),
    ];
    for (signature, request, text) in cases {
        let mut bench = demanding();
        takes(&mut bench, &signature);
        assert_eq!(bench.ended_by(&request), (3022, text.to_owned()));
    }
}

#[test]
fn unsupported_signatures_end_the_session() {
    let good = signed(&by_path(MKDIR, "/data/d"), 5, 0);
    let cases = [
        (good.clone().u8(6, 1), 3022, REFUSED),
        (good.clone().u8(16, 0x81), 3022, REFUSED),
        (good.clone().u8(16, 0), 3022, REFUSED),
        (good.clone().u8(16, 2), 3022, REFUSED),
        (good.clone().at(8, &[0; 8]), 3022, REFUSED),
        (good.clone().payload(&[0; 31]), 3022, REFUSED),
        (good.clone().payload(&[0; 64]), 3022, REFUSED),
        (good.clone().payload(&[0; 65]), 3000, "Invalid signature data length"),
        (good.payload(&[]), 3000, "Invalid signature data length"),
    ];
    for (signature, code, text) in cases {
        assert_eq!(demanding().ended_by(&signature), (code, text.to_owned()));
    }
    // Longer than any signature, even on servers that require none.
    for mut bench in [demanding(), Bench::new()] {
        let huge = Raw::new(SIGVER).dlen(i32::MAX);
        assert_eq!(bench.ended_by(&huge), (3000, "Invalid signature data length".to_owned()));
    }
}

#[test]
fn sequence_numbers_of_signatures_must_grow() {
    let request = by_path(MKDIR, "/data/d");
    for again in [7, 6, 1] {
        let mut bench = demanding();
        takes(&mut bench, &signed(&request, 7, 0));
        bench.operation(&request);
        let refusal = (3022, REFUSED.to_owned());
        assert_eq!(bench.ended_by(&signed(&request, again, 0)), refusal);
    }
}

#[test]
fn a_signature_applies_to_the_next_request_only() {
    // Even if that request is refused before verification.
    for refused in [Raw::new(MKDIR), Raw::new(MKDIR).dlen(i32::MAX)] {
        let mut bench = demanding();
        takes(&mut bench, &signed(&refused, 1, 1));
        bench.feed(&refused.bytes());
        bench.bytes_on(0);
        // A request that need not be signed is not compared with the old signature.
        bench.operation(&by_path(STAT, "/data/d"));
        let next = by_path(MKDIR, "/data/d");
        takes(&mut bench, &signed(&next, 2, 0));
        bench.operation(&next);
    }
}

/// Opens a file with a signed request.
fn opened_signed(bench: &mut Bench, sequence: u64) -> Arc<FakeFile> {
    let open = open("/data/f", 0x20);
    takes(bench, &signed(&open, sequence, 0));
    let (call, _) = bench.operation(&open);
    let file = FakeFile::new("/data/f");
    bench.reply_of(call, opened(&file));
    file
}

/// Returns the signature of a request with this data behind it.
fn signed_with(request: &Raw, sequence: u64, data: &[u8]) -> Raw {
    let mut hash = Sha256::new();
    hash.update(sequence.to_be_bytes());
    hash.update(request.header());
    hash.update(data);
    sigver(request, sequence, 0, &hash.finalize())
}

/// Sends a write with a signature, and its data in two pieces, as a driver does.
fn write_signed(bench: &mut Bench, write: &Raw, signature: &Raw, data: &[u8]) -> DriverTask {
    takes(bench, signature);
    let DriverTask::Receive(receive) = bench.ask(write) else { panic!("{:?}", bench.all_replies(0)) };
    let mut signature = receive.signature;
    if let Some(signature) = &mut signature {
        signature.update(&data[..2]);
        signature.update(&data[2..]);
    }
    let result = session::ReceiveResult { signature, ..session::ReceiveResult::default() };
    bench.session.received(receive.call, result, &mut bench.out)
}

fn covering_data() -> Settings {
    let signing = Signing::new(SecurityLevel::INTENSE, true, false, &[]).covering_data();
    Settings { signing: SigningByDistance::of_all(signing), ..Settings::default() }
}

#[test]
fn a_signature_over_file_data_is_verified_with_the_data() {
    for settings in [settings(SecurityLevel::INTENSE, true), covering_data()] {
        for write in [Raw::new(WRITE).dlen(5), Raw::new(PGWRITE).dlen(5)] {
            let mut bench = Bench::with(settings.clone(), 5);
            opened_signed(&mut bench, 1);
            let good = signed_with(&write, 2, b"hello");
            let todo = write_signed(&mut bench, &write, &good, b"hello");
            assert!(matches!(todo, DriverTask::Nothing), "{}", name(&todo));
            assert_ne!(bench.reply().status, ERROR);
            let close = Raw::new(CLOSE).handle(0);
            let other = signed_with(&write, 3, b"hello");
            takes(&mut bench, &other);
            let DriverTask::Receive(receive) = bench.ask(&write) else { panic!() };
            // A close that waits for the write must not persist the file.
            takes(&mut bench, &signed(&close, 4, 0));
            assert!(matches!(bench.ask(&close), DriverTask::Nothing));
            let mut signature = receive.signature;
            signature.as_mut().unwrap().update(b"hellO");
            let result = session::ReceiveResult { signature, ..session::ReceiveResult::default() };
            let todo = bench.session.received(receive.call, result, &mut bench.out);
            assert!(matches!(todo, DriverTask::Close), "{}", name(&todo));
            assert_eq!(bench.reply().error(), (3022, REFUSED.to_owned()));
            assert!(bench.session.is_ending());
            assert_eq!(bench.released(), ["/data/f"], "the file is abandoned");
        }
    }
}

#[test]
fn data_that_must_be_signed_cannot_be_left_out() {
    let write = Raw::new(WRITE).dlen(5);
    let mut bench = Bench::with(covering_data(), 5);
    opened_signed(&mut bench, 1);
    takes(&mut bench, &signed(&write, 2, 1));
    assert_eq!(bench.ended_by(&write), (3022, REFUSED.to_owned()));
    // A write without data has nothing to leave out.
    let mut bench = Bench::with(covering_data(), 5);
    opened_signed(&mut bench, 1);
    let empty = Raw::new(WRITE);
    takes(&mut bench, &signed(&empty, 2, 1));
    let DriverTask::Receive(receive) = bench.ask(&empty) else { panic!() };
    assert!(receive.signature.is_none() && receive.length == 0);
    // Where the signature of the data is optional, it may be left out.
    let mut bench = demanding();
    opened_signed(&mut bench, 1);
    takes(&mut bench, &signed(&write, 2, 1));
    let DriverTask::Receive(receive) = bench.ask(&write) else { panic!() };
    assert!(receive.signature.is_none());
}

/// Requests that write data without a signature over it would make that of other writes useless.
#[test]
fn data_that_must_be_signed_is_not_written_by_requests_that_leave_it_out() {
    let segment = [&[0; 4][..], &5_i32.to_be_bytes(), &[0; 8]].concat();
    let ranges = [[0; 8], [0; 8], [0, 0, 0, 0, 0, 0, 0, 5], [0; 8]].concat()[..28].to_vec();
    let checkpointed = |embedded: &Raw| Raw::new(CHKPOINT).u8(19, 4).payload(&embedded.header());
    let requests = [
        Raw::new(WRITEV).payload(&segment),
        Raw::new(CLONE).payload(&ranges),
        checkpointed(&Raw::new(WRITE).dlen(5)),
        checkpointed(&Raw::new(PGWRITE).dlen(9)),
    ];
    for request in requests {
        for signs in [true, false] {
            let mut bench = Bench::with(covering_data(), 5);
            opened_signed(&mut bench, 1);
            if signs {
                takes(&mut bench, &signed(&request, 2, 0));
            }
            let refused = (3022, "The data of this request cannot be signed".to_owned());
            assert_eq!(bench.ended_by(&request), refused, "{:?}", request.header());
        }
        // Where data need not be signed, they are not refused for it.
        let mut bench = demanding();
        opened_signed(&mut bench, 1);
        takes(&mut bench, &signed(&request, 2, 0));
        bench.ask(&request);
        assert!(!bench.session.is_ending(), "{:?}", request.header());
    }
    // A checkpoint, and the size of a file, have no data.
    for request in [Raw::new(CHKPOINT), checkpointed(&Raw::new(TRUNCATE))] {
        let mut bench = Bench::with(covering_data(), 5);
        opened_signed(&mut bench, 1);
        takes(&mut bench, &signed(&request, 2, 0));
        bench.ask(&request);
        assert!(!bench.session.is_ending(), "{:?}", request.header());
    }
}

#[test]
fn signed_data_whose_hash_the_driver_does_not_return_is_not_accepted() {
    let write = Raw::new(WRITE).dlen(5);
    for (error, ends) in [(None, true), (Some(base::Error::new(base::ErrorKind::IoError, "lost")), false)] {
        let mut bench = demanding();
        opened_signed(&mut bench, 1);
        takes(&mut bench, &signed_with(&write, 2, b"hello"));
        let DriverTask::Receive(receive) = bench.ask(&write) else { panic!() };
        let result = session::ReceiveResult { error, ..session::ReceiveResult::default() };
        let todo = bench.session.received(receive.call, result, &mut bench.out);
        assert_eq!(matches!(todo, DriverTask::Close), ends);
        assert_eq!(bench.reply().error().0 == 3022, ends);
    }
}

#[test]
fn data_of_a_refused_write_is_verified_too() {
    let write = Raw::new(WRITE).handle(9).dlen(5);
    for (data, ends) in [(b"hello", false), (b"hellO", true)] {
        let mut bench = demanding();
        let signature = signed_with(&write, 1, b"hello");
        let todo = write_signed(&mut bench, &write, &signature, data);
        assert_eq!(matches!(todo, DriverTask::Close), ends);
        assert_eq!(bench.reply().error().0, if ends { 3022 } else { 3004 });
    }
}

#[test]
fn signatures_over_data_are_announced() {
    let mut bench = Bench::greeted(covering_data());
    let protocol = Raw::new(PROTOCOL).i32(4, 0x520).u8(8, 1);
    assert_eq!(bench.reply_to(&protocol).body[8..], *b"S\0\0\x03\x03\0");
}

#[test]
fn signatures_that_are_not_required_are_ignored() {
    for settings in [
        settings(SecurityLevel::NONE, true),
        // Clients have no key to sign with, and signing is not forced.
        settings(SecurityLevel::PEDANTIC, false),
    ] {
        let mut bench = Bench::with(settings, 5);
        let request = by_path(MKDIR, "/data/d");
        takes(&mut bench, &sigver(&request, 0, 0, &[9; 64]).u8(16, 0xff));
        bench.operation(&request);
    }
}

/// For each request: the levels at which it must be signed, as letters for compatible, standard,
/// intense and pedantic.
const NEEDED: [(u16, &str); 31] = [
    (AUTH, "----"),
    (PING, "----"),
    (PROTOCOL, "----"),
    (ENDSESS, "--NN"),
    (CLOSE, "--NN"),
    (PGREAD, "--NN"),
    (PGWRITE, "--NN"),
    (WRITE, "--NN"),
    (CHMOD, "NNNN"),
    (CHKPOINT, "NNNN"),
    (FATTR, "NNNN"),
    (GPFILE, "NNNN"),
    (MV, "NNNN"),
    (RM, "NNNN"),
    (RMDIR, "NNNN"),
    (TRUNCATE, "NNNN"),
    (DIRLIST, "---N"),
    (LOCATE, "---N"),
    (PREPARE, "---N"),
    (READ, "---N"),
    (READV, "---N"),
    (STAT, "---N"),
    (STATX, "---N"),
    (SYNC, "---N"),
    (MKDIR, "-NNN"),
    (OPEN, "-NNN"),
    (QUERY, "---N"),
    (SET, "--NN"),
    (WRITEV, "----"),
    (CLONE, "----"),
    (3040, "----"),
];

const LEVELS: [SecurityLevel; 4] =
    [SecurityLevel::COMPATIBLE, SecurityLevel::STANDARD, SecurityLevel::INTENSE, SecurityLevel::PEDANTIC];

fn must_be_signed(level: SecurityLevel, request: &Raw) -> bool {
    let mut bench = Bench::with(settings(level, true), 5);
    bench.feed(&request.bytes());
    bench.all_replies(0).iter().any(|reply| reply.status == ERROR && reply.error().0 == 3022)
}

#[test]
fn the_table_of_levels() {
    for (code, letters) in NEEDED {
        for (level, letter) in LEVELS.into_iter().zip(letters.chars()) {
            let mut request = Raw::new(code).payload(b"/data/f\0\0\0a");
            if code == WRITE || code == PGWRITE {
                request = Raw::new(code).dlen(10);
            }
            assert_eq!(must_be_signed(level, &request), letter == 'N', "{code} at {level:?}");
        }
    }
}

#[test]
fn options_of_a_request_can_require_a_signature() {
    let compatible = SecurityLevel::COMPATIBLE;
    for options in [0x02, 0x08, 0x200, 0x20] {
        assert!(must_be_signed(compatible, &open("/data/f", options)), "{options:#x}");
    }
    for options in [0x10, 0x8000, 0x450] {
        assert!(!must_be_signed(compatible, &open("/data/f", options)), "{options:#x}");
    }
    for code in [16, 32, 64] {
        let request = Raw::new(QUERY).u16(4, code).payload(b"x");
        assert!(
            must_be_signed(SecurityLevel::INTENSE, &request)
                && !must_be_signed(SecurityLevel::STANDARD, &request)
        );
    }
    let set = Raw::new(SET).u8(19, 1).payload(b"appid x");
    assert!(must_be_signed(compatible, &set));
    assert!(!must_be_signed(compatible, &set.u8(19, 0)));
}

#[test]
fn overrides_replace_the_table_and_are_announced() {
    let code = |request: u16| u8::try_from(request - 3000).unwrap();
    let overrides = [[code(WRITEV), 2], [code(MKDIR), 0], [code(OPEN), 1]];
    let signing = SigningByDistance::of_all(Signing::new(SecurityLevel::STANDARD, true, false, &overrides));
    let settings = Settings { signing, ..Settings::default() };
    let must = |request: &Raw| {
        let mut bench = Bench::with(settings.clone(), 5);
        bench.feed(&request.bytes());
        bench.all_replies(0).iter().any(|reply| reply.status == ERROR && reply.error().0 == 3022)
    };
    assert!(must(&Raw::new(WRITEV).payload(&segment(0, 0, 0))));
    assert!(!must(&by_path(MKDIR, "/data/d")));
    assert!(!must(&open("/data/f", 0x10)) && must(&open("/data/f", 0x08)));
    assert!(must(&by_path(RM, "/data/f")), "not overridden");
    let mut bench = Bench::greeted(settings);
    let protocol = Raw::new(PROTOCOL).i32(4, 0x520).u8(8, 1);
    let expected = [&b"S\0\0\x02\x02\x03"[..], overrides.as_flattened()].concat();
    assert_eq!(bench.reply_to(&protocol).body[8..], expected);
}

/// Returns settings whose clients authenticate by a protocol with a session key.
fn keyed(level: SecurityLevel) -> Settings {
    let protocol = logins::FakeProtocol { id: "gsi", tls: false, expensive: false, keyed: true };
    let policy =
        session::LoginPolicy::new(vec![std::sync::Arc::new(protocol)], &["gsi"], Vec::new(), false, "h")
            .unwrap();
    let signing = SigningByDistance::of_all(Signing::new(level, false, false, &[]));
    Settings { login: Some(std::sync::Arc::new(policy)), signing, ..Settings::default() }
}

/// Returns a signature as a client with a key makes it.
fn encrypted(request: &Raw, sequence: u64) -> Raw {
    let mut hash = Sha256::new();
    hash.update(sequence.to_be_bytes());
    hash.update(request.bytes());
    let hash: [u8; 32] = hash.finalize().into();
    sigver(request, sequence, 0, &auth::SignatureCipher::encrypt(&logins::FakeCipher, &hash))
}

#[test]
fn a_session_key_encrypts_the_hash() {
    let request = by_path(MKDIR, "/data/d");
    let mut bench = Bench::authenticated(keyed(SecurityLevel::STANDARD), "gsi");
    takes(&mut bench, &encrypted(&request, 1));
    bench.operation(&request);
    // The bare hash, and text that is no encrypted hash.
    for signature in [signed(&request, 2, 0), sigver(&request, 2, 0, &[7; 64])] {
        let mut bench = Bench::authenticated(keyed(SecurityLevel::STANDARD), "gsi");
        assert_eq!(bench.ended_by(&signature), (3022, REFUSED.to_owned()));
    }
    let mut bench = Bench::authenticated(keyed(SecurityLevel::STANDARD), "gsi");
    assert_eq!(bench.ended_by(&request), (3022, REFUSED.to_owned()));
}

#[test]
fn nothing_is_signed_before_authentication() {
    let mut bench = Bench::unauthenticated(keyed(SecurityLevel::PEDANTIC));
    assert_eq!(bench.reply_to(&Raw::new(PING)).status, OK);
    assert_eq!(bench.authenticates(&logins::auth_request("gsi", "c")).status, AUTHMORE);
    assert_eq!(bench.ended_by(&sigver(&Raw::new(PING), 1, 0, &[0; 32])).0, 3006);
}

#[test]
fn signatures_follow_each_other_only_with_their_requests() {
    let request = by_path(MKDIR, "/data/d");
    let mut bench = demanding();
    takes(&mut bench, &signed(&request, 1, 0));
    // Even a request that needs no signature must not come between.
    assert_eq!(bench.ended_by(&Raw::new(PING)), (3022, REFUSED.to_owned()));
    let mut bench = demanding();
    takes(&mut bench, &signed(&request, 1, 0));
    assert_eq!(bench.ended_by(&signed(&request, 2, 0)), (3022, REFUSED.to_owned()));
}

#[test]
fn writes_in_flight_and_on_bound_connections_are_verified_by_their_headers() {
    let mut bench = demanding();
    let open = open("/data/f", 0x20);
    takes(&mut bench, &signed(&open, 1, 0));
    let (call, _) = bench.operation(&open);
    bench.reply_of(call, opened(&FakeFile::new("/data/f")));
    let path = bench.session.bind(address(), false).unwrap();
    for (sequence, path) in [(2, 0), (3, path.0), (4, 0)] {
        let write = Raw::new(WRITE).u8(16, path).i64(8, 100).dlen(5);
        takes(&mut bench, &signed(&write, sequence, 1));
        let DriverTask::Receive(receive) = bench.ask(&write) else { panic!("{path}") };
        assert_eq!(receive.link.0, path);
    }
    // The data of all three is still on its way.
    let unsigned = Raw::new(WRITE).dlen(5);
    assert_eq!(bench.ended_by(&unsigned), (3022, REFUSED.to_owned()));
}

#[test]
fn a_request_without_payload_may_be_flagged_like_one_that_leaves_it_out() {
    // Version 5.5.3 flags its closes.
    let mut bench = demanding();
    let close = Raw::new(CLOSE).handle(0);
    takes(&mut bench, &signed(&close, 1, 1));
    assert_eq!(bench.refused(&close).0, 3004);
}

#[test]
fn old_clients_are_exempt_only_if_the_level_is_relaxed() {
    for (is_relaxed, generation, must) in [(false, 3, true), (true, 3, false), (true, 5, true)] {
        let signing = SigningByDistance::of_all(Signing::new(SecurityLevel::STANDARD, true, is_relaxed, &[]));
        let mut bench = Bench::with(Settings { signing, ..Settings::default() }, generation);
        let todo = bench.ask(&by_path(MKDIR, "/data/d"));
        assert_eq!(matches!(todo, DriverTask::Close), must, "relaxed {is_relaxed}, {generation}");
    }
}

#[test]
fn the_level_depends_on_the_distance_of_the_client() {
    let rule = |level| Some(std::sync::Arc::new(Signing::new(level, true, false, &[])));
    let signing = SigningByDistance {
        local: rule(SecurityLevel::NONE),
        remote: rule(SecurityLevel::STANDARD),
        domain: ".example.org".to_owned(),
    };
    let settings = Settings { signing, ..Settings::default() };
    for (host, must) in [(Some("c.Example.org"), false), (Some("c.example.com"), true), (None, true)] {
        let mut bench = Bench::greeted(settings.clone());
        let protocol = Raw::new(PROTOCOL).i32(4, 0x520).u8(8, 1);
        let front = bench.session.front(&protocol.bytes()).unwrap();
        assert!(bench.session.needs_peer_host(&front));
        bench
            .session
            .set_peer_host(host.map_or(auth::HostName::Unknown, |name| auth::HostName::Known(name.into())));
        assert_eq!(bench.reply_to(&protocol).body.len() > 8, must, "{host:?}");
        bench.reply_to(&login(5));
        let todo = bench.ask(&by_path(MKDIR, "/data/d"));
        assert_eq!(matches!(todo, DriverTask::Close), must, "{host:?}");
    }
}

#[test]
fn a_repeated_protocol_request_announces_the_level_of_the_first_one() {
    let rule = |level| Some(std::sync::Arc::new(Signing::new(level, true, false, &[])));
    let signing = SigningByDistance {
        local: rule(SecurityLevel::STANDARD),
        remote: rule(SecurityLevel::PEDANTIC),
        domain: ".example.org".to_owned(),
    };
    for ids in [&["host"][..], &["unix"]] {
        let settings = Settings { signing: signing.clone(), ..support::logins::guarded(ids, Vec::new()) };
        let mut bench = Bench::greeted(settings);
        bench.session.set_peer_host(auth::HostName::Known("c.example.org".into()));
        let protocol = Raw::new(PROTOCOL).i32(4, 0x520).u8(8, 1);
        let announced = bench.reply_to(&protocol).body;
        assert_eq!(announced[12], 2, "the level of local clients");
        bench.reply_to(&login(5));
        if bench.session.is_authenticating() {
            bench.authenticates(&support::logins::auth_request("unix", "d"));
        }
        assert!(bench.session.is_active());
        assert_eq!(bench.reply_to(&protocol).body, announced, "{ids:?}");
    }
}
