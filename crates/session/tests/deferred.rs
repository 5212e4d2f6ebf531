//! Deferred answers: kXR_waitresp and kXR_attn.
//!
//! Clients of old generations cannot accept them, so they retry instead.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind;
use session::{CallId, CountedEvent, DriverTask, ReceiveResult, Settings};
use std::time::{Duration, Instant};
use support::*;
use vfs::{Answer, FileOperation, Operation, Value};
use wire::xroot::codes::{ErrorCode, RequestCode};

fn old() -> Bench {
    Bench::with(Settings::default(), 1)
}

fn notify(bench: &mut Bench, call: CallId, text: &str) -> Vec<Reply> {
    bench.session.defer_answer(call, 600, text, &mut bench.out);
    bench.all_replies(0)
}

fn checksum() -> Answer {
    Answer::Value(Value::Checksum { algorithm: "adler32".to_owned(), hex: "cfbd70e6".to_owned() })
}

#[test]
fn a_deferred_checksum_is_sent_as_recorded() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&Raw::new(QUERY).at(0, &[1, 0]).u16(4, 3).payload(b"/data/dir1/ten\0"));
    let told = notify(&mut bench, call, "Job scheduled.");
    assert_eq!((told[0].stream, told[0].status), (0x0100, WAITRESP));
    assert_eq!(told[0].body, b"\0\0\x02\x58Job scheduled.");
    assert!(matches!(bench.answer(call, checksum()), DriverTask::Nothing));
    let recorded = b"\0\0\x0f\xa1\0\0\0\x21\0\0\x13\x90\0\0\0\0\x01\0\0\0\0\0\0\x11adler32 cfbd70e6\0";
    assert_eq!(bench.bytes_on(0), recorded);
}

#[test]
fn errors_redirects_and_waits_can_be_deferred() {
    use CountedEvent::{Error, LateAnswer, LateError, LateSuccess, Redirect, Wait};
    let later = |answer, counted: &[CountedEvent]| {
        let mut bench = Bench::new();
        let (call, _) = bench.operation(&by_path(STAT, "/data/f").stream(5));
        assert_eq!(notify(&mut bench, call, "")[0].body, [0, 0, 2, 0x58]);
        let reply = bench.reply_of(call, answer).embedded();
        assert_eq!(reply.stream, 5);
        assert_eq!(bench.out.1, [&[LateAnswer], counted].concat());
        reply
    };
    let refused = later(error(ErrorKind::NotFound, "no"), &[Error(ErrorCode::NOT_FOUND), LateError]);
    assert_eq!(refused.error(), (3011, "no".to_owned()));
    assert_eq!(later(Answer::Wait { seconds: 3, text: String::new() }, &[Wait]).body, [0, 0, 0, 3]);
    let to = vfs::RedirectAnswer { host: "h".into(), port: 1094, cgi: String::new() };
    assert_eq!(later(Answer::Redirect(to), &[Redirect]).status, REDIRECT);
    assert_eq!(later(Answer::Value(Value::Stat(stat())), &[LateSuccess]).text(), format!("{STAT_TEXT}\0"));
}

#[test]
fn a_client_is_notified_once() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&by_path(STAT, "/data/f"));
    assert_eq!(notify(&mut bench, call, "").len(), 1);
    assert_eq!(notify(&mut bench, call, "").len(), 0);
    // A call that no longer exists.
    bench.answer(call, Answer::DONE);
    bench.bytes_on(0);
    assert_eq!(notify(&mut bench, call, "").len(), 0);
}

#[test]
fn an_old_client_retries_and_receives_the_answer() {
    let mut bench = old();
    let request = Raw::new(QUERY).u16(4, 3).payload(b"/data/f");
    let (call, _) = bench.operation(&request);
    let told = notify(&mut bench, call, "Job scheduled.");
    assert_eq!((told[0].status, &told[0].body[..]), (WAIT, &b"\0\0\0\x1eJob scheduled."[..]));
    // The client retries before and after the first answer, which is dropped.
    let (second, _) = bench.operation(&request);
    assert!(matches!(bench.answer(call, checksum()), DriverTask::Nothing));
    bench.is_silent();
    assert_eq!(bench.reply_of(second, checksum()).text(), "adler32 cfbd70e6\0");
}

