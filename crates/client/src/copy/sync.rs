//! Synchronization of directories: copies files that are missing or different, and removes extra
//! ones if requested.
//!
//! Both trees are read in parallel, one directory of each at a time, so memory does not grow with
//! their size. Copies start while the trees are still being read. Removals are only planned at that
//! time: they start once both trees were read completely. An unknown entry on one side protects the
//! entry of the same name on the other, with everything below it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Copier;
use super::equal::{Equal, Reason};
use super::failure::{CopyError, Side};
use super::nested::TargetPath;
use super::opening::unless_stopped;
use super::options::{CopyJob, CopyOptions, Watch};
use super::place::Place;
use super::removed::RemovedNames;
use super::tree::{CopyListener, KNOWN_MAX, Tally};
use crate::path::RelativePath;
use crate::walk::{
    Chosen, Directory, DirectoryQueue, Pending, Tree, TreeRemoval, UnreliableEntry, Walk, WalkItem,
    is_own_directory,
};

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

/// A directory of the source, and the directory with the same path at the target if there is one.
type Pair = (Pending, Option<Pending>);

/// Subdirectories that must be compared.
struct SubdirectoryPairs {
    source: DirectoryQueue,
    target: Option<DirectoryQueue>,
    /// For each directory of the source its index among those of the target, if it exists there.
    places: Vec<Option<usize>>,
    next: usize,
}

impl SubdirectoryPairs {
    fn next(&mut self) -> Option<Pair> {
        let source = self.source.get(self.next)?;
        let place = self.places.get(self.next).copied().flatten();
        self.next += 1;
        Some((source, place.and_then(|place| self.target.as_ref()?.get(place))))
    }
}

/// The comparison of two trees.
struct Comparison<'a, T> {
    copier: &'a Copier,
    sync: &'a DirectorySync,
    listener: &'a Arc<dyn CopyListener>,
    tell: &'a T,
    source: Tree,
    target: Tree,
    /// The entries that only the target has, by directory.
    surplus: Vec<Chosen>,
    /// Set while all of both trees could be read.
    is_complete: bool,
    failed: u64,
    target_path: TargetPath,
    removed: RemovedNames,
}

impl Copier {
    /// Makes `sync.target` equal to `sync.source`. `tell` is called for each copy before it begins,
    /// and for each removal.
    ///
    /// # Errors
    /// [`CopyError`] if one of the directories cannot be read, or the synchronization was
    /// cancelled. Failures of single files are reported to `listener`.
    pub async fn sync(
        &self,
        sync: &DirectorySync,
        tell: impl Fn(&SyncStep),
        listener: Arc<dyn CopyListener>,
        watch: &Watch,
    ) -> Result<Tally, CopyError> {
        unless_stopped(watch, self.not_nested(&sync.source, &sync.target)).await?;
        if sync.delete {
            // The source would be removed as an extra directory of the target.
            unless_stopped(watch, self.not_nested(&sync.target, &sync.source)).await?;
        }
        // Ends whose absent servers would make files look missing.
        let ends = [(&sync.source, Side::Source), (&sync.target, Side::Target)];
        let is_checked = sync.delete && !sync.allow_away;
        if is_checked {
            let window = Duration::from_secs(self.client.settings().formation_window);
            self.nobody_is_away(ends, window, &listener, watch).await?;
        }
        let at = async |place: &Place, other: &Place, side: Side| {
            let tree = Tree::at(&self.client, &self.disk, place, other).await.map(|tree| {
                // An entry that is missing in the source is removed from the target; one in the
                // target may be removed.
                if matches!(side, Side::Source) || sync.delete { tree.exact() } else { tree }
            });
            tree.map_err(|error| CopyError::Remote { side, error })
        };
        let source = unless_stopped(watch, at(&sync.source, &sync.target, Side::Source)).await?;
        let target =
            unless_stopped(watch, at(&sync.target, &sync.source, Side::Target)).await?.beside(&source);
        // A server that left before the servers of the trees were determined is missing in them.
        if is_checked {
            self.nobody_was_away(ends, [&source, &target], watch).await?;
        }
        let target_path = async { Ok(TargetPath::between(self, &sync.source, &sync.target).await) };
        let mut comparison = Comparison {
            copier: self,
            sync,
            listener: &listener,
            tell: &tell,
            source,
            target,
            surplus: Vec::new(),
            is_complete: true,
            failed: 0,
            target_path: unless_stopped(watch, target_path).await?,
            removed: RemovedNames::default(),
        };
        let (found, queue) = mpsc::channel(KNOWN_MAX);
        let compare = unless_stopped(watch, comparison.run(found));
        // An existing older or different file is replaced once the new one is complete.
        let options = CopyOptions { force: true, times: true, ..sync.options.clone() };
        let (compared, copied) =
            tokio::join!(compare, self.copy_found(queue, &options, sync.parallel, listener.clone(), watch));
        compared?;
        let mut tally = copied?;
        if sync.delete {
            let removed = unless_stopped(watch, comparison.remove()).await;
            comparison.sync_removals().await;
            removed?;
        }
        tally.failed += comparison.failed;
        Ok(tally)
    }

