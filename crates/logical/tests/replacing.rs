//! Tests of opens that replace a file when they are closed: the old file stays as it is until then, also
//! after a stop at every step.
#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::*;
use std::sync::Arc;
use storage::Backend;
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

/// Returns a reserved name.
fn reserved(name: &str) -> String {
    storage::replacement_path(&path(name), "x").unwrap().text().into_owned()
}

/// Returns the names of new content.
fn beside(server: &Server) -> Vec<String> {
    let in_directory = |above: &str| {
        let names = server.memory.list(&path(above)).and_then(|mut names| names.next(100));
        let names = names.unwrap_or_default().into_iter().map(|entry| path(above).join(&entry.name).unwrap());
        names.filter(storage::is_replacement).map(|name| name.text().into_owned()).collect::<Vec<_>>()
    };
    ["/data", "/nolock", "/data/d", "/data/e"].into_iter().flat_map(in_directory).collect()
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
        assert_eq!(beside(&server), [""; 0]);
        assert_eq!(read_file(&server, &reader), b"old", "a reader of the old file reads on");
        assert_eq!(server.logical.status().pending_files, 0);
    }
}

/// Ends an upload.
type Ending = fn(&Server, &Arc<dyn OpenFile>);

#[test]
fn what_fails_leaves_the_old_file() {
    let endings: [(&str, Ending); 5] = [
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
        assert_eq!(beside(&server), [""; 0], "{what}");
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
    let name = reserved("/data/f");
    for call in [server.open(&name, creating()), server.open(&name, reading()), server.stat(&name)] {
        assert_eq!(call.error().kind, NotAuthorized);
    }
    server.memory.put("/data/g", b"x");
    let moved = server.call(Operation::rename(target("/data/g"), target(&name)));
    assert_eq!(moved.error().kind, NotAuthorized);
}

/// A file that only looks like a replacement is neither used nor removed.
#[test]
fn a_file_of_unknown_origin_is_kept() {
    let server = Server::new();
    let name = reserved("/data/f");
    server.memory.put("/data/f", b"old");
    server.memory.put(&name, b"somebody's");
    assert!(replace(&server, "/data/f"));
    let server = server.restarted();
    server.after(10_000);
    assert_eq!(content(&server, &name).as_deref(), Some(&b"somebody's"[..]));
    assert_eq!(read(&server, "/data/f"), b"new content");
}

/// Two servers of one tree do not know each other.
#[test]
fn servers_of_one_tree_do_not_take_the_content_of_each_other() {
    let one = Server::new();
    one.memory.put("/data/f", b"old");
    let other = Server::on_disk_of(&one);
    let first = one.open("/data/f", replacing()).file();
    one.write(&first, 0, b"first").done();
    let second = other.open("/data/f", replacing()).file();
    other.write(&second, 0, b"2").done();
    one.write(&first, 5, b" and more").done();
    one.close(&first).done();
    assert_eq!(read(&one, "/data/f"), b"first and more");
    other.abandon(&second).done();
    other.settle();
    assert_eq!(read(&other, "/data/f"), b"first and more");
    assert_eq!(beside(&one), [""; 0]);
}

#[test]
fn content_that_another_program_has_put_there_is_not_published() {
    let server = Server::new();
    server.memory.put("/data/f", b"old");
    let file = server.open("/data/f", replacing()).file();
    server.write(&file, 0, b"new").done();
    let name = beside(&server).remove(0);
    server.memory.take(&name);
    server.memory.put(&name, b"another's");
    server.close(&file).error();
    server.settle();
    assert_eq!(read(&server, "/data/f"), b"old");
    assert_eq!(content(&server, &name).as_deref(), Some(&b"another's"[..]));
}

/// A file gets its name while the open waits for the rename that gives it.
#[test]
fn a_file_that_appears_during_the_open_is_kept() {
    let server = Server::new();
    server.memory.put("/data/g", b"moved");
    server.memory.faults().hold("rename");
    let renaming = server.call(Operation::rename(target("/data/g"), target("/data/f")));
    server.memory.faults().wait_for_held("rename", 1);
    let opening = server.open("/data/f", replacing());
    server.memory.faults().release("rename");
    renaming.done();
    let file = match opening.answer() {
        Answer::Value(Value::Opened(opened)) => opened.file,
        _ => server.open("/data/f", replacing()).file(),
    };
    server.write(&file, 0, b"part").done();
    assert_eq!(read(&server, "/data/f"), b"moved");
    server.on_file(&file, FileOperation::Close { failed: true }).done();
    server.settle();
    assert_eq!(read(&server, "/data/f"), b"moved");
}

/// Clients that create without asking for updates count as readers.
#[test]
fn a_file_with_a_writer_that_counts_as_a_reader_is_not_replaced() {
    let counting = || OpenRequest { counts_as_reader: true, ..support::replacing() };
    let server = Server::new();
    server.memory.put("/data/f", b"old");
    let writer = server.open_as(&caller("bob", 2), "/data/f", counting()).file();
    assert_eq!(server.open("/data/f", replacing()).error().kind, FileLocked);
    server.write(&writer, 0, b"kept").done();
    server.close(&writer).done();
    let file = server.open("/data/f", replacing()).file();
    assert_eq!(server.open_as(&caller("bob", 2), "/data/f", counting()).error().kind, FileLocked);
    // One that overrides the locks is not overtaken.
    let forced = OpenRequest { force: true, ..updating() };
    let writer = server.open_as(&caller("bob", 2), "/data/f", forced).file();
    server.write(&file, 0, b"lost").done();
    server.close(&file).error();
    server.write(&writer, 0, b"KEPT").done();
    server.close(&writer).done();
    server.settle();
    assert_eq!(read(&server, "/data/f"), b"KEPT");
    assert_eq!(beside(&server), [""; 0]);
}

#[test]
fn a_file_with_a_writer_under_another_name_is_not_replaced() {
    let server = Server::new();
    server.memory.put("/data/f", b"old");
    server.memory.link("/data/f", "/data/link");
    let _writer = server.open_as(&caller("bob", 2), "/data/link", updating()).file();
    server.open("/data/f", replacing()).error();
    assert_eq!(beside(&server), [""; 0]);
}

#[test]
fn the_access_list_is_that_of_the_old_file() {
    let list = "system.posix_acl_access";
    let server = Server::new();
    server.memory.put_with_mode("/data/f", b"old", 0o660);
    server.memory.put_attribute("/data/f", list, b"entries");
    let file = server.open("/data/f", replacing()).file();
    let name = beside(&server).remove(0);
    assert_eq!(server.memory.mode(&name), Some(0o1600), "nobody else reads the new content");
    server.close(&file).done();
    assert_eq!(server.memory.attribute_of("/data/f", list).as_deref(), Some(&b"entries"[..]));
    assert_eq!(server.memory.mode("/data/f"), Some(0o660));
    // The new file has a list of its directory, and the old one has none.
    server.memory.put("/data/g", b"old");
    let file = server.open("/data/g", replacing()).file();
    server.memory.put_attribute(&beside(&server).remove(0), list, b"inherited");
    server.close(&file).done();
    assert_eq!(server.memory.attribute_of("/data/g", list), None);
}

/// An error after the rename is no reason to treat the old content as present.
#[test]
fn what_fails_after_the_rename_is_reported_as_such() {
    let server = Server::new();
    server.memory.put("/data/f", b"old");
    let file = server.open("/data/f", replacing()).file();
    server.write(&file, 0, b"new").done();
    server.memory.faults().hold("rename");
    let closing = server.close(&file);
    server.memory.faults().wait_for_held("rename", 1);
    server.memory.faults().fail("sync_name", Some(EIO));
    server.memory.faults().release("rename");
    let (_, text) = closing.refusal();
    assert_eq!(text, "Unable to close /data/f; the new file is in place, but may be lost by a power failure");
    server.memory.faults().fail("sync_name", None);
    assert_eq!(read(&server, "/data/f"), b"new");
    assert_eq!(server.logical.status().pending_files, 0);
    let server = server.restarted();
    server.after(601);
    assert_eq!(read(&server, "/data/f"), b"new");
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
    server.memory.put_with_mode("/data/d/f", b"old", 0o640);
    let file = server.open("/data/d/f", replacing()).file();
    server.write(&file, 0, b"new").done();
    server.call(Operation::rename(target("/data/d"), target("/data/e"))).done();
    server.call(Operation::Remove(target("/data/e/f"))).done();
    server.close(&file).done();
    assert_eq!(read(&server, "/data/e/f"), b"new");
    assert_eq!(beside(&server), [""; 0]);
    assert_eq!(server.memory.mode("/data/e/f"), Some(0o640), "the permission bits are those of the old file");
}

/// Replaces the file; returns whether every step was acknowledged.
fn replace(server: &Server, name: &str) -> bool {
    let Answer::Value(Value::Opened(opened)) = server.open(name, replacing()).answer() else {
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
            let acknowledged = replace(&server, "/data/d/f");
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
            assert_eq!(beside(&server), [""; 0], "{note}");
            assert!(replace(&server, "/data/d/f"), "{note}");
            assert_eq!(read(&server, "/data/d/f"), b"new content", "{note}");
            assert_eq!(beside(&server), [""; 0], "{note}");
            if finished {
                break;
            }
        }
    }
}

