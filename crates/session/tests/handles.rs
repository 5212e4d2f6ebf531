//! Requests on open files: reads, status, closes and their order, handles, checkpoints.
//!
//! Requests that carry data are in `writes.rs` and `vectors_of_data.rs`.

#![allow(clippy::unwrap_used)]

mod support;

use base::{ErrorKind, Extent};
use session::{DriverTask, FileIndex, PathId, ReadElement, ReadTask, Settings};
use support::*;
use vfs::{Answer, CheckpointWork, FileOperation, Operation, SpaceFigures, Value};

fn read(handle: u32, offset: i64, length: i32) -> Raw {
    Raw::new(READ).handle(handle).i64(8, offset).i32(16, length)
}

fn pgread(handle: u32, offset: i64, length: i32) -> Raw {
    Raw::new(PGREAD).handle(handle).i64(8, offset).i32(16, length)
}

fn read_task(bench: &mut Bench, request: &Raw) -> ReadTask {
    match bench.ask(request) {
        DriverTask::Read(task) => task,
        other => panic!("{}", name(&other)),
    }
}

#[test]
fn each_request_on_an_unknown_handle_is_refused() {
    let mut bench = Bench::new();
    let not_open = |name: &str| (3004, format!("{name} does not refer to an open file"));
    for handle in [5, 1, u32::MAX, 0x0100_0000] {
        assert_eq!(bench.refused(&Raw::new(CLOSE).handle(handle)), not_open("close"));
        assert_eq!(bench.refused(&read(handle, 0, 1)), not_open("read"));
        assert_eq!(bench.refused(&pgread(handle, 0, 1)), not_open("pgread"));
        assert_eq!(bench.refused(&Raw::new(SYNC).handle(handle)), not_open("sync"));
        assert_eq!(bench.refused(&Raw::new(STAT).at(16, &handle.to_le_bytes())), not_open("stat"));
        assert_eq!(bench.refused(&Raw::new(TRUNCATE).handle(handle)), not_open("trunc"));
        assert_eq!(bench.refused(&Raw::new(READV).payload(&segment(handle, 1, 0))), not_open("readv"));
        assert_eq!(bench.refused(&Raw::new(CHKPOINT).handle(handle)), not_open("chkpoint"));
        assert_eq!(bench.refused(&Raw::new(QUERY).u16(4, 8).at(8, &handle.to_le_bytes())), not_open("query"));
        let fattr = Raw::new(FATTR).handle(handle).u8(8, 1).u8(9, 1).payload(b"\0\0\0a\0");
        assert_eq!(bench.refused(&fattr), not_open("fattr"));
    }
}

#[test]
fn a_read_is_passed_on_with_its_arguments() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    bench.open("/data/g", 1);
    let task = read_task(&mut bench, &read(1, 5, 100).stream(77));
    let wanted = ReadTask {
        streamid: wire::xroot::header::StreamId([0, 77]),
        link: PathId::CONTROL,
        file: FileIndex(1),
        offset: 5,
        length: 100,
        paged: false,
        sequence: None,
        timer: Default::default(),
    };
    assert_eq!(task, wanted);
    assert_eq!(read_task(&mut bench, &read(1, 5, 100).stream(77).payload(&[0; 8])), wanted);
    let paged = ReadTask { paged: true, ..wanted };
    assert_eq!(read_task(&mut bench, &pgread(1, 5, 100).stream(77)), paged);
    assert_eq!(read_task(&mut bench, &pgread(1, 5, 100).stream(77).payload(&[0])), paged);
    assert_eq!(read_task(&mut bench, &pgread(1, 5, 100).stream(77).payload(&[0, 1])), paged);
    // The largest values.
    let task = read_task(&mut bench, &read(0, i64::MAX, i32::MAX));
    assert_eq!((task.offset, task.length), (i64::MAX as u64, i32::MAX as usize));
    assert_eq!(read_task(&mut bench, &read(0, 0, 0)).length, 0);
}

#[test]
fn reads_of_invalid_ranges_are_refused() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    for length in [-1, i32::MIN] {
        assert_eq!(bench.refused(&read(0, 0, length)), (3000, "Read length is negative".to_owned()));
        assert_eq!(bench.refused(&pgread(0, 0, length)), (3000, "Read length is invalid".to_owned()));
    }
    assert_eq!(bench.refused(&pgread(0, 0, 0)), (3000, "Read length is invalid".to_owned()));
    for offset in [-1, i64::MIN] {
        let text = |verb: &str| (3000, format!("Unable to {verb} /data/f; invalid argument"));
        assert_eq!(bench.refused(&read(0, offset, 1)), text("read"));
        assert_eq!(bench.refused(&pgread(0, offset, 1)), text("read"));
        assert_eq!(bench.refused(&Raw::new(READV).payload(&segment(0, 1, offset))), text("readv"));
        assert_eq!(bench.refused(&Raw::new(TRUNCATE).i64(8, offset)), text("truncate"));
    }
}

