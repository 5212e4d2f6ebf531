//! Placement of new files, with late creators, readers in between, and several managers.
//!
//! Invariant: no file is ever created at two servers.

use std::time::Duration;

use crate::client::ClientResult;
use crate::formation::Formation;
use crate::host::HostKind;
use crate::messages::{Name, RequestedAction};
use crate::own_process::Sabotage;
use crate::sim_rng::SimRng;
use crate::world::{NetworkConditions, World};

/// The number of histories in one world, each of one file.
pub const FILES_PER_WORLD: usize = 10;

/// The time within which creators reach their server; it is longer than a lease.
const ARRIVAL_MAX: Duration = Duration::from_secs(45);

/// The time in which clients reach a server if managers may choose differently. They may if they
/// know different servers, or if a supervisor answers all of them at the same moment. Within one
/// round trip the managers do not receive each other's choices.
const DISTANCE: Duration = Duration::from_millis(20);

/// The time within which all clients begin.
const WITHIN: Duration = Duration::from_secs(25);

/// The maximum cut of a server's connections, so that it reconnects while it is expected.
/// Afterwards its files count as lost.
const CUT_MAX: Duration = Duration::from_secs(16);

/// The minimum time between two cuts of a server, because its parents count its absence from the
/// first loss.
const STAYED: Duration = Duration::from_secs(10);

/// The maximum cut of the connection to one of several parents. Beyond the time of a lease, parents
/// choose independently if only one of them reaches a server.
const PARTIAL_CUT_MAX: Duration = Duration::from_secs(12);

/// The time after which managers choose other servers for the files of a lost one.
const LONG_ABSENCE: Duration = Duration::from_secs(40);

/// The time within which an ended process restarts.
const DOWN_MAX: Duration = Duration::from_secs(8);

/// The time after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(200);

/// The results of one world.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlacementOutcome {
    /// Existing files.
    pub created: usize,
    /// Creators that were sent back because they came too late, or had to wait for another one.
    pub repeated: usize,
    /// Readers that received "not found".
    pub missing: usize,
    /// Clients that gave up.
    pub failed: usize,
}

impl PlacementOutcome {
    /// Returns the sum of two worlds.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            created: self.created + other.created,
            repeated: self.repeated + other.repeated,
            missing: self.missing + other.missing,
            failed: self.failed + other.failed,
        }
    }
}

/// The faults while clients create files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlacementFault {
    /// Servers are suspended briefly.
    Suspensions,
    /// Connections between nodes are cut while clients reach all of them, and processes are
    /// restarted.
    Outages,
    /// The same faults below supervisors: connections of servers and supervisors are cut, and
    /// supervisors are restarted, too.
    Branches,
    /// Servers are new to the managers, which accept them at different times.
    Growth,
    /// The same with servers that do not wait until all managers know them. Then managers choose
    /// differently, and leases have to end.
    Divergence,
}

impl PlacementFault {
    /// All kinds in which each file is created once. With [`Self::Divergence`], that depends on the
    /// time that clients need.
    pub const ALL: [Self; 4] = [Self::Suspensions, Self::Outages, Self::Branches, Self::Growth];
}

/// Returns a small tree of random shape.
fn formed(seed: u64, trouble: PlacementFault, sabotage: Option<Sabotage>) -> World {
    let mut rng = SimRng::new(seed);
    let mut between = |least: usize, most: usize| least + rng.below((most - least + 1) as u64) as usize;
    let (managers, servers, supervisors) = match trouble {
        PlacementFault::Suspensions | PlacementFault::Outages => {
            (between(1, 3), between(2, 5), between(0, 3))
        }
        PlacementFault::Branches => (between(1, 3), between(2, 5), between(1, 3)),
        PlacementFault::Growth | PlacementFault::Divergence => (between(2, 3), between(1, 2), between(0, 1)),
    };
    // Some servers are below supervisors: in one third of the worlds none, in another third all.
    let below: Vec<bool> = match (trouble, seed % 3) {
        (PlacementFault::Outages | PlacementFault::Growth | PlacementFault::Divergence, _)
        | (PlacementFault::Suspensions, 0) => vec![false; servers],
        (PlacementFault::Branches, 0) | (_, 1) => (0..servers).map(|_| between(0, 1) > 0).collect(),
        _ => vec![true; servers],
    };
    let lower = below.iter().filter(|below| **below).count();
    let supervisors = if lower > 0 { supervisors.max(1) } else { supervisors };
    let conditions = NetworkConditions { faulty_per_million: 0, ..NetworkConditions::default() };
    let within = Duration::from_secs(2);
    let formation =
        Formation { managers, within, conditions, ..Formation::new(servers - lower, supervisors) };
    let mut world = formation.world(seed);
    for _ in 0..lower {
        let supervisor = managers + servers - lower + between(0, supervisors - 1);
        let at = world.rng.time(within);
        world.add(HostKind::Server, &[supervisor], at);
    }
    for host in &mut world.hosts {
        let concerns = match sabotage {
            Some(Sabotage::Forgets) => {
                trouble != PlacementFault::Branches || host.kind == HostKind::Supervisor
            }
            _ => host.kind == HostKind::Server,
        };
        if concerns {
            host.sabotage = sabotage;
        }
    }
    world.run(Duration::from_secs(60), |_| false);
    world
}

