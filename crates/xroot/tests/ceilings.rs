//! Requests at the memory limits: each request that is possible alone is eventually answered,
//! whatever else is in flight.
//!
//! Otherwise requests that wait for each other's memory could block a server.

#![allow(clippy::unwrap_used)]

mod support;

use base::DescriptorBudget;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use support::client::{HANDSHAKE, READING, read};
use support::*;

/// Length of the longest argument in bytes.
const LONGEST: usize = 2 * 1024 * 1024;

/// Returns a server where all file data passes through memory.
fn server(memory_bytes: usize) -> Server {
    let mut wish = Wish::default();
    wish.config.sendfile = false;
    wish.config.memory_bytes = memory_bytes;
    let server = Server::with(wish);
    server.put("/f", &pattern(4_000_000));
    for number in 0..300 {
        server.put(&format!("/names/{number:0>250}"), b"");
    }
    server
}

/// Returns a list whose reply is larger than the free memory of a session.
fn many_paths() -> Raw {
    Raw::new(STATX).payload(&[b"///////f\n".repeat(150_000), vec![b'\n'; LONGEST - 9 * 150_000]].concat())
}

/// Returns a request that needs much memory. None changes anything.
fn large_request(dice: &mut Dice) -> Raw {
    let longest = |code: u16, byte: u8| Raw::new(code).payload(&vec![byte; LONGEST]);
    let attributes: Vec<u8> = [&b"/f\0"[..], &b"\0\0a\0".repeat(16), &vec![0; LONGEST - 67]].concat();
    match dice.below(12) {
        0 => Raw::new(STATX).payload(&b"/f\n".repeat(20_000)),
        1 => Raw::new(STATX).payload(&[&b"/missing\n"[..], &vec![b'a'; LONGEST - 9]].concat()),
        2 => longest(STAT, b'a'),
        3 => longest(QUERY, b'a'),
        4 => longest(DIRLIST, b'/'),
        5 => Raw::new(DIRLIST).u8(15, 2).payload(b"/names"),
        6 => Raw::new(FATTR).u8(8, 1).u8(9, 16).payload(&attributes),
        7 => Raw::new(READV).payload(&(0..4).flat_map(|_| segment(0, 1_900_000, 0)).collect::<Vec<u8>>()),
        8 => Raw::new(PGREAD).i32(16, 4_000_000),
        9 => read(0, 0, 4_000_000),
        10 => longest(OPEN, b'/'),
        _ => Raw::new(PING),
    }
}

/// Sends all requests without waiting and reads until each is answered.
fn all_are_answered(client: &mut Client, requests: &[Raw]) {
    let mut sender = client.stream.try_clone().unwrap();
    let mut waiting: BTreeSet<u16> = (0..u16::try_from(requests.len()).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (id, request) in (0..).zip(requests) {
                sender.write_all(&request.clone().stream(id).bytes()).unwrap();
            }
        });
        while !waiting.is_empty() {
            let reply = client.reply();
            // A kXR_status of a partial pgread marks itself in its body.
            let is_partial = reply.status == OKSOFAR || (reply.status == STATUS && reply.body[7] == 1);
            if !is_partial {
                assert!(waiting.remove(&reply.stream), "{} is answered twice", reply.stream);
            }
        }
    });
}

#[test]
fn consecutive_large_lists_are_answered() {
    let server = server(xroot::MEMORY_BYTES);
    all_are_answered(&mut server.client(), &[many_paths(), many_paths(), many_paths()]);
    until("all memory has returned", || server.door.memory_claimed() == 0);
}

#[test]
fn any_sequence_of_large_requests_is_answered() {
    for seed in 0..6 {
        let mut dice = Dice::new(seed);
        let server = server(xroot::MEMORY_BYTES);
        let mut client = server.client();
        client.open("/f", READING);
        let requests: Vec<Raw> = (0..60).map(|_| large_request(&mut dice)).collect();
        all_are_answered(&mut client, &requests);
        until("all memory has returned", || server.door.memory_claimed() == 0);
    }
}

