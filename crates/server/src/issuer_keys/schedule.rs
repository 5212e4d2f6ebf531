//! [`FetchSchedule`]: when the keys of each issuer are fetched. It is pure: times come from outside.

use crate::background_downloads::pause_after;
use std::collections::HashMap;
use std::time::Duration;

/// Interval between fetches of an issuer that answers.
const REFRESH_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum pause after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Interval between fetches of an issuer that tokens with unknown keys cause. Such tokens can be
/// invented by anybody.
const REQUEST_INTERVAL: Duration = Duration::from_secs(60);
/// Time after the last success for which keys are used.
pub(super) const KEYS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The fetches of all issuers. Times are those since the start of the server.
#[derive(Default)]
pub(super) struct FetchSchedule {
    issuers: HashMap<String, IssuerFetches>,
}

struct IssuerFetches {
    /// Time of the next fetch; `None` while one runs.
    next: Option<Duration>,
    failures: u32,
    /// Time of the last fetch that a token with an unknown key caused.
    requested: Option<Duration>,
    /// Time at which the present keys are too old; `None` without keys.
    outdated_at: Option<Duration>,
}

/// The answer to tokens that name keys which are not in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeyRequestAnswer {
    /// The keys must be fetched now, which the caller then does.
    pub(super) starts_fetch: bool,
    /// Requests may wait for the end of a fetch: of this one, or of one that runs.
    pub(super) may_wait: bool,
}

impl FetchSchedule {
    fn of(&mut self, issuer: &str) -> &mut IssuerFetches {
        let new =
            || IssuerFetches { next: Some(Duration::ZERO), failures: 0, requested: None, outdated_at: None };
        self.issuers.entry(issuer.to_owned()).or_insert_with(new)
    }

    /// Records keys of an earlier run, which were fetched this long ago.
    pub(super) fn restored(&mut self, issuer: &str, age: Duration, now: Duration) {
        self.of(issuer).outdated_at = Some(now + KEYS_AGE_MAX.saturating_sub(age));
    }

    /// Returns the issuers whose keys must be fetched now, which the caller then fetches, and those
    /// whose keys have become too old. `issuers` are those of the present issuer file.
    pub(super) fn take_due(&mut self, issuers: &[String], now: Duration) -> (Vec<String>, Vec<String>) {
        self.issuers.retain(|known, fetches| fetches.next.is_none() || issuers.contains(known));
        let (mut due, mut outdated) = (Vec::new(), Vec::new());
        for issuer in issuers {
            let fetches = self.of(issuer);
            if fetches.next.is_some_and(|next| next <= now) {
                fetches.next = None;
                due.push(issuer.clone());
            }
            if fetches.outdated_at.is_some_and(|time| time <= now) {
                fetches.outdated_at = None;
                outdated.push(issuer.clone());
            }
        }
        (due, outdated)
    }

    /// Records that a token names a key which is not in force. No request waits for an issuer that did
    /// not answer the last time.
    pub(super) fn request(&mut self, issuer: &str, now: Duration) -> KeyRequestAnswer {
        let fetches = self.of(issuer);
        let is_running = fetches.next.is_none();
        let is_allowed = fetches.requested.is_none_or(|last| now >= last + REQUEST_INTERVAL);
        let starts_fetch = !is_running && is_allowed;
        if starts_fetch {
            fetches.requested = Some(now);
            fetches.next = None;
        }
        let may_wait = (is_running || starts_fetch) && fetches.failures == 0;
        KeyRequestAnswer { starts_fetch, may_wait }
    }

    /// Records a success. Returns whether there were no keys before, or the last fetch failed.
    pub(super) fn succeeded(&mut self, issuer: &str, now: Duration) -> bool {
        let fetches = self.of(issuer);
        let is_first = fetches.outdated_at.is_none() || fetches.failures > 0;
        fetches.next = Some(now + REFRESH_INTERVAL);
        fetches.failures = 0;
        fetches.outdated_at = Some(now + KEYS_AGE_MAX);
        is_first
    }

    /// Records a failure. Returns the pause before the next attempt.
    pub(super) fn failed(&mut self, issuer: &str, now: Duration) -> Duration {
        let fetches = self.of(issuer);
        let pause = pause_after(fetches.failures, PAUSE_MAX);
        fetches.failures = fetches.failures.saturating_add(1);
        fetches.next = Some(now + pause);
        pause
    }

