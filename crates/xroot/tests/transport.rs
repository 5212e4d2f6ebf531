//! Bytes on the wire: split, slow, too many, too long, and peers that disconnect.
//!
//! Tests of the session feed it complete input; these tests use sockets, because timing matters
//! here.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::client::{CREATING, HANDSHAKE, READING, login_request, open, read, write};
use support::*;

#[test]
fn a_handshake_split_at_any_byte_is_accepted() {
    let server = Server::new();
    for cut in 1..HANDSHAKE.len() {
        let mut client = Client::connect(server.address);
        client.send_bytes(&HANDSHAKE[..cut]);
        // Another connection is served meanwhile, so the first part has arrived alone.
        server.client();
        client.send_bytes(&HANDSHAKE[cut..]);
        assert_eq!(client.bytes(16)[8..], [0, 0, 5, 0x20, 0, 0, 0, 1], "cut at {cut}");
    }
}

#[test]
fn requests_may_arrive_one_byte_at_a_time() {
    let server = Server::new();
    server.put("/f", &pattern(10_000));
    let mut client = Client::connect(server.address);
    let mut slowly = |bytes: &[u8], replies: usize| {
        bytes.iter().for_each(|byte| client.send_bytes(&[*byte]));
        if bytes == HANDSHAKE {
            client.bytes(16);
        }
        (0..replies).map(|_| client.reply()).collect::<Vec<_>>()
    };
    slowly(&HANDSHAKE, 0);
    let greeting = [login_request().bytes(), Raw::new(PROTOCOL).i32(4, 0x520).bytes()].concat();
    let mut replies = slowly(&greeting, 2);
    replies.extend(slowly(&open("/f", READING).bytes(), 1));
    let list = [segment(0, 10, 0), segment(0, 5, 77)].concat();
    let reads = [
        read(0, 100, 1000).stream(4).payload(&[0; 8]).bytes(),
        Raw::new(READV).stream(5).payload(&list).bytes(),
        open("/g", CREATING).stream(6).bytes(),
    ];
    replies.extend(slowly(&reads.concat(), 3));
    let writes = [
        write(1, 0, b"written byte by byte").stream(7).bytes(),
        Raw::new(WRITEV).stream(8).payload(&segment(1, 4, 20)).data(b", by").bytes(),
        Raw::new(CLOSE).stream(9).handle(1).bytes(),
    ];
    replies.extend(slowly(&writes.concat(), 3));
    assert!(replies.iter().all(|reply| reply.status == OK), "{replies:?}");
    assert_eq!(replies[3].body, pattern(10_000)[100..1100]);
    assert_eq!(server.content("/g"), b"written byte by byte, by");
}

#[test]
fn a_whole_session_may_arrive_in_one_segment() {
    let server = Server::new();
    server.put("/f", &pattern(10_000));
    let mut client = Client::connect(server.address);
    let mut bytes = [&HANDSHAKE[..], &login_request().bytes(), &open("/f", READING).bytes()].concat();
    // The open may be answered late; requests with its handle must not overtake it.
    client.send_bytes(&bytes);
    client.bytes(16);
    assert_eq!(client.reply().status, OK);
    assert_eq!(client.reply().status, OK);
    bytes = (0..500u16).flat_map(|id| read(0, usize::from(id), 10).stream(id).bytes()).collect();
    client.send_bytes(&bytes);
    for id in 0..500 {
        let reply = client.reply();
        assert_eq!((reply.stream, reply.status), (id, OK));
        assert_eq!(reply.body, pattern(10_000)[usize::from(id)..usize::from(id) + 10]);
    }
}

#[test]
fn an_invalid_handshake_closes_the_connection() {
    let server = Server::new();
    let mut wrong = HANDSHAKE;
    wrong[19] = 0;
    for bytes in [&wrong[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 64], &[0x16, 3, 1, 0, 100]] {
        let mut client = Client::connect(server.address);
        client.send_bytes(bytes);
        client.is_closed();
    }
    server.until_sessions(0);
}

#[test]
fn violations_are_answered_before_the_connection_closes() {
    let server = Server::new();
    let mut client = Client::greeted(server.address);
    // Much more data is in flight, but the client must be able to read the reason.
    client.send_bytes(&[&Raw::new(STAT).payload(b"/data").bytes()[..], &[7; 500_000]].concat());
    assert_eq!(client.reply().error(), (3006, "Invalid request; user not logged in".to_owned()));
    client.is_closed();
    let mut client = server.client();
    client.send(&Raw::new(STAT).dlen(-1));
    assert_eq!(client.reply().error(), (3000, "Invalid request data length".to_owned()));
    client.is_closed();
    let mut client = Client::greeted(server.address);
    client.send(&login_request().dlen(i32::MAX));
    assert_eq!(client.reply().error(), (3002, "Request argument is too long".to_owned()));
    client.is_closed();
    server.until_sessions(0);
}

