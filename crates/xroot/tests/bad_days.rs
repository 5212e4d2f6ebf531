//! Failures: clients that stop reading, panics, hung disks, drains, sessions ended by other
//! clients.
//!
//! Each test also asserts that other clients are served, because a failure must affect one session
//! only.

#![allow(clippy::unwrap_used)]

mod support;

use logical::Logical;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use support::client::{CREATING, READING, UPDATING, login_request, open, read, write};
use support::*;
use vfs::{Caller, FileSystem, Operation, ReplyTo, Started};

/// A file system that panics in a stat of `/panic`.
struct Fragile(Arc<Logical>);

impl FileSystem for Fragile {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        match operation {
            Operation::Stat(target) if target.path.text() == "/panic" => panic!("requested panic"),
            Operation::Stat(target) if target.path.text() == "/panic-later" => {
                let reply = reply.defer();
                std::thread::spawn(move || {
                    let _reply = reply;
                    panic!("requested panic in a job");
                });
                Started::Pending
            }
            operation => self.0.start(caller, operation, reply),
        }
    }
}

fn stat(path: &str) -> Raw {
    Raw::new(STAT).payload(path.as_bytes())
}

fn fragile() -> Server {
    let server =
        Server::with(Wish { loops: 1, wrap: |logical| Arc::new(Fragile(logical)), ..Wish::default() });
    server.put("/f", &pattern(3_000_000));
    server
}

/// Asserts that other clients are served and that nothing remains of the connection that panicked.
fn is_served_after_panic(server: &Server, other: &mut Client, panics: u64) {
    assert_eq!(other.call(&Raw::new(PING)).status, OK);
    server.until_sessions(1);
    assert_eq!(server.totals().panics, panics);
    // No lock remains.
    let mut another = server.client();
    let handle = another.open("/f", UPDATING);
    another.ok(&Raw::new(CLOSE).handle(handle));
    drop(another);
    server.until_sessions(1);
}

#[test]
fn a_panic_in_a_request_ends_only_its_connection() {
    let server = fragile();
    let mut other = server.client();
    for round in 1..=3 {
        let mut client = server.client();
        client.open("/f", READING);
        client.send(&stat("/panic"));
        client.is_closed();
        is_served_after_panic(&server, &mut other, round);
    }
}

#[test]
fn a_panic_in_a_job_is_an_error() {
    let server = fragile();
    let mut client = server.client();
    assert_eq!(client.call(&stat("/panic-later")).error().0, 3012);
    assert_eq!(client.call(&Raw::new(PING)).status, OK);
    assert_eq!(server.totals().panics, 0);
}

#[test]
fn a_panic_in_an_in_place_read_ends_only_its_connection() {
    let server = fragile();
    let mut other = server.client();
    let requests = |handle| {
        [
            read(handle, 0, 100),
            read(handle, 0, 3_000_000),
            Raw::new(PGREAD).handle(handle).i32(16, 100_000),
            Raw::new(READV).payload(&segment(handle, 100, 0)),
        ]
    };
    for (round, number) in (1..).zip(0..4) {
        let mut client = server.client();
        let handle = client.open("/f", READING);
        let rule = server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Panic));
        client.send(&requests(handle)[number]);
        client.is_closed();
        server.rules.remove(rule);
        is_served_after_panic(&server, &mut other, round);
    }
}

#[test]
fn a_panic_in_an_in_place_write_ends_only_its_connection() {
    let server = fragile();
    let mut other = server.client();
    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    let rule = server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::Panic));
    let _ = client.stream.write_all(&write(handle, 0, &pattern(1_000_000)).bytes());
    client.is_closed();
    server.rules.remove(rule);
    is_served_after_panic(&server, &mut other, 1);
}

#[test]
fn a_panic_in_the_pool_is_an_error_and_the_connection_continues() {
    let server = fragile();
    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    server.rules.add(FaultRule::new(&[FaultyCall::Read, FaultyCall::Write], InjectedFault::WouldBlock));
    let rule = server
        .rules
        .add(FaultRule::new(&[FaultyCall::Read, FaultyCall::Write, FaultyCall::Sync], InjectedFault::Panic));
    let requests = [
        read(handle, 0, 100),
        read(handle, 0, 3_000_000),
        Raw::new(PGREAD).handle(handle).i32(16, 100_000),
        Raw::new(READV).payload(&segment(handle, 100, 0)),
        write(handle, 0, &pattern(1_000_000)),
        Raw::new(SYNC).handle(handle),
    ];
    for request in &requests {
        assert_eq!(client.call(request).error().0, 3012, "{request:?}");
    }
    server.rules.remove(rule);
    assert_eq!(client.read(handle, 0, 10), pattern(10));
    client.ok(&Raw::new(CLOSE).handle(handle));
    assert_eq!(server.totals().panics, 0);
}

