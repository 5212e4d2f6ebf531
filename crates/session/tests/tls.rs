//! Encryption: which connections switch to TLS, when, and what is refused in clear text.

#![allow(clippy::unwrap_used)]

mod support;

use config::{TlsOperations, TlsRequirements};
use session::{DriverTask, Settings};
use support::*;

const NONE: TlsOperations =
    TlsOperations { login: false, session: false, data: false, gpfile: false, third_party: false };
const LOGIN_ONLY: TlsOperations = TlsOperations { login: true, ..NONE };
const SESSION: TlsOperations = TlsOperations { session: true, ..NONE };
const DATA: TlsOperations = TlsOperations { data: true, ..NONE };
const TPC: TlsOperations = TlsOperations { third_party: true, ..NONE };

/// The flags of stock clients: without TLS, able to, with `roots`.
const INCAPABLE: u8 = 0x09;
const CAPABLE: u8 = 0x0b;
const WANTS: u8 = 0x0f;

const EXPECT_BIND: u8 = 1;
const EXPECT_LOGIN: u8 = 3;
const EXPECT_TPC: u8 = 4;

const TLS_REQUIRED: u16 = 3028;

fn settings(all: TlsOperations, capable: TlsOperations) -> Settings {
    Settings { tls: Some(TlsRequirements { all, capable }), ..Settings::default() }
}

/// Sends kXR_protocol. Returns the flags of the reply, and whether the connection switches.
fn negotiate(bench: &mut Bench, flags: u8, expect: u8) -> (u32, bool) {
    let request = Raw::new(PROTOCOL).i32(4, 0x520).u8(8, flags).u8(9, expect);
    let todo = bench.feed(&request.bytes());
    let reply = Reply::all(&bench.bytes_on(0)).remove(0);
    bench.out = Outputs::default();
    (u32::from_be_bytes(reply.body[4..8].try_into().unwrap()), matches!(todo, DriverTask::StartTls))
}

/// Returns the task after a login, and the replies.
fn log_in(bench: &mut Bench) -> (DriverTask, Vec<Reply>) {
    let todo = bench.feed(&login(5).bytes());
    let replies = Reply::all(&bench.bytes_on(0));
    bench.out = Outputs::default();
    (todo, replies)
}

#[test]
fn a_connection_switches_if_the_client_or_its_next_step_asks_for_it() {
    let cases = [
        (settings(NONE, NONE), 0x8030_0001, [false, false, true], false, false),
        (settings(LOGIN_ONLY, NONE), 0x8430_0001, [false, true, true], false, true),
        (settings(SESSION, NONE), 0x8830_0001, [false, false, true], false, false),
        // As recorded: "capable session data".
        (settings(NONE, SESSION.union(DATA)), 0x8930_0001, [false, false, true], true, false),
        (settings(TPC, NONE), 0x9030_0001, [false, false, true], false, true),
    ];
    for (settings, announced, login_switches, bind_switches, copy_switches) in cases {
        for (flags, switches) in [INCAPABLE, CAPABLE, WANTS].into_iter().zip(login_switches) {
            let mut bench = Bench::greeted(settings.clone());
            let expected = if switches { announced | 0x4000_0000 } else { announced };
            assert_eq!(negotiate(&mut bench, flags, EXPECT_LOGIN), (expected, switches), "{flags:#x}");
            assert_eq!(bench.session.is_tls(), switches);
        }
        for (expect, expected) in [(EXPECT_BIND, bind_switches), (EXPECT_TPC, copy_switches)] {
            let mut bench = Bench::greeted(settings.clone());
            assert_eq!(negotiate(&mut bench, CAPABLE, expect).1, expected, "{announced:#x} {expect}");
            let mut bench = Bench::greeted(settings.clone());
            assert!(!negotiate(&mut bench, INCAPABLE, expect).1);
        }
    }
    // Without a certificate nothing is announced, and a client that insists ends the connection.
    let mut bench = Bench::greeted(Settings::default());
    assert_eq!(negotiate(&mut bench, WANTS, EXPECT_LOGIN), (0x0030_0001, false));
    // The oldest protocol has a role number there.
    let mut bench = Bench::greeted(settings(LOGIN_ONLY, NONE));
    let request = Raw::new(PROTOCOL).i32(4, 0).u8(8, 0xff);
    assert_eq!(bench.reply_to(&request).body[4..], [0, 0, 0, 1]);
}

