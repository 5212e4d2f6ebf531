//! kXR_writev, kXR_clone, and requests under a checkpoint.
//!
//! They share a file because each embeds a list or a request in another request.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind;
use session::{CallId, Destination, DriverTask, ReceiveResult, TakeResult};
use support::*;
use vfs::{Answer, FileOperation};

fn writev(list: &[Vec<u8>]) -> Raw {
    Raw::new(WRITEV).payload(&list.concat())
}

/// Returns the extents that a vector write announces: offsets and lengths.
fn extents(bench: &mut Bench, request: &Raw) -> (CallId, usize, Vec<(u64, usize)>) {
    let DriverTask::Receive(receive) = bench.ask(request) else { panic!("{:?}", bench.all_replies(0)) };
    let Destination::Vector(extents) = receive.into else { panic!() };
    (
        receive.call,
        receive.length,
        extents.iter().map(|write| (write.extent.offset, write.extent.length)).collect(),
    )
}

#[test]
fn a_vector_write_distributes_its_data_to_many_extents() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    bench.open("/data/g", 1);
    let list = [segment(0, 4, 0), segment(1, 0, 9), segment(1, 6, 100), segment(0, i32::MAX, i64::MAX)];
    let (call, length, places) = extents(&mut bench, &writev(&list).stream(14));
    assert_eq!(length, 10 + i32::MAX as usize);
    assert_eq!(places, [(0, 4), (100, 6), (i64::MAX as u64, i32::MAX as usize)]);
    bench.session.received(call, ReceiveResult::default(), &mut bench.out);
    let reply = bench.reply();
    assert_eq!((reply.stream, reply.status, reply.body.len()), (14, OK, 0));
    assert_eq!(extents(&mut bench, &writev(&[segment(0, 1, 0).repeat(1024)])).2.len(), 1024);
}

#[test]
fn an_invalid_vector_write_ends_the_session() {
    let cases = [
        (b"abc".to_vec(), 3000, "Write vector is invalid"),
        (segment(0, 1, 0)[..15].to_vec(), 3000, "Write vector is invalid"),
        (segment(0, 1, 0).repeat(1025), 3002, "Write vector is too long"),
        (segment(0, -1, 0), 3000, "Writev length is negative"),
        (segment(0, i32::MIN, 0), 3000, "Writev length is negative"),
        (Vec::new(), 3000, "Write vector is invalid"),
        (segment(9, 1, 0), 3004, "writev does not refer to an open file"),
        (segment(0, 1, -1), 3000, "Unable to writev /data/f; invalid argument"),
        (segment(0, 1, i64::MIN), 3000, "Unable to writev /data/f; invalid argument"),
    ];
    for (list, code, text) in cases {
        let mut bench = Bench::new();
        bench.open("/data/f", 0);
        assert_eq!(bench.ended_by(&writev(&[list])), (code, text.to_owned()));
        assert_eq!(bench.released(), ["/data/f"]);
    }
}

#[test]
fn a_failed_vector_write_reports_the_error_and_frees_its_files() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let (call, ..) = extents(&mut bench, &writev(&[segment(0, 4, 0)]).u8(4, 1));
    let error =
        Some(base::Error::new(ErrorKind::NoSpace, "Unable to write /data/f; no space left on device"));
    // No file is synced after an error.
    bench.session.received(call, ReceiveResult { error, ..ReceiveResult::default() }, &mut bench.out);
    assert_eq!(bench.reply().error().0, 3009);
    assert!(matches!(
        bench.close(&Raw::new(CLOSE)),
        Some(DriverTask::FileCall(_, _, FileOperation::Close { .. }))
    ));
}