#[test]
fn a_panic_in_a_bound_read_ends_all_connections_of_the_session() {
    let server = fragile();
    let mut other = server.client();
    let mut main = server.client();
    let handle = main.open("/f", READING);
    let (mut bound, path) = Client::bound(&main, server.address);
    let rule = server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Panic));
    main.send(&read(handle, 0, 3_000_000).payload(&[path, 0, 0, 0, 0, 0, 0, 0]));
    main.is_closed();
    bound.is_closed();
    server.rules.remove(rule);
    is_served_after_panic(&server, &mut other, 1);
}

#[test]
fn a_reader_that_pauses_receives_everything_later() {
    let mut wish = Wish::default();
    wish.config.sendfile = false;
    wish.socket.buffer_bytes = Some(256 * 1024);
    let server = Server::with(wish);
    let content = pattern(1_000_000);
    server.put("/f", &content);
    let length = 60_000;
    let requests: Vec<Raw> = (0..1000u16).map(|id| read(0, usize::from(id), length).stream(id)).collect();
    let paged = |id: u16| Raw::new(PGREAD).i32(16, 900_000).stream(id);
    for kind in ["small", "pages", "listing"] {
        if kind == "listing" {
            (0..20_000)
                .for_each(|number| server.put(&format!("/d/a-name-that-is-rather-long-{number}"), b""));
        }
        let mut client = server.client();
        client.open("/f", READING);
        let bytes: Vec<u8> = match kind {
            "small" => requests.iter().flat_map(Raw::bytes).collect(),
            "pages" => (0..1000).flat_map(|id| paged(id).bytes()).collect(),
            _ => (0..100)
                .flat_map(|id| Raw::new(DIRLIST).u8(19, 2).stream(id).payload(b"/d").bytes())
                .collect(),
        };
        let sent = server.totals().bytes_out;
        let mut sender = client.stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || sender.write_all(&bytes));
        let mut other = server.client();
        let begun = Instant::now();
        let mut settled = || {
            let before = server.totals();
            (0..50).for_each(|_| assert_eq!(other.call(&Raw::new(PING)).status, OK));
            // The last reply can be here before it is counted.
            until("all replies are counted", || server.totals().bytes_out - before.bytes_out >= 50 * 8);
            let after = server.totals();
            if begun.elapsed() > PATIENCE * 9 / 10 {
                let (all, lately) = (after.bytes_out - sent, after.bytes_out - before.bytes_out);
                eprintln!("{kind}: {all} bytes out, {lately} of them during 50 pings");
            }
            after.bytes_out > sent + 50 * 8 && after.bytes_out - before.bytes_out == 50 * 8
        };
        until("output has stopped", || settled() && settled());
        if kind == "small" {
            // Each answer arrives complete and in order.
            for id in 0..1000 {
                let reply = client.reply();
                assert_eq!((reply.stream, reply.status), (id, OK));
                assert!(reply.body == content[usize::from(id)..usize::from(id) + length]);
            }
            sending.join().unwrap().unwrap();
        } else {
            client.stream.shutdown(std::net::Shutdown::Both).unwrap();
            drop(sending.join());
        }
        drop(client);
        server.until_sessions(1);
        drop(other);
        server.until_sessions(0);
    }
}

