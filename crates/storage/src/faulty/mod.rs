//! A fault-injecting storage backend for tests of everything that is built on storage.
//!
//! It wraps another backend. Rules make calls fail, wait, hang until released, read short or panic.
//! The room for writing and the rate of reading can be limited. Paths can be given their own pools,
//! as if they were other file systems, or links into other file systems.
//!
//! | file | content |
//! |---|---|
//! | `rules` | the rules: which calls go wrong, when and at which paths |
//! | `pace` | a rate limit in bytes per second |
//! | `file` | an open file whose calls go wrong |

mod file;
mod pace;
mod rules;

pub use pace::Pace;
pub use rules::{FaultRule, FaultRules, FaultyCall, Gate, InjectedFault, RuleId};

use crate::backend::{logical_directories_above, sync_names};
use crate::{
    Backend, CreateMode, DirectoryAbove, DirectoryPosition, DirectoryStream, ExistingName, FileIdentity,
    FileSystemUsage, Metadata, Now, OpenMode, ParentCreation, Pool, RawEntry, SpaceUsage, StoredFile,
    TransferStorage, WorkPlacement,
};
use base::LogicalPath;
use file::FaultyFile;
use rules::FaultVerdict;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;

/// A fault-injecting storage backend. Without rules it behaves like the one it wraps.
pub struct Faulty {
    inner: Arc<dyn Backend>,
    rules: Arc<FaultRules>,
    pools: Pools,
    links: Arc<Pools>,
}

/// The pools of the trees at these paths.
type Pools = Vec<(LogicalPath, Arc<Pool>)>;

/// Returns the pool of a path: that of the longest prefix that contains it.
fn pool_of<'p>(pools: &'p Pools, path: &LogicalPath) -> Option<&'p Arc<Pool>> {
    let pools = pools.iter().filter(|(prefix, _)| path.is_within(prefix));
    pools.max_by_key(|(prefix, _)| prefix.as_bytes().len()).map(|(_, pool)| pool)
}

impl Faulty {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner, rules: Arc::default(), pools: Vec::new(), links: Arc::default() }
    }

    /// Gives the tree at `path` this pool, as if it were its own file system. The longest path
    /// wins.
    pub fn with_pool(mut self, path: &LogicalPath, pool: Arc<Pool>) -> Self {
        self.pools.push((path.clone(), pool));
        self
    }

    /// Makes `path` a link into a file system with this pool, for everything at and below it,
    /// existing or not. The `_now` calls would block there.
    pub fn with_link(mut self, path: &LogicalPath, pool: Arc<Pool>) -> Self {
        let links = [self.links.as_slice(), &[(path.clone(), pool)]].concat();
        self.links = Arc::new(links);
        self
    }

    /// Returns the rules, which can be changed at any time.
    pub fn rules(&self) -> &Arc<FaultRules> {
        &self.rules
    }

    fn file(&self, path: &LogicalPath, inner: Arc<dyn StoredFile>) -> Arc<dyn StoredFile> {
        let own = pool_of(&self.links, path).or_else(|| pool_of(&self.pools, path));
        let pool = own.unwrap_or_else(|| inner.pool()).clone();
        Arc::new(FaultyFile { inner, rules: self.rules.clone(), path: path.clone(), pool })
    }

    /// Replaces `beside` in the options by the file that it wraps.
    fn unwrapped(how: &OpenMode) -> OpenMode {
        let mut how = how.clone();
        if let Some(create) = &mut how.create
            && let Some(beside) = &create.beside
            && let Some(faulty) = beside.as_any().downcast_ref::<FaultyFile>()
        {
            create.beside = Some(faulty.inner.clone());
        }
        how
    }
}

impl Backend for Faulty {
    fn open(&self, path: &LogicalPath, how: &OpenMode) -> io::Result<Arc<dyn StoredFile>> {
        self.rules.meet(FaultyCall::Open, path)?;
        Ok(self.file(path, self.inner.open(path, &Self::unwrapped(how))?))
    }

    fn open_now(&self, path: &LogicalPath, how: &OpenMode) -> Now<Arc<dyn StoredFile>> {
        match self.rules.meet_now(FaultyCall::Open, path) {
            Err(error) => Now::Done(Err(error)),
            Ok(FaultVerdict::WouldBlock) => Now::WouldBlock,
            Ok(_) if pool_of(&self.links, path).is_some() => Now::WouldBlock,
            Ok(_) => match self.inner.open_now(path, &Self::unwrapped(how)) {
                Now::Done(opened) => Now::Done(opened.map(|inner| self.file(path, inner))),
                Now::WouldBlock => Now::WouldBlock,
            },
        }
    }

    fn stat(&self, path: &LogicalPath) -> io::Result<Metadata> {
        self.rules.meet(FaultyCall::Stat, path)?;
        self.inner.stat(path)
    }

