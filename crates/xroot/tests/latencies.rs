//! Times from requests to their replies.

#![allow(clippy::unwrap_used)]

mod support;

use base::{LATENCY_BOUNDS_MICROS, Latencies};
use session::TIMED_OPERATIONS;
use std::time::{Duration, Instant};
use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use support::client::{CREATING, READING, open, read, write};
use support::*;

/// Time for which a test holds operations.
const HELD: Duration = Duration::from_millis(300);

fn times(server: &Server, operation: &str) -> Latencies {
    let place = TIMED_OPERATIONS.iter().position(|name| *name == operation).unwrap();
    server.totals().latencies[place]
}

/// Returns the numbers of all operations that have any.
fn counts(server: &Server) -> Vec<(&'static str, u64)> {
    let counted = TIMED_OPERATIONS.iter().zip(server.totals().latencies.map(|times| times.count()));
    counted.map(|(name, count)| (*name, count)).filter(|(_, count)| *count > 0).collect()
}

/// Returns the number of times in the buckets from that of this time on.
fn longer_than(times: &Latencies, time: Duration) -> u64 {
    let first = LATENCY_BOUNDS_MICROS.partition_point(|bound| u128::from(*bound) <= time.as_micros());
    times.buckets[first..].iter().sum()
}

/// Waits until each request has its time, which is counted after its reply has left.
fn until_counted(server: &Server) {
    until("each request is counted", || {
        let totals = server.totals();
        totals.latencies.iter().map(Latencies::count).sum::<u64>() == totals.requests
    });
}

fn wait_since(begun: Instant) {
    until("the operation was held for a while", || begun.elapsed() > HELD);
}

#[test]
fn each_request_is_counted_once_with_its_operation() {
    let server = Server::new();
    server.put("/d/f", &pattern(3_000_000));
    let mut client = server.client();
    let handle = client.open("/d/f", READING);
    for _ in 0..3 {
        client.read(handle, 0, 100);
    }
    // Not answered in place.
    client.read(handle, 0, 3_000_000);
    client.ok(&Raw::new(READV).payload(&segment(handle, 10, 0)));
    client.send(&Raw::new(PGREAD).handle(handle).i64(8, 0).i32(16, 100));
    client.reply();
    assert_eq!(client.call(&read(77, 0, 1)).status, ERROR);
    client.ok(&Raw::new(STAT).payload(b"/d"));
    assert_eq!(client.call(&Raw::new(STAT).payload(b"/missing")).status, ERROR);
    client.ok(&Raw::new(DIRLIST).payload(b"/d"));
    client.ok(&Raw::new(CLOSE).handle(handle));
    let written = client.open("/new", CREATING);
    client.ok(&write(written, 0, b"data"));
    client.ok(&Raw::new(SYNC).handle(written));
    client.ok(&Raw::new(CLOSE).handle(written));
    client.ok(&Raw::new(RM).payload(b"/new"));
    client.ok(&Raw::new(PING));
    assert_eq!(client.call(&Raw::new(7777)).status, ERROR);
    until_counted(&server);
    let found = counts(&server);
    for wanted in [
        ("open", 2),
        ("close", 2),
        ("read", 5),
        ("pgread", 1),
        ("readv", 1),
        ("write", 1),
        ("sync", 1),
        ("stat", 2),
        ("dirlist", 1),
        ("change", 1),
        ("login", 1),
    ] {
        assert!(found.contains(&wanted), "{wanted:?}: {found:?}");
    }
    // The handshake, the ping, the unknown request, and what the client asked before its login.
    assert!(times(&server, "other").count() >= 3, "{found:?}");
    let sum: u64 = server.totals().latencies.iter().map(|times| times.nanos).sum();
    assert!(sum > 0);
}

#[test]
fn a_delayed_operation_is_in_a_high_bucket_and_no_other_is() {
    let server = Server::new();
    server.put("/slow/f", b"slow");
    server.put("/f", b"fast");
    let gate = Gate::new();
    let fault = InjectedFault::Hang(gate.clone());
    server.rules.add(FaultRule::new(&[FaultyCall::Stat], fault).below(&logical_path("/slow")));
    let (mut slow, mut other) = (server.client(), server.client());
    slow.send(&Raw::new(STAT).payload(b"/slow/f"));
    gate.wait_for(1);
    // The request has begun before.
    let begun = Instant::now();
    let handle = other.open("/f", READING);
    other.read(handle, 0, 4);
    wait_since(begun);
    // A request without a reply has no time yet.
    assert_eq!(times(&server, "stat").count(), 0);
    gate.open();
    assert_eq!(slow.reply().status, OK);
    until_counted(&server);
    let found = times(&server, "stat");
    assert_eq!((found.count(), longer_than(&found, HELD)), (1, 1), "{found:?}");
    assert!(u128::from(found.nanos) > HELD.as_nanos());
    assert_eq!(times(&server, "open").count(), 1);
}

#[test]
fn an_operation_that_waits_for_another_has_the_time_of_its_wait() {
    let server = Server::new();
    server.put("/f", &pattern(100_000));
    let mut client = server.client();
    let handle = client.open("/f", CREATING);
    let gate = Gate::new();
    server.rules.add(FaultRule::new(&[FaultyCall::Sync], InjectedFault::Hang(gate.clone())));
    client.send(&Raw::new(SYNC).handle(handle).stream(1));
    gate.wait_for(1);
    let requests = server.totals().requests;
    client.send(&Raw::new(CLOSE).handle(handle).stream(2));
    until("the close is taken", || server.totals().requests > requests);
    wait_since(Instant::now());
    gate.open();
    assert_eq!((client.reply().status, client.reply().status), (OK, OK));
    until_counted(&server);
    let found = times(&server, "sync");
    assert_eq!((found.count(), longer_than(&found, HELD)), (1, 1), "{found:?}");
    let found = times(&server, "close");
    assert_eq!((found.count(), longer_than(&found, HELD)), (1, 1), "{found:?}");
}

