//! Tests of opens that replace a file when they are closed: the old file stays as it is until then, also
//! after a stop at every step.
#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::*;
use std::sync::Arc;
use support::{Server, caller, creating, is_whole, path, posc, reading, stops, target, updating};
use vfs::{Answer, AttributeWork, FileOperation, OpenFile, OpenRequest, Operation, Value};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

/// An open as HTTP makes it.
fn replacing() -> OpenRequest {
    posc(OpenRequest { replace: true, ..support::replacing() })
}

fn content(server: &Server, name: &str) -> Option<Vec<u8>> {
    server.memory.content(name)
}

/// Returns the name of the new content until the close.
fn beside(name: &str) -> String {
    storage::replacement_path(&path(name)).unwrap().text().into_owned()
}

/// Returns the content that a new reader gets.
fn read(server: &Server, name: &str) -> Vec<u8> {
    let file = server.open_as(&caller("reader", 9), name, reading()).file();
    read_file(server, &file)
}

fn read_file(server: &Server, file: &Arc<dyn OpenFile>) -> Vec<u8> {
    let piece = base::ReadPiece { extent: base::Extent { offset: 0, length: 64 }, at: 0 };
    let read = FileOperation::Read { buffer: vec![0; 64], pieces: vec![piece] };
    match server.on_file(file, read).value() {
        Value::Data { buffer, lengths } => buffer[..lengths[0]].to_vec(),
        _ => panic!("no data"),
    }
}

#[test]
fn the_old_file_is_served_until_the_new_one_is_whole() {
    for name in ["/data/f", "/nolock/f"] {
        let server = Server::new();
        server.memory.put_with_mode(name, b"old", 0o640);
        let reader = server.open_as(&caller("reader", 8), name, reading()).file();
        let file = server.open(name, replacing()).file();
        server.write(&file, 0, b"new content").done();
        let stat = server.stat(name).stat();
        assert_eq!((stat.size, stat.mode, stat.posc_pending), (3, 0o640, false));
        assert_eq!(read(&server, name), b"old");
        server.close(&file).done();
        assert_eq!(read(&server, name), b"new content");
        assert_eq!(server.memory.mode(name), Some(0o640), "the permission bits are those of the old file");
        assert!(is_whole(&server, name));
        assert_eq!(content(&server, &beside(name)), None);
        assert_eq!(read_file(&server, &reader), b"old", "a reader of the old file reads on");
        assert_eq!(server.logical.status().pending_files, 0);
    }
}

#[test]
fn what_fails_leaves_the_old_file() {
    let endings: [(&str, fn(&Server, &Arc<dyn OpenFile>)); 5] = [
        ("the client reports a failure", |server, file| {
            server.on_file(file, FileOperation::Close { failed: true }).done();
        }),
        ("the client leaves", |server, file| server.abandon(file).done()),
        ("there is no room", |server, file| {
            server.memory.faults().fail("write", Some(ENOSPC));
            server.write(file, 0, b"more").error();
            server.memory.faults().fail("write", None);
            server.close(file).done();
        }),
        ("the disk fails", |server, file| {
            server.memory.faults().fail("sync", Some(EIO));
            server.close(file).error();
            server.memory.faults().fail("sync", None);
        }),
        ("the rename fails", |server, file| {
            server.memory.faults().fail("rename", Some(EIO));
            let (_, text) = server.close(file).refusal();
            assert!(text.starts_with("Unable to close /data/f; "), "{text}");
            server.memory.faults().fail("rename", None);
        }),
    ];
    for (what, end) in endings {
        let server = Server::new();
        server.memory.put("/data/f", b"old");
        let file = server.open("/data/f", replacing()).file();
        server.write(&file, 0, b"part").done();
        end(&server, &file);
        server.settle();
        assert_eq!(read(&server, "/data/f"), b"old", "{what}");
        assert_eq!(content(&server, &beside("/data/f")), None, "{what}");
        assert_eq!(server.logical.status().pending_files, 0, "{what}");
        let file = server.open("/data/f", replacing()).file();
        server.write(&file, 0, b"next").done();
        server.close(&file).done();
        assert_eq!(read(&server, "/data/f"), b"next", "{what}");
    }
}

#[test]
fn attributes_of_clients_stay_and_checksums_are_of_the_new_file() {
    let server = Server::with(|config| config.checksums.types = vec![digest::Algorithm::Adler32]);
    server.memory.put("/data/f", b"old");
    let set = AttributeWork::Set { pairs: vec![(b"tag".to_vec(), b"v".to_vec())], new: false };
    server.call(Operation::Attributes(target("/data/f"), set)).done();
    let sum = |server: &Server| match server.call(Operation::Checksum(target("/data/f"))).value() {
        Value::Checksum { hex, .. } => hex,
        _ => panic!("no checksum"),
    };
    let before = sum(&server);
    let file = server.open("/data/f", replacing()).file();
    server.write(&file, 0, b"new").done();
    server.close(&file).done();
    assert_ne!(sum(&server), before);
    assert_eq!(server.memory.attribute_of("/data/f", "user.U.tag").as_deref(), Some(&b"v"[..]));
}

