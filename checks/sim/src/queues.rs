//! Work queues in front of the state machines, under overload.
//!
//! Greedy clients send thousands of requests at once, and names of servers change faster than their
//! threads report them. Invariants:
//!
//! * The queues are bounded by number and bytes, whatever the load.
//! * No client waits behind the backlog of another one for more than its share of turns.
//! * Changes of names that do not fit become one reset; afterwards managers have the current state.

use std::time::Duration;

use cluster::work_queue::{CHANGES_MAX, REQUEST_BYTES_MAX, REQUESTS_MAX};
use cluster::{WorkBatch, WorkQueue};

use crate::client::ClientResult;
use crate::formation::Formation;
use crate::host::{HostKind, HostProcess};
use crate::messages::{Name, RequestedAction};
use crate::own_process::Sabotage;
use crate::sim_rng::{SimRng, on_all_processors};
use crate::world::{NetworkConditions, World};

/// The maximum number of requests of one greedy client.
const GREEDY: u64 = 1500;

/// The time within which all clients begin.
const WITHIN: Duration = Duration::from_millis(300);

/// The bytes of each name of a storm, so that a small number exceeds the limit.
const NAME_BYTES: usize = 1000;

/// The time after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest time until the thread of a server has reported all waiting names: 256 turns of up to
/// 4 ms.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// The number of pushes into a bare queue in one history.
const PUSHES: usize = 6000;

/// The number of pushes in one history of ten.
const MANY_PUSHES: usize = 100_000;

/// Results of one world, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueOutcome {
    /// Answered requests.
    pub answered: usize,
    /// Storms of changes.
    pub storms: u64,
    /// The resets that parents received for them.
    pub resets: u64,
    /// Pushes into a bare queue that were refused.
    pub refused: usize,
}

impl QueueOutcome {
    /// Returns the sum of two results.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            answered: self.answered + other.answered,
            storms: self.storms + other.storms,
            resets: self.resets + other.resets,
            refused: self.refused + other.refused,
        }
    }
}

fn formed(seed: u64, rng: &mut SimRng, sabotage: Option<Sabotage>) -> World {
    let conditions =
        NetworkConditions { faulty_per_million: 0, drift_per_million: 0, ..NetworkConditions::default() };
    let formation = Formation {
        within: Duration::from_secs(1),
        conditions,
        ..Formation::new(1 + rng.below(3) as usize, rng.below(2) as usize)
    };
    let mut world = formation.world(seed);
    for host in &mut world.hosts {
        host.pace = Some(Duration::from_micros(200) + rng.time(Duration::from_millis(4)));
        host.sabotage = sabotage;
    }
    world.known_within = Some(KNOWN_WITHIN);
    world.run(Duration::from_secs(40), |_| false);
    world
}

/// Starts greedy clients, and polite ones with one request each.
fn clients(world: &mut World, rng: &mut SimRng) {
    let mut number = 0;
    let mut ask = |world: &mut World, rng: &mut SimRng, client: Option<usize>| {
        number += 1;
        let path: Name = format!("/sought/{number}").into_bytes().into();
        let at = world.now + rng.time(WITHIN);
        world.begin(RequestedAction::Read, &path, &[0], at, PATIENCE);
        if let (Some(client), Some(operation)) = (client, world.operations.last_mut()) {
            operation.client = client;
        }
    };
    for greedy in 0..1 + rng.below(3) {
        for _ in 0..100 + rng.below(GREEDY) {
            ask(world, rng, Some(usize::MAX - greedy as usize));
        }
    }
    for _ in 0..5 + rng.below(30) {
        ask(world, rng, None);
    }
}

/// Returns a name of a storm.
fn name(number: usize) -> Name {
    format!("/{number:0NAME_BYTES$}").into_bytes().into()
}

/// Changes more names of a server than its queue holds; some of them were known to managers before.
/// Returns these.
fn storm(world: &mut World, rng: &mut SimRng, server: usize) -> Vec<Name> {
    let count = CHANGES_MAX.1 / NAME_BYTES + 1 + rng.below(500) as usize;
    let sample: Vec<Name> = (0..10).map(|_| name(rng.below(count as u64) as usize)).collect();
    for path in &sample {
        if rng.happens(500_000) {
            world.change(server, path, true, true);
        }
    }
    let known = world.now + KNOWN_WITHIN;
    world.run(known, |_| false);
    for path in &sample {
        world.begin(RequestedAction::Read, path, &[0], world.now, PATIENCE);
    }
    let located = world.now + KNOWN_WITHIN;
    world.run(located, |_| false);
    for number in 0..count {
        let path = name(number);
        let is_here = !world.hosts[server].disk.has(&path);
        world.change(server, &path, is_here, true);
    }
    sample
}

