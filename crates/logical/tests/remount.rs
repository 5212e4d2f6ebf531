//! Tests of files on NFS, which has no times of birth and often no attributes, and whose device
//! number changes with each mount: file handles identify the files.

#![allow(clippy::unwrap_used)]

mod support;

use support::{Server, creating, posc, updating};
use vfs::{CheckpointWork, FileOperation};

const UNSUPPORTED: i32 = 95;

/// Returns a server that stopped during a write to `/data/d/f`, which is unfinished or, with
/// `checkpoint`, half changed.
fn stopped(checkpoint: bool) -> Server {
    let server = Server::new();
    server.memory.set_nfs_server(1);
    server.memory.faults().fail("set_attribute", Some(UNSUPPORTED));
    server.memory.put("/data/d/other", b"");
    let file = if checkpoint {
        server.memory.put("/data/d/f", b"0123456789");
        let file = server.open("/data/d/f", updating()).file();
        server.on_file(&file, FileOperation::Checkpoint(CheckpointWork::Begin)).done();
        file
    } else {
        server.open("/data/d/f", posc(creating())).file()
    };
    server.write(&file, 0, b"part").done();
    server.memory.faults().stop_after(0);
    drop(file);
    server.settle();
    server
}

/// Starts the next process after the tree of this NFS server was mounted with another device
/// number.
fn remounted(server: &Server, nfs_server: u64) -> Server {
    let memory = server.memory.survivor(None);
    memory.set_device(10);
    memory.set_nfs_server(nfs_server);
    for call in ["attribute", "set_attribute"] {
        memory.faults().fail(call, Some(UNSUPPORTED));
    }
    server.restarted_on(&memory, None)
}

fn content(server: &Server) -> Option<Vec<u8>> {
    server.memory.content("/data/d/f")
}

#[test]
fn an_unfinished_file_is_recognised_after_a_remount() {
    let server = remounted(&stopped(false), 1);
    assert_eq!(server.logical.status().pending_files, 1);
    server.after(601);
    assert_eq!(content(&server), None);
}

#[test]
fn a_checkpoint_is_undone_after_a_remount() {
    let server = remounted(&stopped(true), 1);
    assert_eq!(server.logical.blocked_files(), []);
    assert_eq!(content(&server).as_deref(), Some(&b"0123456789"[..]));
}

#[test]
fn a_file_that_was_removed_before_a_remount_leaves_its_name_free() {
    let server = stopped(false);
    server.memory.take("/data/d/f");
    let server = remounted(&server, 1);
    assert_eq!(server.logical.unfinished(), []);
    server.open("/data/d/f", creating()).done();
}

/// A restored tree, or another disk with the same tree, can have the same inode numbers.
#[test]
fn a_file_of_another_nfs_server_with_the_same_inode_is_another_file() {
    for checkpoint in [false, true] {
        let server = stopped(checkpoint);
        let before = content(&server);
        let server = remounted(&server, 2);
        let kept = (server.logical.unfinished().len(), server.logical.blocked_files().len());
        assert_eq!(kept, if checkpoint { (0, 1) } else { (1, 0) });
        server.after(10_000);
        assert_eq!(content(&server), before);
    }
}
