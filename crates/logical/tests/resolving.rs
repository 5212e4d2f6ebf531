//! Tests of checkpoints that a start cannot undo: the files and names that they block, and how an
//! administrator resolves them.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::*;
use logical::{CheckpointBlock, CheckpointOrder};
use std::sync::Arc;
use storage::Backend;
use support::{Server, creating, path, posc, reading, replacing, stops, target, updating};
use vfs::CheckpointWork::{Begin, RollBack};
use vfs::{FileOperation, OpenFile, Operation};

const OLD: &[u8] = b"0123456789";
const CHANGED: &[u8] = b"01XXXX6789, and longer";
const APPLY: CheckpointOrder = CheckpointOrder::Apply { force: false };
const FORCED: CheckpointOrder = CheckpointOrder::Apply { force: true };

fn begin(server: &Server, file: &Arc<dyn OpenFile>) {
    server.on_file(file, FileOperation::Checkpoint(Begin)).done();
    server.write(file, 2, b"XXXX").done();
    server.write(file, 10, b", and longer").done();
}

/// Returns a server that stopped with a checkpoint of `/data/f` half changed. The handle must live
/// until the disk was copied, because releasing it undoes half a write.
fn stopped() -> (Server, Arc<dyn OpenFile>) {
    stopped_with("/data/f")
}

/// Returns such a server with a checkpoint of this file.
fn stopped_with(name: &str) -> (Server, Arc<dyn OpenFile>) {
    let server = Server::with(|config| config.checksums.types = vec![digest::Algorithm::Adler32]);
    server.memory.put(name, OLD);
    let file = server.open(name, updating()).file();
    begin(&server, &file);
    server.memory.faults().stop_after(0);
    server.settle();
    (server, file)
}

/// Starts a server on a copy of that tree.
fn copied(keep_attributes: bool) -> Server {
    let (server, _file) = stopped();
    let memory = server.memory.copied(keep_attributes);
    server.restarted_on(&memory, None)
}

fn content(server: &Server) -> Vec<u8> {
    server.memory.content("/data/f").unwrap()
}

fn resolve(server: &Server, name: &str, order: CheckpointOrder) -> Result<(), base::Error> {
    server.logical.resolve_checkpoint(&path(name), order).map(drop)
}

#[test]
fn a_checkpoint_of_a_file_that_was_copied_with_its_attributes_is_undone() {
    let server = copied(true);
    assert_eq!(content(&server), OLD);
    assert_eq!(server.checkpoints.len(), 0);
    assert_eq!(server.memory.attribute_of("/data/f", "user.scalla.checkpoint"), None);
    server.open("/data/f", updating()).done();
}

#[test]
fn a_half_changed_file_is_not_served_until_its_checkpoint_is_resolved() {
    for (order, want) in [(FORCED, OLD), (CheckpointOrder::Discard, CHANGED)] {
        let server = copied(false);
        for request in [reading(), updating()] {
            let (kind, text) = server.open("/data/f", request).refusal();
            assert_eq!(kind, IoError);
            assert!(text.contains("(scalla admin checkpoint apply /data/f)"), "{text}");
        }
        let (from, to) = (target("/data/f"), target("/data/g"));
        assert_eq!(server.call(Operation::rename(from, to)).error().kind, InProgress);
        let blocked = server.logical.blocked_files();
        assert_eq!(blocked.len(), 1);
        assert_eq!(blocked[0].block, CheckpointBlock::Unresolved);
        assert_eq!(resolve(&server, "/data/x", order).unwrap_err().kind, NotFound);
        resolve(&server, "/data/f", order).unwrap();
        assert_eq!(content(&server), want);
        let left = (server.logical.blocked_files().len(), server.checkpoints.len());
        assert_eq!(left, (0, 1), "its journal is kept under another name");
        server.open("/data/f", reading()).done();
        let server = server.restarted();
        assert_eq!(content(&server), want);
        server.open("/data/f", updating()).done();
    }
}

