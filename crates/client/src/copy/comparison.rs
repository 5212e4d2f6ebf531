//! The comparison of two directory trees, which finds the files to copy.
//!
//! Both trees are read in parallel, one directory of each at a time, so memory does not grow with
//! their size.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::Copier;
use super::equal::EqualityCheck;
use super::failure::{CopyError, Side};
use super::nested::TargetPath;
use super::options::CopyJob;
use super::place::Place;
use super::removed::RemovedNames;
use super::surplus::SurplusRemoval;
use super::sync::{DirectorySync, SyncStep};
use super::tree::CopyListener;
use crate::url::Url;
use crate::walk::{Chosen, Directory, DirectoryQueue, Pending, Tree, UnreliableEntry, WalkItem};

/// Reports failures of single entries, and counts them.
pub(super) struct FailureReport<'a> {
    listener: &'a Arc<dyn CopyListener>,
    count: u64,
}

impl<'a> FailureReport<'a> {
    /// Creates a report to `listener`.
    pub(super) fn to(listener: &'a Arc<dyn CopyListener>) -> Self {
        Self { listener, count: 0 }
    }

    /// Returns the number of failures.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Reports one failure.
    pub(super) fn miss(&mut self, error: &CopyError) {
        self.listener.missed(error);
        self.count += 1;
    }

    /// Reports the unknown entries of a directory and returns their names.
    pub(super) fn unknown<'d>(
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
pub(super) struct Comparison<'a, T> {
    pub(super) copier: &'a Copier,
    pub(super) sync: &'a DirectorySync,
    /// Receives each step.
    pub(super) tell: &'a T,
    pub(super) source: Tree,
    pub(super) target: Tree,
    /// The entries that only the target has, by directory.
    pub(super) surplus: Vec<Chosen>,
    /// Set while all of both trees could be read.
    pub(super) is_complete: bool,
    pub(super) failures: FailureReport<'a>,
    pub(super) target_path: TargetPath,
}

impl<'a, T: Fn(&SyncStep)> Comparison<'a, T> {
    /// Compares the trees, and sends the copies to be made.
    pub(super) async fn run(&mut self, found: mpsc::Sender<CopyJob>) -> Result<(), CopyError> {
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
            let text = match self.is_there(place).await {
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
        let unknown_here = self.failures.unknown(source, Side::Source, |_| true);
        let delete = self.sync.delete;
        let matters = |name: &str| delete || source.items.contains(name);
        let unknown_there = match target {
            Some(target) => self.failures.unknown(target, Side::Target, matters),
            None => BTreeSet::new(),
        };
        self.is_complete &= source.is_complete && target.is_none_or(|target| target.is_complete);
        if target.is_some_and(|target| !target.is_complete)
            || (!source.is_complete && source.items.is_empty())
        {
            return None;
        }
        let place = self.sync.target.below(&source.path);
        // In an object store a directory exists with the first object in it.
        let is_implied = place.url().is_some_and(Url::is_object) && !source.items.is_empty();
        if target.is_none()
            && !self.sync.dry_run
            && !is_implied
            && let Err(error) = self.copier.make_directory(&place, self.sync.options.sync).await
        {
            self.failures.miss(&error);
            return None;
        }
        let (mut here, mut there, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for item in source.items.iter().filter(|item| !unknown_there.contains(&*item.name)) {
            let other = target.and_then(|target| target.items.find(&item.name));
            match other {
                Some(other) if other.is_directory != item.is_directory => {
                    let place = self.sync.target.below(&source.path.join(&item.name));
                    self.failures.miss(&CopyError::OtherKind(place.to_string()));
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
                self.failures.miss(&CopyError::on(Side::Target, error));
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
            self.failures.miss(&CopyError::on(*side, unknown.error.clone()));
            return false;
        }
        let (from, to) = (source.child(item), self.sync.target.below(&source.path.join(&item.name)));
        let outside = self.target_path.check(self.copier, &from, item.server_number(), &to).await;
        if let Err(error) = &outside {
            self.failures.miss(error);
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
        let check = EqualityCheck { copier: self.copier, equal: self.sync.equal };
        match check.difference(&job, item, other).await {
            Ok(None) => {}
            Ok(Some(reason)) => {
                (self.tell)(&SyncStep::Copy(job.target.clone(), item.size, reason));
                if !self.sync.dry_run {
                    self.failures.listener.found(&job);
                    // The receiver is gone if the copies were cancelled.
                    found.send(job).await.ok();
                }
            }
            Err(error) => self.failures.miss(&error),
        }
    }

    /// Reports whether a place exists.
    async fn is_there(&self, place: &Place) -> bool {
        let copier = self.copier;
        match place {
            Place::Local(path) => {
                let path = path.clone();
                copier.disk.run(move || path.exists()).await.unwrap_or(false)
            }
            Place::Remote(url) => !matches!(copier.client.file_system(url).find(&url.path).await, Ok(None)),
            Place::Stream => true,
        }
    }

    /// Ends the comparison. Returns the removal of the entries that only the target has.
    pub(super) fn into_removal(self) -> SurplusRemoval<'a, T> {
        let Self { copier, sync, tell, target, surplus, is_complete, failures, .. } = self;
        let (disk, removed) = (&copier.disk, RemovedNames::default());
        SurplusRemoval { disk, sync, tell, target, surplus, is_complete, failures, removed }
    }
}