/// Returns all hosts of this kind.
fn of_kind(world: &World, kind: HostKind) -> Vec<usize> {
    (0..world.len()).filter(|host| world.kind(*host) == kind).collect()
}

/// Lets clients create and read one file. Creators use a new name for each file, as those of a
/// batch system do.
fn clients(world: &mut World, trouble: PlacementFault, path: &Name) {
    let managers = of_kind(world, HostKind::Manager);
    let agree = matches!(trouble, PlacementFault::Outages | PlacementFault::Growth) || managers.len() == 1;
    let distance = if agree { Duration::ZERO } else { DISTANCE };
    let began = world.now;
    let creators = 1 + world.rng.below(3);
    for number in 0..creators + world.rng.below(8) {
        let wish = if number < creators { RequestedAction::Create } else { RequestedAction::Read };
        let mut order = managers.clone();
        world.rng.shuffle(&mut order);
        let slow = if wish == RequestedAction::Create && world.rng.below(3) > 0 {
            world.rng.time(ARRIVAL_MAX)
        } else {
            Duration::ZERO
        };
        let at = began + world.rng.time(WITHIN);
        world.begin_slow(wish, path, order, at, PATIENCE, slow);
        if let Some(operation) = world.operations.last_mut() {
            operation.distance = distance;
        }
    }
}

/// Adds servers while clients create files. Each reaches some managers later than others. Some
/// servers of before have been down for longer than managers expect them, and return like new ones.
fn grow(world: &mut World, rushes: bool, sabotage: Option<Sabotage>) {
    let managers = of_kind(world, HostKind::Manager);
    let down: Vec<usize> = of_kind(world, HostKind::Server).into_iter().skip(1).collect();
    for server in &down {
        world.crash(*server, false);
    }
    if !down.is_empty() {
        let until = world.now + LONG_ABSENCE;
        world.run(until, |_| false);
    }
    for server in down {
        let at = world.now + world.rng.time(WITHIN);
        world.begin_again(server, at);
        join_late(world, server, at, &managers);
    }
    for _ in 0..2 + world.rng.below(5) {
        let at = world.now + world.rng.time(WITHIN);
        let server = world.add(HostKind::Server, &managers, at);
        if let Some(host) = world.hosts.get_mut(server) {
            (host.sabotage, host.rushes) = (sabotage, rushes);
        }
        join_late(world, server, at, &managers);
    }
}

/// Keeps a server that starts at `at` apart from some managers for a while.
fn join_late(world: &mut World, server: usize, at: Duration, managers: &[usize]) {
    for manager in managers {
        if world.rng.below(2) > 0 {
            let until = at + world.rng.time(PARTIAL_CUT_MAX);
            world.keep_apart(server, *manager, until);
        }
    }
}

/// Suspends one server after the other briefly, so that another one is chosen for a missing file.
fn suspensions(world: &mut World, servers: &[usize]) {
    let end = world.now + WITHIN + ARRIVAL_MAX;
    while world.now < end {
        let at = world.now + world.rng.time(Duration::from_secs(8));
        world.run(at, |_| false);
        let chosen = world.rng.below(servers.len() as u64) as usize;
        let Some(server) = servers.get(chosen) else { return };
        world.suspend(*server, true);
        let at = world.now + world.rng.time(Duration::from_secs(8));
        world.run(at, |_| false);
        world.suspend(*server, false);
    }
}

/// Cuts the connections of one server after the other for a while, and restarts processes.
fn outages(world: &mut World, servers: &[usize]) {
    let end = world.now + WITHIN + ARRIVAL_MAX;
    while world.now < end {
        let at = world.now + world.rng.time(Duration::from_secs(8));
        world.run(at, |_| false);
        let Some(server) = servers.get(world.rng.below(servers.len() as u64) as usize).copied() else {
            return;
        };
        if world.hosts.get(server).is_some_and(|host| host.seated + STAYED > world.now) {
            continue;
        }
        let parents = world.tree().parents_of(server, world.now);
        let parent = parents.get(world.rng.below(parents.len().max(1) as u64) as usize).copied();
        match world.rng.below(4) {
            0 => restart(world, server),
            1 => {
                // The parent returns without the server.
                if let Some(parent) = parent {
                    cut(world, server, &[parent], PARTIAL_CUT_MAX);
                    restart(world, parent);
                }
            }
            _ => cut(world, server, &parents, CUT_MAX),
        }
    }
    world.heal();
}

