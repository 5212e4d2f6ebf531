//! The clients of a bad minute, and the invariants that hold for them.
//!
//! No client gets a wrong answer while the faults last, no client is redirected in circles, and
//! afterwards every file is found again.

use std::time::Duration;

use crate::client::{ClientOperation, ClientResult};
use crate::formation::Formation;
use crate::host::{HostKind, HostProcess, SimHost};
use crate::messages::{Name, RequestedAction};
use crate::own_process::QueryBehaviour;
use crate::sim_rng::SimRng;
use crate::world::World;
use cluster::tree::limits;

/// The operations of a bad minute.
const OPERATIONS: u64 = 120;

/// The patience of a client: it outlasts the faults.
const PATIENCE: Duration = Duration::from_secs(900);

/// The time within which a file is found among nodes of our own, including waits.
const FOUND_OWN: Duration = Duration::from_secs(2);

/// The time where a query timeout has to pass.
const FOUND_SILENT: Duration = Duration::from_secs(150);

/// The time while an inner node is out of use: its query timeout has to pass.
const CARRIES_ON: Duration = Duration::from_secs(12);

/// The time for which a flapping server is connected, and that for which it is absent.
const ROUND: Duration = Duration::from_millis(1200);

/// The time from the complete tree until no lost node is expected any longer. The last connections
/// of the bad minute break within half a minute; then lost nodes are expected for a while.
const QUIET: Duration = Duration::from_secs(75);

/// The time with real nodes, which detect a silent connection after three minutes.
const QUIET_SILENT: Duration = Duration::from_secs(300);

/// The maximum number of messages about files per request and node: a query, a reply, and once more
/// for children that joined meanwhile.
const MESSAGES_PER_REQUEST_AND_NODE: u64 = 3;

/// Paths that do not exist on any server.
const NOWHERE: u64 = 8;

/// The maximum number of connections of a node: to all managers, or to an inner node, and one that
/// is about to be closed.
const LINKS_MAX: usize = 4;

/// The maximum number of attempts of one request that a host holds. A client that lost its
/// connection retries after at least half a second, and its earlier request is held for half a
/// minute.
const ATTEMPTS_MAX: usize = 60;

/// The files of a world and their clients.
#[derive(Debug)]
pub struct ClientLoad {
    managers: Vec<usize>,
    servers: Vec<usize>,
    paths: Vec<Name>,
    made: u32,
    /// Nodes that send wrong replies or none.
    pub hostile: usize,
    /// A query timeout has to pass somewhere.
    silence: bool,
}

impl ClientLoad {
    /// Places files on servers, and sets the behaviour of nodes, before the world runs.
    pub fn prepare(world: &mut World, formation: &Formation, rng: &mut SimRng) -> Self {
        let managers: Vec<usize> = (0..formation.managers).collect();
        let leaf = |host: &usize| matches!(world.kind(*host), HostKind::Server | HostKind::RealServer);
        let mut servers: Vec<usize> = (0..world.len()).filter(leaf).collect();
        let mut client_load = Self {
            managers,
            servers: Vec::new(),
            paths: Vec::new(),
            made: 0,
            hostile: 0,
            silence: formation.mixed(),
        };
        if rng.happens(150_000) && servers.len() > 10 {
            for _ in 0..=rng.below(2) {
                let host = servers.swap_remove(rng.below(servers.len() as u64) as usize);
                world.hosts[host].behaviour =
                    if rng.happens(500_000) { QueryBehaviour::Claims } else { QueryBehaviour::Mute };
                client_load.hostile += 1;
                client_load.silence = true;
            }
        }
        for host in 0..world.len() {
            world.hosts[host].inventory = rng.happens(500_000);
        }
        client_load.servers = servers;
        for number in 0..40 {
            let path: Name = format!("/data/{}/f{number}", number % 7).into_bytes().into();
            for _ in 0..=rng.below(3) {
                let host = client_load.server(rng);
                world.change(host, &path, true, false);
            }
            client_load.paths.push(path);
        }
        client_load
    }

    fn server(&self, rng: &mut SimRng) -> usize {
        self.servers.get(rng.below(self.servers.len() as u64) as usize).copied().unwrap_or_default()
    }

    fn path(&self, rng: &mut SimRng) -> Name {
        match self.paths.get(rng.below(self.paths.len() as u64 + 4) as usize) {
            Some(path) => path.clone(),
            None => format!("/data/nowhere{}", rng.below(NOWHERE)).into_bytes().into(),
        }
    }

