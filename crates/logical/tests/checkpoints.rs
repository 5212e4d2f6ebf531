//! Tests of checkpoints: begin, commit, query, roll back, limits, refusals, and a crash at every
//! step.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::*;
use logical::config::CheckpointFailure;
use std::sync::Arc;
use support::{Server, caller, creating, reading, stops, updating};
use vfs::CheckpointWork::{self, *};
use vfs::{Answer, FileOperation, Now, OpenFile, OpenRequest, Value};

type File = Arc<dyn OpenFile>;

fn work(server: &Server, file: &File, work: CheckpointWork) -> support::Call {
    server.on_file(file, FileOperation::Checkpoint(work))
}

fn write(server: &Server, file: &File, offset: u64, bytes: &[u8]) -> support::Call {
    server.on_file(file, FileOperation::Write { buffer: bytes.to_vec(), offset, checkpoint: true })
}

fn truncate(server: &Server, file: &File, size: u64) -> support::Call {
    server.on_file(file, FileOperation::Truncate { size, checkpoint: true })
}

fn used(server: &Server, file: &File) -> (u32, u32) {
    match work(server, file, Query).value() {
        Value::CheckpointSize { max, used } => (max, used),
        _ => panic!(),
    }
}

const OLD: &[u8] = b"0123456789abcdefghij";

fn opened(adjust: impl FnOnce(&mut logical::Config)) -> (Server, File) {
    let server = Server::with(adjust);
    server.memory.put("/data/f", OLD);
    let file = server.open("/data/f", updating()).file();
    (server, file)
}

fn content(server: &Server) -> Vec<u8> {
    server.memory.content("/data/f").unwrap()
}

/// Overwrites, truncates, overwrites again, extends.
fn changes(server: &Server, file: &File) -> bool {
    let ok = |call: support::Call| matches!(call.answer(), Answer::Value(_));
    ok(write(server, file, 2, b"XXXX"))
        && ok(truncate(server, file, 5))
        && ok(write(server, file, 0, b"YYYYYYYY"))
        && ok(write(server, file, 30, b"tail"))
        && ok(truncate(server, file, 33))
        && ok(write(server, file, 1, b"zz"))
}

/// Returns the content of the file after these changes.
fn changed() -> Vec<u8> {
    let mut bytes = b"YzzYYYYY".to_vec();
    bytes.resize(30, 0);
    bytes.extend(b"tai");
    bytes
}

#[test]
fn changes_can_be_undone_or_committed() {
    for (end, want) in [(RollBack, OLD.to_vec()), (Commit, changed())] {
        let (server, file) = opened(|_| {});
        work(&server, &file, Begin).done();
        assert!(changes(&server, &file));
        assert_eq!(content(&server), changed());
        assert_eq!(server.logical.status().checkpoints, 1);
        work(&server, &file, end).done();
        assert_eq!(content(&server), want);
        assert_eq!((server.logical.status().checkpoints, server.checkpoints.len()), (0, 0));
        // Another checkpoint can be started.
        work(&server, &file, Begin).done();
        server.close(&file).done();
        assert_eq!(content(&server), want);
    }
}

#[test]
fn a_file_released_without_commit_is_restored() {
    for abandon in [false, true] {
        let (server, file) = opened(|_| {});
        work(&server, &file, Begin).done();
        assert!(changes(&server, &file));
        if abandon {
            server.abandon(&file).done()
        } else {
            server.close(&file).done()
        }
        assert_eq!(content(&server), OLD);
        assert_eq!(server.checkpoints.len(), 0);
    }
}

#[test]
fn ordinary_writes_are_protected_too() {
    let (server, file) = opened(|_| {});
    work(&server, &file, Begin).done();
    assert!(matches!(file.write_now(0, b"x"), Now::WouldBlock));
    server.write(&file, 0, b"plain").done();
    work(&server, &file, RollBack).done();
    assert_eq!(content(&server), OLD);
    assert!(matches!(file.write_now(0, b"x"), Now::Done(Ok(()))));
}

#[test]
fn the_query_returns_the_values_of_real_servers() {
    let server = Server::new();
    server.memory.put("/data/w1", &[7; 5000]);
    let file = server.open("/data/w1", updating()).file();
    work(&server, &file, Begin).done();
    assert_eq!(used(&server, &file), (1 << 20, 0));
    write(&server, &file, 0, b"XXXXX").done();
    truncate(&server, &file, 3).done();
    write(&server, &file, 0, b"YYYYY").done();
    write(&server, &file, 0, b"ZZZZ").done();
    assert_eq!(used(&server, &file), (1 << 20, 5008));
    work(&server, &file, RollBack).done();
    assert_eq!(server.memory.content("/data/w1").unwrap(), [7; 5000]);
}

