//! What every kind of storage does: the contract between logical files and physical bytes.
//!
//! Calls may block and are made on a [`crate::Pool`] thread, except those whose names end in `_now`: these never wait for
//! a disk and say [`Now::WouldBlock`] instead. Errors are the operating system's own; the logical room gives them words.

use base::{LogicalPath, Owner};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The outcome of a call that must not block.
#[derive(Debug)]
pub enum Now<T> {
    /// Done.
    Done(io::Result<T>),
    /// It would have to wait: make the blocking call on the pool.
    WouldBlock,
}

/// How to create a file that is not there.
#[derive(Clone)]
pub struct CreateHow {
    /// It must not exist (`O_EXCL`).
    pub exclusive: bool,
    /// Permission bits, with the sticky bit where a file is to be marked as not yet whole.
    pub mode: u32,
    /// Missing parents are created, with this mode.
    pub parents: Option<u32>,
    /// Bytes it will have, if the client said so; a hint for choosing a partition.
    pub size_hint: Option<u64>,
    /// The space (`oss.cgroup`) it is to go to.
    pub space: Option<String>,
    /// The file system it is to go to: that of this file.
    pub beside: Option<Arc<dyn StoredFile>>,
    /// Where [`Backend::elsewhere`] found room for it.
    pub at: Option<Elsewhere>,
}

/// Where work on a path goes on that cannot be done in the pool of the path.
#[derive(Clone)]
pub struct Elsewhere {
    /// The pool of the file system that is concerned.
    pub pool: Arc<crate::Pool>,
    /// For a new file, its partition.
    pub(crate) partition: Option<usize>,
}

impl Elsewhere {
    /// In this pool.
    pub fn new(pool: Arc<crate::Pool>) -> Self {
        Self { pool, partition: None }
    }
}

/// How to open a file. Reading is always possible on what is opened.
#[derive(Clone, Default)]
pub struct OpenHow {
    /// For writing too.
    pub write: bool,
    /// Cut to nothing at open.
    pub truncate: bool,
    /// Create it if it is missing.
    pub create: Option<CreateHow>,
}

/// What a file system says of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Device and inode.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// `st_mode`: type and permission bits.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// Owner's number.
    pub uid: u32,
    /// Group's number.
    pub gid: u32,
    /// Seconds since the epoch.
    pub modified: i64,
    /// And nanoseconds: stored checksums are checked against seconds, our own caches against both.
    pub modified_nanoseconds: u32,
    /// Seconds since the epoch.
    pub changed: i64,
    /// Seconds since the epoch.
    pub accessed: i64,
    /// The file's data is elsewhere and needs staging.
    pub offline: bool,
}

/// Identifies a file or directory among all others, also after a restart of the machine.
///
/// Device numbers can change when a file system is mounted again, and inode numbers are reused for new files. The time of
/// birth is therefore part of the identity where the file system records it. On NFS, which does not, the file handle of its
/// server is: it names one file of one file system for ever, whatever the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileIdentity {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Time of birth in seconds and nanoseconds; `None` where the file system records none.
    pub born: Option<(i64, u32)>,
    /// A digest of the NFS file handle; `None` on other file systems.
    pub handle: Option<(u64, u64)>,
}

impl FileIdentity {
    /// Reports whether both name one file. Without times of birth and handles the device numbers must be the same too: inode
    /// numbers are reused, and those of other file systems are alike. Device numbers may change at a restart, so such a file may
    /// then be taken for another one, but never another one for it.
    pub fn is_same(&self, other: &Self) -> bool {
        self.inode == other.inode
            && match ((self.born, other.born), (self.handle, other.handle)) {
                ((Some(one), Some(two)), _) => one == two,
                (_, (Some(one), Some(two))) => one == two,
                _ => self.device == other.device,
            }
    }
}

impl From<&Metadata> for FileIdentity {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.device, inode: metadata.inode, born: None, handle: None }
    }
}

/// One name of a directory; never `.` or `..`, nor what the storage keeps for itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawEntry {
    /// One component.
    pub name: Vec<u8>,
    /// It is a link, or may be one.
    pub link: bool,
}

