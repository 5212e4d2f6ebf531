//! Tests of records that no longer lead to their unfinished file, because the tree was copied
//! without modes, cannot be read, or is not mounted. A file at the path is served only if it is
//! known to be complete.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::*;
use support::{Server, creating, is_whole, path, posc, reading, replacing, target, updating, waits};
use vfs::{OpenRequest, Operation};

const NUMBER: &str = "user.scalla.pending";

/// Returns a server that stopped during a write to `/data/f`, which is unfinished.
fn stopped() -> Server {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"part").done();
    server.memory.faults().stop_after(0);
    server.settle();
    server
}

/// Starts a server on a copy of that tree without modes and attributes, as from `cp -r`.
fn copied() -> Server {
    let server = stopped();
    let memory = server.memory.copied(false);
    memory.put_with_mode("/data/f", b"part", 0o644);
    server.restarted_on(&memory, None)
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::rename(target(from), target(to))
}

fn records(server: &Server) -> usize {
    server.logical.unfinished().len()
}

#[test]
fn a_file_that_lost_its_mark_is_not_served_until_cleared() {
    for cold in [false, true] {
        let server = copied();
        server.memory.set_cold(cold);
        assert!(!is_whole(&server, "/data/f"));
        for request in [reading(), updating()] {
            let (kind, text) = server.open("/data/f", request).refusal();
            assert_eq!(kind, FsError);
            assert!(text.ends_with("run: scalla admin unfinished clear /data/f"), "{text}");
        }
        server.open("/data/x", reading()).done();
        // A change of its mode does not hide the file, and a rename moves the record with it.
        server.call(Operation::ChangeMode { target: target("/data/f"), mode: 0o600 }).done();
        server.call(rename("/data/f", "/data/g")).done();
        assert_eq!(server.open("/data/g", reading()).error().kind, FsError);
        let server = server.restarted();
        assert_eq!(server.open("/data/g", reading()).error().kind, FsError);
        server.logical.clear_unfinished(&path("/data/g"), false).unwrap();
        server.open("/data/g", updating()).done();
        assert_eq!(server.memory.mode("/data/g"), Some(0o600));
        let server = server.restarted();
        server.open("/data/g", reading()).done();
        assert_eq!(server.memory.content("/data/g").as_deref(), Some(&b"part"[..]));
    }
}

#[test]
fn a_file_that_lost_its_mark_is_cleared_where_its_mode_cannot_be_changed() {
    let server = copied();
    server.memory.faults().fail("set_mode", Some(1));
    server.logical.clear_unfinished(&path("/data/f"), false).unwrap();
    server.memory.faults().fail("set_mode", None);
    server.open("/data/f", reading()).done();
    assert_eq!(records(&server), 0);
}

#[test]
fn a_record_can_be_ended_by_force_in_any_state_of_its_path() {
    let server = stopped();
    let memory = server.memory.copied(false);
    memory.take("/data/f");
    memory.put("/data/f/below", b"");
    let server = server.restarted_on(&memory, None);
    assert_eq!(records(&server), 1);
    let error = server.logical.clear_unfinished(&path("/data/f"), false).unwrap_err();
    assert_eq!(error.kind, IsDirectory, "{error:?}");
    server.logical.clear_unfinished(&path("/data/f"), true).unwrap();
    assert_eq!(records(&server), 0);
}

#[test]
fn a_file_created_anew_is_served() {
    let forced = OpenRequest { force: true, ..replacing() };
    for request in [replacing(), posc(replacing()), forced, posc(updating())] {
        let server = copied();
        let file = server.open("/data/f", request).file();
        server.write(&file, 0, b"whole").done();
        server.close(&file).done();
        assert_eq!(records(&server), 0);
        let server = server.restarted();
        assert!(is_whole(&server, "/data/f"));
        server.open("/data/f", reading()).done();
    }
    for (removes, moves) in [(true, false), (false, true), (false, false)] {
        let server = copied();
        if removes {
            server.call(Operation::Remove(target("/data/f"))).done();
            server.open("/data/f", creating()).done();
        } else if moves {
            server.memory.put("/data/d/f", b"whole");
            server.call(rename("/data/d/f", "/data/f")).done();
        } else {
            let file = server.open("/data/f", posc(replacing())).file();
            server.abandon(&file).done();
            assert_eq!(waits(&server, "/data/f", reading()).0, 60, "now it has the mark");
            continue;
        }
        server.open("/data/f", reading()).done();
        server.restarted().open("/data/f", reading()).done();
    }
}

#[test]
fn a_file_that_was_completed_is_served_after_a_copy() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"whole").done();
    server.close(&file).done();
    let memory = server.memory.copied(false);
    let server = server.restarted_on(&memory, None);
    server.open("/data/f", reading()).done();
}

