//! File systems: what each one can do without waiting, how fast its recent writes were, and its
//! pool.
//!
//! The file system of a path is determined from the table of mounts, because that needs no access
//! to a disk that may hang. That of an open file is determined from its device number. The lists
//! only grow, so that a lookup takes no lock.

use crate::Pool;
use crate::refused_features::KernelFeature;
use base::{LogicalPath, Owner};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Number of threads for the blocking work of one file system.
pub const POOL_THREADS_MAX: usize = 32;
/// Maximum number of separate file systems; further ones share the pool of the root.
pub const VOLUMES_MAX: usize = 1024;
/// A write is slow if it takes longer than this plus 1 µs per KiB.
///
/// The value is larger than the time a thread loses when others use its processor for a few time
/// slices. That delay is not caused by the disk, and a pool thread would not get more of the
/// processor either.
pub const WRITE_SLOW: Duration = Duration::from_millis(20);
/// Backoff: after a slow write, writes use the pool for this long.
pub const WRITE_COOL_DOWN: Duration = Duration::from_millis(100);
/// Minimum interval between two reads of the table of mounts.
const MOUNTS_READ_AGAIN: Duration = Duration::from_secs(1);

/// The kind of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VolumeKind {
    /// Not determined yet.
    Unknown,
    /// On a disk of this machine: data and names in memory never wait for others.
    Local,
    /// Entirely in memory.
    Memory,
    /// On a network or in another process: any call may wait.
    Remote,
}

/// The method for reading without waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadNow {
    /// `RWF_NOWAIT`.
    NoWait,
    /// Plain reads, which never wait on this file system.
    Plain,
    /// Not possible.
    Never,
}

/// One file system.
pub(super) struct Volume {
    pub(super) device: u64,
    pub(super) pool: Arc<Pool>,
    /// The mount point, if it was found by one.
    point: Option<PathBuf>,
    asked: AtomicBool,
    kind: AtomicU8,
    read: AtomicU8,
    started: Instant,
    /// Microseconds after `started` until which writes use the pool.
    slow_until: AtomicU64,
    /// Writes in progress on pool threads.
    writing: AtomicU32,
    /// Reads in progress in the rings of the event loops.
    pub(super) reading: Arc<AtomicU32>,
    lends: AtomicU8,
    /// Held while a name on this file system that may have data behind it is replaced or removed.
    changing: Mutex<()>,
}

/// The support of `sendfile`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendfileSupport {
    /// Not tried yet.
    Unknown,
    Yes,
    No,
}

impl Volume {
    fn new(device: u64, name: &str, point: Option<PathBuf>, without_nowait: bool) -> Arc<Self> {
        let read = if without_nowait { ReadNow::Never } else { ReadNow::NoWait };
        Arc::new(Self {
            device,
            pool: Pool::new(name, POOL_THREADS_MAX),
            point,
            asked: AtomicBool::new(false),
            kind: AtomicU8::new(VolumeKind::Unknown as u8),
            read: AtomicU8::new(read as u8),
            started: Instant::now(),
            slow_until: AtomicU64::new(0),
            writing: AtomicU32::new(0),
            reading: Arc::default(),
            lends: AtomicU8::new(SendfileSupport::Unknown as u8),
            changing: Mutex::default(),
        })
    }

    /// Locks the replacement and removal of names. Each file system has its own lock, because it
    /// may hang.
    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn kind(&self) -> VolumeKind {
        match self.kind.load(Ordering::Relaxed) {
            1 => VolumeKind::Local,
            2 => VolumeKind::Memory,
            3 => VolumeKind::Remote,
            _ => VolumeKind::Unknown,
        }
    }