    fn fresh(&mut self) -> Name {
        self.made += 1;
        let path: Name = format!("/new/{}", self.made).into_bytes().into();
        path
    }

    /// Starts operations of clients at random times until `end`.
    pub fn begin(&mut self, world: &mut World, rng: &mut SimRng, end: Duration) {
        for _ in 0..OPERATIONS {
            let at = rng.time(end);
            let (wish, path) = match rng.below(20) {
                0..11 => (RequestedAction::Read, self.path(rng)),
                11..13 => (RequestedAction::Locate, self.path(rng)),
                13..17 => {
                    let path = self.fresh();
                    self.paths.push(path.clone());
                    (RequestedAction::Create, path)
                }
                17 => (RequestedAction::Create, self.path(rng)),
                18 => (RequestedAction::Remove, self.path(rng)),
                _ => {
                    let to = self.fresh();
                    self.paths.push(to.clone());
                    (RequestedAction::Rename(to), self.path(rng))
                }
            };
            world.begin(wish, &path, &self.managers, at, PATIENCE);
        }
    }

    /// Adds a file to a server or removes one: added with a report, or lost with a disk, without a
    /// report.
    pub fn change(&self, world: &mut World, rng: &mut SimRng) {
        let (host, path) = (self.server(rng), self.path(rng));
        let at = &world.hosts[host];
        if at.machine.is_none() || at.still_until(world.now).is_some() {
            return;
        }
        if rng.happens(500_000) {
            world.change(host, &path, true, true);
        } else {
            world.change(host, &path, false, rng.happens(500_000));
        }
    }

    /// Ends the bad minute after the tree is complete: waiting clients finish, and then every path
    /// is requested.
    ///
    /// # Errors
    ///
    /// A violated invariant.
    pub fn verify(&mut self, world: &mut World) -> Result<(), String> {
        let end = world.now + PATIENCE;
        while world.now < end && world.unfinished().next().is_some() {
            let step = world.now + Duration::from_secs(1);
            world.run(step, |_| false);
        }
        Self::sound(world, 0)?;
        let step = world.now + if self.silence { QUIET_SILENT } else { QUIET };
        world.run(step, |_| false);
        self.ask_everything(world)?;
        self.carry_on(world)?;
        self.come_and_go(world)?;
        self.remembers_too_much(world)?;
        self.cost(world)
    }

    /// Checks that all operations from `first` on have a permitted result.
    fn sound(world: &World, first: usize) -> Result<(), String> {
        if let Some(wrong) = world.wrong.first() {
            return Err(wrong.clone());
        }
        let bad = |operation: &&ClientOperation| {
            !matches!(
                operation.end,
                Some((_, ClientResult::Done | ClientResult::Missing | ClientResult::Exists))
            )
        };
        // A real supervisor without children keeps clients that came to it before; real nodes are
        // not tested.
        let kept =
            |operation: &&ClientOperation| match world.hosts.get(operation.at).map(|host| &host.machine) {
                Some(Some(HostProcess::Real(node))) => operation.waited >= PATIENCE / 2 && !node.serves(),
                _ => false,
            };
        match world.operations.iter().skip(first).find(|operation| bad(operation) && !kept(operation)) {
            Some(operation) => {
                Err(format!("no good end: {}; {}", brief(operation), world.state_of(operation.at)))
            }
            None => Ok(()),
        }
    }

