//! Clusters: a manager and four servers, ours or real ones, from one configuration.
//!
//! What is measured is the manager: the requests that end with it telling a client where to go.

use anyhow::{Context, bail};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::children::{Running, SERVER_CPU, pinned, run};
use crate::data::Data;
use crate::servers::{Server, Side, XROOTD};

const CMSD: &str = "/usr/bin/cmsd";

/// What both write to their log when they serve.
const STARTED: &str = "initialization completed";

/// Servers of a cluster.
const SERVERS: usize = 4;

/// Files that were asked for before they are measured.
pub(crate) const KNOWN_FILES: usize = 10_000;

/// Files of one measurement that nobody has asked for.
pub(crate) const NEW_FILES: usize = 1_000;

/// How long nodes may take to find each other.
const FORMATION: Duration = Duration::from_secs(60);

/// Where the files of a server of a cluster are.
pub(crate) fn tree(data: &Data, server: usize) -> PathBuf {
    data.tree(false).join(format!("cluster/{server}"))
}

/// Spreads the files over the servers: each is at one of them. There are new ones for each of `pairs` measurements.
pub(crate) fn spread(data: &Data, pairs: u32) -> anyhow::Result<()> {
    let folders = (0..pairs).map(|pair| (new_folder(pair), NEW_FILES));
    for (folder, files) in folders.chain([("known".to_owned(), KNOWN_FILES)]) {
        for server in 0..SERVERS {
            fs::create_dir_all(tree(data, server).join(&folder))?;
        }
        for file in 0..files {
            let path = tree(data, file % SERVERS).join(&folder).join(format!("f{file}"));
            fs::write(&path, b"here").with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// The folder of files that are new in a measurement.
pub(crate) fn new_folder(pair: u32) -> String {
    format!("new{pair}")
}

/// Starts a cluster, and waits until the manager knows all servers.
pub(crate) fn start(data: &Data, side: Side) -> anyhow::Result<Server> {
    let folder = data.run_folder(if side == Side::Ours { "ours-cluster" } else { "their-cluster" })?;
    for server in 0..SERVERS {
        data.run_folder(&format!("{}/n{server}", folder.display()))?;
    }
    let (port, cluster_port) = (free_port()?, free_port()?);
    let file = folder.join("cluster.cfg");
    fs::write(&file, configuration(data, &folder, port, cluster_port))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let mut all = Vec::new();
    let mut manager = Vec::new();
    for node in std::iter::once("manager".to_owned()).chain((0..SERVERS).map(|n| format!("s{n}"))) {
        let mut nodes = match side {
            Side::Ours => vec![ours(data, &folder, &file, &node)?],
            _ => theirs(&folder, &file, &node)?,
        };
        if node == "manager" {
            manager.extend(nodes.iter().map(Running::pid));
        }
        all.append(&mut nodes);
    }
    await_servers(port)?;
    Server::of(all, manager, port, side).context("a cluster without a process")
}

/// One file for all nodes and both real programs. The real manager waits a minute and a half for servers that it knew before,
/// unless told otherwise.
fn configuration(data: &Data, folder: &Path, port: u16, cluster_port: u16) -> String {
    let work = folder.display();
    let mut text = format!(
        "all.export /\nall.adminpath {work}\nall.pidpath {work}\nxrd.network nodnr\n\
         all.manager localhost:{cluster_port}\ncms.delay startup 1 servers {SERVERS}\n\
         cms.space min 1m 2m\n\
         if named manager\nall.role manager\nfi\n\
         if exec xrootd && named manager\nxrd.port {port}\nfi\n\
         if exec cmsd && named manager\nxrd.port {cluster_port}\nfi\n"
    );
    for server in 0..SERVERS {
        let tree = tree(data, server);
        text += &format!(
            "if named s{server}\nall.role server\noss.localroot {}\nxrd.port any\nfi\n",
            tree.display()
        );
    }
    text
}

fn ours(data: &Data, folder: &Path, file: &Path, node: &str) -> anyhow::Result<Running> {
    // Its name chooses XRootD's command line and configuration.
    let link = folder.join("xrootd");
    if !link.exists() {
        symlink(data.program(), &link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    let log = folder.join(format!("{node}.log"));
    let mut command = pinned(&link, SERVER_CPU);
    command.arg("-c").arg(file).args(["-n", node]).current_dir(folder);
    let mut running = Running::start(command, &log, true)?;
    running.wait_for(&log, |text| text.contains(STARTED).then_some(()))?;
    Ok(running)
}

/// The cmsd first: an xrootd that does not find it looks again only seconds later.
fn theirs(folder: &Path, file: &Path, node: &str) -> anyhow::Result<Vec<Running>> {
    let mut pair = Vec::new();
    for (program, name) in [(CMSD, "cmsd"), (XROOTD, "xrootd")] {
        let log = folder.join(format!("{node}.{name}.log"));
        let mut command = pinned(Path::new(program), SERVER_CPU);
        command.arg("-c").arg(file).args(["-n", node]).current_dir(folder);
        let mut running = Running::start(command, &log, true)?;
        running.wait_for(&log, |text| text.contains(STARTED).then_some(()))?;
        pair.push(running);
    }
    Ok(pair)
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until every server is in the manager's list.
fn await_servers(port: u16) -> anyhow::Result<()> {
    let until = Instant::now() + FORMATION;
    loop {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            let mut command = std::process::Command::new("/usr/bin/xrdfs");
            command.args([&format!("localhost:{port}"), "locate", "*"]);
            // Whatever goes wrong is over soon, if it is only that the others are not there yet.
            let listed =
                run(command, Duration::from_secs(30)).map(|output| output.stdout).unwrap_or_default();
            let lines =
                String::from_utf8_lossy(&listed).lines().filter(|line| line.contains(" Server ")).count();
            if lines >= SERVERS {
                return Ok(());
            }
        }
        if Instant::now() > until {
            bail!("the nodes of a cluster do not find each other");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
