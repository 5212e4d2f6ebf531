//! Tests with many clients that disconnect at once.
//!
//! Their process is killed repeatedly, in every phase of a connection. Meanwhile an established
//! client and new ones are served. Afterwards the server has as many connections and descriptors as
//! before.
//!
//! The clients run in a child process of this test program, so that their connections end like
//! those of any killed process.

#![allow(clippy::unwrap_used)] // a test fails where it is

mod support;

use rustix::fs::{Advice, fadvise};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use support::refusal::{URING_SETUP, start_without};
use support::{Client, PATIENCE, Scratch, Server, status};

/// Environment variable that turns this test process into a client process: phase, connections and
/// port.
const CROWD: &str = "SCALLA_CROWD";

/// Phases in which the clients are killed, and their numbers.
const CROWDS: [(&str, usize); 12] = [
    ("silent", 2000),
    ("handshake", 500),
    ("login", 500),
    ("idle", 2000),
    ("opens", 100),
    ("opens", 300),
    ("listings", 100),
    ("reads", 100),
    ("cold", 100),
    ("writes", 100),
    ("opens", 100),
    ("opens", 1000),
];

/// Number of rounds that a client process completes before it is killed, in phases with requests.
const ROUNDS: usize = 5;

/// Requests that each connection sends per round.
const REQUESTS: usize = 32;

const SIZE: usize = 4_000_003;

/// Additional descriptors that the server may have compared to the start, for its pools and
/// journals.
const SPARE_DESCRIPTORS: usize = 8;

fn byte(at: usize) -> u8 {
    u8::try_from((at * 7 + (at >> 8)) % 251).unwrap()
}

fn content(offset: usize, length: usize) -> Vec<u8> {
    (offset..offset + length).map(byte).collect()
}

/// Encodes a request.
fn request(code: u16, body: [u8; 16], payload: &[u8], announced: usize) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    bytes.extend(code.to_be_bytes());
    bytes.extend(body);
    bytes.extend(u32::try_from(announced).unwrap().to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns the bytes that a connection of a phase sends per round after its login.
fn round(phase: &str, number: usize, handle: [u8; 4]) -> Vec<u8> {
    let mut all = Vec::new();
    for at in 0..REQUESTS {
        let mut body = [0; 16];
        body[..4].copy_from_slice(&handle);
        let offset = (number * 7_654_321 + at * 100_003) % (SIZE - 70_000);
        body[4..12].copy_from_slice(&(offset as u64).to_be_bytes());
        all.extend(match phase {
            "opens" => {
                let mut body = [0; 16];
                body[3] = 0x10;
                let path = format!("/missing/{number}/{at}");
                request(3010, body, path.as_bytes(), path.len())
            }
            "listings" => request(3004, [0; 16], b"/many", 5),
            "reads" | "cold" => {
                let length: u32 = if phase == "cold" { 24 } else { 70_000 };
                body[12..].copy_from_slice(&length.to_be_bytes());
                request(3013, body, b"", 0)
            }
            // The last request of a round is incomplete.
            "writes" => request(3019, body, &[7; 3000], if at + 1 == REQUESTS { 1 << 20 } else { 3000 }),
            _ => unreachable!("{phase}"),
        });
    }
    all
}

/// Runs the clients. Continues until the process is killed, and writes a line after each round.
fn crowd(phase: &str, count: usize, port: u16) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let mut connections = Vec::new();
    for number in 0..count {
        let mut client = match phase {
            "silent" | "handshake" | "login" => Client::connected(port),
            _ => Client::login(port),
        };
        let mut hello = vec![0; 12];
        hello.extend([0, 0, 0, 4, 0, 0, 0x07, 0xdc]);
        let login = request(3007, [1; 16], b"", 1000);
        let handle = match phase {
            "reads" | "cold" => client.open("/big"),
            "writes" => client.create(&format!("/out/{}-{number}", std::process::id())),
            _ => [0; 4],
        };
        match phase {
            "handshake" => client.stream.write_all(&hello[..7]).unwrap(),
            "login" => client.stream.write_all(&[hello, login].concat()).unwrap(),
            _ => {}
        }
        client.stream.set_nonblocking(true).unwrap();
        connections.push((client.stream, handle, Vec::new()));
    }
    println!("ready");
    for turn in 0.. {
        for (number, (stream, handle, left)) in connections.iter_mut().enumerate() {
            if matches!(phase, "silent" | "handshake" | "login" | "idle") {
                continue;
            }
            if left.is_empty() && (phase != "writes" || turn == 0) {
                *left = round(phase, turn * count + number, *handle);
            }
            send_some(stream, left);
            if phase == "opens" || phase == "cold" {
                pass_over(stream);
            }
        }
        println!("round");
    }
}

