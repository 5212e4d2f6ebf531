//! Spaces: names in one place, data on several partitions (`oss.space`).
//!
//! A new file's data goes to a partition of its space, under a name of its own, and a symbolic link in the name space leads
//! there. The layout is XRootD's, so that either system serves what the other stored:
//!
//! `PARTITION/SPACE/xx/UNIQUE%`, where `xx` spreads files over 256 folders and `UNIQUE` is 36 characters, then two upper-case
//! hexadecimal digits: the length of `PARTITION/`, and one lower-case: the length of the space's name, 15 for all longer ones.
//! The data file's attribute `user.XrdFrm.Pfn` holds the local path of the name, with a NUL.
//!
//! Data is there before its name, and its name goes before the data: a crash in between leaves data that nobody sees, never
//! a name with half a file.

use super::file::File;
use super::partition::{FIGURES_AGE_MAX, Partition, Promise};
use super::volume::{Volume, Volumes};
use super::{QUIET, tree::Parent};
use crate::{CreateHow, FileSystemUsage, Usage};
use base::LogicalPath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The space of what belongs to no other.
pub const SPACE_DEFAULT: &str = "public";
/// Attribute of a data file that holds the local path of its name.
pub const NAME_ATTRIBUTE: &str = "user.XrdFrm.Pfn";
/// The folders in which data files lie.
const FOLDER_MODE: u32 = 0o755;
/// Names tried for a data file; the first is free unless clocks went back.
const NAME_TRIES: usize = 16;

/// What is said of spaces.
#[derive(Clone, Default, Debug)]
pub struct SpaceConfig {
    /// Partitions and their spaces (`oss.space NAME PATH`).
    pub partitions: Vec<config::Space>,
    /// Which space a path belongs to (`oss.space NAME assign|default PREFIX`).
    pub rules: Vec<config::SpaceRule>,
    /// How a partition is chosen (`oss.alloc`).
    pub allocation: config::Allocation,
    /// Exports, and whether files under them stay out of spaces (`inplace`). The longest one counts.
    pub in_place: Vec<(LogicalPath, bool)>,
}

struct Rule {
    space: String,
    assign: bool,
    prefix: LogicalPath,
}

/// The partitions and what goes where.
pub(super) struct Spaces {
    partitions: Vec<Arc<Partition>>,
    rules: Vec<Rule>,
    in_place: Vec<(LogicalPath, bool)>,
    allocation: config::Allocation,
    root: PathBuf,
    /// Turn among partitions with equal room, and number of the next data file.
    turn: AtomicUsize,
    number: AtomicUsize,
    /// Tells the names this process makes from those of others.
    stamp: String,
}

/// What came of creating a file on a partition.
enum Tried {
    Done(io::Result<(OwnedFd, Option<Promise>)>),
    /// Another one may do.
    Failed(io::Error),
}

fn longest<'a, T>(all: impl Iterator<Item = (&'a LogicalPath, T)>, path: &LogicalPath) -> Option<T> {
    let within = all.filter(|(prefix, _)| path.is_within(prefix));
    within.max_by_key(|(prefix, _)| prefix.as_bytes().len()).map(|(_, value)| value)
}

