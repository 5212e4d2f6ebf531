//! Stats in progress, by path.
//!
//! A disk that hangs completes no stat, so their number and the bytes of their paths are bounded.
//! Each file system has a share of that ([`storage::LookLimit`]), so that three that hang leave
//! space for others.

use super::pending_requests::ParentQuery;
use base::LogicalPath;
use std::collections::HashMap;

/// Maximum number of stats in progress.
const LOOKING_MAX: usize = 1 << 16;

/// Maximum number of bytes of their paths.
const LOOKING_BYTES_MAX: usize = 16 * 1024 * 1024;

const _: () =
    assert!(3 * storage::LOOKS_MAX < LOOKING_MAX && 3 * storage::LOOK_BYTES_MAX < LOOKING_BYTES_MAX);

/// Maximum number of parents' requests that wait for one stat.
const WANTED_MAX: usize = 256;

/// The stats in progress.
#[derive(Default)]
pub(super) struct PendingStats {
    paths: HashMap<LogicalPath, PendingStat>,
    bytes: usize,
}

impl PendingStats {
    /// Reports whether the limits permit one more stat.
    pub(super) fn has_room(&self) -> bool {
        self.paths.len() < LOOKING_MAX && self.bytes < LOOKING_BYTES_MAX
    }

    pub(super) fn get(&self, path: &LogicalPath) -> Option<&PendingStat> {
        self.paths.get(path)
    }

    pub(super) fn get_mut(&mut self, path: &LogicalPath) -> Option<&mut PendingStat> {
        self.paths.get_mut(path)
    }

    pub(super) fn insert(&mut self, path: LogicalPath, waiting: PendingStat) {
        let bytes = path.as_bytes().len();
        if self.paths.insert(path, waiting).is_none() {
            self.bytes += bytes;
        }
    }

    pub(super) fn remove(&mut self, path: &LogicalPath) -> Option<PendingStat> {
        let waiting = self.paths.remove(path)?;
        self.bytes -= path.as_bytes().len();
        Some(waiting)
    }

    /// Removes the started stats and returns them.
    pub(super) fn take_begun(&mut self) -> Vec<(LogicalPath, PendingStat)> {
        let begun = |_: &LogicalPath, waiting: &mut PendingStat| waiting.number.is_some();
        let taken: Vec<(LogicalPath, PendingStat)> = self.paths.extract_if(begun).collect();
        self.bytes -= taken.iter().map(|(path, _)| path.as_bytes().len()).sum::<usize>();
        taken
    }
}

/// A stat and the requests that wait for it.
pub(super) struct PendingStat {
    /// The number of the stat; `None` while it is queued.
    pub(super) number: Option<u64>,
    pub(super) wanted: Vec<StatReason>,
}

impl PendingStat {
    /// Adds a request. A duplicate is answered once, so that the list does not grow while a disk
    /// hangs.
    pub(super) fn add(&mut self, wanted: StatReason) {
        let has_room = self.wanted.len() < WANTED_MAX || !matches!(wanted, StatReason::Answer(_));
        if has_room && !self.wanted.iter().any(|other| other.is_same(&wanted)) {
            self.wanted.push(wanted);
        }
    }
}

/// The reason of a stat.
pub(super) enum StatReason {
    /// The query of a parent.
    Answer(ParentQuery),
    /// The query of the location machine.
    Machine,
    /// A name was created or removed, and parents receive its state.
    News,
    /// A path was missing. If its directory is missing too, all other paths in it are.
    Directory,
}

impl StatReason {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Answer(one), Self::Answer(other)) => {
                (one.link, one.streamid, one.definite) == (other.link, other.streamid, other.definite)
                    && one.path == other.path
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::tree::ConnectionId;
    use wire::cms::StreamId;

    fn asked(link: u64, streamid: u8, definite: bool) -> StatReason {
        let (link, streamid) = (ConnectionId::accepted(link), StreamId([streamid; 4]));
        StatReason::Answer(ParentQuery { link, streamid, path: Box::from(b"/f".as_slice()), definite })
    }

    #[test]
    fn duplicate_requests_wait_once() {
        let mut waiting = PendingStat { number: Some(1), wanted: vec![asked(1, 1, true)] };
        for _ in 0..3 {
            let all = [asked(1, 1, true), asked(1, 1, false), asked(1, 2, true), asked(2, 1, true)];
            let others = [StatReason::Machine, StatReason::News, StatReason::Directory];
            all.into_iter().chain(others).for_each(|wanted| waiting.add(wanted));
        }
        assert_eq!(waiting.wanted.len(), 7);
    }

    #[test]
    fn looks_at_a_disk_that_hangs_are_bounded_by_number_and_by_bytes() {
        for name_bytes in [8, 3000] {
            let mut pending_stats = PendingStats::default();
            let path =
                |number: usize| LogicalPath::parse(format!("/{number:0name_bytes$}").as_bytes()).unwrap();
            let mut count = 0;
            while pending_stats.has_room() {
                pending_stats
                    .insert(path(count), PendingStat { number: Some(1), wanted: vec![StatReason::News] });
                count += 1;
            }
            assert!(count <= LOOKING_MAX && pending_stats.bytes < LOOKING_BYTES_MAX + 3001);
            pending_stats.insert(path(0), PendingStat { number: None, wanted: Vec::new() });
            assert!(pending_stats.remove(&path(1)).is_some() && pending_stats.remove(&path(1)).is_none());
            assert_eq!(pending_stats.take_begun().len(), count - 2);
            assert_eq!(pending_stats.bytes, name_bytes + 1);
            assert!(
                pending_stats.remove(&path(0)).is_some()
                    && pending_stats.bytes == 0
                    && pending_stats.has_room()
            );
        }
    }
}
