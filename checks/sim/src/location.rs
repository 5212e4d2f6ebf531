//! Measurements of look-ups: the time and messages to find a file, and the time until a restarted
//! manager serves.
//!
//! The network has no faults here, so that round trips can be counted.

use std::fmt;
use std::time::Duration;

use crate::client::ClientResult;
use crate::formation::Formation;
use crate::host::HostKind;
use crate::messages::{Name, RequestedAction};
use crate::world::{NetworkConditions, World};

/// Files that are looked for.
const FILES: usize = 8;

/// The maximum wait of a client.
const PATIENCE: Duration = Duration::from_secs(120);

/// The one-way latency of a connection.
pub const LATENCY: Duration = Duration::from_millis(1);

/// Returns a tree without faults of connections and without late messages, so that round trips can
/// be counted.
fn still(formation: Formation) -> Formation {
    let conditions = NetworkConditions {
        latency: LATENCY,
        jitter: Duration::ZERO,
        faulty_per_million: 0,
        drift_per_million: 0,
        ..NetworkConditions::default()
    };
    Formation { conditions, ..formation }
}

/// The cost of consecutive operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// The longest time.
    pub time: Duration,
    /// The maximum number of messages about files between nodes for one operation.
    pub messages: u64,
    /// The maximum number of requests of the client for one operation.
    pub requests: u32,
}

impl Cost {
    /// Returns the time in round trips of a connection.
    pub fn round_trips(&self) -> f64 {
        self.time.as_secs_f64() / (2 * LATENCY).as_secs_f64()
    }
}

/// The cost of look-ups in one tree.
#[derive(Clone, Debug)]
pub struct LocationReport {
    /// The tree.
    pub formation: Formation,
    /// Levels below the manager.
    pub height: usize,
    /// The first open of a file.
    pub cold: Cost,
    /// The next one.
    pub warm: Cost,
    /// The first look-up of a missing file.
    pub missing: Cost,
    /// The next look-up of a missing file.
    pub missing_again: Cost,
    /// The creation of a file.
    pub create: Cost,
}

impl fmt::Display for LocationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = (self.formation.servers + self.formation.supervisors) as f64;
        write!(
            f,
            "| {} | {} | {:.1} | {:.2} | {:.1} | {} | {:.1} | {:.2} | {:.1} | {:.1} |",
            self.formation.servers,
            self.height,
            self.cold.round_trips(),
            self.cold.messages as f64 / nodes,
            self.warm.round_trips(),
            self.warm.messages,
            self.missing.round_trips(),
            self.missing.messages as f64 / nodes,
            self.missing_again.round_trips(),
            self.create.round_trips(),
        )
    }
}

/// The head of a table of reports.
pub const HEAD: &str = "| servers | levels | first open, RTT | messages per node | next open, RTT | messages | missing, RTT \
                        | messages per node | missing again, RTT | create, RTT |\n|---|---|---|---|---|---|---|---|---|---|";

/// Returns a complete tree without messages in transit.
fn formed(formation: &Formation, seed: u64) -> Result<World, String> {
    let mut world = formation.world(seed);
    world.run(formation.within, |_| false);
    let end = formation.within + Duration::from_secs(60);
    while world.shape(0).is_err() {
        if world.now >= end {
            return Err(format!("seed {seed}: no tree: {:?}", world.shape(0)));
        }
        let step = world.now + Duration::from_secs(1);
        world.run(step, |_| false);
    }
    let settled = world.now + Duration::from_secs(15);
    world.run(settled, |_| false);
    Ok(world)
}

fn name(text: &str, number: usize) -> Name {
    format!("/store/{text}{number}").into_bytes().into()
}

