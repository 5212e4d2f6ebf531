//! Memory stays bounded for any requests whose replies are not read.
//!
//! It is a program of its own because it measures the whole process.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use support::client::{CREATING, READING, read, write};
use support::*;

/// Returns the resident memory of the process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

const CLIENTS: usize = 40;

/// Memory that one client may make the server hold: its output, one further reply, and data being
/// read.
const EACH: usize = xroot::OUTPUT_HIGH_BYTES + 1024 * 1024;

/// Tolerance for memory that varies in any process.
const SLACK: usize = 32 * 1024 * 1024;

/// A single test, because it measures the whole process.
#[test]
fn memory_is_bounded() {
    clients_that_do_not_read_hold_no_more_than_their_share();
    large_writes_hold_only_pieces();
    a_client_that_reads_nothing_holds_its_share_in_any_mix(false);
    a_client_that_reads_nothing_holds_its_share_in_any_mix(true);
    writes_to_a_hung_disk_hold_no_more_than_their_share();
}

/// Number of clients in a mix.
const MIXED: usize = 4;

/// Memory that all of them may hold.
const MIXED_BYTES: usize = MIXED * xroot::SESSION_BYTES_MAX;

/// Tolerance for memory that varies in any process, and for pooled buffers of the loops.
const MIXED_SLACK: usize = 24 * 1024 * 1024;

/// Returns requests with large answers, more of each kind than a client can have in flight.
fn mix(seed: usize) -> Vec<u8> {
    let mut dice = Dice::new(seed as u64);
    let elements: Vec<u8> = (0..4).flat_map(|_| segment(0, 1_900_000, 0)).collect();
    let attributes: Vec<u8> = [&b"/f\0"[..], &b"\0\0a\0".repeat(16)].concat();
    (0..1500)
        .flat_map(|id| {
            let request = match dice.below(6) {
                0 | 1 => Raw::new(DIRLIST).u8(15, 2).payload(b"/names"),
                2 => Raw::new(READV).payload(&elements),
                3 => Raw::new(PGREAD).i32(16, 4_000_000),
                4 => Raw::new(FATTR).u8(8, 1).u8(9, 16).payload(&attributes),
                _ => Raw::new(STATX).payload(&b"/f\n".repeat(2000)),
            };
            request.stream(id).bytes()
        })
        .collect()
}

fn a_client_that_reads_nothing_holds_its_share_in_any_mix(slow: bool) {
    let mut wish = Wish::default();
    wish.config.sendfile = false;
    wish.socket.buffer_bytes = Some(64 * 1024);
    let server = Server::with(wish);
    server.put("/f", &pattern(4_000_000));
    for number in 0..1000 {
        server.put(&format!("/names/{number:0>250}"), b"");
    }
    let gate = Gate::new();
    let before = resident();
    let mut clients: Vec<Client> = (0..MIXED).map(|_| server.client()).collect();
    for client in &mut clients {
        client.open("/f", READING);
    }
    if slow {
        server.rules.add(FaultRule::new(
            &[FaultyCall::Read, FaultyCall::ListNext],
            InjectedFault::Hang(gate.clone()),
        ));
    }
    for (seed, client) in clients.iter_mut().enumerate() {
        client.stream.set_nonblocking(true).unwrap();
        // As much as the server accepts.
        let _ = client.stream.write(&mix(seed));
    }
    nothing_moves(&server);
    let (claimed, grown) = (server.door.memory_claimed(), resident().saturating_sub(before));
    assert!(claimed <= MIXED_BYTES, "{claimed} bytes charged, slow: {slow}");
    assert!(grown < MIXED_BYTES + MIXED_SLACK, "{grown} bytes for {MIXED} clients, slow: {slow}");
    gate.open();
    nothing_moves(&server);
    let grown = resident().saturating_sub(before);
    assert!(grown < MIXED_BYTES + MIXED_SLACK, "{grown} bytes for {MIXED} clients, slow: {slow}");
    drop(clients);
    server.until_sessions(0);
    until("all memory has returned", || server.door.memory_claimed() == 0);
}

