//! [`Posix`]: a storage backend for POSIX file systems below a local root.

use super::accounts::{AccountedFile, SpaceAccounts};
use super::attribute::{self, AttributeBearer};
use super::calls::{QUIET, exact_mode, metadata, stat_cached, usage_of};
use super::directory::PosixDirectory;
use super::file::PosixFile;
use super::file_systems;
use super::link::{self, LinkTarget};
use super::opening::{OngoingRemovals, OpenedFile, look_up, open_named};
use super::partition::SpaceReservation;
use super::space::{SPACE_DEFAULT, SpaceConfig, Spaces};
use super::stable;
use super::translated_directory::TranslatedDirectory;
use super::tree::{ConfinedTree, DisabledFeatures, MetadataHandle, ParentDirectory};
use super::volume::{Volume, Volumes};
use crate::backend::{directories_above, sync_names};
use crate::{
    Backend, CreateMode, DirectoryAbove, DirectoryState, DirectoryStream, ExistingName, FileIdentity,
    FileSystemUsage, Metadata, NameRules, Now, OpenMode, ParentCreation, Pool, SpaceUsage, StoredFile,
    TransferStorage, WorkPlacement,
};
use base::LogicalPath;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::borrow::Cow;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};

/// The configuration of a [`Posix`] backend.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory that is `/` in logical paths (`oss.localroot`).
    pub root: PathBuf,
    /// The parts of the name space that are served. File systems mounted elsewhere are ignored.
    pub served: Vec<LogicalPath>,
    /// Rules that translate logical paths to paths below the root (`scalla.namerule`).
    pub name_rules: Vec<config::NameRule>,
    /// Directories outside the root that symbolic links may lead into, in addition to the
    /// partitions of spaces.
    pub links_to: Vec<PathBuf>,
    /// The spaces. Without any, data is stored where its name is.
    pub spaces: SpaceConfig,
    /// Maximum size of a file in bytes (`oss.maxsize`).
    pub file_bytes_max: Option<u64>,
    /// Kernel features that are not used; for tests.
    pub without: DisabledFeatures,
}

impl Config {
    /// Returns a configuration that serves everything below `root`, and nothing else.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            served: vec![LogicalPath::root()],
            name_rules: Vec::new(),
            links_to: Vec::new(),
            spaces: SpaceConfig::default(),
            file_bytes_max: None,
            without: DisabledFeatures::default(),
        }
    }

    /// Returns the configuration that corresponds to the directives.
    pub fn from_effective(storage: &config::Storage) -> Self {
        let root = storage.local_root.value.clone().unwrap_or_else(|| PathBuf::from("/"));
        let exports = storage.exports.iter().filter_map(|export| {
            let prefix = LogicalPath::parse(export.prefix.as_bytes()).ok()?;
            Some((prefix, export.attributes.in_place))
        });
        let in_place: Vec<_> = exports.collect();
        let served = in_place.iter().map(|(prefix, _)| prefix.clone()).collect();
        let spaces = SpaceConfig {
            partitions: storage.spaces.iter().map(|space| space.value.clone()).collect(),
            rules: storage.space_rules.iter().map(|rule| rule.value.clone()).collect(),
            allocation: storage.allocation.value,
            accounting: storage.accounting.value.clone(),
            refresh: storage.space_scan.value,
            in_place,
        };
        let name_rules = storage.name_rules.iter().map(|rule| rule.value.clone()).collect();
        let file_bytes_max = storage.file_bytes_max.value;
        Self { file_bytes_max, served, name_rules, spaces, ..Self::new(root) }
    }
}

/// A backend for POSIX file systems below a local root.
pub struct Posix {
    pub(super) names: Arc<NameRules>,
    pub(super) tree: Arc<ConfinedTree>,
    pub(super) removals: Arc<OngoingRemovals>,
    volumes: Arc<Volumes>,
    pub(super) spaces: Option<Arc<Spaces>>,
    /// Quotas of a configuration without spaces.
    quotas: Option<Arc<SpaceAccounts>>,
    without: DisabledFeatures,
    file_bytes_max: u64,
}

