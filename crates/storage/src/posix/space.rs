//! Spaces: names in one directory tree, data on several partitions (`oss.space`).
//!
//! The data of a new file goes to a partition of its space under a unique name. A symbolic link in
//! the name space points to it. The layout is that of XRootD, so that either system serves the
//! files that the other one stored:
//!
//! `PARTITION/SPACE/xx/UNIQUE%`. `xx` spreads files over 256 directories. `UNIQUE` is 36
//! characters; then two upper-case hexadecimal digits, the length of `PARTITION/`; then one
//! lower-case digit, the length of the space's name, or 15 for longer ones. The data file's
//! attribute `user.XrdFrm.Pfn` holds the local path of the name, with a NUL.
//!
//! Data is created before its name, and a name is removed before its data. A crash in between
//! leaves data without a name, never a name with half a file.

use super::accounts::{AccountedFile, SpaceAccounts};
use super::calls::{QUIET, exact_mode};
use super::file::PosixFile;
use super::partition::{self, FIGURES_AGE_MAX, Partition, SpaceReservation};
use super::tree::ParentDirectory;
use super::volume::{Volume, Volumes};
use crate::{CreateMode, FileSystemUsage, Pool, SpaceUsage};
use base::LogicalPath;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The space of paths to which no other space applies.
pub const SPACE_DEFAULT: &str = "public";
/// Attribute of a data file that holds the local path of its name.
pub const NAME_ATTRIBUTE: &str = "user.XrdFrm.Pfn";
/// Mode of the directories in which data files lie.
const DIRECTORY_MODE: u32 = 0o755;
/// Number of names tried for a data file. The first is free unless the clock was set back.
const NAME_TRIES: usize = 16;

/// The configuration of spaces.
#[derive(Clone, Default, Debug)]
pub struct SpaceConfig {
    /// Partitions and their spaces (`oss.space NAME PATH`).
    pub partitions: Vec<config::SpacePartition>,
    /// Rules that map paths to spaces (`oss.space NAME assign|default PREFIX`).
    pub rules: Vec<config::SpaceRule>,
    /// Parameters for choosing a partition (`oss.alloc`).
    pub allocation: config::Allocation,
    /// Accounting of the bytes that files use (`oss.usage`).
    pub accounting: config::SpaceAccounting,
    /// Maximum age of quotas and of changes by other programs (`oss.spacescan`).
    pub refresh: Duration,
    /// Exports, and whether their files are stored outside of spaces (`inplace`). The longest
    /// prefix applies.
    pub in_place: Vec<(LogicalPath, bool)>,
}

struct AssignRule {
    space: String,
    assign: bool,
    prefix: LogicalPath,
}

/// The partitions and the rules by which files are placed on them.
pub(super) struct Spaces {
    partitions: Vec<Arc<Partition>>,
    rules: Vec<AssignRule>,
    in_place: Vec<(LogicalPath, bool)>,
    allocation: config::Allocation,
    root: PathBuf,
    /// Round-robin counter for partitions with equal free space, and number of the next data file.
    turn: AtomicUsize,
    number: AtomicUsize,
    /// The accounts of the spaces.
    accounts: Option<Arc<SpaceAccounts>>,
    /// Distinguishes the names created by this process from those of others.
    stamp: String,
}

/// The result of creating a file on one partition.
enum PartitionAttempt {
    Done(io::Result<(OwnedFd, Option<SpaceReservation>)>),
    /// Creation failed, but another partition may succeed.
    Failed(io::Error),
}