#[test]
fn an_argument_above_the_limit_is_discarded_and_the_next_request_found() {
    let server = Server::new();
    let mut client = server.client();
    let length = 5 * 1024 * 1024;
    client.send(&Raw::new(STAT).dlen(length).stream(7));
    let mut left = length as usize;
    while left > 0 {
        let piece = left.min(100_000);
        client.send_bytes(&vec![b'/'; piece]);
        left -= piece;
    }
    let reply = client.reply();
    assert_eq!((reply.stream, reply.error().0), (7, 3002));
    assert_eq!(client.call(&Raw::new(PING).stream(8)).stream, 8);
}

#[test]
fn an_announcement_of_two_gigabytes_costs_no_memory() {
    let server = Server::new();
    let mut clients = Vec::new();
    for _ in 0..20 {
        for code in [STAT, OPEN, QUERY, READV, FATTR, PREPARE] {
            let mut client = server.client();
            client.send(&Raw::new(code).dlen(i32::MAX).data(&[0; 1000]));
            clients.push(client);
        }
        let mut client = server.client();
        let handle = client.open("/big", 0x26);
        client.send(&Raw::new(WRITE).handle(handle).dlen(i32::MAX).data(b"only this"));
        clients.push(client);
    }
    // All others are served.
    assert_eq!(server.client().call(&Raw::new(PING)).status, OK);
    drop(clients);
    server.until_sessions(0);
    // Unacknowledged data may be present or not, but nothing else.
    assert!(b"only this".starts_with(&server.content("/big")));
}

#[test]
fn nearly_silent_connections_do_not_affect_others() {
    let server = Server::new();
    server.put("/f", &pattern(100_000));
    let announced = 2 * 1024 * 1024;
    let clients: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = server.client();
            client.send(&Raw::new(STATX).dlen(announced).data(b"/"));
            client
        })
        .collect();
    let mut other = server.client();
    other.open("/f", READING);
    let reply = other.call(&Raw::new(READV).payload(&segment(0, 10, 50).repeat(1024)));
    assert_eq!((reply.status, reply.body.len()), (OK, 1024 * (16 + 10)));
    until("announced data occupies no memory", || server.door.memory_claimed() == 0);
    assert_eq!(server.totals().disconnections, 0);
    drop(clients);
}

/// Sends the last byte of a request only after `go`. Then the answer arrives.
fn send_in_two_parts(mut client: Client, request: &[u8], go: &AtomicBool) {
    let (last, first) = request.split_last().unwrap();
    client.send_bytes(first);
    until("the last byte may be sent", || go.load(Ordering::SeqCst));
    client.send_bytes(&[*last]);
    assert_eq!(client.reply().status, ERROR);
}

#[test]
fn arguments_wait_for_memory() {
    let mut wish = Wish::default();
    wish.config.memory_bytes = xroot::MEMORY_BYTES_MIN;
    let server = Server::with(wish);
    let size = 2 * 1024 * 1024;
    let most = xroot::MEMORY_BYTES_MIN / 2;
    let request = Raw::new(STAT).payload(&vec![b'a'; size]).bytes();
    let go = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..most / size + 8).map(|_| server.client()).collect();
        for client in clients {
            scope.spawn(|| send_in_two_parts(client, &request, &go));
        }
        until("the memory for arguments is used", || server.door.memory_claimed() + size > most);
        assert_eq!(server.client().call(&Raw::new(PING)).status, OK, "small requests are served");
        // Beyond the limit, only the argument that has waited longest may use the memory of
        // requests.
        assert!(server.door.memory_claimed() <= most + size, "{} bytes", server.door.memory_claimed());
        go.store(true, Ordering::SeqCst);
    });
    until("all memory has returned", || server.door.memory_claimed() == 0);
}

#[test]
fn clients_that_do_not_read_are_closed_when_others_need_their_memory() {
    let mut wish = Wish::default();
    wish.config.memory_bytes = xroot::MEMORY_BYTES_MIN;
    wish.config.stalled_seconds = 0;
    wish.config.sendfile = false;
    wish.socket.buffer_bytes = Some(64 * 1024);
    let server = Server::with(wish);
    server.put("/f", &pattern(4_000_000));
    let pages = Raw::new(READV).payload(&segment(0, 2_000_000, 0));
    let greedy: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = server.client();
            client.open("/f", READING);
            (0..4).for_each(|_| client.send(&pages));
            client
        })
        .collect();
    until("the memory is used", || server.door.memory_claimed() + 2_100_000 > xroot::MEMORY_BYTES_MIN);
    let mut other = server.client();
    other.open("/f", READING);
    let reply = other.call(&pages);
    assert_eq!((reply.status, reply.body.len()), (OK, 2_000_016));
    assert!(server.totals().disconnections > 0);
    drop(greedy);
}

