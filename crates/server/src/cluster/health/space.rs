//! Free space for new files, and the rules that decide when a server is full.
//!
//! Each file system is queried on its own pool, so that one that hangs delays only itself. Source:
//! cms protocol 3, sections space numbers and space on servers.

use base::{LogicalPath, Owner};
use cluster::tree::SpaceReport;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::{Backend, FileSystemUsage};

/// Usage older than this many intervals is stale and is left out: the file system does not answer,
/// so it counts as having no space.
const STALE: u32 = 3;
const MB: u64 = 1 << 20;
/// The largest number of MB that a message can hold; larger values are sent as this one.
const MB_MAX: u64 = 0x7fff_ffff;

/// The conditions under which a server is full (`cms.space`). Of a percentage and a number of bytes
/// the larger one applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceLimits {
    /// The interval between two queries of the space.
    pub recalculate: Duration,
    /// The server is full if its emptiest file system has less free than this percentage of the
    /// largest one.
    pub least_percent: u8,
    /// The server is full if its emptiest file system has fewer free bytes.
    pub least_bytes: u64,
    /// A full server accepts new files again from this percentage on.
    pub enough_percent: u8,
    /// A full server accepts new files again from this number of bytes on.
    pub enough_bytes: u64,
}

impl Default for SpaceLimits {
    fn default() -> Self {
        Self {
            recalculate: Duration::from_secs(12),
            least_percent: 2,
            least_bytes: 10 << 30,
            enough_percent: 5,
            enough_bytes: 11 << 30,
        }
    }
}

/// The sum of all file systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SpaceState {
    /// The space in the form in which nodes exchange it.
    pub(super) space: SpaceReport,
    /// Set if there is too little space for new files.
    pub(super) full: bool,
    /// A full server accepts new files again from this number of free MB on.
    pub(super) enough_mb: u64,
}

impl SpaceState {
    /// Logs that the server became full, or has space again.
    pub(super) fn log_change(&self) {
        let SpaceReport { free_mb, minimum_mb, file_systems, .. } = self.space;
        if !self.full {
            tracing::info!(free_mb, minimum_mb, "there is space for new files again");
        } else if file_systems == 0 {
            tracing::warn!("no disk reports its space; managers send no new files here until one does");
        } else {
            tracing::warn!(
                free_mb,
                minimum_mb,
                enough_mb = self.enough_mb,
                "too little space is free: managers send no new files here until there is enough; free some, or ask for less \
                 with cms.space or --min-free"
            );
        }
    }
}

impl SpaceLimits {
    /// Sums up the file systems, of which duplicates count once. `was_full` is the previous
    /// judgement.
    pub(super) fn judge(&self, systems: &[FileSystemUsage], was_full: bool) -> SpaceState {
        let mut known: Vec<FileSystemUsage> = Vec::new();
        for system in systems {
            if known.iter().all(|other| other.number != system.number) {
                known.push(*system);
            }
        }
        let total: u64 = known.iter().map(|system| system.total / MB).sum();
        let largest = known.iter().map(|system| system.total / MB).max().unwrap_or(0);
        let emptiest = known.iter().max_by_key(|system| system.free);
        let free = emptiest.map_or(0, |system| system.free / MB);
        // A disk that does not answer has 0 MB, so the minimum must be above 0 for every
        // configuration.
        let least = |percent: u8, bytes: u64| (largest * u64::from(percent) / 100).max(bytes / MB).max(1);
        let (minimum, again) =
            (least(self.least_percent, self.least_bytes), least(self.enough_percent, self.enough_bytes));
        let used_percent = emptiest.map_or(100, |system| {
            let free = u128::from(system.free) * 100;
            100 - u8::try_from(free.checked_div(u128::from(system.total)).unwrap_or(0).min(100))
                .unwrap_or(100)
        });
        let again = again.max(minimum);
        let full = if was_full { free < again } else { free < minimum };
        // A full server reports less than the minimum, even if a little more is free already.
        let told_free = if full { free.min(minimum.saturating_sub(1)) } else { free };
        let told = |mb: u64| u32::try_from(mb.min(MB_MAX)).unwrap_or(i32::MAX as u32);
        let space = SpaceReport {
            total_mb: told(total),
            free_mb: told(told_free),
            minimum_mb: told(minimum),
            used_percent,
            file_systems: u16::try_from(known.len()).unwrap_or(u16::MAX),
        };
        SpaceState { space, full, enough_mb: again }
    }
}

/// Queries file systems for their space periodically.
pub(super) struct SpaceSurvey {
    backend: Arc<dyn Backend>,
    exports: Vec<ExportUsage>,
    recalculate: Duration,
}

/// An export and its last reply.
struct ExportUsage {
    path: LogicalPath,
    heard: Option<(Instant, Vec<FileSystemUsage>)>,
    /// Set while a query is in progress.
    waiting: bool,
}

impl SpaceSurvey {
    pub(super) fn new(backend: Arc<dyn Backend>, exports: Vec<LogicalPath>, recalculate: Duration) -> Self {
        let asked = |path| ExportUsage { path, heard: None, waiting: false };
        Self { backend, exports: exports.into_iter().map(asked).collect(), recalculate }
    }

    /// Queries all exports without a query in progress. `say` is called on a thread of the pool
    /// with the number of the export.
    pub(super) fn ask(&mut self, say: impl Fn(usize, Vec<FileSystemUsage>) + Clone + Send + 'static) {
        for (number, asked) in self.exports.iter_mut().enumerate().filter(|(_, asked)| !asked.waiting) {
            let (backend, path, say) = (self.backend.clone(), asked.path.clone(), say.clone());
            let job = move || say(number, backend.file_systems(&path).unwrap_or_default());
            // If the pool is full, the export is queried in the next round.
            asked.waiting = self.backend.pool(&asked.path).run(Owner::SERVER, Box::new(job)).is_ok();
        }
    }

