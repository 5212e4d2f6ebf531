//! The deadline of the timer of the cluster's thread. It exists so that the timer is set again only
//! if an earlier deadline appears.

use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// The time for which the timer is set, and a notification that makes it check again.
#[derive(Default)]
pub(super) struct ThreadTimer {
    armed_for: Option<Duration>,
    rearm: Rc<Notify>,
}

impl ThreadTimer {
    /// Returns the notification, which is sent if the deadline may be earlier than before.
    pub(super) fn bell(&self) -> Rc<Notify> {
        self.rearm.clone()
    }

    /// Records that the timer is set.
    pub(super) const fn arm(&mut self, due: Duration) {
        self.armed_for = Some(due);
    }

    /// Records that the timer has expired and that all due work is done now.
    pub(super) const fn disarm(&mut self) {
        self.armed_for = None;
    }

    /// Wakes the timer if it would expire too late.
    pub(super) fn check(&self, due: Option<Duration>) {
        if let (Some(due), Some(armed)) = (due, self.armed_for)
            && due < armed
        {
            self.rearm.notify_one();
        }
    }
}
