//! Proxies of both sides in front of one origin, with a disk cache or without.
//!
//! The origin and the generator share a processor, so that the proxy has its own. Only the process of the proxy is
//! measured.

use anyhow::{Context, bail};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::children::{CLIENT_CPU, ChildServer, SERVER_CPU, pinned, run};
use crate::data::{Data, make_directory};
use crate::server::{Server, ServerSide, XROOTD, free_port};

/// Log text of both programs when they are ready.
const STARTED: &str = "initialization completed";
/// Maximum time of a copy, and of the writes to the disk after it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// The file that is in all caches before the measurement, with its size.
pub(crate) const WARM: &str = "proxy-warm";
pub(crate) const WARM_BYTES: u64 = 256 << 20;

/// The servers of a load of proxies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProxyPlan {
    pub(crate) cache: CacheKind,
    /// The side of the origin.
    pub(crate) origin: ServerSide,
    /// The server of the column *floor*.
    pub(crate) floor: ProxyFloor,
}

/// The cache of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CacheKind {
    None,
    /// On disk. [`WARM`] is in it.
    Disk,
    /// On disk, with at most [`SMALL_CACHE`] bytes.
    Small,
    /// In memory, for [`WARM`] and more.
    Memory,
}

/// Maximum size of a small cache.
pub(crate) const SMALL_CACHE: u64 = 512 << 20;

/// The server with which proxies are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProxyFloor {
    /// Our server with the files on its own disk.
    Local,
    /// The origin.
    Origin,
}

/// The origin of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OriginProcess {
    pub(crate) pid: u32,
    pub(crate) port: u16,
}

impl OriginProcess {
    /// Returns the bytes that the origin has read from its files so far, also from memory. Its sockets are not read
    /// with `read`, apart from small requests.
    pub(crate) fn bytes_read(self) -> anyhow::Result<u64> {
        let text =
            fs::read_to_string(format!("/proc/{}/io", self.pid)).context("cannot read the origin's I/O")?;
        let count = text.lines().find_map(|line| line.strip_prefix("rchar:"));
        count.and_then(|count| count.trim().parse().ok()).context("the kernel counts no reads")
    }
}

/// Starts an origin, the proxies of both sides, and the server for the column *floor*.
pub(crate) fn start(
    data: &Data,
    plan: ProxyPlan,
    local: impl FnOnce() -> anyhow::Result<Server>,
) -> anyhow::Result<Vec<Server>> {
    let (origin_process, origin) = start_origin(data, plan.origin)?;
    let mut servers = Vec::new();
    let mut origin_process = Some(origin_process);
    for side in [ServerSide::Ours, ServerSide::Theirs] {
        let name = format!("proxy-{}", side_name(side));
        let directory = data.run_directory(&name)?;
        make_directory(&directory.join("cache"))?;
        fs::remove_dir_all(directory.join("cache"))?;
        make_directory(&directory.join("cache"))?;
        let (proxy, port) = start_proxy(data, (side, plan.cache), origin, &directory)?;
        let pid = proxy.pid();
        let running = std::iter::once(proxy).chain(origin_process.take()).collect();
        let server = Server::of(running, vec![pid], port, side).context("a proxy has a process")?;
        let server = server.behind(origin, directory);
        if matches!(plan.cache, CacheKind::Disk | CacheKind::Memory) {
            warm(&server, plan.cache)?;
        }
        servers.push(server);
    }
    servers.push(match plan.floor {
        ProxyFloor::Local => local()?.on(ServerSide::Floor),
        ProxyFloor::Origin => {
            let server = Server::of(Vec::new(), vec![origin.pid], origin.port, ServerSide::Floor);
            server.context("an origin has a process")?
        }
    });
    Ok(servers)
}

fn side_name(side: ServerSide) -> &'static str {
    if side == ServerSide::Ours { "ours" } else { "theirs" }
}

