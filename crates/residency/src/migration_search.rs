//! Searches the exports for files that need a copy in mass storage, and puts them into the queue.
//!
//! One thread does it, and rests after each piece of work. It remembers a bounded number of files that
//! are not idle yet. The queue holds a bounded number of files to be migrated, and the search waits
//! while it is full. So the memory and the database do not grow with the number of files.

use crate::copy_candidate::{CopyNeed, copy_need, has_foreign_copy};
use crate::entry::{EntryKey, Priority, TransferDirection};
use crate::ports::{RemoteCatalog, ResidencyPaths};
use crate::queue::Submission;
use crate::queue_thread::Command;
use crate::staging::seconds_since_epoch;
use crate::sweep::rest_after;
use crate::tree_walk::{TreeVisitor, walk_tree};
use base::LogicalPath;
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use storage::{
    Backend, COPY_RECORD_ATTRIBUTE, COPY_TIME_ATTRIBUTE, CopyTime, DirectoryStream, Metadata, RawEntry,
    TransferStorage,
};

/// The owner of migrations in the queue. It is not the name of a user or host.
pub(crate) const MIGRATION_OWNER: &str = "(migration)";

/// The client of migrations, as copy programs see it.
const CLIENT: &str = "migration";

/// Maximum number of files to be migrated that wait in the queue.
pub(crate) const QUEUED_MAX: u64 = 10_000;

/// Maximum number of files whose migration has failed and that the queue remembers. The search waits then,
/// as it does for a full queue. It is greater than the other limit, because such a file stays for hours
/// and must not keep others from their copy.
pub(crate) const FAILED_MAX: usize = 100_000;

/// Maximum number of files that wait in memory until they are idle.
const DEFERRED_MAX: usize = 4096;

/// Number of files that are put into the queue in one step.
const BATCH_MAX: usize = 256;

/// The interval between two looks at a full queue.
const FULL_INTERVAL: Duration = Duration::from_secs(5);

/// The interval between two messages about files that cannot be migrated.
const REPORT_INTERVAL: Duration = Duration::from_secs(86_400);

/// Maximum number of files that such a message names.
const NAMED_MAX: usize = 10;

/// The times of the search for files to be migrated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MigrationSchedule {
    /// The interval between two searches.
    pub interval: Duration,
    /// The time for which a file must not have been changed.
    pub idle: Duration,
}

/// The thread that searches.
pub(crate) struct MigrationSearch {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) paths: Arc<dyn ResidencyPaths>,
    pub(crate) catalog: Option<Arc<dyn RemoteCatalog>>,
    pub(crate) schedule: MigrationSchedule,
    pub(crate) source: Arc<str>,
    pub(crate) commands: Sender<Command>,
}

impl MigrationSearch {
    /// Searches again and again, until the queue ends.
    pub(crate) fn run(self) {
        let mut reported = None;
        while self.pass(&mut reported).is_continue() {}
    }

    /// Searches once, and returns after the interval.
    fn pass(&self, reported: &mut Option<Instant>) -> ControlFlow<()> {
        let begun = Instant::now();
        let Some(transfers) = self.backend.transfers() else { return ControlFlow::Break(()) };
        let mut pass = SearchPass {
            search: self,
            transfers,
            now: seconds_since_epoch(),
            batch: Vec::new(),
            deferred: BTreeSet::new(),
            selected: 0,
            impossible: 0,
            named: Vec::new(),
        };
        walk_tree(self.backend.as_ref(), &self.paths.roots(), &mut pass)?;
        pass.submit()?;
        if pass.impossible > 0 && reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
            *reported = Some(Instant::now());
            tracing::warn!(
                files = pass.impossible,
                first = pass.named.join(", "),
                "files cannot be migrated, because they have no modification time, their attribute \
                 {COPY_TIME_ATTRIBUTE} cannot be read, or oss.rsscmd cannot be asked for their names; see docs/staging.md"
            );
        }
        // Otherwise each search would find the files of the last one, which are not idle yet.
        let end = begun + self.schedule.interval.max(self.schedule.idle).max(Duration::from_secs(1));
        pass.take_deferred(end)?;
        if pass.selected > 0 {
            tracing::info!(files = pass.selected, "selected files to be migrated");
        }
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        ControlFlow::Continue(())
    }

    fn idle_seconds(&self) -> i64 {
        i64::try_from(self.schedule.idle.as_secs()).unwrap_or(i64::MAX)
    }

    fn need(&self, path: &LogicalPath, attribute: Option<&[u8]>, metadata: &Metadata, now: i64) -> CopyNeed {
        match copy_need(attribute, metadata, now, self.idle_seconds()) {
            CopyNeed::Now if self.paths.has_writer(path, metadata) => {
                CopyNeed::NotBefore(now.saturating_add(self.idle_seconds().max(1)))
            }
            need => need,
        }
    }
}

/// One search.
struct SearchPass<'a> {
    search: &'a MigrationSearch,
    transfers: &'a dyn TransferStorage,
    /// Seconds since the epoch.
    now: i64,
    batch: Vec<Submission>,
    /// Files that are not idle yet, the first one first.
    deferred: BTreeSet<(i64, LogicalPath)>,
    selected: u64,
    /// Number of files that cannot be migrated, and the first ones.
    impossible: u64,
    named: Vec<String>,
}