#[test]
fn the_limit_is_exact() {
    let (server, file) = opened(|config| config.checkpoints.bytes_max = 10);
    work(&server, &file, Begin).done();
    write(&server, &file, 0, b"1234567890").done();
    write(&server, &file, 20, b"beyond the end costs nothing").done();
    let over = write(&server, &file, 15, b"x").refusal();
    assert_eq!(over, (OverQuota, "Unable to checkpoint write /data/f; disk quota exceeded".into()));
    let over = truncate(&server, &file, 19).refusal();
    assert_eq!(over, (OverQuota, "Unable to checkpoint truncate /data/f; disk quota exceeded".into()));
    assert_eq!(used(&server, &file), (10, 10));
    work(&server, &file, RollBack).done();
    assert_eq!(content(&server), OLD);
}

#[test]
fn invalid_requests_are_refused_as_recorded() {
    let (server, file) = opened(|_| {});
    let refusal = |what| work(&server, &file, what).refusal();
    let missing = "no such file or directory";
    assert_eq!(refusal(Query), (NotFound, format!("Unable to query checkpoint for /data/f; {missing}")));
    assert_eq!(refusal(Commit), (NotFound, format!("Unable to delete checkpoint for /data/f; {missing}")));
    assert_eq!(refusal(RollBack), (NotFound, format!("Unable to restore checkpoint for /data/f; {missing}")));
    let want = (NotFound, format!("Unable to checkpoint write /data/f; {missing}"));
    assert_eq!(write(&server, &file, 0, b"x").refusal(), want);
    let want = (NotFound, format!("Unable to checkpoint truncate /data/f; {missing}"));
    assert_eq!(truncate(&server, &file, 0).refusal(), want);
    work(&server, &file, Begin).done();
    assert_eq!(refusal(Begin), (ItExists, "Unable to create checkpoint for /data/f; file exists".into()));
    let forced = OpenRequest { force: true, ..updating() };
    let second = server.open_as(&caller("bob", 2), "/data/f", forced).file();
    assert_eq!(work(&server, &second, Begin).error().kind, ItExists);
    server.close(&second).done();
    server.close(&file).done();
    let reader = server.open("/data/f", reading()).file();
    let text = "Unable to create checkpoint for R/O /data/f; inappropriate ioctl for device\n\
                Additional context: ofs_CreateCKP: file is not open in r/w mode";
    assert_eq!(work(&server, &reader, Begin).refusal(), (Conflict, text.into()));
    let pending = server.open("/data/p", OpenRequest { posc: true, ..creating() }).file();
    let text = "Unable to create checkpoint for POSC file /data/p; inappropriate ioctl for device";
    assert_eq!(work(&server, &pending, Begin).refusal(), (Conflict, text.into()));
    let (server, file) = opened(|config| config.checkpoints.enabled = false);
    assert_eq!(work(&server, &file, Begin).error().kind, Unsupported);
}

#[test]
fn a_file_with_a_checkpoint_keeps_its_name() {
    let (server, file) = opened(|_| {});
    work(&server, &file, Begin).done();
    let rename = |from: &str, to: &str| {
        let (from, to) = (support::target(from), support::target(to));
        server.call(vfs::Operation::rename(from, to))
    };
    assert_eq!(rename("/data/f", "/data/g").error().kind, InProgress);
    assert_eq!(rename("/data", "/nolock/g").error().kind, InProgress);
    assert_eq!(rename("/data/x", "/data/f").error().kind, InProgress);
    work(&server, &file, Commit).done();
    rename("/data/f", "/data/g").done();
}

#[test]
fn a_file_that_cannot_be_restored_is_blocked_until_a_restart_restores_it() {
    for (policy, read, write_error) in
        [(CheckpointFailure::MakeReadOnly, true, FsReadOnly), (CheckpointFailure::StopIo, false, IoError)]
    {
        let (server, file) = opened(|config| config.checkpoints.on_failure = policy);
        work(&server, &file, Begin).done();
        assert!(changes(&server, &file));
        server.memory.faults().fail("write", Some(5));
        assert_eq!(work(&server, &file, RollBack).error().kind, IoError);
        server.memory.faults().fail("write", None);
        assert_eq!(server.write(&file, 0, b"x").error().kind, write_error);
        server.close(&file).done();
        assert_eq!(server.open("/data/f", updating()).error().kind, write_error);
        assert_eq!(matches!(server.open("/data/f", reading()).answer(), Answer::Value(_)), read);
        let server = server.restarted();
        assert_eq!(content(&server), OLD);
        server.open("/data/f", updating()).done();
    }
}

