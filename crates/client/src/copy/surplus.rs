//! Removal of the entries that only the target of a synchronization has.
//!
//! Servers follow links, so each entry is checked to be inside the target before it is removed.

use std::collections::BTreeMap;

use super::comparison::FailureReport;
use super::disk::DiskThreads;
use super::failure::{CopyError, Side};
use super::opening::unless_stopped;
use super::options::Watch;
use super::place::Place;
use super::removed::RemovedNames;
use super::sync::{DirectorySync, SyncStep};
use crate::path::RelativePath;
use crate::walk::{Chosen, Tree, TreeRemoval, Walk, WalkItem, is_own_directory};

/// An entry that only the target has.
struct Surplus {
    path: RelativePath,
    is_directory: bool,
    /// The servers of the target that have it.
    at: Vec<usize>,
}

impl Surplus {
    fn all(chosen: &Chosen) -> impl Iterator<Item = Self> + '_ {
        let surplus = |item: WalkItem| Self {
            path: chosen.path.join(&item.name),
            is_directory: item.is_directory,
            at: item.servers(),
        };
        chosen.items.iter().map(surplus)
    }
}

/// The removal of surplus entries, which begins once both trees were compared.
pub(super) struct SurplusRemoval<'a, T> {
    pub(super) disk: &'a DiskThreads,
    pub(super) sync: &'a DirectorySync,
    pub(super) tell: &'a T,
    pub(super) target: Tree,
    /// The entries to remove, by directory.
    pub(super) surplus: Vec<Chosen>,
    /// Set if both trees were read completely.
    pub(super) is_complete: bool,
    pub(super) failures: FailureReport<'a>,
    /// Removed names that are not on the disk yet.
    pub(super) removed: RemovedNames,
}

