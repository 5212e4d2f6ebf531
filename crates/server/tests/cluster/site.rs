//! A test harness for nodes of a cluster inside the test's own process, with loopback sockets on
//! ports that the kernel chooses, so that tests can run in parallel.

use client::xroot::flags::{LocateOptions, OpenOptions};
use client::xroot::request::{Locate, Request};
use cluster::tree::{
    Address, ChildSettings, Extensions, LoginMessage as NodeLogin, Mode, NodeId, ParentSettings,
};
use config::{DirectorySetting, Effective, Port, Setting};
use rawclient::{BlockingSession, Login, SessionError};
use server::RunningServer;
use server::cluster::{ClusterEngine, NodeRole, Settings, acceptor_role};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use storage::Backend;

/// The deadline of every wait, longer than any operation of a correct node.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A directory for one test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("scalla-cluster-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A running node.
pub struct Node {
    pub running: RunningServer,
    pub data: PathBuf,
}

/// The nodes of a test, with their directories.
pub struct Site {
    scratch: Scratch,
    pub extensions: Extensions,
    /// The time after which a missing reply of an XRootD server means "not here".
    pub silence: Duration,
}

fn address(port: u16) -> Address {
    Address::new("127.0.0.1", port)
}

impl Site {
    /// Returns a directory for the files of a test.
    pub fn directory(&self) -> &std::path::Path {
        &self.scratch.0
    }

    pub fn new() -> Self {
        Self { scratch: Scratch::new(), extensions: Extensions::ALL, silence: PATIENCE / 2 }
    }

    fn effective(&self, name: &str, port: u16) -> (Effective, PathBuf) {
        let directory = self.scratch.0.join(name);
        let data = directory.join("data");
        std::fs::create_dir_all(&data).unwrap();
        let mut effective = Effective::for_directory(&data, false);
        effective.network.port =
            Setting::from_command_line(if port == 0 { Port::Any } else { Port::Number(port) });
        let admin = DirectorySetting { path: directory.join("admin"), group: false };
        effective.process.admin_path = Setting::from_command_line(admin);
        (effective, data)
    }

    fn settings(&self, name: &str, role: NodeRole, parents: &[&Node]) -> Settings {
        let mut settings = Settings::new(role);
        settings.listen.address = Some([127, 0, 0, 1].into());
        let (letter, mode) = match role {
            NodeRole::Server => ('s', Mode::SERVER),
            NodeRole::Supervisor => ('u', Mode::SERVER | Mode::MANAGER),
            NodeRole::Manager | NodeRole::MetaManager => ('m', Mode::MANAGER),
        };
        // Under a meta manager each manager has its own cluster; two managers of one cluster are
        // replicas of each other.
        let cluster = if role == NodeRole::Manager { name } else { "test" };
        let id = NodeId::compose(letter, &format!("{name}@here"), None, cluster);
        settings.resolve.silence = self.silence;
        if role.redirects() {
            let mut parent = ParentSettings::new(acceptor_role(role), id.clone(), address(0));
            parent.extensions = self.extensions;
            settings.parent = Some(parent);
        }
        if !parents.is_empty() {
            let managers = parents.iter().map(|parent| address(parent.cluster_address().port())).collect();
            let login = NodeLogin {
                version: 3,
                mode: mode | Mode::BLREDIR | Mode::NOSTAGE,
                id: id.as_str().to_owned(),
                paths: "w /".to_owned(),
                extensions: self.extensions,
                space: cluster::tree::SpaceReport { total_mb: 1000, free_mb: 500, ..Default::default() },
                ..NodeLogin::default()
            };
            settings.children.push(ChildSettings::new(managers, login));
        }
        settings
    }

    pub fn node(&self, name: &str, role: NodeRole, parents: &[&Node]) -> Node {
        self.node_with(name, role, parents, |_| {})
    }

    /// Starts a node with changed settings.
    pub fn node_with(
        &self,
        name: &str,
        role: NodeRole,
        parents: &[&Node],
        change: impl FnOnce(&mut Settings),
    ) -> Node {
        let (effective, data) = self.effective(name, 0);
        let mut settings = self.settings(name, role, parents);
        change(&mut settings);
        let running = RunningServer::listen_in_cluster(&effective, settings).unwrap();
        Node { running, data }
    }

    pub fn manager(&self, name: &str) -> Node {
        self.node(name, NodeRole::Manager, &[])
    }

    /// Starts a manager that buffers few bytes for a slow node.
    pub fn small_outboxes(&self, name: &str) -> Node {
        self.node_with(name, NodeRole::Manager, &[], |settings| settings.outbox_bytes_max = 64 * 1024)
    }

    pub fn server(&self, name: &str, parents: &[&Node]) -> Node {
        self.node(name, NodeRole::Server, parents)
    }

    /// Starts a server with the files of the node `of`.
    pub fn server_in(&self, of: &str, name: &str, parents: &[&Node]) -> Node {
        let (mut effective, _) = self.effective(name, 0);
        let (theirs, data) = self.effective(of, 0);
        effective.storage.local_root = theirs.storage.local_root;
        let settings = self.settings(name, NodeRole::Server, parents);
        Node { running: RunningServer::listen_in_cluster(&effective, settings).unwrap(), data }
    }

    /// Starts a server whose storage is wrapped by `wrap`.
    pub fn server_over(
        &self,
        name: &str,
        parents: &[&Node],
        wrap: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
    ) -> Node {
        let (effective, data) = self.effective(name, 0);
        let settings = self.settings(name, NodeRole::Server, parents);
        Node { running: RunningServer::listen_in_cluster_over(&effective, settings, wrap).unwrap(), data }
    }