/// Number of attempts to create or open a name that is created and removed concurrently.
const CREATE_TRIES: usize = 16;

fn is_error<T>(result: &io::Result<T>, errno: Errno) -> bool {
    result.as_ref().err().and_then(io::Error::raw_os_error) == Some(errno.raw_os_error())
}

impl Posix {
    /// Opens the root, which must be a directory, and checks all partitions. May wait. The error
    /// names the directory that failed.
    pub fn new(config: &Config) -> io::Result<Self> {
        let links_to = [config.links_to.clone(), Spaces::directories(&config.spaces)?].concat();
        let tree = Arc::new(ConfinedTree::new(&config.root, &links_to, config.without)?);
        let names = Arc::new(NameRules::new(&config.name_rules));
        let served = config.served.iter().chain(names.targets()).cloned().collect();
        let volumes = Volumes::new(&config.root, tree.root(), served, config.without.nowait)?;
        let spaces = Spaces::new(&config.spaces, &config.root, &volumes)?.map(Arc::new);
        let quotas = match &spaces {
            Some(_) => None,
            None => SpaceAccounts::new(&config.spaces.accounting, config.spaces.refresh, Vec::new())?,
        };
        let file_bytes_max = config.file_bytes_max.unwrap_or(u64::MAX).min(i64::MAX as u64);
        let volumes = Arc::new(volumes);
        let (removals, without) = (Arc::default(), config.without);
        Ok(Self { names, tree, removals, volumes, spaces, quotas, without, file_bytes_max })
    }

    /// Returns the path below the root where a path is stored.
    fn stored<'p>(&self, path: &'p LogicalPath) -> io::Result<Cow<'p, LogicalPath>> {
        self.names.stored(path)
    }

    /// Returns the file system of a path. A name without a translation exists on none.
    fn volume(&self, path: &LogicalPath) -> &Arc<Volume> {
        match self.stored(path) {
            Ok(stored) => self.volumes.of_path(&stored),
            Err(_) => self.volumes.of_path(path),
        }
    }

    fn reach(&self, path: &LogicalPath) -> io::Result<MetadataHandle> {
        self.tree.reach(&*self.stored(path)?)
    }

    fn open_place(&self, path: &LogicalPath) -> io::Result<OwnedFd> {
        self.tree.open(&*self.stored(path)?, OFlags::PATH, 0)
    }

    fn identity_of(&self, stored: &LogicalPath) -> io::Result<FileIdentity> {
        stable::identity(&self.tree.open(stored, OFlags::PATH, 0)?)
    }

    fn sync_stored_name(&self, stored: &LogicalPath) -> io::Result<()> {
        let (parent, name) = self.tree.parent(stored)?;
        if let Some(data) = self.spaces.as_ref().and_then(|spaces| spaces.data_behind((&parent, name))) {
            stable::sync_local_name(&data)?;
        }
        stable::sync_directory(&parent)
    }

    /// Opens the nearest existing ancestor of a path, or the path itself. A path that does not exist
    /// would be stored there.
    fn open_nearest(&self, path: &LogicalPath) -> io::Result<OwnedFd> {
        let mut path = path.clone();
        loop {
            let place = self.open_place(&path);
            match path.parent() {
                Some(above) if is_error(&place, Errno::NOENT) => path = above,
                _ => return place,
            }
        }
    }

    fn accounts_for_growth(&self) -> bool {
        self.spaces.as_ref().is_some_and(|spaces| spaces.accounts_for_growth())
    }

    /// Returns the account of a file that was opened for writing.
    fn account(&self, path: &LogicalPath, fd: &OwnedFd) -> Option<AccountedFile> {
        let spaces = self.spaces.as_ref().filter(|spaces| spaces.accounts_for_growth())?;
        let stored = self.stored(path).ok()?;
        let (parent, name) = self.tree.parent(&stored).ok()?;
        spaces.account_open((&parent, name), fd)
    }

    fn flags(how: &OpenMode) -> OFlags {
        let access = if how.write { OFlags::RDWR } else { OFlags::RDONLY };
        access | QUIET | if how.truncate { OFlags::TRUNC } else { OFlags::empty() }
    }

    /// Wraps the descriptor of a regular file.
    fn opened(
        &self,
        fd: OwnedFd,
        volume: Arc<Volume>,
        (promise, account): (Option<SpaceReservation>, Option<AccountedFile>),
    ) -> Arc<dyn StoredFile> {
        Arc::new(PosixFile {
            fd: ManuallyDrop::new(Arc::new(fd)),
            volume,
            without: self.without,
            bytes_max: self.file_bytes_max,
            asking: AtomicU8::new(0),
            is_secretive: AtomicBool::new(false),
            _promise: promise,
            account,
        })
    }

    fn create(
        &self,
        path: &LogicalPath,
        how: &OpenMode,
        create: &CreateMode,
    ) -> io::Result<(OwnedFd, Option<SpaceReservation>)> {
        if path.as_bytes().ends_with(b"/") {
            return Err(Errno::ISDIR.into());
        }
        let stored = self.names.stored_new(path)?;
        let parents = self.names.parents(path, create.parents.as_ref());
        let (parent, name) = self.tree.parent_made(&stored, parents.as_deref())?;
        for _ in 0..CREATE_TRIES {
            let made = match self.spaces.as_ref().filter(|spaces| spaces.take(path)) {
                Some(spaces) => spaces.create((&parent, name), (path, &*stored), create),
                None => make_file(&parent, name, create.mode & 0o7777).map(|fd| (fd, None)),
            };
            if create.exclusive || !is_error(&made, Errno::EXIST) {
                return made;
            }
            let opened = self.tree.open(&stored, Self::flags(how), 0);
            // ENOENT: the file was removed again, or it is a dangling link, whose target must not
            // be created.
            if !is_error(&opened, Errno::NOENT) {
                return opened.map(|fd| (fd, None));
            }
        }
        Err(Errno::NOENT.into())
    }
}

