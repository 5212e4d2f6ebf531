//! A cluster under test: a manager and its data servers, each a process of the program.

pub(crate) mod campaigns;
mod noise;
mod opens;
mod visitor;

use crate::process::{Scratch, ServerProcess};
use anyhow::{Context, Result, bail};
use server::admin::AdminRequest;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time in which the nodes find each other, or a state is reached.
const REACHED_MAX: Duration = Duration::from_secs(60);

/// Between two looks at a state.
const LOOK: Duration = Duration::from_millis(20);

/// A manager and its servers. Dropping it ends all of them.
pub(crate) struct TestCluster {
    /// The port of the manager for clients.
    port: u16,
    /// The port of the manager for nodes.
    node_port: u16,
    manager: ServerProcess,
    servers: Vec<DataServer>,
    scratch: Scratch,
    /// Directories of new files that were made.
    directories: usize,
}

struct DataServer {
    port: u16,
    process: ServerProcess,
    is_killed: bool,
}

impl DataServer {
    /// Ends it as a crash would.
    fn kill(&mut self) {
        self.is_killed = true;
        self.process.kill();
    }
}

impl TestCluster {
    /// Starts a manager and as many servers; returns when it serves with all of them.
    fn start(program: &Path, servers: usize) -> Result<Self> {
        let scratch = Scratch::create()?;
        let common = ["--port", "0", "--admin-path", "admin"];
        let arguments = [&["manager", "--cluster-port", "0", "--instance", "manager"], &common[..]].concat();
        let (manager, port) = ServerProcess::start(program, &scratch, "manager", &arguments)?;
        let mut cluster = Self { port, node_port: 0, manager, servers: Vec::new(), scratch, directories: 0 };
        let status = cluster.status()?;
        let address = status["cluster_address"].as_str().context("cluster_address")?;
        cluster.node_port = address.rsplit(':').next().context("a port")?.parse()?;
        let parent = format!("localhost:{}", cluster.node_port);
        for number in 0..servers {
            let name = format!("s{number}");
            fs::create_dir(cluster.scratch.path().join(&name))?;
            // They take files on small disks too.
            let own = ["serve", &name, "--instance", &name, "--manager", &parent, "--min-free", "1m"];
            let arguments = [&own, &common[..]].concat();
            let (process, port) = ServerProcess::start(program, &cluster.scratch, &name, &arguments)?;
            cluster.servers.push(DataServer { port, process, is_killed: false });
        }
        cluster.await_children("serving", servers)?;
        Ok(cluster)
    }

    /// The state of the manager.
    fn status(&self) -> Result<serde_json::Value> {
        self.scratch.ask("admin/manager/.scalla/xrootd.sock", &AdminRequest::ClusterStatus {})
    }

    /// Waits until `count` children are in a state.
    fn await_children(&self, state: &str, count: usize) -> Result<()> {
        self.await_status(&format!("{count} nodes are {state}"), |status| {
            let children = status["children"].as_array().map(Vec::as_slice).unwrap_or_default();
            children.iter().filter(|child| child["state"] == state).count() >= count
        })
    }

    fn await_status(&self, what: &str, is_reached: impl Fn(&serde_json::Value) -> bool) -> Result<()> {
        let until = Instant::now() + REACHED_MAX;
        loop {
            let status = self.status()?;
            if is_reached(&status) {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("the manager does not report that {what}: {status}");
            }
            std::thread::sleep(LOOK);
        }
    }

    fn server(&mut self, number: usize) -> Result<&mut DataServer> {
        self.servers.get_mut(number).context("no such server")
    }

    /// Puts new files on the disk of a server, where no program knows of them; returns their paths.
    fn put_files(&mut self, server: usize, count: usize) -> Result<Vec<String>> {
        let name = format!("put{}", self.directories);
        self.directories += 1;
        let directory = self.scratch.path().join(format!("s{server}/{name}"));
        fs::create_dir(&directory)?;
        let put = |number| {
            fs::write(directory.join(format!("f{number}")), "x")?;
            Ok(format!("/{name}/f{number}"))
        };
        (0..count).map(put).collect()
    }

    /// Fails if a process has ended by itself.
    fn check_alive(&mut self) -> Result<()> {
        self.manager.check_alive()?;
        let mut left = self.servers.iter_mut().filter(|server| !server.is_killed);
        left.try_for_each(|server| server.process.check_alive())
    }
}
