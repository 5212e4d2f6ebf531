//! Pipelined requests have the effects of sequential execution, whatever the timing of the storage.
//!
//! The session has tests of its own; these include the driver and the pools, which add concurrency.

#![allow(clippy::unwrap_used)]

mod support;

use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use support::client::{READING, UPDATING, read, write};
use support::*;

/// Returns a server without locks, where several handles may use a file.
fn server() -> Server {
    let server = Server::with(Wish { lock: false, ..Wish::default() });
    server.put("/f", b"old content");
    server.put("/g", b"another");
    server
}

fn truncate(handle: u32, size: i64) -> Raw {
    Raw::new(TRUNCATE).handle(handle).i64(8, size)
}

fn checkpoint(handle: u32, step: u8) -> Raw {
    Raw::new(CHKPOINT).handle(handle).u8(19, step)
}

const BEGIN: u8 = 0;
const ROLLBACK: u8 = 3;

/// Sends all requests in one segment, on streams numbered from 1.
fn send_together(client: &mut Client, requests: &[Raw]) {
    let numbered = (1..).zip(requests).flat_map(|(stream, request)| request.clone().stream(stream).bytes());
    client.send_bytes(&numbered.collect::<Vec<u8>>());
}

/// Reads `count` replies, which must be successful. Returns their streams in the order of arrival.
fn succeed(client: &mut Client, count: usize) -> Vec<u16> {
    let replies = (0..count).map(|_| client.reply());
    let check = |reply: Reply| {
        assert_eq!(reply.status, OK, "{reply:?}");
        reply.stream
    };
    replies.map(check).collect()
}

/// Makes the first call of this kind hang until the gate opens.
fn hang_first(server: &Server, call: FaultyCall) -> std::sync::Arc<Gate> {
    let gate = Gate::new();
    server.rules.add(FaultRule::new(&[call], InjectedFault::Hang(gate.clone())).times(1));
    gate
}

/// Asserts that another client is served, which shows that the earlier requests were taken.
fn other_is_served(server: &Server) {
    let mut other = server.client();
    (0..20).for_each(|_| assert_eq!(other.call(&Raw::new(PING)).status, OK));
}

#[test]
fn a_write_does_not_overtake_a_truncate() {
    let server = server();
    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    for round in 0..50 {
        let letter = [b'a' + round % 26];
        send_together(&mut client, &[truncate(handle, 0), write(handle, 0, &letter)]);
        succeed(&mut client, 2);
        assert_eq!(server.content("/f"), letter, "round {round}");
    }
}

#[test]
fn a_write_after_the_begin_of_a_checkpoint_is_rolled_back() {
    let server = server();
    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    for round in 0..50 {
        let requests = [checkpoint(handle, BEGIN), write(handle, 0, b"new"), checkpoint(handle, ROLLBACK)];
        send_together(&mut client, &requests);
        succeed(&mut client, 3);
        assert_eq!(server.content("/f"), b"old content", "round {round}");
    }
}

#[test]
fn the_later_of_two_writes_takes_effect_even_if_the_first_is_slow() {
    let server = server();
    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    for size in [3, 100_000, 600_000] {
        let gate = hang_first(&server, FaultyCall::Write);
        let (first, second) = (vec![b'1'; size], vec![b'2'; size]);
        send_together(&mut client, &[write(handle, 0, &first), write(handle, 1, &second)]);
        gate.wait_for(1);
        other_is_served(&server);
        gate.open();
        assert_eq!(succeed(&mut client, 2), [1, 2]);
        let content = server.content("/f");
        assert!(content[0] == b'1' && content[1..=size] == second, "{size} bytes");
    }
}

#[test]
fn writes_to_different_ranges_do_not_wait_for_each_other() {
    let server = server();
    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    let gate = hang_first(&server, FaultyCall::Write);
    send_together(&mut client, &[write(handle, 0, b"slow"), write(handle, 5, b"fast"), read(handle, 9, 2)]);
    let mut done = [client.reply().stream, client.reply().stream];
    done.sort_unstable();
    // Either write may reach the disk first and be the slow one.
    assert!(done == [2, 3] || done == [1, 3], "{done:?}");
    gate.open();
    assert_eq!(done[0] + client.reply().stream, 3);
    assert_eq!(server.content("/f"), b"slowcfastnt");
}