/// Cuts a node off from these parents for a while. Clients reach all of them.
fn cut(world: &mut World, node: usize, parents: &[usize], longest: Duration) {
    let until = world.now + world.rng.time(longest);
    for parent in parents {
        world.keep_apart(node, *parent, until);
    }
}

/// Ends a process, which restarts soon.
fn restart(world: &mut World, host: usize) {
    world.crash(host, false);
    let at = world.now + world.rng.time(DOWN_MAX);
    world.begin_again(host, at);
}

/// Runs the histories of one seed.
///
/// # Errors
/// A file that was created twice, or a client without an answer.
pub fn run(
    seed: u64,
    trouble: PlacementFault,
    sabotage: Option<Sabotage>,
) -> Result<PlacementOutcome, String> {
    let mut world = formed(seed, trouble, sabotage);
    match trouble {
        PlacementFault::Growth => grow(&mut world, false, sabotage),
        PlacementFault::Divergence => grow(&mut world, true, sabotage),
        _ => {}
    }
    let paths: Vec<Name> =
        (0..FILES_PER_WORLD).map(|number| format!("/store/{seed}/{number}").into_bytes().into()).collect();
    for path in &paths {
        clients(&mut world, trouble, path);
    }
    let servers = of_kind(&world, HostKind::Server);
    let nodes = [servers.clone(), of_kind(&world, HostKind::Supervisor)].concat();
    match trouble {
        PlacementFault::Suspensions => suspensions(&mut world, &servers),
        PlacementFault::Outages => outages(&mut world, &servers),
        PlacementFault::Branches => outages(&mut world, &nodes),
        PlacementFault::Growth | PlacementFault::Divergence => {}
    }
    let end = world.now + WITHIN + PATIENCE + Duration::from_secs(60);
    world.run(end, |world| world.unfinished().next().is_none());
    if let Some(operation) = world.unfinished().next() {
        return Err(format!("seed {seed}: no end: {operation:?}"));
    }
    let mut outcome = PlacementOutcome::default();
    for path in &paths {
        let holders: Vec<usize> = (0..world.len())
            .filter(|host| world.hosts.get(*host).is_some_and(|host| host.disk.has(path)))
            .collect();
        if holders.len() > 1 {
            let text = String::from_utf8_lossy(path).into_owned();
            return Err(format!("seed {seed}: {text} was created at {holders:?}"));
        }
        outcome.created += holders.len();
    }
    for operation in &world.operations {
        match operation.end.as_ref().map(|(_, end)| end) {
            Some(ClientResult::Done | ClientResult::Exists) => {}
            Some(ClientResult::Missing) if operation.wish == RequestedAction::Read => outcome.missing += 1,
            // A client may have been at a manager without servers.
            Some(_) if trouble != PlacementFault::Suspensions => outcome.failed += 1,
            end => return Err(format!("seed {seed}: {end:?}: {operation:?}")),
        }
        outcome.repeated += usize::from(operation.wish == RequestedAction::Create && operation.requests > 3);
    }
    if trouble == PlacementFault::Suspensions && outcome.created != FILES_PER_WORLD {
        return Err(format!("seed {seed}: only {} of {FILES_PER_WORLD} files exist", outcome.created));
    }
    Ok(outcome)
}

/// Runs the histories of these seeds, on all processors.
///
/// # Errors
/// The errors of the first few failed seeds.
pub fn run_all(seeds: &[u64], trouble: PlacementFault) -> Result<PlacementOutcome, String> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = seeds.len().div_ceil(threads).max(1);
    let results: Vec<Result<PlacementOutcome, String>> = std::thread::scope(|scope| {
        let part = |seeds: &[u64]| {
            let seeds = seeds.to_vec();
            scope.spawn(move || seeds.into_iter().map(|seed| run(seed, trouble, None)).collect::<Vec<_>>())
        };
        let running: Vec<_> = seeds.chunks(share).map(part).collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|_| vec![Err("a panic".to_owned())]))
            .collect()
    });
    let wrong: Vec<&str> =
        results.iter().filter_map(|result| result.as_ref().err()).map(String::as_str).collect();
    if !wrong.is_empty() {
        return Err(format!(
            "{} of {} seeds: {}",
            wrong.len(),
            seeds.len(),
            wrong[..wrong.len().min(5)].join("\n")
        ));
    }
    Ok(results.into_iter().flatten().fold(PlacementOutcome::default(), PlacementOutcome::plus))
}
