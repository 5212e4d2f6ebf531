//! The time for which the cell has had no connected child.
//!
//! An inner node without children cannot find files. After a while it stops holding requests, so
//! that parents and clients turn to other nodes.

use std::time::Duration;

use super::limits::SEATED_WITHIN;

/// A timer that runs while the cell is empty.
#[derive(Default, Debug)]
pub(super) struct EmptyCellTimer {
    /// The time until which children are expected; `None` while there are children.
    until: Option<Duration>,
    /// That time has passed, and held requests have been judged again because of it.
    is_noted: bool,
}

impl EmptyCellTimer {
    /// Records whether the cell is empty now.
    pub(super) fn watch(&mut self, is_empty: bool, now: Duration) {
        if is_empty {
            self.until.get_or_insert(now.saturating_add(SEATED_WITHIN));
        } else {
            *self = Self::default();
        }
    }

    /// Reports whether the timer has not recorded yet that the cell became empty, or is no longer.
    pub(super) fn is_outdated(&self, is_empty: bool) -> bool {
        self.until.is_none() == is_empty
    }

    /// Reports whether the cell has been empty for so long that no child is expected back.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Reports once that the time is over.
    pub(super) fn note_end(&mut self, now: Duration) -> bool {
        let is_news = !self.is_noted && self.is_over(now);
        self.is_noted |= is_news;
        is_news
    }

    /// Returns the end of the time, until [`Self::note_end`] has reported it.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.until.filter(|_| !self.is_noted)
    }
}
