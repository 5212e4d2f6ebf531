//! Framing: requests cut at any byte, several in one segment, invalid lengths, wrong stages.
//!
//! Most cases are generated, because TCP may split requests at any position.

#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use session::{CALLS_MAX, Destination, DriverTask, PathId, ReceiveResult, Settings, TakeResult};
use support::*;

/// Requests of every kind, with an open file at handle 0.
fn samples() -> Vec<Raw> {
    let path = b"/data/f";
    let with_path = [CHMOD, DIRLIST, MKDIR, OPEN, RM, RMDIR, STAT, PREPARE, STATX, LOCATE, TRUNCATE];
    let mut all: Vec<Raw> = with_path.iter().map(|&code| Raw::new(code).payload(path)).collect();
    all.extend([CLOSE, SYNC, STAT, PING, QUERY].map(Raw::new));
    all.extend([
        Raw::new(PROTOCOL).i32(4, 0x520),
        Raw::new(AUTH).payload(b"unix\0a b"),
        Raw::new(GPFILE).payload(b"x"),
        Raw::new(LOGIN).payload(b"x"),
        Raw::new(BIND).at(4, &OWN_ID),
        Raw::new(ENDSESS).at(4, b"another session."),
        Raw::new(MV).payload(b"/data/a /data/b"),
        Raw::new(QUERY).u16(4, 7).payload(b"bind_max"),
        Raw::new(QUERY).u16(4, 1).payload(b"a"),
        Raw::new(SET).payload(b"appid test"),
        Raw::new(SIGVER).u16(4, OPEN).payload(&[7; 32]),
        Raw::new(FATTR).u8(8, 1).u8(9, 1).payload(b"/data/f\0\0\0name\0"),
        Raw::new(READ).i64(8, 5).i32(16, 100).payload(&[0; 8]),
        Raw::new(READV).payload(&segment(0, 10, 0)),
        Raw::new(PGREAD).i32(16, 5000).payload(&[0, 0]),
        Raw::new(WRITE).i64(8, 5).payload(b"data"),
        Raw::new(PGWRITE).payload(b"sum data"),
        Raw::new(WRITEV).payload(&segment(0, 4, 0)).data(b"data"),
        Raw::new(CLONE).payload(&[0; 32]),
        Raw::new(CHKPOINT),
        Raw::new(CHKPOINT).u8(19, 4).payload(&Raw::new(WRITE).dlen(4).header()).data(b"data"),
        Raw::new(CHKPOINT)
            .u8(19, 4)
            .payload(&Raw::new(WRITEV).dlen(16).header())
            .data(&[&segment(0, 4, 0)[..], b"data"].concat()),
        Raw::new(3040).payload(b"x"),
    ]);
    all
}

/// Feeds input in pieces. Returns the replies and the names of the tasks. Announced data is
/// consumed as it arrives.
fn run(bench: &mut Bench, pieces: &[&[u8]]) -> (Vec<u8>, Vec<String>) {
    let mut input: Vec<u8> = Vec::new();
    let mut trace = Vec::new();
    let mut data_left = 0;
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let passed = data_left.min(input.len());
            input.drain(..passed);
            data_left -= passed;
            if data_left > 0 || input.is_empty() || bench.session.is_ending() {
                break;
            }
            match bench.session.take(&input, base::Charge::NONE, &mut bench.out) {
                TakeResult::More { bytes } => {
                    assert!(bytes > input.len(), "{bytes} bytes are required, {} are available", input.len());
                    break;
                }
                TakeResult::Took { bytes, todo } => {
                    input.drain(..bytes);
                    if let DriverTask::Receive(receive) = &todo {
                        assert_eq!(receive.link, PathId::CONTROL);
                        data_left = receive.length;
                    }
                    trace.push(describe(&todo));
                }
            }
        }
    }
    (bench.bytes_on(0), trace)
}

