//! The loads of proxies and caches that are more than one run of `scalla bench`.

use anyhow::{Context, bail};
use client::xroot::flags::OpenOptions;
use rawclient::{BlockingSession, Login};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::children::{CLIENT_CPU, pinned, run};
use crate::data::{Data, make_directory};
use crate::figures::{Figure, Figures};
use crate::measure::ProcessTime;
use crate::proxies::{CacheKind, PATIENCE, SMALL_CACHE, WARM, WARM_BYTES, start_proxy};
use crate::proxy_rows::ProxyTask;
use crate::row::{Row, RowLoad};
use crate::server::{Server, ServerSide};

/// The file of sparse readers, and the parts of it that they read: a part in each step, in requests of some size.
const SPARSE: &str = "proxy-sparse";
const SPARSE_BYTES: u64 = 650_000_000;
const PART_BYTES: u64 = 512 << 10;
const STEP_BYTES: u64 = PART_BYTES * 100 / 22;
const REQUEST_BYTES: u64 = 32 << 10;

/// The file of many readers.
const CROWD: &str = "proxy-crowd";
const CROWD_BYTES: u64 = 16 << 20;
const CROWD_READERS: u64 = 200;

/// The directory of the files that are cached before a start, and their number and size.
const SMALL: &str = "proxy-small";
const SMALL_FILES: usize = 10_000;
const SMALL_BYTES: &str = "10k";

/// Number of files of the size of [`WARM`] that are read through a small cache.
const FILLS: u64 = 8;

/// Returns a new name for a file of the origin. The name is in no cache.
fn new_name(data: &Data, file: &str) -> anyhow::Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("{file}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let tree = data.tree(false);
    fs::hard_link(tree.join(file), tree.join(&name)).with_context(|| format!("cannot link {file}"))?;
    Ok(name)
}

/// Writes the files that the loads need.
pub(crate) fn write_files(data: &Data, rows: &[Row]) -> anyhow::Result<()> {
    let is_used = |task| rows.iter().any(|row| matches!(row.load, RowLoad::Proxy(used) if used == task));
    let tree = data.tree(false);
    data.generate(&tree.join(WARM), &["--size", &WARM_BYTES.to_string()])?;
    set_old(&tree.join(WARM))?;
    for (task, file, bytes) in
        [(ProxyTask::Sparse, SPARSE, SPARSE_BYTES), (ProxyTask::Crowd, CROWD, CROWD_BYTES)]
    {
        if is_used(task) {
            data.generate(&tree.join(file), &["--size", &bytes.to_string()])?;
            set_old(&tree.join(file))?;
        }
    }
    if is_used(ProxyTask::Start) {
        make_directory(&tree.join(SMALL))?;
        let files = ["--size", SMALL_BYTES, "--files", &SMALL_FILES.to_string()];
        data.generate(&tree.join(SMALL).join("f%d"), &files)?;
        for entry in fs::read_dir(tree.join(SMALL))? {
            set_old(&entry?.path())?;
        }
    }
    Ok(())
}

/// Sets the modification of a file to a time long ago. Our caches do not keep files that were modified a moment ago.
fn set_old(path: &Path) -> anyhow::Result<()> {
    let time = SystemTime::now() - Duration::from_secs(100_000);
    let set = fs::File::options().write(true).open(path).and_then(|file| file.set_modified(time));
    set.with_context(|| format!("cannot set the time of {}", path.display()))
}

/// The arguments of `scalla bench` for a task, with the bytes that it needs of the origin.
pub(crate) fn arguments(data: &Data, task: ProxyTask) -> anyhow::Result<Option<(Vec<String>, u64)>> {
    let stream = |name: String, connections: u64, depth: u64, bytes: u64| {
        let operations = (connections * (bytes >> 20)).to_string();
        let (connections, depth) = (connections.to_string(), depth.to_string());
        let path = format!("/{name}");
        let all = ["stream", &path, "-s", "1m", "-c", &connections, "-d", &depth, "--discard"];
        let all = all.into_iter().chain(["--operations", &operations]);
        Some((all.map(str::to_owned).collect(), bytes))
    };
    Ok(match task {
        ProxyTask::Cold => stream(new_name(data, WARM)?, 1, 4, WARM_BYTES),
        ProxyTask::Crowd => stream(new_name(data, CROWD)?, CROWD_READERS, 1, CROWD_BYTES),
        ProxyTask::Sparse | ProxyTask::Start | ProxyTask::Fill => None,
    })
}