#[test]
fn names_of_replacements_are_not_for_clients() {
    let server = Server::new();
    let name = beside("/data/f");
    for call in [server.open(&name, creating()), server.open(&name, reading()), server.stat(&name)] {
        assert_eq!(call.error().kind, NotAuthorized);
    }
    server.memory.put("/data/g", b"x");
    let moved = server.call(Operation::rename(target("/data/g"), target(&name)));
    assert_eq!(moved.error().kind, NotAuthorized);
}

/// A file that only looks like a replacement is neither replaced nor removed.
#[test]
fn a_file_of_unknown_origin_is_kept() {
    let server = Server::new();
    server.memory.put("/data/f", b"old");
    server.memory.put(&beside("/data/f"), b"somebody's");
    assert_eq!(server.open("/data/f", replacing()).error().kind, ItExists);
    let server = server.restarted();
    server.after(10_000);
    assert_eq!(content(&server, &beside("/data/f")).as_deref(), Some(&b"somebody's"[..]));
    assert_eq!(read(&server, "/data/f"), b"old");
}

#[test]
fn a_file_that_is_written_is_not_replaced_and_the_other_way_round() {
    let server = Server::new();
    server.memory.put("/data/f", b"old");
    let writer = server.open_as(&caller("bob", 2), "/data/f", updating()).file();
    assert_eq!(server.open("/data/f", replacing()).error().kind, FileLocked);
    server.close(&writer).done();
    let file = server.open("/data/f", replacing()).file();
    assert_eq!(server.open_as(&caller("bob", 2), "/data/f", updating()).error().kind, FileLocked);
    for name in ["/data/f", "/nolock/f"] {
        server.memory.put("/nolock/f", b"old");
        let first = server.open("/nolock/f", replacing()).file();
        let (kind, text) = server.open_as(&caller("bob", 2), name, replacing()).refusal();
        let reason = format!("Output file {name} is being replaced by another client; open denied.");
        assert_eq!((kind, text), (FileLocked, reason));
        server.on_file(&first, FileOperation::Close { failed: true }).done();
    }
    server.close(&file).done();
    server.open_as(&caller("bob", 2), "/data/f", updating()).done();
}

#[test]
fn a_missing_file_is_created_and_an_unfinished_one_is_taken_over() {
    let server = Server::new();
    let file = server.open("/data/new", replacing()).file();
    server.write(&file, 0, b"part").done();
    assert!(!is_whole(&server, "/data/new"));
    server.abandon(&file).done();
    let file = server.open("/data/new", replacing()).file();
    server.write(&file, 0, b"all").done();
    server.close(&file).done();
    assert_eq!(read(&server, "/data/new"), b"all");
}

#[test]
fn the_directory_may_be_renamed_and_the_old_file_removed_meanwhile() {
    let server = Server::new();
    server.memory.put("/data/d/f", b"old");
    let file = server.open("/data/d/f", replacing()).file();
    server.write(&file, 0, b"new").done();
    server.call(Operation::rename(target("/data/d"), target("/data/e"))).done();
    server.call(Operation::Remove(target("/data/e/f"))).done();
    server.close(&file).done();
    assert_eq!(read(&server, "/data/e/f"), b"new");
    assert_eq!(content(&server, &beside("/data/e/f")), None);
}

/// Replaces the file; returns whether every step was acknowledged.
fn replace(server: &Server) -> bool {
    let Answer::Value(Value::Opened(opened)) = server.open("/data/d/f", replacing()).answer() else {
        return false;
    };
    let written = matches!(server.write(&opened.file, 0, b"new content").answer(), Answer::Value(_));
    let closed = matches!(server.close(&opened.file).answer(), Answer::Value(_));
    written && closed
}

#[test]
fn after_a_stop_there_is_the_old_file_or_the_new_one() {
    for how in stops() {
        for stop in 0.. {
            assert!(stop < 100);
            let server = Server::new();
            server.memory.put("/data/d/f", b"old");
            server.memory.faults().stop_after(stop);
            let acknowledged = replace(&server);
            let finished = !server.memory.faults().is_dead();
            server.memory.faults().stop_after(0);
            server.settle();
            let server = server.after_stop(how);
            let found = content(&server, "/data/d/f").unwrap_or_default();
            let note = format!("stop {how:?} after {stop}: {:?}", String::from_utf8_lossy(&found));
            assert!(found == b"new content" || (found == b"old" && !acknowledged), "{note}");
            assert!(is_whole(&server, "/data/d/f"), "{note}");
            assert_eq!(server.memory.mode("/data/d/f"), Some(0o644), "{note}");
            assert_eq!(read(&server, "/data/d/f"), found, "{note}");
            server.after(601);
            assert_eq!(content(&server, "/data/d/f").unwrap(), found, "{note}");
            // Only a file that was not in the journal yet stays, until the next upload.
            assert!(replace(&server), "{note}");
            assert_eq!(read(&server, "/data/d/f"), b"new content", "{note}");
            assert_eq!(content(&server, &beside("/data/d/f")), None, "{note}");
            if finished {
                break;
            }
        }
    }
}