/// Renames the directory during an upload. After a stop at any step, a new file at the old path is not the
/// one that is replaced.
#[test]
fn after_a_stop_in_a_rename_of_the_directory_the_target_is_beside() {
    for how in stops() {
        for stop in 0.. {
            assert!(stop < 100);
            let server = Server::new();
            server.memory.put("/data/d/f", b"old");
            let file = server.open("/data/d/f", replacing()).file();
            server.write(&file, 0, b"part").done();
            server.memory.faults().stop_after(stop);
            server.call(Operation::rename(target("/data/d"), target("/data/e"))).answer();
            let finished = !server.memory.faults().is_dead();
            server.memory.faults().stop_after(0);
            server.settle();
            let server = server.after_stop(how);
            let (from, to) = ("/data/d/f", "/data/e/f");
            let (kept, new) = if content(&server, to).is_some() { (to, from) } else { (from, to) };
            let note = format!("stop {how:?} after {stop}: {kept}");
            server.memory.put(new, b"other");
            assert!(replace(&server, kept), "{note}");
            assert_eq!(read(&server, kept), b"new content", "{note}");
            assert_eq!(read(&server, new), b"other", "{note}");
            server.after(601);
            // A power failure can undo a rename of which the journal knows.
            assert!(how.is_some() || beside(&server).is_empty(), "{note}");
            assert_eq!(read(&server, new), b"other", "{note}");
            if finished {
                break;
            }
        }
    }
}
