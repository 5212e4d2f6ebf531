//! Slows migration down while each copy fails, so that a broken copy program or mass storage does not get
//! every file of the site at once, and the log does not either.
//!
//! The pauses are short, because another cause is possible: a user has many files that mass storage
//! refuses, such as empty ones. Those of all others wait behind them.

use crate::entry::{CopyFailure, EntryKey, FailureReason};
use crate::queue::CopyOutcome;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of different files that fail in succession before a pause.
const FAILURES_MAX: usize = 20;

/// The length of the first pause, and the greatest one, in seconds. Each pause is twice as long as the
/// one before.
const PAUSE_SECONDS: u64 = 1;
const PAUSE_SECONDS_MAX: u64 = 5;

/// The failures in succession of one direction. After each pause one file is tried.
#[derive(Clone, Default, Debug)]
pub(crate) struct FailurePause {
    /// The files that failed since the last success.
    failed: BTreeSet<EntryKey>,
    pause: Option<RunningPause>,
}

#[derive(Clone, Debug)]
struct RunningPause {
    /// Seconds since the epoch.
    end: u64,
    length: u64,
    reason: Arc<str>,
}

impl RunningPause {
    /// Reports whether the pause has ended. It also ends if the clock is set back.
    fn is_over(&self, now: u64) -> bool {
        self.end.saturating_sub(now) == 0 || self.end.saturating_sub(now) > self.length
    }
}

impl FailurePause {
    /// Records the end of a copy at the time `now`.
    pub(crate) fn note(&mut self, key: &EntryKey, outcome: &CopyOutcome, now: u64) {
        match outcome {
            CopyOutcome::Done => *self = Self::default(),
            CopyOutcome::Failed(failure) if is_systematic(failure) => self.failed(key, failure, now),
            CopyOutcome::Failed(_) | CopyOutcome::Stopped | CopyOutcome::NotNeeded => {}
        }
    }

    fn failed(&mut self, key: &EntryKey, failure: &CopyFailure, now: u64) {
        let length = match &self.pause {
            // The copy began before the pause.
            Some(pause) if !pause.is_over(now) => return,
            Some(pause) => pause.length.saturating_mul(2).min(PAUSE_SECONDS_MAX),
            None => {
                self.failed.insert(key.clone());
                if self.failed.len() < FAILURES_MAX {
                    return;
                }
                PAUSE_SECONDS
            }
        };
        self.failed.clear();
        let end = now.saturating_add(length);
        self.pause = Some(RunningPause { end, length, reason: failure.text.clone() });
    }

    /// Returns the number of copies that may run at the time `now`, of `slots`.
    pub(crate) fn slots(&self, slots: usize, now: u64) -> usize {
        match &self.pause {
            None => slots,
            Some(pause) if !pause.is_over(now) => 0,
            Some(_) => slots.min(1),
        }
    }

    /// Returns the end of the pause, if that comes after the time `now`.
    pub(crate) fn end(&self, now: u64) -> Option<u64> {
        self.pause.as_ref().filter(|pause| !pause.is_over(now)).map(|pause| pause.end)
    }

    /// Returns the reason of the last failure before the pause, if there is one.
    pub(crate) fn reason(&self) -> Option<&Arc<str>> {
        self.pause.as_ref().map(|pause| &pause.reason)
    }
}

/// Reports whether a failure may be one of the program or mass storage, and not of the file.
fn is_systematic(failure: &CopyFailure) -> bool {
    // A permanent one is known without a copy.
    !matches!(failure.reason, FailureReason::InUse | FailureReason::Changed | FailureReason::Permanent)
}