#[test]
fn a_request_to_wait_ends_the_time_of_a_request_and_a_notice_does_not() {
    let query = Raw::new(QUERY).u16(4, 3).payload(b"/data/f");
    let ended = || {
        let mut count = 0;
        session::end_round(Instant::now(), |requests| count += requests.count);
        count
    };
    for (mut bench, at_notice) in [(old(), 1), (Bench::new(), 0)] {
        ended();
        session::begin_request(Some(RequestCode::QUERY), Duration::ZERO);
        let (call, _) = bench.operation(&query);
        assert_eq!(ended(), 0);
        notify(&mut bench, call, "Job scheduled.");
        assert_eq!(ended(), at_notice);
        bench.answer(call, checksum());
        assert_eq!(ended(), 1 - at_notice);
    }
}

#[test]
fn a_deferred_open_is_retried_immediately() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&open("/data/f", 0x10).stream(5));
    notify(&mut bench, call, "");
    let file = FakeFile::new("/data/f");
    let DriverTask::FileCall(release, on, FileOperation::Abandon) = bench.answer(call, opened(&file)) else {
        panic!()
    };
    assert!(file.is(&on));
    let wait = bench.reply().embedded();
    assert_eq!((wait.stream, wait.status, &wait.body[..]), (5, WAIT, &[0, 0, 0, 0][..]));
    // The handle of the first open does not remain.
    assert_eq!(bench.refused(&Raw::new(CLOSE)).0, 3004);
    bench.answer(release, Answer::DONE);
    bench.is_silent();
    bench.open("/data/f", 0);
}

#[test]
fn a_deferred_open_of_an_old_client_is_released() {
    let mut bench = old();
    let (call, _) = bench.operation(&open("/data/f", 0x10));
    assert_eq!(notify(&mut bench, call, "")[0].status, WAIT);
    let todo = bench.answer(call, opened(&FakeFile::new("/data/f")));
    let DriverTask::FileCall(release, _, FileOperation::Abandon) = todo else { panic!() };
    bench.is_silent();
    bench.answer(release, Answer::DONE);
    assert_eq!((bench.session.files_open(), bench.session.calls_in_flight()), (0, 0));
}

#[test]
fn an_operation_on_a_handle_is_not_retried() {
    // A client of an old generation cannot be notified. It waits for its close and receives the
    // reply as usual.
    let mut bench = old();
    bench.open("/data/f", 0);
    let Some(DriverTask::FileCall(call, ..)) = bench.close(&Raw::new(CLOSE).stream(3)) else { panic!() };
    assert_eq!(notify(&mut bench, call, "").len(), 0);
    let reply = bench.reply_of(call, Answer::DONE);
    assert_eq!((reply.stream, reply.status), (3, OK));
    // A current client is notified.
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let Some(DriverTask::FileCall(call, ..)) = bench.close(&Raw::new(CLOSE).stream(3)) else { panic!() };
    assert_eq!(notify(&mut bench, call, "")[0].status, WAITRESP);
    assert_eq!(bench.reply_of(call, Answer::DONE).embedded().status, OK);
}

#[test]
fn the_sync_of_a_vector_write_may_be_deferred() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    bench.open("/data/g", 1);
    let list = [segment(0, 1, 0), segment(1, 1, 0)].concat();
    let request = Raw::new(WRITEV).stream(6).u8(4, 1).payload(&list);
    let DriverTask::Receive(receive) = bench.ask(&request) else { panic!() };
    let todo = bench.session.received(receive.call, ReceiveResult::default(), &mut bench.out);
    let DriverTask::FileCall(first, ..) = todo else { panic!() };
    assert_eq!(notify(&mut bench, first, "")[0].status, WAITRESP);
    let DriverTask::FileCall(second, ..) = bench.answer(first, Answer::DONE) else { panic!() };
    // The client was already notified.
    assert_eq!(notify(&mut bench, second, "").len(), 0);
    let reply = bench.reply_of(second, Answer::DONE).embedded();
    assert_eq!((reply.stream, reply.status), (6, OK));
}

#[test]
fn a_listing_and_a_release_send_no_notice() {
    let mut bench = Bench::new();
    let (call, operation) = bench.operation(&by_path(DIRLIST, "/data"));
    assert!(matches!(operation, Operation::List(..)));
    assert_eq!(notify(&mut bench, call, "").len(), 0);
    assert_eq!(
        bench.reply_of(call, Answer::Value(Value::Listing { entries: vec![].into(), rest: None })).status,
        OK
    );
    bench.open("/data/f", 0);
    bench.session.end();
    let Some(DriverTask::FileCall(release, ..)) = bench.session.next_todo() else { panic!() };
    assert_eq!(notify(&mut bench, release, "").len(), 0);
    bench.answer(release, Answer::DONE);
    bench.is_silent();
}