#[test]
fn a_hung_disk_does_not_delay_other_clients() {
    let server = Server::with(Wish { loops: 1, pools: vec!["/slow"], ..Wish::default() });
    server.put("/slow/f", &pattern(2_000_000));
    server.put("/f", &pattern(100_000));
    let gate = Gate::new();
    let mut client = server.client();
    let slow = client.open("/slow/f", READING);
    let fast = client.open("/f", READING);
    let calls = [FaultyCall::Read, FaultyCall::Stat, FaultyCall::Open, FaultyCall::List];
    server.rules.add(FaultRule::new(&calls, InjectedFault::Hang(gate.clone())).below(&logical_path("/slow")));
    client.send(&read(slow, 0, 1_000_000).stream(100));
    client.send(&stat("/slow/f").stream(101));
    client.send(&open("/slow/g", READING).stream(102));
    client.send(&Raw::new(DIRLIST).payload(b"/slow").stream(103));
    client.send(&Raw::new(READV).payload(&segment(slow, 10, 5)).stream(104));
    gate.wait_for(1);
    // The same connection on another file system, and other connections.
    let mut other = server.client();
    for _ in 0..50 {
        assert_eq!(client.read(fast, 5, 1000), pattern(1005)[5..]);
        assert_eq!(other.call(&stat("/f")).status, OK);
    }
    gate.open();
    let mut bytes = [0; 5];
    let mut ended = 0;
    while ended < 5 {
        let reply = client.reply();
        bytes[usize::from(reply.stream) - 100] += reply.body.len();
        ended += usize::from(reply.status != OKSOFAR);
    }
    assert_eq!((bytes[0], bytes[4]), (1_000_000, 26));
}

#[test]
fn a_client_that_disconnects_during_a_disk_read_harms_no_other() {
    let server = Server::new();
    server.put("/f", &pattern(3_000_000));
    let gate = Gate::new();
    server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Hang(gate.clone())));
    let mut client = server.client();
    let handle = client.open("/f", READING);
    client.send(&read(handle, 0, 3_000_000));
    client.send(&Raw::new(READV).payload(&segment(handle, 100_000, 5).repeat(20)));
    client.send(&Raw::new(PGREAD).handle(handle).i32(16, 3_000_000));
    gate.wait_for(3);
    drop(client);
    let mut other = server.client();
    until("the connection is gone", || server.totals().disconnections == 1);
    assert_eq!(other.call(&Raw::new(PING)).status, OK);
    // The file stays locked while the kernel reads into its buffers.
    assert_eq!(other.call(&open("/f", UPDATING)).error().0, 3003);
    gate.open();
    server.until_sessions(1);
    other.open("/f", UPDATING);
}

/// Starts a drain in the background. The thread ends with the drain.
fn drain(server: &Server, limit: Duration) -> std::thread::JoinHandle<Vec<base::Identity>> {
    let (door, loops) = (server.door.clone(), server.loops.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(door.drain(loops.handles(), limit))
    })
}

#[test]
fn a_drain_completes_operations_in_flight() {
    let server = Server::new();
    server.put("/f", &pattern(100_000));
    let gate = Gate::new();
    let rule = FaultRule::new(&[FaultyCall::Read], InjectedFault::Hang(gate.clone()));
    server.rules.add(rule);
    let mut idle = server.client();
    let mut greeting = Client::greeted(server.address);
    let mut reading = server.client();
    let handle = reading.open("/f", READING);
    let mut writing = server.client();
    let target = writing.open("/g", CREATING);
    writing.send(&write(target, 0, &pattern(50_000)).dlen(100_000));
    reading.send(&read(handle, 0, 100_000).stream(7));
    gate.wait_for(1);
    // Half of the payload has arrived: the file was opened, or the bytes were counted.
    until("the upload has begun", || server.totals().writes == 1);
    let (mut bound, _) = Client::bound(&reading, server.address);
    let drained = drain(&server, PATIENCE);
    idle.is_closed();
    greeting.is_closed();
    // New clients are refused.
    let mut late = Client::connect(server.address);
    let _ = late.stream.write_all(&[&client::HANDSHAKE[..], &login_request().bytes()].concat());
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut late.stream, &mut rest);
    assert!(rest.len() <= 16, "{rest:?}");
    // Requests that arrive now are not taken; earlier ones are answered.
    reading.send(&Raw::new(PING).stream(8));
    gate.open();
    assert_eq!(reading.whole(), pattern(100_000));
    reading.is_closed();
    bound.is_closed();
    writing.send_bytes(&pattern(50_000));
    assert_eq!(writing.reply().status, OK);
    writing.is_closed();
    assert_eq!(drained.join().unwrap().len(), 0);
    assert_eq!(server.content("/g").len(), 100_000);
    server.until_sessions(0);
}