    /// Checks that every file on a server is found, every other is missing, and new ones can be
    /// created.
    fn ask_everything(&mut self, world: &mut World) -> Result<(), String> {
        let first = world.operations.len();
        let managers: Vec<usize> = self.managers.clone();
        let mut expected = Vec::new();
        let claims = world.hosts.iter().any(|host| host.behaviour == QueryBehaviour::Claims);
        for path in self.paths.clone() {
            let name = path.clone();
            let holds = |honest| {
                let path = name.clone();
                move |host: &SimHost| {
                    (host.behaviour == QueryBehaviour::Honest) == honest && host.disk.has(&path)
                }
            };
            let ends = match (world.hosts.iter().any(holds(true)), world.hosts.iter().any(holds(false))) {
                (true, _) => vec![ClientResult::Done],
                (false, false) => vec![ClientResult::Missing],
                (false, true) => vec![ClientResult::Done, ClientResult::Missing],
            };
            for manager in &managers {
                world.begin(RequestedAction::Read, &path, &[*manager], world.now, PATIENCE);
                expected.push(ends.clone());
            }
        }
        for _ in 0..4 {
            let path = self.fresh();
            world.begin(RequestedAction::Create, &path, &managers, world.now, PATIENCE);
            expected.push(if claims {
                vec![ClientResult::Exists, ClientResult::Done]
            } else {
                vec![ClientResult::Done]
            });
        }
        let found = if self.silence { FOUND_SILENT } else { FOUND_OWN };
        let end = world.now + found;
        world.run(end, |world| world.unfinished().next().is_none());
        // A missing file may have been at a server that was lost and is now below a real
        // supervisor, which does not report it. The server is expected for as long as its place is
        // kept.
        let mut open =
            world.operations.iter().skip(first).zip(&expected).filter(|(one, _)| one.end.is_none());
        let is_kept = |(one, ends): (&ClientOperation, &Vec<ClientResult>)| {
            *ends == [ClientResult::Missing] && world.hosts.get(one.at).is_some_and(SimHost::keeps_places)
        };
        if self.silence && open.all(is_kept) {
            let end = world.now + limits::DROP;
            world.run(end, |world| world.unfinished().next().is_none());
        }
        Self::sound(world, first)?;
        for (operation, expected) in world.operations.iter().skip(first).zip(expected) {
            if !matches!(&operation.end, Some((_, end)) if expected.contains(end)) {
                return Err(format!("{expected:?} was expected: {}", brief(operation)));
            }
        }
        Ok(())
    }

    /// Takes an inner node out of use for long: new files are created at others, and missing files
    /// are reported as missing.
    fn carry_on(&mut self, world: &mut World) -> Result<(), String> {
        let hosts = 0..world.len();
        let below = |host: usize, parent: usize| world.tree().parents_of(host, world.now).contains(&parent);
        let idle = hosts.clone().find(|host| {
            world.kind(*host) == HostKind::Supervisor && hosts.clone().any(|child| below(child, *host))
        });
        let others = self.servers.iter().any(|server| below(*server, 0));
        let Some(idle) = idle.filter(|_| world.kind(0) == HostKind::Manager && others) else { return Ok(()) };
        let first = world.operations.len();
        world.suspend(idle, true);
        let heard = world.now + Duration::from_secs(65);
        world.run(heard, |_| false);
        let managers = self.managers.clone();
        let claims = world.hosts.iter().any(|host| host.behaviour == QueryBehaviour::Claims);
        for _ in 0..2 {
            let path = self.fresh();
            world.begin(RequestedAction::Create, &path, &managers, world.now, PATIENCE);
        }
        // A child that claims every file is expected for as long as no client is redirected there.
        if !claims {
            let nowhere = self.fresh();
            world.begin(RequestedAction::Read, &nowhere, &managers, world.now, PATIENCE);
        }
        let end = world.now + if self.silence { FOUND_SILENT } else { CARRIES_ON };
        world.run(end, |world| world.unfinished().next().is_none());
        Self::sound(world, first).map_err(|error| format!("{idle} is out of use: {error}"))?;
        for operation in world.operations.iter().skip(first) {
            let wanted = if operation.wish == RequestedAction::Read {
                ClientResult::Missing
            } else {
                ClientResult::Done
            };
            if !claims && !matches!(&operation.end, Some((_, end)) if *end == wanted) {
                return Err(format!("{idle} is out of use: {}", brief(operation)));
            }
        }
        world.suspend(idle, false);
        let told = world.now + FOUND_OWN;
        world.run(told, |_| false);
        Ok(())
    }

    /// Lets a server flap every other second: new files are created at others meanwhile.
    fn come_and_go(&mut self, world: &mut World) -> Result<(), String> {
        let supervised = |server: &usize| {
            let parents = world.tree().parents_of(*server, world.now);
            parents.iter().any(|parent| world.kind(*parent) == HostKind::Supervisor)
        };
        let server = self.servers.iter().copied().find(supervised);
        let Some(server) = server.filter(|_| world.tree().is_honest()) else { return Ok(()) };
        let first = world.operations.len();
        let managers = self.managers.clone();
        for after in [5, 12] {
            let path = self.fresh();
            world.begin(
                RequestedAction::Create,
                &path,
                &managers,
                world.now + Duration::from_secs(after),
                PATIENCE,
            );
        }
        for _ in 0..12 {
            world.crash(server, false);
            let down = world.now + ROUND;
            world.run(down, |_| false);
            world.start(server);
            let up = world.now + ROUND;
            world.run(up, |_| false);
        }
        match world
            .operations
            .iter()
            .skip(first)
            .find(|operation| !matches!(operation.end, Some((_, ClientResult::Done))))
        {
            Some(operation) => Err(format!("{server} comes and goes: {}", brief(operation))),
            None => Ok(()),
        }
    }

