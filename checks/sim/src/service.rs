//! Requests of clients in the world, and checks of their answers.
//!
//! The world knows all disks and connections, so it can judge each answer when it is given.

use std::time::Duration;

use crate::client::{ClientOperation, ClientStep};
use crate::host::{HostKind, HostProcess};
use crate::messages::{HostReply, Name, RequestedAction};
use crate::own_process::QueryBehaviour;
use crate::world::{World, WorldEvent};

/// The time after which a file is known to all nodes concerned, if it stays in place and the tree
/// does not change. Before it messages are in transit: replies to queries, and reports of a node
/// that joined meanwhile.
const KNOWN_AFTER: Duration = Duration::from_secs(1);

/// The time for which a lost node counts as connected. Its parent reports no file as missing for 30
/// s, clients at a supervisor wait for 5 s, and the node itself may detect the loss some seconds
/// later than its parent.
const EXPECTED_BACK: Duration = Duration::from_secs(2);

/// The time below which a reconnected node is not expected again after a further loss; it may
/// detect its loss late.
const STAYED: Duration = Duration::from_secs(10);

impl World {
    /// Starts an operation of a client at `at`; the client gives up after `patience`. Returns the
    /// number of the operation.
    pub fn begin(
        &mut self,
        wish: RequestedAction,
        path: &Name,
        managers: &[usize],
        at: Duration,
        patience: Duration,
    ) -> u32 {
        // The redirectors of replicated managers all use the same one for a path.
        let first =
            path.iter().fold(0usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(usize::from(*byte)));
        let mut managers = managers.to_vec();
        let first = first % managers.len().max(1);
        managers.rotate_left(first);
        self.begin_slow(wish, path, managers, at, patience, Duration::ZERO)
    }

    /// Starts an operation of a client at the first of these managers. The client needs `slow` to
    /// reach the server that it is redirected to.
    pub fn begin_slow(
        &mut self,
        wish: RequestedAction,
        path: &Name,
        managers: Vec<usize>,
        at: Duration,
        patience: Duration,
        slow: Duration,
    ) -> u32 {
        let number = self.operations.len() as u32;
        let near = self.rng.below(self.hosts.len() as u64) as usize;
        let mut operation = ClientOperation::new(number, wish, path.clone(), managers, near);
        (operation.began, operation.until, operation.slow) = (at, at.saturating_add(patience), slow);
        let ClientStep::Send { to, patience, .. } = operation.first() else { return number };
        operation.patience = at + patience;
        self.schedule(operation.patience, WorldEvent::Patience { operation: number, attempt: 0 });
        self.operations.push(operation);
        self.schedule(at, WorldEvent::Send { operation: number, attempt: 0, host: to as u32 });
        number
    }

    fn trace_client(&self, number: u32, what: &str) {
        let Some(path) = &self.trace else { return };
        if let Some(operation) =
            self.operations.get(number as usize).filter(|one| *one.path == *path.as_bytes())
        {
            println!(
                "{:?} operation {number} {:?}: {what} (tried {:?})",
                self.now,
                operation.wish,
                operation.tried()
            );
        }
    }

    fn operation(&mut self, number: u32, attempt: u32) -> Option<&mut ClientOperation> {
        let found = self.operations.get_mut(number as usize)?;
        (found.attempt == attempt && found.end.is_none()).then_some(found)
    }

    /// Sends the next request of a client.
    pub(crate) fn send_request(&mut self, number: u32, attempt: u32, host: usize) {
        let Some(operation) = self.operation(number, attempt) else { return };
        operation.at = host;
        operation.requests += 1;
        self.counts.requests += 1;
        self.trace_client(number, &format!("asks {host}"));
        let latency = self.conditions.latency + self.rng.time(self.conditions.jitter);
        let mut lost = false;
        if self.rng.happens(self.conditions.faulty_per_million) {
            self.counts.unanswered += 1;
            match self.rng.below(3) {
                // The client's own timeout ends it.
                0 => return,
                1 => {
                    let told = HostReply::Lost;
                    return self
                        .schedule(self.now + latency, WorldEvent::Told { operation: number, attempt, told });
                }
                _ => lost = true,
            }
        }
        self.schedule(
            self.now + latency,
            WorldEvent::Ask { operation: number, attempt, host: host as u32, lost },
        );
    }