#[test]
fn changes_are_not_undone_in_an_unproven_file() {
    let server = copied(false);
    let error = resolve(&server, "/data/f", APPLY).unwrap_err();
    assert_eq!(error.kind, Conflict);
    for part in ["4 bytes in 1 ranges written back", "size 22 -> 10 bytes", "--force"] {
        assert!(error.text.contains(part), "{}", error.text);
    }
    assert_eq!((content(&server), server.logical.blocked_files().len()), (CHANGED.to_vec(), 1));
    assert_eq!(server.open("/data/f", reading()).error().kind, IoError);
    let effect = server.logical.resolve_checkpoint(&path("/data/f"), FORCED).unwrap().unwrap();
    assert_eq!((effect.ranges, effect.bytes, effect.is_proven), (1, 4, false));
    assert_eq!(content(&server), OLD);
}

#[test]
fn changes_are_undone_in_a_proven_file() {
    let server = Server::new();
    server.memory.put("/data/f", OLD);
    let file = server.open("/data/f", updating()).file();
    begin(&server, &file);
    server.memory.faults().fail("write", Some(5));
    assert_eq!(server.on_file(&file, FileOperation::Checkpoint(RollBack)).error().kind, IoError);
    // Another checkpoint would replace the number that identifies the file.
    assert_eq!(server.on_file(&file, FileOperation::Checkpoint(Begin)).error().kind, FsReadOnly);
    server.memory.faults().fail("write", None);
    server.close(&file).done();
    resolve(&server, "/data/f", APPLY).unwrap();
    assert_eq!(content(&server), OLD);
    server.open("/data/f", updating()).done();
}

#[test]
fn a_blocked_file_is_blocked_under_all_its_names() {
    for cold in [false, true] {
        let server = copied(false);
        server.memory.set_cold(cold);
        server.memory.link("/data/f", "/nolock/g");
        for request in [reading(), updating(), replacing(), posc(replacing())] {
            let (kind, text) = server.open("/nolock/g", request).refusal();
            assert_eq!(kind, IoError);
            assert!(text.contains("(scalla admin checkpoint apply /data/f)"), "{text}");
        }
        let truncate = Operation::Truncate { target: target("/nolock/g"), size: 0 };
        assert_eq!(server.call(truncate).error().kind, IoError);
        assert_eq!(server.call(Operation::Checksum(target("/nolock/g"))).error().kind, IoError);
        assert_eq!(content(&server), CHANGED);
        server.memory.put("/nolock/other", b"another file");
        server.open("/nolock/other", updating()).done();
        resolve(&server, "/data/f", FORCED).unwrap();
        server.open("/nolock/g", updating()).done();
    }
}

#[test]
fn a_blocked_file_that_is_mounted_later_is_blocked_under_all_its_names() {
    let (server, _file) = stopped();
    let memory = server.memory.copied(false);
    memory.shift("/data/f", "/nolock/away");
    memory.link("/nolock/away", "/nolock/g");
    memory.shift("/data", "/elsewhere");
    memory.put("/data/x", b"");
    let server = server.restarted_on(&memory, None);
    memory.shift("/nolock/away", "/data/f");
    assert_eq!(server.open("/data/f", reading()).error().kind, IoError);
    assert_eq!(server.open("/nolock/g", reading()).error().kind, IoError);
}

#[test]
fn a_checkpoint_can_be_discarded_in_any_state_of_its_path() {
    let (server, _file) = stopped();
    let memory = server.memory.copied(false);
    memory.take("/data/f");
    memory.put("/data/f/below", b"");
    let server = server.restarted_on(&memory, None);
    assert_eq!(resolve(&server, "/data/f", FORCED).unwrap_err().kind, IsDirectory);
    resolve(&server, "/data/f", CheckpointOrder::Discard).unwrap();
    assert!(server.logical.blocked_files().is_empty());
}

#[test]
fn undoing_by_command_removes_the_stored_checksums() {
    let server = copied(false);
    let name = format!("{}adler32", digest::ATTRIBUTE_PREFIX);
    server.memory.put_attribute("/data/f", &name, b"of the changed content");
    resolve(&server, "/data/f", FORCED).unwrap();
    assert_eq!(server.memory.attribute_of("/data/f", &name), None);
}

