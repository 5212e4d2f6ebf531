//! [`PlainTree`]: regular files below a directory, reached without following any link.
//!
//! The tree of a disk cache can be changed by other programs of the machine. A link there, or a second name of
//! a file, would let them choose which file this process overwrites. So no component of a path may be a
//! link, and a file with several names is refused. All calls block.

use base::{LogicalPath, stable_hash};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The file with the identifier of the start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// `STATX_MNT_ID_UNIQUE` (since Linux 6.8).
const MOUNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// Mode of new directories and files.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);

/// Opening must not block, acquire a controlling terminal, or leak into a child process.
const QUIET: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Number of attempts to create a file while its directories are being removed.
const CREATE_TRIES: usize = 100;

/// A tree of files.
#[derive(Debug)]
pub struct PlainTree {
    root: OwnedFd,
}

/// An open file of a [`PlainTree`].
#[derive(Debug)]
pub struct PlainFile(File);

/// The status of a [`PlainFile`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainStatus {
    /// Size in bytes.
    pub size: u64,
    /// Space on disk in bytes.
    pub allocated: u64,
    /// Time of the last modification, in seconds since the epoch.
    pub modified: i64,
}

/// The kind of an entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlainKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else, such as a link.
    Other,
}

/// An open directory.
pub struct PlainDirectory {
    entries: Dir,
}

/// Splits a path into its directories and its last component.
fn split(path: &LogicalPath) -> io::Result<(impl Iterator<Item = &[u8]>, &[u8])> {
    let bytes = path.as_bytes();
    let at = bytes.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    let (directories, name) = bytes.split_at(at);
    let name = name.strip_prefix(b"/").filter(|name| !name.is_empty()).ok_or(Errno::ISDIR)?;
    Ok((components(directories), name))
}

fn components(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&byte| byte == b'/').filter(|component| !component.is_empty())
}

/// A directory that is open, or the root.
enum Step<'a> {
    Root(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Step<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(fd) => *fd,
            Self::Below(fd) => fd.as_fd(),
        }
    }
}