impl Spaces {
    /// Looks at all partitions; `None` where there are no spaces. May wait.
    pub(super) fn new(config: &SpaceConfig, root: &Path, volumes: &Volumes) -> io::Result<Option<Self>> {
        let mut partitions = Vec::new();
        for space in &config.partitions {
            partitions.extend(Partition::all_of(space, volumes)?);
        }
        if partitions.is_empty() {
            return Ok(None);
        }
        let rules = config.rules.iter().flat_map(|rule| {
            let prefixes = rule.prefixes.iter().filter_map(|text| LogicalPath::parse(text.as_bytes()).ok());
            prefixes.map(|prefix| Rule { space: rule.name.clone(), assign: rule.assign, prefix })
        });
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // 28 characters: seconds, process, and a part of the second.
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
            stamp,
        }))
    }

    /// Do new files here go to a partition?
    pub(super) fn take(&self, path: &LogicalPath) -> bool {
        !longest(self.in_place.iter().map(|(prefix, stay)| (prefix, *stay)), path).unwrap_or(false)
    }

    /// The space of a new file: what is assigned, else what is wished for, else what is the default here.
    pub(super) fn space_for<'a>(&'a self, path: &LogicalPath, wish: Option<&'a str>) -> &'a str {
        let rule = |assign| {
            let rules = self.rules.iter().filter(move |rule| rule.assign == assign);
            longest(rules.map(|rule| (&rule.prefix, rule.space.as_str())), path)
        };
        rule(true).or(wish).or_else(|| rule(false)).unwrap_or(SPACE_DEFAULT)
    }

    /// The partition that a new file is to go to, by its number.
    pub(super) fn choose(&self, path: &LogicalPath, create: &CreateHow) -> Option<usize> {
        let candidates = self.candidates(self.space_for(path, create.space.as_deref()), create).ok()?;
        let best = candidates.first()?;
        self.partitions.iter().position(|partition| Arc::ptr_eq(partition, best))
    }

    /// The folder of a partition.
    pub(super) fn folder(&self, number: usize) -> Option<&Path> {
        self.partitions.get(number).map(|partition| partition.folder.as_path())
    }

    /// The file system that data lies on.
    pub(super) fn volume_of(&self, data: &Path) -> Option<&Arc<Volume>> {
        let partition = self.partitions.iter().find(|partition| data.starts_with(&partition.folder));
        partition.map(|partition| &partition.volume)
    }

    /// Partitions for a new file, the best first.
    fn candidates(&self, space: &str, create: &CreateHow) -> io::Result<Vec<&Arc<Partition>>> {
        let device = match &create.beside {
            // Its disk is not asked: it may hang.
            Some(beside) => match beside.as_any().downcast_ref::<File>() {
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
        for partition in self.partitions.iter().filter(|partition| partition.space == space) {
            known = true;
            let free = partition.figures(FIGURES_AGE_MAX).map_or(0, |usage| usage.free);
            if free > 0 && free >= needed {
                fitting.push((free, partition));
            }
        }
        if !known {
            return Err(Errno::NOENT.into());
        }
        // Those whose room differs little take turns; what is left is tried when these fail.
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

    /// Creates a file that is not there: its data, then its name. `EEXIST` if somebody was faster.
    pub(super) fn create(
        &self,
        (parent, name): (&Parent<'_>, &[u8]),
        path: &LogicalPath,
        create: &CreateHow,
    ) -> io::Result<(OwnedFd, Option<Promise>)> {
        if rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(Errno::EXIST.into());
        }
        let chosen = create.at.as_ref().and_then(|at| self.partitions.get(at.partition?));
        let first = match chosen.map(|partition| self.create_on(partition, (parent, name), path, create)) {
            None => None,
            Some(Tried::Failed(error)) => Some(error),
            Some(Tried::Done(done)) => return done,
        };
        let space = self.space_for(path, create.space.as_deref());
        let mut failed = first.unwrap_or_else(|| Errno::NOSPC.into());
        for partition in self.candidates(space, create)? {
            if chosen.is_some_and(|chosen| Arc::ptr_eq(chosen, partition)) {
                continue;
            }
            match self.create_on(partition, (parent, name), path, create) {
                Tried::Failed(error) => failed = error,
                Tried::Done(done) => return done,
            }
        }
        Err(failed)
    }

    fn create_on(
        &self,
        partition: &Arc<Partition>,
        (parent, name): (&Parent<'_>, &[u8]),
        path: &LogicalPath,
        create: &CreateHow,
    ) -> Tried {
        match self.create_data(partition, create.mode & 0o7777) {
            Ok((fd, data)) => {
                self.set_name(&fd, path);
                if let Err(error) = rustix::fs::symlinkat(&data, parent, name) {
                    let _ = rustix::fs::unlink(&data);
                    return Tried::Done(Err(error.into()));
                }
                let promise = create.size_hint.map(|bytes| partition.promise(bytes));
                Tried::Done(Ok((fd, promise)))
            }
            Err(error) => {
                tracing::warn!(partition = %partition.folder.display(), %error, "no file can be created here");
                Tried::Failed(error)
            }
        }
    }

    fn create_data(&self, partition: &Partition, mode: u32) -> io::Result<(OwnedFd, PathBuf)> {
        let trailer = format!("{:02X}{:x}%", partition.prefix_length(), partition.space.len().min(15));
        for _ in 0..NAME_TRIES {
            let number = self.number.fetch_add(1, Ordering::Relaxed) & 0xffff_ffff;
            let space = partition.folder.join(&partition.space);
            let folder = space.join(format!("{:02X}", number & 0xff));
            let data = folder.join(format!("{}{number:08X}{trailer}", self.stamp));
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | QUIET;
            let mut opened = rustix::fs::open(&data, flags, Mode::from_raw_mode(mode));
            if opened.as_ref().err() == Some(&Errno::NOENT) {
                for folder in [&space, &folder] {
                    match rustix::fs::mkdir(folder, Mode::from_raw_mode(FOLDER_MODE)) {
                        Err(Errno::EXIST) => {}
                        made => made?,
                    }
                }
                opened = rustix::fs::open(&data, flags, Mode::from_raw_mode(mode));
            }
            match opened {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(fd) => {
                    if let Err(error) = super::exact_mode(&fd, mode) {
                        let _ = rustix::fs::unlink(&data);
                        return Err(error);
                    }
                    return Ok((fd, data));
                }
            }
        }
        Err(Errno::EXIST.into())
    }

    fn local_name(&self, path: &LogicalPath) -> Vec<u8> {
        let root = self.root.as_os_str().as_bytes();
        let root = root.strip_suffix(b"/").unwrap_or(root);
        [root, path.without_slash().as_bytes(), &[0]].concat()
    }

    /// Notes the name on the data. Tools that mend a name space want it; serving does not need it.
    fn set_name(&self, data: impl AsFd, path: &LogicalPath) {
        let noted = rustix::fs::fsetxattr(data, NAME_ATTRIBUTE, &self.local_name(path), XattrFlags::empty());
        if let Err(error) = noted {
            tracing::debug!(%error, "a data file could not be told its name");
        }
    }

    /// The same for data at a place.
    pub(super) fn rename(&self, data: &Path, path: &LogicalPath) {
        let noted = rustix::fs::setxattr(data, NAME_ATTRIBUTE, &self.local_name(path), XattrFlags::empty());
        if let Err(error) = noted {
            tracing::debug!(%error, "a data file could not be told its new name");
        }
    }

    /// The partition and space of a link's target, if it is a data file of ours.
    fn placed<'a>(&self, target: &'a Path) -> Option<&'a str> {
        let rest =
            self.partitions.iter().find_map(|partition| target.strip_prefix(&partition.folder).ok())?;
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

    fn target((parent, name): (&Parent<'_>, &[u8])) -> Option<PathBuf> {
        let target = rustix::fs::readlinkat(parent, OsStr::from_bytes(name), Vec::new()).ok()?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
    }

    /// The data file behind a name, if it lies on a partition.
    pub(super) fn data_behind(&self, at: (&Parent<'_>, &[u8])) -> Option<PathBuf> {
        Self::target(at).filter(|target| self.placed(target).is_some())
    }

    /// The space a name's data lies in.
    pub(super) fn space_behind(&self, at: (&Parent<'_>, &[u8])) -> Option<String> {
        self.placed(&Self::target(at)?).map(str::to_owned)
    }

    /// Removes data whose name is gone. What cannot be removed is lost room, told in the log, and no error: the name is gone.
    pub(super) fn remove_data(data: &Path) {
        match rustix::fs::unlinkat(CWD, data, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                tracing::warn!(data = %data.display(), %error, "data without a name could not be removed");
            }
        }
    }

    /// Room of a space: each file system counts once. Nothing for one that is not there.
    pub(super) fn usage(&self, space: &str) -> Usage {
        let mut usage = Usage::default();
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
        usage
    }

    /// Room of each file system with a partition, but for those that do not say in time.
    pub(super) fn file_systems(&self) -> Vec<FileSystemUsage> {
        let mut seen = Vec::new();
        let mut all = Vec::new();
        for partition in &self.partitions {
            let number = partition.volume.device;
            if seen.contains(&number) {
                continue;
            }
            seen.push(number);
            if let Some(one) = partition.figures(std::time::Duration::ZERO) {
                all.push(FileSystemUsage { number, total: one.total, free: one.free });
            }
        }
        all
    }

    /// Folders that links lead into.
    pub(super) fn folders(config: &SpaceConfig) -> io::Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for space in &config.partitions {
            all.extend(super::partition::folders(space)?);
        }
        Ok(all)
    }
}