#[test]
fn many_sessions_that_send_large_requests_share_little_memory() {
    let server = server(xroot::MEMORY_BYTES_MIN);
    std::thread::scope(|scope| {
        for seed in 0..24 {
            let server = &server;
            scope.spawn(move || {
                let mut dice = Dice::new(1000 + seed);
                let mut client = server.client();
                client.open("/f", READING);
                let requests: Vec<Raw> = (0..12).map(|_| large_request(&mut dice)).collect();
                all_are_answered(&mut client, &requests);
            });
        }
    });
    until("all memory has returned", || server.door.memory_claimed() == 0);
}

#[test]
fn concurrent_large_lists_of_many_clients_are_answered() {
    let server = server(xroot::MEMORY_BYTES_MIN);
    let line = format!("{}f\n", "/".repeat(4000));
    let paths = LONGEST / line.len();
    let list = Raw::new(STATX).payload(&line.as_bytes().repeat(paths)).bytes();
    let most = xroot::MEMORY_BYTES_MIN / 2;
    // No argument is complete when all memory for arguments is in use: each needs memory that
    // others hold.
    let mut clients: Vec<(Client, usize)> = (0..60).map(|_| (server.client(), 0)).collect();
    until("the memory for arguments is used", || {
        for (client, sent) in &mut clients {
            client.stream.set_nonblocking(true).unwrap();
            *sent += client.stream.write(&list[*sent..LONGEST / 2]).unwrap_or(0);
        }
        server.door.memory_claimed() + LONGEST / 4 > most
    });
    std::thread::scope(|scope| {
        for (mut client, sent) in clients {
            let rest = &list[sent..];
            scope.spawn(move || {
                client.stream.set_nonblocking(false).unwrap();
                client.send_bytes(rest);
                let reply = client.reply();
                assert_eq!((reply.status, reply.body.len()), (OK, paths));
            });
        }
    });
    until("all memory has returned", || server.door.memory_claimed() == 0);
}

/// More of an argument than the free memory holds. The rest fits the socket, otherwise the end of
/// the connection would follow it.
const BEGUN: usize = 140_000;

#[test]
fn clients_that_disconnect_while_waiting_for_memory_leave_the_queue() {
    let mut wish = Wish::default();
    wish.config.memory_bytes = xroot::MEMORY_BYTES_MIN;
    wish.config.stalled_seconds = 3600;
    let server = Server::with(wish);
    let most = xroot::MEMORY_BYTES_MIN / 2;
    let request = Raw::new(STAT).payload(&vec![b'a'; LONGEST]).bytes();
    let mut holders: Vec<Client> = (0..most / LONGEST + 2).map(|_| server.client()).collect();
    let mut sent = vec![0; holders.len()];
    until("arguments use the memory, and one waits", || {
        for (holder, sent) in holders.iter_mut().zip(&mut sent) {
            holder.stream.set_nonblocking(true).unwrap();
            *sent += holder.stream.write(&request[*sent..LONGEST]).unwrap_or(0);
        }
        server.door.memory_claimed() > most
    });
    let mut late: Vec<Client> = (0..8).map(|_| server.client()).collect();
    late.iter_mut().for_each(|client| client.send_bytes(&request[..BEGUN]));
    drop(late);
    server.until_sessions(holders.len());
    drop(holders);
    server.until_sessions(0);
    until("all memory has returned", || server.door.memory_claimed() == 0);
}

#[test]
fn connections_that_find_no_descriptor_are_counted() {
    let mut wish = Wish::default();
    wish.config.settings.descriptors = Arc::new(DescriptorBudget::new(2));
    let server = Server::with(wish);
    let _clients = [Client::login(server.address), Client::login(server.address)];
    let mut refused = Client::connect(server.address);
    refused.send_bytes(&HANDSHAKE);
    refused.is_closed();
    let figures = server.door.figures();
    assert_eq!((figures.totals.exhausted, figures.descriptors), (1, (2, 2)));
}
