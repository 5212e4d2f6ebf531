//! Edge cases of operations that wait for their turn: limits, closes, and lost clients.
//!
//! Random sequences of regular operations are in `in_order`; these cases need a fixed sequence
//! instead.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind;
use session::{CALLS_MAX, DriverTask, PayloadAnnouncement, ReceiveResult};
use support::*;
use vfs::{Answer, FileOperation, Operation};

fn write(offset: i64, length: i32) -> Raw {
    Raw::new(WRITE).i64(8, offset).dlen(length)
}

fn receive(bench: &mut Bench, request: &Raw) -> PayloadAnnouncement {
    match bench.ask(request) {
        DriverTask::Receive(receive) => receive,
        other => panic!("{}", name(&other)),
    }
}

fn received(bench: &mut Bench, write: &PayloadAnnouncement, failed: bool) {
    let error = failed.then(|| base::Error::new(ErrorKind::IoError, "the connection was lost"));
    let todo = bench.session.received(
        write.call,
        ReceiveResult { error, ..ReceiveResult::default() },
        &mut bench.out,
    );
    assert!(matches!(todo, DriverTask::Nothing));
}

#[test]
fn reads_that_wait_count_as_requests_in_flight() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let first = receive(&mut bench, &write(0, 5));
    for _ in 1..CALLS_MAX {
        assert!(bench.session.has_room());
        let read = bench.ask(&Raw::new(READ).i64(8, 0).i32(16, 5));
        assert!(matches!(read, DriverTask::Nothing), "{}", name(&read));
    }
    assert!(!bench.session.has_room());
    received(&mut bench, &first, false);
    assert_eq!(bench.session.calls_in_flight(), 0);
    let reads = std::iter::from_fn(|| bench.session.next_todo());
    assert_eq!(reads.filter(|todo| matches!(todo, DriverTask::Read(_))).count(), CALLS_MAX - 1);
}

#[test]
fn a_duplicate_is_opened_after_the_writes_to_its_source() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let pending = receive(&mut bench, &write(0, 5));
    // kXR_dup of the file with handle 0.
    let duplicate = open("/data/copy", 0x0028).u16(8, 1);
    assert!(matches!(bench.ask(&duplicate), DriverTask::Nothing));
    bench.is_silent();
    received(&mut bench, &pending, false);
    let next = bench.session.next_todo();
    let Some(DriverTask::Call(_, Operation::Open(_, request))) = next else { panic!() };
    assert!(request.duplicate_of.is_some());
}

#[test]
fn a_query_overtakes_all_operations_and_only_the_close_waits_for_it() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let pending = receive(&mut bench, &write(0, 5));
    assert!(matches!(bench.ask(&Raw::new(TRUNCATE)), DriverTask::Nothing));
    let (query, _) = bench.file_operation(&Raw::new(QUERY).u16(4, 64).payload(b"ofs.tpc cancel"));
    received(&mut bench, &pending, false);
    let Some(DriverTask::FileCall(truncate, _, FileOperation::Truncate { .. })) = bench.session.next_todo()
    else {
        panic!("a truncate waits for a query")
    };
    bench.answer(truncate, Answer::DONE);
    assert!(bench.close(&Raw::new(CLOSE)).is_none());
    bench.answer(query, Answer::DONE);
    assert!(matches!(
        bench.session.next_todo(),
        Some(DriverTask::FileCall(_, _, FileOperation::Close { .. }))
    ));
}

/// A client sends a write and a close and disconnects while both wait. The file is closed only if
/// the whole write arrived.
#[test]
fn a_file_is_not_closed_when_a_write_before_the_close_was_lost() {
    for lost in [false, true] {
        let mut bench = Bench::new();
        bench.open("/data/f", 0);
        let first = receive(&mut bench, &write(0, 5));
        let second = receive(&mut bench, &write(4, 5));
        assert!(!first.held && second.held);
        assert!(bench.close(&Raw::new(CLOSE)).is_none());
        bench.session.end();
        received(&mut bench, &first, false);
        assert!(matches!(bench.session.next_todo(), Some(DriverTask::Proceed(call)) if call == second.call));
        received(&mut bench, &second, lost);
        let Some(DriverTask::FileCall(call, _, operation)) = bench.session.next_todo() else { panic!() };
        match operation {
            FileOperation::Close { failed: false } => assert!(!lost),
            FileOperation::Abandon => assert!(lost),
            _ => panic!("neither a close nor a release"),
        }
        bench.answer(call, Answer::DONE);
        assert!(bench.session.is_finished());
    }
}

#[test]
fn operations_that_wait_at_disconnect_are_dropped() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let pending = receive(&mut bench, &write(0, 5));
    for request in [Raw::new(TRUNCATE), Raw::new(SYNC), Raw::new(READ).i32(16, 5), Raw::new(STAT)] {
        assert!(matches!(bench.ask(&request), DriverTask::Nothing), "{request:?}");
    }
    assert_eq!(bench.session.calls_in_flight(), 5);
    assert_eq!(bench.end(), [""; 0]);
    // The write, and the release that waits for it.
    assert_eq!(bench.session.calls_in_flight(), 2);
    received(&mut bench, &pending, true);
    assert_eq!(bench.released(), ["/data/f"]);
    assert!(bench.session.is_finished());
}

/// The real client closes a file in its destructor, without waiting, and opens it again.
#[test]
fn an_operation_on_a_name_follows_the_close_of_a_file_of_this_name_only() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let Some(DriverTask::FileCall(close, ..)) = bench.close(&Raw::new(CLOSE)) else { panic!() };
    let waiting = [
        open("/data/f?x=1", 0x0008),
        by_path(STAT, "/data/f"),
        by_path(TRUNCATE, "/data/f"),
        by_path(RM, "/data/f"),
        by_path(DIRLIST, "/data/"),
        Raw::new(QUERY).u16(4, 3).payload(b"/data/f"),
    ];
    for request in &waiting {
        assert!(matches!(bench.ask(request), DriverTask::Nothing), "{request:?}");
    }
    for path in ["/data/f2", "/data/f/below", "/da"] {
        assert!(matches!(bench.ask(&by_path(STAT, path)), DriverTask::Call(..)));
    }
    let first = bench.answer(close, Answer::DONE);
    let started = std::iter::once(first).chain(std::iter::from_fn(|| bench.session.next_todo()));
    assert_eq!(started.filter(|todo| matches!(todo, DriverTask::Call(..))).count(), waiting.len());
}

/// The file that takes the place of a closed one does not wait for operations on the old name.
#[test]
fn a_new_file_in_the_slot_of_a_closed_one_waits_for_nothing() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let Some(DriverTask::FileCall(close, ..)) = bench.close(&Raw::new(CLOSE)) else { panic!() };
    assert!(matches!(bench.ask(&Raw::new(QUERY).u16(4, 3).payload(b"/data/f")), DriverTask::Nothing));
    assert_eq!(bench.reply_of(close, Answer::DONE).status, OK);
    assert!(matches!(bench.session.next_todo(), Some(DriverTask::Call(_, Operation::Checksum(_)))));
    bench.open("/data/g", 0);
    assert!(bench.close(&Raw::new(CLOSE)).is_some());
}