    /// Reports whether the file system is on this machine. Then data may be written on the event
    /// loop, and the status of an open file never waits.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.kind(), VolumeKind::Local | VolumeKind::Memory)
    }

    /// Reports whether names may be looked up on the event loop. The answer is no until the kind is
    /// known; it is determined on the pool of the file system.
    pub(super) fn has_local_names(self: &Arc<Self>) -> bool {
        if self.kind() == VolumeKind::Unknown
            && self.point.is_some()
            && !self.asked.swap(true, Ordering::Relaxed)
        {
            let volume = self.clone();
            let ask = move || {
                let point = volume.point.as_deref().unwrap_or(Path::new("/"));
                if let Ok(place) = std::fs::File::open(point) {
                    volume.learn(place);
                }
            };
            if self.pool.run(Owner::SERVER, Box::new(ask)).is_err() {
                self.asked.store(false, Ordering::Relaxed);
            }
        }
        self.is_local()
    }

    /// Determines the kind of the file system from an open descriptor, once. May wait.
    pub(super) fn learn(&self, fd: impl AsFd) {
        if self.kind() == VolumeKind::Unknown
            && let Ok(facts) = rustix::fs::fstatfs(fd)
        {
            let kind = kind_of(facts.f_type as u64);
            self.kind.store(kind as u8, Ordering::Relaxed);
            if kind == VolumeKind::Memory && self.read_now() == ReadNow::Never {
                self.set_read_now(ReadNow::Plain);
            }
        }
    }

    pub(super) fn read_now(&self) -> ReadNow {
        match self.read.load(Ordering::Relaxed) {
            0 => ReadNow::NoWait,
            1 => ReadNow::Plain,
            _ => ReadNow::Never,
        }
    }

    fn set_read_now(&self, how: ReadNow) {
        self.read.store(how as u8, Ordering::Relaxed);
    }

    /// Records that the kernel refused to read without waiting, and returns the method to use from
    /// now on.
    pub(super) fn refused_nowait(&self, error: Errno) -> ReadNow {
        let (how, facility) = match self.kind() {
            VolumeKind::Memory => (ReadNow::Plain, KernelFeature::NoWaitInMemory),
            _ => (ReadNow::Never, KernelFeature::NoWait),
        };
        self.set_read_now(how);
        facility.refused(error);
        how
    }

    /// Reports whether `sendfile` is known to fail here.
    pub(super) fn refuses_sendfile(&self) -> bool {
        self.lends.load(Ordering::Relaxed) == SendfileSupport::No as u8
    }

    /// Reports whether `sendfile` works here. It is tried once, with the first range that is in
    /// memory, at `offset` of `file`. This happens before the reply header is sent, because after
    /// it there is no fallback to another way of sending.
    pub(super) fn takes_sendfile(&self, file: impl AsFd, offset: u64) -> bool {
        match self.lends.load(Ordering::Relaxed) {
            1 => return true,
            2 => return false,
            _ => {}
        }
        // If no pipe can be created, the result is unknown rather than a refusal.
        let Ok((_reading, writing)) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) else {
            return false;
        };
        let mut at = offset;
        let lends = match rustix::fs::sendfile(writing, file, Some(&mut at), 1) {
            Ok(_) => SendfileSupport::Yes,
            Err(error) if is_unsupported(error) => {
                KernelFeature::Sendfile.refused(error);
                SendfileSupport::No
            }
            Err(_) => return false,
        };
        self.lends.store(lends as u8, Ordering::Relaxed);
        lends == SendfileSupport::Yes
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Reports whether a write may be made on the event loop. The caller makes it within
    /// [`Volume::timed`].
    pub(super) fn writes_fast(&self) -> bool {
        if !self.is_local() || self.writing.load(Ordering::Relaxed) > 0 {
            return false;
        }
        match self.slow_until.load(Ordering::Relaxed) {
            0 => true,
            until => self.now() >= until,
        }
    }

    /// Runs a write and records whether it was slow.
    pub(super) fn timed<T>(&self, bytes: usize, write: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = write();
        self.record_write(bytes, begin.elapsed());
        done
    }

    /// Records the duration of a write.
    fn record_write(&self, bytes: usize, time: Duration) {
        if self.kind() != VolumeKind::Memory && time > WRITE_SLOW + Duration::from_micros(bytes as u64 / 1024)
        {
            let until = self.now().saturating_add(WRITE_COOL_DOWN.as_micros() as u64);
            self.slow_until.fetch_max(until, Ordering::Relaxed);
        }
    }

    /// Runs a write on a pool thread. Until it ends, no write is made on the event loop, because
    /// the disk may hang.
    pub(super) fn timed_in_pool<T>(&self, bytes: usize, write: impl FnOnce() -> T) -> T {
        self.writing.fetch_add(1, Ordering::Relaxed);
        let done = self.timed(bytes, write);
        self.writing.fetch_sub(1, Ordering::Relaxed);
        done
    }
}

