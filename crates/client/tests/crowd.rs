//! Ten thousand concurrent copies in one runtime of one thread.
//!
//! All copies have their files open and wait for the server at the same moment, which shows the
//! memory of each copy. Each byte must arrive at its place.

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

/// Number of concurrent copies.
const COPIES: usize = 10_000;
/// Size of a chunk; a file has two.
const CHUNK: usize = 4096;
/// Limit of the resident memory while all copies wait: 50 KiB for each. It includes the server,
/// which runs in the same process, and one chunk for each copy.
const MEMORY_BYTES: u64 = 500 << 20;
/// Number of threads in addition to one for each processor: those of the runtime and of the test
/// harness, and one spare.
const OTHER_THREADS: u64 = 4;

fn size(file: usize) -> usize {
    5000 + file % 3000
}

/// Returns the content of a file from byte `from` on: the number of the file and the offset at each
/// multiple of 8.
fn content(file: usize, from: usize, length: usize) -> Vec<u8> {
    let words = (from / 8)..(from + length).div_ceil(8);
    let all: Vec<u8> = words.flat_map(|word| (((file as u64) << 32) | word as u64).to_le_bytes()).collect();
    all[from % 8..][..length].to_vec()
}

/// Returns the number of a file with the path `/NUMBER`.
fn file_of(path: &str) -> usize {
    path.split('?').next().unwrap().trim_start_matches('/').parse().unwrap()
}

/// A directory that is removed with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scalla-crowd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, file: usize) -> PathBuf {
        self.0.join(file.to_string())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A snapshot of this process.
#[derive(Clone, Copy, Debug)]
struct Seen {
    threads: u64,
    resident_bytes: u64,
    descriptors: usize,
    /// Number of copies that had ended.
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

/// Holds replies back until the given number of files wait, and takes a snapshot of the process at
/// that moment.
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

/// The written bytes of each file.
type Stored = Arc<Mutex<HashMap<usize, Vec<u8>>>>;

/// Starts a server that serves `content` for each file and accepts uploads.
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

/// Raises the descriptor limit to the maximum and returns the number of files that it allows.
fn files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let most = limit.maximum.map_or(COPIES, |most| usize::try_from(most.saturating_sub(256)).unwrap());
    if most < COPIES {
        eprintln!("only {most} copies at once: raise the limit of descriptors (ulimit -Hn) for {COPIES}");
    }
    most.min(COPIES)
}

/// Runs all copies at once, as uploads or downloads, and returns the snapshot of the moment when
/// all of them waited.
async fn run(files: usize, gated: usize, directory: &Directory, up: bool) -> (Option<Seen>, Stored) {
    let (ended, seen, stored) = (Arc::default(), Arc::default(), Stored::default());
    let (waiting, held) = (HashSet::new(), Vec::new());
    let gate = Gate { files: gated, waiting, held, ended: Arc::clone(&ended), seen: Arc::clone(&seen) };
    let server = serve(gate, stored.clone()).await;
    let client = client(&[]);
    let mut options = CopyOptions::of(client.settings());
    // The test measures memory, not the disk.
    options.sync = false;
    (options.chunk_bytes, options.chunks, options.pages) = (CHUNK, 2, false);
    let copier = Copier::new(&client);
    let mut copies = JoinSet::new();
    for file in 0..files {
        let (local, remote) =
            (Place::Local(directory.file(file)), Place::Remote(server.url(&format!("/{file}"))));
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

/// Environment variable of a test that runs as a separate program.
const ALONE: &str = "SCALLA_TEST_ALONE";

/// Runs a test as a separate program, so that memory of other tests is not measured and its limits
/// are its own. Returns whether this is that program.
fn is_alone(name: &str, limits: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limits} exec \"$0\" --exact \"$1\" --nocapture")]);
    command.arg(std::env::current_exe().unwrap()).arg(name).env(ALONE, "1");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    eprint!("{}", String::from_utf8_lossy(&text));
    false
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn ten_thousand_concurrent_downloads_fit_into_memory() {
    if !is_alone("ten_thousand_concurrent_downloads_fit_into_memory", "") {
        return;
    }
    let (files, directory) = (files(), Directory::new("down"));
    let (seen, _) = block_on(run(files, files, &directory, false));
    check(seen.unwrap(), files);
    assert!((0..files).all(|file| is_whole(&directory.file(file), file)));
    // No other files remain.
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), files);
}

#[test]
fn ten_thousand_concurrent_uploads_fit_into_memory() {
    if !is_alone("ten_thousand_concurrent_uploads_fit_into_memory", "") {
        return;
    }
    let (files, directory) = (files(), Directory::new("up"));
    for file in 0..files {
        std::fs::write(directory.file(file), content(file, 0, size(file))).unwrap();
    }
    let (seen, stored) = block_on(run(files, files, &directory, true));
    check(seen.unwrap(), files);
    let stored = stored.lock().unwrap();
    assert_eq!(stored.len(), files);
    assert!(stored.iter().all(|(file, bytes)| *bytes == content(*file, 0, size(*file))));
}

#[test]
fn copies_wait_for_descriptors() {
    const FILES: usize = 500;
    if is_alone("copies_wait_for_descriptors", "ulimit -n 80;") {
        let directory = Directory::new("few");
        block_on(run(FILES, 1, &directory, false));
        assert!((0..FILES).all(|file| is_whole(&directory.file(file), file)));
    }
}
