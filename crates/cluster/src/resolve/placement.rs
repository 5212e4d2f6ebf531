//! New files: which events end the choice of a child, and the leases that this node itself has from its parents.
//!
//! A file is to be created once. So the child that was chosen for it stands in [`Location::placed`], and only these end that:
//!
//! | event | child that takes leases | real daemon |
//! |---|---|---|
//! | `have` | ends | ends |
//! | `gone` | ends: the child has ended the lease | ignored: a reader may have come before the creator |
//! | "not here" | ignored: it may have been sent before the lease | ignored |
//! | a reader that was there in vain | the child is asked again | the child is asked again |
//! | a creator that failed there | the child is told to end the lease, and asked again | ends |
//! | [`PLACEMENT_HOLD`](crate::PLACEMENT_HOLD) | ends | ends |

use std::sync::Arc;
use std::time::Duration;

use super::select::Question;
use super::state::presence;
use super::{Action, Resolver, checked};
use crate::cache::Location;
use crate::leases::{OVERTAKEN, Outcome, Permit};
use crate::request::{Answer, ErrorCode, Intent, Reason};
use crate::slots::{Slot, SlotMask};

impl Resolver {
    /// A client came back from where it was sent, or wants to create what another client is creating: what is known of those
    /// places is asked again.
    pub(super) fn doubt(
        &mut self,
        path: &[u8],
        question: &Question,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let options = &question.options;
        let tried = question.avoided.never;
        let creates = options.intent == Intent::Create;
        if tried.is_empty() && !creates {
            return;
        }
        let missing = options.reason == Reason::Missing;
        let failed = options.intent.writes() && (!missing || options.intent.creates() && !tried.is_empty());
        let shared = self.shared.chooser.policy().shared.is_some();
        let lessees = self.cell.lessees();
        let left = self.shared.cache.update(path, now, self.cell.bounces(), |location| {
            let placed = location.placed.map(Slot::mask).unwrap_or_default();
            let kept = if failed { placed & lessees } else { placed };
            let doubted = match missing {
                // Whoever told of it, it was for all.
                true if shared && !tried.is_empty() => location.have,
                true => tried & location.have,
                false => tried & placed,
            } - kept;
            if !doubted.is_empty() {
                location.doubt(doubted);
            }
            if !shared {
                location.unasked |= if creates { kept } else { kept & tried };
            }
            location.placed.filter(|slot| (kept & tried).contains(*slot))
        });
        // The creator could not reach the child, or not create the file there. Another one may be chosen as soon as this one
        // has ended the lease; it does not while it creates the file.
        if let Some(slot) = left.flatten().filter(|_| options.intent.creates()) {
            actions.extend(lease(slot, lessees, path, Duration::ZERO));
        }
    }

    /// A child that was chosen for a new file says that it does not have the file. Reports whether that is no answer, because
    /// the client that is to create it may be on its way.
    pub(super) fn is_placement_kept(&self, slot: Slot, path: &[u8], now: Duration) -> bool {
        !self.cell.lessees().contains(slot) && self.known(path, now).placed == Some(slot)
    }

    /// A child says that a client is on its way to create a path there.
    pub fn have_leased(&mut self, slot: Slot, path: &[u8], now: Duration, actions: &mut Vec<Action>) {
        self.holders(Some(slot), path, |location| location.place(slot), now, actions);
    }

    /// A parent sends a client here to create a path, and expects it within this time; zero: no longer.
    pub fn lease(&mut self, path: &[u8], time: Duration, now: Duration) {
        if let Ok(path) = checked(path) {
            self.leases.grant_for(path, time, now);
        }
    }

    /// Reports whether all that is known of a path is that a client is to create it.
    pub fn is_leased(&mut self, path: &[u8], now: Duration) -> bool {
        let Ok(path) = checked(path) else { return false };
        let location = self.known(path, now);
        let have = location.have & self.cell.paths().rights(path).unwrap_or_default().read;
        if have.is_empty() {
            return self.leases.is_running(path, now) || self.is_placed_at_absent(&location);
        }
        location.placed.is_some_and(|slot| have == slot.mask())
    }

    /// Reports whether this node has ended the lease of a path that its parents may still count on.
    pub fn has_lease_ended(&mut self, path: &[u8], now: Duration) -> bool {
        checked(path).is_ok_and(|path| self.leases.has_ended(path, now))
    }

    /// A file is about to be placed at a child. Returns what the client is told instead when it has come too late.
    pub(super) fn begin_placement(&mut self, path: &[u8], now: Duration) -> Option<Answer> {
        match self.leases.begin(path, now) {
            Permit::Free => return None,
            Permit::Leased => {
                // From now on parents are told what is known of the child.
                self.leases.end(path, Outcome::Created, now);
                return None;
            }
            Permit::Later => return Some(Answer::wait(OVERTAKEN)),
            Permit::Refused => {}
        }
        Some(match &self.door {
            Some(door) => {
                Answer::Redirect { slot: None, host: door.written_host().into(), port: door.port() }
            }
            None => Answer::error(ErrorCode::SERVER_ERROR, "The time to create the file here is over."),
        })
    }

    /// Tells parents of leases that have ended.
    pub(super) fn end_leases(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.leases.next_deadline().is_none_or(|due| due > now) {
            return;
        }
        for path in self.leases.take_ended(now) {
            if !self.is_present(&path, now) {
                actions.push(Action::Retract { path });
            }
        }
    }

    /// Reports whether a lease of a parent is all that there is to say of a path.
    pub(super) fn is_lease_running(&mut self, path: &[u8], now: Duration) -> bool {
        let runs = self.leases.is_running(path, now);
        if !runs && self.cell.absent().is_empty() {
            return false;
        }
        let location = self.known(path, now);
        let rights = self.cell.paths().rights(path).unwrap_or_default();
        presence(&location, rights).is_none() && (runs || self.is_placed_at_absent(&location))
    }

    /// Reports whether a path was placed at a child that was lost since, and may still be created there.
    fn is_placed_at_absent(&self, location: &Location) -> bool {
        location.placed.is_some_and(|slot| self.cell.absent().was_in(slot))
    }

    fn is_present(&self, path: &[u8], now: Duration) -> bool {
        let rights = self.cell.paths().rights(path).unwrap_or_default();
        presence(&self.known(path, now), rights).is_some()
    }
}

/// The lease that a child gets for a path.
pub(super) fn lease(slot: Slot, lessees: SlotMask, path: &[u8], time: Duration) -> Option<Action> {
    lessees.contains(slot).then(|| Action::Lease { slot, path: Arc::from(path), time })
}