impl PlainTree {
    /// Opens the tree below a directory, which may be a link of the operator.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: fs::openat(fs::CWD, root, flags, Mode::empty())? })
    }

    /// Opens a directory of the tree. With `create`, missing directories are created.
    fn walk<'p>(&self, directories: impl Iterator<Item = &'p [u8]>, create: bool) -> io::Result<Step<'_>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = Step::Root(self.root.as_fd());
        for name in directories {
            let next = match fs::openat(&at, name, flags, Mode::empty()) {
                Err(Errno::NOENT) if create => {
                    match fs::mkdirat(&at, name, DIRECTORY_MODE) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    fs::openat(&at, name, flags, Mode::empty())
                }
                other => other,
            };
            at = Step::Below(next?);
        }
        Ok(at)
    }

    fn open_with(&self, path: &LogicalPath, how: OFlags, create: bool) -> io::Result<PlainFile> {
        let (directories, name) = split(path)?;
        let parent = self.walk(directories, create)?;
        let fd = fs::openat(&parent, name, how | OFlags::NOFOLLOW | QUIET, FILE_MODE)?;
        let status = fs::fstat(&fd)?;
        match FileType::from_raw_mode(status.st_mode) {
            // The name may have been removed since.
            FileType::RegularFile if status.st_nlink <= 1 => Ok(PlainFile(File::from(fd))),
            FileType::RegularFile => Err(Errno::MLINK.into()),
            _ => Err(Errno::NOTBLK.into()),
        }
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `ENOENT` if there is no such file, `ELOOP` or `ENOTDIR` for a link, `EMLINK` for a file with
    /// several names, and other errors of the operating system.
    pub fn open_file(&self, path: &LogicalPath) -> io::Result<PlainFile> {
        self.open_with(path, OFlags::RDWR, false)
    }

    /// Creates a file, and the missing directories above it.
    ///
    /// # Errors
    /// `EEXIST` if the name exists, and other errors of the operating system.
    pub fn create_file(&self, path: &LogicalPath) -> io::Result<PlainFile> {
        let mut tries = CREATE_TRIES;
        loop {
            let created = self.open_with(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, true);
            tries -= 1;
            match created {
                // A directory that was empty has been removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries > 0 => {}
                other => return other,
            }
        }
    }

    /// Renames a file. An existing file at the new name is replaced.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn rename(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<()> {
        let ((from, old), (to, new)) = (split(from)?, split(to)?);
        let (from, to) = (self.walk(from, false)?, self.walk(to, true)?);
        Ok(fs::renameat(&from, old, &to, new)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn remove_file(&self, path: &LogicalPath) -> io::Result<()> {
        let (directories, name) = split(path)?;
        Ok(fs::unlinkat(self.walk(directories, false)?, name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn remove_directory(&self, path: &LogicalPath) -> io::Result<()> {
        let (directories, name) = split(path)?;
        Ok(fs::unlinkat(self.walk(directories, false)?, name, AtFlags::REMOVEDIR)?)
    }

    fn directory(&self, path: &LogicalPath) -> io::Result<OwnedFd> {
        let place = self.walk(components(path.as_bytes()), false)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(fs::openat(&place, ".", flags, Mode::empty())?)
    }

    /// Waits until the names in a directory have reached stable storage.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn sync_directory(&self, path: &LogicalPath) -> io::Result<()> {
        match fs::fsync(self.directory(path)?) {
            // The file system cannot sync directories.
            Err(Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Waits until everything on the file system of the tree is durable.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(fs::syncfs(&self.root)?)
    }

    /// Opens a directory for reading its entries.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn list(&self, path: &LogicalPath) -> io::Result<PlainDirectory> {
        Ok(PlainDirectory { entries: Dir::new(self.directory(path)?)? })
    }

    /// Returns a number that another tree has not: one with another root, or with another file at this path. A copy of a
    /// tree is another one.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn identity(&self, path: &LogicalPath) -> io::Result<u64> {
        let (directories, name) = split(path)?;
        let file = fs::statat(self.walk(directories, false)?, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let root = fs::fstat(&self.root)?;
        let words = [root.st_ino, file.st_ino, file.st_ctime as u64, file.st_ctime_nsec as u64];
        Ok(stable_hash(words.map(u64::to_le_bytes).as_flattened()))
    }

    /// Returns a number that the root has until the machine starts again, or its file system is mounted again; `None`
    /// if that is not known. It is another one for a process with its own mounts.
    #[must_use]
    pub fn mounted(&self) -> Option<u64> {
        let mut words = std::fs::read(BOOT_ID).ok().filter(|id| !id.is_empty())?;
        // Other numbers of mounts are used again.
        let status = fs::statx(&self.root, "", AtFlags::EMPTY_PATH, MOUNT_ID_UNIQUE).ok()?;
        if status.stx_mask & MOUNT_ID_UNIQUE.bits() == 0 {
            return None;
        }
        words.extend(status.stx_mnt_id.to_le_bytes());
        Some(stable_hash(&words))
    }

    /// Returns the total and the used space of the file system of the root, in bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn usage(&self) -> io::Result<(u64, u64)> {
        let figures = fs::fstatvfs(&self.root)?;
        let bytes = |blocks: u64| blocks.saturating_mul(figures.f_frsize);
        let total = bytes(figures.f_blocks);
        Ok((total, total.saturating_sub(bytes(figures.f_bavail))))
    }
}

impl PlainFile {
    /// Reads. Fewer bytes than requested mean the end of the file.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads a range that is in memory into several buffers, in order, without waiting. Returns whether all of them were
    /// filled. Some file systems cannot.
    #[must_use]
    pub fn read_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> bool {
        let length: usize = into.iter().map(|part| part.len()).sum();
        // The kernel would take -1 as the position of the descriptor.
        if i64::try_from(offset).is_err() {
            return false;
        }
        let read = preadv2(&self.0, into, offset, ReadWriteFlags::NOWAIT);
        read.is_ok_and(|count| count == length)
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.0.write_all_at(from, offset)
    }

    /// Frees the disk space of a range, which reads as zeros afterwards. The size of the file stays.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file system cannot free a part of a file, and other errors of the operating system.
    pub fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fs::fallocate(&self.0, how, offset, length) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Waits until data and size have reached stable storage.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    /// Returns the status.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn status(&self) -> io::Result<PlainStatus> {
        let status = fs::fstat(&self.0)?;
        Ok(PlainStatus {
            size: u64::try_from(status.st_size).unwrap_or(0),
            // Always in units of 512 bytes.
            allocated: u64::try_from(status.st_blocks).unwrap_or(0).saturating_mul(512),
            modified: status.st_mtime,
        })
    }

    /// Sets an extended attribute by its full name (`user.…`).
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn set_attribute(&self, name: &str, value: &[u8]) -> io::Result<()> {
        Ok(fs::fsetxattr(&self.0, name, value, fs::XattrFlags::empty())?)
    }

    /// Reports whether the file has an extended attribute.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn has_attribute(&self, name: &str) -> io::Result<bool> {
        let mut none: [u8; 0] = [];
        match fs::fgetxattr(&self.0, name, &mut none) {
            Ok(_) => Ok(true),
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Locks the file for this process until it is closed. Returns whether no other process has it.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn try_lock(&self) -> io::Result<bool> {
        match fs::flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Iterator for PlainDirectory {
    type Item = io::Result<(Vec<u8>, PlainKind)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.entries.read()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => PlainKind::File,
                FileType::Directory => PlainKind::Directory,
                FileType::Unknown => match self.kind(entry.file_name()) {
                    Ok(kind) => kind,
                    Err(error) => return Some(Err(error)),
                },
                _ => PlainKind::Other,
            };
            return Some(Ok((name.to_vec(), kind)));
        }
    }
}

impl PlainDirectory {
    /// Returns the kind of an entry on a file system that does not name it in listings.
    fn kind(&self, name: &std::ffi::CStr) -> io::Result<PlainKind> {
        let status = fs::statat(self.entries.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => PlainKind::File,
            FileType::Directory => PlainKind::Directory,
            _ => PlainKind::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    struct TestDirectory(std::path::PathBuf);

    impl TestDirectory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("scalla-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for TestDirectory {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    fn number<T>(result: io::Result<T>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn a_mount_has_a_number_of_its_own() {
        let root = TestDirectory::new("tree-mounted");
        let of = |root: &Path| PlainTree::open(root).unwrap().mounted();
        let here = of(root.path());
        assert_eq!(here, of(root.path()));
        // Each system has this mount. Without numbers of mounts, there is none.
        assert!(here.is_none() || here != of(Path::new("/proc")));
    }

    #[test]
    fn the_space_of_a_range_is_freed_and_the_size_stays() {
        const PIECE: usize = 1 << 20;
        let root = TestDirectory::new("tree-discard");
        let file = PlainTree::open(root.path()).unwrap().create_file(&path("/f")).unwrap();
        file.write_at(0, &vec![7; 3 * PIECE + 10]).unwrap();
        file.sync().unwrap();
        let before = file.status().unwrap();
        match file.discard(PIECE as u64, PIECE as u64) {
            // Not each file system can.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => return,
            other => other.unwrap(),
        }
        // The end of the file is within the last page.
        file.discard(3 * PIECE as u64, 4096).unwrap();
        let after = file.status().unwrap();
        assert_eq!(after.size, before.size);
        assert!(after.allocated + PIECE as u64 <= before.allocated, "{before:?} {after:?}");
        let mut content = vec![1; 3 * PIECE + 10];
        assert_eq!(file.read_at(0, &mut content).unwrap(), content.len());
        let mut expected = vec![7; 3 * PIECE + 10];
        expected[PIECE..2 * PIECE].fill(0);
        expected[3 * PIECE..].fill(0);
        assert!(content == expected);
        assert_eq!(number(file.discard(0, 0)), Some(Errno::INVAL.raw_os_error()));
    }

    #[test]
    fn a_copy_of_a_tree_is_another_one() {
        let (one, other) = (TestDirectory::new("tree-one"), TestDirectory::new("tree-other"));
        let identity =
            |root: &TestDirectory| PlainTree::open(root.path()).unwrap().identity(&path("/d/lock"));
        assert_eq!(number(identity(&one)), Some(Errno::NOENT.raw_os_error()));
        for root in [&one, &other] {
            std::fs::create_dir(root.path().join("d")).unwrap();
            std::fs::write(root.path().join("d/lock"), b"").unwrap();
        }
        let before = identity(&one).unwrap();
        assert_ne!(before, identity(&other).unwrap());
        std::fs::write(one.path().join("another"), b"").unwrap();
        assert_eq!(before, identity(&one).unwrap());
    }

    #[test]
    fn a_read_without_waiting_has_all_bytes_or_none_count() {
        let root = TestDirectory::new("plain-now");
        let file = PlainTree::open(root.path()).unwrap().create_file(&path("/f")).unwrap();
        file.write_at(0, &[7; 5000]).unwrap();
        let (mut one, mut other) = ([9; 20], [9; 5]);
        let mut read =
            |offset| file.read_now(offset, &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)]);
        assert!(!read(4980), "bytes behind the end");
        assert!(!read(u64::MAX));
        // File systems that cannot tell always refuse.
        assert!(!read(100) || (one, other) == ([7; 20], [7; 5]));
    }

    #[test]
    fn files_are_created_read_renamed_and_removed() {
        let root = TestDirectory::new("plain-tree");
        let tree = PlainTree::open(root.path()).unwrap();
        let file = tree.create_file(&path("/a/b/f")).unwrap();
        file.write_at(5, b"hello").unwrap();
        let mut bytes = [9; 20];
        assert_eq!((file.read_at(3, &mut bytes).unwrap(), &bytes[..7]), (7, &b"\0\0hello"[..]));
        assert_eq!(file.status().unwrap().size, 10);
        assert_eq!(number(tree.create_file(&path("/a/b/f"))), Some(libc::EEXIST));
        tree.rename(&path("/a/b/f"), &path("/c/g")).unwrap();
        tree.sync_directory(&path("/c")).unwrap();
        tree.sync_directory(&path("/")).unwrap();
        let mut names: Vec<_> = tree.list(&path("/")).unwrap().map(Result::unwrap).collect();
        names.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(names, [(b"a".to_vec(), PlainKind::Directory), (b"c".to_vec(), PlainKind::Directory)]);
        assert_eq!(number(tree.open_file(&path("/a/b/f"))), Some(libc::ENOENT));
        assert!(tree.open_file(&path("/c/g")).unwrap().try_lock().unwrap());
        tree.remove_file(&path("/c/g")).unwrap();
        tree.remove_directory(&path("/c")).unwrap();
        assert_eq!(number(tree.open_file(&path("/c/g"))), Some(libc::ENOENT));
        assert_eq!(number(tree.open_file(&path("/a/b"))), Some(libc::EISDIR));
    }

    #[test]
    fn a_file_is_created_while_its_empty_directories_are_removed() {
        let root = TestDirectory::new("plain-race");
        let tree = PlainTree::open(root.path()).unwrap();
        // One removal of each directory for each file, as by a cache: without an end of removals, no number of tries is
        // enough.
        let begun = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seen = 0;
                while seen != usize::MAX {
                    let now = begun.load(std::sync::atomic::Ordering::Acquire);
                    if std::mem::replace(&mut seen, now) == now {
                        std::thread::yield_now();
                        continue;
                    }
                    ["/a/b", "/a"].into_iter().for_each(|name| drop(tree.remove_directory(&path(name))));
                }
            });
            let created = (1..=3000).map(|number| {
                begun.store(number, std::sync::atomic::Ordering::Release);
                tree.create_file(&path("/a/b/f"))?;
                tree.remove_file(&path("/a/b/f"))
            });
            let failed = created.filter_map(Result::err).next();
            begun.store(usize::MAX, std::sync::atomic::Ordering::Release);
            assert!(failed.is_none(), "{failed:?}");
        });
    }

    #[test]
    fn links_and_files_with_several_names_are_refused() {
        let root = TestDirectory::new("plain-links");
        let outside = TestDirectory::new("plain-outside");
        std::fs::write(outside.path().join("f"), b"secret").unwrap();
        symlink(outside.path(), root.path().join("d")).unwrap();
        symlink(outside.path().join("f"), root.path().join("f")).unwrap();
        symlink(outside.path().join("new"), root.path().join("new")).unwrap();
        std::fs::write(root.path().join("one"), b"x").unwrap();
        std::fs::hard_link(root.path().join("one"), root.path().join("two")).unwrap();
        let tree = PlainTree::open(root.path()).unwrap();
        assert_eq!(number(tree.open_file(&path("/d/f"))), Some(libc::ENOTDIR));
        assert_eq!(number(tree.create_file(&path("/d/g"))), Some(libc::ENOTDIR));
        assert_eq!(number(tree.remove_file(&path("/d/f"))), Some(libc::ENOTDIR));
        assert_eq!(number(tree.list(&path("/d")).map(drop)), Some(libc::ENOTDIR));
        assert_eq!(number(tree.open_file(&path("/f"))), Some(libc::ELOOP));
        assert_eq!(number(tree.create_file(&path("/new"))), Some(libc::EEXIST));
        assert_eq!(number(tree.open_file(&path("/two"))), Some(libc::EMLINK));
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "nothing was created outside");
    }
}