#[test]
fn errors_in_a_read_are_checked_in_the_order_of_the_reference_server() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    // The length is checked first for pages. For other reads it is checked after the handle and
    // before the offset.
    assert_eq!(bench.refused(&pgread(9, -1, 0)), (3000, "Read length is invalid".to_owned()));
    assert_eq!(bench.refused(&pgread(9, -1, 1)).0, 3004);
    assert_eq!(bench.refused(&read(9, -1, 0)).0, 3004);
    let task = read_task(&mut bench, &read(0, -1, 0));
    assert_eq!((task.offset, task.length), (0, 0));
}

#[test]
fn valid_read_ahead_hints_are_passed_on() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let file = bench.open("/data/g", 1);
    let hints = [segment(1, 10, 20), segment(9, 1, 1), segment(1, -1, 0), segment(1, 1, -1)].concat();
    let request = read(0, 0, 4).payload(&[&[0; 8][..], &hints].concat());
    let DriverTask::ReadWithHints(task, hints) = bench.ask(&request) else { panic!() };
    assert_eq!(task.file, FileIndex(0));
    assert_eq!(hints.len(), 1);
    assert!(file.is(&hints[0].0));
    assert_eq!((hints[0].1, hints[0].2), (20, 10));
    // A truncated list is used as far as it goes.
    assert!(matches!(bench.ask(&read(0, 0, 4).payload(&[0; 15])), DriverTask::Read(_)));
}

#[test]
fn the_path_id_selects_the_connection_of_a_reply() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    bench.session.bind(address(), false).unwrap();
    assert_eq!(read_task(&mut bench, &read(0, 0, 4).payload(&[1, 0, 0, 0, 0, 0, 0, 0])).link, PathId(1));
    assert_eq!(read_task(&mut bench, &pgread(0, 0, 4).payload(&[1, 0])).link, PathId(1));
    let wrong = (3000, "invalid path ID".to_owned());
    for path in [2, 7, 15, 16, 255] {
        assert_eq!(bench.refused(&read(0, 0, 4).payload(&[path, 0, 0, 0, 0, 0, 0, 0])), wrong);
        assert_eq!(bench.refused(&pgread(0, 0, 4).payload(&[path])), wrong);
        assert_eq!(bench.refused(&Raw::new(WRITE).u8(16, path).dlen(5)), wrong);
        assert_eq!(bench.refused(&Raw::new(PGWRITE).u8(16, path).dlen(5)), wrong);
    }
    bench.session.unbind(PathId(1));
    assert_eq!(bench.refused(&pgread(0, 0, 4).payload(&[1])), wrong);
    // readv has the field too, and it is ignored.
    let readv = Raw::new(READV).u8(19, 7).payload(&segment(0, 4, 0));
    assert!(matches!(bench.ask(&readv), DriverTask::ReadVector(_)));
}

#[test]
fn a_vector_read_is_checked_as_a_whole() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    bench.open("/data/g", 1);
    let list = [segment(1, 10, 20), segment(0, 0, 0), segment(0, 2_097_136, 1 << 40)].concat();
    let DriverTask::ReadVector(task) = bench.ask(&Raw::new(READV).stream(3).payload(&list)) else { panic!() };
    let element =
        |file, length, offset| ReadElement { file: FileIndex(file), extent: Extent { offset, length } };
    assert_eq!(task.elements, [element(1, 10, 20), element(0, 0, 0), element(0, 2_097_136, 1 << 40)]);
    assert_eq!(task.streamid.0, [0, 3]);

    let mut refused = |list: Vec<u8>| bench.refused(&Raw::new(READV).payload(&list));
    let invalid = (3000, "Read vector is invalid".to_owned());
    assert_eq!(refused(b"abc".to_vec()), invalid);
    assert_eq!(refused([segment(0, 1, 0), vec![0]].concat()), invalid);
    assert_eq!(refused(segment(0, 1, 0).repeat(1025)), (3002, "Read vector is too long".to_owned()));
    let single = (3008, "Single readv transfer is too large".to_owned());
    assert_eq!(refused(segment(0, 2_097_137, 0)), single);
    assert_eq!(refused(segment(0, i32::MAX, 0)), single);
    let negative = (3000, "Readv length is negative".to_owned());
    assert_eq!(refused([segment(0, 1, 0), segment(0, -1, 0)].concat()), negative);
    assert_eq!(refused(segment(0, i32::MIN, 0)), negative);
    assert_eq!(refused([segment(0, 1, 0), segment(9, 1, 0)].concat()).0, 3004);
}

