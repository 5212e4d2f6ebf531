//! Bound connections: replies and data by path id, and their loss.
//!
//! They are tested separately because data, reply and request may use different connections.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::Read;
use std::time::Duration;
use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use support::client::{CREATING, HANDSHAKE, READING, UPDATING, read, write};
use support::*;

/// Returns a read whose reply goes to a path.
fn read_by(path: u8, handle: u32, offset: usize, length: usize) -> Raw {
    read(handle, offset, length).payload(&[path, 0, 0, 0, 0, 0, 0, 0])
}

/// Returns a write whose data arrives on a path.
fn write_by(path: u8, handle: u32, offset: usize, length: usize) -> Raw {
    Raw::new(WRITE).handle(handle).i64(8, offset as i64).u8(16, path).dlen(length as i32)
}

/// Asserts that the connection carries only the answer to this ping.
fn is_quiet(client: &mut Client) {
    let reply = client.call(&Raw::new(PING).stream(0xdead));
    assert_eq!(reply.stream, 0xdead, "{reply:?}");
}

#[test]
fn at_most_fifteen_connections_join() {
    let server = Server::with(Wish { loops: 4, ..Wish::default() });
    let mut main = server.client();
    let mut bound: Vec<(Client, u8)> = (0..15).map(|_| Client::bound(&main, server.address)).collect();
    assert_eq!(bound.iter().map(|(_, path)| *path).collect::<Vec<_>>(), (1..=15).collect::<Vec<u8>>());
    let mut late = Client::greeted(server.address);
    let refusal = late.call(&Raw::new(BIND).stream(9).at(4, &main.session));
    assert_eq!((refusal.stream, refusal.error()), (9, (3008, "bind limit exceeded".to_owned())));
    late.is_closed();
    // One connection disconnects, and its id becomes free.
    drop(bound.remove(6));
    until("path 7 is free", || {
        let mut next = Client::greeted(server.address);
        let reply = next.call(&Raw::new(BIND).at(4, &main.session));
        if reply.status == OK {
            assert_eq!(reply.body, [7]);
        }
        reply.status == OK
    });
    is_quiet(&mut main);
    // They end with the control connection.
    drop(main);
    for (client, _) in &mut bound {
        client.is_closed();
    }
    server.until_sessions(0);
}

#[test]
fn a_connection_that_joins_without_waiting_receives_each_answer() {
    let server = Server::with(Wish { loops: 3, ..Wish::default() });
    let main = server.client();
    for _ in 0..15 {
        let mut client = Client::connect(server.address);
        let protocol = Raw::new(PROTOCOL).stream(1).i32(4, 0x520).u8(9, 1);
        let bind = Raw::new(BIND).stream(2).at(4, &main.session);
        client.send_bytes(&[&HANDSHAKE[..], &protocol.bytes(), &bind.bytes()].concat());
        assert_eq!(client.bytes(16), [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0x20, 0, 0, 0, 1]);
        let reply = client.reply();
        assert_eq!((reply.stream, reply.status, reply.body.len()), (1, OK, 8), "{reply:?}");
        let reply = client.reply();
        assert_eq!((reply.stream, reply.status), (2, OK), "{reply:?}");
    }
}

#[test]
fn binds_to_unknown_sessions_are_refused() {
    let server = Server::new();
    let main = server.client();
    let refused = |session: &[u8; 16]| {
        let mut client = Client::greeted(server.address);
        client.call(&Raw::new(BIND).at(4, session)).error()
    };
    assert_eq!(refused(&[0; 16]), (3011, "session not found".to_owned()));
    assert_eq!(refused(b"no such session."), (3011, "session not found".to_owned()));
    let session = main.session;
    drop(main);
    server.until_sessions(0);
    assert_eq!(refused(&session), (3011, "session not found".to_owned()));
}