/// A directory being read.
pub trait DirectoryStream: Send {
    /// Up to `most` further names; empty at the end.
    fn next(&mut self, most: usize) -> io::Result<Vec<RawEntry>>;

    /// The pool in which the next two are to be called for this entry, if it is not the one that the directory is read in: a
    /// link leads to another file system, or one is mounted there.
    fn elsewhere(&self, entry: &RawEntry) -> Option<Arc<crate::Pool>> {
        let _ = entry;
        None
    }

    /// Reports whether an entry is a link that may lead to another name below the root, so that what it leads to has two paths.
    fn is_alias(&self, entry: &RawEntry) -> bool {
        entry.link
    }

    /// The status of an entry, without following a way out of the export.
    fn stat(&self, name: &[u8]) -> io::Result<Metadata>;

    /// An extended attribute of an entry (full local name); `None` if it has none.
    fn attribute(&self, name: &[u8], attribute: &str) -> io::Result<Option<Vec<u8>>>;
}

/// One range to read into a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadPiece {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes to read.
    pub length: usize,
    /// Where they go in the buffer.
    pub at: usize,
}

/// Space of one or more file systems, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Usage {
    /// In all.
    pub total: u64,
    /// Free for us.
    pub free: u64,
    /// Free on the one with the most.
    pub largest_free: u64,
}

/// Space of one file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystemUsage {
    /// Its device number: the same file system has the same one.
    pub number: u64,
    /// In all.
    pub total: u64,
    /// Free for us.
    pub free: u64,
}