#[test]
fn the_largest_vector_is_accepted() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let DriverTask::ReadVector(task) = bench.ask(&Raw::new(READV).payload(&segment(0, 1, 0).repeat(1024)))
    else {
        panic!()
    };
    assert_eq!(task.elements.len(), 1024);
    // The largest vector. The limit for the total cannot be reached.
    assert!(matches!(
        bench.ask(&Raw::new(READV).payload(&segment(0, 2_097_136, 0).repeat(1024))),
        DriverTask::ReadVector(_)
    ));
}

#[test]
fn operations_without_a_result_have_an_empty_reply() {
    let mut bench = Bench::new();
    let file = bench.open("/data/f", 0);
    let DriverTask::FileCall(call, on, FileOperation::Sync) = bench.ask(&Raw::new(SYNC).stream(8)) else {
        panic!()
    };
    assert!(file.is(&on));
    let reply = bench.reply_of(call, Answer::DONE);
    assert_eq!((reply.stream, reply.status, reply.body.len()), (8, OK, 0));

    let (call, operation) = bench.file_operation(&Raw::new(TRUNCATE).i64(8, i64::MAX));
    let FileOperation::Truncate { size, checkpoint } = operation else { panic!() };
    assert_eq!((size, checkpoint), (i64::MAX as u64, false));
    let failed =
        bench.reply_of(call, error(ErrorKind::ArgInvalid, "Unable to truncate /data/f; invalid argument"));
    assert_eq!(failed.error().0, 3000);
}

#[test]
fn stat_of_a_handle() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let (call, operation) = bench.file_operation(&Raw::new(STAT));
    assert!(matches!(operation, FileOperation::Stat));
    let reply = bench.reply_of(call, Answer::Value(Value::Stat(stat())));
    assert_eq!(reply.text(), format!("{STAT_TEXT}\0"));
    // The space query takes a path, not a handle.
    assert_eq!(bench.refused(&Raw::new(STAT).u8(4, 1)), (3001, "Required argument not present".to_owned()));
    let (call, operation) = bench.operation(&Raw::new(STAT).u8(4, 1).payload(b"/data"));
    assert!(matches!(operation, Operation::StatSpace(_)));
    let space = SpaceFigures {
        writable_nodes: 1,
        total: 4 << 30,
        free: 1 << 30,
        largest_free: (1 << 30) + 5,
        used: 3 << 30,
        ..SpaceFigures::default()
    };
    assert_eq!(bench.reply_of(call, Answer::Value(Value::Space(space))).text(), "1 1024 75 0 0 0\0");
}

#[test]
fn handles_are_given_lowest_first() {
    let mut bench = Bench::new();
    for handle in 0..4 {
        bench.open("/data/f", handle);
    }
    for handle in [1, 2] {
        let call = close(&mut bench, handle);
        bench.reply_of(call, Answer::DONE);
    }
    bench.open("/data/g", 1);
    bench.open("/data/g", 2);
    bench.open("/data/g", 4);
    assert_eq!(bench.session.files_open(), 5);
}

/// Requests a close, which may start immediately.
fn close(bench: &mut Bench, handle: u32) -> session::CallId {
    match bench.close(&Raw::new(CLOSE).handle(handle)) {
        Some(DriverTask::FileCall(call, _, FileOperation::Close { failed: false })) => call,
        other => panic!("{:?}", other.as_ref().map(name)),
    }
}

#[test]
fn a_close_waits_for_operations_in_flight_and_blocks_new_ones() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let (sync, _) = bench.file_operation(&Raw::new(SYNC).stream(2));
    let mut task = read_task(&mut bench, &read(0, 0, 1 << 20));
    let reading = bench.session.read_began(&mut task);
    assert!(matches!(bench.ask(&Raw::new(CLOSE).stream(3)), DriverTask::Nothing));
    assert!(bench.session.next_todo().is_none());
    bench.is_silent();
    // For the client the file is closed.
    assert_eq!(bench.refused(&read(0, 0, 1)).0, 3004);
    assert_eq!(bench.refused(&Raw::new(CLOSE)).0, 3004);
    // Its slot is not reused.
    bench.open("/data/g", 1);
    bench.reply_of(sync, Answer::DONE);
    assert!(bench.session.next_todo().is_none());
    bench.session.read_ended(reading);
    let Some(DriverTask::FileCall(call, _, FileOperation::Close { .. })) = bench.session.next_todo() else {
        panic!()
    };
    assert_eq!(bench.reply_of(call, Answer::DONE).stream, 3);
    bench.open("/data/h", 0);
}