#[test]
fn replies_use_the_requested_path() {
    for cold in [false, true] {
        let server = Server::with(Wish { loops: 3, ..Wish::default() });
        let content = pattern(5_000_000);
        server.put("/f", &content);
        if cold {
            server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::WouldBlock));
        }
        let mut main = server.client();
        let handle = main.open("/f", READING);
        let (mut first, one) = Client::bound(&main, server.address);
        let (mut second, two) = Client::bound(&main, server.address);
        for (offset, length) in [(0, 16), (100, 9000), (4_999_999, 50), (7, 4_000_000)] {
            main.send(&read_by(one, handle, offset, length).stream(3));
            main.send(&read_by(two, handle, offset, length).stream(4));
            let wanted = &content[offset..(offset + length).min(content.len())];
            assert!(first.whole() == wanted);
            assert!(second.whole() == wanted, "cold {cold}: {length} at {offset}");
        }
        main.send(&Raw::new(PGREAD).stream(5).handle(handle).i32(16, 16).payload(&[two, 0]));
        let reply = second.reply();
        assert_eq!((reply.stream, reply.status, reply.data.len()), (5, STATUS, 20));
        // A vector read has the field, but it is ignored.
        let readv = Raw::new(READV).stream(6).u8(19, one).payload(&segment(handle, 4, 0));
        assert_eq!(main.call(&readv).body[16..], content[..4]);
        let wrong = main.call(&read_by(9, handle, 0, 1).stream(7));
        assert_eq!((wrong.stream, wrong.error().1.as_str()), (7, "invalid path ID"));
        // The handle is checked first, and the path id of an empty read is not checked.
        assert_eq!(main.call(&read_by(9, 77, 0, 1)).error().0, 3004);
        for path in [one, 9] {
            let empty = main.call(&read_by(path, handle, 5, 0));
            assert_eq!((empty.status, empty.body.len()), (OK, 0));
        }
        // An invalid offset is refused on the connection of the data.
        for (code, path) in [(READ, &[two, 0, 0, 0, 0, 0, 0, 0][..]), (PGREAD, &[two, 0])] {
            main.send(&Raw::new(code).handle(handle).i64(8, -1).i32(16, 5).payload(path));
            assert_eq!(second.reply().error().0, 3000);
        }
        is_quiet(&mut main);
    }
}

#[test]
fn data_on_a_path_may_arrive_before_or_after_its_announcement() {
    for cold in [false, true] {
        let server = Server::with(Wish { loops: 3, ..Wish::default() });
        if cold {
            server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::WouldBlock));
        }
        let content = pattern(900_000);
        let mut main = server.client();
        let handle = main.open("/f", CREATING);
        let (mut bound, path) = Client::bound(&main, server.address);
        // Before its announcement.
        bound.send_bytes(&content[..1000]);
        server.client().call(&Raw::new(PING));
        main.send(&write_by(path, handle, 0, 1000).stream(3));
        let reply = bound.reply();
        assert_eq!((reply.stream, reply.status, reply.body.len()), (3, OK, 0));
        // Long before it, and more than the server buffers: the rest waits in the socket.
        let mut sender = bound.stream.try_clone().unwrap();
        let early = content[1000..800_000].to_vec();
        let sending = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &early).unwrap());
        is_quiet(&mut main);
        for (number, chunk) in content[1000..800_000].chunks(99_875).enumerate() {
            main.send(&write_by(path, handle, 1000 + number * 99_875, chunk.len()).stream(number as u16));
        }
        let mut streams: Vec<u16> = (0..8)
            .map(|_| bound.reply())
            .map(|reply| {
                assert_eq!(reply.status, OK);
                reply.stream
            })
            .collect();
        streams.sort_unstable();
        assert_eq!(streams, (0..8).collect::<Vec<u16>>());
        sending.join().unwrap();
        // After it.
        main.send(&write_by(path, handle, 800_000, 100_000).stream(9));
        is_quiet(&mut main);
        bound.send_bytes(&content[800_000..]);
        assert_eq!((bound.reply().stream, bound.stream.set_nonblocking(false).is_ok()), (9, true));
        // The data of a refused write is discarded on its path; the reply is on the control
        // connection.
        main.send(&write_by(path, 77, 0, 10).stream(10));
        bound.send_bytes(&[0; 10]);
        assert_eq!(main.reply().error().0, 3004);
        // The handle is checked before the path id, and the path id of an empty write is not
        // checked.
        for path in [path, 9] {
            assert_eq!(main.call(&write_by(path, 77, 0, 0)).error().0, 3004);
            assert_eq!(main.call(&write_by(path, handle, 0, 0)).status, OK);
        }
        assert_eq!(main.call(&write_by(9, 77, 0, 10)).error().0, 3004);
        assert_eq!(main.call(&write_by(9, handle, 0, 10)).error().0, 3000);
        main.ok(&Raw::new(CLOSE).handle(handle));
        assert!(server.content("/f") == content, "cold {cold}");
    }
}