    /// Delivers a client's request to a host. `lost`: the answer is lost, and only the end of the
    /// connection arrives.
    pub(crate) fn ask(&mut self, number: u32, attempt: u32, host: usize, lost: bool) {
        let Some(operation) = self.operation(number, attempt) else { return };
        let (near, request) = (operation.near, operation.request());
        if self.cut(near as u32, host as u32) {
            return;
        }
        let up = self.hosts.get(host).is_some_and(|host| host.machine.is_some());
        if up {
            self.with(host, |machine, disk, now, out| machine.serve(&request, disk, now, out));
        }
        if lost || !up {
            let at = self.now + self.conditions.latency;
            self.schedule(at, WorldEvent::Told { operation: number, attempt, told: HostReply::Lost });
        }
    }

    /// Sends the answer of a host to a client.
    pub(crate) fn tell(&mut self, host: usize, number: u32, attempt: u32, told: HostReply) {
        if self.known_within.is_some() {
            self.judge_location(host, number, &told);
        } else if told == HostReply::Missing {
            self.judge_missing(host, number, attempt);
        }
        self.trace_client(number, &format!("told {told:?} by {host}"));
        let Some(operation) = self.operation(number, attempt) else { return };
        let near = operation.near;
        if !self.cut(near as u32, host as u32) {
            let at = self.now + self.conditions.latency + self.rng.time(self.conditions.jitter);
            self.schedule(at, WorldEvent::Told { operation: number, attempt, told });
        }
    }

    /// Delivers an answer to a client.
    pub(crate) fn told(&mut self, number: u32, attempt: u32, told: HostReply) {
        let now = self.now;
        let mut rng = self.rng.clone();
        let Some(operation) = self.operation(number, attempt) else { return };
        if operation.at_root() && matches!(told, HostReply::Redirect(_)) {
            operation.decided = now;
        }
        let step = operation.told(told, now, &mut rng);
        match step {
            ClientStep::Send { to, after, patience } => {
                operation.attempt += 1;
                operation.patience = now + after + patience;
                let (attempt, until) = (operation.attempt, operation.patience);
                self.schedule(now + after, WorldEvent::Send { operation: number, attempt, host: to as u32 });
                self.schedule(until, WorldEvent::Patience { operation: number, attempt });
            }
            ClientStep::Stay { patience } => operation.patience = now + patience,
            ClientStep::End(end) => operation.end = Some((now, end)),
        }
        self.rng = rng;
    }

    /// Checks whether a client's timeout at a host has passed.
    pub(crate) fn patience(&mut self, number: u32, attempt: u32) {
        let now = self.now;
        let Some(operation) = self.operation(number, attempt) else { return };
        if now < operation.patience {
            let until = operation.patience;
            return self.schedule(until, WorldEvent::Patience { operation: number, attempt });
        }
        self.told(number, attempt, HostReply::Lost);
    }

    /// Disconnects the clients at a host that crashed.
    pub(crate) fn clients_lose(&mut self, host: usize) {
        let at = self.now + self.conditions.latency;
        let waiting =
            self.operations.iter().filter(|operation| operation.end.is_none() && operation.at == host);
        let lost: Vec<(u32, u32)> = waiting.map(|operation| (operation.number, operation.attempt)).collect();
        for (operation, attempt) in lost {
            self.schedule(at, WorldEvent::Told { operation, attempt, told: HostReply::Lost });
        }
    }