#[test]
fn the_time_of_a_write_begins_with_its_last_byte() {
    let server = Server::new();
    let mut client = server.client();
    let handle = client.open("/f", CREATING);
    let bytes = write(handle, 0, &pattern(1000)).bytes();
    let (first, last) = bytes.split_at(bytes.len() - 1);
    let begun = Instant::now();
    client.send_bytes(first);
    until("the write has begun", || server.totals().writes == 1);
    wait_since(begun);
    client.send_bytes(last);
    assert_eq!(client.reply().status, OK);
    until_counted(&server);
    let found = times(&server, "write");
    assert_eq!(found.count(), 1);
    // All of it without the time for which the last byte was missing.
    assert!(u128::from(found.nanos) < begun.elapsed().as_nanos() - HELD.as_nanos(), "{found:?}");
}

#[test]
fn a_write_has_the_time_for_which_the_disk_delays_its_data() {
    let server = Server::new();
    let mut client = server.client();
    let handle = client.open("/f", CREATING);
    let gate = Gate::new();
    server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::Hang(gate.clone())));
    let bytes = write(handle, 0, &pattern(4_000_000)).bytes();
    let (first, last) = bytes.split_at(bytes.len() - 1);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            client.send_bytes(first);
            &mut client
        });
        // The others are not taken.
        gate.wait_for(4);
        wait_since(Instant::now());
        gate.open();
        let client = sender.join().unwrap();
        client.send_bytes(last);
        assert_eq!(client.reply().status, OK);
    });
    until_counted(&server);
    let found = times(&server, "write");
    assert_eq!((found.count(), longer_than(&found, HELD)), (1, 1), "{found:?}");
}

#[test]
fn a_write_has_the_time_for_which_an_earlier_request_holds_it() {
    let server = Server::new();
    let mut client = server.client();
    let handle = client.open("/f", CREATING);
    let gate = Gate::new();
    server.rules.add(FaultRule::new(&[FaultyCall::Sync], InjectedFault::Hang(gate.clone())));
    client.send(&Raw::new(SYNC).handle(handle).stream(1));
    gate.wait_for(1);
    let received = server.totals().bytes_in;
    let held = write(handle, 0, &pattern(4096)).stream(2).bytes();
    client.send_bytes(&held);
    until("the write has arrived", || server.totals().bytes_in == received + held.len() as u64);
    wait_since(Instant::now());
    gate.open();
    assert_eq!((client.reply().status, client.reply().status), (OK, OK));
    until_counted(&server);
    let found = times(&server, "write");
    assert_eq!((found.count(), longer_than(&found, HELD)), (1, 1), "{found:?}");
}

#[test]
fn data_that_never_comes_has_no_time() {
    let server = Server::new();
    for is_open in [true, false] {
        let mut client = server.client();
        let handle = if is_open { client.open("/f", CREATING) } else { 77 };
        let bytes = write(handle, 0, b"data").bytes();
        let requests = server.totals().requests;
        let begun = Instant::now();
        client.send_bytes(&bytes[..bytes.len() - 1]);
        until("the write has begun", || server.totals().requests > requests);
        wait_since(begun);
        drop(client);
        server.until_sessions(0);
    }
    until_counted(&server);
    let found = times(&server, "write");
    assert_eq!((found.count(), longer_than(&found, HELD)), (2, 0), "{found:?}");
}

#[test]
fn a_request_that_waits_to_be_taken_has_the_time_of_its_wait() {
    let server = Server::new();
    server.put("/slow/f", b"slow");
    let mut client = server.client();
    let gate = Gate::new();
    let fault = InjectedFault::Hang(gate.clone());
    server.rules.add(FaultRule::new(&[FaultyCall::Stat], fault).below(&logical_path("/slow")));
    let received = server.totals().bytes_in;
    let stat = Raw::new(STAT).payload(b"/slow/f").bytes();
    let bytes = [stat.repeat(session::CALLS_MAX), Raw::new(PING).bytes()].concat();
    client.send_bytes(&bytes);
    gate.wait_for(1);
    until("all have arrived", || server.totals().bytes_in == received + bytes.len() as u64);
    // The handshake and others before the login.
    let others = times(&server, "other");
    wait_since(Instant::now());
    gate.open();
    for _ in 0..=session::CALLS_MAX {
        assert_eq!(client.reply().status, OK);
    }
    until_counted(&server);
    let found = times(&server, "other");
    let longer = longer_than(&found, HELD) - longer_than(&others, HELD);
    assert_eq!((found.count() - others.count(), longer), (1, 1), "{found:?}");
}

#[test]
fn requests_of_clients_that_leave_are_counted() {
    let server = Server::new();
    server.put("/slow/f", b"slow");
    let gate = Gate::new();
    let fault = InjectedFault::Hang(gate.clone());
    server.rules.add(FaultRule::new(&[FaultyCall::Open], fault).below(&logical_path("/slow")));
    let mut client = server.client();
    client.send(&open("/slow/f", READING));
    gate.wait_for(1);
    drop(client);
    gate.open();
    server.until_sessions(0);
    until_counted(&server);
    assert_eq!(times(&server, "open").count(), 1);
}
