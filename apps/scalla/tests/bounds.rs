//! Tests of the limits per client for descriptors and memory, with the real program.

#![allow(clippy::unwrap_used)] // a test fails where it is

mod support;

use std::io::Write;
use std::net::Shutdown;
use support::codes::request::{OPEN, PING, STAT, STATX};
use support::codes::status::ERROR;
use support::{Client, Scratch, Server};

/// Limit of descriptors of the server under test.
const DESCRIPTORS: usize = 1024;

/// Sessions that open as many files as possible.
const GREEDY: usize = 6;

fn open(path: &str) -> ([u8; 16], Vec<u8>) {
    let mut body = [0; 16];
    body[2..4].copy_from_slice(&0x10u16.to_be_bytes());
    (body, path.as_bytes().to_vec())
}

#[test]
fn sessions_that_open_all_they_can_leave_descriptors_to_others() {
    let scratch = Scratch::new("bounds-descriptors");
    scratch.write("data/f", b"content");
    let data = scratch.text("data");
    let config = format!("all.export /\noss.localroot {data}\nxrd.maxfd {DESCRIPTORS}\n");
    let server = Server::configured(&scratch, "admin", &config);
    let mut sessions: Vec<Client> = (0..GREEDY).map(|_| Client::login(server.port)).collect();
    let (body, path) = open("/f");
    let mut opened = Vec::new();
    for session in &mut sessions {
        let got = (0..DESCRIPTORS).take_while(|_| session.ask(OPEN, body, &path).0 == 0).count();
        opened.push(got);
        let (status, error) = session.ask(OPEN, body, &path);
        assert_eq!((status, &error[..4]), (ERROR, &3024u32.to_be_bytes()[..]), "overloaded");
    }
    assert!(opened[0] < DESCRIPTORS / 4 && opened.iter().all(|&got| got >= 1), "{opened:?}");
    // Other clients connect, open, stat and create files that persist on close.
    for number in 0..10 {
        let mut other = Client::login(server.port);
        assert_eq!(other.stat("/f").0, 0);
        if number < 2 {
            other.create(&format!("/new{number}"));
            other.open("/f");
        }
        assert_eq!(other.ask(PING, [0; 16], b"").0, 0);
    }
}

/// Limit of descriptors of a server with very few.
const FEW: usize = 400;

#[test]
fn a_server_with_few_descriptors_goes_on_whatever_clients_take() {
    let scratch = Scratch::new("bounds-few");
    scratch.write("data/f", b"content");
    let server = Server::serve_with_descriptors(&scratch, FEW);
    let mut first = server.client();
    let (body, path) = open("/f");
    let mut greedy = server.client();
    let opened = (0..FEW).take_while(|_| greedy.ask(OPEN, body, &path).0 == 0).count();
    assert!((16..FEW / 4).contains(&opened), "{opened}");
    let mut others: Vec<Client> = std::iter::from_fn(|| Client::try_login(server.port)).take(FEW).collect();
    assert!((FEW / 4..FEW).contains(&others.len()), "{}", others.len());
    // Connected clients are still served, and the server has descriptors in reserve for its own
    // work.
    for (number, client) in others.iter_mut().step_by(20).enumerate() {
        assert_eq!(client.ask(PING, [0; 16], b"").0, 0);
        assert_eq!(client.stat("/f").0, 0);
        let (status, error) = client.ask(OPEN, body, &path);
        assert!(status == 0 || error[..4] == 3024u32.to_be_bytes(), "{number}: {status}");
    }
    assert_eq!(first.stat("/f").0, 0);
    drop((others, greedy));
    // Released descriptors are available again.
    let mut late = loop {
        match Client::try_login(server.port) {
            Some(client) => break client,
            None => assert_eq!(first.ask(PING, [0; 16], b"").0, 0),
        }
    };
    late.create("/new");
}

/// Memory growth that a multi-threaded process may show without a leak.
const GROWTH_MAX: usize = 32 * 1024 * 1024;

/// Sends a request `times` times without waiting, and reads the first replies.
fn flood(server: &Server, request: &[u8], times: usize, replies: usize) {
    let mut client = server.client();
    let mut sender = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || (0..times).all(|_| sender.write_all(request).is_ok()));
        for _ in 0..replies {
            client.reply();
        }
        client.stream.shutdown(Shutdown::Both).unwrap();
    });
}

#[test]
fn lists_of_a_million_paths_take_little_memory() {
    let scratch = Scratch::new("bounds-lists");
    let server = Server::serve(&scratch, &[]);
    let mut other = server.client();
    assert_eq!(other.stat("/").0, 0);
    let list = Client::request(STATX, [0; 16], &b"/\n".repeat(1 << 20));
    let before = server.reset_peak_memory();
    flood(&server, &list, 8, 2);
    let grown = server.peak_memory().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes");
    assert_eq!(other.stat("/").0, 0);
}

#[test]
fn paths_with_megabytes_of_cgi_take_little_memory() {
    let scratch = Scratch::new("bounds-cgi");
    scratch.write("data/f", b"content");
    let server = Server::serve(&scratch, &[]);
    let mut other = server.client();
    let mut path = b"/f?".to_vec();
    path.resize(2 * 1024 * 1024, b'a');
    let (body, _) = open("/f");
    for request in [Client::request(STAT, [0; 16], &path), Client::request(OPEN, body, &path)] {
        let before = server.reset_peak_memory();
        flood(&server, &request, 1024, 32);
        let grown = server.peak_memory().saturating_sub(before);
        assert!(grown < GROWTH_MAX, "{grown} bytes");
        assert_eq!(other.stat("/f").0, 0);
    }
}
