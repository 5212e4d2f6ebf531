//! A cluster through a bad minute, with all kinds of faults at once.
//!
//! The faults are crashes, restarts, splits, connections that break, stall or fall silent, flapping
//! nodes, drifting clocks, nodes with wrong replies, storms of logins, stalled hosts, hung disks
//! and orders. Clients request files all the while. After the minute, every node must be in the
//! tree again without an administrator, and every file must be found.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::client_load::ClientLoad;
use crate::counts::Counts;
use crate::fault_counts::FaultCounts;
use crate::formation::{Formation, StartOrder};
use crate::host::HostKind;
use crate::host_faults::HostFaults;
use crate::own_process::Sabotage;
use crate::shape::Shape;
use crate::sim_rng::SimRng;
use crate::world::{NetworkConditions, World};

/// The duration of the faults.
const BAD: Duration = Duration::from_secs(60);

/// The time after the faults within which every node of our own is back. A node may have reached
/// the longest pause of its backoff behind a connection that just fell silent, while its old parent
/// has to detect the same.
const HEALED: Duration = Duration::from_secs(60);

/// The time with real nodes, which pause for 9 s at each step and detect a silent parent after
/// three of their pings of 60 s.
const HEALED_REAL: Duration = Duration::from_secs(400);

/// The limit of messages per node and second, without pings, under any faults.
const MESSAGES_PER_NODE_AND_SECOND: f64 = 8.0;

/// The parameters and results of one seed.
#[derive(Clone, Debug)]
pub struct FaultOutcome {
    /// The seed.
    pub seed: u64,
    /// The formation.
    pub formation: Formation,
    /// The faults that occurred.
    pub occurred: FaultCounts,
    /// The time from the end of the faults until all nodes were back.
    pub healed: Duration,
    /// The final tree.
    pub shape: Shape,
    /// The cost.
    pub counts: Counts,
}

/// Draws the parameters of one seed.
fn draw(rng: &mut SimRng) -> Formation {
    let servers = 20 + rng.below(300) as usize;
    let needed = if servers > 55 { servers.div_ceil(60) } else { 0 };
    let mut formation = Formation::new(servers, needed + rng.below(4) as usize);
    formation.managers = 1 + rng.below(2) as usize;
    formation.within = rng.time(Duration::from_secs(20)) + Duration::from_millis(100);
    formation.order = if rng.happens(500_000) { StartOrder::Random } else { StartOrder::SupervisorsLast };
    formation.conditions = NetworkConditions {
        jitter: rng.time(Duration::from_millis(20)),
        faulty_per_million: rng.below(100_000),
        fault_within: Duration::from_secs(30),
        drift_per_million: rng.below(10_000),
        ..NetworkConditions::default()
    };
    if rng.happens(250_000) {
        // The model of real nodes knows one manager.
        formation.managers = 1;
        formation.real_manager = rng.happens(300_000);
        formation.real_servers_percent = rng.below(101);
        formation.real_supervisors_percent = rng.below(101);
    }
    formation
}

/// Runs the minute of this seed.
///
/// # Errors
/// A violated invariant, with the seed.
pub fn run(seed: u64) -> Result<FaultOutcome, String> {
    let mut rng = SimRng::new(seed ^ 0x5eed);
    let formation = draw(&mut rng);
    let failed = |error| format!("seed {seed}: {error} ({formation:?})");
    FaultRun::new(seed, formation, rng).run().map_err(failed)
}

/// Returns the seeds of `SIM_SEEDS` (`17,18`); empty without it.
pub fn chosen() -> Vec<u64> {
    let list = std::env::var("SIM_SEEDS").unwrap_or_default();
    list.split(',').filter_map(|seed| seed.parse().ok()).collect()
}

/// The results of the minutes of many seeds.
#[derive(Clone, Debug, Default)]
pub struct FaultResults {
    /// The errors of failed minutes.
    pub failed: Vec<String>,
    /// The faults of the other minutes together; `None` if all failed.
    pub occurred: Option<FaultCounts>,
    /// The slowest healing.
    pub slowest: Duration,
}

