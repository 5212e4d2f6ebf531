//! Tests of data integrity under load.
//!
//! Clients read at random offsets and write, over single and bound connections at the same time,
//! while files are dropped from the page cache. The same loads run while the kernel rejects system
//! calls that the data path prefers. The server must then use its fallbacks and log each of them
//! once.

#![allow(clippy::unwrap_used)] // a test fails where it is

mod support;

use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use support::refusal::{Refused, URING_ENTER, URING_SETUP, start_without};
use support::{Client, Scratch, Server, run, stderr, stdout};

/// Size of the file that all clients read.
const SIZE: usize = 5_000_003;
/// The concurrent loads of `scalla bench`. Their sizes cover replies sent immediately, replies sent
/// by `sendfile`, and data read in pieces.
const LOADS: [(&str, &str, &str); 6] = [
    ("read", "/big", "-s 1,24,2k,9000,70001,600k -c 6 -d 8 --operations 600"),
    ("stream", "/big", "-s 300001 -c 2 -d 2 --operations 60"),
    ("readv", "/big", "-s 3k --segments 64 -c 2 -d 2 --operations 60"),
    ("pgread", "/big", "-s 1,4096,70001,300k -c 3 -d 4 --operations 150"),
    ("write", "/out/w", "-s 1,5000,300k -c 3 -d 4 --file-size 2m --operations 150"),
    ("pgwrite", "/out/p", "-s 1,4096,300k -c 3 -d 4 --file-size 2m --operations 150"),
];

/// Starts a server by `start`, without other rejected system calls.
fn served(name: &str, start: impl FnOnce(&Scratch) -> Server) -> (Scratch, Server) {
    let scratch = Scratch::new(name);
    fs::create_dir_all(scratch.path("data/out")).unwrap();
    let made =
        run("scalla", &scratch, &["bench", "gen", &scratch.text("data/big"), "--size", &SIZE.to_string()]);
    assert!(made.status.success(), "{}", stderr(&made));
    let server = start(&scratch);
    (scratch, server)
}

/// Runs all loads concurrently, with verification of all bytes.
fn all_at_once(scratch: &Scratch, server: &Server) {
    let (over, port) = (AtomicBool::new(false), server.port);
    thread::scope(|scope| {
        let forgetting = scope.spawn(|| {
            let file = File::open(scratch.path("data/big")).unwrap();
            file.sync_all().unwrap();
            while !over.load(Ordering::Relaxed) {
                // If the file system does not support it, everything stays in memory.
                fadvise(&file, 0, None, Advice::DontNeed).ok();
                thread::sleep(std::time::Duration::from_millis(3));
            }
        });
        let bound = scope.spawn(move || by_bound_connections(scratch, port));
        let loads: Vec<_> =
            LOADS.map(|load| scope.spawn(move || verified(scratch, port, load))).into_iter().collect();
        let ended: Vec<_> = loads.into_iter().chain([bound]).map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        forgetting.join().unwrap();
        assert!(ended.iter().all(Result::is_ok));
    });
}

fn verified(scratch: &Scratch, port: u16, (load, path, options): (&str, &str, &str)) {
    let url = format!("root://localhost:{port}/{path}");
    let mut arguments = vec!["bench", load, &url, "--verify"];
    arguments.extend(options.split_whitespace());
    let output = run("scalla", scratch, &arguments);
    assert!(output.status.success(), "{load} {options}: {}{}", stdout(&output), stderr(&output));
}

/// Reads whose replies arrive over each connection of the session in turn.
fn by_bound_connections(scratch: &Scratch, port: u16) {
    let content = fs::read(scratch.path("data/big")).unwrap();
    let mut main = Client::login(port);
    let handle = main.open("/big");
    let mut bound: Vec<_> = (0..3).map(|_| Client::bound(&main, port)).collect();
    for round in 0..60usize {
        // The same offsets in every run, spread over the file.
        let offset = round * 7_654_321 % SIZE;
        let length = [24, 2000, 9001, 70_000, 400_000][round % 5].min(SIZE - offset);
        let expected = &content[offset..offset + length];
        let paths = bound.iter().map(|(_, path)| *path);
        for path in paths.chain([0]) {
            main.send_read_by(path, handle, offset as u64, u32::try_from(length).unwrap());
        }
        for (client, path) in &mut bound {
            assert!(client.data() == expected, "path {path}, {length} at {offset}");
        }
        assert!(main.data() == expected, "{length} at {offset}");
    }
}

const OPENAT2: Refused = (libc::SYS_openat2, None);
const PREADV2: Refused = (libc::SYS_preadv2, None);
/// Rejects only calls with flags, which are the last argument.
const NOWAIT: Refused = (libc::SYS_preadv2, Some((5, 1)));
const SENDFILE: Refused = (libc::SYS_sendfile, None);
const CACHESTAT: Refused = (451, None);

/// Runs all loads against a server for which these calls are rejected. Afterwards the server must
/// have logged each of `said` once.
fn without(name: &str, calls: &[Refused], error: i32, said: &[&str]) {
    let (scratch, server) = served(name, |scratch| start_without(scratch, calls, error));
    all_at_once(&scratch, &server);
    let lines = server.ended();
    for said in said {
        let told = lines.iter().filter(|line| line.contains(said)).count();
        assert_eq!(told, 1, "`{said}` in:\n{}", lines.join("\n"));
    }
    // On a memory file system more calls may be rejected, but none is logged twice. The time and
    // the module precede the text.
    let refusals = lines.iter().filter_map(|line| line.split_once(" is refused (")?.0.split_once(": "));
    let mut refusals: Vec<_> = refusals.map(|(_, what)| what).collect();
    let all = refusals.len();
    refusals.sort_unstable();
    refusals.dedup();
    assert_eq!(refusals.len(), all, "{}", lines.join("\n"));
}

#[test]
fn bytes_stay_right_under_load() {
    let (scratch, server) = served("load", |scratch| Server::serve(scratch, &[]));
    all_at_once(&scratch, &server);
}

#[test]
fn on_an_old_kernel_bytes_stay_right_and_the_other_ways_are_told() {
    let said = [
        "openat2 is refused (Function not implemented",
        "preadv2 with RWF_NOWAIT",
        "cachestat is refused",
        "io_uring is refused",
    ];
    let calls = [OPENAT2, PREADV2, SENDFILE, CACHESTAT, URING_SETUP];
    without("load-old", &calls, libc::ENOSYS, &said);
}

#[test]
fn in_a_container_that_forbids_all_of_it_bytes_stay_right() {
    let said = [
        "openat2 is refused (Operation not permitted",
        "preadv2 with RWF_NOWAIT",
        "cachestat is refused",
        "io_uring is refused",
    ];
    let calls = [OPENAT2, PREADV2, SENDFILE, CACHESTAT, URING_ENTER];
    without("load-container", &calls, libc::EPERM, &said);
}

#[test]
fn where_the_file_system_refuses_bytes_stay_right() {
    let said = ["preadv2 with RWF_NOWAIT", "sendfile is refused"];
    without("load-files", &[NOWAIT, SENDFILE], libc::EOPNOTSUPP, &said);
}

#[test]
fn without_sendfile_alone_large_reads_are_copied() {
    without("load-sendfile", &[SENDFILE], libc::EINVAL, &["sendfile is refused"]);
}
