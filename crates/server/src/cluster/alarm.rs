//! The time at which the timer of the cluster's thread is to ring.

use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// When the timer rings next, and a bell that has it look again.
#[derive(Default)]
pub(super) struct Alarm {
    armed_for: Option<Duration>,
    rearm: Rc<Notify>,
}

impl Alarm {
    /// Rings when the time to wake up may be earlier than it was.
    pub(super) fn bell(&self) -> Rc<Notify> {
        self.rearm.clone()
    }

    /// The timer is set.
    pub(super) const fn arm(&mut self, due: Duration) {
        self.armed_for = Some(due);
    }

    /// The timer has rung: whatever is due is done now.
    pub(super) const fn disarm(&mut self) {
        self.armed_for = None;
    }

    /// Wakes the timer if it would ring too late.
    pub(super) fn check(&self, due: Option<Duration>) {
        if let (Some(due), Some(armed)) = (due, self.armed_for)
            && due < armed
        {
            self.rearm.notify_one();
        }
    }
}
