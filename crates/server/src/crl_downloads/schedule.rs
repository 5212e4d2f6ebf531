//! [`DownloadSchedule`]: when the list of each authority is downloaded. It is pure: times come from
//! outside.

use crate::background_downloads::pause_after;
use auth::grid::CrlSource;
use std::collections::HashMap;
use std::time::Duration;

/// Maximum pause after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Minimum interval between downloads of a list that is nearly past its time.
const INTERVAL_MIN: Duration = Duration::from_secs(600);

/// The downloads of all authorities by their names. Times are those since the start of
/// the server.
pub(super) struct DownloadSchedule {
    /// Interval between downloads from an authority that answers.
    refresh: Duration,
    authorities: HashMap<String, AuthorityDownloads>,
}

struct AuthorityDownloads {
    /// Time of the next download; `None` while one runs.
    next: Option<Duration>,
    failures: u32,
    /// The reason of the last failure, which was logged; empty after a success.
    reason: String,
    /// Changed addresses are tried at once.
    addresses: Vec<String>,
}

impl DownloadSchedule {
    pub(super) fn new(refresh: Duration) -> Self {
        Self { refresh, authorities: HashMap::new() }
    }

    /// Returns the authorities whose lists must be downloaded now, which the caller then downloads.
    /// `sources` are those of the present directory.
    pub(super) fn take_due(&mut self, sources: Vec<CrlSource>, now: Duration) -> Vec<CrlSource> {
        let is_present = |name: &String| sources.iter().any(|source| source.authority == *name);
        self.authorities.retain(|name, downloads| downloads.next.is_none() || is_present(name));
        let mut due = Vec::new();
        for source in sources {
            let downloads =
                self.authorities.entry(source.authority.clone()).or_insert_with(|| AuthorityDownloads {
                    next: Some(now),
                    failures: 0,
                    reason: String::new(),
                    addresses: source.addresses.clone(),
                });
            let Some(next) = downloads.next else { continue };
            if next <= now || downloads.addresses != source.addresses {
                downloads.next = None;
                downloads.addresses.clone_from(&source.addresses);
                due.push(source);
            }
        }
        due
    }

    /// Records a success. `left` is the time until the authority makes the next list, which is not past.
    /// Returns whether the last download failed.
    pub(super) fn succeeded(&mut self, authority: &str, left: Option<Duration>, now: Duration) -> bool {
        let refresh = self.refresh;
        let Some(downloads) = self.authorities.get_mut(authority) else { return false };
        // A list is downloaded again before it is past its time.
        let half = left.map_or(refresh, |left| (left / 2).max(INTERVAL_MIN));
        downloads.next = Some(now + refresh.min(half));
        downloads.failures = 0;
        !std::mem::take(&mut downloads.reason).is_empty()
    }

    /// Records a failure. Returns the pause before the next attempt if the failure must be logged.
    pub(super) fn failed(&mut self, authority: &str, reason: &str, now: Duration) -> Option<Duration> {
        let refresh = self.refresh;
        let downloads = self.authorities.get_mut(authority)?;
        let pause = pause_after(downloads.failures, PAUSE_MAX.min(refresh));
        downloads.failures = downloads.failures.saturating_add(1);
        downloads.next = Some(now + pause);
        let is_known = downloads.reason == reason;
        reason.clone_into(&mut downloads.reason);
        (!is_known).then_some(pause)
    }

    /// Returns the time until something is due; `None` if nothing is scheduled.
    pub(super) fn next_due(&self, now: Duration) -> Option<Duration> {
        let next = self.authorities.values().filter_map(|downloads| downloads.next).min()?;
        Some(next.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Returns an authority. All of them have one hash, which two names may have by chance.
    fn source(authority: &str, addresses: &[&str]) -> CrlSource {
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        CrlSource { authority: authority.to_owned(), hash: "0123abcd".to_owned(), addresses }
    }

    fn due(schedule: &mut DownloadSchedule, sources: &[CrlSource], seconds: u64) -> Vec<String> {
        let due = schedule.take_due(sources.to_vec(), at(seconds));
        due.into_iter().map(|source| source.authority).collect()
    }

    #[test]
    fn lists_are_downloaded_before_they_are_past_their_time() {
        let mut schedule = DownloadSchedule::new(at(86_400));
        let sources = [source("a", &["x"])];
        assert_eq!(due(&mut schedule, &sources, 0), ["a"]);
        assert!(due(&mut schedule, &sources, 99).is_empty(), "one download of an authority at a time");
        for (left, expected) in
            [(None, 86_400), (Some(at(1_000_000)), 86_400), (Some(at(7200)), 3600), (Some(at(0)), 600)]
        {
            assert!(!schedule.succeeded("a", left, at(100)));
            assert_eq!(schedule.next_due(at(100)), Some(at(expected)), "{left:?}");
        }
        assert!(due(&mut schedule, &sources, 699).is_empty());
        assert_eq!(due(&mut schedule, &sources, 700), ["a"]);
        let mut often = DownloadSchedule::new(at(5));
        due(&mut often, &sources, 0);
        often.succeeded("a", Some(at(7200)), at(0));
        assert_eq!(often.next_due(at(0)), Some(at(5)));
    }

    #[test]
    fn failures_pause_longer_and_are_logged_once() {
        let mut schedule = DownloadSchedule::new(at(86_400));
        let sources = [source("a", &["x"])];
        let mut now = 0;
        for pause in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
            assert_eq!(due(&mut schedule, &sources, now), ["a"]);
            let logged = schedule.failed("a", "no answer", at(now));
            assert_eq!(logged, (now == 0).then_some(at(60)));
            assert_eq!(schedule.next_due(at(now)), Some(at(pause)));
            now += pause;
        }
        assert!(schedule.failed("a", "garbage", at(now)).is_some(), "another reason");
        assert!(schedule.succeeded("a", None, at(now)), "it is logged that it answers again");
        assert!(!schedule.succeeded("a", None, at(now)));
        assert_eq!(schedule.failed("a", "garbage", at(now)), Some(at(60)));
        // Not less often than the lists of authorities that answer.
        let mut often = DownloadSchedule::new(at(5));
        due(&mut often, &sources, 0);
        assert_eq!(often.failed("a", "", at(0)), None);
        assert_eq!(often.next_due(at(0)), Some(at(5)));
    }

    #[test]
    fn authorities_come_and_go_with_the_directory() {
        let mut schedule = DownloadSchedule::new(at(86_400));
        assert_eq!(due(&mut schedule, &[source("a", &["x"]), source("b", &["x"])], 0), ["a", "b"]);
        schedule.succeeded("a", None, at(0));
        // Changed addresses are tried at once, and those of a running download after its end.
        let changed = [source("a", &["y"]), source("b", &["y"])];
        assert_eq!(due(&mut schedule, &changed, 1), ["a"]);
        schedule.failed("b", "no answer", at(1));
        assert_eq!(due(&mut schedule, &changed, 2), ["b"]);
        schedule.succeeded("a", None, at(2));
        assert!(due(&mut schedule, &[], 3).is_empty());
        assert!(!schedule.authorities.contains_key("a") && schedule.authorities.contains_key("b"));
        assert_eq!(schedule.failed("unknown", "x", at(3)), None);
    }
}
