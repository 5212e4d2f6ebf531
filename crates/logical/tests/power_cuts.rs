//! Tests of power failures at points where a proof in an attribute has not reached the disk by
//! itself.
#![allow(clippy::unwrap_used)]

mod support;

use logical::config::ExportConfig;
use std::sync::Arc;
use storage::{COPY_TIME_ATTRIBUTE, CopyTime, Faulty, Pool};
use support::{Server, creating, is_whole, path, posc, reading, replacing, target, updating};
use vfs::CheckpointWork::{Begin, Commit};
use vfs::{FileOperation, OpenFile, OpenRequest, Operation};

/// Each seed selects anew which unsynced effects survive.
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

/// The copy has no identities and no marks, so only the journal shows that the file is complete.
#[test]
fn a_file_closed_before_a_power_failure_is_served_after_a_copy() {
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

/// A configuration that leaves syncing to the operating system causes no sync.
#[test]
fn a_close_syncs_the_journal_unless_configured_otherwise() {
    for (adjust, syncs) in [
        ((|_| {}) as fn(&mut logical::Config), 1),
        (|config| config.persist.sync = 0, 0),
        (|config| config.persist.durability = logical::config::Durability::Relaxed, 0),
    ] {
        let server = Server::with(adjust);
        let file = server.open("/data/f", posc(creating())).file();
        // The journal was created with the line of the file, and a new journal is synced together
        // with its name.
        server.close(&file).done();
        assert_eq!(server.persist.syncs(), syncs);
    }
}

/// Returns a server with a partial file that was copied without its mark, so that only the journal
/// shows that it is unfinished.
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

/// Cuts the power after `end` ended the record of a partial file. The file may reappear, but must
/// not look complete.
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
fn a_removed_partial_file_does_not_reappear_as_complete() {
    let remove = |server: &Server| server.call(Operation::Remove(target("/data/f"))).done();
    check_not_taken_for_whole(remove);
    // Without the sync its record must stay.
    check_not_taken_for_whole(|server| {
        server.memory.faults().fail("sync_name", Some(5));
        remove(server);
    });
}

#[test]
fn a_replaced_partial_file_does_not_reappear_as_complete() {
    check_not_taken_for_whole(|server| {
        server.call(Operation::rename(target("/data/new"), target("/data/f"))).done();
    });
}

#[test]
fn a_renamed_partial_file_does_not_reappear_as_complete() {
    check_not_taken_for_whole(|server| {
        server.call(Operation::rename(target("/data/f"), target("/data/g"))).done();
    });
}

#[test]
fn a_truncated_partial_file_does_not_reappear_as_complete() {
    check_not_taken_for_whole(|server| drop(server.open("/data/f", replacing()).file()));
}

#[test]
fn a_file_removed_after_its_hold_time_is_removed_again_if_it_reappears() {
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

fn rename(server: &Server, from: &str, to: &str) {
    server.call(Operation::rename(target(from), target(to))).done();
}

/// Cuts the power after `history` has synced a file; the file must exist as `name` with this
/// content.
fn check_is_found(name: &str, content: &[u8], history: impl Fn(&Server)) {
    for seed in 0..SEEDS {
        let server = Server::new();
        server.memory.put("/data/here", b"");
        history(&server);
        server.memory.faults().stop_after(0);
        server.settle();
        let server = server.after_stop(Some(seed));
        assert_eq!(server.memory.content(name).as_deref(), Some(content), "{name}, seed {seed}");
    }
}

fn created(server: &Server, name: &str) -> Arc<dyn OpenFile> {
    let file = server.open(name, OpenRequest { make_path: true, ..creating() }).file();
    server.write(&file, 0, b"synced").done();
    file
}

fn sync(server: &Server, file: &Arc<dyn OpenFile>) {
    server.on_file(file, FileOperation::Sync).done();
}

#[test]
fn synced_data_is_found_under_its_name_at_the_sync() {
    let histories: [&[(&str, &str)]; 6] = [
        &[("/data/a/b/f", "/data/a/b/f")],
        &[("/data/a/b/f", "/data/g")],
        &[("/data/a", "/data/b"), ("/data/b", "/data/c")],
        &[("/data/a", "/data/new/a"), ("/data/new/a/b/f", "/data/c/f")],
        &[("/data/a/b", "/data/new/b"), ("/data/new", "/data/c")],
        // A name with the same prefix is a different one.
        &[("/data/a", "/data/new/a"), ("/data/new/a/b", "/data/a!"), ("/data/new", "/data/a")],
    ];
    let last = ["/data/a/b/f", "/data/g", "/data/c/b/f", "/data/c/f", "/data/c/b/f", "/data/a!/f"];
    for (renames, last) in histories.iter().zip(last) {
        let history = |server: &Server| {
            let file = created(server, "/data/a/b/f");
            renames.iter().for_each(|(from, to)| rename(server, from, to));
            sync(server, &file);
        };
        check_is_found(last, b"synced", history);
        // After a first sync, another one has to cover only the renames since then.
        check_is_found(last, b"Synced", |server| {
            let file = created(server, "/data/a/b/f");
            sync(server, &file);
            renames.iter().for_each(|(from, to)| rename(server, from, to));
            server.write(&file, 0, b"S").done();
            sync(server, &file);
        });
    }
}

#[test]
fn synced_data_is_found_in_directories_created_by_others() {
    check_is_found("/data/new/g", b"synced", |server| {
        created(server, "/data/new/f");
        let file = created(server, "/data/new/g");
        sync(server, &file);
    });
    check_is_found("/data/d/f", b"synced", |server| {
        server.call(Operation::make_directory(target("/data/d"), 0o755, false)).done();
        let file = created(server, "/data/d/f");
        sync(server, &file);
    });
    check_is_found("/data/new/b/f", b"synced", |server| {
        created(server, "/data/a/x");
        rename(server, "/data/a", "/data/new/b");
        let file = created(server, "/data/new/b/f");
        sync(server, &file);
    });
    // After its close, a file that persists on close is complete and exists.
    check_is_found("/data/new/f", b"whole", |server| {
        let file = server.open("/data/f", posc(creating())).file();
        server.write(&file, 0, b"whole").done();
        rename(server, "/data/f", "/data/new/f");
        server.close(&file).done();
    });
}

#[test]
fn a_sync_does_not_touch_the_disk_above_a_mount() {
    let pool = Pool::new("mounted", 1);
    let mounted = path("/data/mounted");
    let server = Server::over(|_| {}, |memory| Arc::new(Faulty::new(memory).with_pool(&mounted, pool)));
    let file = created(&server, "/data/mounted/d/f");
    let before = server.memory.faults().calls("sync_name");
    sync(&server, &file);
    // The file in its directory, and the directory on the mounted disk.
    assert_eq!(server.memory.faults().calls("sync_name"), before + 2);
}

/// The content of a file that has a copy in mass storage.
const COPIED: &[u8] = b"0123456789";

/// Returns a server with such a file, which is migrated.
fn with_copied_file() -> Server {
    let server = Server::with(|config| {
        config.exports.push(ExportConfig { migrate: true, ..ExportConfig::new(path("/mig")) });
    });
    server.memory.put("/mig/f", COPIED);
    server.memory.put_attribute("/mig/f", COPY_TIME_ATTRIBUTE, &CopyTime(77).encode());
    server
}

fn has_copy(server: &Server) -> bool {
    let value = server.memory.attribute_of("/mig/f", COPY_TIME_ATTRIBUTE);
    value.is_some_and(|value| CopyTime::decode(&value) == Some(CopyTime(77)))
}

/// Cuts the power after each number of steps of `change`. A file with another content than the copy must
/// not look copied, whatever its modification time is.
fn check_is_not_copied(what: &str, change: impl Fn(&Server, Arc<dyn OpenFile>)) {
    for steps in 0..12 {
        for seed in 0..SEEDS / 4 {
            let server = with_copied_file();
            let file = server.open("/mig/f", updating()).file();
            server.memory.faults().stop_after(steps);
            change(&server, file);
            server.memory.faults().stop_after(0);
            server.settle();
            let server = server.after_stop(Some(seed));
            let is_changed = server.memory.content("/mig/f").unwrap() != COPIED;
            assert!(!is_changed || !has_copy(&server), "{what}, {steps} steps, seed {seed}");
        }
    }
}

#[test]
fn a_changed_file_has_no_copy_after_a_power_failure() {
    check_is_not_copied("write", |server, file| {
        drop(server.write(&file, 3, b"abc").answer());
        drop(server.on_file(&file, FileOperation::Sync).answer());
    });
    check_is_not_copied("truncate", |server, file| {
        drop(server.on_file(&file, FileOperation::Truncate { size: 4, checkpoint: false }).answer());
        drop(server.on_file(&file, FileOperation::Sync).answer());
    });
    check_is_not_copied("truncate by path", |server, _file| {
        drop(server.call(Operation::Truncate { target: target("/mig/f"), size: 4 }).answer());
    });
    // The truncation comes before the attribute, and shows by the size. The new content comes later.
    for seed in 0..SEEDS {
        let server = with_copied_file();
        let file = server.open("/mig/f", replacing()).file();
        server.write(&file, 0, b"9876543210").done();
        sync(&server, &file);
        server.memory.faults().stop_after(0);
        server.settle();
        assert!(!has_copy(&server.after_stop(Some(seed))), "seed {seed}");
    }
}

#[test]
fn a_file_whose_checkpoint_is_undone_has_no_copy() {
    for seed in 0..SEEDS {
        let server = with_copied_file();
        let file = server.open("/mig/f", updating()).file();
        server.on_file(&file, FileOperation::Checkpoint(Begin)).done();
        server.write(&file, 2, b"XXXX").done();
        server.memory.faults().stop_after(0);
        server.settle();
        // An earlier version of the server left the attribute.
        let memory = server.memory.survivor(None);
        memory.put_attribute("/mig/f", COPY_TIME_ATTRIBUTE, &CopyTime(77).encode());
        let server = server.restarted_on(&memory, None);
        assert_eq!(server.memory.content("/mig/f").unwrap(), COPIED, "it is undone");
        server.memory.faults().stop_after(0);
        assert!(!has_copy(&server.after_stop(Some(seed))), "seed {seed}");
    }
}