/// Runs one operation to its end.
fn one(
    world: &mut World,
    wish: RequestedAction,
    path: &Name,
    expected: &ClientResult,
) -> Result<Cost, String> {
    let (began, files) = (world.now, world.counts.files);
    let number = world.begin(wish, path, &[0], began, PATIENCE) as usize;
    world.run(began + PATIENCE, |world| {
        world.operations.get(number).is_none_or(|operation| operation.end.is_some())
    });
    let operation = world.operations.get(number).ok_or("no operation")?;
    let Some((ended, end)) = &operation.end else { return Err(format!("{operation:?}")) };
    if end != expected {
        return Err(format!("{expected:?} was expected: {operation:?}"));
    }
    let (ended, requests) = (*ended, operation.requests);
    let rest = world.now + Duration::from_secs(1);
    world.run(rest, |_| false);
    Ok(Cost { time: ended - began, messages: world.counts.files - files, requests })
}

/// Returns the maximum cost of consecutive operations.
fn most(
    world: &mut World,
    wish: &RequestedAction,
    text: &str,
    expected: &ClientResult,
) -> Result<Cost, String> {
    let mut most = Cost::default();
    for number in 0..FILES {
        let cost = one(world, wish.clone(), &name(text, number), expected)?;
        most.time = most.time.max(cost.time);
        most.messages = most.messages.max(cost.messages);
        most.requests = most.requests.max(cost.requests);
    }
    Ok(most)
}

fn scatter(world: &mut World, fit: impl Fn(HostKind) -> bool) {
    let servers: Vec<usize> = (0..world.len()).filter(|host| fit(world.kind(*host))).collect();
    for number in 0..FILES {
        let at = world.rng.below(servers.len() as u64) as usize;
        if let Some(host) = servers.get(at) {
            world.change(*host, &name("file", number), true, false);
        }
    }
}

/// Measures look-ups in a tree of our own nodes.
///
/// # Errors
///
/// An unexpected result.
pub fn locate(servers: usize, supervisors: usize, seed: u64) -> Result<LocationReport, String> {
    let formation =
        still(Formation { within: Duration::from_secs(5), ..Formation::new(servers, supervisors) });
    let mut world = formed(&formation, seed)?;
    let height = world.shape(0)?.height;
    scatter(&mut world, |kind| kind == HostKind::Server);
    let report = LocationReport {
        formation,
        height,
        cold: most(&mut world, &RequestedAction::Read, "file", &ClientResult::Done)?,
        warm: most(&mut world, &RequestedAction::Read, "file", &ClientResult::Done)?,
        missing: most(&mut world, &RequestedAction::Read, "nowhere", &ClientResult::Missing)?,
        missing_again: most(&mut world, &RequestedAction::Read, "nowhere", &ClientResult::Missing)?,
        create: most(&mut world, &RequestedAction::Create, "new", &ClientResult::Done)?,
    };
    match world.wrong.first() {
        Some(wrong) => Err(wrong.clone()),
        None => Ok(report),
    }
}

/// The times until a restarted manager serves, from its start.
#[derive(Clone, Copy, Debug)]
pub struct Restart {
    /// All files requested at the start were opened.
    pub open: Duration,
    /// A missing file was reported as missing.
    pub missing: Duration,
    /// A new file was created.
    pub create: Duration,
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { open, missing, create } = self;
        let seconds = |time: &Duration| time.as_secs_f64();
        write!(f, "{:.3} s | {:.3} s | {:.3} s", seconds(open), seconds(missing), seconds(create))
    }
}

/// Results for files on servers that start late, when all nodes start at once.
#[derive(Debug)]
pub struct FirstStart {
    /// The slowest open of a file on a server of the start.
    pub present: Duration,
    /// The results for files on late servers.
    pub late: Vec<ClientResult>,
    /// The time after which a missing file was reported as missing.
    pub missing: Duration,
}

