//! A storage backend with one file, which is marked as incomplete and discards writes.
//!
//! It replaces a real directory, so that a run needs no system calls.

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use base::{CopyRange, LogicalPath};
use storage::{
    Backend, DirectoryStream, ExistingName, Metadata, Now, OpenMode, ParentCreation, Pool, SpaceUsage,
    StoredFile,
};

/// Path of the only file.
pub(super) const PATH: &[u8] = b"/data/f";
/// Inode of that file.
pub(super) const INODE: u64 = 7;

const NOT_FOUND: i32 = 2;
const TOO_LARGE: i32 = 27;

pub(super) struct OneFile;

struct JournalFile;

fn found<T>(path: &LogicalPath, there: T) -> io::Result<T> {
    if path.as_bytes() == PATH { Ok(there) } else { Err(io::Error::from_raw_os_error(NOT_FOUND)) }
}

fn metadata() -> Metadata {
    Metadata {
        device: 1,
        inode: INODE,
        // A regular file; the sticky bit marks it as incomplete.
        mode: 0o101_644,
        size: 100,
        uid: 0,
        gid: 0,
        modified: 0,
        modified_nanoseconds: 0,
        changed: 0,
        accessed: 0,
        offline: false,
    }
}

fn workers() -> &'static Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Pool::new("fuzz", 1))
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Backend for OneFile {
    fn open(&self, path: &LogicalPath, _how: &OpenMode) -> io::Result<Arc<dyn StoredFile>> {
        found(path, Arc::new(JournalFile))
    }
    fn open_now(&self, _path: &LogicalPath, _how: &OpenMode) -> Now<Arc<dyn StoredFile>> {
        Now::WouldBlock
    }
    fn stat(&self, path: &LogicalPath) -> io::Result<Metadata> {
        found(path, metadata())
    }
    fn stat_now(&self, _path: &LogicalPath) -> Now<Metadata> {
        Now::WouldBlock
    }
    fn list(&self, _path: &LogicalPath) -> io::Result<Box<dyn DirectoryStream>> {
        unsupported()
    }
    fn make_directory(
        &self,
        _path: &LogicalPath,
        _mode: u32,
        _parents: Option<&ParentCreation>,
    ) -> io::Result<()> {
        unsupported()
    }
    fn remove_directory(&self, _path: &LogicalPath) -> io::Result<()> {
        unsupported()
    }
    fn remove_file(&self, path: &LogicalPath) -> io::Result<()> {
        found(path, ())
    }
    fn rename(
        &self,
        _from: &LogicalPath,
        _to: &LogicalPath,
        _existing: ExistingName,
        _parents: Option<&ParentCreation>,
    ) -> io::Result<()> {
        unsupported()
    }
    fn set_mode(&self, path: &LogicalPath, _mode: u32) -> io::Result<()> {
        found(path, ())
    }
    fn truncate(&self, path: &LogicalPath, _size: u64) -> io::Result<()> {
        found(path, ())
    }
    fn attribute(&self, path: &LogicalPath, _name: &str) -> io::Result<Option<Vec<u8>>> {
        found(path, None)
    }
    fn set_attribute(&self, path: &LogicalPath, _name: &str, _value: &[u8], _new: bool) -> io::Result<()> {
        found(path, ())
    }
    fn remove_attribute(&self, path: &LogicalPath, _name: &str) -> io::Result<()> {
        found(path, ())
    }
    fn attributes(&self, path: &LogicalPath) -> io::Result<Vec<String>> {
        found(path, Vec::new())
    }
    fn usage(&self, _path: &LogicalPath, _space: Option<&str>) -> io::Result<SpaceUsage> {
        Ok(SpaceUsage::default())
    }
    fn space_of(&self, _path: &LogicalPath) -> String {
        String::new()
    }
    fn pool(&self, _path: &LogicalPath) -> &Arc<Pool> {
        workers()
    }
}

impl StoredFile for JournalFile {
    fn read_now(&self, _offset: u64, _into: &mut [u8]) -> Now<usize> {
        Now::Done(Ok(0))
    }
    fn read(&self, _offset: u64, _into: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
    fn write_now(&self, _offset: u64, _from: &[u8]) -> Now<()> {
        Now::WouldBlock
    }
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        // File systems refuse offsets above the maximum of a signed number as well.
        match offset.checked_add(from.len() as u64) {
            Some(end) if i64::try_from(end).is_ok() => Ok(()),
            _ => Err(io::Error::from_raw_os_error(TOO_LARGE)),
        }
    }
    fn truncate(&self, _size: u64) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn stat(&self) -> io::Result<Metadata> {
        Ok(metadata())
    }
    fn set_mode(&self, _mode: u32) -> io::Result<()> {
        Ok(())
    }
    fn attribute(&self, _name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn set_attribute(&self, _name: &str, _value: &[u8], _new: bool) -> io::Result<()> {
        Ok(())
    }
    fn remove_attribute(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }
    fn attributes(&self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
    fn clone_range(&self, _source: &dyn StoredFile, _range: CopyRange) -> io::Result<()> {
        unsupported()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn is_resident(&self, _offset: u64, _length: usize) -> bool {
        false
    }
    fn prefetch(&self, _offset: u64, _length: u64) {}
    fn pool(&self) -> &Arc<Pool> {
        workers()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
