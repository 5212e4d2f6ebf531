//! Tests of opens that give a file its name when they are closed, several at the same time.
#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::*;
use std::sync::Arc;
use storage::Backend;
use support::{Server, caller, creating, path, posc, reading, target, updating};
use vfs::{FileOperation, OpenFile, OpenRequest, Operation};

const EINVAL: i32 = 22;
const ENOTSUP: i32 = 95;

/// An open of a file that replaces what is there at its close.
fn publishing() -> OpenRequest {
    posc(OpenRequest { replace: true, publish: true, ..support::replacing() })
}

/// An open of a file that must be new at its close.
fn publishing_new() -> OpenRequest {
    posc(OpenRequest { replace: true, publish: true, make_path: true, ..creating() })
}

fn open(server: &Server, request: OpenRequest, content: &[u8]) -> Arc<dyn OpenFile> {
    let file = server.open("/data/f", request).file();
    server.write(&file, 0, content).done();
    file
}

fn content(server: &Server) -> Option<Vec<u8>> {
    server.memory.content("/data/f")
}

/// Returns the number of names in the directory.
fn names(server: &Server) -> usize {
    server.memory.list(&path("/data")).and_then(|mut names| names.next(100)).unwrap().len()
}

#[test]
fn a_file_has_no_name_until_it_is_whole() {
    for request in [publishing, publishing_new] {
        let server = Server::new();
        let before = names(&server);
        let file = open(&server, request(), b"new");
        assert_eq!(server.stat("/data/f").error().kind, NotFound);
        assert_eq!(server.open("/data/f", reading()).error().kind, NotFound);
        server.close(&file).done();
        assert_eq!(content(&server).as_deref(), Some(&b"new"[..]));
        assert_eq!(server.memory.mode("/data/f"), Some(0o644));
        assert!(support::is_whole(&server, "/data/f"));
        assert_eq!((names(&server), server.logical.status().pending_files), (before + 1, 0));
    }
}

#[test]
fn the_last_close_counts() {
    let server = Server::new();
    let before = names(&server);
    // A client that has vanished does not keep others from the name.
    let vanished = open(&server, publishing(), b"vanished");
    let first = open(&server, publishing(), b"first");
    let second = open(&server, publishing(), b"second");
    server.close(&second).done();
    assert_eq!(content(&server).as_deref(), Some(&b"second"[..]));
    server.close(&first).done();
    assert_eq!(content(&server).as_deref(), Some(&b"first"[..]));
    server.abandon(&vanished).done();
    server.settle();
    assert_eq!(content(&server).as_deref(), Some(&b"first"[..]));
    assert_eq!((names(&server), server.logical.status().pending_files), (before + 1, 0));
}

#[test]
fn one_of_several_files_that_must_be_new_gets_the_name() {
    let server = Server::new();
    let (first, second) =
        (open(&server, publishing_new(), b"first"), open(&server, publishing_new(), b"second"));
    server.close(&second).done();
    assert_eq!(server.close(&first).refusal().0, ItExists);
    assert_eq!(server.open("/data/f", publishing_new()).refusal().0, ItExists);
    server.settle();
    assert_eq!(content(&server).as_deref(), Some(&b"second"[..]));
    assert_eq!(server.logical.status().pending_files, 0);
    server.call(Operation::Remove(target("/data/f"))).done();
    // What another program has put there stays.
    let file = open(&server, publishing_new(), b"third");
    server.memory.put("/data/f", b"another's");
    assert_eq!(server.close(&file).refusal().0, ItExists);
    assert_eq!(content(&server).as_deref(), Some(&b"another's"[..]));
}

#[test]
fn a_file_system_that_cannot_keep_a_name_says_so() {
    let server = Server::new();
    let file = open(&server, publishing_new(), b"new");
    server.memory.faults().fail("rename", Some(EINVAL));
    let error = server.close(&file).error();
    assert_eq!(error.source.and_then(|error| error.raw_os_error()), Some(ENOTSUP));
    server.memory.faults().fail("rename", None);
    server.settle();
    assert_eq!((content(&server), server.logical.status().pending_files), (None, 0));
}

#[test]
fn a_crash_leaves_nothing() {
    let server = Server::new();
    let before = names(&server);
    let _file = open(&server, publishing(), b"part");
    let server = server.restarted();
    server.after(1);
    server.settle();
    assert_eq!((content(&server), names(&server)), (None, before));
    let file = open(&server, publishing_new(), b"new");
    server.close(&file).done();
    assert_eq!(content(&server).as_deref(), Some(&b"new"[..]));
}

#[test]
fn writers_and_publications_exclude_each_other() {
    let server = Server::new();
    server.memory.put("/data/f", b"old");
    let writer = server.open_as(&caller("bob", 2), "/data/f", updating()).file();
    assert_eq!(server.open("/data/f", publishing()).error().kind, FileLocked);
    server.close(&writer).done();
    let file = open(&server, publishing(), b"new");
    assert_eq!(server.open_as(&caller("bob", 2), "/data/f", updating()).error().kind, FileLocked);
    server.on_file(&file, FileOperation::Close { failed: true }).done();
    assert_eq!(content(&server).as_deref(), Some(&b"old"[..]));
}

#[test]
fn uploads_in_parts_are_for_clients_of_s3() {
    let server = Server::new();
    server.memory.put("/data/.scalla-multipart-1", b"x");
    for call in [
        server.stat("/data/.scalla-multipart-1"),
        server.open("/data/.scalla-multipart-1", reading()),
        server.open("/data/.scalla-multipart-2/part", creating()),
        server.call(Operation::rename(target("/data/.scalla-multipart-1"), target("/data/x"))),
        server.call(Operation::Remove(target("/data/.scalla-multipart-1"))),
    ] {
        assert_eq!(call.error().kind, NotAuthorized);
    }
    let listed =
        |server: &Server| match server.call(Operation::List(target("/data"), Default::default())).value() {
            vfs::Value::Listing { entries, .. } => {
                entries.iter().any(|entry| entry.name.starts_with(vfs::UPLOAD_PREFIX.as_bytes()))
            }
            _ => panic!("no listing"),
        };
    assert!(!listed(&server));
    assert!(server.memory.content("/data/.scalla-multipart-1").is_some());
}