fn send_some(stream: &mut TcpStream, left: &mut Vec<u8>) {
    match stream.write(left) {
        Ok(sent) => drop(left.drain(..sent)),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
    }
}

fn pass_over(stream: &mut TcpStream) {
    let mut bytes = [0; 64 * 1024];
    while matches!(stream.read(&mut bytes), Ok(read) if read > 0) {}
}

/// Starts a client process and kills it after its rounds.
fn comes_and_leaves(test: &str, phase: &str, count: usize, port: u16) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CROWD, format!("{phase} {count} {port}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The first line follows output of the test harness on the same line.
    let reached = lines.filter(|line| line.ends_with("ready") || line == "round").take(1 + ROUNDS).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(reached, 1 + ROUNDS, "the crowd {phase} of {count} ended by itself");
}

/// Returns the numbers of open connections, files and descriptors of the server.
fn holdings(scratch: &Scratch, server: &Server) -> (u64, u64, usize) {
    let status = status(&scratch.path("admin"));
    let number = |name: &str| status[name].as_u64().unwrap();
    let descriptors = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    (number("connections"), number("open_files"), descriptors)
}

fn read_checked(client: &mut Client, handle: [u8; 4], offset: usize) {
    client.send_read(handle, offset as u64, 5000);
    assert!(client.data() == content(offset, 5000));
}

/// Keeps an established client active and connects new ones until the other clients have ended.
fn behaves_well(port: u16, over: &AtomicBool) {
    let mut old = Client::login(port);
    let handle = old.open("/big");
    let mut turn = 0;
    while !over.load(Ordering::Relaxed) {
        read_checked(&mut old, handle, turn * 7919 % (SIZE - 5000));
        if turn % 50 == 0 {
            let mut new = Client::login(port);
            let handle = new.open("/big");
            read_checked(&mut new, handle, turn);
        }
        turn += 1;
    }
}

fn crowds_leave(name: &str, test: &str, start: impl FnOnce(&Scratch) -> Server) {
    if let Ok(wish) = std::env::var(CROWD) {
        let words: Vec<_> = wish.split(' ').collect();
        return crowd(words[0], words[1].parse().unwrap(), words[2].parse().unwrap());
    }
    let scratch = Scratch::new(name);
    fs::create_dir_all(scratch.path("data/out")).unwrap();
    scratch.write("data/big", content(0, SIZE));
    for number in 0..500 {
        scratch.write(&format!("data/many/a-file-with-a-longer-name-{number}"), "");
    }
    let server = start(&scratch);
    let mut witness = server.client();
    comes_and_leaves(test, "idle", 50, server.port);
    let before = until_settled(&scratch, &server, &mut witness, None);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let good = scope.spawn(|| behaves_well(server.port, &over));
        let big = File::open(scratch.path("data/big")).unwrap();
        big.sync_all().unwrap();
        for (phase, count) in CROWDS {
            // If the file system does not support it, everything stays in memory.
            fadvise(&big, 0, None, Advice::DontNeed).ok();
            comes_and_leaves(test, phase, count, server.port);
            // A single established client, and a new one.
            assert_eq!(witness.stat("/big").0, 0);
            assert_eq!(server.client().stat("/big").0, 0);
        }
        over.store(true, Ordering::Relaxed);
        good.join().unwrap();
    });
    until_settled(&scratch, &server, &mut witness, Some(before));
    let said = server.ended();
    assert!(!said.iter().any(|line| line.contains("panic")), "{}", said.join("\n"));
}

/// Waits until the server has only the connection of `witness`, and not more resources than before.
fn until_settled(
    scratch: &Scratch,
    server: &Server,
    witness: &mut Client,
    before: Option<(u64, u64, usize)>,
) -> (u64, u64, usize) {
    let begun = Instant::now();
    loop {
        assert_eq!(witness.stat("/").0, 0);
        let now = holdings(scratch, server);
        let most = before.map_or(usize::MAX, |before| before.2 + SPARE_DESCRIPTORS);
        if now.0 == 1 && now.1 == 0 && now.2 <= most {
            return now;
        }
        assert!(begun.elapsed() < PATIENCE, "{now:?}, before the crowds {before:?}");
    }
}

#[test]
fn crowds_that_leave_at_once_do_no_harm() {
    let test = "crowds_that_leave_at_once_do_no_harm";
    crowds_leave("crowds", test, |scratch| Server::serve(scratch, &[]));
}

#[test]
fn crowds_that_leave_at_once_do_no_harm_without_io_uring() {
    let test = "crowds_that_leave_at_once_do_no_harm_without_io_uring";
    crowds_leave("crowds-plain", test, |scratch| start_without(scratch, &[URING_SETUP], libc::ENOSYS));
}
