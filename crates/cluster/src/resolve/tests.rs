//! Tests of the resolver through a driver: requests, messages of children and time go in; answers
//! and queries come out.
//!
//! The fixture confirms leases by itself, so that a test names only the messages that it is about.
//! Each module below covers one part of the resolver.

mod ageing;
mod central;
mod children;
mod confirming;
mod holding;
mod locating;
mod model;
mod parents;
mod placement;
mod queries;
mod reading;
mod renaming;
mod restarting;
mod sharing;
mod steps;
mod warm;
mod writing;

use super::*;
use crate::cache::CacheSettings;
use crate::cell::CellChild;
use crate::fixtures::{cell, server};
use crate::lease_number::{LeaseNumber, LeaseReport};
use crate::leases::LEASE;
use crate::paths::ChildExport;
use crate::request::{ErrorCode, Intent, RetryReason};
use crate::selection::Policy;
use base::SplitMix64;

/// A resolver over a cell of servers in slots 0, 1, …, and its pending actions.
struct Stage {
    machine: LocationResolver,
    now: Duration,
    actions: Vec<ResolverAction>,
    /// The highest number of a lease that a child has confirmed.
    confirmed: LeaseNumber,
}

impl Stage {
    fn new(servers: u8) -> Self {
        Self::with(cell(servers), Policy::default(), false)
    }

    fn with(cell: Cell, policy: Policy, has_parents: bool) -> Self {
        let cache = Cache::new(&CacheSettings::default(), &mut SplitMix64::new(7));
        let settings = ResolveSettings {
            hold: Duration::ZERO,
            mute: Duration::MAX,
            has_parents,
            ..ResolveSettings::default()
        };
        let machine =
            LocationResolver::new(cell, cache, Chooser::new(policy), settings, Box::new(SplitMix64::new(9)));
        Self { machine, now: Duration::ZERO, actions: Vec::new(), confirmed: LeaseNumber(0) }
    }

    /// Makes these children real daemons, which send no NOT_HERE replies.
    fn legacy(mut self, slots: &[u8]) -> Self {
        for slot in slots {
            self.change(*slot, |child| (child.says_not_here, child.takes_leases) = (false, false));
        }
        self
    }

    fn select(
        &mut self,
        token: u64,
        path: &str,
        options: SelectOptions,
        tried: &str,
    ) -> Option<ClusterAnswer> {
        let (path, tried) = (path.as_bytes(), tried.as_bytes());
        let answer =
            self.machine.select(RequestToken(token), path, options, tried, self.now, &mut self.actions);
        self.confirm();
        answer
    }

    /// Confirms the leases that children were granted since.
    fn confirm(&mut self) {
        let granted = |action: &ResolverAction| match action {
            ResolverAction::Lease { slot, path, time, number }
                if !time.is_zero() && *number > self.confirmed =>
            {
                Some((*slot, path.clone(), *number))
            }
            _ => None,
        };
        for (slot, path, number) in self.actions.iter().filter_map(granted).collect::<Vec<_>>() {
            self.confirmed = number;
            let lease = LeaseReport { number, left: Some(LEASE) };
            self.machine.have_leased(slot, &path, lease, self.now, &mut self.actions);
        }
    }

    fn read(&mut self, token: u64, path: &str) -> Option<ClusterAnswer> {
        self.select(token, path, SelectOptions::default(), "")
    }

    fn intend(&mut self, token: u64, path: &str, intent: Intent) -> Option<ClusterAnswer> {
        self.select(token, path, SelectOptions { intent, ..SelectOptions::default() }, "")
    }

    fn have(&mut self, from: u8, path: &str) {
        self.machine.have(slot(from), path.as_bytes(), false, self.now, &mut self.actions);
    }

    fn pending(&mut self, from: u8, path: &str) {
        self.machine.have(slot(from), path.as_bytes(), true, self.now, &mut self.actions);
    }

    fn not_here(&mut self, from: &[u8], path: &str) {
        for from in from {
            self.machine.not_here(slot(*from), path.as_bytes(), self.now, &mut self.actions);
        }
    }

    fn gone(&mut self, from: u8, path: &str) {
        self.machine.gone(slot(from), path.as_bytes(), self.now, &mut self.actions);
    }