/// Starts a manager and most of its servers, the others `late` after them, and requests files at
/// the beginning. `first`: the manager has no record of an earlier run.
///
/// # Errors
///
/// An unexpected result.
pub fn first_start(servers: usize, late: Duration, first: bool, seed: u64) -> Result<FirstStart, String> {
    let mut world = formed(&still(Formation::new(servers, 0)), seed)?;
    let all: Vec<usize> = (0..world.len()).filter(|host| world.kind(*host) == HostKind::Server).collect();
    let (slow, quick) = all.split_at(all.len() / 8);
    for number in 0..FILES {
        for (hosts, text) in [(slow, "late"), (quick, "file")] {
            let host = hosts.get(number % hosts.len().max(1)).ok_or("too few servers")?;
            world.change(*host, &name(text, number), true, false);
        }
    }
    world.crash(0, false);
    slow.iter().for_each(|host| world.crash(*host, false));
    if let Some(manager) = world.hosts.first_mut() {
        manager.first_start = first;
    }
    let up = world.now + Duration::from_secs(1);
    world.run(up, |_| false);
    world.start(0);
    let began = world.now;
    let ask = |world: &mut World, text: &str, number| {
        world.begin(RequestedAction::Read, &name(text, number), &[0], began, PATIENCE) as usize
    };
    let present: Vec<usize> = (0..FILES).map(|number| ask(&mut world, "file", number)).collect();
    let absent: Vec<usize> = (0..FILES).map(|number| ask(&mut world, "late", number)).collect();
    let missing = ask(&mut world, "nowhere", 0);
    world.run(began + late, |_| false);
    slow.iter().for_each(|host| world.start(*host));
    world.run(began + PATIENCE, |world| world.unfinished().next().is_none());
    let ended = |number: usize| {
        let end = world.operations.get(number).and_then(|operation| operation.end.clone());
        end.ok_or_else(|| format!("operation {number} has no end"))
    };
    let mut longest = Duration::ZERO;
    for number in present {
        let (at, end) = ended(number)?;
        if end != ClientResult::Done {
            return Err(format!("a file that is there: {end:?}"));
        }
        longest = longest.max(at - began);
    }
    let late = absent.into_iter().map(|number| Ok(ended(number)?.1)).collect::<Result<_, String>>()?;
    let (at, end) = ended(missing)?;
    if end != ClientResult::Missing {
        return Err(format!("a file that is nowhere: {end:?}"));
    }
    Ok(FirstStart { present: longest, late, missing: at - began })
}

/// Lets a tree form, ends its manager, restarts it after `down`, and requests files at that moment.
/// Files are on our own servers.
///
/// # Errors
///
/// An unexpected result.
pub fn restart(formation: Formation, down: Duration, inventory: bool, seed: u64) -> Result<Restart, String> {
    let formation = still(formation);
    let mut world = formed(&formation, seed)?;
    for host in &mut world.hosts {
        host.inventory = inventory;
    }
    scatter(&mut world, |kind| kind == HostKind::Server);
    world.crash(0, false);
    let up = world.now + down;
    world.run(up, |_| false);
    world.start(0);
    let began = world.now;
    let ask = |world: &mut World, wish, path: &Name| world.begin(wish, path, &[0], began, PATIENCE) as usize;
    let opens: Vec<usize> =
        (0..FILES).map(|number| ask(&mut world, RequestedAction::Read, &name("file", number))).collect();
    let missing = ask(&mut world, RequestedAction::Read, &name("nowhere", 0));
    let create = ask(&mut world, RequestedAction::Create, &name("new", 0));
    world.run(began + PATIENCE, |world| world.unfinished().next().is_none());
    if let Some(wrong) = world.wrong.first() {
        return Err(wrong.clone());
    }
    let took = |number: usize, expected: ClientResult| match world.operations.get(number) {
        Some(operation) if operation.end.as_ref().is_some_and(|(_, end)| *end == expected) => {
            Ok(operation.end.as_ref().map_or(Duration::MAX, |(at, _)| *at - began))
        }
        other => Err(format!("{expected:?} was expected: {other:?}")),
    };
    let mut open = Duration::ZERO;
    for number in opens {
        open = open.max(took(number, ClientResult::Done)?);
    }
    Ok(Restart {
        open,
        missing: took(missing, ClientResult::Missing)?,
        create: took(create, ClientResult::Done)?,
    })
}