    /// Starts a manager on the ports of one that has ended.
    pub fn manager_again(&self, name: &str, data: SocketAddr, cluster: SocketAddr) -> Node {
        self.manager_again_with(name, data, cluster, |_| {})
    }

    /// Starts a manager on the ports of one that has ended, with changed settings.
    pub fn manager_again_with(
        &self,
        name: &str,
        data: SocketAddr,
        cluster: SocketAddr,
        change: impl FnOnce(&mut Settings),
    ) -> Node {
        let (effective, directory) = self.effective(name, data.port());
        let mut settings = self.settings(name, NodeRole::Manager, &[]);
        change(&mut settings);
        settings.listen.port = cluster.port();
        let until = Instant::now() + PATIENCE;
        loop {
            // The system may release the ports with a delay.
            match RunningServer::listen_in_cluster(&effective, settings.clone()) {
                Ok(running) => return Node { running, data: directory },
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::yield_now();
        }
    }
}

impl Node {
    pub fn cluster_address(&self) -> SocketAddr {
        self.running.cluster().unwrap().address().unwrap()
    }

    pub fn port(&self) -> u16 {
        self.running.address().port()
    }

    pub fn look<T: Send + 'static>(&self, look: impl FnOnce(&mut ClusterEngine) -> T + Send + 'static) -> T {
        self.running.cluster().unwrap().look(look).unwrap()
    }

    /// Waits until a condition of the node's engine is true.
    pub fn until(&self, what: &str, is_so: impl Fn(&ClusterEngine) -> bool + Send + Clone + 'static) {
        until(what, || {
            let is_so = is_so.clone();
            self.look(move |engine| is_so(engine))
        });
    }

    /// Waits until this number of children serves and the cluster has settled.
    pub fn has_children(&self, count: usize) {
        self.until("children are here and settled", move |engine| {
            let active = engine.node().members().unwrap().members().filter(|(_, m)| m.is_active()).count();
            active == count && engine.resolver().unwrap().cell().quorum()
        });
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.data.join(path.trim_start_matches('/'))
    }

    pub fn put(&self, path: &str, content: &str) {
        let file = self.path(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }

    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    pub fn client(&self) -> Client {
        Client::at(self.port())
    }
}

/// A client that follows redirects.
pub struct Client {
    first: u16,
    /// The port of the node that sent the last answer, and the number of redirects.
    pub at: u16,
    pub hops: usize,
}

/// The error of a request: code and text.
pub type Refusal = (u32, String);

impl Client {
    pub fn at(port: u16) -> Self {
        Self { first: port, at: port, hops: 0 }
    }

    fn session(port: u16) -> BlockingSession {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        BlockingSession::connect(&[address], &Login::of_process("test"), PATIENCE).unwrap()
    }

    /// Makes a request and follows redirects.
    pub fn run<T>(
        &mut self,
        call: impl Fn(&mut BlockingSession) -> Result<T, SessionError>,
    ) -> Result<(BlockingSession, T), Refusal> {
        (self.at, self.hops) = (self.first, 0);
        loop {
            let mut session = Self::session(self.at);
            match call(&mut session) {
                Ok(value) => return Ok((session, value)),
                Err(SessionError::Redirected { host, port, .. }) => {
                    assert_eq!(host, "127.0.0.1");
                    (self.at, self.hops) = (port.unwrap(), self.hops + 1);
                    assert!(self.hops < 16, "a loop");
                }
                Err(SessionError::Failed { code, text }) => {
                    return Err((code.0, text.trim_end_matches('\0').to_owned()));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub fn read(&mut self, target: &str) -> Result<String, Refusal> {
        let (mut session, file) = self.run(|session| session.open(target, OpenOptions::READ, 0))?;
        Ok(String::from_utf8(session.read(file, 0, 1 << 20).unwrap()).unwrap())
    }

    /// Creates a file and returns the port of its server.
    pub fn create(&mut self, target: &str) -> Result<u16, Refusal> {
        let options = OpenOptions::NEW | OpenOptions::UPDT | OpenOptions::MKPATH;
        self.run(|session| session.open(target, options, 0o644))?;
        Ok(self.at)
    }

    pub fn size(&mut self, target: &str) -> Result<u64, Refusal> {
        Ok(self.run(|session| session.size(target))?.1)
    }

    pub fn call(&mut self, request: &Request<'_>) -> Result<String, Refusal> {
        let (_, answer) = self.run(|session| session.call(request))?;
        Ok(String::from_utf8(answer).unwrap().trim_end_matches('\0').to_owned())
    }

    /// Returns the ports of the nodes that have a path, as the first node reports them.
    pub fn locate(&mut self, path: &str) -> Result<Vec<String>, Refusal> {
        let locate = Locate { options: LocateOptions::NONE, path: path.as_bytes() };
        let text = self.call(&Request::Locate(locate))?;
        let mut places: Vec<String> = text.split(' ').map(str::to_owned).collect();
        places.sort();
        Ok(places)
    }
}

/// Waits until a condition outside of the nodes is true.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "still not: {what}");
        std::thread::yield_now();
    }
}

/// Returns the entry of a server in the reply to a locate.
pub fn place(kind: &str, node: &Node) -> String {
    format!("{kind}[::127.0.0.1]:{}", node.port())
}

/// Returns the entries of several servers, in order.
pub fn places(kind: &str, nodes: &[&Node]) -> Vec<String> {
    let mut places: Vec<String> = nodes.iter().map(|node| place(kind, node)).collect();
    places.sort();
    places
}