    /// Checks a manager's answer that a file is missing: no server that has been in its tree for a
    /// while may have it.
    fn judge_missing(&mut self, host: usize, number: u32, attempt: u32) {
        if !matches!(self.hosts[host].kind, HostKind::Manager) {
            return;
        }
        let Some(operation) = self.operation(number, attempt) else { return };
        let (path, tried) = (operation.path.clone(), operation.tried().to_vec());
        let now = self.now;
        let holder = (0..self.hosts.len()).find(|index| {
            let found = &self.hosts[*index];
            let Some(file) = found.disk.files.get(&path) else { return false };
            let settled = file.since + KNOWN_AFTER <= found.local(now);
            settled && !tried.contains(index) && self.belongs(*index, host, now)
        });
        // A client is not redirected again to a host that it tried, nor to hosts behind that.
        let hidden = |index: usize| self.ancestors(index).iter().any(|above| tried.contains(above));
        if let Some(holder) = holder.filter(|holder| !hidden(*holder)) {
            let text = String::from_utf8_lossy(&path).into_owned();
            self.wrong.push(format!(
                "{now:?}: operation {number} was told by {host} that {text} is missing; {holder} has it"
            ));
        }
    }

    /// Checks that a parent that accepted a child is not below it.
    pub(crate) fn judge_place(&mut self, parent: usize, child: usize) {
        let inner = self.hosts[child].kind.is_supervisor() || self.hosts[child].kind.is_manager();
        if inner && self.ancestors(parent).contains(&child) {
            self.wrong.push(format!("{:?}: {parent} takes in {child}, which is above it", self.now));
        }
    }

    /// Returns the parents of a host from its own up to a manager, over working connections.
    pub(crate) fn ancestors(&self, index: usize) -> Vec<usize> {
        let mut above = Vec::new();
        let mut at = index;
        while let Some(parent) = self.parent(at).filter(|parent| !above.contains(parent)) {
            above.push(parent);
            at = parent;
        }
        above
    }

    /// Returns one parent of a host, if both sides agree and the connection works.
    fn parent(&self, index: usize) -> Option<usize> {
        self.parents_of(index, self.now).into_iter().next()
    }

    /// Returns the parents of a host, if both sides agree and the connection works. Pairs of which
    /// a side or the connection was stalled at that time are left out, because messages were held
    /// up.
    pub(crate) fn parents_of(&self, index: usize, at: Duration) -> Vec<usize> {
        let host = &self.hosts[index];
        if host.stood_still(at, KNOWN_AFTER) {
            return Vec::new();
        }
        let carries = |link: &cluster::tree::ConnectionId| {
            let link = self.links.get(host.number(*link)? as usize)?;
            let [near, far] = link.ends;
            let parent = self.hosts.get(far.host as usize)?;
            let still = link.stood_still(at, KNOWN_AFTER) || parent.stood_still(at, KNOWN_AFTER);
            let carries = !link.silent && !still;
            let stands = near.open && far.open && carries && parent.epoch == far.epoch;
            let seated = parent.child_links().contains(&far.link);
            (stands && seated && !self.cut(near.host, far.host)).then_some(far.host as usize)
        };
        host.parent_links().iter().filter_map(carries).collect()
    }

    /// Reports whether a host is in the tree of a manager, through nodes of our own, and was so for
    /// a while at that time.
    pub(crate) fn belongs(&self, index: usize, manager: usize, at: Duration) -> bool {
        let host = &self.hosts[index];
        if host.machine.is_none()
            || host.behaviour != QueryBehaviour::Honest
            || host.seated + KNOWN_AFTER > at
        {
            return false;
        }
        self.parents_of(index, at).into_iter().any(|parent| {
            let kind = self.hosts[parent].kind;
            parent == manager || (kind == HostKind::Supervisor && self.belongs(parent, manager, at))
        })
    }