impl SearchPass<'_> {
    /// Returns the need of a file. On exports that are purged, one that a local program has renamed or copied needs a
    /// copy under its name, because it would stay for ever otherwise.
    fn need(
        &self,
        (path, metadata): (&LogicalPath, &Metadata),
        attribute: Option<&[u8]>,
        record: impl FnOnce() -> io::Result<Option<Vec<u8>>>,
    ) -> CopyNeed {
        let need = self.search.need(path, attribute, metadata, self.now);
        let is_foreign = need == CopyNeed::Never
            && has_foreign_copy(&*self.search.paths, (path, metadata), attribute, record).unwrap_or(false)
            // One with several names would need a copy under another of them after each search, and on some file systems
            // the numbers of all files are different after each start.
            && self.transfers.claim_unused(path).is_ok();
        match is_foreign {
            true => self.search.need(path, Some(&CopyTime::NEVER.encode()), metadata, self.now),
            false => need,
        }
    }

    fn handle(&mut self, path: &LogicalPath, need: CopyNeed) {
        let is_askable =
            || self.search.catalog.as_ref().is_none_or(|catalog| catalog.check_name(path).is_ok());
        match need {
            CopyNeed::Never => {}
            // The copy could not be verified.
            CopyNeed::Now | CopyNeed::NotBefore(_) if !is_askable() => self.note_impossible(path),
            CopyNeed::Impossible => self.note_impossible(path),
            CopyNeed::NotBefore(time) => {
                self.deferred.insert((time, path.clone()));
                if self.deferred.len() > DEFERRED_MAX {
                    // The next search finds it again.
                    self.deferred.pop_last();
                }
            }
            CopyNeed::Now => {
                self.selected += 1;
                self.batch.push(Submission {
                    key: EntryKey { direction: TransferDirection::Out, path: path.clone() },
                    priority: Priority::default(),
                    source: self.search.source.clone(),
                    client: CLIENT.into(),
                    owner: MIGRATION_OWNER.into(),
                    request: None,
                    removes: false,
                });
            }
        }
    }

    fn note_impossible(&mut self, path: &LogicalPath) {
        self.impossible += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(path.shown().to_string());
        }
    }

    /// Puts the files that were found into the queue, and waits while it is full.
    fn submit(&mut self) -> ControlFlow<()> {
        if self.batch.is_empty() {
            return ControlFlow::Continue(());
        }
        loop {
            let (reply, queued) = channel();
            let batch = std::mem::take(&mut self.batch);
            if self.search.commands.send(Command::Migrate(batch, reply)).is_err() {
                return ControlFlow::Break(());
            }
            match queued.recv() {
                Err(_) => return ControlFlow::Break(()),
                Ok(queued) if queued < QUEUED_MAX => return ControlFlow::Continue(()),
                Ok(_) => std::thread::sleep(FULL_INTERVAL),
            }
        }
    }

    /// Handles files that become idle before `end`.
    fn take_deferred(&mut self, end: Instant) -> ControlFlow<()> {
        while let Some((time, path)) = self.deferred.pop_first() {
            let now = seconds_since_epoch();
            let wait = Duration::from_secs(u64::try_from(time.saturating_sub(now)).unwrap_or_default());
            if wait > end.saturating_duration_since(Instant::now()) {
                break;
            }
            if wait > Duration::ZERO {
                self.submit()?;
                std::thread::sleep(wait);
            }
            self.look_again(&path);
            if self.batch.len() >= BATCH_MAX {
                self.submit()?;
            }
        }
        self.submit()
    }

    fn look_again(&mut self, path: &LogicalPath) {
        let Ok(file) = self.transfers.hold(path) else { return };
        if let (Ok(metadata), Ok(attribute)) = (file.stat(), file.attribute(COPY_TIME_ATTRIBUTE)) {
            self.now = seconds_since_epoch();
            let record = || file.attribute(COPY_RECORD_ATTRIBUTE);
            let need = self.need((path, &metadata), attribute.as_deref(), record);
            self.handle(path, need);
        }
    }
}

impl TreeVisitor for SearchPass<'_> {
    fn enters(&self, directory: &LogicalPath) -> bool {
        self.search.paths.of(directory).migrate
    }

    /// The files there have other names, by which they are migrated.
    fn follows_aliases(&self) -> bool {
        false
    }

    fn file(&mut self, path: &LogicalPath, entry: &RawEntry, stream: &dyn DirectoryStream) {
        let Ok(metadata) = stream.stat(&entry.name) else { return };
        let need = match stream.attribute(&entry.name, COPY_TIME_ATTRIBUTE) {
            Ok(attribute) => {
                let record = || stream.attribute(&entry.name, COPY_RECORD_ATTRIBUTE);
                self.need((path, &metadata), attribute.as_deref(), record)
            }
            Err(error) if storage::is_missing(&error) => return,
            // It is one that cannot be migrated only if it is a file that could be.
            Err(_) => match self.search.need(path, None, &metadata, self.now) {
                CopyNeed::Never => return,
                _ => CopyNeed::Impossible,
            },
        };
        // A link that is not that of a file in a space leads to a file with another name.
        if need != CopyNeed::Never && entry.link && self.transfers.hold(path).is_err() {
            return;
        }
        self.handle(path, need);
    }

    fn pause(&mut self, busy: Duration) -> ControlFlow<()> {
        std::thread::sleep(rest_after(busy));
        self.now = seconds_since_epoch();
        self.submit()
    }
}