fn describe(todo: &DriverTask) -> String {
    match todo {
        DriverTask::Read(task) => format!("{task:?}"),
        DriverTask::ReadVector(task) => format!("{:?}", task.elements),
        DriverTask::Receive(receive) => {
            let kind = match receive.into {
                Destination::File { offset, .. } => format!("file {offset}"),
                Destination::Pages { offset, .. } => format!("pages {offset}"),
                Destination::Vector(ref extents) => format!("{} extents", extents.len()),
                Destination::Discard => "nowhere".to_owned(),
            };
            format!("{} bytes to {kind}, checkpoint {}", receive.length, receive.checkpoint)
        }
        other => name(other).to_owned(),
    }
}

fn bench_with_file() -> Bench {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    bench
}

#[test]
fn a_request_cut_at_any_byte_waits_for_the_rest() {
    for request in samples() {
        let bytes = request.bytes();
        let whole = run(&mut bench_with_file(), &[&bytes]);
        for cut in 1..bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(run(&mut bench_with_file(), &[head, tail]), whole, "{request:?} cut at {cut}");
        }
    }
}

#[test]
fn a_handshake_cut_at_any_byte_waits_for_the_rest() {
    for cut in 0..HANDSHAKE.len() {
        let mut bench = Bench::untouched(Settings::default());
        let step = bench.session.take(&HANDSHAKE[..cut], base::Charge::NONE, &mut bench.out);
        assert!(matches!(step, TakeResult::More { bytes: 20 }), "cut at {cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_in_any_split_have_the_same_effect_as_in_one_piece(
        order in prop::collection::vec(0usize..100, 1..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let samples = samples();
        let stream: Vec<u8> =
            order.iter().flat_map(|&index| samples[index % samples.len()].bytes()).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        prop_assert_eq!(run(&mut bench_with_file(), &pieces), run(&mut bench_with_file(), &[&stream]));
    }

    /// Each field takes any value, with a preference for extremes. No request causes a panic, and
    /// each is answered or in progress.
    #[test]
    fn any_field_value_is_answered_or_in_progress(
        code in 3000u16..=3033,
        body in prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), Just(0x7f), Just(0x80), any::<u8>()], 16),
        dlen in prop_oneof![Just(0i32), Just(-1), Just(i32::MIN), Just(i32::MAX), Just(24), Just(16), 0..200i32],
        fill in prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), Just(b'/'), any::<u8>()], 260),
    ) {
        let request = Raw::new(code).at(4, &body).dlen(dlen);
        let mut bench = bench_with_file();
        let bytes = [&request.bytes()[..], &fill].concat();
        match bench.session.take(&bytes, base::Charge::NONE, &mut bench.out) {
            TakeResult::More { bytes: wanted } => {
                prop_assert!(wanted > bytes.len());
                prop_assert!(wanted <= 48 + 2 * 2 * 1024 * 1024);
            }
            TakeResult::Took { bytes: taken, todo } => {
                prop_assert!(taken >= 24 && taken <= bytes.len());
                let replies = bench.all_replies(0).len();
                let works = !matches!(todo, DriverTask::Nothing | DriverTask::Close) || bench.session.next_todo().is_some();
                let silent = code == SIGVER || bench.session.is_ending();
                // An argument above the limit is refused first and then discarded.
                let passed = replies == 1 && describe(&todo).ends_with("nowhere, checkpoint false");
                prop_assert!(replies + usize::from(works) == 1 || silent || passed, "{} replies, {}", replies, name(&todo));
            }
        }
    }
}

#[test]
fn invalid_lengths_are_violations() {
    for dlen in [-1, i32::MIN] {
        for code in [STAT, WRITE, PING, 3040] {
            let request = Raw::new(code).stream(9).dlen(dlen);
            let (code, text) = bench_with_file().ended_by(&request);
            assert_eq!((code, text.as_str()), (3000, "Invalid request data length"));
        }
    }
}