impl Backend for Posix {
    fn open(&self, path: &LogicalPath, how: &OpenMode) -> io::Result<Arc<dyn StoredFile>> {
        // The bytes that a truncation frees are accounted for, so it has to follow the open.
        let truncates = how.truncate && how.write && self.accounts_for_growth();
        let shortened = truncates.then(|| OpenMode { truncate: false, ..how.clone() });
        let how = shortened.as_ref().unwrap_or(how);
        let (fd, promise, opened) = match &how.create {
            Some(create) => {
                open_named(&self.removals, &*self.names.stored_new(path)?, || self.create(path, how, create))
            }
            None => {
                let stored = self.stored(path)?;
                let find = || Ok((self.tree.open(&stored, Self::flags(how), 0)?, None));
                open_named(&self.removals, &stored, || look_up(&self.removals, &stored, find))
            }
        }?;
        let volume = self.volumes.of_file(opened.device, &fd).clone();
        let account = if how.write { self.account(path, &fd) } else { None };
        let file = self.opened(fd, volume, (promise, account));
        if truncates {
            file.truncate(0)?;
        }
        Ok(file)
    }

    fn transfers(&self) -> Option<&dyn TransferStorage> {
        Some(self)
    }

    fn open_now(&self, path: &LogicalPath, how: &OpenMode) -> Now<Arc<dyn StoredFile>> {
        if how.create.is_some() || how.truncate || how.write && self.accounts_for_growth() {
            return Now::WouldBlock;
        }
        let path = match self.stored(path) {
            Ok(path) => path,
            Err(error) => return Now::Done(Err(error)),
        };
        if !self.volumes.of_path(&path).has_local_names() {
            return Now::WouldBlock;
        }
        // On a network file system opening asks its server even if the name is in memory, and a
        // link might lead there.
        let begin = self.removals.before_look_up();
        let fd = match self.tree.open_now(&path, Self::flags(how), self.volumes.are_local()) {
            None => return Now::WouldBlock,
            Some(Err(error)) => return self.removals.failed_now(begin, &path, error),
            Some(Ok(fd)) => fd,
        };
        let device = match OpenedFile::new(&fd).map(OpenedFile::named_device) {
            Ok(Some(device)) => device,
            Ok(None) => return Now::WouldBlock,
            Err(error) => return Now::Done(Err(error)),
        };
        match self.volumes.known(device) {
            None => Now::WouldBlock,
            Some(volume) => Now::Done(Ok(self.opened(fd, volume.clone(), (None, None)))),
        }
    }

