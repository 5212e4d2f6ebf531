//! A cluster through a bad minute: crashes, returns, splits, links that break or fall silent, clocks that drift, nodes that
//! lie, storms of logins, and clients who want their files all the while. Then the weather clears, and everybody must be in
//! the tree again without an administrator, and everything be found.

use std::time::Duration;

use crate::errands::Errands;
use crate::formation::{Formation, Order};
use crate::host::Kind;
use crate::lot::Lot;
use crate::shape::Shape;
use crate::world::{Counts, Weather, World};

/// How long the bad weather lasts.
const BAD: Duration = Duration::from_secs(60);

/// After the weather cleared every node of our own is back within this time. A node may have stepped back to the longest
/// pause behind a link that just fell silent, while its old parent has to find out the same.
const HEALED: Duration = Duration::from_secs(60);

/// The same with real nodes, which pause for 9 s at each step and notice a silent parent after three of their pings of
/// 60 s.
const HEALED_REAL: Duration = Duration::from_secs(400);

/// Messages per node and second, pings left out, that no weather may cause.
const MESSAGES_PER_NODE_AND_SECOND: f64 = 8.0;

/// What one seed decided and what came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What formed.
    pub formation: Formation,
    /// Crashes.
    pub crashes: u32,
    /// Splits of the network.
    pub splits: u32,
    /// From the end of the bad weather until all were back.
    pub healed: Duration,
    /// The tree in the end.
    pub shape: Shape,
    /// What it cost.
    pub counts: Counts,
}

/// What one seed decides.
fn draw(lot: &mut Lot) -> Formation {
    let servers = 20 + lot.below(300) as usize;
    let needed = if servers > 55 { servers.div_ceil(60) } else { 0 };
    let mut formation = Formation::new(servers, needed + lot.below(4) as usize);
    formation.managers = 1 + lot.below(2) as usize;
    formation.within = lot.time(Duration::from_secs(20)) + Duration::from_millis(100);
    formation.order = if lot.happens(500_000) { Order::Random } else { Order::SupervisorsLast };
    formation.weather = Weather {
        jitter: lot.time(Duration::from_millis(20)),
        faulty_per_million: lot.below(100_000),
        fault_within: Duration::from_secs(30),
        drift_per_million: lot.below(10_000),
        ..Weather::default()
    };
    if lot.happens(250_000) {
        // The model of real nodes knows one manager.
        formation.managers = 1;
        formation.real_manager = lot.happens(300_000);
        formation.real_servers_percent = lot.below(101);
        formation.real_supervisors_percent = lot.below(101);
    }
    formation
}

/// Runs the minute of this seed.
///
/// # Errors
/// What did not hold, with the seed.
pub fn run(seed: u64) -> Result<Outcome, String> {
    let mut lot = Lot::new(seed ^ 0x5eed);
    let formation = draw(&mut lot);
    let mut world = formation.world(seed);
    let mut errands = Errands::prepare(&mut world, &formation, &mut lot);
    let flood = lot.happens(60_000).then(|| {
        let managers: Vec<usize> = (0..formation.managers).collect();
        world.add(Kind::Flood, &managers, lot.time(BAD))
    });
    errands.begin(&mut world, &mut lot, BAD);
    let mut outcome = Outcome {
        seed,
        formation,
        crashes: 0,
        splits: 0,
        healed: Duration::ZERO,
        shape: Shape { nodes: 0, height: 0, widest: 0 },
        counts: Counts::default(),
    };
    bad_weather(&mut world, &mut lot, &mut outcome, &errands);
    world.heal();
    world.weather.faulty_per_million = 0;
    for host in 0..world.len() {
        world.start(host);
    }
    if let Some(flood) = flood {
        world.crash(flood, false);
    }
    let patience = if formation.mixed() { HEALED_REAL } else { HEALED };
    let cleared = world.now;
    let shape = loop {
        let step = world.now + Duration::from_millis(500);
        world.run(step, |_| false);
        let shapes: Result<Vec<Shape>, String> = (0..formation.managers).map(|at| world.shape(at)).collect();
        match shapes {
            Ok(shapes) => break shapes.into_iter().next(),
            Err(error) if world.now > cleared + patience => {
                return Err(format!("seed {seed}: {error} ({formation:?})"));
            }
            Err(_) => {}
        }
    };
    outcome.healed = world.now - cleared;
    errands.verify(&mut world).map_err(|error| format!("seed {seed}: {error} ({formation:?})"))?;
    outcome.counts = world.counts;
    outcome.shape = shape.unwrap_or(outcome.shape);
    for manager in 0..formation.managers {
        world.remembers_too_much(manager).map_err(|error| format!("seed {seed}: {error}"))?;
    }
    let limit = MESSAGES_PER_NODE_AND_SECOND * world.len() as f64 * world.now.as_secs_f64();
    if world.counts.messages as f64 > limit {
        return Err(format!("seed {seed}: {} messages, more than {limit}", world.counts.messages));
    }
    // A real manager may end real nodes by itself.
    if world.killed > 0 && !formation.real_manager {
        return Err(format!("seed {seed}: {} real nodes were ended by what they were sent", world.killed));
    }
    Ok(outcome)
}

fn bad_weather(world: &mut World, lot: &mut Lot, outcome: &mut Outcome, errands: &Errands) {
    let mut returns: Vec<(Duration, usize)> = Vec::new();
    let mut heals = None;
    while world.now < BAD {
        let next = world.now + lot.time(Duration::from_secs(4));
        world.run(next.min(BAD), |_| false);
        returns.retain(|(at, host)| {
            if *at <= world.now {
                world.start(*host);
            }
            *at > world.now
        });
        if heals.take_if(|at| *at <= world.now).is_some() {
            world.heal();
        }
        errands.change(world, lot);
        match lot.below(10) {
            0..5 => {
                let host = lot.below(world.len() as u64) as usize;
                outcome.crashes += 1;
                world.crash(host, lot.happens(300_000));
                returns.push((world.now + lot.time(Duration::from_secs(20)), host));
            }
            5 => {
                // A supervisor is what hurts.
                let supervisors: Vec<usize> =
                    (0..world.len()).filter(|host| world.kind(*host).is_supervisor()).collect();
                if let Some(host) = supervisors.get(lot.below(supervisors.len() as u64) as usize) {
                    outcome.crashes += 1;
                    world.crash(*host, lot.happens(300_000));
                    returns.push((world.now + lot.time(Duration::from_secs(20)), *host));
                }
            }
            6 => {
                outcome.crashes += 1;
                world.crash(0, lot.happens(300_000));
                returns.push((world.now + lot.time(Duration::from_secs(10)), 0));
            }
            7 if heals.is_none() => {
                let (salt, groups) = (lot.draw(), 2 + lot.below(2));
                world.split(|host| (Lot::new(salt ^ host as u64).draw() % groups) as u8);
                outcome.splits += 1;
                heals = Some(world.now + lot.time(Duration::from_secs(20)));
            }
            _ => {}
        }
    }
}

impl World {
    /// What a host is.
    pub fn kind(&self, host: usize) -> Kind {
        self.hosts[host].kind
    }
}