/// Journals of version 1 contain an inode number, which a file on another file system may have too.
#[test]
fn a_checkpoint_of_version_1_is_not_applied_automatically() {
    let server = Server::new();
    server.memory.put("/data/f", CHANGED);
    let inode = server.memory.stat(&path("/data/f")).unwrap().inode;
    let mut head = [&b"SCKP"[..], &1_u32.to_le_bytes(), &inode.to_le_bytes()].concat();
    head.extend([&10_u64.to_le_bytes()[..], &7_u32.to_le_bytes(), b"/data/f"].concat());
    head.extend(digest::crc32c(&head).to_le_bytes());
    server.checkpoints.put("1.checkpoint", &head);
    let server = server.restarted();
    assert_eq!(content(&server), CHANGED);
    assert_eq!(server.logical.blocked_files()[0].block, CheckpointBlock::Unresolved);
    assert_eq!(resolve(&server, "/data/f", APPLY).unwrap_err().kind, Conflict);
    resolve(&server, "/data/f", FORCED).unwrap();
    assert_eq!(content(&server), &CHANGED[..10]);
}

#[test]
fn a_journal_set_aside_is_not_overwritten_by_a_later_one() {
    let mut server = copied(false);
    for kept in [1, 2] {
        resolve(&server, "/data/f", CheckpointOrder::Discard).unwrap();
        assert_eq!(server.checkpoints.len(), kept);
        server = server.restarted();
        let file = server.open("/data/f", updating()).file();
        server.on_file(&file, FileOperation::Checkpoint(Begin)).done();
        server.write(&file, 0, b"XXXX").done();
        server.memory.faults().stop_after(0);
        server.settle();
        let memory = server.memory.copied(false);
        server = server.restarted_on(&memory, None);
    }
    assert_eq!(server.checkpoints.len(), 3);
}

#[test]
fn a_blocked_file_that_is_removed_leaves_its_name_free() {
    let server = copied(false);
    server.call(Operation::Remove(target("/data/f"))).done();
    assert_eq!((server.logical.blocked_files().len(), server.checkpoints.len()), (0, 1));
    server.open("/data/f", creating()).done();
    let server = server.restarted();
    server.open("/data/f", reading()).done();
}

/// A command that a crash interrupts leaves the file blocked or resolved.
#[test]
fn a_command_can_be_repeated_after_a_crash() {
    for how in stops() {
        for stop in 0.. {
            let server = copied(false);
            server.memory.faults().stop_after(stop);
            let done = resolve(&server, "/data/f", FORCED).is_ok();
            let finished = !server.memory.faults().is_dead();
            let server = server.after_stop(how);
            if !done && !server.logical.blocked_files().is_empty() {
                resolve(&server, "/data/f", FORCED).unwrap();
            }
            assert_eq!(content(&server), OLD, "{how:?} stop {stop}");
            if finished {
                break;
            }
            assert!(stop < 100);
        }
    }
}

/// The identity of the earlier file is read, but reaches the table of blocked files only when the
/// name belongs to another file.
#[test]
fn a_file_replaced_during_its_lookup_is_not_blocked_again() {
    let (server, _file) = stopped_with("/nolock/f");
    let memory = server.memory.copied(false);
    let server = server.restarted_on(&memory, None);
    server.memory.link("/nolock/f", "/nolock/g");
    server.memory.faults().hold("identity");
    let late = server.open("/nolock/f", reading());
    server.memory.faults().wait_for_held("identity", 1);
    server.call(Operation::Remove(target("/nolock/f"))).done();
    let file = server.open("/nolock/f", creating()).file();
    server.write(&file, 0, OLD).done();
    begin(&server, &file);
    server.memory.faults().fail("write", Some(5));
    assert_eq!(server.on_file(&file, FileOperation::Checkpoint(RollBack)).error().kind, IoError);
    server.memory.faults().fail("write", None);
    server.close(&file).done();
    assert_eq!(server.logical.blocked_files()[0].block, CheckpointBlock::Failed);
    server.memory.faults().release("identity");
    assert_eq!(late.error().kind, IoError);
    server.open("/nolock/g", updating()).done();
    assert_eq!(server.open("/nolock/f", updating()).error().kind, FsReadOnly);
}
