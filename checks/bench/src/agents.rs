//! Many cluster nodes in few processes, each with its own connections and thread, without files.
//!
//! The time for forming a cluster depends only on messages over real sockets, so the nodes need no
//! files.

use anyhow::{Context, bail};
use cluster::tree::{
    Address, ChildSettings, Extensions, LoginMessage, Mode, NodeId, ParentSettings, SpaceReport,
};
use server::SystemClock;
use server::cluster::{ClusterThread, NodeRole, Settings, acceptor_role};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::children::ChildServer;
use crate::figures::{Figure, Figures};
use crate::server::Server;

/// Servers in each process, and the number of such processes.
const SERVERS: usize = 246;
const PROCESSES: usize = 4;

/// Supervisors, which share one process.
const SUPERVISORS: usize = 16;

/// Interval of polling whether all nodes have a place.
const LOOK: Duration = Duration::from_millis(5);

/// Printed by an agent when all its nodes have a place.
const FORMED: &str = "formed";

/// Kind of the nodes of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum AgentKind {
    Manager,
    Supervisor,
    Server,
}

/// Runs `count` nodes until killed. A manager prints `port N`. The others log in to the one at
/// `manager`, and print a line when all of them have a place.
pub(crate) fn serve(kind: AgentKind, count: usize, manager: u16) -> anyhow::Result<()> {
    let start = |number| {
        let settings = settings(kind, number, manager);
        // No client connects to the data ports, but they are part of a node's identity.
        let port = u16::try_from(10_000 + number % 50_000).unwrap_or(u16::MAX);
        ClusterThread::start(settings, Arc::new(SystemClock::new()), port, None, &base::Supervisor::default())
    };
    let nodes: Vec<ClusterThread> = (0..count).map(start).collect::<Result<_, _>>()?;
    if kind == AgentKind::Manager {
        let port = nodes.first().and_then(ClusterThread::address).context("a manager without a port")?.port();
        println!("port {port}");
    } else {
        // A node with a place usually keeps it, so each node is awaited only once.
        for node in &nodes {
            let has_place = |engine: &mut server::cluster::ClusterEngine| {
                engine.node().memberships().iter().all(|m| m.is_attached())
            };
            while node.look(has_place) != Some(true) {
                std::thread::sleep(LOOK);
            }
        }
        println!("{FORMED}");
    }
    loop {
        std::thread::park();
    }
}

fn settings(kind: AgentKind, number: usize, manager: u16) -> Settings {
    let (role, letter, mode) = match kind {
        AgentKind::Manager => (NodeRole::Manager, 'm', Mode::MANAGER),
        AgentKind::Supervisor => (NodeRole::Supervisor, 'u', Mode::SERVER | Mode::MANAGER),
        AgentKind::Server => (NodeRole::Server, 's', Mode::SERVER),
    };
    let mut settings = Settings::new(role);
    settings.listen.address = Some([127, 0, 0, 1].into());
    let name = format!("{number}-{}@here", std::process::id());
    let id = NodeId::compose(letter, &name, None, "bench");
    if role.redirects() {
        let mut parent = ParentSettings::new(acceptor_role(role), id.clone(), Address::new("127.0.0.1", 0));
        parent.extensions = Extensions::ALL;
        settings.parent = Some(parent);
    }
    if kind != AgentKind::Manager {
        let login = LoginMessage {
            version: 3,
            mode: mode | Mode::BLREDIR | Mode::NOSTAGE,
            id: id.as_str().to_owned(),
            paths: "w /".to_owned(),
            extensions: Extensions::ALL,
            space: SpaceReport { total_mb: 1000, free_mb: 500, ..SpaceReport::default() },
            ..LoginMessage::default()
        };
        settings.children.push(ChildSettings::new(vec![Address::new("127.0.0.1", manager)], login));
    }
    settings
}

/// Starts a thousand nodes below a newly started manager and returns the seconds until the last one
/// has a place. Servers start first, which is the harder order.
pub(crate) fn form(manager: &Server, directory: &Path) -> anyhow::Result<Figures> {
    let start = Instant::now();
    let kinds = std::iter::repeat_n((AgentKind::Server, SERVERS), PROCESSES)
        .chain([(AgentKind::Supervisor, SUPERVISORS)]);
    let mut agents = Vec::new();
    for (number, (kind, count)) in kinds.enumerate() {
        let log = directory.join(format!("agents-{number}.log"));
        let own = std::env::current_exe().context("cannot determine the path of this program")?;
        let mut command = std::process::Command::new(own);
        command.args(["--agents", &count.to_string(), "--agents-are"]).arg(match kind {
            AgentKind::Manager => bail!("an agent cannot be a manager here"),
            AgentKind::Supervisor => "supervisor",
            AgentKind::Server => "server",
        });
        command.args(["--manager", &manager.address().port().to_string()]);
        agents.push((ChildServer::start(command, &log, false)?, log));
    }
    for (agent, log) in &mut agents {
        agent.wait_for(log, |text| text.contains(FORMED).then_some(()))?;
    }
    Ok(Figures::from([(Figure::Wall, start.elapsed().as_secs_f64())]))
}