/// Reads a part in each step of a file, at positions between the limits of blocks.
pub(crate) fn sparse(data: &Data, server: &Server) -> anyhow::Result<Figures> {
    let (origin, name) = (server.origin()?, new_name(data, SPARSE)?);
    let mut session = connect(server.address())?;
    let file = session.open(&format!("/{name}"), OpenOptions::READ, 0)?;
    let (before, costs) = (origin.bytes_read()?, ProcessTime::from_now(server.pid())?);
    let (start, mut reads, mut bytes) = (Instant::now(), 0_u64, 0_u64);
    for step in 0..SPARSE_BYTES / STEP_BYTES {
        // Spread over the step, with a period that no block size has.
        let begin = step * STEP_BYTES + step * 7919 * 31 % (STEP_BYTES - PART_BYTES);
        for offset in (begin..begin + PART_BYTES).step_by(REQUEST_BYTES as usize) {
            let came = session.read(file, offset, REQUEST_BYTES as u32)?;
            if came.len() as u64 != REQUEST_BYTES {
                bail!("{} bytes at {offset}", came.len());
            }
            (reads, bytes) = (reads + 1, bytes + REQUEST_BYTES);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let used = costs.microseconds()?;
    let fetched = settled(|| origin.bytes_read())? - before;
    Ok(Figures::from([
        (Figure::Throughput, reads as f64 / seconds),
        (Figure::Cpu, used / reads as f64),
        (Figure::Fetched, fetched as f64 / bytes as f64),
    ]))
}

/// Waits until a count no longer changes, because a cache may still fetch.
fn settled(count: impl Fn() -> anyhow::Result<u64>) -> anyhow::Result<u64> {
    let (until, mut last) = (Instant::now() + Duration::from_secs(10), count()?);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = count()?;
        if now == last || Instant::now() > until {
            return Ok(now);
        }
        last = now;
    }
}

fn connect(address: SocketAddr) -> anyhow::Result<BlockingSession> {
    Ok(BlockingSession::connect(&[address], &Login::of_process("bench"), PATIENCE)?)
}

/// Starts a proxy with many cached files, and returns the seconds until a client has read one of them.
pub(crate) fn start(data: &Data, server: &Server) -> anyhow::Result<Figures> {
    let name = if server.side == ServerSide::Ours { "started-ours" } else { "started-theirs" };
    let (directory, origin) = (data.run_directory(name)?, server.origin()?);
    let cache = directory.join("cache");
    let kind = (server.side, CacheKind::Disk);
    if !cache.exists() {
        make_directory(&cache)?;
        let (proxy, port) = start_proxy(data, kind, origin, &directory)?;
        let target = data.downloaded();
        fs::create_dir(&target).with_context(|| format!("cannot create {}", target.display()))?;
        let mut command = pinned(&data.program(), CLIENT_CPU);
        let source = format!("root://127.0.0.1:{port}//{SMALL}");
        command.args(["cp", "--quiet", "-r", &source]).arg(&target);
        let copied = run(command, PATIENCE);
        fs::remove_dir_all(&target).ok();
        copied?;
        let files = settled(|| Ok(states(&cache.join(SMALL))))?;
        if files < SMALL_FILES as u64 {
            bail!("only {files} files are cached");
        }
        drop(proxy);
    }
    let start = Instant::now();
    let (proxy, port) = start_proxy(data, kind, origin, &directory)?;
    let mut session = connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
    let file = session.open(&format!("/{SMALL}/f77"), OpenOptions::READ, 0)?;
    if session.read(file, 0, 1000)?.len() != 1000 {
        bail!("a cached file is incomplete");
    }
    let seconds = start.elapsed().as_secs_f64();
    let used = ProcessTime::from_start(proxy.pid()).microseconds()?;
    Ok(Figures::from([(Figure::Wall, seconds), (Figure::Cpu, used)]))
}

/// Returns the number of cached files of a directory.
fn states(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".cinfo")).count() as u64
}

/// Reads more files than a small cache can have, and watches its size.
pub(crate) fn fill(data: &Data, server: &Server) -> anyhow::Result<Figures> {
    let (cache, most, is_done) = (server.cache()?, AtomicU64::new(0), AtomicBool::new(false));
    let costs = ProcessTime::from_now(server.pid())?;
    let seconds = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                most.fetch_max(allocated(&cache), Ordering::AcqRel);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let filled = read_all(data, server);
        is_done.store(true, Ordering::Release);
        filled
    })?;
    let used = costs.microseconds()?;
    let operations = ((FILLS * WARM_BYTES) >> 20) as f64;
    Ok(Figures::from([
        (Figure::Throughput, operations / seconds),
        (Figure::Cpu, used / operations),
        (Figure::OverLimit, most.into_inner() as f64 / SMALL_CACHE as f64),
    ]))
}

fn read_all(data: &Data, server: &Server) -> anyhow::Result<f64> {
    let start = Instant::now();
    for _ in 0..FILLS {
        let mut command = pinned(Path::new("/usr/bin/xrdcp"), CLIENT_CPU);
        let url = server.url(&format!("/{}", new_name(data, WARM)?));
        command.args(["--nopbar", "--force", &url, "/dev/null"]);
        run(command, PATIENCE)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Returns the bytes that the files of a directory occupy.
fn allocated(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => allocated(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(of_entry).sum()
}
