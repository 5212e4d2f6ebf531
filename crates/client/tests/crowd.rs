//! Ten thousand copies under way at once in one runtime of one thread: every one of them has its file open and waits for
//! its server at the same moment, and every byte arrives where it belongs.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use client::copy::{Copier, CopyJob, CopyOptions, Place, Watch};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Act, Asked, Fake, PLAIN, client, ok, send, stat_text};
use tokio::task::JoinSet;
use wire::xroot::reply;
use wire::xroot::{RequestCode, StreamId};

/// Copies at once.
const COPIES: usize = 10_000;
/// Bytes of a chunk; a file has two.
const CHUNK: usize = 4096;
/// Resident memory when all of them wait, with the server's in the same process and a chunk each: 50 KiB for each.
const MEMORY_BYTES: u64 = 500 << 20;
/// Threads beside one for each processor: the runtime's, those of the test harness, one to spare.
const OTHER_THREADS: u64 = 4;

fn size(file: usize) -> usize {
    5000 + file % 3000
}

/// What a file holds from byte `from` on: at each multiple of 8 the number of the file and the place.
fn content(file: usize, from: usize, length: usize) -> Vec<u8> {
    let words = (from / 8)..(from + length).div_ceil(8);
    let all: Vec<u8> = words.flat_map(|word| (((file as u64) << 32) | word as u64).to_le_bytes()).collect();
    all[from % 8..][..length].to_vec()
}

