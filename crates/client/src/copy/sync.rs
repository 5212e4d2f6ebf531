//! Synchronization of directories: copies files that are missing or different, and removes extra
//! ones if requested.
//!
//! Copies start while the trees are still being read (`comparison`). Removals are only planned at
//! that time: they start once both trees were read completely (`surplus`). An unknown entry on one
//! side protects the entry of the same name on the other, with everything below it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Copier;
use super::away::AwayCheck;
use super::comparison::{Comparison, FailureReport};
use super::equal::{Equal, Reason};
use super::failure::{CopyError, Side};
use super::nested::TargetPath;
use super::opening::unless_stopped;
use super::options::{CopyOptions, Watch};
use super::parallel::{ParallelCopies, Tally};
use super::place::Place;
use super::tree::{CopyListener, KNOWN_MAX};
use crate::walk::Tree;

/// A synchronization and its options.
#[derive(Clone, Debug)]
pub struct DirectorySync {
    /// The source directory.
    pub source: Place,
    /// The target directory.
    pub target: Place,
    /// The criterion by which files count as equal.
    pub equal: Equal,
    /// Set to remove entries that the source does not have.
    pub delete: bool,
    /// Maximum number of files and directories that are removed. If there are more, none is
    /// removed.
    pub max_delete: Option<u64>,
    /// Set to remove the entries of the target even if the source is empty.
    pub allow_empty: bool,
    /// Set to remove entries although a server of a cluster is away.
    pub allow_away: bool,
    /// Set to remove entries of directories of WebDAV, which does not show whether a directory is a link.
    pub allow_links: bool,
    /// Set to report the steps without performing them.
    pub dry_run: bool,
    /// Maximum number of copies at the same time.
    pub parallel: usize,
    /// The options for each file.
    pub options: CopyOptions,
}

/// A step for one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyncStep {
    /// A file is copied. The number is its size in bytes.
    Copy(Place, u64, Reason),
    /// An entry is removed, or was just removed, because the source does not have it.
    Remove(Place),
    /// A directory is removed, or was just removed, after its content.
    RemoveDirectory(Place),
}

/// One run of a synchronization.
pub(super) struct SyncRun<'a, T> {
    pub(super) copier: &'a Copier,
    pub(super) sync: &'a DirectorySync,
    /// Receives each step.
    pub(super) tell: &'a T,
    pub(super) listener: &'a Arc<dyn CopyListener>,
    pub(super) watch: &'a Watch,
}

impl<T: Fn(&SyncStep)> SyncRun<'_, T> {
    /// Compares the directories and copies files at the same time, then removes surplus entries.
    pub(super) async fn run(&self) -> Result<Tally, CopyError> {
        let Self { copier, sync, tell, listener, watch } = *self;
        let (source, target) = self.trees().await?;
        let target_path = async { Ok(TargetPath::between(copier, &sync.source, &sync.target).await) };
        let mut comparison = Comparison {
            copier,
            sync,
            tell,
            source,
            target,
            surplus: Vec::new(),
            is_complete: true,
            failures: FailureReport::to(listener),
            target_path: unless_stopped(watch, target_path).await?,
        };
        let (found, queue) = mpsc::channel(KNOWN_MAX);
        let compare = unless_stopped(watch, comparison.run(found));
        // An existing older or different file is replaced once the new one is complete.
        let options = CopyOptions { force: true, times: true, ..sync.options.clone() };
        let copies = ParallelCopies::new(copier, &options, listener.clone(), watch);
        let (compared, copied) = tokio::join!(compare, copies.run(queue, sync.parallel));
        compared?;
        let mut tally = copied?;
        let mut removal = comparison.into_removal();
        if sync.delete {
            removal.run(watch).await?;
        }
        tally.failed += removal.failures.count();
        Ok(tally)
    }

    /// Returns the trees of source and target. Refuses nested directories, and ends whose absent
    /// servers would make files look missing.
    async fn trees(&self) -> Result<(Tree, Tree), CopyError> {
        let Self { copier, sync, listener, watch, .. } = *self;
        unless_stopped(watch, copier.not_nested(&sync.source, &sync.target)).await?;
        if sync.delete {
            // The source would be removed as an extra directory of the target.
            unless_stopped(watch, copier.not_nested(&sync.target, &sync.source)).await?;
        }
        let ends = [(&sync.source, Side::Source), (&sync.target, Side::Target)];
        let away = AwayCheck { client: &copier.client, ends, watch };
        let is_checked = sync.delete && !sync.allow_away;
        if is_checked {
            let window = Duration::from_secs(copier.client.settings().formation_window);
            away.check(window, listener).await?;
        }
        let at = async |place: &Place, other: &Place, side: Side| {
            let tree = Tree::at(&copier.client, &copier.disk, place, other).await.map(|tree| {
                // An entry that is missing in the source is removed from the target; one in the
                // target may be removed.
                let tree = if is_checked { tree.at_one_server() } else { tree };
                if matches!(side, Side::Source) || sync.delete { tree.exact() } else { tree }
            });
            tree.map_err(|error| CopyError::Remote { side, error })
        };
        let source = unless_stopped(watch, at(&sync.source, &sync.target, Side::Source)).await?;
        let target =
            unless_stopped(watch, at(&sync.target, &sync.source, Side::Target)).await?.beside(&source);
        // A server that left before the servers of the trees were determined is missing in them.
        if is_checked {
            away.check_trees([&source, &target]).await?;
        }
        Ok((source, target))
    }
}
