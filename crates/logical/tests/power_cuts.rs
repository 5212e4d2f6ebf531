//! Losses of power at points where a proof in an attribute has not reached the disk by itself.
#![allow(clippy::unwrap_used)]

mod support;

use support::{Server, creating, is_whole, posc, updating};
use vfs::CheckpointWork::{Begin, Commit};
use vfs::FileOperation;

/// Each chooses anew which unsynced effects survive.
const SEEDS: u64 = 200;

#[test]
fn the_second_checkpoint_of_a_file_is_undone_too() {
    for seed in 0..SEEDS {
        let server = Server::new();
        server.memory.put("/data/f", b"0123456789");
        let file = server.open("/data/f", updating()).file();
        server.on_file(&file, FileOperation::Checkpoint(Begin)).done();
        server.write(&file, 0, b"ab").done();
        server.on_file(&file, FileOperation::Checkpoint(Commit)).done();
        server.on_file(&file, FileOperation::Checkpoint(Begin)).done();
        server.write(&file, 2, b"XXXX").done();
        server.on_file(&file, FileOperation::Sync).done();
        server.memory.faults().stop_after(0);
        server.settle();
        let server = server.after_stop(Some(seed));
        assert_eq!(server.memory.content("/data/f").unwrap(), b"ab23456789", "seed {seed}");
        assert_eq!(server.logical.blocked_files(), [], "seed {seed}");
    }
}

#[test]
fn an_unfinished_file_that_was_moved_by_a_copy_stays_unfinished() {
    for seed in 0..SEEDS {
        let server = Server::new();
        let file = server.open("/data/f", posc(creating())).file();
        server.write(&file, 0, b"part").done();
        server.memory.faults().stop_after(0);
        server.settle();
        let copy = server.memory.copied(false);
        copy.set_owner(1000);
        let server = server.restarted_on(&copy, None);
        assert!(!is_whole(&server, "/data/f"));
        server.memory.faults().stop_after(0);
        let server = server.after_stop(Some(seed));
        assert!(!is_whole(&server, "/data/f"), "seed {seed}");
    }
}
