//! Requests of clients to hosts, and the answers.

use std::time::Duration;

use super::World;
use crate::client::{ClientOperation, ClientStep};
use crate::event_queue::WorldEvent;
use crate::location_check::LocationCheck;
use crate::messages::{HostReply, Name, RequestedAction};

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
        Some(found).filter(|found| found.is_current(attempt))
    }

    /// Sends the next request of a client.
    pub(super) fn send_request(&mut self, number: u32, attempt: u32, host: usize) {
        let Some(operation) = self.operation(number, attempt) else { return };
        operation.at = host;
        operation.requests += 1;
        self.counts.requests += 1;
        self.trace_client(number, &format!("asks {host}"));
        let latency = self.network.delay(&mut self.rng);
        let mut lost = false;
        if self.rng.happens(self.network.conditions.faulty_per_million) {
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
    pub(super) fn ask(&mut self, number: u32, attempt: u32, host: usize, lost: bool) {
        let Some(operation) = self.operation(number, attempt) else { return };
        let (near, request) = (operation.near, operation.request());
        if self.network.separations.separate(near as u32, host as u32) {
            return;
        }
        let up = self.hosts.get(host).is_some_and(|host| host.machine.is_some());
        if up {
            self.with(host, |machine, disk, now, out| machine.serve(&request, disk, now, out));
        }
        if lost || !up {
            let at = self.now + self.network.conditions.latency;
            self.schedule(at, WorldEvent::Told { operation: number, attempt, told: HostReply::Lost });
        }
    }

    /// Sends the answer of a host to a client.
    pub(super) fn tell(&mut self, host: usize, number: u32, attempt: u32, told: HostReply) {
        let error = self.error_of_answer(host, number, attempt, &told);
        self.wrong.extend(error);
        self.trace_client(number, &format!("told {told:?} by {host}"));
        let Some(operation) = self.operation(number, attempt) else { return };
        let near = operation.near;
        if !self.network.separations.separate(near as u32, host as u32) {
            let at = self.now + self.network.delay(&mut self.rng);
            self.schedule(at, WorldEvent::Told { operation: number, attempt, told });
        }
    }

    /// Checks an answer of a host. Returns the violation if it is wrong.
    fn error_of_answer(&self, host: usize, number: u32, attempt: u32, told: &HostReply) -> Option<String> {
        let operation = self.operations.get(number as usize)?;
        match self.known_within {
            Some(known_within) => {
                LocationCheck { tree: self.tree(), known_within }.error_of(host, operation, told)
            }
            None if *told == HostReply::Missing && operation.is_current(attempt) => {
                self.answer_check().error_of_missing(host, operation)
            }
            None => None,
        }
    }

    /// Delivers an answer to a client.
    pub(super) fn told(&mut self, number: u32, attempt: u32, told: HostReply) {
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
    pub(super) fn patience(&mut self, number: u32, attempt: u32) {
        let now = self.now;
        let Some(operation) = self.operation(number, attempt) else { return };
        if now < operation.patience {
            let until = operation.patience;
            return self.schedule(until, WorldEvent::Patience { operation: number, attempt });
        }
        self.told(number, attempt, HostReply::Lost);
    }

    /// Disconnects the clients at a host that crashed.
    pub(super) fn clients_lose(&mut self, host: usize) {
        let at = self.now + self.network.conditions.latency;
        let waiting =
            self.operations.iter().filter(|operation| operation.end.is_none() && operation.at == host);
        let lost: Vec<(u32, u32)> = waiting.map(|operation| (operation.number, operation.attempt)).collect();
        for (operation, attempt) in lost {
            self.schedule(at, WorldEvent::Told { operation, attempt, told: HostReply::Lost });
        }
    }

    /// Returns the operations that have not ended.
    pub fn unfinished(&self) -> impl Iterator<Item = &ClientOperation> {
        self.operations.iter().filter(|operation| operation.end.is_none())
    }
}