#[test]
fn sync_after_a_vector_write_syncs_each_file_once() {
    let mut bench = Bench::new();
    let f = bench.open("/data/f", 0);
    let g = bench.open("/data/g", 1);
    let list = [segment(0, 4, 0), segment(1, 4, 0), segment(0, 4, 8)];
    let (call, ..) = extents(&mut bench, &writev(&list).u8(4, 1).stream(5));
    let mut todo = bench.session.received(call, ReceiveResult::default(), &mut bench.out);
    let mut synced = Vec::new();
    while let DriverTask::FileCall(call, file, FileOperation::Sync) = todo {
        bench.is_silent();
        synced.push(if f.is(&file) { "f" } else { "g" });
        assert!(f.is(&file) || g.is(&file));
        todo = bench.answer(call, Answer::DONE);
    }
    synced.sort_unstable();
    assert_eq!(synced, ["f", "g"]);
    let reply = bench.reply();
    assert_eq!((reply.stream, reply.status), (5, OK));
    // Both files may be closed now.
    assert_eq!(bench.end(), ["/data/f", "/data/g"]);
}

#[test]
fn a_sync_that_fails_fails_the_vector_write() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    bench.open("/data/g", 1);
    let list = [segment(0, 4, 0), segment(1, 4, 0)];
    let (call, ..) = extents(&mut bench, &writev(&list).u8(4, 0xff));
    let todo = bench.session.received(call, ReceiveResult::default(), &mut bench.out);
    let DriverTask::FileCall(call, ..) = todo else { panic!() };
    assert_eq!(bench.reply_of(call, error(ErrorKind::IoError, "Unable to sync")).error().0, 3007);
    assert_eq!(bench.end().len(), 2);
}

#[test]
fn an_empty_vector_write_completes_immediately() {
    for options in [0, 1] {
        let mut bench = Bench::new();
        bench.open("/data/f", 0);
        let (call, length, places) = extents(&mut bench, &writev(&[segment(0, 0, 5)]).u8(4, options));
        assert_eq!((length, places.len()), (0, 0));
        let todo = bench.session.received(call, ReceiveResult::default(), &mut bench.out);
        assert!(matches!(todo, DriverTask::Nothing));
        assert_eq!(bench.reply().status, OK, "options {options}");
        assert_eq!(bench.session.calls_in_flight(), 0);
    }
}

fn clone_item(source: u32, from: u64, length: u64, to: u64) -> Vec<u8> {
    let numbers = [from, length, to].map(u64::to_be_bytes).concat();
    [&source.to_le_bytes()[..], &[0; 4], &numbers].concat()
}

#[test]
fn ranges_to_clone_are_passed_on() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let source = bench.open("/data/g", 1);
    let list = [clone_item(1, 1, 2, 3), clone_item(1, u64::MAX, u64::MAX, u64::MAX)].concat();
    let (call, operation) = bench.file_operation(&Raw::new(CLONE).payload(&list));
    let FileOperation::CloneFrom(ranges) = operation else { panic!() };
    let seen: Vec<_> =
        ranges.iter().map(|range| (range.range.from, range.range.length, range.range.to)).collect();
    assert_eq!(seen, [(1, 2, 3), (u64::MAX, u64::MAX, u64::MAX)]);
    assert!(source.is(&ranges[0].source));
    // Both closes wait for the end of the clone.
    bench.ask(&Raw::new(CLOSE).handle(1));
    bench.ask(&Raw::new(CLOSE).handle(0));
    assert!(bench.session.next_todo().is_none());
    let unable = "Unable to clone /data/f from file ranges; operation not supported";
    assert_eq!(
        bench.reply_of(call, error(ErrorKind::Unsupported, unable)).error(),
        (3013, unable.to_owned())
    );
    assert!(bench.session.next_todo().is_some() && bench.session.next_todo().is_some());
}

#[test]
fn invalid_clones_are_refused() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let item = clone_item(0, 0, 1, 0);
    let mut refused = |handle: u32, list: &[u8]| bench.refused(&Raw::new(CLONE).handle(handle).payload(list));
    assert_eq!(refused(0, b"xx"), (3000, "Clone vector is invalid".to_owned()));
    assert_eq!(refused(0, b""), (3000, "Clone vector is invalid".to_owned()));
    assert_eq!(refused(0, &item.repeat(1025)), (3002, "Clone vector is too long".to_owned()));
    assert_eq!(refused(5, &item).1, "clone does not refer to an open dest file");
    let source = clone_item(5, 0, 1, 0);
    assert_eq!(refused(0, &source), (3004, "clone does not refer to an open src file".to_owned()));
}