fn start_origin(data: &Data, side: ServerSide) -> anyhow::Result<(ChildServer, OriginProcess)> {
    let directory = data.run_directory(&format!("origin-{}", side_name(side)))?;
    let lines = format!("oss.localroot {}\n", data.tree(false).display());
    let (origin, port) = start_server(data, (side, CLIENT_CPU), &directory, &lines)?;
    let pid = origin.pid();
    Ok((origin, OriginProcess { pid, port }))
}

/// Starts a proxy whose cache is the directory `cache` of `directory`.
pub(crate) fn start_proxy(
    data: &Data,
    (side, cache): (ServerSide, CacheKind),
    origin: OriginProcess,
    directory: &Path,
) -> anyhow::Result<(ChildServer, u16)> {
    let mut lines = format!("ofs.osslib libXrdPss.so\npss.origin 127.0.0.1:{}\n", origin.port);
    let disk = |limits: &str| {
        let cache = directory.join("cache");
        format!("pss.cachelib libXrdPfc.so\noss.localroot {}\npfc.diskusage {limits}\n", cache.display())
    };
    match cache {
        CacheKind::None => {}
        CacheKind::Disk => lines += &disk("0.98 0.99"),
        CacheKind::Small => {
            let [base, nominal, most] =
                [SMALL_CACHE / 4, SMALL_CACHE / 2, SMALL_CACHE].map(|bytes| bytes >> 20);
            lines += &disk(&format!("0.98 0.99 files {base}m {nominal}m {most}m purgeinterval 60"));
        }
        // Theirs caches reads of at most `max2cache`.
        CacheKind::Memory => lines += "pss.cache size 512m max2cache 1m\n",
    }
    start_server(data, (side, SERVER_CPU), directory, &lines)
}

/// Starts a server of a side with these lines on a processor. Returns its port too.
fn start_server(
    data: &Data,
    (side, cpu): (ServerSide, u32),
    directory: &Path,
    lines: &str,
) -> anyhow::Result<(ChildServer, u16)> {
    let (work, file, log) = (directory.display(), directory.join("xrootd.cfg"), directory.join("log"));
    let text = format!("all.export /\nall.adminpath {work}\nall.pidpath {work}\nxrd.network nodnr\n{lines}");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let program = if side == ServerSide::Ours { link(data, directory)? } else { PathBuf::from(XROOTD) };
    let port = free_port()?;
    let mut command = pinned(&program, cpu);
    command.arg("-c").arg(&file).args(["-p", &port.to_string()]).current_dir(directory);
    let mut running = ChildServer::start(command, &log, true)?;
    running.wait_for(&log, |text| text.contains(STARTED).then_some(()))?;
    Ok((running, port))
}

/// Returns our program under the name `xrootd`, which selects that command line and configuration.
fn link(data: &Data, directory: &Path) -> anyhow::Result<PathBuf> {
    let link = directory.join("xrootd");
    if !link.is_symlink() {
        symlink(data.program(), &link).with_context(|| format!("cannot create {}", link.display()))?;
    }
    Ok(link)
}

/// Reads [`WARM`] through a proxy, and waits until its disk has all of it.
fn warm(server: &Server, cache: CacheKind) -> anyhow::Result<()> {
    let mut command: Command = pinned(Path::new("/usr/bin/xrdcp"), CLIENT_CPU);
    // Larger reads are not kept in memory.
    command.env("XRD_CPCHUNKSIZE", "1048576");
    command.args(["--nopbar", "--force", &server.url(&format!("/{WARM}")), "/dev/null"]);
    run(command, PATIENCE)?;
    match cache {
        CacheKind::Disk => await_cached(&server.cache()?.join(WARM), WARM_BYTES),
        _ => Ok(()),
    }
}

/// Waits until this number of bytes of a file is on the disk.
fn await_cached(path: &Path, bytes: u64) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while fs::metadata(path).map_or(0, |meta| meta.blocks() * 512) < bytes {
        if Instant::now() > until {
            bail!("{} is incomplete after {PATIENCE:?}", path.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
