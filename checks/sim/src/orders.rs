//! Orders of strangers to change names, at the cluster ports of managers and supervisors.
//! Invariants:
//!
//! * An order without permission changes no name and has no side effect: a known name stays known
//!   afterwards, so that readers of it cause no message.
//! * A permitted order is carried out by all servers, and all managers apply it at once.
//! * An order that is not to be forwarded changes no name.

use std::time::Duration;

use cluster::{NameChange, NameChangeSet};

use crate::client::ClientResult;
use crate::formation::Formation;
use crate::host::{HostKind, HostProcess};
use crate::messages::{ChangeOrder, FileMessage, Name, ProcessAction, RequestedAction};
use crate::own_process::Sabotage;
use crate::sim_rng::{SimRng, on_all_processors};
use crate::stranger::StrangerLogin;
use crate::world::{NetworkConditions, World};

/// Orders of one history, each for a name of its own.
const ORDERS: usize = 24;

/// The maximum number of times that an order is forwarded.
const RELAYS: u8 = 3;

/// A client gives up after this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time for the reports of all changes.
const REST: Duration = Duration::from_secs(2);

/// Results of one world, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StrangerOutcome {
    /// Orders that were refused.
    pub refused: usize,
    /// Orders that were carried out.
    pub done: usize,
    /// Orders that only removed a location from a cache.
    pub forgotten: usize,
}

impl StrangerOutcome {
    /// Returns the sum of two results.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            refused: self.refused + other.refused,
            done: self.done + other.done,
            forgotten: self.forgotten + other.forgotten,
        }
    }
}

fn name(kind: &str, number: usize) -> Name {
    format!("/store/{kind}{number}").into_bytes().into()
}

/// Returns a small tree with files, and the orders for it.
fn formed(seed: u64, sabotage: Option<Sabotage>) -> (World, NameChangeSet, Vec<ChangeOrder>) {
    let mut rng = SimRng::new(seed ^ 0x0bde5);
    let conditions =
        NetworkConditions { faulty_per_million: 0, drift_per_million: 0, ..NetworkConditions::default() };
    let (servers, supervisors) = (1 + rng.below(4) as usize, rng.below(3) as usize);
    let managers = 1 + rng.below(2) as usize;
    let within = Duration::from_secs(2);
    let formation = Formation { managers, within, conditions, ..Formation::new(servers, supervisors) };
    let mut world = formation.world(seed);
    for number in 0..rng.below(4) as usize {
        let at = world.rng.time(within);
        if supervisors > 0 {
            let inner: Vec<usize> =
                (0..world.len()).filter(|host| world.kind(*host) == HostKind::Supervisor).collect();
            world.add(
                HostKind::Server,
                inner.get(number % supervisors..=number % supervisors).unwrap_or_default(),
                at,
            );
        }
    }
    let forwarded = NameChange::ALL.into_iter().filter(|_| rng.happens(400_000)).collect();
    for host in &mut world.hosts {
        host.forwarded = if host.kind == HostKind::Manager { forwarded } else { NameChangeSet::NONE };
        host.sabotage = sabotage.filter(|_| host.kind == HostKind::Manager);
    }
    let servers: Vec<usize> = (0..world.len()).filter(|host| world.kind(*host) == HostKind::Server).collect();
    for number in 0..ORDERS {
        for _ in 0..=rng.below(2) {
            let server = servers.get(rng.below(servers.len() as u64) as usize).copied().unwrap_or_default();
            world.change(server, &name("f", number), true, false);
        }
    }
    let inner: Vec<usize> = (0..world.len()).filter(|host| world.kind(*host) != HostKind::Server).collect();
    let mut chance = SimRng::new(seed ^ 0xc41d);
    let orders = (0..ORDERS).map(|number| {
        let change = NameChange::ALL[rng.below(NameChange::ALL.len() as u64) as usize];
        ChangeOrder {
            change,
            path: name(if change == NameChange::Mkdir { "d" } else { "f" }, number),
            to: (change == NameChange::Mv).then(|| name("to", number)),
            relays_left: if rng.happens(150_000) { 0 } else { RELAYS },
        }
    });
    let (errand, of_children): (Vec<ChangeOrder>, Vec<ChangeOrder>) =
        orders.partition(|_| chance.happens(700_000));
    let stranger = world.add(HostKind::Stranger, &inner, Duration::from_secs(70));
    if let Some(host) = world.hosts.get_mut(stranger) {
        host.errand = errand;
    }
    world.run(Duration::from_secs(60), |_| false);
    (world, forwarded, of_children)
}

/// Sends orders of children that only parents may send.
fn order_upward(world: &mut World, orders: &[ChangeOrder]) -> Vec<(StrangerLogin, ChangeOrder)> {
    let mut sent = Vec::new();
    for order in orders {
        let children: Vec<usize> =
            (0..world.len()).filter(|host| !world.hosts[*host].parent_links().is_empty()).collect();
        let at = world.rng.below(children.len() as u64) as usize;
        let Some(child) = children.get(at).copied() else { continue };
        let links = world.hosts[child].parent_links();
        world.with(child, |_, _, _, out| {
            out.extend(
                links.into_iter().map(|link| ProcessAction::Files(link, FileMessage::Order(order.clone()))),
            );
        });
        sent.push((StrangerLogin::Child, order.clone()));
    }
    sent
}