/// Waits until the server makes no more progress.
fn nothing_moves(server: &Server) {
    let mut other = server.client();
    let mut rounds = 0;
    let all = || (server.totals().late_answers, server.door.memory_claimed());
    until("the server makes no more progress", || {
        let before = all();
        (0..300).for_each(|_| assert_eq!(other.call(&Raw::new(PING)).status, OK));
        rounds = if all() == before { rounds + 1 } else { 0 };
        rounds > 10
    });
}

fn writes_to_a_hung_disk_hold_no_more_than_their_share() {
    let server = Server::new();
    let mut client = server.client();
    let handle = client.open("/w", CREATING);
    let gate = Gate::new();
    server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::Hang(gate.clone())));
    let piece = pattern(1_000_000);
    let writer = std::thread::spawn(move || {
        for number in 0..40 {
            client.send(&write(handle, number * piece.len(), &piece).stream(number as u16));
        }
        (0..40).for_each(|_| assert_eq!(client.reply().status, OK));
    });
    gate.wait_for(1);
    nothing_moves(&server);
    let claimed = server.door.memory_claimed();
    assert!(claimed <= xroot::SESSION_BYTES_MAX, "{claimed} bytes charged");
    gate.open();
    writer.join().unwrap();
}

fn clients_that_do_not_read_hold_no_more_than_their_share() {
    let mut wish = Wish::default();
    wish.config.sendfile = false;
    wish.socket.buffer_bytes = Some(64 * 1024);
    let server = Server::with(wish);
    server.put("/f", &pattern(4_000_000));
    let requests: Vec<fn(u16) -> Raw> = vec![
        |id| read(0, 0, 60_000).stream(id),
        |id| read(0, 0, 4_000_000).stream(id),
        |id| Raw::new(PGREAD).i32(16, 4_000_000).stream(id),
        |id| Raw::new(READV).stream(id).payload(&segment(0, 4000, 0).repeat(500)),
        |id| Raw::new(QUERY).stream(id).u16(4, 7).payload("bind_max ".repeat(300).as_bytes()),
    ];
    for make in requests {
        let before = resident();
        let all: Vec<u8> = (0..1000).flat_map(|id| make(id).bytes()).collect();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for client in &mut clients {
            client.open("/f", READING);
            client.stream.set_nonblocking(true).unwrap();
            // As much as the server accepts.
            let _ = client.stream.write(&all);
        }
        let mut other = server.client();
        let mut rounds = 0;
        until("output has stopped", || {
            let sent = server.totals().bytes_out;
            (0..20).for_each(|_| assert_eq!(other.call(&Raw::new(PING)).status, OK));
            // A reply is counted after it was sent, so the last one of the previous round may be
            // missing.
            rounds = if server.totals().bytes_out - sent <= 21 * 8 { rounds + 1 } else { 0 };
            rounds > 5
        });
        let grown = resident().saturating_sub(before);
        assert!(grown < CLIENTS * EACH + SLACK, "{grown} bytes for {CLIENTS} clients");
        drop(clients);
        server.until_sessions(1);
    }
}

fn large_writes_hold_only_pieces() {
    let server = Server::new();
    let before = resident();
    let piece = vec![7; 1_000_000];
    let mut clients: Vec<(Client, u32)> = (0..10)
        .map(|number| {
            let mut client = server.client();
            let handle = client.open(&format!("/f{number}"), CREATING);
            (client, handle)
        })
        .collect();
    for (client, handle) in &mut clients {
        client.send(&write(*handle, 0, &piece).dlen(20_000_000));
    }
    for _ in 1..20 {
        for (client, _) in &mut clients {
            client.send_bytes(&piece);
        }
    }
    let grown = resident().saturating_sub(before);
    for (client, _) in &mut clients {
        assert_eq!(client.reply().status, OK);
    }
    assert!(grown < 10 * (xroot::PIECES_IN_FLIGHT_MAX + 1) * net::BLOCK_BYTES + SLACK, "{grown} bytes");
}
