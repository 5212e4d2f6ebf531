//! A small read of a file in memory allocates nothing: the regression test of the fast path.
//!
//! It counts each allocation of the process while clients send reads. The clients themselves
//! allocate nothing, so that each counted allocation belongs to the server. Reads are sent one by
//! one and pipelined, over one connection and over several.

#![allow(clippy::unwrap_used, reason = "helpers of a test stand outside of it")]

use base::{Clock, LogicalPath};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use wire::xroot::flags::{Ability, Ability2, OpenOptions, OpenTemplateOptions};
use wire::xroot::header::{FileHandle, Handshake, StreamId};
use wire::xroot::request::{Login, Open, Read as ReadRequest, Request};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Number of counted reads.
const READS: usize = 20_000;

/// Length of each read in bytes.
const LENGTH: usize = 2048;

/// Requests sent in one segment.
const BATCH: usize = 32;

/// Enough connections for their replies to be batched.
const CONNECTIONS: usize = 12;

/// Allowance for timers and the runtime, independent of the number of reads.
const ALLOCATIONS_MAX: usize = 64;

struct Now(Instant);

impl Clock for Now {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
    fn today(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Serves `directory` on a port chosen by the kernel.
fn serve(directory: &std::path::Path) -> u16 {
    let exports = vec![logical::config::ExportConfig::new(LogicalPath::root())];
    let config = logical::Config::new(exports, directory.join("admin"));
    let backend = Arc::new(storage::Posix::new(&storage::posix::Config::new(directory)).unwrap());
    let journals = logical::Journals::on_disk(&config);
    let files = logical::Logical::new(logical::LogicalParts {
        config,
        backend,
        clock: Arc::new(Now(Instant::now())),
        users: Arc::new(logical::NumberedUsers),
        locator: None,
        accounts: None,
        journals,
    })
    .unwrap();
    let door: Arc<dyn net::Door> = Arc::new(xroot::XrootDoor::new(xroot::Config::default(), files));
    let config = net::ListenerConfig {
        port: 0,
        address: Some("127.0.0.1".parse().unwrap()),
        socket: net::SocketConfig::default(),
        hail: Duration::from_secs(30),
        connections_max: 16,
    };
    let listener = net::Listener::bind(config).unwrap();
    let port = listener.local_address().unwrap().port();
    let loops = Arc::new(net::Loops::start(1).unwrap());
    // Batching needs io_uring; where the kernel forbids it, the test runs without.
    loops.handles()[0].run(|| net::enable_batching().unwrap_or_default());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let admission: net::Admission = Arc::new(|_| Box::pin(async { true }));
        runtime.block_on(listener.serve(loops, Arc::new([door]), admission, Arc::default())).unwrap();
    });
    port
}

/// Logs in and opens `/data`. The handle of the first file is 0.
fn open(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut out = Handshake::BYTES.to_vec();
    let login = Login {
        pid: 7,
        username: *b"counter\0",
        ability2: Ability2::NONE,
        ability: Ability::NONE,
        capver: 5,
        cgi: b"",
    };
    Request::Login(login).encode(StreamId([0, 1]), &mut out);
    let open = Open {
        mode: 0,
        options: OpenOptions::READ,
        optiont: OpenTemplateOptions::NONE,
        fhtemplt: FileHandle::default(),
        target: b"/data",
    };
    Request::Open(open).encode(StreamId([0, 2]), &mut out);
    stream.write_all(&out).unwrap();
    let mut replies = [0; 16 + 24 + 12];
    stream.read_exact(&mut replies).unwrap();
    assert_eq!(replies[40..], [0, 2, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0], "the file is open");
    stream
}

/// Sends the batch on each connection and reads its replies until all reads are done.
fn run(streams: &mut [TcpStream], batch: &[u8], count: usize, replies: &mut [u8]) {
    for _ in 0..READS / count / streams.len() {
        for stream in &mut *streams {
            stream.write_all(batch).unwrap();
        }
        for stream in &mut *streams {
            stream.read_exact(replies).unwrap();
            assert_eq!(replies[..8], [0, 3, 0, 0, 0, 0, 8, 0]);
        }
    }
}

#[test]
fn a_small_read_allocates_nothing() {
    let directory = std::env::temp_dir().join(format!("scalla-allocations-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("data"), vec![7; 1 << 20]).unwrap();
    let port = serve(&directory);
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| open(port)).collect();
    for (connections, count) in [(1, 1), (1, BATCH), (CONNECTIONS, 1), (CONNECTIONS, BATCH)] {
        let streams = &mut streams[..connections];
        let mut batch = Vec::new();
        for index in 0..count {
            let offset = (index * 5000) as i64;
            let read =
                ReadRequest { fhandle: FileHandle::default(), offset, rlen: LENGTH as i32, argument: None };
            Request::Read(read).encode(StreamId([0, 3]), &mut batch);
        }
        let mut replies = vec![0; count * (8 + LENGTH)];
        // Warms up the buffers.
        run(streams, &batch, count, &mut replies);
        let region = Region::new(COUNTED);
        run(streams, &batch, count, &mut replies);
        let change = region.change();
        let taken = change.allocations + change.reallocations;
        assert!(
            taken <= ALLOCATIONS_MAX,
            "{taken} allocations for {READS} reads, {count} at once by {connections}"
        );
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
