//! Redirects of reads: clients that continue an open file at another server.

#![allow(clippy::unwrap_used)]

mod support;

use logical::Logical;
use std::sync::Arc;
use support::client::{READING, UPDATING, login_request, read};
use support::*;
use vfs::{Caller, FileSystem, OpenFile, Operation, RedirectAnswer, ReplyTo, Started};

/// A file system that redirects reads of `/gone`.
struct Leaving(Arc<Logical>);

impl FileSystem for Leaving {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        self.0.start(caller, operation, reply)
    }

    fn read_redirect(&self, _: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        let gone = file.path().text() == "/gone" && !file.is_writable();
        gone.then(|| RedirectAnswer { host: "over.there".into(), port: 1094, cgi: String::new() })
    }
}

const REDIRECT: u16 = 4004;
/// Ability bit: the client accepts a redirect as the answer to a read.
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
fn each_read_of_a_client_with_the_ability_is_redirected() {
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
    assert_eq!(client.call(&both).status, OK, "a vector over several files is read here");
    client.ok(&Raw::new(CLOSE).handle(handle));
    client.ok(&Raw::new(CLOSE).handle(here));
}

#[test]
fn a_redirect_uses_the_connection_of_the_data() {
    let server = server();
    let mut client = able(&server);
    let (mut bound, path) = Client::bound(&client, server.address);
    let handle = client.open("/gone", READING);
    client.send(&read(handle, 0, 100).payload(&[path, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(bound.reply().status, REDIRECT);
}

#[test]
fn clients_without_the_ability_continue_to_read() {
    let server = server();
    let mut old = server.client();
    let handle = old.open("/gone", READING);
    assert_eq!(old.read(handle, 0, 100), pattern(100));
    old.ok(&Raw::new(CLOSE).handle(handle));
    let mut writer = able(&server);
    let handle = writer.open("/gone", UPDATING);
    assert_eq!(writer.read(handle, 0, 100), pattern(100));
}