/// Runs the history of one seed; with a sabotage, all nodes do that.
///
/// # Errors
/// A violation of an invariant.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<QueueOutcome, String> {
    let mut rng = SimRng::new(seed ^ 0x9e0e5);
    let refused = bare(&mut rng, false).map_err(|error| format!("seed {seed}: {error}"))?;
    let mut world = formed(seed, &mut rng, sabotage);
    let mut outcome = QueueOutcome { refused, ..QueueOutcome::default() };
    clients(&mut world, &mut rng);
    let mut sample = Vec::new();
    let servers: Vec<usize> = (0..world.len()).filter(|host| world.kind(*host) == HostKind::Server).collect();
    if rng.happens(250_000) {
        outcome.storms = 1;
        let server = servers.get(rng.below(servers.len() as u64) as usize).copied().unwrap_or_default();
        sample = storm(&mut world, &mut rng, server);
    }
    let known = world.now + 2 * KNOWN_WITHIN;
    world.run(known, |_| false);
    for path in &sample {
        world.begin(RequestedAction::Read, path, &[0], world.now, PATIENCE);
    }
    let end = world.now + 3 * PATIENCE;
    world.run(end, |world| world.unfinished().next().is_none());
    judge(&world, &mut outcome).map_err(|error| format!("seed {seed}: {error}"))?;
    Ok(outcome)
}

fn judge(world: &World, outcome: &mut QueueOutcome) -> Result<(), String> {
    if let Some(wrong) = world.wrong.first() {
        return Err(wrong.clone());
    }
    for operation in &world.operations {
        match operation.end.as_ref().map(|(_, end)| end) {
            Some(ClientResult::Done | ClientResult::Missing) => outcome.answered += 1,
            end => return Err(format!("{end:?}: {operation:?}")),
        }
    }
    for host in &world.hosts {
        if let Some(HostProcess::Own(own)) = &host.machine {
            outcome.resets += own.turns.as_ref().map_or(0, |turns| turns.resets);
        }
    }
    if outcome.resets != outcome.storms {
        return Err(format!("{} resets for {} storms", outcome.resets, outcome.storms));
    }
    Ok(())
}

/// Pushes into a queue that is rarely emptied, and returns the number of refused entries. `keeps`:
/// the caller adds them nevertheless.
///
/// # Errors
///
/// The exceeded limit.
pub fn bare(rng: &mut SimRng, keeps: bool) -> Result<usize, String> {
    let mut queue: WorkQueue<(), (), usize> = WorkQueue::default();
    let (clients, bytes_most) = (1 + rng.below(40), 1 + rng.below(4096));
    let (mut kept, mut kept_bytes, mut refused) = (0, 0, 0);
    for _ in 0..if rng.happens(100_000) { MANY_PUSHES } else { PUSHES } {
        // The first client sends half of all requests.
        let client = if rng.happens(500_000) { 0 } else { rng.below(clients) as usize };
        let bytes = (bytes_most / 2 + rng.below(bytes_most)) as usize;
        if queue.add_request(client, bytes, client).is_err() {
            refused += 1;
            if keeps {
                kept += 1;
                kept_bytes += bytes;
            }
        }
        if rng.happens(5_000) {
            let mut turn = WorkBatch::default();
            queue.take(&mut turn, rng.happens(500_000));
        }
        let stats = queue.stats();
        if stats.requests + kept > REQUESTS_MAX || stats.request_bytes + kept_bytes > REQUEST_BYTES_MAX {
            return Err(format!("{stats:?} wait in the queue, and {kept} beside it"));
        }
    }
    Ok(refused)
}

/// Runs the histories of these seeds on all processors.
///
/// # Errors
/// The errors of the first few failed seeds.
pub fn run_all(seeds: &[u64]) -> Result<QueueOutcome, String> {
    let outcomes = on_all_processors(seeds, |seed| run(seed, None))?;
    Ok(outcomes.into_iter().fold(QueueOutcome::default(), QueueOutcome::plus))
}
