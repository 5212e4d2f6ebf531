//! Tests of events: each change of a name is reported once, after the change, and nothing else is
//! reported.

#![allow(clippy::unwrap_used)]

mod support;

use base::LogicalPath;
use logical::Events;
use std::sync::{Arc, Mutex};
use support::{Server, creating, reading, replacing, target, updating};
use vfs::{FileOperation, OpenRequest, Operation};

/// The reported events, as lines.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Events for Diary {
    fn created(&self, path: &LogicalPath, pending: bool) {
        self.note(format!("{}{}", if pending { "?" } else { "+" }, path.text()));
    }

    fn removed(&self, path: &LogicalPath) {
        self.note(format!("-{}", path.text()));
    }

    fn moved(&self, from: &LogicalPath, to: &LogicalPath) {
        self.note(format!("{}>{}", from.text(), to.text()));
    }
}

fn watched() -> (Server, Arc<Diary>) {
    let server = Server::new();
    let diary = Arc::new(Diary::default());
    server.logical.set_events(diary.clone());
    (server, diary)
}

fn posc(request: OpenRequest) -> OpenRequest {
    OpenRequest { posc: true, ..request }
}

#[test]
fn created_and_removed_files() {
    let (server, diary) = watched();
    let file = server.open("/data/f", creating()).file();
    assert_eq!(diary.taken(), ["+/data/f"]);
    server.write(&file, 0, b"x").done();
    server.close(&file).done();
    assert!(diary.taken().is_empty(), "it was reported at the open");
    server.open("/data/f", reading()).done();
    server.open("/data/f", updating()).done();
    assert!(diary.taken().is_empty(), "an existing file is not reported");
    server.open("/data/f", creating()).error();
    assert!(diary.taken().is_empty(), "it was not created");
    server.open("/data/f", replacing()).done();
    assert_eq!(diary.taken(), ["+/data/f"]);
    server.settle();
    server.call(Operation::Remove(target("/data/f"))).done();
    assert_eq!(diary.taken(), ["-/data/f"]);
    server.call(Operation::Remove(target("/data/f"))).error();
    assert_eq!(diary.taken(), ["-/data/f"], "the client was redirected here by mistake");
}

#[test]
fn requested_but_missing_names() {
    let (server, diary) = watched();
    for cold in [false, true] {
        server.memory.set_cold(cold);
        server.open("/data/none", reading()).error();
        assert_eq!(diary.taken(), ["-/data/none"]);
        server.open("/data/none", updating()).error();
        assert_eq!(diary.taken(), ["-/data/none"]);
    }
    server.open("/data/no/folder", creating()).error();
    server.open("/ro/none", creating()).error();
    server.open("/elsewhere", reading()).error();
    assert!(diary.taken().is_empty());
}

#[test]
fn a_file_that_persists_on_close() {
    let (server, diary) = watched();
    let file = server.open("/data/a/b/f", posc(OpenRequest { make_path: true, ..creating() })).file();
    assert_eq!(diary.taken(), ["+/data/a", "+/data/a/b", "?/data/a/b/f"]);
    // The file was renamed while it was written, so it is complete under its new name.
    server.call(Operation::rename(target("/data/a/b/f"), target("/data/a/g"))).done();
    assert_eq!(diary.taken(), ["-/data/a/b/f", "?/data/a/g"]);
    server.close(&file).done();
    assert_eq!(diary.taken(), ["+/data/a/g"]);
    let bad = server.open("/data/bad", posc(creating())).file();
    assert_eq!(diary.taken(), ["?/data/bad"]);
    server.on_file(&bad, FileOperation::Close { failed: true }).done();
    assert_eq!(diary.taken(), ["-/data/bad"]);
    let left = server.open("/data/left", posc(creating())).file();
    server.abandon(&left).done();
    assert_eq!(diary.taken(), ["?/data/left"]);
    server.after(100_000);
    assert_eq!(diary.taken(), ["-/data/left"]);
}

#[test]
fn directories() {
    let (server, diary) = watched();
    let make = |name: &str| Operation::make_directory(target(name), 0o755, true);
    server.call(make("/data/d/e/f")).done();
    assert_eq!(diary.taken(), ["+/data/d", "+/data/d/e", "+/data/d/e/f"]);
    server.call(make("/data/d/g")).done();
    assert_eq!(diary.taken(), ["+/data/d/g"]);
    server.call(Operation::rename(target("/data/d"), target("/data/new/d"))).done();
    assert_eq!(diary.taken(), ["+/data/new", "-/data/d", "+/data/new/d", "/data/d>/data/new/d"]);
    server.call(Operation::rename(target("/data/none"), target("/data/x2"))).error();
    assert!(diary.taken().is_empty());
    server.call(Operation::RemoveDirectory(target("/data/new/d/g"))).done();
    assert_eq!(diary.taken(), ["-/data/new/d/g"]);
    server.call(Operation::RemoveDirectory(target("/data/new/d"))).error();
    assert!(diary.taken().is_empty(), "the directory is not empty");
}