/// Gives a new directory the owner of the one above it. A tool that the superuser runs beside a server must not
/// create directories in which the server cannot write.
fn inherit_owner(directory: &Path, above: &Path) -> io::Result<()> {
    let (own, wanted) = (rustix::fs::lstat(directory)?, rustix::fs::stat(above)?);
    if rustix::process::geteuid().is_root() && own.st_uid != wanted.st_uid {
        let (user, group) = (Uid::from_raw(wanted.st_uid), Gid::from_raw(wanted.st_gid));
        rustix::fs::chownat(CWD, directory, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// Returns the name of the space and the beginning of the partition's path in a wish of a client
/// (`oss.cgroup=NAME[:PATH]`).
fn wish_parts(wish: &str) -> (&str, &str) {
    wish.split_once(':').unwrap_or((wish, ""))
}

fn longest<'a, T>(all: impl Iterator<Item = (&'a LogicalPath, T)>, path: &LogicalPath) -> Option<T> {
    let within = all.filter(|(prefix, _)| path.is_within(prefix));
    within.max_by_key(|(prefix, _)| prefix.as_bytes().len()).map(|(_, value)| value)
}

impl Spaces {
    /// Checks all partitions; `None` if no spaces are configured. May wait.
    pub(super) fn new(config: &SpaceConfig, root: &Path, volumes: &Volumes) -> io::Result<Option<Self>> {
        let mut partitions = Vec::new();
        for space in &config.partitions {
            partitions.extend(Partition::all_of(space, volumes)?);
        }
        if partitions.is_empty() {
            return Ok(None);
        }
        let spaces = partitions.iter().map(|partition| partition.space.clone()).collect();
        let accounts = SpaceAccounts::new(&config.accounting, config.refresh, spaces)?;
        let rules = config.rules.iter().flat_map(|rule| {
            let prefixes = rule.prefixes.iter().filter_map(|text| LogicalPath::parse(text.as_bytes()).ok());
            prefixes.map(|prefix| AssignRule { space: rule.name.clone(), assign: rule.assign, prefix })
        });
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // 28 characters: seconds, process, and a fraction of the second.
        let (seconds, part) = (started.as_secs() & 0xffff_ffff, started.subsec_nanos());
        let stamp = format!("{seconds:08X}{:08X}{part:012X}", std::process::id());
        Ok(Some(Self {
            partitions,
            rules: rules.collect(),
            in_place: config.in_place.clone(),
            allocation: config.allocation,
            root: root.to_owned(),
            turn: AtomicUsize::new(0),
            number: AtomicUsize::new(0),
            accounts,
            stamp,
        }))
    }

    /// Reports whether new files at this path are stored on a partition.
    pub(super) fn take(&self, path: &LogicalPath) -> bool {
        !longest(self.in_place.iter().map(|(prefix, stay)| (prefix, *stay)), path).unwrap_or(false)
    }

    /// Returns the space of a new file: the assigned one, else the requested one, else the default
    /// of the path.
    pub(super) fn space_for<'a>(&'a self, path: &LogicalPath, wish: Option<&'a str>) -> &'a str {
        let rule = |assign| {
            let rules = self.rules.iter().filter(move |rule| rule.assign == assign);
            longest(rules.map(|rule| (&rule.prefix, rule.space.as_str())), path)
        };
        let wish = wish.map(|wish| wish_parts(wish).0).filter(|name| !name.is_empty());
        rule(true).or(wish).or_else(|| rule(false)).unwrap_or(SPACE_DEFAULT)
    }

    /// Returns the names of all spaces if a new file with this wish would go to a missing one.
    pub(super) fn names_beside(&self, path: &LogicalPath, wish: &str) -> Option<Vec<String>> {
        let mut names: Vec<String> =
            self.partitions.iter().map(|partition| partition.space.clone()).collect();
        names.sort();
        names.dedup();
        let space = self.space_for(path, Some(wish));
        (!names.iter().any(|name| name == space)).then_some(names)
    }

    /// Returns the number of the partition for a new file.
    pub(super) fn choose(&self, path: &LogicalPath, create: &CreateMode) -> Option<usize> {
        let candidates = self.candidates(self.space_for(path, create.space.as_deref()), create).ok()?;
        let best = candidates.first()?;
        self.partitions.iter().position(|partition| Arc::ptr_eq(partition, best))
    }

    /// Returns the directory of a partition.
    pub(super) fn directory(&self, number: usize) -> Option<&Path> {
        self.partitions.get(number).map(|partition| partition.directory.as_path())
    }

    /// Returns the file system of a data file.
    pub(super) fn volume_of(&self, data: &Path) -> Option<&Arc<Volume>> {
        let partition = self.partitions.iter().find(|partition| data.starts_with(&partition.directory));
        partition.map(|partition| &partition.volume)
    }

    /// Returns the partitions for a new file, the best one first.
    fn candidates(&self, space: &str, create: &CreateMode) -> io::Result<Vec<&Arc<Partition>>> {
        let device = match &create.beside {
            // The disk is not queried because it may hang.
            Some(beside) => match beside.as_any().downcast_ref::<PosixFile>() {
                Some(file) => Some(file.volume.device),
                None => Some(beside.stat()?.device),
            },
            None => None,
        };
        let size = create.size_hint.unwrap_or(0);
        let headroom = u128::from(size) * u128::from(self.allocation.headroom_percent) / 100;
        let needed = u64::try_from(u128::from(size) + headroom).unwrap_or(u64::MAX);
        let needed = needed.max(self.allocation.bytes_min);
        let mut known = false;
        let mut fitting = Vec::new();
        // A partition is requested in the requested space only.
        let (wish, begin) = create.space.as_deref().map(wish_parts).unwrap_or_default();
        let begin = if wish == space || wish.is_empty() { begin.as_bytes() } else { b"" };
        for partition in self.partitions.iter().filter(|partition| partition.space == space) {
            known = true;
            if !partition.directory.as_os_str().as_bytes().starts_with(begin) {
                continue;
            }
            let free = partition.figures(FIGURES_AGE_MAX).map_or(0, |usage| usage.free);
            if free > 0 && free >= needed {
                fitting.push((free, partition));
            }
        }
        if !known {
            return Err(Errno::NOENT.into());
        }
        // Partitions whose free space differs by less than `fuzz` take turns; the others are
        // fallbacks.
        let most = fitting.iter().map(|(free, _)| *free).max().unwrap_or(0);
        let fuzz = u128::from(self.allocation.fuzz_percent.min(100));
        let least = u64::try_from(u128::from(most) * (100 - fuzz) / 100).unwrap_or(0);
        let is_beside = |partition: &Partition| device == Some(partition.volume.device);
        fitting.sort_by_key(|(free, partition)| {
            std::cmp::Reverse((is_beside(partition), *free >= least, if *free >= least { 0 } else { *free }))
        });
        let key = |(free, partition): &(u64, &Arc<Partition>)| (is_beside(partition), *free >= least);
        let equal = fitting.iter().take_while(|other| fitting.first().map(key) == Some(key(other))).count();
        if equal > 1 {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % equal;
            fitting.get_mut(..equal).unwrap_or_default().rotate_left(turn);
        }
        if fitting.is_empty() {
            Err(Errno::NOSPC.into())
        } else {
            Ok(fitting.into_iter().map(|(_, p)| p).collect())
        }
    }

    /// Creates a file that must not exist: first its data, then its name. `EEXIST` if another
    /// thread created it first. The rules of spaces are about its logical path; `stored` is its path
    /// below the root.
    pub(super) fn create(
        &self,
        (parent, name): (&ParentDirectory<'_>, &[u8]),
        (path, stored): (&LogicalPath, &LogicalPath),
        create: &CreateMode,
    ) -> io::Result<(OwnedFd, Option<SpaceReservation>)> {
        if rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(Errno::EXIST.into());
        }
        let chosen = create.at.as_ref().and_then(|at| self.partitions.get(at.partition?));
        let first = match chosen.map(|partition| self.create_on(partition, (parent, name), stored, create)) {
            None => None,
            Some(PartitionAttempt::Failed(error)) => Some(error),
            Some(PartitionAttempt::Done(done)) => return done,
        };
        let space = self.space_for(path, create.space.as_deref());
        let mut failed = first.unwrap_or_else(|| Errno::NOSPC.into());
        for partition in self.candidates(space, create)? {
            if chosen.is_some_and(|chosen| Arc::ptr_eq(chosen, partition)) {
                continue;
            }
            match self.create_on(partition, (parent, name), stored, create) {
                PartitionAttempt::Failed(error) => failed = error,
                PartitionAttempt::Done(done) => return done,
            }
        }
        Err(failed)
    }

    fn create_on(
        &self,
        partition: &Arc<Partition>,
        (parent, name): (&ParentDirectory<'_>, &[u8]),
        stored: &LogicalPath,
        create: &CreateMode,
    ) -> PartitionAttempt {
        match self.create_data(partition, create.mode & 0o7777) {
            Ok((fd, data)) => {
                self.set_name(&fd, stored);
                if let Err(error) = rustix::fs::symlinkat(&data, parent, name) {
                    let _ = rustix::fs::unlink(&data);
                    return PartitionAttempt::Done(Err(error.into()));
                }
                let promise = create.size_hint.map(|bytes| partition.promise(bytes));
                PartitionAttempt::Done(Ok((fd, promise)))
            }
            Err(error) => {
                tracing::warn!(partition = %partition.directory.display(), %error, "cannot create a file on this partition");
                PartitionAttempt::Failed(error)
            }
        }
    }

    fn create_data(&self, partition: &Partition, mode: u32) -> io::Result<(OwnedFd, PathBuf)> {
        let trailer = format!("{:02X}{:x}%", partition.prefix_length(), partition.space.len().min(15));
        for _ in 0..NAME_TRIES {
            let number = self.number.fetch_add(1, Ordering::Relaxed) & 0xffff_ffff;
            let space = partition.directory.join(&partition.space);
            let directory = space.join(format!("{:02X}", number & 0xff));
            let data = directory.join(format!("{}{number:08X}{trailer}", self.stamp));
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | QUIET;
            let mut opened = rustix::fs::open(&data, flags, Mode::from_raw_mode(mode));
            if opened.as_ref().err() == Some(&Errno::NOENT) {
                for (directory, above) in [(&space, &partition.directory), (&directory, &space)] {
                    match rustix::fs::mkdir(directory, Mode::from_raw_mode(DIRECTORY_MODE)) {
                        Err(Errno::EXIST) => {}
                        made => {
                            made?;
                            inherit_owner(directory, above)?;
                        }
                    }
                }
                opened = rustix::fs::open(&data, flags, Mode::from_raw_mode(mode));
            }
            match opened {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(fd) => {
                    if let Err(error) = exact_mode(&fd, mode) {
                        let _ = rustix::fs::unlink(&data);
                        return Err(error);
                    }
                    return Ok((fd, data));
                }
            }
        }
        Err(Errno::EXIST.into())
    }

    fn local_name(&self, stored: &LogicalPath) -> Vec<u8> {
        let root = self.root.as_os_str().as_bytes();
        let root = root.strip_suffix(b"/").unwrap_or(root);
        [root, stored.without_slash().as_bytes(), &[0]].concat()
    }

    /// Creates a data file of a new file of about this size, without a name. The rules of spaces are about its logical
    /// path. `ENOSPC` if no partition has room.
    pub(super) fn create_unnamed(
        &self,
        path: &LogicalPath,
        mode: u32,
        size: Option<u64>,
    ) -> io::Result<(OwnedFd, PathBuf, Option<SpaceReservation>)> {
        let create = CreateMode {
            exclusive: true,
            mode,
            parents: None,
            size_hint: size,
            space: None,
            beside: None,
            at: None,
        };
        let mut failed: io::Error = Errno::NOSPC.into();
        for partition in self.candidates(self.space_for(path, None), &create)? {
            match self.create_data(partition, mode) {
                Ok((file, data)) => return Ok((file, data, size.map(|bytes| partition.promise(bytes)))),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Reports whether a data file has its name at this path below the root.
    pub(super) fn is_data_of(&self, data: impl AsFd, stored: &LogicalPath) -> bool {
        let wanted = self.local_name(stored);
        // One byte more shows a longer name.
        let mut found = vec![0; wanted.len() + 1];
        let length = rustix::fs::fgetxattr(data, NAME_ATTRIBUTE, &mut found[..]);
        length.is_ok_and(|length| found.get(..length) == Some(&wanted[..]))
    }

    /// Stores the name in an attribute of the data. Repair tools and purges need it; serving does not.
    pub(super) fn set_name(&self, data: impl AsFd, stored: &LogicalPath) {
        let noted =
            rustix::fs::fsetxattr(data, NAME_ATTRIBUTE, &self.local_name(stored), XattrFlags::empty());
        if let Err(error) = noted {
            tracing::debug!(%error, "cannot store the name of a data file in its attribute");
        }
    }

    /// Stores a new name in the attribute of the data at a path.
    pub(super) fn rename(&self, data: &Path, stored: &LogicalPath) {
        let noted = rustix::fs::setxattr(data, NAME_ATTRIBUTE, &self.local_name(stored), XattrFlags::empty());
        if let Err(error) = noted {
            tracing::debug!(%error, "cannot store the new name of a data file in its attribute");
        }
    }

    /// Removes the data of a name that a rename has replaced by `new` data, which may be on another volume.
    pub(super) fn remove_replaced(&self, replaced: PathBuf, new: Option<&Path>) {
        let account = self.account_of(&replaced);
        // The replaced data may be on a hung disk, which must not block the rename.
        match self.volume_of(&replaced) {
            Some(there)
                if new.and_then(|data| self.volume_of(data)).is_none_or(|here| !Arc::ptr_eq(here, there)) =>
            {
                let lost = replaced.clone();
                let job = Box::new(move || Self::remove_data(&replaced, account));
                if there.pool.run(Pool::current_owner(), job).is_err() {
                    tracing::warn!(data = %lost.display(), "cannot remove data of a replaced name: the queue of its disk is full; remove the file by hand");
                }
            }
            _ => Self::remove_data(&replaced, account),
        }
    }

    /// Returns the space of a link's target if that is a data file on one of the partitions.
    fn placed<'a>(&self, target: &'a Path) -> Option<&'a str> {
        let rest =
            self.partitions.iter().find_map(|partition| target.strip_prefix(&partition.directory).ok())?;
        let names: Vec<_> = rest.components().collect();
        match names.as_slice() {
            [Component::Normal(space), Component::Normal(_), Component::Normal(name)]
                if name.as_bytes().ends_with(b"%") =>
            {
                space.to_str()
            }
            _ => None,
        }
    }

    /// Returns the accounts with the space of a data file.
    pub(super) fn account_of(&self, data: &Path) -> Option<(Arc<SpaceAccounts>, String)> {
        Some((self.accounts.clone()?, self.placed(data)?.to_owned()))
    }

    /// Reports whether the growth of files is accounted for.
    pub(super) fn accounts_for_growth(&self) -> bool {
        self.accounts.as_ref().is_some_and(|accounts| accounts.has_log())
    }

    /// Returns the accounts, if there are any.
    pub(super) fn accounts(&self) -> Option<&Arc<SpaceAccounts>> {
        self.accounts.as_ref()
    }

    /// Returns the spaces with the directories of their partitions.
    pub(super) fn partition_directories(&self) -> impl Iterator<Item = (String, PathBuf)> {
        self.partitions.iter().map(|partition| (partition.space.clone(), partition.directory.clone()))
    }

    /// Reports whether a path is that of a data file on one of the partitions.
    pub(super) fn has_placed(&self, data: &Path) -> bool {
        self.placed(data).is_some()
    }

    /// Reports whether a data file is where a wish (`NAME[:PARTITION]`) wants it.
    pub(super) fn fits(&self, data: &Path, wish: &str) -> bool {
        let (space, begin) = wish_parts(wish);
        self.placed(data) == Some(space) && data.as_os_str().as_bytes().starts_with(begin.as_bytes())
    }

    /// Creates a data file in the wanted space, without a name. `ENOENT` if there is no such space.
    pub(super) fn create_wanted(&self, wish: &str, create: &CreateMode) -> io::Result<(OwnedFd, PathBuf)> {
        let mut failed: io::Error = Errno::NOSPC.into();
        for partition in self.candidates(wish_parts(wish).0, create)? {
            match self.create_data(partition, create.mode) {
                Ok(created) => return Ok(created),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Returns the account of a file that was opened for writing by a name.
    pub(super) fn account_open(
        &self,
        at: (&ParentDirectory<'_>, &[u8]),
        file: impl AsFd,
    ) -> Option<AccountedFile> {
        self.accounts.as_ref()?.open(&self.space_behind(at)?, file)
    }

    fn target(directory: impl AsFd, name: &[u8]) -> Option<PathBuf> {
        let target = rustix::fs::readlinkat(directory, OsStr::from_bytes(name), Vec::new()).ok()?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
    }

    /// Returns the data file behind a name in a directory, if it lies on a partition.
    pub(super) fn data_at(&self, directory: impl AsFd, name: &[u8]) -> Option<PathBuf> {
        Self::target(directory, name).filter(|target| self.placed(target).is_some())
    }

    /// Returns the data file behind a name, if it lies on a partition.
    pub(super) fn data_behind(&self, at: (&ParentDirectory<'_>, &[u8])) -> Option<PathBuf> {
        self.data_at(at.0, at.1)
    }

    /// Returns the space in which the data of a name lies.
    pub(super) fn space_behind(&self, at: (&ParentDirectory<'_>, &[u8])) -> Option<String> {
        self.placed(&Self::target(at.0, at.1)?).map(str::to_owned)
    }

    /// Reports whether the directory of a data file is there, on the file system that was at its partition at the start.
    pub(super) fn has_directory_of(&self, data: &Path) -> bool {
        let partition = self.partitions.iter().find(|partition| data.starts_with(&partition.directory));
        let above = data.parent().and_then(|above| rustix::fs::stat(above).ok());
        partition.zip(above).is_some_and(|(partition, above)| above.st_dev == partition.volume.device)
    }

    /// Removes a data file and accounts for it.
    pub(super) fn unlink_data(
        data: &Path,
        account: Option<(Arc<SpaceAccounts>, String)>,
    ) -> rustix::io::Result<()> {
        match &account {
            Some((accounts, space)) => accounts.remove(space, data),
            None => rustix::fs::unlinkat(CWD, data, AtFlags::empty()),
        }
    }

    /// Removes data whose name was removed. A failure is logged and not returned, because the name
    /// no longer exists; the space remains in use.
    pub(super) fn remove_data(data: &Path, account: Option<(Arc<SpaceAccounts>, String)>) {
        match Self::unlink_data(data, account) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                tracing::warn!(data = %data.display(), %error, "cannot remove data whose name was removed; remove the file by hand");
            }
        }
    }

    /// Returns the usage of a space, counting each file system once; zeros if there is no such
    /// space.
    pub(super) fn usage(&self, space: &str) -> SpaceUsage {
        let mut usage = SpaceUsage::default();
        let mut seen = Vec::new();
        for partition in self.partitions.iter().filter(|partition| partition.space == space) {
            if seen.contains(&partition.volume.device) {
                continue;
            }
            seen.push(partition.volume.device);
            if let Some(one) = partition.figures(std::time::Duration::ZERO) {
                usage.total = usage.total.saturating_add(one.total);
                usage.free = usage.free.saturating_add(one.free);
                usage.largest_free = usage.largest_free.max(one.largest_free);
            }
        }
        match &self.accounts {
            Some(accounts) => accounts.complete(usage, space),
            None => usage,
        }
    }

    /// Returns the usage of each file system with a partition, except those that do not answer in
    /// time.
    pub(super) fn file_systems(&self) -> Vec<FileSystemUsage> {
        let mut all: Vec<FileSystemUsage> = Vec::new();
        for (_, usage) in self.space_file_systems() {
            if !all.iter().any(|one| one.number == usage.number) {
                all.push(usage);
            }
        }
        all
    }

    /// Returns the usage of each file system with a partition of each space, except those that do not answer in time.
    pub(super) fn space_file_systems(&self) -> Vec<(String, FileSystemUsage)> {
        let mut figures: Vec<(u64, Option<FileSystemUsage>)> = Vec::new();
        let mut all: Vec<(String, FileSystemUsage)> = Vec::new();
        for partition in &self.partitions {
            let number = partition.volume.device;
            let known = figures.iter().find(|(device, _)| *device == number).map(|(_, usage)| *usage);
            let usage = known.unwrap_or_else(|| {
                let one = partition.figures(std::time::Duration::ZERO);
                let usage = one.map(|one| FileSystemUsage { number, total: one.total, free: one.free });
                figures.push((number, usage));
                usage
            });
            let is_new = !all.iter().any(|(space, one)| *space == partition.space && one.number == number);
            all.extend(usage.filter(|_| is_new).map(|usage| (partition.space.clone(), usage)));
        }
        all
    }

    /// Returns the usage of the file system with this number, or an error if it does not answer in time. `None` if there
    /// is no partition on it.
    pub(super) fn file_system(&self, number: u64) -> Option<io::Result<FileSystemUsage>> {
        let partition = self.partitions.iter().find(|partition| partition.volume.device == number)?;
        let usage = partition.figures(std::time::Duration::ZERO);
        let usage = usage.map(|one| FileSystemUsage { number, total: one.total, free: one.free });
        Some(usage.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time")))
    }

    /// Returns the directories that links may lead into.
    pub(super) fn directories(config: &SpaceConfig) -> io::Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for space in &config.partitions {
            all.extend(partition::directories(space)?);
        }
        Ok(all)
    }
}