    /// Records the reply of an export's file systems. Returns true if no query is in progress any
    /// longer.
    pub(super) fn note_usage(&mut self, number: usize, systems: Vec<FileSystemUsage>, now: Instant) -> bool {
        if let Some(asked) = self.exports.get_mut(number) {
            asked.waiting = false;
            asked.heard = Some((now, systems));
        }
        self.exports.iter().all(|asked| !asked.waiting)
    }

    /// Returns the known usage without the exports whose last reply is stale.
    pub(super) fn known(&self, now: Instant) -> Vec<FileSystemUsage> {
        let fresh = |at: &Instant| now.saturating_duration_since(*at) < self.recalculate * STALE;
        let known = self.exports.iter().filter_map(|asked| asked.heard.as_ref());
        known.filter(|(at, _)| fresh(at)).flat_map(|(_, systems)| systems.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    fn system(number: u64, total_gb: u64, free_gb: u64) -> FileSystemUsage {
        FileSystemUsage { number, total: total_gb * GB, free: free_gb * GB }
    }

    #[test]
    fn figures_of_several_file_systems() {
        let rules = SpaceLimits::default();
        // A file system that two exports share counts once.
        let systems = [system(1, 1000, 100), system(2, 500, 300), system(1, 1000, 100)];
        let judged = rules.judge(&systems, false);
        let expected = SpaceReport {
            total_mb: 1500 * 1024,
            free_mb: 300 * 1024,
            minimum_mb: 1000 * 1024 * 2 / 100,
            used_percent: 40,
            file_systems: 2,
        };
        assert_eq!(judged, SpaceState { space: expected, full: false, enough_mb: 1000 * 1024 * 5 / 100 });
        let small = rules.judge(&[system(1, 100, 50)], false);
        assert_eq!(small.space.minimum_mb, 10 * 1024, "ten gigabytes are more than two percent");
        let none = rules.judge(&[], false);
        assert!(none.full && none.space.used_percent == 100 && !none.space.is_writable());
        let huge = rules.judge(&[FileSystemUsage { number: 1, total: u64::MAX, free: u64::MAX }], false);
        assert_eq!((huge.space.total_mb, huge.space.free_mb), (0x7fff_ffff, 0x7fff_ffff));
    }

    #[test]
    fn with_a_minimum_of_zero_a_disk_that_answers_has_space() {
        let next_to_nothing = SpaceLimits {
            least_percent: 0,
            least_bytes: 1,
            enough_percent: 0,
            enough_bytes: MB,
            ..SpaceLimits::default()
        };
        for (free, full) in [(2 * MB, false), (MB, false), (MB - 1, true)] {
            let judged = next_to_nothing.judge(&[FileSystemUsage { number: 1, total: GB, free }], true);
            assert_eq!((judged.full, judged.space.is_writable()), (full, !full), "{free} bytes");
        }
        let none = next_to_nothing.judge(&[], false);
        assert!(none.full && !none.space.is_writable(), "{none:?}");
    }

    #[test]
    fn full_below_the_minimum_and_accepting_above_the_second_mark() {
        let rules = SpaceLimits { least_percent: 0, enough_percent: 0, ..SpaceLimits::default() };
        let mut full = false;
        for (free_gb, expected) in [(12, false), (10, false), (9, true), (10, true), (11, false), (10, false)]
        {
            let judged = rules.judge(&[system(1, 100, free_gb)], full);
            assert_eq!(judged.full, expected, "{free_gb} GB");
            assert_eq!(judged.space.is_writable(), !expected, "parents compare free space with the minimum");
            full = judged.full;
        }
    }

    #[test]
    fn a_file_system_that_does_not_answer_has_no_space() {
        let now = Instant::now();
        let every = Duration::from_secs(12);
        let paths = ["/a", "/b"].map(|path| LogicalPath::parse(path.as_bytes()).unwrap());
        let root = std::env::temp_dir();
        let backend = storage::posix::Posix::new(&storage::posix::Config::new(root)).unwrap();
        let mut survey = SpaceSurvey::new(Arc::new(backend), paths.to_vec(), every);
        let (sender, said) = std::sync::mpsc::channel();
        let ask = |survey: &mut SpaceSurvey| {
            let sender = sender.clone();
            survey.ask(move |number, systems| {
                let _ = sender.send((number, systems));
            });
        };
        ask(&mut survey);
        let mut answers: Vec<_> = (0..2).map(|_| said.recv().unwrap()).collect();
        answers.sort_by_key(|(number, _)| *number);
        // Other programs may change the free space between the two queries.
        let disk = |(_, systems): &(usize, Vec<FileSystemUsage>)| match systems.as_slice() {
            [system] => (system.number, system.total),
            other => panic!("{other:?}"),
        };
        assert_eq!(disk(&answers[0]), disk(&answers[1]));
        ask(&mut survey);
        assert!(said.try_recv().is_err(), "who was not heard is not asked again");
        assert!(!survey.note_usage(0, vec![system(1, 10, 5)], now));
        assert!(survey.note_usage(1, vec![system(2, 10, 6)], now));
        assert_eq!(survey.known(now).len(), 2);
        survey.note_usage(1, vec![system(2, 10, 6)], now + every);
        assert_eq!(survey.known(now + every * STALE), [system(2, 10, 6)]);
    }
}
