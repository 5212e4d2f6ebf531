//! Losses of power at points where a proof in an attribute has not reached the disk by itself.
#![allow(clippy::unwrap_used)]

mod support;

use support::{Server, creating, is_whole, posc, reading, replacing, target, updating};
use vfs::CheckpointWork::{Begin, Commit};
use vfs::{FileOperation, Operation};

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

/// The copy has no identities and no marks, so the journal alone tells that the file is whole.
#[test]
fn a_file_that_was_closed_before_a_loss_of_power_is_served_after_a_copy() {
    for seed in 0..SEEDS {
        let server = Server::new();
        let file = server.open("/data/f", posc(creating())).file();
        server.write(&file, 0, b"whole").done();
        server.close(&file).done();
        let file = server.open("/data/g", posc(creating())).file();
        server.abandon(&file).done();
        server.call(Operation::Remove(target("/data/g"))).done();
        server.memory.put("/data/g", b"another file");
        let copy = server.memory.survivor(Some(seed)).copied(false);
        let server = server.restarted_on(&copy, Some(seed));
        assert_eq!(server.logical.unfinished(), [], "seed {seed}");
        for name in ["/data/f", "/data/g"] {
            server.open(name, reading()).done();
        }
    }
}

/// Whoever leaves syncing to the system pays for no sync.
#[test]
fn a_close_syncs_the_journal_unless_that_is_left_to_the_system() {
    for (adjust, syncs) in [
        ((|_| {}) as fn(&mut logical::Config), 1),
        (|config| config.persist.sync = 0, 0),
        (|config| config.persist.durability = logical::config::Durability::Relaxed, 0),
    ] {
        let server = Server::with(adjust);
        let file = server.open("/data/f", posc(creating())).file();
        // The journal began with the line of the file, and what begins a journal is synced with its name.
        server.close(&file).done();
        assert_eq!(server.persist.syncs(), syncs);
    }
}

/// A server with a partial file that was copied without its mark, so that the journal alone tells that it is unfinished.
fn with_unmarked_part() -> Server {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"part").done();
    server.memory.faults().stop_after(0);
    server.settle();
    let memory = server.memory.copied(false);
    memory.put_with_mode("/data/f", b"part", 0o644);
    memory.put("/data/new", b"whole");
    let server = server.restarted_on(&memory, None);
    assert!(!is_whole(&server, "/data/f"));
    server
}

/// Cuts the power after `end` ended the record of a partial file, which may come back but must not look whole.
fn check_not_taken_for_whole(end: impl Fn(&Server)) {
    for seed in 0..SEEDS {
        let server = with_unmarked_part();
        end(&server);
        server.memory.faults().stop_after(0);
        let server = server.after_stop(Some(seed));
        if server.memory.content("/data/f").as_deref() == Some(b"part") {
            assert!(!is_whole(&server, "/data/f"), "seed {seed}");
        }
    }
}

#[test]
fn a_removed_partial_file_does_not_come_back_as_a_whole_one() {
    let remove = |server: &Server| server.call(Operation::Remove(target("/data/f"))).done();
    check_not_taken_for_whole(remove);
    // Without the sync its record must stay.
    check_not_taken_for_whole(|server| {
        server.memory.faults().fail("sync_name", Some(5));
        remove(server);
    });
}

#[test]
fn a_replaced_partial_file_does_not_come_back_as_a_whole_one() {
    check_not_taken_for_whole(|server| {
        server.call(Operation::Rename { from: target("/data/new"), to: target("/data/f") }).done();
    });
}

#[test]
fn a_renamed_partial_file_does_not_come_back_as_a_whole_one() {
    check_not_taken_for_whole(|server| {
        server.call(Operation::Rename { from: target("/data/f"), to: target("/data/g") }).done();
    });
}

#[test]
fn an_emptied_partial_file_does_not_come_back_as_a_whole_one() {
    check_not_taken_for_whole(|server| drop(server.open("/data/f", replacing()).file()));
}

#[test]
fn a_file_removed_after_its_hold_time_is_removed_again_if_it_comes_back() {
    for seed in 0..SEEDS {
        let server = Server::new();
        let file = server.open("/data/f", posc(creating())).file();
        server.write(&file, 0, b"part").done();
        server.abandon(&file).done();
        server.memory.take("/nothing"); // makes everything stable
        server.after(601);
        assert_eq!(server.memory.content("/data/f"), None);
        server.memory.faults().stop_after(0);
        let server = server.after_stop(Some(seed));
        server.after(100_000);
        assert_eq!(server.memory.content("/data/f"), None, "seed {seed}");
    }
}
