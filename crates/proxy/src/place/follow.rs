//! Probes of a server whose state matters without requests.
//!
//! They open no breaker, because that also ends requests about files, which may outlive a short absence of the
//! server.

use super::{OriginPlace, PROBE_PAUSE};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// Interval at which a server that is followed is probed, if it has not replied to a request meanwhile.
const FOLLOW_PAUSE: Duration = Duration::from_secs(10);
/// Number of probes in a row that fail until the server counts as away. One may be lost.
const PROBES_FAILED: u32 = 2;

/// The state of a server that is followed.
pub(crate) struct FollowedState {
    failed: watch::Receiver<Option<Arc<str>>>,
    is_away: watch::Receiver<bool>,
}

impl FollowedState {
    /// Reports whether the server does not answer: its breaker is open, or probes fail.
    pub(crate) fn has_failed(&mut self) -> bool {
        let (has_failed, is_away) =
            (self.failed.borrow_and_update().is_some(), *self.is_away.borrow_and_update());
        has_failed || is_away
    }

    /// Waits until the state may be another one than was seen. Fails when the server is no longer used.
    pub(crate) async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        tokio::select! {
            changed = self.failed.changed() => changed,
            changed = self.is_away.changed() => changed,
        }
    }
}

impl OriginPlace {
    /// Probes the server from now on also without requests.
    pub(crate) fn follow(self: &Arc<Self>) -> FollowedState {
        if !self.is_followed.swap(true, Ordering::AcqRel) {
            self.runtime.spawn(follow(Arc::downgrade(self)));
        }
        FollowedState { failed: self.failed.subscribe(), is_away: self.is_away.subscribe() }
    }
}

/// Probes a server that does not reply to requests, whether or not there are any. While its breaker is open,
/// that has probes of its own.
async fn follow(place: Weak<OriginPlace>) {
    let mut failures = 0;
    loop {
        let Some(place) = place.upgrade() else { return };
        let is_idle = place.activity().last_reply.is_none_or(|last| last.elapsed() >= FOLLOW_PAUSE);
        let has_failed = is_idle && !place.has_failed() && place.examine().await.is_some();
        failures = if has_failed { failures + 1 } else { 0 };
        let is_away = failures >= PROBES_FAILED;
        let is_news = place.is_away.send_if_modified(|before| std::mem::replace(before, is_away) != is_away);
        let origin = place.authority();
        if is_news && is_away {
            tracing::warn!(origin, "the origin does not answer probes");
        } else if is_news && !place.has_failed() {
            tracing::info!(origin, "the origin answers probes again");
        }
        drop(place);
        tokio::time::sleep(if has_failed { PROBE_PAUSE } else { FOLLOW_PAUSE }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{place, request};
    use super::super::{PROBE_TIME, UNUSED};
    use super::*;
    use std::sync::atomic::AtomicBool;
    use tokio::time::Instant;

    /// Waits for a state, and returns how long that took.
    async fn becomes(state: &mut FollowedState, has_failed: bool) -> Duration {
        let begun = Instant::now();
        while state.has_failed() != has_failed {
            state.changed().await.unwrap();
        }
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_followed_is_known_to_be_dead_and_alive_without_requests() {
        let (place, answers) = place();
        answers.store(false, Ordering::Relaxed);
        let mut state = place.follow();
        assert!(becomes(&mut state, true).await < Duration::from_secs(10), "at the start");
        tokio::time::sleep(UNUSED * 2).await;
        assert!(state.has_failed(), "nobody has used it meanwhile");
        answers.store(true, Ordering::Relaxed);
        assert!(becomes(&mut state, false).await < Duration::from_secs(10));
        answers.store(false, Ordering::Relaxed);
        assert!(becomes(&mut state, true).await < FOLLOW_PAUSE * 2, "between requests");
        assert_eq!(place.trips(), 0, "a file that is idle does not notice");
        // The breaker takes over with the first request, and both end together.
        request(&place, 100).await.unwrap_err();
        tokio::time::sleep(UNUSED * 2).await;
        assert!(place.has_failed() && state.has_failed());
        answers.store(true, Ordering::Relaxed);
        assert!(becomes(&mut state, false).await < Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_replies_is_not_probed_and_one_lost_probe_ends_nothing() {
        let (place, answers): (_, Arc<AtomicBool>) = place();
        let mut state = place.follow();
        answers.store(false, Ordering::Relaxed);
        for _ in 0..60 {
            request(&place, 1).await.unwrap();
        }
        assert!(!state.has_failed(), "it was not probed");
        // The first probe fails, and the second one does not.
        tokio::time::sleep(FOLLOW_PAUSE + PROBE_TIME).await;
        answers.store(true, Ordering::Relaxed);
        tokio::time::sleep(UNUSED).await;
        assert!(!state.is_away.has_changed().unwrap() && place.trips() == 0);
    }
}