    /// Checks a file that a client created: no other host may have it that could be queried when
    /// the manager redirected the client.
    pub(crate) fn made(&mut self, index: usize, path: &Name) {
        let maker = self.hosts[index].disk.files.get(path).and_then(|file| file.maker);
        let Some(operation) = maker.and_then(|number| self.operations.get(number as usize)) else { return };
        if !self.honest() {
            return;
        }
        let (now, manager, decided) = (self.now, operation.manager(), operation.decided);
        let alone = self.hosts.iter().filter(|host| host.kind.is_manager()).count() == 1;
        let has = |other: &usize| {
            let host = &self.hosts[*other];
            let Some(file) = host.disk.files.get(path).filter(|_| *other != index) else { return false };
            let there = match host.missed {
                // A parent that was restarted meanwhile has lost its knowledge. The time of a
                // flapping child counts from its first loss, and a stalled child detects its loss
                // late.
                Some(since) if since < host.seated + STAYED => false,
                Some(_) if host.stood_still(now, EXPECTED_BACK + KNOWN_AFTER) => false,
                Some(since) if alone && since + EXPECTED_BACK > now => {
                    host.seat.is_some_and(|(parent, life)| {
                        self.hosts[parent].epoch == life
                            && (parent == manager || self.belongs(parent, manager, decided))
                    })
                }
                Some(_) => false,
                None => self.belongs(*other, manager, decided),
            };
            there && file.since + KNOWN_AFTER <= host.local(decided)
        };
        if let Some(other) = (0..self.hosts.len()).find(has) {
            let text = String::from_utf8_lossy(path).into_owned();
            self.wrong.push(format!("{now:?}: {text} was made at {index}, but {other} has it"));
        }
    }

    /// Reports whether all nodes are our own and without deliberate faults.
    pub(crate) fn honest(&self) -> bool {
        self.hosts.iter().all(|host| host.kind.is_own() && host.behaviour == QueryBehaviour::Honest)
    }

    /// Adds or removes a file on a disk without a client. Parents are notified if `told` is set.
    pub fn change(&mut self, index: usize, path: &Name, here: bool, told: bool) {
        let local = self.hosts[index].local(self.now);
        let disk = &mut self.hosts[index].disk;
        if here {
            disk.put(path, None, local);
            if let Some(file) = disk.files.get_mut(path) {
                file.is_quiet = !told;
            }
        } else {
            disk.remove(path, local, !told);
        }
        if told {
            self.with(index, |machine, disk, now, out| match machine {
                HostProcess::Own(own) => own.changed(path, disk, now, out),
                HostProcess::Real(node) => node.changed(path, here, out),
                HostProcess::Flood(_) | HostProcess::Stranger(_) => {}
            });
        }
    }

    /// Describes the state of a host of our own for an error message.
    pub fn state_of(&self, host: usize) -> String {
        let Some(HostProcess::Own(own)) = self.hosts.get(host).and_then(|host| host.machine.as_ref()) else {
            return format!("host {host} is none of our own");
        };
        let Some(members) = own.node.members() else { return format!("host {host} is a server") };
        let local = self.hosts.get(host).map(|host| host.local(self.now)).unwrap_or_default();
        let active = members.members().filter(|(_, member)| member.is_active()).count();
        format!(
            "host {host} serves: {}, settled: {}, {} places used, {} online, {active} of at least {} active, {}, {:?}",
            members.serves(),
            members.is_settled(local),
            members.used().len(),
            members.online().len(),
            members.minimum(local),
            own.cell(),
            own.stats(),
        )
    }

    /// Reports whether a host of our own keeps places for lost children.
    pub fn keeps_places(&self, host: usize) -> bool {
        let Some(HostProcess::Own(own)) = self.hosts.get(host).and_then(|host| host.machine.as_ref()) else {
            return false;
        };
        own.node.members().is_some_and(|members| members.used() != members.online())
    }

    /// Returns the operations that have not ended.
    pub fn unfinished(&self) -> impl Iterator<Item = &ClientOperation> {
        self.operations.iter().filter(|operation| operation.end.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formation::Formation;

    #[test]
    fn who_takes_in_the_node_above_it_is_noticed() {
        let mut world = Formation { within: Duration::from_secs(1), ..Formation::new(80, 1) }.world(1);
        world.run(Duration::from_secs(10), |_| false);
        let supervisor = (0..world.len()).find(|host| world.kind(*host) == HostKind::Supervisor).unwrap();
        assert_eq!(world.ancestors(supervisor), [0]);
        let below = (0..world.len()).find(|host| world.ancestors(*host) == [supervisor, 0]).unwrap();
        for (parent, child) in [(0, supervisor), (supervisor, below), (0, below)] {
            world.judge_place(parent, child);
        }
        assert_eq!(world.wrong, [""; 0]);
        world.judge_place(supervisor, 0);
        assert_eq!(world.wrong.len(), 1);
    }
}