    /// Reports whether a place exists.
    async fn is_there(&self, place: &Place) -> bool {
        match place {
            Place::Local(path) => {
                let path = path.clone();
                self.disk.run(move || path.exists()).await.unwrap_or(false)
            }
            Place::Remote(url) => !matches!(self.client.file_system(url).find(&url.path).await, Ok(None)),
            Place::Stream => true,
        }
    }
}

impl<T: Fn(&SyncStep)> Comparison<'_, T> {
    /// Compares the trees, and sends the copies to be made.
    async fn run(&mut self, found: mpsc::Sender<CopyJob>) -> Result<(), CopyError> {
        let mut open: Vec<SubdirectoryPairs> = Vec::new();
        let mut next: Option<Pair> = Some((self.source.root(), Some(self.target.root())));
        let mut is_root = true;
        while let Some((source, target)) = next {
            let read_target = async {
                match target {
                    Some(target) => Some(self.target.read(target).await),
                    None => None,
                }
            };
            let (source, target) = tokio::join!(self.source.read(source), read_target);
            let target = target.filter(|target| !target.is_missing);
            if std::mem::take(&mut is_root) {
                self.can_begin(&source, target.as_ref()).await?;
            }
            open.extend(self.directory(&source, target.as_ref(), &found).await);
            // Apart from its subdirectories that are still to be compared, neither listing is
            // needed any longer.
            drop((source, target));
            next = loop {
                let Some(last) = open.last_mut() else { break None };
                if let Some(pair) = last.next() {
                    break Some(pair);
                }
                open.pop();
            };
        }
        Ok(())
    }

    /// Checks the two root directories, without which there is nothing to do.
    async fn can_begin(&self, source: &Directory, target: Option<&Directory>) -> Result<(), CopyError> {
        if source.is_missing {
            let place = &self.sync.source;
            let text = match self.copier.is_there(place).await {
                true => format!("{place} is no directory; scalla cp copies single files"),
                false => format!("{place} is not there; no such directory"),
            };
            return Err(CopyError::Usage(text));
        }
        let is_risky = self.sync.delete && !self.sync.allow_empty;
        if is_risky && source.items.is_empty() && target.is_some_and(|target| !target.items.is_empty()) {
            let DirectorySync { source, target, .. } = self.sync;
            let text = format!(
                "{source} is empty, so everything in {target} would be removed; --allow-empty does that"
            );
            return Err(CopyError::Usage(text));
        }
        for (directory, side) in [(Some(source), Side::Source), (target, Side::Target)] {
            let Some(directory) = directory.filter(|directory| !directory.is_complete) else { continue };
            if let Some(unknown) = directory.unknown.iter().find(|unknown| unknown.name.is_none()) {
                return Err(CopyError::on(side, unknown.error.clone()));
            }
        }
        Ok(())
    }

    /// Compares one directory and queues its subdirectories.
    async fn directory(
        &mut self,
        source: &Directory,
        target: Option<&Directory>,
        found: &mpsc::Sender<CopyJob>,
    ) -> Option<SubdirectoryPairs> {
        let unknown_here = self.report(source, Side::Source, |_| true);
        let delete = self.sync.delete;
        let matters = |name: &str| delete || source.items.contains(name);
        let unknown_there = match target {
            Some(target) => self.report(target, Side::Target, matters),
            None => BTreeSet::new(),
        };
        self.is_complete &= source.is_complete && target.is_none_or(|target| target.is_complete);
        if target.is_some_and(|target| !target.is_complete)
            || (!source.is_complete && source.items.is_empty())
        {
            return None;
        }
        if target.is_none() && !self.sync.dry_run {
            let place = self.sync.target.below(&source.path);
            if let Err(error) = self.copier.make_directory(&place, self.sync.options.sync).await {
                self.miss(&error);
                return None;
            }
        }
        let (mut here, mut there, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for item in source.items.iter().filter(|item| !unknown_there.contains(&*item.name)) {
            let other = target.and_then(|target| target.items.find(&item.name));
            match other {
                Some(other) if other.is_directory != item.is_directory => {
                    let place = self.sync.target.below(&source.path.join(&item.name));
                    self.miss(&CopyError::OtherKind(place.to_string()));
                }
                other if item.is_directory => {
                    if self.enters(source, &item, target.zip(other.as_ref())).await {
                        here.push(item.number());
                        places.push(other.as_ref().map(|_| there.len()));
                        there.extend(other.map(|other| other.number()));
                    }
                }
                other => self.file(source, &item, other.as_ref(), found).await,
            }
        }
        if delete && let Some(target) = target {
            self.note_surplus(source, target, &unknown_here);
        }
        let target = target.filter(|_| !there.is_empty()).map(|target| self.target.queue(target, there));
        (!here.is_empty()).then(|| SubdirectoryPairs {
            source: self.source.queue(source, here),
            target,
            places,
            next: 0,
        })
    }

    /// Records the entries that only the target has.
    fn note_surplus(&mut self, source: &Directory, target: &Directory, unknown_here: &BTreeSet<&str>) {
        let is_surplus =
            |item: &WalkItem| !source.items.contains(&item.name) && !unknown_here.contains(&*item.name);
        let numbers: Vec<u32> = target.items.iter().filter(is_surplus).map(|item| item.number()).collect();
        if numbers.is_empty() {
            return;
        }
        match self.target.keep(target, &numbers) {
            Ok(chosen) => self.surplus.push(chosen),
            Err(error) => {
                self.is_complete = false;
                self.miss(&CopyError::on(Side::Target, error));
            }
        }
    }

    /// Reports whether a directory of both sides, or of the source alone, is compared.
    async fn enters(
        &mut self,
        source: &Directory,
        item: &WalkItem,
        target: Option<(&Directory, &WalkItem)>,
    ) -> bool {
        let refused = match (self.source.enters(source, item), target) {
            (Err(unknown), _) => Err((unknown, Side::Source)),
            (Ok(()), None) => Ok(()),
            (Ok(()), Some((directory, item))) => {
                self.target.enters(directory, item).map_err(|unknown| (unknown, Side::Target))
            }
        };
        if let Err((unknown, side)) = &refused {
            self.miss(&CopyError::on(*side, unknown.error.clone()));
            return false;
        }
        let (from, to) = (source.child(item), self.sync.target.below(&source.path.join(&item.name)));
        let outside = self.target_path.check(self.copier, &from, item.server_number(), &to).await;
        if let Err(error) = &outside {
            self.miss(error);
        }
        outside.is_ok()
    }

    /// Sends a file to be copied, unless the target has an equal one.
    async fn file(
        &mut self,
        directory: &Directory,
        item: &WalkItem,
        other: Option<&WalkItem>,
        found: &mpsc::Sender<CopyJob>,
    ) {
        let target = self.sync.target.below(&directory.path.join(&item.name));
        let job = CopyJob { source: directory.child(item), target, size: Some(item.size) };
        match self.copier.difference(&job, item, other, self.sync.equal).await {
            Ok(None) => {}
            Ok(Some(reason)) => {
                (self.tell)(&SyncStep::Copy(job.target.clone(), item.size, reason));
                if !self.sync.dry_run {
                    self.listener.found(&job);
                    // The receiver is gone if the copies were cancelled.
                    found.send(job).await.ok();
                }
            }
            Err(error) => self.miss(&error),
        }
    }

    fn miss(&mut self, error: &CopyError) {
        self.listener.missed(error);
        self.failed += 1;
    }

    /// Reports the unknown entries of a directory and returns their names.
    fn report<'d>(
        &mut self,
        directory: &'d Directory,
        side: Side,
        matters: impl Fn(&str) -> bool,
    ) -> BTreeSet<&'d str> {
        for UnreliableEntry { name, error, .. } in &directory.unknown {
            if name.as_deref().is_none_or(&matters) {
                self.miss(&CopyError::on(side, error.clone()));
            }
        }
        directory.unknown.iter().filter_map(|unknown| unknown.name.as_deref()).collect()
    }

    /// Removes the entries that only the target has, if both trees were read completely.
    async fn remove(&mut self) -> Result<(), CopyError> {
        if !self.is_complete {
            let text =
                format!("nothing is removed from {}: not everything could be compared", self.sync.target);
            self.miss(&CopyError::Usage(text));
            return Ok(());
        }
        if let Some(most) = self.sync.max_delete {
            let (count, is_complete) = self.count_surplus(most).await;
            if count > most || !is_complete {
                let why = if count > most { "more than --max-delete" } else { "it could not all be counted" };
                let text = format!("nothing is removed from {}: {why}", self.sync.target);
                self.miss(&CopyError::Usage(text));
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
                self.miss(&error);
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
                    Err(error) => self.miss(&CopyError::on(Side::Target, error)),
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
        let tree = self.target.below(&surplus.path, &surplus.at);
        if self.sync.dry_run {
            return self.plan_removal(tree).await;
        }
        let mut removal = TreeRemoval::of(tree);
        while let Some(removed) = removal.next().await {
            for one in removed {
                if let Err(error) = one.result {
                    self.miss(&CopyError::on(Side::Target, error));
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
        let failed = self.copier.disk.run(move || removed.sync()).await;
        failed.unwrap_or_else(|| vec![CopyError::Cancelled]).iter().for_each(|error| self.miss(error));
    }

    /// Reports the planned removals, contents first.
    async fn plan_removal(&mut self, tree: Tree) {
        let mut walk = Walk::through(tree);
        let mut directories = Vec::new();
        while let Some(mut directory) = walk.next().await {
            walk.enter_all(&mut directory);
            self.report(&directory, Side::Target, |_| true);
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