/// Returns the kind by the magic number of `statfs`. All unknown numbers count as remote.
fn kind_of(magic: u64) -> VolumeKind {
    match magic {
        0x0102_1994 | 0x8584_58f6 => VolumeKind::Memory, // tmpfs, ramfs
        0xef53            // ext2, ext3, ext4
        | 0x5846_5342     // xfs
        | 0x9123_683e     // btrfs
        | 0x2fc1_2fc1     // zfs
        | 0xf2f5_2010     // f2fs
        | 0x3153_464a     // jfs
        | 0xca45_1a4e     // bcachefs
        | 0x794c_7630     // overlayfs
        => VolumeKind::Local,
        _ => VolumeKind::Remote,
    }
}

struct PrefixVolume {
    /// The mount point in the name space; `None` for a file system that was found by an open file.
    prefix: Option<LogicalPath>,
    volume: Arc<Volume>,
    next: OnceLock<Box<PrefixVolume>>,
}

/// All file systems found until now.
pub(super) struct Volumes {
    root: PathBuf,
    top: LogicalPath,
    /// Only mounts at, above or below these paths matter.
    served: Vec<LogicalPath>,
    first: PrefixVolume,
    without_nowait: bool,
    /// Time at which the table of mounts was last read; locked while a file system is added.
    growing: Mutex<Option<Instant>>,
    /// All mounts of this machine, in the order of the table: later ones cover earlier ones.
    mounts: RwLock<Vec<(PathBuf, u64)>>,
}

impl Volumes {
    /// Starts with the file system of the root.
    pub(super) fn new(
        root: &Path,
        fd: impl AsFd,
        served: Vec<LogicalPath>,
        without_nowait: bool,
    ) -> std::io::Result<Self> {
        let device = rustix::fs::fstat(&fd)?.st_dev;
        let volume = Volume::new(device, "disk", None, without_nowait);
        volume.learn(fd);
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let first = PrefixVolume { prefix: Some(LogicalPath::root()), volume, next: OnceLock::new() };
        let (growing, mounts) = (Mutex::new(None), RwLock::default());
        let volumes = Self { root, top: LogicalPath::root(), served, first, without_nowait, growing, mounts };
        volumes.read_mounts();
        Ok(volumes)
    }

    fn matters(&self, prefix: &LogicalPath) -> bool {
        self.served.iter().any(|served| prefix.is_within(served) || served.is_within(prefix))
    }

    fn nodes(&self) -> impl Iterator<Item = &PrefixVolume> {
        std::iter::successors(Some(&self.first), |node| node.next.get().map(Box::as_ref))
    }

    /// Returns the file system of a path by the table of mounts.
    pub(super) fn of_path(&self, path: &LogicalPath) -> &Arc<Volume> {
        self.mount_of(path).1
    }

    /// Returns the file system of a path and its mount point in the name space.
    pub(super) fn mount_of(&self, path: &LogicalPath) -> (&LogicalPath, &Arc<Volume>) {
        let mut best = (&self.top, &self.first.volume);
        let mut length = 0;
        for node in self.nodes().skip(1) {
            if let Some(prefix) = &node.prefix
                && prefix.as_bytes().len() >= length
                && path.is_within(prefix)
            {
                (best, length) = ((prefix, &node.volume), prefix.as_bytes().len());
            }
        }
        best
    }

