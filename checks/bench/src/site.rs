//! Clusters of a manager and four servers, from either side or mixed, and a larger one of ours.
//!
//! The manager is measured with the requests that end with a redirect. All nodes of a cluster share
//! one configuration file, so that both programs run the same cluster.

use anyhow::{Context, bail};
use client::xroot::flags::OpenOptions;
use rawclient::{BlockingSession, Login, SessionError};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use wire::xroot::ErrorCode;

use crate::children::{ChildServer, SERVER_CPU, pinned, run};
use crate::data::Data;
use crate::figures::{Figure, Figures, Goal};
use crate::row::{CPU, MeasuredServers, OpenedFiles, Row, RowLoad, RowSetting, THROUGHPUT, bench};
use crate::server::{Server, ServerSide, XROOTD, free_port};

const CMSD: &str = "/usr/bin/cmsd";

/// Log text of both programs when they are ready.
const STARTED: &str = "initialization completed";

/// Instance name of the manager.
const MANAGER: &str = "manager";

/// A manager and its servers.
#[derive(Clone, Copy)]
struct CellPlan {
    /// Directory of the trees of the servers.
    trees: &'static str,
    servers: usize,
    /// Additional lines of the configuration.
    lines: &'static str,
}

const SMALL: CellPlan = CellPlan { trees: "cluster", servers: 4, lines: "" };

/// The maximum number of servers of a manager without supervisors. They list all their names.
const LARGE: CellPlan = CellPlan { trees: "large", servers: 64, lines: "scalla.inventory complete\n" };

/// Number of files that are opened before the measurement.
pub(crate) const KNOWN_FILES: usize = 10_000;

/// Number of new files of one measurement: for a quarter of a second with our manager, and longer
/// with theirs.
pub(crate) const NEW_FILES: usize = 10_000;

/// Number of files of one measurement in the larger cluster.
pub(crate) const FIRST_FILES: usize = 4096;

/// Maximum time for the formation of a cluster.
const FORMATION: Duration = Duration::from_secs(60);

/// Returns the directory of a server of a cluster.
fn tree(data: &Data, cell: CellPlan, server: usize) -> PathBuf {
    data.tree(false).join(format!("{}/{server}", cell.trees))
}

/// Goals for opens of files that the manager knows, with any kind of servers.
const KNOWN: [Goal; 3] =
    [Goal::at_least(THROUGHPUT, 4.0), Goal::at_most(Figure::P50, 0.6), Goal::at_most(CPU, 0.3)];

/// Goals for first opens.
const FIRST: [Goal; 1] = [Goal::at_most(Figure::P50, 0.5)];