#[test]
fn a_close_waits_for_data_of_other_connections() {
    let server = Server::new();
    let mut main = server.client();
    let handle = main.open("/f", CREATING);
    let (mut bound, path) = Client::bound(&main, server.address);
    main.send(&write_by(path, handle, 0, 5).stream(3));
    main.send(&Raw::new(CLOSE).stream(4).handle(handle));
    is_quiet(&mut main);
    bound.send_bytes(b"12345");
    assert_eq!(bound.reply().stream, 3);
    assert_eq!(main.reply().stream, 4);
    assert_eq!(server.content("/f"), b"12345");
    // A file open for reading is released immediately, in the turn of the other connection.
    server.put("/g", b"");
    let handle = main.open("/g", READING);
    main.send(&write_by(path, handle, 0, 5).stream(5));
    main.send(&Raw::new(CLOSE).stream(6).handle(handle));
    is_quiet(&mut main);
    bound.send_bytes(b"12345");
    assert_eq!(bound.reply().error().0, 3004);
    assert_eq!((main.reply().stream, server.content("/g").len()), (6, 0));
}

#[test]
fn a_lost_path_fails_only_its_writes() {
    let server = Server::with(Wish { loops: 2, ..Wish::default() });
    let mut main = server.client();
    let handle = main.open("/f", CREATING);
    let (mut bound, path) = Client::bound(&main, server.address);
    main.send(&write_by(path, handle, 0, 100_000));
    main.send(&write_by(path, handle, 100_000, 100_000));
    bound.send_bytes(&[7; 50_000]);
    is_quiet(&mut main);
    drop(bound);
    until("the path is forgotten", || {
        main.send(&read_by(path, handle, 0, 1).stream(5));
        main.send(&Raw::new(PING).stream(6));
        let reply = main.reply();
        let forgotten = reply.stream == 5;
        if forgotten {
            assert_eq!(reply.error().1, "invalid path ID");
            assert_eq!(main.reply().stream, 6);
        }
        forgotten
    });
    // Data that will never arrive does not hold the file.
    main.ok(&write(handle, 0, b"by the control connection"));
    main.ok(&Raw::new(CLOSE).handle(handle));
    let (_again, next) = Client::bound(&main, server.address);
    assert_eq!(next, path);
}

#[test]
fn a_path_lost_with_data_in_flight_frees_the_file() {
    let server = Server::new();
    let gate = Gate::new();
    server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::Hang(gate.clone())).times(1));
    let mut main = server.client();
    let handle = main.open("/f", CREATING);
    let (mut bound, path) = Client::bound(&main, server.address);
    // The second write waits for the first, and only part of its data arrives.
    (0..2).for_each(|_| main.send(&write_by(path, handle, 0, 100_000)));
    bound.send_bytes(&pattern(150_000));
    gate.wait_for(1);
    drop(bound);
    let (_other, next) = Client::bound(&main, server.address);
    assert!(next == path || next == path + 1);
    main.send(&Raw::new(CLOSE).stream(9).handle(handle));
    is_quiet(&mut main);
    gate.open();
    assert_eq!(main.reply().stream, 9);
    assert!(server.content("/f") == pattern(100_000));
    main.open("/f", UPDATING);
}

#[test]
fn a_path_lost_during_a_large_read_frees_the_file() {
    for hung in [false, true] {
        let server = Server::new();
        server.put("/f", &pattern(8_000_000));
        let gate = Gate::new();
        if hung {
            server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Hang(gate.clone())));
        }
        let mut main = server.client();
        let handle = main.open("/f", READING);
        let (bound, path) = Client::bound(&main, server.address);
        for _ in 0..20 {
            main.send(&read_by(path, handle, 0, 8_000_000));
        }
        is_quiet(&mut main);
        if hung {
            gate.wait_for(1);
        }
        drop(bound);
        main.send(&Raw::new(CLOSE).stream(9).handle(handle));
        if hung {
            is_quiet(&mut main);
            gate.open();
        }
        assert_eq!(main.reply().stream, 9);
        main.open("/f", UPDATING);
    }
}

#[test]
fn the_end_of_the_control_connection_ends_the_others() {
    let server = Server::with(Wish { loops: 2, ..Wish::default() });
    let mut main = server.client();
    let handle = main.open("/f", CREATING);
    let (mut first, one) = Client::bound(&main, server.address);
    let (mut second, two) = Client::bound(&main, server.address);
    main.send(&write_by(one, handle, 0, 1_000_000));
    main.send(&write_by(two, handle, 0, 1_000_000));
    first.send_bytes(&[1; 1000]);
    is_quiet(&mut main);
    drop(main);
    first.is_closed();
    second.is_closed();
    server.until_sessions(0);
    server.client().open("/f", UPDATING);
}