    /// Returns the time until something is due; `None` if nothing is scheduled.
    pub(super) fn next_due(&self, now: Duration) -> Option<Duration> {
        let times = |fetches: &IssuerFetches| [fetches.next, fetches.outdated_at];
        let next = self.issuers.values().flat_map(times).flatten().min()?;
        Some(next.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn due(schedule: &mut FetchSchedule, seconds: u64) -> (Vec<String>, Vec<String>) {
        schedule.take_due(&["a".to_owned(), "b".to_owned()], at(seconds))
    }

    const NONE: ([String; 0], [String; 0]) = ([], []);

    #[test]
    fn one_fetch_of_an_issuer_runs_at_a_time() {
        let mut schedule = FetchSchedule::default();
        assert_eq!(due(&mut schedule, 0).0, ["a", "b"]);
        assert_eq!(due(&mut schedule, 1000).0, NONE.0);
        assert!(schedule.succeeded("a", at(1000)));
        assert_eq!(schedule.next_due(at(1000)), Some(REFRESH_INTERVAL));
        assert_eq!(due(&mut schedule, 1599).0, NONE.0);
        assert_eq!(due(&mut schedule, 1600).0, ["a"]);
        assert!(!schedule.succeeded("a", at(1600)), "nothing new to log");
        // One that is no longer configured is forgotten, unless a fetch of it runs.
        let _ = schedule.take_due(&[], at(1600));
        assert!(!schedule.issuers.contains_key("a") && schedule.issuers.contains_key("b"));
    }

    #[test]
    fn failures_pause_longer_and_longer() {
        let mut schedule = FetchSchedule::default();
        let _ = due(&mut schedule, 0);
        let pauses: Vec<u64> = (0..20).map(|_| schedule.failed("a", at(0)).as_secs()).collect();
        assert_eq!(pauses[..5], [60, 120, 240, 480, 600]);
        assert!(pauses[5..].iter().all(|pause| *pause == 600));
        assert!(schedule.succeeded("a", at(0)), "it is logged that it answers again");
        assert_eq!(schedule.failed("a", at(0)).as_secs(), 60);
    }

    #[test]
    fn keys_are_used_for_a_day_after_the_last_success() {
        let mut schedule = FetchSchedule::default();
        let day = KEYS_AGE_MAX.as_secs();
        schedule.restored("a", at(day - 100), at(5));
        assert_eq!(due(&mut schedule, 5), (vec!["a".to_owned(), "b".to_owned()], vec![]));
        schedule.failed("a", at(6));
        assert_eq!(due(&mut schedule, 104).1, NONE.1);
        assert_eq!(due(&mut schedule, 105).1, ["a"]);
        assert_eq!(due(&mut schedule, 106).1, NONE.1, "once");
        schedule.succeeded("a", at(200));
        schedule.failed("a", at(201));
        assert_eq!(due(&mut schedule, 199 + day).1, NONE.1);
        assert_eq!(due(&mut schedule, 200 + day).1, ["a"]);
    }

    const FETCH: KeyRequestAnswer = KeyRequestAnswer { starts_fetch: true, may_wait: true };
    const WAIT: KeyRequestAnswer = KeyRequestAnswer { starts_fetch: false, may_wait: true };
    const REFUSE: KeyRequestAnswer = KeyRequestAnswer { starts_fetch: false, may_wait: false };

    #[test]
    fn invented_keys_cause_one_fetch_per_interval() {
        let mut schedule = FetchSchedule::default();
        let _ = due(&mut schedule, 0);
        assert_eq!(schedule.request("a", at(1)), WAIT, "the first fetch runs");
        schedule.succeeded("a", at(1));
        assert_eq!(schedule.request("a", at(2)), FETCH);
        assert_eq!(schedule.request("a", at(3)), WAIT);
        assert_eq!(due(&mut schedule, 1000).0, NONE.0, "the requested fetch runs");
        schedule.succeeded("a", at(4));
        let fetches = (4..=604).filter(|second| {
            let answer = schedule.request("a", at(*second));
            if answer.starts_fetch {
                schedule.succeeded("a", at(*second));
            }
            answer.starts_fetch
        });
        assert_eq!(fetches.count(), 10);
        assert_eq!(schedule.request("a", at(605)), REFUSE);
    }

    #[test]
    fn no_request_waits_for_an_issuer_that_does_not_answer() {
        let mut schedule = FetchSchedule::default();
        let _ = due(&mut schedule, 0);
        schedule.failed("a", at(1));
        assert_eq!(schedule.request("a", at(2)), KeyRequestAnswer { starts_fetch: true, may_wait: false });
        assert_eq!(schedule.request("a", at(3)), REFUSE, "while the fetch runs");
        schedule.failed("a", at(4));
        assert_eq!(schedule.request("a", at(61)), REFUSE);
        assert!(schedule.request("a", at(62)).starts_fetch, "sooner than by the backoff");
        schedule.succeeded("a", at(63));
        assert_eq!(schedule.request("a", at(122)), FETCH);
    }
}
