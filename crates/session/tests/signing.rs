//! kXR_sigver: requests that must be signed, and signatures that are accepted or refused.
//!
//! The table of requests is listed a second time, independent of the code, so that a change of it
//! fails.

#![allow(clippy::unwrap_used)]

mod support;

use session::{DriverTask, Settings, Signing};
use sha2::{Digest, Sha256};
use support::*;
use wire::xroot::codes::SecurityLevel;

fn settings(level: SecurityLevel, force: bool) -> Settings {
    Settings { signing: Signing { level, force }, ..Settings::default() }
}

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
    for (sequence, flags) in [(1, 0), (2, 1), (1000, 0), (u64::MAX, 0)] {
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
    let refusal = (3022, "Request not signed".to_owned());
    assert_eq!(demanding().ended_by(&by_path(MKDIR, "/data/d")), refusal);
    // A request that need not be signed is executed.
    demanding().operation(&by_path(STAT, "/data/d"));
}

#[test]
fn mismatched_signatures_end_the_session() {
    let request = by_path(MKDIR, "/data/d");
    let other = by_path(MKDIR, "/data/e");
    let good = signed(&request, 5, 0);
    let cases: [(Raw, Raw, &str); 6] = [
        (good.clone(), other.clone(), "Signature hash mismatch"),
        (sigver(&request, 5, 0, &[0; 32]), request.clone(), "Signature hash mismatch"),
        (good.clone().at(8, &6u64.to_be_bytes()), request.clone(), "Signature hash mismatch"),
        (good.clone().u8(7, 1), request.clone(), "Signature hash mismatch"),
        (good.clone().stream(9), request.clone(), "Signature streamid mismatch"),
        (good.clone().u16(4, RMDIR), request.clone(), "Signature requestid mismatch"),
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
        (good.clone().u8(6, 1), 3022, "Unsupported signature version"),
        (good.clone().u8(16, 0x81), 3022, "Unsupported signature key"),
        (good.clone().u8(16, 0), 3022, "Unsupported signature hash"),
        (good.clone().u8(16, 2), 3022, "Unsupported signature hash"),
        (good.clone().at(8, &[0; 8]), 3022, "Incorrect signature sequence"),
        (good.clone().payload(&[0; 31]), 3022, "Invalid signature hash length"),
        (good.clone().payload(&[0; 64]), 3022, "Invalid signature hash length"),
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
        let refusal = (3022, "Incorrect signature sequence".to_owned());
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

#[test]
fn a_hash_over_file_data_is_refused() {
    let write = Raw::new(WRITE).dlen(5);
    let mut bench = demanding();
    let open = open("/data/f", 0x20);
    takes(&mut bench, &signed(&open, 1, 0));
    let (call, _) = bench.operation(&open);
    bench.reply_of(call, opened(&FakeFile::new("/data/f")));
    takes(&mut bench, &signed(&write, 2, 1));
    assert!(matches!(bench.ask(&write), DriverTask::Receive(_)));
    takes(&mut bench, &signed(&write, 3, 0));
    assert_eq!(bench.ended_by(&write), (3022, "Unsupported signature hash".to_owned()));
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