#[test]
fn a_login_in_clear_text_is_refused_where_it_must_be_encrypted() {
    let refusals = [
        (INCAPABLE, "login requires TLS support"),
        // A client that is able to encrypt and expects something else.
        (CAPABLE, "login requires TLS be enabled"),
    ];
    for (flags, text) in refusals {
        let mut bench = Bench::greeted(settings(LOGIN_ONLY, NONE));
        negotiate(&mut bench, flags, 0);
        let (todo, replies) = log_in(&mut bench);
        assert!(matches!(todo, DriverTask::Close));
        assert_eq!(replies[0].error(), (TLS_REQUIRED, text.to_owned()));
    }
    // A client that sent no kXR_protocol at all.
    let mut bench = Bench::greeted(settings(LOGIN_ONLY, NONE));
    assert_eq!(log_in(&mut bench).1[0].error().0, TLS_REQUIRED);
    // `capable` serves such clients.
    let mut bench = Bench::greeted(settings(NONE, LOGIN_ONLY));
    negotiate(&mut bench, INCAPABLE, EXPECT_LOGIN);
    assert_eq!(log_in(&mut bench).1[0].status, OK);
}

#[test]
fn a_session_switches_after_its_login() {
    for needs in [SESSION, DATA] {
        let mut bench = Bench::greeted(settings(needs, NONE));
        negotiate(&mut bench, CAPABLE, EXPECT_LOGIN);
        let (todo, replies) = log_in(&mut bench);
        assert!(matches!(todo, DriverTask::StartTls));
        assert_eq!((replies.len(), replies[0].status, bench.session.is_tls()), (1, OK, true));
        // A client that cannot is told after the reply to its login.
        let mut bench = Bench::greeted(settings(needs, NONE));
        negotiate(&mut bench, INCAPABLE, EXPECT_LOGIN);
        let (todo, replies) = log_in(&mut bench);
        assert!(matches!(todo, DriverTask::Close));
        assert_eq!(replies[0].status, OK);
        assert_eq!(replies[1].error(), (TLS_REQUIRED, "session requires TLS support".to_owned()));
    }
    // One that has switched already does not switch again.
    let mut bench = Bench::greeted(settings(SESSION, NONE));
    assert!(negotiate(&mut bench, WANTS, EXPECT_LOGIN).1);
    assert!(matches!(log_in(&mut bench).0, DriverTask::Nothing));
    assert!(!negotiate(&mut bench, WANTS, EXPECT_LOGIN).1);
}

#[test]
fn a_session_that_is_in_use_does_not_switch() {
    let mut bench = Bench::greeted(settings(NONE, NONE));
    negotiate(&mut bench, CAPABLE, EXPECT_LOGIN);
    log_in(&mut bench);
    assert_eq!(negotiate(&mut bench, WANTS, EXPECT_LOGIN), (0x8030_0001, false));
}

#[test]
fn data_in_clear_text_does_not_join_a_session_that_requires_encrypted_data() {
    let mut bench = Bench::greeted(settings(DATA, NONE));
    negotiate(&mut bench, CAPABLE, EXPECT_LOGIN);
    log_in(&mut bench);
    let error = bench.session.bind(address(), false).unwrap_err();
    assert_eq!((error.kind, error.text.as_str()), (base::ErrorKind::TlsRequired, "bind requires TLS"));
    assert!(bench.session.bind(address(), true).is_ok());
    // A client without TLS, where the others must encrypt.
    let mut bench = Bench::greeted(settings(NONE, DATA));
    negotiate(&mut bench, INCAPABLE, EXPECT_LOGIN);
    log_in(&mut bench);
    assert!(bench.session.bind(address(), false).is_ok());
}

#[test]
fn copies_and_gpfile_in_clear_text_are_refused_where_they_must_be_encrypted() {
    let needs = TlsOperations { gpfile: true, ..TPC };
    let mut bench = Bench::greeted(settings(needs, NONE));
    negotiate(&mut bench, CAPABLE, EXPECT_LOGIN);
    log_in(&mut bench);
    let open = |path: &str| Raw::new(OPEN).payload(path.as_bytes());
    let refused = bench.reply_to(&open("/a?tpc.key=1&tpc.dst=h&tpc.stage=copy"));
    assert_eq!(refused.error(), (TLS_REQUIRED, "third-party copies require TLS".to_owned()));
    assert_eq!(bench.reply_to(&Raw::new(GPFILE).payload(b"/a")).error().0, TLS_REQUIRED);
    // Other opens pass.
    assert!(matches!(bench.feed(&open("/a?x=tpc.key").bytes()), DriverTask::Call(..)));
}