    /// Returns the file system of a local path without links, and its mount point. Reads only the
    /// table of mounts.
    pub(super) fn of_local(&self, path: &Path) -> (&Arc<Volume>, PathBuf) {
        self.read_mounts();
        let (point, device, is_root) = {
            let mounts = self.mounts.read().unwrap_or_else(PoisonError::into_inner);
            let of = |path: &Path| {
                let above = mounts.iter().filter(|(point, _)| path.starts_with(point));
                above.max_by_key(|(point, _)| point.as_os_str().len())
            };
            let Some((point, device)) = of(path) else { return (&self.first.volume, PathBuf::from("/")) };
            (point.clone(), *device, of(&self.root).is_some_and(|(root, _)| root == point))
        };
        // A file system whose device number differs between the table and its files must not count
        // twice.
        if is_root {
            return (&self.first.volume, point);
        }
        let known = self.known(device);
        let volume = known.or_else(|| self.add(None, Some(point.clone()), device));
        (volume.unwrap_or(&self.first.volume), point)
    }

    /// Returns the file systems mounted on entries of a local directory (a path without links),
    /// sorted by name.
    pub(super) fn mounted_in(&self, directory: &Path) -> Vec<(Vec<u8>, Arc<Volume>)> {
        self.read_mounts();
        let found: BTreeMap<PathBuf, u64> = {
            let mounts = self.mounts.read().unwrap_or_else(PoisonError::into_inner);
            // Later mounts cover earlier ones.
            mounts.iter().filter(|(point, _)| point.parent() == Some(directory)).cloned().collect()
        };
        let volume = |(point, device): (PathBuf, u64)| {
            let name = point.file_name()?.as_bytes().to_vec();
            let volume = self.known(device).or_else(|| self.add(None, Some(point), device));
            Some((name, volume.unwrap_or(&self.first.volume).clone()))
        };
        found.into_iter().filter_map(volume).collect()
    }

    /// Returns the local root without links.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Reports whether more than one file system was found.
    pub(super) fn are_several(&self) -> bool {
        self.first.next.get().is_some()
    }

    /// Reports whether all file systems found are on this machine.
    pub(super) fn are_local(&self) -> bool {
        self.nodes().all(|node| node.volume.has_local_names())
    }

    /// Returns the file system with this device number, if it was found before.
    pub(super) fn known(&self, device: u64) -> Option<&Arc<Volume>> {
        self.nodes().map(|node| &node.volume).find(|volume| volume.device == device)
    }

    /// Returns the file system of an open file. May wait.
    pub(super) fn of_file(&self, device: u64, fd: impl AsFd) -> &Arc<Volume> {
        let volume = match self.known(device) {
            Some(known) => known,
            None => {
                self.read_mounts();
                self.add(None, None, device).unwrap_or(&self.first.volume)
            }
        };
        volume.learn(fd);
        volume
    }

    /// Adds a file system; `None` when the limit is reached. One device is one volume, independent
    /// of its number of mounts.
    fn add(&self, prefix: Option<LogicalPath>, point: Option<PathBuf>, device: u64) -> Option<&Arc<Volume>> {
        let growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known(device);
        if let (None, Some(known)) = (&prefix, known) {
            return Some(known);
        }
        let count = self.nodes().count();
        let last = self.nodes().last()?;
        if count >= VOLUMES_MAX {
            return known;
        }
        let volume = match known {
            Some(volume) => volume.clone(),
            None => Volume::new(device, &format!("disk{count}"), point, self.without_nowait),
        };
        let added =
            last.next.get_or_init(|| Box::new(PrefixVolume { prefix, volume, next: OnceLock::new() }));
        drop(growing);
        Some(&added.volume)
    }