    fn change(&mut self, number: u8, change: impl FnOnce(&mut CellChild)) {
        self.machine.change(slot(number), change, self.now, &mut self.actions);
    }

    fn pass(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
        self.machine.tick(self.now, &mut self.actions);
        // One tick does a part of the due work.
        while self.machine.next_deadline().is_some_and(|due| due <= self.now) {
            self.machine.tick(self.now, &mut self.actions);
        }
    }

    /// Records these children as holders of the path, and all others as absent.
    fn learn(&mut self, path: &str, holders: &[u8]) {
        let queried = self.read(u64::MAX, path).is_none();
        assert!(queried, "known already");
        let others: Vec<u8> = self.machine.cell().children().map(|(slot, _)| slot.number()).collect();
        for holder in holders {
            self.have(*holder, path);
        }
        let others: Vec<u8> = others.into_iter().filter(|slot| !holders.contains(slot)).collect();
        self.not_here(&others, path);
        self.actions.clear();
        assert_eq!(self.machine.stats().queries, 0);
    }

    /// Returns the children that were queried since the last call.
    fn queried(&mut self) -> SlotMask {
        let mut mask = SlotMask::EMPTY;
        self.actions.retain(|action| match action {
            ResolverAction::Ask { to, .. } => {
                mask |= *to;
                false
            }
            _ => true,
        });
        mask
    }

    /// Returns the answers since the last call, by token.
    fn answered(&mut self) -> Vec<(u64, ClusterAnswer)> {
        self.confirm();
        let mut answers = Vec::new();
        self.actions.retain(|action| match action {
            ResolverAction::Answer { token, answer } => {
                answers.push((token.0, answer.clone()));
                false
            }
            _ => true,
        });
        answers
    }

    /// Returns the children that were granted leases since the last call.
    fn leased(&mut self) -> Vec<u8> {
        let mut slots = Vec::new();
        self.actions.retain(|action| match action {
            ResolverAction::Lease { slot, .. } => {
                slots.push(slot.number());
                false
            }
            _ => true,
        });
        slots
    }

    fn leased_by(&mut self, from: u8, path: &str) {
        self.leased_as(from, path, LeaseNumber(1));
    }

    fn leased_as(&mut self, from: u8, path: &str, number: LeaseNumber) {
        self.leased_for(from, path, LeaseReport { number, left: None });
    }

    fn leased_for(&mut self, from: u8, path: &str, lease: LeaseReport) {
        self.machine.have_leased(slot(from), path.as_bytes(), lease, self.now, &mut self.actions);
    }

    /// Grants a lease as a parent, or ends it if the time is zero.
    fn lease(&mut self, path: &str, time: Duration, number: u64) {
        let Self { machine, now, actions, .. } = self;
        machine.lease(path.as_bytes(), time, LeaseNumber(number), *now, actions);
    }

    /// Returns the children that were ordered to end their leases since the last call, with the
    /// number limits.
    fn ended(&mut self) -> Vec<(u8, LeaseNumber)> {
        let mut ended = Vec::new();
        self.actions.retain(|action| match action {
            ResolverAction::Lease { slot, time: Duration::ZERO, number, .. } => {
                ended.push((slot.number(), *number));
                false
            }
            _ => true,
        });
        ended
    }

    /// Returns the only answer since the last call.
    fn answer(&mut self) -> ClusterAnswer {
        let mut answers = self.answered();
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0).1
    }
}

fn slot(number: u8) -> Slot {
    Slot::new(number).unwrap()
}

fn mask(slots: &[u8]) -> SlotMask {
    slots.iter().map(|number| slot(*number)).collect()
}

#[track_caller]
fn sent_to(answer: &ClusterAnswer) -> u8 {
    match answer {
        ClusterAnswer::Redirect { slot: Some(slot), .. } => slot.number(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn code(answer: &ClusterAnswer) -> u32 {
    match answer {
        ClusterAnswer::Error(code, _) => code.0,
        other => panic!("{other:?}"),
    }
}

fn seconds(seconds: u64) -> ClusterAnswer {
    ClusterAnswer::Wait(Duration::from_secs(seconds))
}