    fn stat_now(&self, path: &LogicalPath) -> Now<Metadata> {
        match self.rules.meet_now(FaultyCall::Stat, path) {
            Err(error) => Now::Done(Err(error)),
            Ok(FaultVerdict::WouldBlock) => Now::WouldBlock,
            Ok(_) if pool_of(&self.links, path).is_some() => Now::WouldBlock,
            Ok(_) => self.inner.stat_now(path),
        }
    }

    fn identity(&self, path: &LogicalPath) -> io::Result<FileIdentity> {
        self.rules.meet(FaultyCall::Stat, path)?;
        self.inner.identity(path)
    }

    fn stored_path<'p>(&self, path: &'p LogicalPath) -> io::Result<Cow<'p, LogicalPath>> {
        self.inner.stored_path(path)
    }

    fn identities_above(&self, path: &LogicalPath) -> io::Result<Vec<DirectoryAbove>> {
        if self.inner.lists_all_names() {
            return Ok(logical_directories_above(self, path));
        }
        self.rules.meet(FaultyCall::Stat, path)?;
        self.inner.identities_above(path)
    }

    fn sync_above(&self, path: &LogicalPath) -> io::Result<bool> {
        if self.inner.lists_all_names() {
            return sync_names(path, |path| self.pool(path), |path| self.sync_name(path));
        }
        self.rules.meet(FaultyCall::Sync, path)?;
        self.inner.sync_above(path)
    }

    fn creates_parent(&self, directory: &LogicalPath, path: &LogicalPath) -> bool {
        self.inner.creates_parent(directory, path)
    }

    fn has_name(&self, path: &LogicalPath) -> io::Result<bool> {
        self.rules.meet(FaultyCall::Stat, path)?;
        self.inner.has_name(path)
    }

    fn sync_name(&self, path: &LogicalPath) -> io::Result<()> {
        self.rules.meet(FaultyCall::Sync, path)?;
        self.inner.sync_name(path)
    }

    fn lists_all_names(&self) -> bool {
        self.inner.lists_all_names()
    }

    fn list(&self, path: &LogicalPath) -> io::Result<Box<dyn DirectoryStream>> {
        self.rules.meet(FaultyCall::List, path)?;
        let (inner, rules, links) = (self.inner.list(path)?, self.rules.clone(), self.links.clone());
        let home = pool_of(&self.links, path).or_else(|| pool_of(&self.pools, path)).cloned();
        let mounted = self.pools.clone();
        Ok(Box::new(FaultyDirectory { inner, rules, links, mounted, home, path: path.clone() }))
    }

    fn make_directory(
        &self,
        path: &LogicalPath,
        mode: u32,
        parents: Option<&ParentCreation>,
    ) -> io::Result<()> {
        self.rules.meet(FaultyCall::MakeDirectory, path)?;
        self.inner.make_directory(path, mode, parents)
    }

    fn remove_directory(&self, path: &LogicalPath) -> io::Result<()> {
        self.rules.meet(FaultyCall::RemoveDirectory, path)?;
        self.inner.remove_directory(path)
    }

    fn remove_file(&self, path: &LogicalPath) -> io::Result<()> {
        self.rules.meet(FaultyCall::RemoveFile, path)?;
        self.inner.remove_file(path)
    }

    fn rename(
        &self,
        from: &LogicalPath,
        to: &LogicalPath,
        existing: ExistingName,
        parents: Option<&ParentCreation>,
    ) -> io::Result<()> {
        self.rules.meet(FaultyCall::Rename, from)?;
        self.inner.rename(from, to, existing, parents)
    }

    fn set_mode(&self, path: &LogicalPath, mode: u32) -> io::Result<()> {
        self.rules.meet(FaultyCall::SetMode, path)?;
        self.inner.set_mode(path, mode)
    }

    fn has_local_names(&self, path: &LogicalPath) -> bool {
        self.inner.has_local_names(path)
    }

    fn renew_access(&self, path: &LogicalPath) -> io::Result<()> {
        self.rules.meet(FaultyCall::RenewAccess, path)?;
        self.inner.renew_access(path)
    }

    fn truncate(&self, path: &LogicalPath, size: u64) -> io::Result<()> {
        self.rules.meet(FaultyCall::Truncate, path)?;
        self.inner.truncate(path, size)
    }

    fn attribute(&self, path: &LogicalPath, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.rules.meet(FaultyCall::Attribute, path)?;
        self.inner.attribute(path, name)
    }

    fn set_attribute(&self, path: &LogicalPath, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        self.rules.meet(FaultyCall::Attribute, path)?;
        self.inner.set_attribute(path, name, value, new)
    }

    fn remove_attribute(&self, path: &LogicalPath, name: &str) -> io::Result<()> {
        self.rules.meet(FaultyCall::Attribute, path)?;
        self.inner.remove_attribute(path, name)
    }

    fn attributes(&self, path: &LogicalPath) -> io::Result<Vec<String>> {
        self.rules.meet(FaultyCall::Attribute, path)?;
        self.inner.attributes(path)
    }

    fn spaces_beside(&self, path: &LogicalPath, wish: &str) -> Option<Vec<String>> {
        self.inner.spaces_beside(path, wish)
    }

    fn usage(&self, path: &LogicalPath, space: Option<&str>) -> io::Result<SpaceUsage> {
        self.rules.meet(FaultyCall::Usage, path)?;
        let mut usage = self.inner.usage(path, space)?;
        if let Some(room) = self.rules.room() {
            usage.free = usage.free.min(room);
            usage.largest_free = usage.largest_free.min(room);
        }
        Ok(usage)
    }

    fn transfers(&self) -> Option<&dyn TransferStorage> {
        self.inner.transfers()
    }

    fn file_systems(&self, path: &LogicalPath) -> io::Result<Vec<FileSystemUsage>> {
        self.rules.meet(FaultyCall::Usage, path)?;
        let mut systems = self.inner.file_systems(path)?;
        if let Some(room) = self.rules.room() {
            systems.iter_mut().for_each(|system| system.free = system.free.min(room));
        }
        Ok(systems)
    }

    fn space_file_systems(&self, path: &LogicalPath) -> io::Result<Vec<(String, FileSystemUsage)>> {
        self.rules.meet(FaultyCall::Usage, path)?;
        let mut systems = self.inner.space_file_systems(path)?;
        if let Some(room) = self.rules.room() {
            systems.iter_mut().for_each(|(_, system)| system.free = system.free.min(room));
        }
        Ok(systems)
    }

    fn space_of(&self, path: &LogicalPath) -> String {
        self.inner.space_of(path)
    }

    fn pool(&self, path: &LogicalPath) -> &Arc<Pool> {
        pool_of(&self.pools, path).unwrap_or_else(|| self.inner.pool(path))
    }

    fn placement(&self, path: &LogicalPath, create: Option<&CreateMode>) -> Option<WorkPlacement> {
        let own = pool_of(&self.links, path).map(|pool| WorkPlacement::new(pool.clone()));
        own.or_else(|| self.inner.placement(path, create))
    }
}