/// A disk that could not be read for a moment does not count as a copy of the tree.
#[test]
fn an_error_at_the_start_does_not_count_as_a_moved_tree() {
    let server = stopped();
    let number = server.memory.attribute_of("/data/f", NUMBER).unwrap();
    let memory = server.memory.survivor(None);
    memory.faults().fail("attribute", Some(5));
    let server = server.restarted_on(&memory, None);
    assert_eq!(records(&server), 1, "the record is kept");
    memory.faults().fail("attribute", None);
    assert_eq!(waits(&server, "/data/f", reading()).0, 60);
    let server = server.restarted();
    assert_eq!(server.memory.attribute_of("/data/f", NUMBER), Some(number));
    server.after(601);
    assert_eq!(server.memory.content("/data/f"), None, "it is removed after the hold time");
}

/// Starts a server while the file system of `/data/d` is not mounted; its file is in `/mounted`.
fn unmounted() -> Server {
    let server = Server::new();
    server.memory.put("/data/d/other", b"");
    let file = server.open("/data/d/f", posc(creating())).file();
    server.write(&file, 0, b"part").done();
    server.memory.faults().stop_after(0);
    server.settle();
    let memory = server.memory.survivor(None);
    memory.shift("/data/d", "/mounted");
    memory.put("/data/d/x", b"");
    memory.take("/data/d/x");
    server.restarted_on(&memory, None)
}

#[test]
fn removing_or_replacing_an_empty_mount_point_ends_no_record() {
    type Change = fn(&Server);
    let changes: [Change; 3] = [
        |server| server.call(Operation::RemoveDirectory(target("/data/d"))).done(),
        |server| server.call(Operation::Remove(target("/data/d"))).done(),
        |server| {
            server.memory.put("/data/e/whole", b"");
            server.call(rename("/data/e", "/data/d")).done();
        },
    ];
    for change in changes {
        let server = unmounted();
        change(&server);
        assert_eq!(records(&server), 1);
        server.memory.shift("/data/d", "/data/e");
        server.memory.shift("/mounted", "/data/d");
        let server = server.restarted();
        assert_eq!(waits(&server, "/data/d/f", reading()).0, 60);
        server.after(601);
        assert_eq!(server.memory.content("/data/d/f"), None);
    }
}

#[test]
fn files_in_a_renamed_directory_count_as_complete() {
    let server = unmounted();
    server.memory.put("/data/e/f", b"whole");
    server.call(rename("/data/e", "/data/d")).done();
    server.open("/data/d/f", reading()).done();
    assert_eq!(records(&server), 0);
}

#[test]
fn a_file_is_not_cleared_during_its_close() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"whole").done();
    server.memory.faults().hold("sync");
    let close = server.close(&file);
    server.memory.faults().wait_for_held("sync", 1);
    let error = server.logical.clear_unfinished(&path("/data/f"), true).unwrap_err();
    assert!(error.kind == InProgress && error.text.contains("clients are writing it"), "{error:?}");
    server.memory.faults().release("sync");
    close.done();
    assert!(is_whole(&server, "/data/f"));
    assert_eq!(records(&server), 0);
}

/// The close by the earlier owner must not complete the data of the new one.
#[test]
fn a_file_taken_over_during_its_close_stays_unfinished() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"whole").done();
    server.memory.faults().hold("sync");
    let close = server.close(&file);
    server.memory.faults().wait_for_held("sync", 1);
    let other = server.open("/data/f", posc(OpenRequest { force: true, ..replacing() })).file();
    server.write(&other, 0, b"pa").done();
    server.memory.faults().release("sync");
    close.done();
    assert!(!is_whole(&server, "/data/f"));
    assert_eq!(records(&server), 1);
    server.write(&other, 2, b"rt").done();
    server.close(&other).done();
    assert!(is_whole(&server, "/data/f"));
    assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"part"[..]));
}

#[test]
fn a_failed_close_keeps_the_file_for_its_creator() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"whole").done();
    server.memory.faults().fail("sync", Some(5));
    assert_eq!(server.close(&file).error().kind, IoError);
    server.memory.faults().fail("sync", None);
    server.after(599);
    assert!(server.memory.content("/data/f").is_some());
    server.after(2);
    assert_eq!(server.memory.content("/data/f"), None);
}

#[test]
fn commands_for_the_administrator_are_quoted() {
    let server = Server::new();
    let name = "/data/it's a \u{1b}[31m name; rm -r";
    let file = server.open(name, posc(creating())).file();
    server.write(&file, 0, b"part").done();
    server.memory.faults().stop_after(0);
    server.settle();
    let memory = server.memory.copied(false);
    memory.put_with_mode(name, b"part", 0o644);
    let server = server.restarted_on(&memory, None);
    let (_, text) = server.open(name, reading()).refusal();
    let command = "scalla admin unfinished clear '/data/it'\\''s a \\u001b[31m name; rm -r'";
    assert!(text.ends_with(command), "{text}");
}
