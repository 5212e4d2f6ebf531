//! Readers that are sent elsewhere in the middle of a file.

#![allow(clippy::unwrap_used)]

mod support;

use logical::Logical;
use std::sync::Arc;
use support::client::{READING, UPDATING, login_request, read};
use support::*;
use vfs::{Caller, FileSystem, OpenFile, Operation, Redirect, ReplyTo, Started};

/// A file system whose file `/gone` is to be read elsewhere.
struct Leaving(Arc<Logical>);

impl FileSystem for Leaving {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        self.0.start(caller, operation, reply)
    }

    fn elsewhere(&self, _: &Caller, file: &dyn OpenFile) -> Option<Redirect> {
        let gone = file.path().text() == "/gone" && !file.is_writable();
        gone.then(|| Redirect { host: "over.there".into(), port: 1094, cgi: String::new() })
    }
}

const REDIRECT: u16 = 4004;
/// Ability: a redirect may answer a read.
const READRDOK: u8 = 0x04;

fn server() -> Server {
    let server = Server::with(Wish { wrap: |logical| Arc::new(Leaving(logical)), ..Wish::default() });
    server.put("/gone", &pattern(100_000));
    server.put("/here", &pattern(100_000));
    server
}

fn able(server: &Server) -> Client {
    Client::login_as(server.address, &login_request().u8(17, READRDOK))
}

#[test]
fn every_read_of_a_client_that_can_move_is_answered_with_the_place() {
    let server = server();
    let mut client = able(&server);
    let handle = client.open("/gone", READING);
    let requests = [
        read(handle, 0, 100),
        read(handle, 0, 100_000),
        Raw::new(PGREAD).handle(handle).i32(16, 5000),
        Raw::new(READV).payload(&[segment(handle, 100, 0), segment(handle, 10, 500)].concat()),
    ];
    for request in &requests {
        let reply = client.call(request);
        assert_eq!(reply.status, REDIRECT, "{request:?}");
        assert_eq!(reply.body, [&1094_i32.to_be_bytes()[..], b"over.there"].concat());
    }
    let here = client.open("/here", READING);
    assert_eq!(client.read(here, 10, 50), pattern(100_000)[10..60]);
    let both = Raw::new(READV).payload(&[segment(handle, 100, 0), segment(here, 10, 500)].concat());
    assert_eq!(client.call(&both).status, OK, "of several files at once it reads here");
    client.ok(&Raw::new(CLOSE).handle(handle));
    client.ok(&Raw::new(CLOSE).handle(here));
}

#[test]
fn over_a_bound_connection_the_place_comes_where_the_data_would() {
    let server = server();
    let mut client = able(&server);
    let (mut bound, path) = Client::bound(&client, server.address);
    let handle = client.open("/gone", READING);
    client.send(&read(handle, 0, 100).payload(&[path, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(bound.reply().status, REDIRECT);
}

#[test]
fn others_read_on() {
    let server = server();
    let mut old = server.client();
    let handle = old.open("/gone", READING);
    assert_eq!(old.read(handle, 0, 100), pattern(100));
    old.ok(&Raw::new(CLOSE).handle(handle));
    let mut writer = able(&server);
    let handle = writer.open("/gone", UPDATING);
    assert_eq!(writer.read(handle, 0, 100), pattern(100));
}
