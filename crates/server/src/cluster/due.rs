//! When the cluster's thread has something to do by itself, and what it does then.

use super::engine::Engine;
use super::holdings::Holdings;
use cluster::{Resolver, Token};
use std::time::Duration;

/// How often expired locations are looked for while nothing else happens.
const SWEEP: Duration = Duration::from_secs(5);

/// Requests that are checked then for whether their clients have disconnected.
const CHECKED_AT_ONCE: usize = 4096;

impl Engine {
    /// Does what is due. Returns whether more is due at once, after others had their turn.
    pub(super) fn tick(&mut self) -> bool {
        let now = self.now();
        self.wake_at = None;
        if self.node.deadline().is_some_and(|due| due <= now) {
            self.drive(|node, now, out| node.tick(now, out));
        }
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP;
            let gone = self.askers.take_gone(CHECKED_AT_ONCE);
            self.abandon(gone);
            self.tick_resolver();
        } else if self.resolver_is_due(now) {
            self.tick_resolver();
        }
        if self.leases.next_deadline().is_some_and(|due| due <= now) {
            self.end_leases();
        }
        self.look_in_turn();
        self.askers.expire(now);
        self.answer_overdue();
        self.settle();
        self.resolver_is_due(self.now())
    }

    fn resolver_is_due(&self, now: Duration) -> bool {
        self.resolver.as_ref().and_then(Resolver::next_deadline).is_some_and(|due| due <= now)
    }

    /// Lets the location machine do what is due. A file is not placed for a client that has disconnected.
    fn tick_resolver(&mut self) {
        let askers = std::mem::take(&mut self.askers);
        let now = self.now();
        let mut actions = std::mem::take(&mut self.file_actions);
        if let Some(resolver) = self.resolver.as_mut() {
            resolver.tick_for(now, &|token| askers.is_gone(token), &mut actions);
        }
        self.askers = askers;
        self.file_actions = actions;
        self.resolve(|_, _, _| ());
    }

    /// Drops requests of clients and redirectors that have disconnected.
    pub(super) fn abandon(&mut self, gone: Vec<Token>) {
        if let Some(resolver) = self.resolver.as_mut() {
            resolver.abandon(gone);
        }
    }

    /// When [`Engine::tick`] has something to do.
    pub(super) fn deadline(&mut self) -> Duration {
        let now = self.now();
        let deadlines = [
            self.node.deadline(),
            self.resolver.as_ref().and_then(Resolver::next_deadline),
            self.resolver.as_ref().map(|_| self.sweep_at),
            self.askers.deadline(),
            self.place_due(),
            self.holdings.as_ref().and_then(Holdings::next_deadline),
            self.leases.next_deadline(),
        ];
        let due = deadlines.into_iter().flatten().min().unwrap_or(now + SWEEP);
        self.wake_at = Some(due);
        due
    }

    /// Wakes the timer if it would ring too late.
    pub(super) fn check_alarm(&self) {
        let resolver = self.resolver.as_ref().and_then(Resolver::next_deadline);
        let looks = self.holdings.as_ref().and_then(Holdings::next_deadline);
        let leases = self.leases.next_deadline();
        let due = [self.node.deadline(), resolver, self.place_due(), looks, leases, self.askers.deadline()];
        let due = due.into_iter().flatten().min();
        if let (Some(due), Some(armed)) = (due, self.wake_at)
            && due < armed
        {
            self.rearm.notify_one();
        }
    }
}