#[test]
fn a_partial_argument_has_a_deadline() {
    let mut wish = Wish::default();
    wish.config.argument_seconds = 0;
    let server = Server::with(wish);
    let mut slow = server.client();
    slow.send(&Raw::new(STAT).dlen(8000).data(b"/almost"));
    let reply = slow.reply();
    assert_eq!(reply.status, ERROR);
    assert!(String::from_utf8_lossy(&reply.body).contains("31 of 8024 bytes came"), "{reply:?}");
    slow.is_closed();
}

#[test]
fn a_silent_client_is_closed_at_the_login_deadline() {
    let mut wish = Wish::default();
    wish.config.hail = Duration::from_millis(50);
    let server = Server::with(wish);
    let mut silent = Client::greeted(server.address);
    silent.is_closed();
    let mut half = Client::greeted(server.address);
    half.send_bytes(&login_request().bytes()[..10]);
    half.is_closed();
    // A client that has logged in may be silent.
    let mut quiet = server.client();
    let mut second = Client::greeted(server.address);
    second.is_closed();
    assert_eq!(quiet.call(&Raw::new(PING)).status, OK);
}

#[test]
fn an_idle_timeout_after_login_is_configurable() {
    let mut wish = Wish::default();
    wish.config.idle = Some(Duration::from_millis(50));
    let server = Server::with(wish);
    server.client().is_closed();
}

#[test]
fn clients_that_disconnect_at_any_moment_leave_nothing_behind() {
    let server = Server::new();
    server.put("/f", &pattern(100_000));
    let session = [
        &login_request().bytes()[..],
        &open("/f", READING).bytes(),
        &read(0, 0, 100_000).bytes(),
        &open("/new", CREATING).bytes(),
        &write(1, 0, &pattern(3000)).bytes(),
    ]
    .concat();
    for cut in (0..session.len()).step_by(7) {
        let mut client = Client::greeted(server.address);
        client.send_bytes(&session[..cut]);
        if cut % 2 == 0 {
            client.stream.shutdown(Shutdown::Both).unwrap();
        }
    }
    server.until_sessions(0);
    let totals = server.totals();
    assert_eq!((totals.connections, totals.panics), (totals.disconnections, 0));
    // No lock remains.
    server.client().open("/f", 0x20);
    server.client().open("/new", 0x20);
}

#[test]
fn a_flood_of_logins_is_served() {
    let server = Server::new();
    let mut clients: Vec<Client> = (0..300).map(|_| Client::connect(server.address)).collect();
    for client in &mut clients {
        client.stream.write_all(&[&HANDSHAKE[..], &login_request().bytes()].concat()).unwrap();
    }
    let mut sessions = std::collections::HashSet::new();
    for client in &mut clients {
        client.bytes(16);
        assert!(sessions.insert(client.reply().body), "a session id was given twice");
    }
    assert_eq!(server.door.sessions(), 300);
    assert_eq!(server.totals().logins, 300);
    drop(clients);
    server.until_sessions(0);
}

#[test]
fn a_flood_on_one_connection_does_not_starve_others() {
    let server = Server::with(Wish { loops: 1, ..Wish::default() });
    server.put("/f", &pattern(100_000));
    let mut other = server.client();
    let mut flooding = server.client();
    let handle = flooding.open("/f", READING);
    let mut flood = flooding.stream;
    let (mut replies, ends) = (flood.try_clone().unwrap(), flood.try_clone().unwrap());
    let reader = std::thread::spawn(move || std::io::copy(&mut replies, &mut std::io::sink()));
    let writer = std::thread::spawn(move || {
        let requests = read(handle, 1, 24).bytes().repeat(5000);
        while flood.write_all(&requests).is_ok() {}
    });
    until("the flood has begun", || server.totals().requests > 10_000);
    // Number of requests of the flood processed during a round trip of the other client: a turn,
    // which is 64, or several on a busy machine. A loop that did not poll its sockets between turns
    // processed about 4,000 in each round trip.
    let mut meanwhile: Vec<u64> = (0..50)
        .map(|_| {
            let before = server.totals().requests;
            assert_eq!(other.call(&Raw::new(PING)).status, OK);
            server.totals().requests - before
        })
        .collect();
    meanwhile.sort_unstable();
    assert!(
        meanwhile[meanwhile.len() / 4] < 1000,
        "requests of another connection were run first: {meanwhile:?}"
    );
    // The threads end.
    ends.shutdown(Shutdown::Both).unwrap();
    writer.join().unwrap();
    drop(reader.join().unwrap());
}