#[test]
fn an_argument_above_the_limit_is_refused_at_once_and_discarded() {
    for dlen in [2 * 1024 * 1024 + 1, i32::MAX] {
        let mut bench = Bench::new();
        let DriverTask::Receive(receive) = bench.feed(&Raw::new(STAT).dlen(dlen).bytes()) else { panic!() };
        assert!(matches!(receive.into, Destination::Discard));
        assert_eq!(receive.length, dlen as usize);
        assert_eq!(bench.reply().error(), (3002, "Request argument is too long".to_owned()));
        let todo = bench.session.received(receive.call, ReceiveResult::default(), &mut bench.out);
        assert!(matches!(todo, DriverTask::Nothing));
        bench.is_silent();
    }
    // The largest argument that is accepted.
    let mut bench = Bench::new();
    let most = Raw::new(STAT).payload(&vec![b'/'; 2 * 1024 * 1024]);
    bench.operation(&most);
}

#[test]
fn the_argument_limit_before_login_is_small() {
    let mut bench = Bench::greeted(Settings::default());
    let request = login(5).dlen(16 * 1024 + 1);
    assert_eq!(bench.ended_by(&request), (3002, "Request argument is too long".to_owned()));
    let mut bench = Bench::greeted(Settings::default());
    let step = bench.session.take(&login(5).dlen(16 * 1024).bytes(), base::Charge::NONE, &mut bench.out);
    assert!(matches!(step, TakeResult::More { bytes } if bytes == 24 + 16 * 1024));
}

#[test]
fn requests_before_login_end_the_session() {
    let refusal = (3006, "Invalid request; user not logged in".to_owned());
    for request in samples() {
        let code = u16::from_be_bytes([request.header()[2], request.header()[3]]);
        if [LOGIN, PROTOCOL, BIND].contains(&code) {
            continue;
        }
        assert_eq!(Bench::greeted(Settings::default()).ended_by(&request), refusal, "{request:?}");
    }
}

#[test]
fn an_invalid_handshake_ends_the_session_without_a_reply() {
    let mut wrong = HANDSHAKE;
    wrong[19] = 0xdd;
    let mut bench = Bench::untouched(Settings::default());
    assert!(matches!(bench.feed(&wrong), DriverTask::Close));
    bench.is_silent();
}

#[test]
fn a_missing_argument_is_refused() {
    let refusal = (3001, "Required argument not present".to_owned());
    let wanting = [
        AUTH, CHMOD, DIRLIST, GPFILE, LOGIN, MKDIR, MV, OPEN, RM, RMDIR, SET, FATTR, PREPARE, STATX, BIND,
        LOCATE,
    ];
    for code in wanting {
        // A bind has no argument. After login it is refused in the same way.
        if code == BIND {
            continue;
        }
        assert_eq!(Bench::new().refused(&Raw::new(code)), refusal, "{code}");
    }
}

#[test]
fn unknown_request_codes_are_refused_and_the_session_continues() {
    let mut bench = Bench::new();
    for code in [3033, 3040, 2900, 2999, 2000, 0, u16::MAX, AUTH, LOGIN, BIND] {
        let refusal = bench.refused(&Raw::new(code).payload(b"x"));
        assert_eq!(refusal, (3006, "Invalid request code".to_owned()), "{code}");
    }
    assert_eq!(bench.reply_to(&Raw::new(PING)).status, OK);
    assert_eq!(
        bench.refused(&Raw::new(GPFILE).payload(b"x")),
        (3013, "gpfile request is not supported".into())
    );
}

#[test]
fn input_after_the_end_is_ignored() {
    let mut bench = Bench::new();
    bench.ended_by(&Raw::new(PING).dlen(-1));
    assert!(matches!(bench.ask(&Raw::new(STAT).payload(b"/x")), DriverTask::Nothing));
    bench.is_silent();
    assert!(bench.session.is_finished());
}

#[test]
fn calls_in_flight_are_limited() {
    let mut bench = Bench::new();
    assert!(bench.session.has_room());
    for _ in 0..CALLS_MAX {
        bench.operation(&by_path(STAT, "/data/f"));
    }
    assert!(!bench.session.has_room());
    assert_eq!(bench.session.calls_in_flight(), CALLS_MAX);
}