#[test]
fn a_drain_times_out_and_returns_the_remaining_clients() {
    let server = Server::new();
    server.put("/f", &pattern(100_000));
    let gate = Gate::new();
    server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Hang(gate.clone())));
    let mut client = server.client();
    let handle = client.open("/f", READING);
    client.send(&read(handle, 0, 100_000));
    gate.wait_for(1);
    let left = drain(&server, Duration::from_millis(50)).join().unwrap();
    assert_eq!(left.iter().map(|who| (who.user(), who.pid)).collect::<Vec<_>>(), [("tester", 4711)]);
    client.is_closed();
    gate.open();
    server.until_sessions(0);
}

#[test]
fn endsess_ends_the_old_connection_before_it_answers() {
    let server = Server::with(Wish { loops: 3, ..Wish::default() });
    for _ in 0..10 {
        let mut old = server.client();
        let handle = old.open("/f", CREATING);
        old.ok(&write(handle, 0, b"half"));
        old.send(&write(handle, 4, b"way").dlen(1000));
        let mut new = server.client();
        assert_eq!(new.call(&open("/f", UPDATING)).error().0, 3003);
        assert_eq!(new.ok(&Raw::new(ENDSESS).at(4, &old.session)), b"");
        // The lock is released before the answer.
        let handle = new.open("/f", UPDATING);
        assert_eq!(new.read(handle, 0, 4), b"half");
        old.is_closed();
        // A repeated request, and an unknown session.
        assert_eq!(new.ok(&Raw::new(ENDSESS).at(4, &old.session)), b"");
        assert_eq!(new.ok(&Raw::new(ENDSESS).at(4, b"never a session.")), b"");
        new.send(&Raw::new(ENDSESS).at(4, &new.session.clone()));
        new.is_closed();
        server.until_sessions(0);
    }
}

#[test]
fn endsess_of_another_clients_session_is_refused() {
    let server = Server::new();
    let mut mine = server.client();
    for other in [login_request().i32(4, 4712), login_request().at(8, b"someone")] {
        let mut stranger = Client::login_as(server.address, &other);
        let refusal = stranger.call(&Raw::new(ENDSESS).at(4, &mine.session)).error();
        assert_eq!(refusal, (3010, "not session owner".to_owned()));
        assert_eq!(mine.call(&Raw::new(PING)).status, OK);
    }
    // No session has the id of zeros.
    assert_eq!(mine.ok(&Raw::new(ENDSESS)), b"");
    assert_eq!(mine.call(&Raw::new(PING)).status, OK);
    // The own id ends the session, whose client expects no reply.
    let own = Raw::new(ENDSESS).at(4, &mine.session);
    mine.send(&own);
    mine.is_closed();
}

#[test]
fn endsess_waits_for_operations_on_a_hung_disk() {
    let server = Server::new();
    server.put("/f", &pattern(100_000));
    let gate = Gate::new();
    let rule = server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Hang(gate.clone())));
    let mut old = server.client();
    let handle = old.open("/f", READING);
    old.send(&read(handle, 0, 100_000));
    gate.wait_for(1);
    let mut new = server.client();
    new.send(&Raw::new(ENDSESS).stream(7).at(4, &old.session));
    old.is_closed();
    assert_eq!(new.call(&Raw::new(PING).stream(8)).stream, 8);
    server.rules.remove(rule);
    gate.open();
    assert_eq!(new.reply().stream, 7);
    new.open("/f", UPDATING);
}

#[test]
fn statistics_can_be_queried() {
    let text = |front: &xroot::FrontEndFigures, letters: &str| {
        let found = front.protocol();
        let (logins, links) = (found.logins.logins, front.links());
        format!("{letters}: {} errors, {logins} logins, {} connections", found.errors, links.now)
    };
    let statistics = Some(xroot::StatisticsText(Arc::new(text)));
    let config = xroot::Config { statistics, ..xroot::Config::default() };
    let server = Server::with(Wish { config, ..Wish::default() });
    let mut client = server.client();
    assert_eq!(client.call(&Raw::new(STAT).payload(b"/missing")).status, ERROR);
    assert_eq!(client.call(&Raw::new(STAT).payload(b"/missing")).status, ERROR);
    let text = client.ok(&Raw::new(QUERY).u16(4, 1).payload(b"al"));
    assert_eq!(String::from_utf8(text).unwrap(), "al: 2 errors, 1 logins, 1 connections\0");
}