/// Runs the minutes of these seeds on all processors; `tell` is called with the result of each.
pub fn run_all(seeds: &[u64], tell: impl Fn(&Result<FaultOutcome, String>) + Sync) -> FaultResults {
    let (next, minutes) = (AtomicUsize::new(0), Mutex::new(FaultResults::default()));
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let end = catch_unwind(|| run(*seed)).unwrap_or_else(|_| Err(format!("seed {seed}: panic")));
            tell(&end);
            let minutes = &mut *minutes.lock().unwrap_or_else(PoisonError::into_inner);
            match end {
                Ok(outcome) => {
                    minutes.slowest = minutes.slowest.max(outcome.healed);
                    match &mut minutes.occurred {
                        Some(all) => all.add(&outcome.occurred),
                        none => *none = Some(outcome.occurred),
                    }
                }
                Err(error) => minutes.failed.push(error),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    minutes.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the minute of this seed with nodes of our own alone, some with a deliberate fault, for
/// tests of the checks. The fault applies to hosts of `kind` with a number that `which` divides.
///
/// # Errors
///
/// A violated invariant.
pub fn spoiled(seed: u64, sabotage: Sabotage, kind: HostKind, which: usize) -> Result<FaultOutcome, String> {
    let mut rng = SimRng::new(seed ^ 0x5eed);
    let formation = Formation {
        real_manager: false,
        real_servers_percent: 0,
        real_supervisors_percent: 0,
        ..draw(&mut rng)
    };
    let mut minute = FaultRun::new(seed, formation, rng);
    for host in 0..minute.world.len() {
        if minute.world.kind(host) == kind && host % which == 0 {
            minute.world.hosts[host].sabotage = Some(sabotage);
        }
    }
    minute.run()
}

/// A bad minute while it lasts.
struct FaultRun {
    seed: u64,
    formation: Formation,
    world: World,
    rng: SimRng,
    client_load: ClientLoad,
    flood: Option<usize>,
    host_faults: Option<HostFaults>,
    /// The restarts, with their times.
    returns: Vec<(Duration, usize)>,
    /// The time at which the split of the network ends.
    heals: Option<Duration>,
    splits: u64,
    flaps: u64,
    cut_off: u64,
}

impl FaultRun {
    fn new(seed: u64, formation: Formation, mut rng: SimRng) -> Self {
        let mut world = formation.world(seed);
        let mut client_load = ClientLoad::prepare(&mut world, &formation, &mut rng);
        let flood = rng.happens(60_000).then(|| {
            let managers: Vec<usize> = (0..formation.managers).collect();
            world.add(HostKind::Flood, &managers, rng.time(BAD))
        });
        client_load.begin(&mut world, &mut rng, BAD);
        let returns = Vec::new();
        Self {
            seed,
            formation,
            world,
            rng,
            client_load,
            flood,
            host_faults: HostFaults::draw(seed),
            returns,
            heals: None,
            splits: 0,
            flaps: 0,
            cut_off: 0,
        }
    }

    fn run(mut self) -> Result<FaultOutcome, String> {
        self.bad_weather()?;
        let occurred = FaultCounts::of(&self.world, self.splits, self.flaps, self.cut_off);
        let world = &mut self.world;
        if let Some(host_faults) = &mut self.host_faults {
            host_faults.pass(world, Duration::MAX);
        }
        world.heal();
        world.network.conditions.faulty_per_million = 0;
        for host in 0..world.len() {
            world.start(host);
        }
        if let Some(flood) = self.flood {
            world.crash(flood, false);
        }
        let cleared = world.now;
        let shape = self.heal()?;
        let healed = self.world.now - cleared;
        self.client_load.verify(&mut self.world)?;
        self.judge()?;
        let Self { seed, formation, world, .. } = self;
        Ok(FaultOutcome { seed, formation, occurred, healed, shape, counts: world.counts })
    }

    /// Waits until every node is back, and returns the tree of the first manager.
    fn heal(&mut self) -> Result<Shape, String> {
        let patience = if self.formation.mixed() { HEALED_REAL } else { HEALED };
        let cleared = self.world.now;
        loop {
            let step = self.world.now + Duration::from_millis(500);
            self.world.run(step, |_| false);
            let shapes: Result<Vec<Shape>, String> =
                (0..self.formation.managers).map(|at| self.world.shape(at)).collect();
            match shapes.map(|shapes| shapes.into_iter().next()) {
                Ok(Some(shape)) => return Ok(shape),
                Ok(None) => return Err("no manager".to_owned()),
                Err(error) if self.world.now > cleared + patience => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Checks the invariants of the end.
    fn judge(&self) -> Result<(), String> {
        let world = &self.world;
        let supervisors = world.hosts.iter().filter(|host| host.kind.is_supervisor()).count();
        for manager in 0..self.formation.managers {
            world.hosts[manager].check_stale_state(supervisors)?;
        }
        let limit = MESSAGES_PER_NODE_AND_SECOND * world.len() as f64 * world.now.as_secs_f64();
        if world.counts.messages as f64 > limit {
            return Err(format!("{} messages, more than {limit}", world.counts.messages));
        }
        // A real manager may end real nodes by itself.
        if world.killed > 0 && !self.formation.real_manager {
            return Err(format!("{} real nodes were ended by what they were sent", world.killed));
        }
        Ok(())
    }

    fn bad_weather(&mut self) -> Result<(), String> {
        while self.world.now < BAD {
            let next = self.world.now + self.rng.time(Duration::from_secs(4));
            self.world.run(next.min(BAD), |_| false);
            self.client_load.within_bounds(&self.world)?;
            self.bring_back();
            self.client_load.change(&mut self.world, &mut self.rng);
            if let Some(host_faults) = &mut self.host_faults {
                host_faults.befall(&mut self.world, BAD);
            }
            match self.rng.below(12) {
                0..5 => {
                    let host = self.rng.below(self.world.len() as u64) as usize;
                    self.crash(host, Duration::from_secs(20));
                }
                5 => {
                    // The loss of a supervisor has the largest effect.
                    if let Some(host) = self.supervisor() {
                        self.crash(host, Duration::from_secs(20));
                    }
                }
                6 => self.crash(0, Duration::from_secs(10)),
                7 if self.heals.is_none() => {
                    let (salt, groups) = (self.rng.draw(), 2 + self.rng.below(2));
                    self.world.split(|host| (SimRng::new(salt ^ host as u64).draw() % groups) as u8);
                    self.splits += 1;
                    self.heals = Some(self.world.now + self.rng.time(Duration::from_secs(20)));
                }
                8 => self.flap(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Starts the nodes that are due, and ends the split when it is due.
    fn bring_back(&mut self) {
        let world = &mut self.world;
        self.returns.retain(|(at, host)| {
            if *at <= world.now {
                world.start(*host);
            }
            *at > world.now
        });
        if self.heals.take_if(|at| *at <= world.now).is_some() {
            world.heal();
        }
    }

    fn supervisor(&mut self) -> Option<usize> {
        let world = &self.world;
        let supervisors: Vec<usize> =
            (0..world.len()).filter(|host| world.kind(*host).is_supervisor()).collect();
        supervisors.get(self.rng.below(supervisors.len() as u64) as usize).copied()
    }

    fn crash(&mut self, host: usize, longest: Duration) {
        self.world.crash(host, self.rng.happens(300_000));
        self.returns.push((self.world.now + self.rng.time(longest), host));
    }

    /// Lets a node flap: its process, or its connections to all others.
    fn flap(&mut self) {
        let any = self.rng.below(self.world.len() as u64) as usize;
        let host = if self.rng.happens(500_000) { self.supervisor().unwrap_or(any) } else { any };
        let process = self.rng.happens(500_000);
        for _ in 0..3 + self.rng.below(5) {
            if process {
                self.world.crash(host, self.rng.happens(300_000));
                self.flaps += 1;
            } else {
                self.world.cut_off(host, true);
                self.cut_off += 1;
            }
            self.pause();
            if process {
                self.world.start(host);
            } else {
                self.world.cut_off(host, false);
            }
            self.pause();
        }
    }

    fn pause(&mut self) {
        let next = self.world.now + self.rng.time(Duration::from_millis(1500));
        self.world.run(next, |_| false);
    }
}