#[test]
fn a_full_journal_disk_changes_nothing_and_can_be_undone() {
    let (server, file) = opened(|_| {});
    work(&server, &file, Begin).done();
    write(&server, &file, 0, b"XX").done();
    server.memory.faults().fail("journal", Some(28));
    let full = write(&server, &file, 4, b"YY").refusal();
    assert_eq!(full, (NoSpace, "Unable to checkpoint write /data/f; no space left on device".into()));
    server.memory.faults().fail("journal", None);
    assert_eq!(content(&server)[4..], OLD[4..]);
    work(&server, &file, RollBack).done();
    assert_eq!(content(&server), OLD);
}

#[test]
fn a_failed_commit_can_still_be_undone() {
    let (server, file) = opened(|_| {});
    work(&server, &file, Begin).done();
    assert!(changes(&server, &file));
    server.memory.faults().fail("sync", Some(5));
    let failed = work(&server, &file, Commit).refusal();
    assert_eq!(failed, (IoError, "Unable to delete checkpoint for /data/f; input/output error".into()));
    server.memory.faults().fail("sync", None);
    work(&server, &file, RollBack).done();
    assert_eq!(content(&server), OLD);
}

#[test]
fn a_failed_begin_leaves_nothing_to_undo() {
    let (server, file) = opened(|_| {});
    server.memory.faults().fail("journal", Some(28));
    assert_eq!(work(&server, &file, Begin).error().kind, NoSpace);
    server.memory.faults().fail("journal", None);
    server.close(&file).done();
    // It is unknown whether the journal was removed, so the file must not change before the next
    // start has checked.
    assert_eq!(server.open("/data/f", updating()).error().kind, FsReadOnly);
    let server = server.restarted();
    let file = server.open("/data/f", updating()).file();
    work(&server, &file, Begin).done();
    server.close(&file).done();
}

#[test]
fn clones_into_a_file_are_undone_too() {
    let (server, file) = opened(|_| {});
    server.memory.put("/data/source", b"SOURCE");
    let source = server.open("/data/source", reading()).file();
    work(&server, &file, Begin).done();
    let ranges = [3, 18].map(|to| vfs::CloneRange {
        source: source.clone(),
        range: base::CopyRange { from: 0, to, length: 6 },
    });
    server.on_file(&file, FileOperation::CloneFrom(ranges.into())).done();
    assert_eq!(content(&server).len(), 24);
    server.abandon(&file).done();
    assert_eq!(content(&server), OLD);
}

#[test]
fn whenever_the_server_stops_the_file_is_old_or_committed() {
    for how in stops() {
        for stop in 0.. {
            let (server, file) = opened(|_| {});
            server.memory.faults().stop_after(stop);
            let begun = matches!(work(&server, &file, Begin).answer(), Answer::Value(_));
            let done = begun && changes(&server, &file);
            let committed = done && matches!(work(&server, &file, Commit).answer(), Answer::Value(_));
            let finished = !server.memory.faults().is_dead();
            let server = server.after_stop(how);
            let now = content(&server);
            let note = format!("{how:?} stop {stop}");
            if committed {
                assert_eq!(now, changed(), "{note}");
            } else {
                assert!(now == OLD || (done && now == changed()), "{note}: {now:?}");
            }
            assert_eq!(server.checkpoints.len(), 0, "{note}");
            if finished {
                break;
            }
            assert!(stop < 100);
        }
    }
}

#[test]
fn a_crash_while_undoing_is_undone_by_the_next_start() {
    for how in stops() {
        for stop in 0.. {
            let (server, file) = opened(|_| {});
            work(&server, &file, Begin).done();
            assert!(changes(&server, &file));
            // The first process stops with the checkpoint active, the second one while it undoes
            // it.
            server.memory.faults().stop_after(stop);
            let _ = work(&server, &file, RollBack).answer();
            let finished = !server.memory.faults().is_dead();
            let server = server.after_stop(how);
            assert_eq!(content(&server), OLD, "{how:?} stop {stop}");
            if finished {
                break;
            }
            assert!(stop < 100);
        }
    }
}