#[test]
fn the_end_of_the_control_connection_ends_a_path_that_does_not_read() {
    let server = Server::with(Wish { loops: 2, ..Wish::default() });
    server.put("/f", &pattern(8_000_000));
    let mut main = server.client();
    let handle = main.open("/f", READING);
    let (bound, path) = Client::bound(&main, server.address);
    for _ in 0..20 {
        main.send(&read_by(path, handle, 0, 8_000_000));
    }
    is_quiet(&mut main);
    drop(main);
    // The client of the path is connected and reads nothing.
    server.until_sessions(0);
    server.client().open("/f", UPDATING);
    drop(bound);
}

#[test]
fn unannounced_data_is_refused_after_the_timeout() {
    let mut wish = Wish::default();
    wish.config.hail = Duration::from_millis(50);
    let server = Server::with(wish);
    let mut main = server.client();
    let (mut bound, _) = Client::bound(&main, server.address);
    bound.send(&Raw::new(PING).stream(5));
    let reply = bound.reply();
    assert_eq!((reply.stream, reply.error().0), (5, 3006));
    bound.is_closed();
    is_quiet(&mut main);
    // A bound connection without data has no time limit.
    let (mut silent, path) = Client::bound(&main, server.address);
    let (mut other, _) = Client::bound(&main, server.address);
    other.send_bytes(b"x");
    other.reply();
    let handle = main.open("/f", CREATING);
    main.send(&write_by(path, handle, 0, 1));
    silent.send_bytes(b"x");
    assert_eq!(silent.reply().status, OK);
}

#[test]
fn blocked_paths_do_not_wake_each_other() {
    let mut wish = Wish { loops: 1, ..Wish::default() };
    wish.socket.buffer_bytes = Some(256 * 1024);
    let server = Server::with(wish);
    let content = pattern(3_000_000);
    server.put("/f", &content);
    let mut main = server.client();
    let handle = main.open("/f", READING);
    let mut bound: Vec<(Client, u8)> = (0..4).map(|_| Client::bound(&main, server.address)).collect();
    for (_, path) in &bound {
        for stream in 0..2 {
            main.send(&read_by(*path, handle, 0, content.len()).stream(stream));
        }
    }
    // A blocked connection does not keep the server from taking requests for the others.
    until("all reads are taken", || server.totals().reads == 8);
    // All four are blocked when no output is sent between two pings.
    let mut other = server.client();
    let mut settled = || {
        let before = server.totals();
        (0..20).for_each(|_| is_quiet(&mut other));
        let after = server.totals();
        (after.bytes_out - before.bytes_out == 20 * 8, after.turns - before.turns)
    };
    until("all paths are stuck", || settled().0);
    let turns = (0..50).map(|_| settled().1).min().unwrap();
    assert!(turns <= 60, "{turns} turns for 20 pings");
    // They continue when their client reads.
    for (client, path) in &mut bound {
        let mut bodies = [Vec::new(), Vec::new()];
        let mut left = 2;
        while left > 0 {
            let reply = client.reply();
            bodies[usize::from(reply.stream)].extend(reply.body);
            left -= usize::from(reply.status == OK);
        }
        assert!(bodies.iter().all(|body| *body == content), "path {path}");
    }
    main.ok(&Raw::new(CLOSE).handle(handle));
}

#[test]
fn many_streams_share_one_large_file() {
    let server = Server::with(Wish { loops: 4, ..Wish::default() });
    let content = pattern(6_000_000);
    server.put("/f", &content);
    let mut main = server.client();
    let handle = main.open("/f", READING);
    let bound: Vec<(Client, u8)> = (0..15).map(|_| Client::bound(&main, server.address)).collect();
    let mut readers = Vec::new();
    let piece = 400_000;
    for (mut client, path) in bound {
        main.send(&read_by(path, handle, (usize::from(path) - 1) * piece, piece));
        readers.push(std::thread::spawn(move || client.whole()));
    }
    let all: Vec<u8> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
    assert!(all == content);
}

#[test]
fn a_path_half_closed_by_its_client_ends() {
    let server = Server::new();
    server.put("/f", b"x");
    let mut main = server.client();
    let (mut bound, _) = Client::bound(&main, server.address);
    bound.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    // A half-closed connection ends as a whole, because no client half-closes it.
    bound.stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    is_quiet(&mut main);
}