    /// Checks the limits of a host during the faults: one query for each path, and one waiter for
    /// each request that is open or was abandoned less than half a minute ago.
    ///
    /// # Errors
    ///
    /// The exceeded limit.
    pub fn within_bounds(&self, world: &World) -> Result<(), String> {
        let paths = self.paths.len() + NOWHERE as usize;
        let open = world.unfinished().count();
        for (index, host) in world.hosts.iter().enumerate() {
            let links = host.outward.len();
            if links > LINKS_MAX && host.kind.is_own() {
                return Err(format!("{:?}: host {index} has {links} connections of its own", world.now));
            }
            let Some(HostProcess::Own(own)) = &host.machine else { continue };
            let Some(stats) = own.stats() else { continue };
            let waiting = stats.waiters + stats.held;
            if stats.queries > paths || waiting > paths + open * ATTEMPTS_MAX {
                return Err(format!("{:?}: host {index} has {stats:?} of {open} requests", world.now));
            }
        }
        Ok(())
    }

    /// Reports whether state of ended requests remains.
    fn remembers_too_much(&self, world: &mut World) -> Result<(), String> {
        let step = world.now + Duration::from_secs(40);
        world.run(step, |_| false);
        for (index, host) in world.hosts.iter().enumerate() {
            let Some(HostProcess::Own(own)) = &host.machine else { continue };
            let Some(stats) = own.stats() else { continue };
            if stats.queries + stats.waiters + stats.held + own.waiting() > 0 {
                return Err(format!("host {index} still has {stats:?}, {} wait", own.waiting()));
            }
        }
        Ok(())
    }

    fn cost(&self, world: &World) -> Result<(), String> {
        let nodes = world.len() as u64;
        let limit = MESSAGES_PER_REQUEST_AND_NODE * nodes * world.counts.requests
            + nodes * (world.counts.logins + self.paths.len() as u64);
        if world.counts.files > limit {
            return Err(format!("{} messages about files, more than {limit}", world.counts.files));
        }
        let requests = world.operations.iter().map(|operation| operation.requests).max().unwrap_or_default();
        if requests > 400 {
            return Err(format!("an operation took {requests} requests"));
        }
        Ok(())
    }
}

fn brief(operation: &ClientOperation) -> String {
    format!(
        "operation {} {:?} {} began {:?}, {} requests, tried {:?}, at {}, waited {:?}: {:?}",
        operation.number,
        operation.wish,
        String::from_utf8_lossy(&operation.path),
        operation.began,
        operation.requests,
        operation.tried(),
        operation.at,
        operation.waited,
        operation.end
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::tree::ConnectionId;

    #[test]
    fn too_much_in_hand_is_noticed() {
        let formation = Formation { within: Duration::from_secs(1), ..Formation::new(30, 0) };
        let mut world = formation.world(1);
        let mut client_load = ClientLoad::prepare(&mut world, &formation, &mut SimRng::new(1));
        world.run(Duration::from_secs(10), |_| false);
        // All queries are sent at once and take 2 ms.
        for number in 0..30 {
            let path: Name = format!("/data/nowhere{number}").into_bytes().into();
            world.begin(RequestedAction::Read, &path, &[0], world.now, PATIENCE);
        }
        let asked = world.now + Duration::from_millis(2);
        world.run(asked, |_| false);
        assert_eq!(client_load.within_bounds(&world), Ok(()), "thirty are fewer than there are paths");
        client_load.paths.clear();
        assert!(client_load.within_bounds(&world).is_err_and(|error| error.contains("queries: ")));
        let answered = world.now + Duration::from_secs(1);
        world.run(answered, |_| false);
        assert_eq!(client_load.within_bounds(&world), Ok(()));
        world.hosts[5].outward.extend((0..LINKS_MAX as u64).map(|n| (ConnectionId::outward(100 + n), 0)));
        assert!(
            client_load.within_bounds(&world).is_err_and(|error| error.contains("connections of its own"))
        );
    }
}