/// Returns the loads that measure a manager.
pub(crate) fn rows() -> Vec<Row> {
    let setting = RowSetting { cast: MeasuredServers::Clusters, ..RowSetting::default() };
    let row = |name, title, load, goals: &[Goal]| Row {
        load,
        setting: setting.clone(),
        ..bench(name, title, "", "", "", goals)
    };
    let mixed = |name, title, load, goals: &[Goal]| Row {
        setting: RowSetting { cast: MeasuredServers::Managers, ..RowSetting::default() },
        ..row(name, title, load, goals)
    };
    vec![
        row(
            "redirect-known-c64",
            "opens sent on by a manager of four servers, files it knows, 64 connections",
            RowLoad::Located(OpenedFiles::Known),
            &KNOWN,
        ),
        row(
            "redirect-first-c8",
            "the same, files nobody has asked for, there when the servers started, 8 connections",
            RowLoad::Located(OpenedFiles::New),
            &FIRST,
        ),
        row(
            "redirect-placed-c8",
            "the same, files put on the servers' disks since, of which no server was told either",
            RowLoad::Located(OpenedFiles::Placed),
            &FIRST,
        ),
        row(
            "redirect-missing",
            "stat of a file that does not exist, one connection",
            RowLoad::Missing,
            &[Goal::at_most(Figure::P50, 20_000.0).of_ours()],
        ),
        mixed(
            "redirect-known-mixed-c64",
            "as redirect-known-c64, but the servers below either manager are real ones",
            RowLoad::Located(OpenedFiles::Known),
            &KNOWN,
        ),
        mixed(
            "redirect-first-mixed-c8",
            "as redirect-first-c8, but the servers below either manager are real ones",
            RowLoad::Located(OpenedFiles::New),
            &FIRST,
        ),
        misses(),
        Row {
            setting: RowSetting { cast: MeasuredServers::Root, ..RowSetting::default() },
            ..row(
                "restart",
                "our manager of four servers killed and started again, until it sends a client on",
                RowLoad::Restart,
                &[Goal::at_most(Figure::Wall, 1.0).of_ours()],
            )
        },
        Row {
            setting: RowSetting { cast: MeasuredServers::Root, fresh: true, ..RowSetting::default() },
            ..row(
                "formation-1000",
                "1,000 nodes started at once find their places, servers first",
                RowLoad::Formation,
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
        load: RowLoad::Misses,
        setting: RowSetting { cast: MeasuredServers::Large, ..RowSetting::default() },
        ..bench("misses-of-64", title, "", "", "", &goals)
    }
}

/// Distributes the files over the servers, each file to one server, with new files for this number
/// of measurements.
pub(crate) fn spread(data: &Data, measurements: u32) -> anyhow::Result<()> {
    (0..measurements).try_for_each(|number| fill(data, SMALL, &new_directory(number), NEW_FILES))?;
    fill(data, SMALL, "known", KNOWN_FILES)
}

/// Distributes files for measurements of first opens in the larger cluster.
pub(crate) fn spread_widely(data: &Data, measurements: u32) -> anyhow::Result<()> {
    (0..measurements).try_for_each(|number| fill(data, LARGE, &new_directory(number), FIRST_FILES))
}

fn new_directory(number: u32) -> String {
    format!("new{number}")
}

fn fill(data: &Data, cell: CellPlan, directory: &str, files: usize) -> anyhow::Result<()> {
    for server in 0..cell.servers {
        fs::create_dir_all(tree(data, cell, server).join(directory))?;
    }
    for file in 0..files {
        let path = tree(data, cell, file % cell.servers).join(directory).join(format!("f{file}"));
        fs::write(&path, b"here").with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the path of new files; `%d` stands for the number. The kernel has not looked them up
/// either, because its cache of missing names would make a second run faster. With `placed` they
/// are created now.
pub(crate) fn new_files(data: &Data, placed: bool) -> anyhow::Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static PLACED: AtomicU32 = AtomicU32::new(0);
    let directory = match placed {
        true => format!("placed{}", PLACED.fetch_add(1, Ordering::Relaxed)),
        false => new_directory(NEXT.fetch_add(1, Ordering::Relaxed)),
    };
    if placed {
        fill(data, SMALL, &directory, NEW_FILES)?;
    }
    Ok(format!("/{directory}/f%d"))
}

/// The common parameters of the nodes of a cluster.
struct NodePlan {
    directory: PathBuf,
    configuration: PathBuf,
    /// Port of the manager for clients.
    port: u16,
    cell: CellPlan,
}

fn plan(data: &Data, directory: &str, cell: CellPlan) -> anyhow::Result<NodePlan> {
    let directory = data.run_directory(directory)?;
    let (port, cluster_port) = (free_port()?, free_port()?);
    let file = directory.join("cluster.cfg");
    fs::write(&file, configuration(data, cell, &directory, port, cluster_port))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(NodePlan { directory, configuration: file, port, cell })
}

impl NodePlan {
    fn node(&self, data: &Data, side: ServerSide, name: &str) -> anyhow::Result<Vec<ChildServer>> {
        match side {
            ServerSide::Ours => Ok(vec![ours(data, &self.directory, &self.configuration, name)?]),
            _ => theirs(&self.directory, &self.configuration, name),
        }
    }

    fn servers(&self, data: &Data, side: ServerSide) -> anyhow::Result<Vec<ChildServer>> {
        let servers = (0..self.cell.servers).map(|number| self.node(data, side, &format!("s{number}")));
        Ok(servers.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
    }
}

/// Starts a manager above servers and waits until it knows all of them.
pub(crate) fn start(data: &Data, manager: ServerSide, servers: ServerSide) -> anyhow::Result<Server> {
    let whose = |side| if side == ServerSide::Ours { "ours" } else { "theirs" };
    let plan = plan(data, &format!("cluster-{}-above-{}", whose(manager), whose(servers)), SMALL)?;
    let mut all = plan.node(data, manager, MANAGER)?;
    let pids = all.iter().map(ChildServer::pid).collect();
    all.append(&mut plan.servers(data, servers)?);
    await_servers(&plan)?;
    Server::of(all, pids, plan.port, manager).context("a cluster without a process")
}

/// Starts our manager above the servers of the larger cluster, and waits until it knows all names
/// of all servers. It does not find a file created afterwards on their disks.
pub(crate) fn start_large(data: &Data) -> anyhow::Result<Server> {
    let plan = plan(data, "large-cluster", LARGE)?;
    let mut all = plan.node(data, ServerSide::Ours, MANAGER)?;
    let pids = all.iter().map(ChildServer::pid).collect();
    all.append(&mut plan.servers(data, ServerSide::Ours)?);
    await_servers(&plan)?;
    let server = Server::of(all, pids, plan.port, ServerSide::Ours).context("a cluster without a process")?;
    let until = Instant::now() + FORMATION;
    for number in 0.. {
        let directory = format!("hidden{number}");
        fill(data, LARGE, &directory, LARGE.servers)?;
        let mut session =
            BlockingSession::connect(&[server.address()], &Login::of_process("bench"), FORMATION)?;
        let mut is_hidden =
            |file: usize| session.size(&format!("/{directory}/f{file}")).is_err_and(is_missing);
        if (0..LARGE.servers).all(&mut is_hidden) {
            return Ok(server);
        }
        if Instant::now() > until {
            bail!("the servers of the cluster do not list all their names");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("the servers of the cluster do not list all their names")
}

/// Reports whether a server returned that a file does not exist.
pub(crate) fn is_missing(error: SessionError) -> bool {
    matches!(error, SessionError::Failed { code: ErrorCode::NOT_FOUND, .. })
}

/// Kills our manager and starts it again. Returns the seconds from the start of the new process
/// until it redirects a client to a file.
pub(crate) fn restart(data: &Data) -> anyhow::Result<Figures> {
    let plan = plan(data, "restarted-cluster", SMALL)?;
    let manager = plan.node(data, ServerSide::Ours, MANAGER)?;
    let _servers = plan.servers(data, ServerSide::Ours)?;
    await_servers(&plan)?;
    // Killed, as in a crash.
    drop(manager);
    let start = Instant::now();
    let _manager = plan.node(data, ServerSide::Ours, MANAGER)?;
    let address = SocketAddr::from(([127, 0, 0, 1], plan.port));
    let mut session = BlockingSession::connect(&[address], &Login::of_process("bench"), FORMATION)?;
    match session.open("/known/f1", OpenOptions::READ, 0) {
        Err(SessionError::Redirected { .. }) => {
            Ok(Figures::from([(Figure::Wall, start.elapsed().as_secs_f64())]))
        }
        other => bail!("the restarted manager does not redirect to a file: {other:?}"),
    }
}

/// Returns the configuration of all nodes and of both XRootD programs. Without `cms.delay startup`,
/// an XRootD manager waits 90 s for servers that it knew before.
fn configuration(data: &Data, cell: CellPlan, directory: &Path, port: u16, cluster_port: u16) -> String {
    let work = directory.display();
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

fn ours(data: &Data, directory: &Path, file: &Path, node: &str) -> anyhow::Result<ChildServer> {
    // The name of the program selects XRootD's command line and configuration.
    let link = directory.join("xrootd");
    if !link.exists() {
        symlink(data.program(), &link).with_context(|| format!("cannot create {}", link.display()))?;
    }
    let log = directory.join(format!("{node}.log"));
    let mut command = pinned(&link, SERVER_CPU);
    command.arg("-c").arg(file).args(["-n", node]).current_dir(directory);
    let mut running = ChildServer::start(command, &log, true)?;
    running.wait_for(&log, |text| text.contains(STARTED).then_some(()))?;
    Ok(running)
}

/// Starts cmsd first, because an xrootd that does not find it retries only after seconds.
fn theirs(directory: &Path, file: &Path, node: &str) -> anyhow::Result<Vec<ChildServer>> {
    let mut pair = Vec::new();
    for (program, name) in [(CMSD, "cmsd"), (XROOTD, "xrootd")] {
        let log = directory.join(format!("{node}.{name}.log"));
        let mut command = pinned(Path::new(program), SERVER_CPU);
        command.arg("-c").arg(file).args(["-n", node]).current_dir(directory);
        let mut running = ChildServer::start(command, &log, true)?;
        running.wait_for(&log, |text| text.contains(STARTED).then_some(()))?;
        pair.push(running);
    }
    Ok(pair)
}

/// Waits until the manager lists every server.
fn await_servers(plan: &NodePlan) -> anyhow::Result<()> {
    let port = plan.port;
    let until = Instant::now() + FORMATION;
    loop {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            let mut command = std::process::Command::new("/usr/bin/xrdfs");
            command.args([&format!("localhost:{port}"), "locate", "*"]);
            // Errors are ignored, because the other nodes may not be ready yet.
            let listed =
                run(command, Duration::from_secs(30)).map(|output| output.stdout).unwrap_or_default();
            let lines =
                String::from_utf8_lossy(&listed).lines().filter(|line| line.contains(" Server ")).count();
            if lines >= plan.cell.servers {
                return Ok(());
            }
        }
        if Instant::now() > until {
            bail!("the cluster did not form within {FORMATION:?}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