struct FaultyDirectory {
    inner: Box<dyn DirectoryStream>,
    rules: Arc<FaultRules>,
    links: Arc<Pools>,
    mounted: Pools,
    /// The pool of the directory, if it was given its own.
    home: Option<Arc<Pool>>,
    path: LogicalPath,
}

impl FaultyDirectory {
    /// Returns the pool of an entry that lies on another file system than the directory.
    fn pool_elsewhere(&self, entry: &LogicalPath) -> Option<&Arc<Pool>> {
        let pool = pool_of(&self.links, entry).or_else(|| pool_of(&self.mounted, entry))?;
        self.home.as_ref().is_none_or(|home| !Arc::ptr_eq(home, pool)).then_some(pool)
    }

    /// Applies the rules for an entry. A link or mount has its own rules; other entries have those
    /// of the directory.
    fn meet(&self, call: FaultyCall, name: &[u8]) -> io::Result<()> {
        let entry = self.path.join(name).ok().filter(|entry| self.pool_elsewhere(entry).is_some());
        self.rules.meet(call, entry.as_ref().unwrap_or(&self.path)).map(drop)
    }
}

impl DirectoryStream for FaultyDirectory {
    fn next(&mut self, most: usize) -> io::Result<Vec<RawEntry>> {
        self.rules.meet(FaultyCall::ListNext, &self.path)?;
        self.inner.next(most)
    }

    fn position(&self) -> Option<DirectoryPosition> {
        self.inner.position()
    }

    fn go_to(&mut self, position: DirectoryPosition) -> io::Result<()> {
        self.inner.go_to(position)
    }

    fn other_pool(&self, entry: &RawEntry) -> Option<Arc<Pool>> {
        let path = self.path.join(&entry.name).ok()?;
        self.pool_elsewhere(&path).cloned().or_else(|| self.inner.other_pool(entry))
    }

    fn is_alias(&self, entry: &RawEntry) -> bool {
        self.inner.is_alias(entry)
    }

    fn stat(&self, name: &[u8]) -> io::Result<Metadata> {
        self.meet(FaultyCall::Stat, name)?;
        self.inner.stat(name)
    }

    fn attribute(&self, name: &[u8], attribute: &str) -> io::Result<Option<Vec<u8>>> {
        self.meet(FaultyCall::Attribute, name)?;
        self.inner.attribute(name, attribute)
    }
}
