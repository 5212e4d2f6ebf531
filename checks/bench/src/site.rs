//! Clusters: a manager and four servers, ours or real ones, or our manager above real ones, from one configuration; and a
//! larger one of ours.
//!
//! What is measured is the manager: the requests that end with it telling a client where to go.

use anyhow::{Context, bail};
use client::xroot::flags::OpenOptions;
use client::{Login, Session, SessionError};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use wire::xroot::ErrorCode;

use crate::children::{Running, SERVER_CPU, pinned, run};
use crate::data::Data;
use crate::figures::{Figure, Figures, Goal};
use crate::rows::{CPU, Cast, Load, Row, Setting, THROUGHPUT, bench};
use crate::servers::{Server, Side, XROOTD, free_port};

const CMSD: &str = "/usr/bin/cmsd";

/// What both write to their log when they serve.
const STARTED: &str = "initialization completed";

/// Instance name of the manager.
const MANAGER: &str = "manager";

/// A manager and its servers.
#[derive(Clone, Copy)]
struct Cell {
    /// Where the trees of the servers are.
    trees: &'static str,
    servers: usize,
    /// Further lines of the configuration.
    lines: &'static str,
}

const SMALL: Cell = Cell { trees: "cluster", servers: 4, lines: "" };

/// As many servers as a manager has without supervisors. They list all their names.
const LARGE: Cell = Cell { trees: "large", servers: 64, lines: "scalla.inventory complete\n" };

/// Files that were asked for before they are measured.
pub(crate) const KNOWN_FILES: usize = 10_000;

/// Files of one measurement that nobody has asked for: for a quarter of a second at ours, more at theirs.
pub(crate) const NEW_FILES: usize = 10_000;

/// Files of one measurement in the larger cluster.
pub(crate) const FIRST_FILES: usize = 4096;

/// How long nodes may take to find each other.
const FORMATION: Duration = Duration::from_secs(60);

/// Where the files of a server of a cluster are.
fn tree(data: &Data, cell: Cell, server: usize) -> PathBuf {
    data.tree(false).join(format!("{}/{server}", cell.trees))
}

/// What is known of the files that a manager is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Files {
    /// They were asked for before.
    Known,
    /// Nobody has asked for them.
    New,
    /// The same, and they were put where they are by other means than a server, and after it had started.
    Placed,
}

/// What is asked of opens of files that the manager knows, whoever serves them.
const KNOWN: [Goal; 3] =
    [Goal::at_least(THROUGHPUT, 4.0), Goal::at_most(Figure::P50, 0.6), Goal::at_most(CPU, 0.3)];

/// And of those that nobody has asked for.
const FIRST: [Goal; 1] = [Goal::at_most(Figure::P50, 0.5)];

/// What a manager costs those who ask it where files are.
pub(crate) fn rows() -> Vec<Row> {
    let setting = Setting { cast: Cast::Clusters, ..Setting::default() };
    let row = |name, title, load, goals: &[Goal]| Row {
        load,
        setting: setting.clone(),
        ..bench(name, title, "", "", "", goals)
    };
    let mixed = |name, title, load, goals: &[Goal]| Row {
        setting: Setting { cast: Cast::Managers, ..Setting::default() },
        ..row(name, title, load, goals)
    };
    vec![
        row(
            "redirect-known-c64",
            "opens sent on by a manager of four servers, files it knows, 64 connections",
            Load::Located(Files::Known),
            &KNOWN,
        ),
        row(
            "redirect-first-c8",
            "the same, files nobody has asked for, there when the servers started, 8 connections",
            Load::Located(Files::New),
            &FIRST,
        ),
        row(
            "redirect-placed-c8",
            "the same, files put on the servers' disks since, of which no server was told either",
            Load::Located(Files::Placed),
            &FIRST,
        ),
        row(
            "redirect-missing",
            "stat of a file that does not exist, one connection",
            Load::Missing,
            &[Goal::at_most(Figure::P50, 20_000.0).of_ours()],
        ),
        mixed(
            "redirect-known-mixed-c64",
            "as redirect-known-c64, but the servers below either manager are real ones",
            Load::Located(Files::Known),
            &KNOWN,
        ),
        mixed(
            "redirect-first-mixed-c8",
            "as redirect-first-c8, but the servers below either manager are real ones",
            Load::Located(Files::New),
            &FIRST,
        ),
        misses(),
        Row {
            setting: Setting { cast: Cast::Root, ..Setting::default() },
            ..row(
                "restart",
                "our manager of four servers killed and started again, until it sends a client on",
                Load::Restart,
                &[Goal::at_most(Figure::Wall, 1.0).of_ours()],
            )
        },
        Row {
            setting: Setting { cast: Cast::Root, fresh: true, ..Setting::default() },
            ..row(
                "formation-1000",
                "1,000 nodes started at once find their places, servers first",
                Load::Formation,
                &[Goal::at_most(Figure::Wall, 5.0).of_ours()],
            )
        },
    ]
}