#[test]
fn reads_and_syncs_follow_earlier_writes() {
    let server = server();
    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    let gate = hang_first(&server, FaultyCall::Write);
    let list = [segment(handle, 3, 0), segment(handle, 3, 4)].concat();
    let requests = [
        write(handle, 0, b"new"),
        read(handle, 0, 3),
        Raw::new(READV).payload(&list),
        Raw::new(PGREAD).handle(handle).i32(16, 3),
        Raw::new(STAT).at(16, &handle.to_le_bytes()),
        Raw::new(SYNC).handle(handle),
    ];
    send_together(&mut client, &requests);
    gate.wait_for(1);
    other_is_served(&server);
    gate.open();
    let mut bodies = std::collections::BTreeMap::new();
    assert_eq!(client.reply().stream, 1);
    for _ in 2..=6 {
        let reply = client.reply();
        assert!(reply.status == OK || reply.status == STATUS, "{reply:?}");
        bodies.insert(reply.stream, [reply.body, reply.data].concat());
    }
    assert_eq!(bodies.keys().copied().collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    assert_eq!(bodies[&2], b"new");
    assert_eq!((&bodies[&3][16..19], &bodies[&3][35..]), (&b"new"[..], &b"con"[..]));
    assert!(bodies[&4].ends_with(b"new"));
}

#[test]
fn a_write_on_a_bound_connection_keeps_its_order() {
    let server = server();
    let mut main = server.client();
    let (f, g) = (main.open("/f", UPDATING), main.open("/g", READING));
    let (mut bound, path) = Client::bound(&main, server.address);
    // The data of the first write has not arrived.
    main.send(&Raw::new(WRITE).handle(f).u8(16, path).dlen(5).stream(1));
    main.send(&read(f, 0, 5).stream(2));
    // Only this handle waits.
    main.send(&read(g, 0, 7).stream(3));
    let reply = main.reply();
    assert_eq!((reply.stream, &reply.body[..]), (3, &b"another"[..]));
    main.send(&write(f, 0, b"2").stream(4));
    main.send(&write(f, 0, b"").stream(5));
    main.send(&Raw::new(CLOSE).handle(f).stream(6));
    bound.send_bytes(b"first");
    assert_eq!(bound.reply().stream, 1);
    let read = main.reply();
    assert_eq!((read.stream, &read.body[..]), (2, &b"first"[..]));
    assert_eq!(succeed(&mut main, 3), [4, 5, 6]);
    assert_eq!(server.content("/f"), b"2irstontent");
}

#[test]
fn a_write_proceeds_when_the_connection_of_an_earlier_one_is_lost() {
    let server = server();
    let mut main = server.client();
    let handle = main.open("/f", UPDATING);
    let (bound, path) = Client::bound(&main, server.address);
    main.send(&Raw::new(WRITE).handle(handle).u8(16, path).dlen(5).stream(1));
    let data = vec![b'x'; 300_000];
    main.send(&write(handle, 0, &data).stream(2));
    other_is_served(&server);
    drop(bound);
    assert_eq!(succeed(&mut main, 1), [2]);
    assert_eq!(server.content("/f"), data);
}

#[test]
fn waiting_requests_of_a_lost_client_are_dropped() {
    let server = server();
    for closes in [false, true] {
        let mut main = server.client();
        let handle = main.open("/f", UPDATING);
        let (bound, path) = Client::bound(&main, server.address);
        main.send(&Raw::new(WRITE).handle(handle).u8(16, path).dlen(5).stream(1));
        main.send(&truncate(handle, 0).stream(2));
        main.send(&read(handle, 0, 100).stream(3));
        if closes {
            main.send(&Raw::new(CLOSE).handle(handle).stream(4));
        } else {
            main.send(&write(handle, 0, b"never written").stream(4));
        }
        other_is_served(&server);
        // A server that sees the end of the bound connection first would let the other requests proceed.
        drop(main);
        server.until_sessions(0);
        drop(bound);
        // Operations that had not started were not executed.
        assert_eq!(server.content("/f"), b"old content");
    }
}

#[test]
fn a_reply_has_the_content_before_a_later_write() {
    let server = server();
    let before = pattern(3_000_000);
    server.put("/f", &before);
    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    // The client sends both before it reads, so most of the reply is sent after the write has
    // arrived.
    send_together(&mut client, &[read(handle, 0, before.len()), write(handle, 2_999_999, b"!")]);
    let mut data = Vec::new();
    while data.len() < before.len() {
        let reply = client.reply();
        assert_eq!(reply.stream, 1);
        data.extend(reply.body);
    }
    assert!(data == before);
    assert_eq!(succeed(&mut client, 1), [2]);
}

#[test]
fn the_maximum_number_of_waiting_empty_writes_is_answered() {
    let server = server();
    let mut main = server.client();
    let handle = main.open("/f", UPDATING);
    let (mut bound, path) = Client::bound(&main, server.address);
    main.send(&write(handle, 0, b"").u8(16, path).dlen(1).stream(1));
    let waiting = session::CALLS_MAX - 4;
    (0..waiting).for_each(|_| main.send(&write(handle, 0, b"").stream(2)));
    assert_eq!(main.call(&Raw::new(PING).stream(3)).stream, 3, "none of them is answered");
    bound.send_bytes(b"O");
    assert_eq!(bound.reply().status, OK);
    succeed(&mut main, waiting);
    assert_eq!(server.content("/f"), b"Old content");
}