impl<T: Fn(&SyncStep)> SurplusRemoval<'_, T> {
    /// Removes the entries. The removals so far are synced to stable storage, also if `watch` stops
    /// them.
    pub(super) async fn run(&mut self, watch: &Watch) -> Result<(), CopyError> {
        let removed = unless_stopped(watch, self.remove()).await;
        self.sync_removals().await;
        removed
    }

    /// Removes the entries that only the target has, if both trees were read completely.
    async fn remove(&mut self) -> Result<(), CopyError> {
        if !self.is_complete {
            let text =
                format!("nothing is removed from {}: not everything could be compared", self.sync.target);
            self.failures.miss(&CopyError::Usage(text));
            return Ok(());
        }
        if let Some(most) = self.sync.max_delete {
            let (count, is_complete) = self.count_surplus(most).await;
            if count > most || !is_complete {
                let why = if count > most { "more than --max-delete" } else { "it could not all be counted" };
                let text = format!("nothing is removed from {}: {why}", self.sync.target);
                self.failures.miss(&CopyError::Usage(text));
                return Ok(());
            }
        }
        let mut own = BTreeMap::new();
        let chosen = std::mem::take(&mut self.surplus);
        for surplus in chosen.iter().flat_map(Surplus::all) {
            let place = self.sync.target.below(&surplus.path);
            if !self.sync.dry_run
                && let Err(error) = self.is_in_own_directory(&surplus, &mut own).await
            {
                self.failures.miss(&error);
                continue;
            }
            if surplus.is_directory {
                self.remove_directory(&surplus).await;
                continue;
            }
            (self.tell)(&SyncStep::Remove(place.clone()));
            if !self.sync.dry_run {
                let servers = self.target.servers_at(&surplus.at);
                match self.target.remove(&place, &servers, false).await {
                    Ok(()) => self.note_removal(&place, false).await,
                    Err(error) => self.failures.miss(&CopyError::on(Side::Target, error)),
                }
            }
        }
        Ok(())
    }

    /// Counts the entries to be removed, at most to just above `most`. Returns also whether
    /// everything could be read.
    async fn count_surplus(&self, most: u64) -> (u64, bool) {
        let (mut count, mut is_complete) = (0, true);
        for surplus in self.surplus.iter().flat_map(Surplus::all) {
            if count > most {
                break;
            }
            count += 1;
            if !surplus.is_directory {
                continue;
            }
            let mut walk = Walk::through(self.target.below(&surplus.path, &surplus.at));
            while let Some(mut directory) = walk.next().await.filter(|_| count <= most) {
                walk.enter_all(&mut directory);
                is_complete &= directory.is_complete;
                count += directory.items.len() as u64;
            }
        }
        (count, is_complete)
    }

    async fn remove_directory(&mut self, surplus: &Surplus) {
        let mut tree = self.target.below(&surplus.path, &surplus.at);
        if self.sync.allow_links {
            tree = tree.ignoring_web_links();
        }
        if self.sync.dry_run {
            return self.plan_removal(tree).await;
        }
        let mut removal = TreeRemoval::of(tree);
        while let Some(removed) = removal.next().await {
            for one in removed {
                if let Err(error) = one.result {
                    self.failures.miss(&CopyError::on(Side::Target, error));
                    continue;
                }
                self.note_removal(&one.place, one.is_directory).await;
                let step = if one.is_directory { SyncStep::RemoveDirectory } else { SyncStep::Remove };
                (self.tell)(&step(one.place));
            }
        }
    }

    /// Records that a name was removed. Its directory is synced to stable storage later, once for
    /// all names in it.
    async fn note_removal(&mut self, place: &Place, is_directory: bool) {
        let Place::Local(path) = place else { return };
        if !self.sync.options.sync {
            return;
        }
        self.removed.add(path.clone(), is_directory);
        if self.removed.is_full() {
            self.sync_removals().await;
        }
    }

    async fn sync_removals(&mut self) {
        if self.removed.is_empty() {
            return;
        }
        let removed = self.removed.take();
        let failed = self.disk.run(move || removed.sync()).await;
        failed
            .unwrap_or_else(|| vec![CopyError::Cancelled])
            .iter()
            .for_each(|error| self.failures.miss(error));
    }

    /// Reports the planned removals, contents first.
    async fn plan_removal(&mut self, tree: Tree) {
        let mut walk = Walk::through(tree);
        let mut directories = Vec::new();
        while let Some(mut directory) = walk.next().await {
            walk.enter_all(&mut directory);
            self.failures.unknown(&directory, Side::Target, |_| true);
            for item in directory.items.iter().filter(|item| !item.is_directory) {
                (self.tell)(&SyncStep::Remove(directory.child(&item)));
            }
            directories.push(directory.place);
        }
        directories.into_iter().rev().for_each(|place| (self.tell)(&SyncStep::RemoveDirectory(place)));
    }

    /// Checks that each component on the way to an entry is a directory. Servers follow links, so
    /// the entry may otherwise be outside of the target.
    async fn is_in_own_directory(
        &self,
        surplus: &Surplus,
        own: &mut BTreeMap<(RelativePath, usize), Option<CopyError>>,
    ) -> Result<(), CopyError> {
        let mut above = surplus.path.parent();
        while let Some(path) = above.filter(|path| !path.is_empty()) {
            let Place::Remote(url) = self.sync.target.below(&path) else { return Ok(()) };
            if self.sync.allow_links && url.is_http() {
                return Ok(());
            }
            for server in &surplus.at {
                let key = (path.clone(), *server);
                if let Some(known) = own.get(&key) {
                    known.clone().map_or(Ok(()), Err)?;
                    continue;
                }
                let mut refused = None;
                for files in self.target.servers_at(&[*server]) {
                    refused = is_own_directory(&files, &url.path).await.err().map(CopyError::target);
                }
                own.insert(key, refused.clone());
                refused.map_or(Ok(()), Err)?;
            }
            above = path.parent();
        }
        Ok(())
    }
}
