//! What one client may take of the server: descriptors. By the program itself, seen from outside.

#![allow(clippy::unwrap_used)] // a test fails where it is

mod support;

use std::fs;
use support::{Client, Scratch, Server};

const OPEN: u16 = 3010;
const PING: u16 = 3011;
const ERROR: u16 = 4003;

/// Descriptors of the server under test.
const DESCRIPTORS: usize = 1024;

/// Sessions that open all they can.
const GREEDY: usize = 6;

fn open(path: &str) -> ([u8; 16], Vec<u8>) {
    let mut body = [0; 16];
    body[2..4].copy_from_slice(&0x10u16.to_be_bytes());
    (body, path.as_bytes().to_vec())
}

#[test]
fn sessions_that_open_all_they_can_leave_descriptors_to_others() {
    let scratch = Scratch::new("bounds-descriptors");
    fs::create_dir_all(scratch.path("data")).unwrap();
    fs::write(scratch.path("data/f"), b"content").unwrap();
    let data = scratch.text("data");
    let config = format!("all.export /\noss.localroot {data}\nxrd.maxfd {DESCRIPTORS}\n");
    let file = scratch.write("x.cfg", config);
    let server = Server::xrootd(&scratch, &["-c", file.to_str().unwrap()]);
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
    // Others connect, open, stat and create files that persist on close.
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
