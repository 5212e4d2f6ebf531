//! Handshake, protocol, login, bind and the end of a session.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind;
use session::{DriverTask, PathId, Settings, Signing, SigningByDistance};
use support::*;
use vfs::Answer;
use wire::xroot::codes::SecurityLevel;
use wire::xroot::flags::ServerFlags;

fn protocol(version: i32, flags: u8, expect: u8) -> Raw {
    Raw::new(PROTOCOL).i32(4, version).u8(8, flags).u8(9, expect)
}

#[test]
fn the_reply_to_protocol_has_version_and_role() {
    let mut bench = Bench::greeted(Settings::default());
    let modern = [0, 0, 5, 0x20, 0, 0x30, 0, 1];
    // Any flags and expectations: without TLS and signing the reply is the same.
    for (flags, expect) in [(0, 0), (0x09, 3), (0x0f, 3), (0x01, 4), (0x08, 1), (0xff, 0xff)] {
        assert_eq!(bench.reply_to(&protocol(0x520, flags, expect)).body, modern, "{flags:#x} {expect}");
    }
    assert_eq!(bench.reply_to(&protocol(0x297, 0, 0)).body, modern);
    // The role number of the oldest protocol, for clients that do not know the flags.
    assert_eq!(bench.reply_to(&protocol(0, 1, 0)).body, [0, 0, 5, 0x20, 0, 0, 0, 1]);
    assert_eq!(bench.reply_to(&protocol(-1, 0, 0)).status, OK);
    // kXR_protocol is also allowed after login.
    bench.reply_to(&login(5));
    assert_eq!(bench.reply_to(&protocol(0x520, 0, 0)).body, modern);
}

#[test]
fn a_manager_announces_its_role() {
    let settings = Settings { flags: ServerFlags(0x0030_0002), ..Settings::default() };
    let mut bench = Bench::untouched(settings);
    bench.feed(&HANDSHAKE);
    assert_eq!(bench.bytes_on(0)[8..], [0, 0, 5, 0x20, 0, 0, 0, 0]);
    assert_eq!(bench.reply_to(&protocol(0x520, 0, 0)).body[4..], [0, 0x30, 0, 2]);
    assert_eq!(bench.reply_to(&protocol(0, 0, 0)).body[4..], [0, 0, 0, 0]);
}

#[test]
fn signing_requirements_are_sent_on_request() {
    let signing = SigningByDistance::of_all(Signing::new(SecurityLevel::INTENSE, true, false, &[]));
    let mut bench = Bench::greeted(Settings { signing, ..Settings::default() });
    let told = [0, 0, 5, 0x20, 0, 0x30, 0, 1, b'S', 0, 0, 2, 3, 0];
    assert_eq!(bench.reply_to(&protocol(0x520, 0x01, 3)).body, told);
    assert_eq!(bench.reply_to(&protocol(0x310, 0x01, 3)).body, told);
    assert_eq!(bench.reply_to(&protocol(0x30f, 0x01, 3)).body, told[..8]);
    assert_eq!(bench.reply_to(&protocol(0x520, 0x08, 3)).body, told[..8]);
    let quiet = SigningByDistance::of_all(Signing::new(SecurityLevel::NONE, true, false, &[]));
    let mut bench = Bench::greeted(Settings { signing: quiet, ..Settings::default() });
    assert_eq!(bench.reply_to(&protocol(0x520, 0x01, 3)).body, told[..8]);
}

#[test]
fn login_returns_the_session_id_and_stores_the_identity() {
    let mut bench = Bench::greeted(Settings::default());
    let cgi = b"xrd.cc=us&xrd.tz=0&xrd.appname=xrd\tcp&xrd.info=&xrd.hostname=vm&xrd.rn=v6.1.0";
    let request = Raw::new(LOGIN).i32(4, 23941).at(8, b"ro\not\0\0\0").u8(17, 0xdd).u8(18, 0x85).payload(cgi);
    assert_eq!(bench.reply_to(&request).body, OWN_ID);
    let caller = bench.session.caller().clone();
    let identity = &caller.identity;
    assert_eq!((identity.user(), identity.pid), ("ro_ot", 23941));
    assert_eq!((identity.application(), identity.release()), ("xrd_cp", "v6.1.0"));
    assert!(caller.accepts_deferred_reply);
    assert!(bench.session.is_active());
}

#[test]
fn a_name_may_fill_its_field_and_a_cgi_may_begin_with_a_sign() {
    for (first, text) in [("", "xrd.rn=v4.12"), ("?", "xrd.rn=v4.12"), ("&", "xrd.rn=v4.12&x")] {
        let mut bench = Bench::greeted(Settings::default());
        let request = login(4).at(8, b"averylon").payload(format!("{first}{text}").as_bytes());
        bench.reply_to(&request);
        let identity = bench.session.caller().identity.clone();
        assert_eq!((identity.user(), identity.release()), ("averylon", "v4.12"), "{first}");
    }
    // A name and a cgi that are not text.
    let mut bench = Bench::greeted(Settings::default());
    assert_eq!(bench.reply_to(&login(0x85).at(8, &[0xff; 8]).payload(&[0xff; 300])).status, OK);
}