/// A file by its path: `/NUMBER`.
fn file_of(path: &str) -> usize {
    path.split('?').next().unwrap().trim_start_matches('/').parse().unwrap()
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scalla-crowd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, file: usize) -> PathBuf {
        self.0.join(file.to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// What this process is like.
#[derive(Clone, Copy, Debug)]
struct Seen {
    threads: u64,
    resident_bytes: u64,
    descriptors: usize,
    /// Copies that had ended.
    ended: usize,
}

fn seen(ended: usize) -> Seen {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let number = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    Seen { threads: number("Threads:"), resident_bytes: number("VmRSS:") << 10, descriptors, ended }
}

/// Holds answers back until so many files wait for one, and looks at the process at that moment.
struct Gate {
    files: usize,
    waiting: HashSet<usize>,
    held: Vec<(StreamId, Vec<u8>)>,
    ended: Arc<AtomicUsize>,
    seen: Arc<Mutex<Option<Seen>>>,
}

impl Gate {
    fn pass(&mut self, file: usize, streamid: StreamId, body: Vec<u8>) -> Act {
        self.held.push((streamid, body));
        if self.waiting.len() < self.files {
            self.waiting.insert(file);
        }
        if self.waiting.len() < self.files {
            return send(|_| ());
        }
        let ended = self.ended.load(Ordering::SeqCst);
        self.seen.lock().unwrap().get_or_insert_with(|| seen(ended));
        send(|out| {
            for (streamid, body) in self.held.drain(..) {
                reply::ok(out, streamid, &body);
            }
        })
    }
}

/// Bytes of each file as they were written.
type Stored = Arc<Mutex<HashMap<usize, Vec<u8>>>>;

/// A server whose files are `content`, and that takes others.
async fn serve(mut gate: Gate, stored: Stored) -> Fake {
    Fake::start(PLAIN, move |asked: &Asked| {
        let body = &asked.header.body;
        let handle = || u32::from_be_bytes(*body.first_chunk().unwrap()) as usize;
        let place = || u64::from_be_bytes(*body[4..].first_chunk().unwrap()) as usize;
        match asked.code() {
            RequestCode::OPEN => {
                let file = file_of(&asked.text());
                let handle = u32::try_from(file).unwrap().to_be_bytes();
                let stat = stat_text(size(file) as u64);
                ok(asked, &[&handle[..], &[0; 8], &stat].concat())
            }
            RequestCode::READ => {
                let (file, from) = (handle(), place());
                let length = u32::from_be_bytes(*body[12..].first_chunk().unwrap()) as usize;
                let length = length.min(size(file).saturating_sub(from));
                gate.pass(file, asked.header.streamid, content(file, from, length))
            }
            RequestCode::WRITE => {
                let (file, from) = (handle(), place());
                let mut stored = stored.lock().unwrap();
                let bytes = stored.entry(file).or_default();
                bytes.resize(bytes.len().max(from + asked.payload.len()), 0);
                bytes[from..][..asked.payload.len()].copy_from_slice(&asked.payload);
                gate.pass(file, asked.header.streamid, Vec::new())
            }
            _ => ok(asked, b""),
        }
    })
    .await
}

/// As many descriptors as the process may have; how many files that is enough for.
fn files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let most = limit.maximum.map_or(COPIES, |most| usize::try_from(most.saturating_sub(256)).unwrap());
    if most < COPIES {
        eprintln!("only {most} copies at once: raise the limit of descriptors (ulimit -Hn) for {COPIES}");
    }
    most.min(COPIES)
}

/// Runs so many copies at once, up or down, and returns what was seen when all of them waited.
async fn run(files: usize, gated: usize, folder: &Folder, up: bool) -> (Option<Seen>, Stored) {
    let (ended, seen, stored) = (Arc::default(), Arc::default(), Stored::default());
    let (waiting, held) = (HashSet::new(), Vec::new());
    let gate = Gate { files: gated, waiting, held, ended: Arc::clone(&ended), seen: Arc::clone(&seen) };
    let server = serve(gate, stored.clone()).await;
    let client = client(&[]);
    let mut options = CopyOptions::of(client.settings());
    // Memory is what counts here, not the disk.
    options.sync = false;
    (options.chunk_bytes, options.chunks, options.pages) = (CHUNK, 2, false);
    let copier = Copier::new(&client);
    let mut copies = JoinSet::new();
    for file in 0..files {
        let (local, remote) =
            (Place::Local(folder.file(file)), Place::Remote(server.url(&format!("/{file}"))));
        let (source, target) = if up { (local, remote) } else { (remote, local) };
        let job = CopyJob { source, target, size: Some(size(file) as u64) };
        let (copier, options, ended) = (copier.clone(), options.clone(), Arc::clone(&ended));
        copies.spawn(async move {
            let done = copier.copy(&job, &options, &Watch::default()).await;
            ended.fetch_add(1, Ordering::SeqCst);
            done.map(|done| done.size as usize == size(file))
        });
    }
    while let Some(copied) = copies.join_next().await {
        assert!(copied.unwrap().unwrap());
    }
    let seen = seen.lock().unwrap().take();
    (seen, stored)
}

fn check(seen: Seen, files: usize) {
    eprintln!("{files} copies at once: {seen:?}");
    assert_eq!(seen.ended, 0);
    assert!(seen.descriptors > files, "{seen:?}");
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(seen.threads <= cores + OTHER_THREADS, "{seen:?}");
    assert!(seen.resident_bytes < MEMORY_BYTES, "{seen:?}");
}

fn is_whole(path: &Path, file: usize) -> bool {
    std::fs::read(path).unwrap() == content(file, 0, size(file))
}

#[tokio::test]
async fn ten_thousand_copies_at_once() {
    let (files, folder) = (files(), Folder::new("down"));
    let (seen, _) = run(files, files, &folder, false).await;
    check(seen.unwrap(), files);
    assert!((0..files).all(|file| is_whole(&folder.file(file), file)));
    // Nothing but the files is left.
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), files);
    // The same files the other way.
    let (seen, stored) = run(files, files, &folder, true).await;
    check(seen.unwrap(), files);
    let stored = stored.lock().unwrap();
    assert_eq!(stored.len(), files);
    assert!(stored.iter().all(|(file, bytes)| *bytes == content(*file, 0, size(*file))));
}

/// Says that the test runs as a program of its own, with few descriptors.
const FEW: &str = "SCALLA_TEST_FEW_DESCRIPTORS";

#[test]
fn copies_wait_for_descriptors() {
    const NAME: &str = "copies_wait_for_descriptors";
    const FILES: usize = 500;
    if std::env::var_os(FEW).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = Folder::new("few");
        runtime.block_on(run(FILES, 1, &folder, false));
        assert!((0..FILES).all(|file| is_whole(&folder.file(file), file)));
        return;
    }
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 80; exec \"$0\" --exact \"$1\" --nocapture"]);
    command.arg(std::env::current_exe().unwrap()).arg(NAME).env(FEW, "1");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}
