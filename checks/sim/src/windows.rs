//! Locations that end: windows of seconds (`cms.fxhold`) and small caches, different ones at each
//! level of the tree, while files are created and removed.
//!
//! Invariant: the time for which a reader receives a stale "not found", or a stale redirect to a
//! removed file, is at most
//!
//! | change | at most |
//! |---|---|
//! | reported by its node | `NEWS`, however old the locations are and whatever was evicted |
//! | created without a report | the sum over the levels of the time for which an absence is cached |
//! | removed without a report | the sum over the levels of the windows |

use std::time::Duration;

use cluster::CacheSettings;

use crate::client::ClientResult;
use crate::formation::Formation;
use crate::host::{HostKind, HostProcess};
use crate::location_check::NEWS;
use crate::messages::{Name, RequestedAction};
use crate::own_process::Sabotage;
use crate::sim_rng::{SimRng, on_all_processors};
use crate::world::{NetworkConditions, World};

/// The number of changes and readers of one history.
const STEPS: usize = 120;

/// Time between two of them.
const PAUSE: Duration = Duration::from_secs(6);

/// One world in this number lasts for days, with windows of hours.
const DAYS_EVERY: u64 = 50;

/// The factor of its times.
const DAYS: u32 = 600;

/// The number of changing paths.
const PATHS: u64 = 12;

/// The time within which clients with missing paths begin.
const FILLERS_WITHIN: Duration = Duration::from_millis(200);

/// A client gives up after this time.
const PATIENCE: Duration = Duration::from_secs(200);

/// The longest outage of a process, or of the connection of two nodes.
const OUTAGE_MAX: Duration = Duration::from_secs(8);

/// Results of one world, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowOutcome {
    /// Readers that found their file.
    pub found: usize,
    /// Readers that received "not found".
    pub missing: usize,
    /// Locations that expired with their window.
    pub expired: u64,
    /// Locations that were evicted because the cache was full.
    pub evicted: u64,
}

impl WindowOutcome {
    /// Returns the sum of two results.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            found: self.found + other.found,
            missing: self.missing + other.missing,
            expired: self.expired + other.expired,
            evicted: self.evicted + other.evicted,
        }
    }
}

/// Draws the settings of one cache.
fn cache(rng: &mut SimRng, scale: u32) -> CacheSettings {
    let seconds =
        |rng: &mut SimRng, least, most| Duration::from_secs(least + rng.below(most - least)) * scale;
    CacheSettings {
        window: seconds(rng, 8, 120),
        nowhere: rng.happens(500_000).then(|| seconds(rng, 2, 30)),
        locations_max: if rng.happens(500_000) { 100 + rng.below(300) as usize } else { 8192 },
    }
}

/// Returns a small tree of random shape.
fn formed(seed: u64, scale: u32, sabotage: Option<Sabotage>) -> World {
    let mut rng = SimRng::new(seed ^ 0x77_1d05);
    let (managers, supervisors) = (1 + rng.below(2) as usize, rng.below(3) as usize);
    let (upper, lower) = (rng.below(3) as usize, if supervisors > 0 { 1 + rng.below(4) as usize } else { 0 });
    let upper = if lower == 0 { 1 + upper } else { upper };
    let conditions =
        NetworkConditions { faulty_per_million: 0, drift_per_million: 0, ..NetworkConditions::default() };
    let within = Duration::from_secs(2);
    let formation = Formation { managers, within, conditions, ..Formation::new(upper, supervisors) };
    let mut world = formation.world(seed);
    let inner: Vec<usize> =
        (0..world.len()).filter(|host| world.kind(*host) == HostKind::Supervisor).collect();
    for number in 0..lower {
        let at = world.rng.time(within);
        let supervisor = inner.get(number % inner.len().max(1)).copied().unwrap_or_default();
        world.add(HostKind::Server, &[supervisor], at);
    }
    for host in &mut world.hosts {
        host.cache = cache(&mut rng, scale);
        host.inventory = rng.happens(300_000);
        let is_inner = host.kind != HostKind::Server;
        host.sabotage = sabotage.filter(|_| is_inner);
    }
    world.known_within = Some(NEWS);
    world.run(Duration::from_secs(60), |_| false);
    world
}

/// One history while it lasts.
struct WindowHistory {
    world: World,
    rng: SimRng,
    scale: u32,
    managers: Vec<usize>,
    servers: Vec<usize>,
    has_outages: bool,
    fillers: u64,
}

impl WindowHistory {
    fn path(&mut self) -> Name {
        format!("/store/{}", self.rng.below(PATHS)).into_bytes().into()
    }

    fn server(&mut self) -> usize {
        self.servers.get(self.rng.below(self.servers.len() as u64) as usize).copied().unwrap_or_default()
    }