    fn stat(&self, path: &LogicalPath) -> io::Result<Metadata> {
        let stored = self.stored(path)?;
        let place = look_up(&self.removals, &stored, || self.tree.open(&stored, OFlags::PATH, 0))?;
        Ok(metadata(&rustix::fs::fstat(place)?))
    }

    fn stat_now(&self, path: &LogicalPath) -> Now<Metadata> {
        let path = match self.stored(path) {
            Ok(path) => path,
            Err(error) => return Now::Done(Err(error)),
        };
        if !self.volumes.of_path(&path).has_local_names() {
            return Now::WouldBlock;
        }
        let begin = self.removals.before_look_up();
        match self.tree.open_now(&path, OFlags::PATH, true) {
            None => Now::WouldBlock,
            Some(Err(error)) => self.removals.failed_now(begin, &path, error),
            Some(Ok(place)) => Now::Done(stat_cached(&place)),
        }
    }

    fn identity(&self, path: &LogicalPath) -> io::Result<FileIdentity> {
        self.identity_of(&*self.names.stored_new(path)?)
    }

    fn stored_path<'p>(&self, path: &'p LogicalPath) -> io::Result<Cow<'p, LogicalPath>> {
        self.names.stored_new(path)
    }

    fn identities_above(&self, path: &LogicalPath) -> io::Result<Vec<DirectoryAbove>> {
        let stored = self.names.stored_new(path)?;
        let target = self.names.target_of(path);
        let state = |directory: &LogicalPath| {
            let has_name = || stable::has_name(&self.tree, directory);
            match DirectoryState::new(self.identity_of(directory), has_name) {
                // The directory of a rule is never created, so it is like a mount point.
                DirectoryState::Absent if target.is_some_and(|target| target.is_within(directory)) => {
                    DirectoryState::Detached
                }
                state => state,
            }
        };
        let all = directories_above(&stored).into_iter();
        Ok(all.map(|path| DirectoryAbove { state: state(&path), path }).collect())
    }

    fn has_name(&self, path: &LogicalPath) -> io::Result<bool> {
        stable::has_name(&self.tree, &*self.names.stored_new(path)?)
    }

    fn sync_name(&self, path: &LogicalPath) -> io::Result<()> {
        self.sync_stored_name(&*self.stored(path)?)
    }

    fn sync_above(&self, path: &LogicalPath) -> io::Result<bool> {
        let stored = match self.stored(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            stored => stored?,
        };
        let pool = |stored: &LogicalPath| &self.volumes.of_path(stored).pool;
        sync_names(&stored, pool, |stored| self.sync_stored_name(stored))
    }

    fn creates_parent(&self, directory: &LogicalPath, path: &LogicalPath) -> bool {
        self.names.creates_parent(directory, path)
    }

    fn has_local_names(&self, path: &LogicalPath) -> bool {
        self.volume(path).has_local_names()
    }

    fn lists_all_names(&self) -> bool {
        self.names.is_empty()
    }

    fn list(&self, path: &LogicalPath) -> io::Result<Box<dyn DirectoryStream>> {
        self.names.check_directory(path)?;
        let stored = self.stored(path)?;
        let directory = PosixDirectory::open(&self.tree, &self.volumes, &stored)?;
        if self.names.is_empty() {
            return Ok(Box::new(directory));
        }
        let paths = (path.without_slash(), stored.without_slash());
        Ok(Box::new(TranslatedDirectory::new(directory, &self.names, paths, (&self.tree, &self.volumes))))
    }

    fn make_directory(
        &self,
        path: &LogicalPath,
        mode: u32,
        parents: Option<&ParentCreation>,
    ) -> io::Result<()> {
        let mode = mode & 0o7777;
        self.names.check_new_directory(path)?;
        let stored = self.names.stored_new(path)?;
        if self.names.is_rule_directory(path) {
            // A missing one may be a disk that is not mounted.
            let error = if self.open_place(path).is_ok() { Errno::EXIST } else { Errno::ACCESS };
            return Err(error.into());
        }
        let made = self.tree.make_directory(&stored, mode);
        if parents.is_some() && is_error(&made, Errno::NOENT) {
            drop(self.tree.parent_made(&stored, self.names.parents(path, parents).as_deref())?);
            return self.tree.make_directory(&stored, mode);
        }
        made
    }

    fn remove_directory(&self, path: &LogicalPath) -> io::Result<()> {
        let stored = self.stored(path)?;
        self.names.check_moved(path, &stored)?;
        self.names.check_directory(path)?;
        let (parent, name) = self.tree.parent(&stored)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }

    fn remove_file(&self, path: &LogicalPath) -> io::Result<()> {
        let stored = self.stored(path)?;
        self.names.check_moved(path, &stored)?;
        let (parent, name) = self.tree.parent(&stored)?;
        let Some(spaces) = &self.spaces else {
            return Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?);
        };
        let data = {
            let _changing = self.volumes.of_path(&stored).changing();
            let data = spaces.data_behind((&parent, name));
            rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
            data
        };
        if let Some(data) = data {
            Spaces::remove_data(&data, spaces.account_of(&data));
        }
        Ok(())
    }

    fn rename(
        &self,
        from: &LogicalPath,
        to: &LogicalPath,
        existing: ExistingName,
        parents: Option<&ParentCreation>,
    ) -> io::Result<()> {
        let (stored, target) = (self.stored(from)?, self.names.stored_new(to)?);
        let (old, old_name) = self.tree.parent(&stored)?;
        // The source must exist before missing parents are created.
        let status = rustix::fs::statat(&old, old_name, AtFlags::SYMLINK_NOFOLLOW)?;
        self.names.check_moved(from, &stored)?;
        self.names.check_moved(to, &target)?;
        if status.st_mode & libc::S_IFMT == libc::S_IFDIR {
            self.names.check_directory(from)?;
            self.names.check_directory(to)?;
        }
        let parents = self.names.parents(to, parents);
        let (new, new_name) = self.tree.parent_made(&target, parents.as_deref())?;
        let Some(spaces) = &self.spaces else {
            return existing.rename((&old, old_name), (&new, new_name));
        };
        let (data, replaced) = {
            // A rename never moves a name to another file system, so this lock covers both names.
            let _changing = self.volumes.of_path(&stored).changing();
            let data = spaces.data_behind((&old, old_name));
            let replaced = spaces.data_behind((&new, new_name));
            existing.rename((&old, old_name), (&new, new_name))?;
            (data, replaced)
        };
        if let Some(data) = &data {
            spaces.rename(data, &target);
        }
        if let Some(replaced) = replaced.filter(|replaced| data.as_ref() != Some(replaced)) {
            spaces.remove_replaced(replaced, data.as_deref());
        }
        Ok(())
    }

    fn set_mode(&self, path: &LogicalPath, mode: u32) -> io::Result<()> {
        self.tree.change_mode(&self.reach(path)?, mode & 0o7777)
    }

    fn renew_access(&self, path: &LogicalPath) -> io::Result<()> {
        self.tree.renew_access(&self.reach(path)?)
    }

    fn truncate(&self, path: &LogicalPath, size: u64) -> io::Result<()> {
        self.open(path, &OpenMode { write: true, ..OpenMode::default() })?.truncate(size)
    }

    fn attribute(&self, path: &LogicalPath, name: &str) -> io::Result<Option<Vec<u8>>> {
        attribute::get(&AttributeBearer::from(&self.reach(path)?), name)
    }

    fn set_attribute(&self, path: &LogicalPath, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        attribute::set(&AttributeBearer::from(&self.reach(path)?), name, value, new)
    }

    fn remove_attribute(&self, path: &LogicalPath, name: &str) -> io::Result<()> {
        attribute::remove(&AttributeBearer::from(&self.reach(path)?), name)
    }

    fn attributes(&self, path: &LogicalPath) -> io::Result<Vec<String>> {
        attribute::list(&AttributeBearer::from(&self.reach(path)?))
    }

    fn spaces_beside(&self, path: &LogicalPath, wish: &str) -> Option<Vec<String>> {
        self.spaces.as_ref().filter(|spaces| spaces.take(path))?.names_beside(path, wish)
    }

    fn usage(&self, path: &LogicalPath, space: Option<&str>) -> io::Result<SpaceUsage> {
        if let Some(spaces) = self.spaces.as_ref().filter(|spaces| space.is_some() || spaces.take(path)) {
            return Ok(spaces.usage(space.unwrap_or(&self.space_of(path))));
        }
        let usage = usage_of(&self.open_nearest(path)?)?;
        Ok(match &self.quotas {
            Some(quotas) => quotas.complete(usage, SPACE_DEFAULT),
            None => usage,
        })
    }

    fn file_systems(&self, path: &LogicalPath) -> io::Result<Vec<FileSystemUsage>> {
        let spaces = self.spaces.as_deref().filter(|spaces| spaces.take(path));
        file_systems::usages(spaces, &|| self.open_nearest(path))
    }

    fn space_file_systems(&self, path: &LogicalPath) -> io::Result<Vec<(String, FileSystemUsage)>> {
        let spaces = self.spaces.as_deref().filter(|spaces| spaces.take(path));
        file_systems::space_usages(spaces, &|| self.open_nearest(path))
    }

    fn file_system(&self, path: &LogicalPath, number: u64) -> io::Result<Option<FileSystemUsage>> {
        let spaces = self.spaces.as_deref().filter(|spaces| spaces.take(path));
        file_systems::usage_of_number(spaces, &|| self.open_nearest(path), number)
    }

    fn space_of(&self, path: &LogicalPath) -> String {
        let Some(spaces) = &self.spaces else { return SPACE_DEFAULT.to_owned() };
        let stored = self.stored(path).ok();
        let parent = stored.as_ref().and_then(|stored| self.tree.parent(stored).ok());
        let found = parent.and_then(|(parent, name)| spaces.space_behind((&parent, name)));
        match found {
            Some(space) => space,
            // What exists outside of spaces belongs to the default one.
            None if self.has_name(path).is_ok_and(|exists| exists) => SPACE_DEFAULT.to_owned(),
            None => spaces.space_for(path, None).to_owned(),
        }
    }

    fn pool(&self, path: &LogicalPath) -> &Arc<Pool> {
        &self.volume(path).pool
    }

    fn placement(&self, path: &LogicalPath, create: Option<&CreateMode>) -> Option<WorkPlacement> {
        if !self.tree.leads_out() && !self.volumes.are_several() {
            return None;
        }
        let stored = self.stored(path).ok()?;
        match link::leads(&self.tree, &self.volumes, &stored) {
            LinkTarget::There(volume) => Some(WorkPlacement::new(volume.pool.clone())),
            LinkTarget::Nowhere => {
                let spaces = self.spaces.as_ref().filter(|spaces| spaces.take(path))?;
                let number = spaces.choose(path, create?)?;
                let directory = self.tree.bases().real(spaces.directory(number)?.as_os_str().as_bytes())?;
                let pool = self.volumes.of_local(&directory).0.pool.clone();
                Some(WorkPlacement { pool, partition: Some(number) })
            }
            LinkTarget::Here => None,
        }
    }
}

/// Creates a file that must not exist.
fn make_file(parent: &ParentDirectory<'_>, name: &[u8], mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | QUIET;
    let fd = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode))?;
    if let Err(error) = exact_mode(&fd, mode) {
        let _ = rustix::fs::unlinkat(parent, name, AtFlags::empty());
        return Err(error);
    }
    Ok(fd)
}