/// Returns a request under a checkpoint: its header is the payload, and its own payload follows.
fn under_checkpoint(embedded: &Raw) -> Raw {
    let bytes = embedded.bytes();
    let (header, rest) = bytes.split_at(24);
    Raw::new(CHKPOINT).u8(19, 4).payload(header).data(rest)
}

#[test]
fn writes_under_a_checkpoint_are_marked() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let requests = [
        (Raw::new(WRITE).i64(8, 3).dlen(5), "file"),
        (Raw::new(PGWRITE).i64(8, 3).dlen(9), "pages"),
        (Raw::new(WRITEV).payload(&segment(0, 4, 3)), "vector"),
    ];
    for (embedded, kind) in requests {
        let DriverTask::Receive(receive) = bench.ask(&under_checkpoint(&embedded)) else {
            panic!("{kind}: {:?}", bench.all_replies(0))
        };
        assert!(receive.checkpoint, "{kind}");
        let right = match receive.into {
            Destination::File { offset, .. } => kind == "file" && offset == 3 && receive.length == 5,
            Destination::Pages { offset, .. } => kind == "pages" && offset == 3 && receive.length == 9,
            Destination::Vector(extents) => kind == "vector" && extents.len() == 1 && receive.length == 4,
            Destination::Discard => false,
        };
        assert!(right, "{kind}");
        bench.session.received(receive.call, ReceiveResult::default(), &mut bench.out);
        assert_eq!(bench.reply().status, if kind == "pages" { STATUS } else { OK });
    }
    let (_, operation) = bench.file_operation(&under_checkpoint(&Raw::new(TRUNCATE).i64(8, 768)));
    assert!(matches!(operation, FileOperation::Truncate { size: 768, checkpoint: true }));
}

#[test]
fn requests_not_allowed_under_a_checkpoint_are_discarded() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    bench.open("/data/g", 1);
    let two_files = [segment(0, 4, 0), segment(1, 6, 0)].concat();
    let cases = [
        (Raw::new(READ).payload(&[0; 8]), 8, "chkpoint request is not supported"),
        (Raw::new(TRUNCATE).payload(b"/data/f"), 7, "chkpoint request is not supported"),
        (Raw::new(PING), 0, "chkpoint request is not supported"),
        (Raw::new(WRITEV).payload(&two_files), 10, "multi-file chkpoint writev not supported"),
    ];
    for (embedded, length, text) in cases {
        let request = under_checkpoint(&embedded);
        let bytes = request.bytes();
        let TakeResult::Took { todo: DriverTask::Receive(receive), .. } =
            bench.session.take(&bytes, base::Charge::NONE, &mut bench.out)
        else {
            panic!("{embedded:?}: {:?}", bench.all_replies(0))
        };
        assert!(matches!(receive.into, Destination::Discard));
        assert_eq!(receive.length, length, "{embedded:?}");
        bench.session.received(receive.call, ReceiveResult::default(), &mut bench.out);
        assert_eq!(bench.reply().error(), (3013, text.to_owned()));
    }
    assert!(bench.session.is_active());
}

#[test]
fn executed_requests_of_unknown_length_end_the_session() {
    let cases = [
        (under_checkpoint(&Raw::new(WRITE).stream(2).dlen(5)), "Request streamid mismatch"),
        (under_checkpoint(&Raw::new(WRITE).dlen(-1)), "Invalid request data length"),
        (under_checkpoint(&Raw::new(WRITEV).dlen(i32::MAX)), "Write vector is invalid"),
        (under_checkpoint(&Raw::new(WRITE).dlen(5)).handle(9), "chkpoint does not refer to an open file"),
        (under_checkpoint(&Raw::new(PGWRITE).dlen(3)), "pgwrite length is invalid"),
    ];
    for (request, text) in cases {
        let mut bench = Bench::new();
        bench.open("/data/f", 0);
        assert_eq!(bench.ended_by(&request).1, text, "{request:?}");
    }
    // The embedded header is missing.
    for length in [0, 1, 23, 25, 100] {
        let mut bench = Bench::new();
        bench.open("/data/f", 0);
        let request = Raw::new(CHKPOINT).u8(19, 4).payload(&vec![0; length]);
        assert_eq!(bench.ended_by(&request).0, 3000, "{length}");
    }
}