    fn client(&mut self, wish: RequestedAction, path: &Name, after: Duration) {
        let mut managers = self.managers.clone();
        self.rng.shuffle(&mut managers);
        let at = self.world.now + after;
        self.world.begin_slow(wish, path, managers, at, PATIENCE, Duration::ZERO);
    }

    /// Starts a reader of a path at each manager.
    fn readers(&mut self, path: &Name, after: Duration) {
        for manager in self.managers.clone() {
            let at = self.world.now + after;
            self.world.begin_slow(RequestedAction::Read, path, vec![manager], at, PATIENCE, Duration::ZERO);
        }
    }

    /// Adds a file to a server, or removes it.
    fn change(&mut self, is_here: bool, is_reported: bool) {
        let (path, server) = (self.path(), self.server());
        let host = &self.world.hosts[server];
        if host.machine.is_none() || host.disk.has(&path) == is_here {
            return;
        }
        self.world.change(server, &path, is_here, is_reported);
        if is_reported {
            self.readers(&path, 2 * NEWS);
        }
    }

    fn outage(&mut self) {
        let host = self.rng.below(self.world.len() as u64) as usize;
        let length = self.rng.time(OUTAGE_MAX);
        if self.rng.happens(500_000) {
            self.world.crash(host, false);
            let at = self.world.now + length;
            return self.world.begin_again(host, at);
        }
        let until = self.world.now + length;
        for parent in self.world.tree().parents_of(host, self.world.now) {
            self.world.keep_apart(host, parent, until);
        }
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..4 => self.change(true, true),
            4..8 => self.change(false, true),
            8..10 => self.change(true, false),
            10 => self.change(false, false),
            11 => {
                let path = self.path();
                let wish = if self.rng.happens(500_000) {
                    RequestedAction::Remove
                } else {
                    RequestedAction::Rename(self.path())
                };
                self.client(wish, &path, Duration::ZERO);
            }
            12 if self.has_outages => self.outage(),
            12..15 => {
                // Look-ups of missing paths evict other locations.
                for _ in 0..5 + self.rng.below(40) {
                    self.fillers += 1;
                    let path: Name = format!("/nowhere/{}", self.fillers).into_bytes().into();
                    let after = self.rng.time(FILLERS_WITHIN);
                    self.client(RequestedAction::Read, &path, after);
                }
            }
            _ => {}
        }
        let path = self.path();
        self.client(RequestedAction::Read, &path, Duration::ZERO);
        let next = self.world.now + self.rng.time(PAUSE * self.scale);
        self.world.run(next, |world| !world.wrong.is_empty());
    }

    /// Returns the sums of the counts.
    fn outcome(&self) -> Result<WindowOutcome, String> {
        if let Some(wrong) = self.world.wrong.first() {
            return Err(wrong.clone());
        }
        let mut outcome = WindowOutcome::default();
        for operation in &self.world.operations {
            match operation.end.as_ref().map(|(_, end)| end) {
                Some(ClientResult::Done) => outcome.found += 1,
                Some(ClientResult::Missing) => outcome.missing += 1,
                // A client may have been at a manager without servers.
                Some(ClientResult::Failed(_)) if self.has_outages => {}
                end => return Err(format!("{end:?}: {operation:?}")),
            }
        }
        for host in &self.world.hosts {
            if let Some(HostProcess::Own(own)) = &host.machine
                && let Some(stats) = own.stats()
            {
                outcome.expired += stats.cache.expired;
                outcome.evicted += stats.cache.evicted;
            }
        }
        Ok(outcome)
    }
}

/// Runs the history of one seed; with a sabotage, all inner nodes do that.
///
/// # Errors
/// A violation of the invariant, or a client without an answer.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<WindowOutcome, String> {
    let scale = if seed.is_multiple_of(DAYS_EVERY) { DAYS } else { 1 };
    let world = formed(seed, scale, sabotage);
    let of = |kind| (0..world.len()).filter(|host| world.kind(*host) == kind).collect();
    let (managers, servers) = (of(HostKind::Manager), of(HostKind::Server));
    let has_outages = sabotage.is_none() && seed.is_multiple_of(3);
    let rng = SimRng::new(seed ^ 0x0dd);
    let mut history = WindowHistory { world, rng, scale, managers, servers, has_outages, fillers: 0 };
    for _ in 0..STEPS {
        history.step();
    }
    let end = history.world.now + PATIENCE + Duration::from_secs(60);
    history.world.run(end, |world| world.unfinished().next().is_none());
    history.outcome().map_err(|error| format!("seed {seed}: {error}"))
}

/// Runs the histories of these seeds on all processors.
///
/// # Errors
/// The errors of the first few failed seeds.
pub fn run_all(seeds: &[u64]) -> Result<WindowOutcome, String> {
    let outcomes = on_all_processors(seeds, |seed| run(seed, None))?;
    Ok(outcomes.into_iter().fold(WindowOutcome::default(), WindowOutcome::plus))
}