    /// Adds the file systems mounted below the root since the last read. It reads a kernel file
    /// that never waits.
    fn read_mounts(&self) {
        {
            let mut growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
            if growing.is_some_and(|last| last.elapsed() < MOUNTS_READ_AGAIN) {
                return;
            }
            *growing = Some(Instant::now());
        }
        let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return };
        let mounts: Vec<_> = table.split(|&byte| byte == b'\n').filter_map(mount).collect();
        let all = mounts.iter().map(|(device, point)| (point.clone(), *device)).collect();
        *self.mounts.write().unwrap_or_else(PoisonError::into_inner) = all;
        for (device, point) in mounts {
            let Ok(below) = point.strip_prefix(&self.root) else { continue };
            let Ok(prefix) = LogicalPath::parse(&[b"/", below.as_os_str().as_bytes()].concat()) else {
                continue;
            };
            let same =
                |node: &PrefixVolume| node.prefix.as_ref() == Some(&prefix) && node.volume.device == device;
            if !prefix.is_root() && self.matters(&prefix) && !self.nodes().any(same) {
                self.add(Some(prefix), Some(point), device);
            }
        }
    }
}

/// Parses the device and mount point of a line of `/proc/self/mountinfo`.
fn mount(line: &[u8]) -> Option<(u64, PathBuf)> {
    let mut fields = line.split(|&byte| byte == b' ').skip(2);
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let point = unescape(fields.nth(1)?);
    Some((device, PathBuf::from(std::ffi::OsString::from_vec(point))))
}

/// Decodes `\ooo`, which stands for a byte that would split fields.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, behind)) = rest.split_first() {
        let octal = behind
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(octal.unwrap_or(byte));
        rest = behind.get(if octal.is_some() { 3 } else { 0 }..).unwrap_or_default();
    }
    out
}

/// Reports whether the error means that the file system does not support the call at all.
pub(super) fn is_unsupported(error: Errno) -> bool {
    // Containers forbid calls with EPERM.
    matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_escapes() {
        let line =
            b"36 35 98:3 /mnt1 /mnt\\0402\\134x rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert_eq!(mount(line), Some((rustix::fs::makedev(98, 3), PathBuf::from("/mnt 2\\x"))));
        assert_eq!(mount(b""), None);
        assert_eq!(unescape(b"a\\04"), b"a\\04");
    }

    #[test]
    fn after_a_slow_write_further_writes_use_the_pool() {
        let volume = Volume::new(7, "test", None, false);
        assert!(!volume.writes_fast(), "the kind is unknown");
        volume.learn(std::fs::File::open("/dev/shm").unwrap());
        assert!(volume.writes_fast());
        volume.record_write(1, WRITE_SLOW * 2);
        assert!(volume.writes_fast(), "a file system in memory is never slow");
        volume.kind.store(VolumeKind::Local as u8, Ordering::Relaxed);
        volume.record_write(0, WRITE_SLOW);
        assert!(volume.writes_fast());
        volume.record_write(1023, WRITE_SLOW + Duration::from_micros(1));
        assert!(!volume.writes_fast());
        // The backoff has ended, but another write still hangs.
        volume.slow_until.store(1, Ordering::Relaxed);
        volume.timed_in_pool(1, || assert!(!volume.writes_fast()));
        while volume.now() < 1 {}
        volume.slow_until.store(1, Ordering::Relaxed);
        assert!(volume.writes_fast());
    }

    #[test]
    fn the_longest_mount_wins_and_a_device_is_one_volume() {
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
        let with = |served| {
            Volumes::new(Path::new("/"), std::fs::File::open("/").unwrap(), vec![path(served)], false)
                .unwrap()
        };
        let volumes = with("/");
        let shm = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata("/dev/shm").unwrap());
        assert_eq!(volumes.of_path(&path("/dev/shm/x")).device, shm);
        assert_ne!(volumes.of_path(&path("/dev/shmx")).device, shm);
        let of_file = volumes.of_file(shm, std::fs::File::open("/dev/shm").unwrap());
        assert!(Arc::ptr_eq(of_file, volumes.of_path(&path("/dev/shm"))));
        assert_eq!(of_file.kind(), VolumeKind::Memory);
        // Mounts elsewhere do not count; those above and below a served path do.
        let shm_in = |served| with(served).nodes().any(|node| node.volume.device == shm);
        assert_eq!(["/etc", "/dev", "/dev/shm/x"].map(shm_in), [false, true, true]);
    }
}
