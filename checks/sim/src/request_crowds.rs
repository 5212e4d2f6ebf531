//! Crowds: thousands of requests wait at one manager, for few paths or many, with hung disks and
//! flapping children.
//!
//! Invariant, here and in all other histories: no event looks at more than [`STEPS_MAX`] requests
//! and queries, whatever the number of waiting ones.

use std::time::Duration;

use cluster::STEPS_MAX;

use crate::formation::Formation;
use crate::host::{HostKind, HostProcess};
use crate::messages::{Name, RequestedAction};
use crate::own_process::Sabotage;
use crate::sim_rng::{SimRng, on_all_processors};
use crate::world::{NetworkConditions, World};

/// The power of two of the largest crowd.
const DOUBLINGS: u64 = 12;

/// All requests begin within this time.
const WITHIN: Duration = Duration::from_secs(2);

/// Events that concern a large part of them.
const EVENTS: usize = 30;

/// Time between two events.
const PAUSE: Duration = Duration::from_millis(800);

/// A client gives up after this time.
const PATIENCE: Duration = Duration::from_secs(40);

/// Results of one world, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CrowdOutcome {
    /// Requests.
    pub requests: usize,
    /// The most requests that waited at a manager at once.
    pub waiting_most: usize,
    /// The most steps of one event.
    pub steps_most: u64,
}

impl CrowdOutcome {
    /// Returns the sums of two results, and the larger of their maxima.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            waiting_most: self.waiting_most.max(other.waiting_most),
            steps_most: self.steps_most.max(other.steps_most),
        }
    }
}

/// Causes an event of a server that concerns all its queries.
fn happen(world: &mut World, rng: &mut SimRng, server: usize, paths: u64) {
    let path: Name = format!("/crowd/{}", rng.below(paths)).into_bytes().into();
    match rng.below(8) {
        0 | 1 if world.hosts[server].machine.is_some() => {
            let is_here = !world.hosts[server].disk.has(&path);
            world.change(server, &path, is_here, true);
        }
        2 | 3 => {
            world.crash(server, false);
            let at = world.now + rng.time(Duration::from_secs(5));
            world.begin_again(server, at);
        }
        4 => {
            let is_suspended = world.hosts[server].suspended;
            world.suspend(server, !is_suspended);
        }
        _ => {
            let hangs = world.hosts[server].disk.hangs;
            world.hang(server, !hangs);
        }
    }
}

/// Runs the history of one seed; with a sabotage, the manager does that.
///
/// # Errors
/// A violation of an invariant.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<CrowdOutcome, String> {
    let mut rng = SimRng::new(seed ^ 0xc20d5);
    let conditions = NetworkConditions { faulty_per_million: 0, ..NetworkConditions::default() };
    let servers = if rng.happens(50_000) { 60 } else { 1 + rng.below(6) as usize };
    let formation = Formation {
        within: Duration::from_secs(1),
        conditions,
        ..Formation::new(servers, rng.below(2) as usize)
    };
    let mut world = formation.world(seed);
    if let Some(manager) = world.hosts.first_mut() {
        manager.sabotage = sabotage;
    }
    world.run(Duration::from_secs(40), |_| false);
    let servers: Vec<usize> = (0..world.len()).filter(|host| world.kind(*host) == HostKind::Server).collect();
    let any =
        |rng: &mut SimRng| servers.get(rng.below(servers.len() as u64) as usize).copied().unwrap_or_default();
    world.hang(any(&mut rng), true);
    let crowd = 1 << rng.below(DOUBLINGS + 1);
    let paths = if rng.happens(500_000) { 1 } else { 1 + rng.below(crowd) };
    let creators = rng.below(3) * 500_000;
    for _ in 0..crowd {
        let wish = if rng.happens(creators) { RequestedAction::Create } else { RequestedAction::Read };
        let path: Name = format!("/crowd/{}", rng.below(paths)).into_bytes().into();
        let at = world.now + rng.time(WITHIN);
        world.begin(wish, &path, &[0], at, PATIENCE);
    }
    let mut outcome = CrowdOutcome { requests: crowd as usize, ..CrowdOutcome::default() };
    for _ in 0..EVENTS {
        let next = world.now + rng.time(PAUSE);
        world.run(next, |_| false);
        outcome = outcome.plus(observed(&world));
        let server = any(&mut rng);
        happen(&mut world, &mut rng, server, paths);
    }
    for server in &servers {
        world.hang(*server, false);
        world.suspend(*server, false);
    }
    let end = world.now + 4 * PATIENCE;
    world.run(end, |world| world.unfinished().next().is_none());
    if let Some(wrong) = world.wrong.first() {
        return Err(format!("seed {seed}: {wrong}"));
    }
    if let Some(operation) = world.unfinished().next() {
        return Err(format!("seed {seed}: no end: {operation:?}"));
    }
    outcome = outcome.plus(observed(&world));
    if outcome.steps_most > STEPS_MAX {
        return Err(format!("seed {seed}: {} steps for one event", outcome.steps_most));
    }
    Ok(outcome)
}

/// Returns the number of requests that wait at the manager, and the most steps of one event so far.
fn observed(world: &World) -> CrowdOutcome {
    let Some(HostProcess::Own(own)) = world.hosts.first().and_then(|host| host.machine.as_ref()) else {
        return CrowdOutcome::default();
    };
    let waiting = own.stats().map_or(0, |stats| stats.waiters + stats.held);
    CrowdOutcome { requests: 0, waiting_most: waiting, steps_most: own.steps_most }
}

/// Runs the histories of these seeds on all processors.
///
/// # Errors
/// The errors of the first few failed seeds.
pub fn run_all(seeds: &[u64]) -> Result<CrowdOutcome, String> {
    let outcomes = on_all_processors(seeds, |seed| run(seed, None))?;
    Ok(outcomes.into_iter().fold(CrowdOutcome::default(), CrowdOutcome::plus))
}