#[test]
fn the_generation_selects_session_id_and_deferred_answers() {
    for generation in 0..=63 {
        let bench = Bench::with(Settings::default(), generation);
        assert_eq!(bench.session.caller().accepts_deferred_reply, generation >= 2, "{generation}");
    }
}

#[test]
fn a_second_login_is_refused() {
    let mut bench = Bench::new();
    assert_eq!(bench.refused(&login(5)), (3001, "Required argument not present".to_owned()));
    assert_eq!(bench.refused(&login(5).payload(b"x")), (3006, "Invalid request code".to_owned()));
    assert_eq!(bench.refused(&Raw::new(AUTH).payload(b"unix\0")), (3006, "Invalid request code".to_owned()));
    assert!(bench.session.is_active());
}

#[test]
fn a_bind_is_passed_to_the_driver() {
    let mut bench = Bench::greeted(Settings::default());
    let DriverTask::Bind { streamid, session } =
        bench.ask(&Raw::new(BIND).stream(2).at(4, b"another session."))
    else {
        panic!()
    };
    assert_eq!((streamid.0, &session.0), ([0, 2], b"another session."));
    // After login a connection has its own session.
    assert_eq!(Bench::new().refused(&Raw::new(BIND).at(4, &OWN_ID)).0, 3001);
}

#[test]
fn fifteen_connections_may_join_and_get_the_lowest_free_id() {
    let mut bench = Bench::new();
    for wanted in 1..=15 {
        assert_eq!(bench.session.bind(address(), false).unwrap(), PathId(wanted));
    }
    let refusal = bench.session.bind(address(), false).unwrap_err();
    assert_eq!((refusal.kind, refusal.text.as_str()), (ErrorKind::NoMemory, "bind limit exceeded"));
    bench.session.unbind(PathId(9));
    bench.session.unbind(PathId(4));
    assert!(!bench.session.is_bound(PathId(4)) && bench.session.is_bound(PathId(5)));
    assert_eq!(bench.session.bind(address(), false).unwrap(), PathId(4));
    assert_eq!(bench.session.bind(address(), false).unwrap(), PathId(9));
    // Invalid path ids name no connection.
    bench.session.unbind(PathId(200));
    assert!(!bench.session.is_bound(PathId(16)));
}

#[test]
fn only_the_host_of_an_active_session_may_join() {
    let text = |bench: &mut Bench, address| {
        let error = bench.session.bind(address, false).unwrap_err();
        (error.kind, error.text)
    };
    let mut bench = Bench::greeted(Settings::default());
    assert_eq!(text(&mut bench, address()), (ErrorKind::ArgInvalid, "session not logged in".to_owned()));
    let mut bench = Bench::new();
    let elsewhere = Some([192, 0, 2, 2].into());
    let refusal = (ErrorKind::NotAuthorized, "cross-host bind not allowed".to_owned());
    assert_eq!(text(&mut bench, elsewhere), refusal);
    bench.session.end();
    assert_eq!(text(&mut bench, address()), (ErrorKind::NotFound, "session just closed".to_owned()));
}

#[test]
fn endsess_of_the_own_session_ends_it_without_a_reply() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    assert!(matches!(bench.ask(&Raw::new(ENDSESS).at(4, &OWN_ID)), DriverTask::Close));
    bench.is_silent();
    assert_eq!(bench.released(), ["/data/f"]);
    assert!(bench.session.is_finished());
}

#[test]
fn endsess_of_an_unknown_session_is_answered_and_the_session_continues() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    assert!(matches!(bench.ask(&Raw::new(ENDSESS)), DriverTask::Nothing));
    let reply = bench.reply();
    assert_eq!((reply.status, reply.body.len()), (OK, 0));
    assert!(bench.released().is_empty());
}

#[test]
fn endsess_of_another_session_is_answered_by_its_end() {
    let mut bench = Bench::new();
    let other = Raw::new(ENDSESS).stream(7).at(4, b"another session.");
    let DriverTask::EndSession { call, session } = bench.ask(&other) else { panic!() };
    assert_eq!(&session.0, b"another session.");
    bench.is_silent();
    let reply = bench.reply_of(call, Answer::DONE);
    assert_eq!((reply.stream, reply.status), (7, OK));
    let DriverTask::EndSession { call, .. } = bench.ask(&other) else { panic!() };
    let reply = bench.reply_of(call, error(ErrorKind::NotAuthorized, "not session owner"));
    assert_eq!(reply.error(), (3010, "not session owner".to_owned()));
}

#[test]
fn ping_is_answered() {
    let reply = Bench::new().reply_to(&Raw::new(PING).stream(0xffff));
    assert_eq!((reply.stream, reply.status, reply.body.len()), (0xffff, OK, 0));
}
