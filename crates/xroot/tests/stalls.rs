//! Clients that hold memory without progress.
//!
//! The memory must be freed when others need it, or when the connection is about to close, because
//! a client could otherwise hold it forever.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;
use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use support::client::{CREATING, READING, read};
use support::*;

/// Length in bytes of a write of which all but the last byte arrive.
const WRITTEN: usize = 200_000;

/// Number of bytes that a vector read of [`large_read`] returns.
const LARGE: usize = 2_000_000;

/// Returns a server with little memory and no patience, where all file data passes through memory.
fn server() -> Server {
    let mut wish = Wish::default();
    wish.config.memory_bytes = xroot::MEMORY_BYTES_MIN;
    wish.config.stalled_seconds = 0;
    wish.config.sendfile = false;
    wish.socket.buffer_bytes = Some(64 * 1024);
    let server = Server::with(wish);
    server.put("/f", &pattern(4_000_000));
    server
}

fn large_read() -> Raw {
    Raw::new(READV).payload(&segment(0, LARGE as i32, 0))
}

/// Returns a write whose data arrives on a path.
fn write_by(path: u8, handle: u32, offset: usize, length: usize) -> Raw {
    Raw::new(WRITE).handle(handle).i64(8, offset as i64).u8(16, path).dlen(length as i32)
}

/// A session that holds memory for the data of 15 writes and never sends the last byte of any.
struct Holder {
    main: Client,
    paths: Vec<(Client, u8)>,
}

impl Holder {
    fn new(server: &Server, number: usize) -> Self {
        let mut main = server.client();
        main.open("/f", READING);
        let handle = main.open(&format!("/written{number}"), CREATING);
        let mut paths: Vec<_> = (0..15).map(|_| Client::bound(&main, server.address)).collect();
        for (index, (_, path)) in paths.iter().enumerate() {
            main.send(&write_by(*path, handle, index * WRITTEN, WRITTEN));
        }
        for (client, _) in &mut paths {
            client.stream.set_nonblocking(true).unwrap();
            // As much as the server accepts.
            let _ = std::io::Write::write(&mut client.stream, &[7; WRITTEN - 1]);
        }
        Self { main, paths }
    }
}

#[test]
fn clients_waiting_for_memory_are_closed_when_they_send_nothing() {
    let server = server();
    let mut holders = Vec::new();
    until("the memory is used", || {
        holders.push(Holder::new(&server, holders.len()));
        server.door.memory_claimed() + 2 * net::BLOCK_BYTES > xroot::MEMORY_BYTES_MIN
    });
    for holder in &mut holders {
        holder.main.send(&large_read());
    }
    let mut other = server.client();
    other.open("/f", READING);
    let reply = other.call(&large_read());
    assert_eq!((reply.status, reply.body.len()), (OK, LARGE + 16));
    assert!(holders.iter().all(|holder| holder.paths.len() == 15));
    drop(holders);
    server.until_sessions(1);
}

#[test]
fn a_violation_after_unread_output_frees_its_memory() {
    let server = server();
    let mut client = server.client();
    let handle = client.open("/f", READING);
    // Large enough for part of it to wait, and small enough for the next request to be taken.
    client.send(&read(handle, 0, 4_000_000));
    until("the output is made", || server.door.memory_claimed() > 0);
    let requests = server.totals().requests;
    client.send(&Raw::new(STAT).dlen(-1));
    until("the violation is seen", || server.totals().requests > requests);
    server.until_sessions(0);
    assert_eq!(server.door.memory_claimed(), 0);
}

#[test]
fn a_refused_path_with_unread_output_frees_its_memory() {
    let mut wish = Wish::default();
    wish.config.hail = Duration::from_millis(50);
    wish.config.stalled_seconds = 0;
    wish.config.sendfile = false;
    wish.socket.buffer_bytes = Some(64 * 1024);
    let server = Server::with(wish);
    server.put("/f", &pattern(4_000_000));
    let mut main = server.client();
    let handle = main.open("/f", READING);
    let (mut bound, path) = Client::bound(&main, server.address);
    main.send(&read(handle, 0, 4_000_000).payload(&[path, 0, 0, 0, 0, 0, 0, 0]));
    until("the output is made", || server.door.memory_claimed() > 0);
    bound.send_bytes(b"data without announcement");
    until("the memory has returned", || server.door.memory_claimed() == 0);
    assert_eq!(main.call(&Raw::new(PING)).status, OK);
    main.ok(&Raw::new(CLOSE).handle(handle));
}

/// Waits until the server has checked its time limits, when connections with unannounced data are
/// overdue.
fn a_tick_passes(server: &Server) {
    let other = server.client();
    // One on each loop.
    for _ in 0..2 {
        let (mut bound, _) = Client::bound(&other, server.address);
        bound.send_bytes(b"unannounced");
        bound.reply();
    }
}

#[test]
fn early_data_of_a_request_that_is_not_taken_yet_is_not_refused() {
    let mut wish = Wish { loops: 1, pools: vec!["/slow"], ..Wish::default() };
    wish.config.hail = Duration::from_millis(50);
    let server = Server::with(wish);
    let gate = Gate::new();
    let slow =
        FaultRule::new(&[FaultyCall::Stat], InjectedFault::Hang(gate.clone())).below(&logical_path("/slow"));
    server.rules.add(slow);
    let mut main = server.client();
    let handle = main.open("/f", CREATING);
    let (mut bound, path) = Client::bound(&main, server.address);
    let stat = Raw::new(STAT).payload(b"/slow/f");
    (0..session::CALLS_MAX).for_each(|_| main.send(&stat));
    main.send(&write_by(path, handle, 0, 5).stream(7));
    bound.send_bytes(b"early");
    until("all requests before it are taken", || server.totals().requests >= session::CALLS_MAX as u64);
    (0..2).for_each(|_| a_tick_passes(&server));
    gate.open();
    let reply = bound.reply();
    assert_eq!((reply.stream, reply.status), (7, OK), "{reply:?}");
    assert_eq!(server.content("/f"), b"early");
}

#[test]
fn unannounced_data_does_not_block_a_large_request() {
    let server = Server::new();
    server.put("/f", b"content");
    let mut main = server.client();
    let mut paths: Vec<_> = (0..15).map(|_| Client::bound(&main, server.address)).collect();
    let before = server.totals().bytes_in;
    for (client, _) in &mut paths {
        client.send_bytes(&[7; net::SMALL_BYTES]);
    }
    until("the data has arrived", || server.totals().bytes_in - before >= 15 * net::SMALL_BYTES as u64);
    // The largest request that exists.
    let argument = [&b"/f\0"[..], &b"\0\0a\0".repeat(16), &vec![0; 2 * 1024 * 1024 - 67]].concat();
    let reply = main.call(&Raw::new(FATTR).stream(5).u8(8, 1).u8(9, 16).payload(&argument));
    assert_eq!(reply.stream, 5);
}