fn misses() -> Row {
    let goals =
        [Goal::at_least(THROUGHPUT, 85_000.0).of_ours(), Goal::at_most(Figure::MedianRise, 2.0).of_ours()];
    let title = "files that no server has, our manager of 64 servers that list all names, 8 connections, 64 in flight on each; \
                 latencies are of first opens by another connection beside them";
    Row {
        load: Load::Misses,
        setting: Setting { cast: Cast::Large, ..Setting::default() },
        ..bench("misses-of-64", title, "", "", "", &goals)
    }
}

/// Spreads the files over the servers: each is at one of them. There are new ones for so many measurements.
pub(crate) fn spread(data: &Data, measurements: u32) -> anyhow::Result<()> {
    (0..measurements).try_for_each(|number| fill(data, SMALL, &new_folder(number), NEW_FILES))?;
    fill(data, SMALL, "known", KNOWN_FILES)
}

/// The same in the larger cluster, for measurements of first opens.
pub(crate) fn spread_widely(data: &Data, measurements: u32) -> anyhow::Result<()> {
    (0..measurements).try_for_each(|number| fill(data, LARGE, &new_folder(number), FIRST_FILES))
}

fn new_folder(number: u32) -> String {
    format!("new{number}")
}

fn fill(data: &Data, cell: Cell, folder: &str, files: usize) -> anyhow::Result<()> {
    for server in 0..cell.servers {
        fs::create_dir_all(tree(data, cell, server).join(folder))?;
    }
    for file in 0..files {
        let path = tree(data, cell, file % cell.servers).join(folder).join(format!("f{file}"));
        fs::write(&path, b"here").with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The paths of files that nobody has asked for, neither a manager nor, for one, the kernel: it remembers which names are not on
/// a disk, and whoever asks for the same files next is served sooner. `%d` stands for the number. `placed`: made now.
pub(crate) fn new_files(data: &Data, placed: bool) -> anyhow::Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static PLACED: AtomicU32 = AtomicU32::new(0);
    let folder = match placed {
        true => format!("placed{}", PLACED.fetch_add(1, Ordering::Relaxed)),
        false => new_folder(NEXT.fetch_add(1, Ordering::Relaxed)),
    };
    if placed {
        fill(data, SMALL, &folder, NEW_FILES)?;
    }
    Ok(format!("/{folder}/f%d"))
}

/// What the nodes of a cluster have in common.
struct Plan {
    folder: PathBuf,
    configuration: PathBuf,
    /// Where clients of the manager connect to.
    port: u16,
    cell: Cell,
}

fn plan(data: &Data, folder: &str, cell: Cell) -> anyhow::Result<Plan> {
    let folder = data.run_folder(folder)?;
    let (port, cluster_port) = (free_port()?, free_port()?);
    let file = folder.join("cluster.cfg");
    fs::write(&file, configuration(data, cell, &folder, port, cluster_port))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(Plan { folder, configuration: file, port, cell })
}

impl Plan {
    fn node(&self, data: &Data, side: Side, name: &str) -> anyhow::Result<Vec<Running>> {
        match side {
            Side::Ours => Ok(vec![ours(data, &self.folder, &self.configuration, name)?]),
            _ => theirs(&self.folder, &self.configuration, name),
        }
    }

    fn servers(&self, data: &Data, side: Side) -> anyhow::Result<Vec<Running>> {
        let servers = (0..self.cell.servers).map(|number| self.node(data, side, &format!("s{number}")));
        Ok(servers.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
    }
}

/// Starts a manager of one side above servers of one, and waits until it knows all of them.
pub(crate) fn start(data: &Data, manager: Side, servers: Side) -> anyhow::Result<Server> {
    let whose = |side| if side == Side::Ours { "ours" } else { "theirs" };
    let plan = plan(data, &format!("cluster-{}-above-{}", whose(manager), whose(servers)), SMALL)?;
    let mut all = plan.node(data, manager, MANAGER)?;
    let pids = all.iter().map(Running::pid).collect();
    all.append(&mut plan.servers(data, servers)?);
    await_servers(&plan)?;
    Server::of(all, pids, plan.port, manager).context("a cluster without a process")
}

/// Starts a manager of ours above the servers of the larger cluster, and waits until it knows all names of all of them: a file
/// that is put on their disks is not found then.
pub(crate) fn start_large(data: &Data) -> anyhow::Result<Server> {
    let plan = plan(data, "large-cluster", LARGE)?;
    let mut all = plan.node(data, Side::Ours, MANAGER)?;
    let pids = all.iter().map(Running::pid).collect();
    all.append(&mut plan.servers(data, Side::Ours)?);
    await_servers(&plan)?;
    let server = Server::of(all, pids, plan.port, Side::Ours).context("a cluster without a process")?;
    let until = Instant::now() + FORMATION;
    for number in 0.. {
        let folder = format!("hidden{number}");
        fill(data, LARGE, &folder, LARGE.servers)?;
        let mut session = Session::connect(&[server.address()], &Login::of_process("bench"), FORMATION)?;
        let mut is_hidden = |file: usize| session.size(&format!("/{folder}/f{file}")).is_err_and(is_missing);
        if (0..LARGE.servers).all(&mut is_hidden) {
            return Ok(server);
        }
        if Instant::now() > until {
            bail!("the servers of a cluster do not list all their names");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("the servers of a cluster do not list all their names")
}

/// Reports whether a server says that a file does not exist.
pub(crate) fn is_missing(error: SessionError) -> bool {
    matches!(error, SessionError::Failed { code: ErrorCode::NOT_FOUND, .. })
}

/// Kills our manager and starts it again: seconds from the start of the new one until it sends a client on to a file.
pub(crate) fn restart(data: &Data) -> anyhow::Result<Figures> {
    let plan = plan(data, "restarted-cluster", SMALL)?;
    let manager = plan.node(data, Side::Ours, MANAGER)?;
    let _servers = plan.servers(data, Side::Ours)?;
    await_servers(&plan)?;
    // Ends as a crash would end it.
    drop(manager);
    let start = Instant::now();
    let _manager = plan.node(data, Side::Ours, MANAGER)?;
    let address = SocketAddr::from(([127, 0, 0, 1], plan.port));
    let mut session = Session::connect(&[address], &Login::of_process("bench"), FORMATION)?;
    match session.open("/known/f1", OpenOptions::READ, 0) {
        Err(SessionError::Redirected { .. }) => {
            Ok(Figures::from([(Figure::Wall, start.elapsed().as_secs_f64())]))
        }
        other => bail!("a manager that was started again does not send on to a file: {other:?}"),
    }
}

/// One file for all nodes and both real programs. The real manager waits a minute and a half for servers that it knew before,
/// unless told otherwise.
fn configuration(data: &Data, cell: Cell, folder: &Path, port: u16, cluster_port: u16) -> String {
    let work = folder.display();
    let mut text = format!(
        "all.export /\nall.adminpath {work}\nall.pidpath {work}\nxrd.network nodnr\n\
         all.manager localhost:{cluster_port}\ncms.delay startup 1 servers {}\n\
         cms.space min 1m 2m\n\
         if named manager\nall.role manager\nfi\n\
         if exec xrootd && named manager\nxrd.port {port}\nfi\n\
         if exec cmsd && named manager\nxrd.port {cluster_port}\nfi\n{}",
        cell.servers, cell.lines
    );
    for server in 0..cell.servers {
        let tree = tree(data, cell, server);
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

/// Waits until every server is in the manager's list.
fn await_servers(plan: &Plan) -> anyhow::Result<()> {
    let port = plan.port;
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
            if lines >= plan.cell.servers {
                return Ok(());
            }
        }
        if Instant::now() > until {
            bail!("the nodes of a cluster do not find each other");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