/// A tree of logical names and where their bytes lie. Export rules are not its concern; staying inside is.
pub trait Backend: Send + Sync {
    /// Opens, and creates if told so.
    fn open(&self, path: &LogicalPath, how: &OpenHow) -> io::Result<Arc<dyn StoredFile>>;
    /// Opens an existing file if its name is in memory.
    fn open_now(&self, path: &LogicalPath, how: &OpenHow) -> Now<Arc<dyn StoredFile>>;
    /// Follows links inside the tree.
    fn stat(&self, path: &LogicalPath) -> io::Result<Metadata>;
    /// The same if it is in memory.
    fn stat_now(&self, path: &LogicalPath) -> Now<Metadata>;
    /// Returns the identity of what is at a path, following links inside the tree.
    fn identity(&self, path: &LogicalPath) -> io::Result<FileIdentity> {
        Ok(FileIdentity::from(&self.stat(path)?))
    }
    /// Reports whether the last name of a path exists, also if it is a link to something that is not there.
    fn has_name(&self, path: &LogicalPath) -> io::Result<bool> {
        match self.stat(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.map(|_| true),
        }
    }
    /// Waits until the name at a path has reached stable storage: that it exists, or that it no longer does.
    fn sync_name(&self, _path: &LogicalPath) -> io::Result<()> {
        Ok(())
    }
    /// Whether names at this path are on a disk of this machine, where many are looked up in the time that waking another
    /// thread takes.
    fn names_are_near(&self, _path: &LogicalPath) -> bool {
        true
    }
    /// Reads a directory.
    fn list(&self, path: &LogicalPath) -> io::Result<Box<dyn DirectoryStream>>;
    /// Creates a directory with exactly this mode, and missing parents too if told so.
    fn make_directory(&self, path: &LogicalPath, mode: u32, parents: bool) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &LogicalPath) -> io::Result<()>;
    /// Removes a file, with what the storage keeps for it.
    fn remove_file(&self, path: &LogicalPath) -> io::Result<()>;
    /// Renames; replaces a file; creates missing parents with this mode if given.
    fn rename(&self, from: &LogicalPath, to: &LogicalPath, parents: Option<u32>) -> io::Result<()>;
    /// Sets permission bits (07777).
    fn set_mode(&self, path: &LogicalPath, mode: u32) -> io::Result<()>;
    /// Sets the time of the last access to now. A storage that keeps no such time has nothing to do.
    fn renew_access(&self, _path: &LogicalPath) -> io::Result<()> {
        Ok(())
    }
    /// Sets the size.
    fn truncate(&self, path: &LogicalPath, size: u64) -> io::Result<()>;
    /// Reads an extended attribute by its full local name (`user.…`).
    fn attribute(&self, path: &LogicalPath, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Sets one; with `new` it must not exist (EEXIST).
    fn set_attribute(&self, path: &LogicalPath, name: &str, value: &[u8], new: bool) -> io::Result<()>;
    /// Removes one (ENODATA where it is missing).
    fn remove_attribute(&self, path: &LogicalPath, name: &str) -> io::Result<()>;
    /// Full local names of all.
    fn attributes(&self, path: &LogicalPath) -> io::Result<Vec<String>>;
    /// Space of the named space (nothing if there is none of that name), or of where `path` would be stored.
    fn usage(&self, path: &LogicalPath, space: Option<&str>) -> io::Result<Usage>;
    /// Space of each file system that new files at or below `path` may go to. May wait, and is not to be called on a loop.
    fn file_systems(&self, path: &LogicalPath) -> io::Result<Vec<FileSystemUsage>> {
        let usage = self.usage(path, None)?;
        let mut at = path.clone();
        let number = loop {
            // What is not there yet would be stored where the nearest folder above it is.
            match (self.stat(&at), at.parent()) {
                (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => at = above,
                (metadata, _) => break metadata?.device,
            }
        };
        Ok(vec![FileSystemUsage { number, total: usage.total, free: usage.free }])
    }
    /// The space a file lies in, or a new one would go to without a wish (`public` without any configured). May wait.
    fn space_of(&self, path: &LogicalPath) -> String;
    /// The pool that work on this path is to begin in: one per file system, so that a hung one holds up nobody else.
    fn pool(&self, path: &LogicalPath) -> &Arc<crate::Pool>;
    /// Where work on this path is to go on ([`crate::Pool::take_over`]) because a link leads to another file system, or because a
    /// new file will lie there (`create`, which is to be told of it). To be called in [`Backend::pool`]; what the link leads to
    /// is not touched.
    fn elsewhere(&self, path: &LogicalPath, create: Option<&CreateHow>) -> Option<Elsewhere> {
        let _ = (path, create);
        None
    }
}

/// Appends by [`StoredFile::read_now`] into a place that is filled before.
pub(crate) fn append_filled<F: StoredFile + ?Sized>(
    file: &F,
    offset: u64,
    length: usize,
    out: &mut Vec<u8>,
) -> Now<usize> {
    let start = out.len();
    out.resize(start + length, 0);
    let read = file.read_now(offset, out.get_mut(start..).unwrap_or_default());
    let kept = if let Now::Done(Ok(read)) = &read { (*read).min(length) } else { 0 };
    out.truncate(start + kept);
    read
}

/// An open physical file. Reads and writes carry their offset; any number may run at once.
pub trait StoredFile: Send + Sync {
    /// Reads what is in memory; fewer bytes than asked means end of file. Never [`Now::WouldBlock`] at end of file.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize>;
    /// Appends up to `length` bytes to `out` and is otherwise as [`StoredFile::read_now`]. `out` is
    /// as it was if nothing is read.
    fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Now<usize> {
        append_filled(self, offset, length, out)
    }
    /// Reads one range that is in memory into several places, one after the other; `None` when not all of it can be had so.
    fn read_scattered_now(&self, offset: u64, into: &mut [io::IoSliceMut<'_>]) -> Option<()> {
        let _ = (offset, into);
        None
    }
    /// Reads; fewer bytes than asked means end of file.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all if the storage has been answering fast; after a slow answer says [`Now::WouldBlock`] for a while.
    fn write_now(&self, offset: u64, from: &[u8]) -> Now<()>;
    /// Writes all.
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()>;
    /// Starts reading pieces into `buffer` without a thread, where the current loop can ([`crate::ring`]); what `done` makes
    /// is called on this thread later. Where it cannot, the buffer comes back, and the read is to be made on the pool.
    fn read_later(
        &self,
        buffer: Vec<u8>,
        pieces: &[ReadPiece],
        done: &mut dyn FnMut() -> crate::ring::Completion,
    ) -> Result<(), Vec<u8>> {
        let _ = (pieces, done);
        Err(buffer)
    }
    /// Has a job of this owner read these pieces on the pool; it may share its thread with others. It comes back when the pool is
    /// full.
    fn read_in_pool(&self, owner: Owner, pieces: &[ReadPiece], job: crate::Job) -> Result<(), crate::Job> {
        let _ = pieces;
        self.pool().run(owner, job)
    }
    /// Sets the size.
    fn truncate(&self, size: u64) -> io::Result<()>;
    /// Data and size reach stable storage.
    fn sync(&self) -> io::Result<()>;
    /// Data, size, permission bits and extended attributes reach stable storage.
    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }
    /// Returns the identity of the file.
    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity::from(&self.stat()?))
    }
    /// Status. May wait where a file system is not on a disk of this machine.
    fn stat(&self) -> io::Result<Metadata>;
    /// The same without waiting.
    fn stat_now(&self) -> Now<Metadata> {
        Now::Done(self.stat())
    }
    /// Its size without waiting: behind a network, the last one that was heard of.
    fn size_now(&self) -> Option<u64> {
        self.stat().ok().map(|metadata| metadata.size)
    }
    /// Sets permission bits (07777).
    fn set_mode(&self, mode: u32) -> io::Result<()>;
    /// Reads an extended attribute by its full local name.
    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Sets one; with `new` it must not exist.
    fn set_attribute(&self, name: &str, value: &[u8], new: bool) -> io::Result<()>;
    /// Removes one.
    fn remove_attribute(&self, name: &str) -> io::Result<()>;
    /// Full local names of all.
    fn attributes(&self) -> io::Result<Vec<String>>;
    /// Copies a range from another file of this backend: shares blocks where the file system can, else copies in the kernel.
    fn clone_range(
        &self,
        from: &dyn StoredFile,
        from_offset: u64,
        length: u64,
        offset: u64,
    ) -> io::Result<()>;
    /// The descriptor, where there is a plain one that can be sent from (`sendfile`).
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Are all these bytes in memory, to be sent from the descriptor? `false` where it cannot be told, or be done. With `length`
    /// 0 the kernel is not asked: `false` if it is known that none will ever be.
    fn is_resident(&self, offset: u64, length: usize) -> bool;
    /// Tells the kernel that this range will be read soon.
    fn prefetch(&self, offset: u64, length: u64);
    /// The pool its blocking work is to run on.
    fn pool(&self) -> &Arc<crate::Pool>;
    /// For backends that must know their own files again.
    fn as_any(&self) -> &dyn std::any::Any;
}

#[cfg(test)]
mod tests {
    use super::FileIdentity;

    #[test]
    fn files_are_the_same_by_birth_or_handle_and_otherwise_by_device() {
        let plain = FileIdentity { device: 1, inode: 2, born: None, handle: None };
        let born = |second| FileIdentity { born: Some((second, 0)), ..plain };
        let handle = |number| FileIdentity { handle: Some((number, 0)), ..plain };
        let elsewhere = |identity| FileIdentity { device: 9, ..identity };
        for (one, other, is_same) in [
            (plain, plain, true),
            (plain, elsewhere(plain), false),
            (plain, FileIdentity { inode: 3, ..plain }, false),
            (born(1), elsewhere(born(1)), true),
            (born(1), born(2), false),
            (handle(1), elsewhere(handle(1)), true),
            // The inode was given to another file.
            (handle(1), handle(2), false),
            // A record of a version before handles.
            (plain, handle(1), true),
            (plain, elsewhere(handle(1)), false),
            (handle(1), FileIdentity { inode: 3, ..handle(1) }, false),
        ] {
            assert_eq!(one.is_same(&other), is_same, "{one:?} {other:?}");
            assert_eq!(other.is_same(&one), is_same, "{other:?} {one:?}");
        }
    }
}