/// Returns all names and their holders.
fn names(world: &World) -> Vec<(usize, Vec<Name>)> {
    world.hosts.iter().map(|host| host.disk.files.keys().cloned().collect()).enumerate().collect()
}

/// Reads a path at each manager. Returns whether it exists, and the number of messages about files.
fn read(world: &mut World, path: &Name) -> Result<(bool, u64), String> {
    let before = world.counts.files;
    let managers: Vec<usize> =
        (0..world.len()).filter(|host| world.kind(*host) == HostKind::Manager).collect();
    let mut is_there = None;
    for manager in managers {
        let number =
            world.begin_slow(RequestedAction::Read, path, vec![manager], world.now, PATIENCE, Duration::ZERO)
                as usize;
        let end = world.now + PATIENCE;
        world.run(end, |world| world.operations.get(number).is_none_or(|one| one.end.is_some()));
        let found = match world.operations.get(number).and_then(|one| one.end.as_ref()) {
            Some((_, ClientResult::Done)) => true,
            Some((_, ClientResult::Missing)) => false,
            end => return Err(format!("a reader of {}: {end:?}", String::from_utf8_lossy(path))),
        };
        if is_there.is_some_and(|before| before != found) {
            return Err(format!("managers disagree on {}", String::from_utf8_lossy(path)));
        }
        is_there = Some(found);
    }
    Ok((is_there.unwrap_or_default(), world.counts.files - before))
}

/// Runs the history of one seed.
///
/// # Errors
/// A violation of an invariant.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<StrangerOutcome, String> {
    let (mut world, forwarded, of_children) = formed(seed, sabotage);
    check(&mut world, forwarded, &of_children).map_err(|error| format!("seed {seed}: {error}"))
}

fn check(
    world: &mut World,
    forwarded: NameChangeSet,
    of_children: &[ChangeOrder],
) -> Result<StrangerOutcome, String> {
    let victims: Vec<Name> = (0..ORDERS).flat_map(|number| [name("f", number), name("d", number)]).collect();
    for path in &victims {
        read(world, path)?;
        read(world, path)?;
    }
    let before = names(world);
    let given = world.now.max(Duration::from_secs(70)) + Duration::from_secs(1) * ORDERS as u32;
    world.run(given + REST, |_| false);
    let mut sent = match world.hosts.last().and_then(|host| host.machine.as_ref()) {
        Some(HostProcess::Stranger(stranger)) => stranger.sent.clone(),
        _ => Vec::new(),
    };
    sent.extend(order_upward(world, of_children));
    let rest = world.now + REST;
    world.run(rest, |_| false);
    if sent.len() != ORDERS {
        return Err(format!("{} of {ORDERS} orders were sent", sent.len()));
    }
    if let Some(wrong) = world.wrong.first() {
        return Err(wrong.clone());
    }
    let mut outcome = StrangerOutcome::default();
    for (guise, order) in &sent {
        judge(world, &before, forwarded, *guise, order, &mut outcome)
            .map_err(|error| format!("{guise:?}, {order:?}: {error}"))?;
    }
    Ok(outcome)
}

/// Checks the result of one order.
fn judge(
    world: &mut World,
    before: &[(usize, Vec<Name>)],
    forwarded: NameChangeSet,
    guise: StrangerLogin,
    order: &ChangeOrder,
    outcome: &mut StrangerOutcome,
) -> Result<(), String> {
    let had = |path: &Name| -> Vec<usize> {
        before.iter().filter(|(_, names)| names.contains(path)).map(|(host, _)| *host).collect()
    };
    let has = |world: &World, path: &Name| -> Vec<usize> {
        (0..world.len()).filter(|host| world.hosts[*host].disk.has(path)).collect()
    };
    let is_permitted = guise == StrangerLogin::Redirector && forwarded.contains(order.change);
    let is_done = is_permitted && order.relays_left > 0;
    let changes = matches!(order.change, NameChange::Rm | NameChange::Mv | NameChange::Mkdir);
    let (old, new) =
        (has(world, &order.path), order.to.as_ref().map(|to| has(world, to)).unwrap_or_default());
    let is_kept = old == had(&order.path) && new.is_empty();
    if !(is_kept || is_done && changes) {
        return Err(format!("a name changed: {old:?}, {new:?}"));
    }
    let (is_there, messages) = read(world, &order.path)?;
    if is_there == old.is_empty() {
        return Err("a manager does not know that".to_owned());
    }
    if is_done {
        outcome.done += 1;
        return Ok(());
    }
    let only_forgets = guise == StrangerLogin::Redirector && order.relays_left == 0;
    if only_forgets {
        outcome.forgotten += 1;
    } else if messages > 0 {
        return Err(format!("the next readers caused {messages} messages"));
    } else {
        outcome.refused += 1;
    }
    Ok(())
}

/// Runs the histories of these seeds on all processors.
///
/// # Errors
/// The errors of the first few failed seeds.
pub fn run_all(seeds: &[u64]) -> Result<StrangerOutcome, String> {
    let outcomes = on_all_processors(seeds, |seed| run(seed, None))?;
    Ok(outcomes.into_iter().fold(StrangerOutcome::default(), StrangerOutcome::plus))
}
