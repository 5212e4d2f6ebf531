//! [`TranslatedDirectory`]: a directory on disk as clients see it with name rules.
//!
//! Entries that have another name by a rule are omitted. A rule whose logical directory lies in this
//! one adds an entry, as a mount point would.

use super::attribute::{self, AttributeBearer};
use super::calls::metadata;
use super::directory::PosixDirectory;
use super::tree::ConfinedTree;
use super::volume::{Volume, Volumes};
use crate::{DirectoryStream, Metadata, NameRules, Pool, RawEntry};
use base::LogicalPath;
use rustix::fs::OFlags;
use std::io;
use std::sync::Arc;

/// An entry that a rule adds.
struct RuleEntry {
    name: Vec<u8>,
    /// The directory on disk.
    target: LogicalPath,
    volume: Arc<Volume>,
}

/// A directory whose entries are translated by rules.
pub(super) struct TranslatedDirectory {
    inner: PosixDirectory,
    names: Arc<NameRules>,
    tree: Arc<ConfinedTree>,
    logical: LogicalPath,
    stored: LogicalPath,
    /// The entries of rules, in the order in which they are returned.
    added: Vec<RuleEntry>,
    /// Number of entries of rules that were returned.
    returned: usize,
    /// The directory on disk has no more entries.
    is_read: bool,
}

impl TranslatedDirectory {
    /// Wraps the directory at a stored path. The directories of rules may be on other disks that
    /// hang, so they are not accessed.
    pub(super) fn new(
        inner: PosixDirectory,
        names: &Arc<NameRules>,
        (logical, stored): (LogicalPath, LogicalPath),
        (tree, volumes): (&Arc<ConfinedTree>, &Volumes),
    ) -> Self {
        let added = names.rules_in(&logical).into_iter().filter(|(name, _)| {
            // A rule whose directory is hidden by another rule adds nothing.
            logical.join(name).is_ok_and(|path| names.stored(&path).is_ok())
        });
        let added = added.map(|(name, target)| {
            let volume = volumes.of_path(&target).clone();
            RuleEntry { name, target, volume }
        });
        let (added, names, tree) = (added.collect(), names.clone(), tree.clone());
        Self { inner, names, tree, logical, stored, added, returned: 0, is_read: false }
    }

    fn rule_entry(&self, name: &[u8]) -> Option<&RuleEntry> {
        self.added.iter().find(|entry| entry.name == name)
    }
}

impl DirectoryStream for TranslatedDirectory {
    fn next(&mut self, most: usize) -> io::Result<Vec<RawEntry>> {
        while !self.is_read {
            let mut page = self.inner.next(most)?;
            self.is_read = page.is_empty();
            page.retain(|entry| self.names.shows((&self.logical, &self.stored), &entry.name));
            // An empty page would be the end of the directory.
            if !page.is_empty() {
                return Ok(page);
            }
        }
        let rest = self.added.iter().skip(self.returned).take(most);
        let page: Vec<_> = rest
            .map(|entry| RawEntry { name: entry.name.clone(), link: false, is_directory: None })
            .collect();
        self.returned += page.len();
        Ok(page)
    }

    fn other_pool(&self, entry: &RawEntry) -> Option<Arc<Pool>> {
        match self.rule_entry(&entry.name) {
            Some(added) => Some(added.volume.pool.clone()),
            None => self.inner.other_pool(entry),
        }
    }

    fn is_alias(&self, entry: &RawEntry) -> bool {
        self.rule_entry(&entry.name).is_none() && self.inner.is_alias(entry)
    }

    fn stat(&self, name: &[u8]) -> io::Result<Metadata> {
        match self.rule_entry(name) {
            Some(added) => {
                Ok(metadata(&rustix::fs::fstat(self.tree.open(&added.target, OFlags::PATH, 0)?)?))
            }
            None => self.inner.stat(name),
        }
    }

    fn attribute(&self, name: &[u8], attribute: &str) -> io::Result<Option<Vec<u8>>> {
        match self.rule_entry(name) {
            Some(added) => {
                attribute::get(&AttributeBearer::from(&self.tree.reach(&added.target)?), attribute)
            }
            None => self.inner.attribute(name, attribute),
        }
    }
}