#[test]
fn a_failed_close_frees_the_handle_and_a_wait_keeps_it() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let call = close(&mut bench, 0);
    let wait = Answer::Wait { seconds: 5, text: "later".to_owned() };
    let reply = bench.reply_of(call, wait);
    assert_eq!((reply.status, &reply.body[..]), (WAIT, &b"\0\0\0\x05later"[..]));
    let call = close(&mut bench, 0);
    let refusal =
        bench.reply_of(call, error(ErrorKind::NoSpace, "Unable to close /data/f; no space left on device"));
    assert_eq!(refusal.error().0, 3009);
    assert_eq!(bench.refused(&Raw::new(CLOSE)).0, 3004);
    assert_eq!(bench.session.files_open(), 0);
}

#[test]
fn the_end_releases_each_file_once() {
    let mut bench = Bench::new();
    for handle in 0..3 {
        bench.open(&format!("/data/{handle}"), handle);
    }
    // One file is being closed, one has an operation in flight.
    let closing = close(&mut bench, 0);
    let (sync, _) = bench.file_operation(&Raw::new(SYNC).handle(1));
    assert_eq!(bench.end(), ["/data/2"]);
    assert!(!bench.session.is_finished());
    assert!(matches!(bench.answer(closing, Answer::DONE), DriverTask::Nothing));
    assert!(matches!(bench.answer(sync, Answer::DONE), DriverTask::Nothing));
    assert_eq!(bench.released(), ["/data/1"]);
    assert!(bench.session.is_finished());
    // A second end has no effect.
    assert_eq!(bench.end(), [""; 0]);
}

#[test]
fn a_close_answered_by_wait_after_disconnect_becomes_a_release() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let call = close(&mut bench, 0);
    bench.session.end();
    bench.answer(call, Answer::Wait { seconds: 5, text: String::new() });
    assert_eq!(bench.released(), ["/data/f"]);
    assert!(bench.session.is_finished());
}

#[test]
fn a_file_opened_after_disconnect_is_released() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&open("/data/f", 0x10));
    bench.session.end();
    assert!(!bench.session.is_finished());
    let file = FakeFile::new("/data/f");
    let DriverTask::FileCall(release, on, FileOperation::Abandon) = bench.answer(call, opened(&file)) else {
        panic!()
    };
    assert!(file.is(&on));
    bench.is_silent();
    bench.answer(release, Answer::DONE);
    assert!(bench.session.is_finished());
}

#[test]
fn open_files_in_a_session_are_limited() {
    let mut bench = Bench::with(Settings { files_max: 2, ..Settings::default() }, 5);
    bench.open("/data/f", 0);
    bench.open("/data/f", 1);
    let refusal = bench.refused(&open("/data/f", 0x10));
    assert_eq!(refusal, (3024, "too many open files in this session".to_owned()));
}

#[test]
fn checkpoints_can_begin_end_and_be_queried() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let works = [
        (0, CheckpointWork::Begin),
        (1, CheckpointWork::Commit),
        (2, CheckpointWork::Query),
        (3, CheckpointWork::RollBack),
    ];
    for (opcode, wanted) in works {
        let (call, operation) = bench.file_operation(&Raw::new(CHKPOINT).u8(19, opcode));
        let FileOperation::Checkpoint(work) = operation else { panic!() };
        assert_eq!(work, wanted);
        let value = match work {
            CheckpointWork::Query => Value::CheckpointSize { max: 1 << 20, used: 0x1390 },
            _ => Value::Nothing,
        };
        let body: &[u8] = if opcode == 2 { &[0, 0x10, 0, 0, 0, 0, 0x13, 0x90] } else { &[] };
        assert_eq!(bench.reply_of(call, Answer::Value(value)).body, body);
    }
    for opcode in [5, 255] {
        let refusal = bench.refused(&Raw::new(CHKPOINT).u8(19, opcode));
        assert_eq!(refusal, (3000, "chkpoint subcode is invalid".to_owned()));
    }
}

#[test]
fn a_close_that_waits_interrupts_operations_on_its_file() {
    for vanishes in [false, true] {
        let mut bench = Bench::new();
        let (busy, idle) = (bench.open("/data/f", 0), bench.open("/data/g", 1));
        let (sync, _) = bench.file_operation(&Raw::new(SYNC).handle(0));
        if vanishes {
            bench.session.end();
        } else {
            assert!(matches!(bench.ask(&Raw::new(CLOSE).handle(0)), DriverTask::Nothing));
            assert!(bench.close(&Raw::new(CLOSE).handle(1)).is_some());
        }
        assert!(busy.was_interrupted() && !idle.was_interrupted());
        let closes = |bench: &mut Bench| {
            std::iter::from_fn(|| bench.session.next_todo())
                .filter(|todo| matches!(todo, DriverTask::FileCall(_, file, _) if busy.is(file)))
                .count()
        };
        assert_eq!(closes(&mut bench), 0);
        bench.answer(sync, error(ErrorKind::Cancelled, "destination file prematurely closed"));
        assert_eq!(closes(&mut bench), 1);
    }
}
