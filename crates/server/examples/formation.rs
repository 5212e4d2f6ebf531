//! How fast a cluster forms over real sockets: a manager, supervisors and servers without files, all in this process, each
//! with its thread and its own connections on loopback.
//!
//! `cargo run --release -p scalla-server --example formation [servers] [supervisors]` (1000, 16). All nodes are started first,
//! the supervisors last; the clock runs from the moment the manager's port is opened, until every node has its place.

use base::Clock;
use cluster::tree::{Address, ChildSettings, Extensions, Login, Members, Mode, ParentSettings, SystemId};
use server::cluster::{Cluster, Role, Settings};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Stack of each node's thread is the system's; descriptors are what runs out first.
const DESCRIPTORS_PER_NODE: u64 = 12;

struct Time(Instant);

impl Clock for Time {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn today(&self) -> SystemTime {
        SystemTime::now()
    }
}

fn settings(name: &str, role: Role, manager: &Address) -> Settings {
    let mut settings = Settings::new(role);
    settings.listen.address = Some([127, 0, 0, 1].into());
    settings.outbox_bytes_max = 1 << 20;
    settings.cache.locations_max = 10_000;
    let (letter, mode) = match role {
        Role::Server => ('s', Mode::SERVER),
        Role::Supervisor => ('u', Mode::SERVER | Mode::MANAGER),
        Role::Manager | Role::MetaManager => ('m', Mode::MANAGER),
    };
    let id = SystemId::compose(letter, &format!("{name}@here"), None, "formation");
    if role.redirects() {
        let address = Address::new("127.0.0.1", if role == Role::Manager { manager.port() } else { 0 });
        settings.listen.port = address.port();
        settings.parent = Some(ParentSettings::new(role.acceptor(), id.clone(), address));
    }
    if role != Role::Manager {
        let login = Login {
            version: 3,
            mode: mode | Mode::BLREDIR | Mode::NOSTAGE,
            id: id.as_str().to_owned(),
            extensions: Extensions::ALL,
            ..Login::default()
        };
        settings.children.push(ChildSettings::new(vec![manager.clone()], login));
    }
    settings
}

/// Nodes of a role that have a parent, as the manager knows: at its own cell and in those below.
fn placed(members: &Members) -> usize {
    let below = members.directory().entries().iter();
    let below: usize =
        below.map(|cell| usize::from(cell.places.leaves) + usize::from(cell.places.parents)).sum();
    members.online().len() + below
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let (servers, supervisors) = (numbers.next().unwrap_or(1000), numbers.next().unwrap_or(16));
    let nodes = servers + supervisors;
    let wanted = DESCRIPTORS_PER_NODE * (nodes as u64 + 64);
    if let Err(error) = server::process::raise_descriptors(config::MaxFd { limit: wanted, strict: false }) {
        return println!("{wanted} descriptors are wanted: {error}");
    }
    let clock: Arc<dyn Clock> = Arc::new(Time(Instant::now()));
    // A port that is free now, for a manager that opens it when everybody is looking for it.
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|taken| taken.local_addr()).map_or(0, |at| at.port());
    let manager = Address::new("127.0.0.1", port);
    let start =
        |name: String, role| Cluster::start(settings(&name, role, &manager), clock.clone(), 1094, None);
    let run = || {
        let mut all = Vec::with_capacity(nodes);
        for number in 0..servers {
            all.push(start(format!("s{number}"), Role::Server)?);
        }
        for number in 0..supervisors {
            all.push(start(format!("u{number}"), Role::Supervisor)?);
        }
        println!("{nodes} nodes look for a manager");
        let begin = Instant::now();
        let root = start("m".to_owned(), Role::Manager)?;
        let mut told = 0;
        loop {
            let look = |engine: &mut server::cluster::Engine| engine.node().members().map_or(0, placed);
            let count = root.look(look).unwrap_or(0);
            if count * 4 / nodes > told {
                told = count * 4 / nodes;
                println!("{count:6} have their place after {:7.3} s", begin.elapsed().as_secs_f64());
            }
            if count >= nodes || begin.elapsed() > Duration::from_secs(120) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok::<_, server::StartError>(())
    };
    if let Err(error) = run() {
        println!("{error}");
    }
    // Thousands of threads need not say good-bye one by one.
    std::process::exit(0);
}
