//! The record on disk of the time until which clients may arrive with leases of a node, because the
//! next run of the node does not know the leases (decision 001).

use super::state_file::{self, StateFile};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The record is ahead by at most this time, so that it is not written for each lease.
const RECORD_AHEAD: Duration = Duration::from_secs(10);

/// The record of one node.
pub(super) struct LeaseRecord {
    kept: StateFile,
    /// The recorded time of day.
    until: Duration,
}

impl Default for LeaseRecord {
    fn default() -> Self {
        Self::new(None)
    }
}

impl LeaseRecord {
    /// Creates the record, which lies beside the place file; without one nothing is recorded.
    pub(super) fn new(place: Option<&Path>) -> Self {
        Self { kept: StateFile::new(place.map(file)), until: Duration::ZERO }
    }

    /// Extends the record for a new lease.
    pub(super) fn note(&mut self, today: SystemTime) {
        let until = since_epoch(today).saturating_add(cluster::EXPECTED_FOR);
        if until > self.until {
            self.until = until.saturating_add(RECORD_AHEAD);
            self.kept.keep(Some(format!("{}\n", self.until.as_secs())));
        }
    }

    /// Returns the time for which clients may arrive with leases of an earlier run of the node with
    /// this place file.
    pub(super) fn read(place: &Path, today: SystemTime) -> Option<Duration> {
        Self::remaining(&state_file::read(&file(place))?, today)
    }

    fn remaining(text: &str, today: SystemTime) -> Option<Duration> {
        let until = Duration::from_secs(text.trim_end().parse().ok()?);
        let remaining = until.checked_sub(since_epoch(today)).filter(|time| !time.is_zero())?;
        // A clock that was set back must not block the node for long.
        Some(remaining.min(cluster::EXPECTED_FOR + RECORD_AHEAD))
    }
}

fn file(place: &Path) -> PathBuf {
    place.with_file_name("leases")
}

fn since_epoch(today: SystemTime) -> Duration {
    today.duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_record_covers_all_clients_and_is_not_written_for_each() {
        let mut record = LeaseRecord::default();
        let mut written = Vec::new();
        for second in 1000..1050 {
            record.note(at(second));
            assert!(record.until >= Duration::from_secs(second) + cluster::EXPECTED_FOR);
            written.push(record.until);
        }
        written.dedup();
        assert_eq!(written.len(), 5);
    }

    #[test]
    fn a_restarted_node_knows_how_long_clients_with_leases_may_arrive() {
        let remaining = |text, second| LeaseRecord::remaining(text, at(second)).map(|time| time.as_secs());
        assert_eq!(remaining("1040\n", 1005), Some(35));
        assert_eq!([remaining("1040\n", 1040), remaining("1040\n", 2000)], [None, None]);
        assert_eq!(remaining("1040\n", 10), Some(130), "the clock was set back");
        assert_eq!([remaining("", 1000), remaining("nonsense", 1000)], [None, None]);
    }
}
