//! Whether a path is here, and all that is.

#![allow(clippy::unwrap_used)] // a test fails where it is

mod support;

use logical::Presence;
use std::sync::mpsc;
use support::{Server, creating, path};
use vfs::OpenRequest;

fn look(server: &Server, name: &str) -> Presence {
    let (tell, told) = mpsc::channel();
    let now = server.logical.look(&path(name), move |presence| tell.send(presence).unwrap());
    now.unwrap_or_else(|| told.recv().unwrap())
}

#[test]
fn a_file_that_is_not_whole_is_pending() {
    let server = Server::new();
    assert_eq!(look(&server, "/data/f"), Presence::NotHere);
    let file = server.open("/data/f", OpenRequest { posc: true, ..creating() }).file();
    assert_eq!(look(&server, "/data/f"), Presence::Here { pending: true });
    server.close(&file).done();
    assert_eq!(look(&server, "/data/f"), Presence::Here { pending: false });
}

#[test]
fn what_is_not_exported_is_not_here() {
    let server = Server::new();
    server.memory.put("/elsewhere/x", b"");
    assert_eq!(look(&server, "/elsewhere/x"), Presence::NotHere);
    assert_eq!(look(&server, "/data"), Presence::Here { pending: false });
    assert_eq!(look(&server, "/data/x/below-a-file"), Presence::NotHere);
}

#[test]
fn a_walk_names_every_whole_file_and_stops_when_told() {
    let server = Server::new();
    server.memory.put("/data/d/e/y", b"");
    server.memory.put("/elsewhere/z", b"");
    let _pending = server.open("/data/p", OpenRequest { posc: true, ..creating() }).file();
    let mut names = Vec::new();
    server.logical.walk(&mut |path| {
        names.push(path.to_string());
        true
    });
    names.sort();
    assert_eq!(names, ["/data/d/e/y", "/data/x", "/nolock/x", "/ro/x"]);
    let mut count = 0;
    server.logical.walk(&mut |_| {
        count += 1;
        false
    });
    assert_eq!(count, 1);
}
