//! Files of this machine as sources. Calls here block; they are made on the threads of
//! [`Disk`](super::disk).

use std::fmt;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::SeekFrom;

use super::failure::CopyError;
use super::metadata::PreservedMetadata;
use crate::buffer_pool::DataBufferPool;
use crate::path::shown_path;

/// Maximum number of pieces of a file with holes that are examined one by one.
const EXTENTS_MAX: usize = 100_000;

/// The identity of a file of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LocalId {
    device: u64,
    inode: u64,
}

impl LocalId {
    pub(super) fn of(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }
}

/// As notes of partial copies have it.
impl fmt::Display for LocalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.device, self.inode)
    }
}

/// A file to read.
pub(super) struct LocalSource {
    file: File,
    pub(super) id: LocalId,
    path: PathBuf,
    pub(super) size: u64,
    pub(super) kept: PreservedMetadata,
    /// Set for a regular file, not a pipe or a device.
    pub(super) regular: bool,
    /// The identity and state of the file: another file, or this one after a change, has a
    /// different text here.
    pub(super) identity: String,
}

impl LocalSource {
    pub(super) fn open(path: &Path) -> Result<Self, CopyError> {
        let fail = |error| CopyError::local("open", path, &error);
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if meta.is_dir() {
            return Err(CopyError::IsDirectory(shown_path(path).into_owned()));
        }
        let part = |seconds, nanos: i64| (seconds, u32::try_from(nanos).unwrap_or(0));
        let kept = PreservedMetadata {
            modified: part(meta.mtime(), meta.mtime_nsec()),
            accessed: part(meta.atime(), meta.atime_nsec()),
            mode: Some(meta.mode() & 0o7777),
        };
        let (changed, changed_nanos) = (meta.ctime(), meta.ctime_nsec());
        let id = LocalId::of(&meta);
        let identity = format!(
            "local {id} {} {}.{:09} {changed}.{changed_nanos:09}",
            meta.len(),
            meta.mtime(),
            meta.mtime_nsec()
        );
        Ok(Self {
            path: path.to_owned(),
            size: meta.len(),
            kept,
            regular: meta.is_file(),
            identity,
            id,
            file,
        })
    }

    /// Returns the parts that hold data, from byte `from` on; everything if the file system does
    /// not report holes.
    pub(super) fn extents(&self, from: u64) -> Vec<Range<u64>> {
        let whole = || std::iter::once(from..self.size).collect();
        let mut found = Vec::new();
        let mut at = from;
        while at < self.size {
            let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start,
                // There is only a hole up to the end.
                Err(rustix::io::Errno::NXIO) => break,
                Err(_) => return whole(),
            };
            let Ok(end) = rustix::fs::seek(&self.file, SeekFrom::Hole(start)) else { return whole() };
            if end <= start || found.len() >= EXTENTS_MAX {
                return whole();
            }
            found.push(start..end.min(self.size));
            at = end;
        }
        found
    }

    /// Reads `length` bytes from `offset`, fewer only at the end.
    pub(super) fn read(
        &self,
        offset: u64,
        length: usize,
        blocks: &DataBufferPool,
    ) -> Result<Bytes, CopyError> {
        let mut block = blocks.take(length);
        while block.len() < length {
            let at = offset + block.len() as u64;
            let spare = rustix::buffer::spare_capacity(block.data());
            match rustix::io::pread(&self.file, spare, at) {
                Ok(0) => break,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(CopyError::local("read", &self.path, &error.into())),
            }
        }
        // The block may be larger than requested.
        block.data().truncate(length);
        Ok(block.into_bytes())
    }

    /// Reads the next bytes of a pipe or device; none at its end.
    pub(super) fn read_next(&self, length: usize, blocks: &DataBufferPool) -> Result<Bytes, CopyError> {
        read_stream(&self.file, &self.path, length, blocks)
    }
}

/// Fills a block from a stream as far as possible.
pub(super) fn read_stream(
    file: impl rustix::fd::AsFd,
    name: &Path,
    length: usize,
    blocks: &DataBufferPool,
) -> Result<Bytes, CopyError> {
    let mut block = blocks.take(length);
    while block.len() < length {
        let room = rustix::buffer::spare_capacity(block.data());
        match rustix::io::read(file.as_fd(), room) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(CopyError::local("read", name, &error.into())),
        }
    }
    Ok(block.into_bytes())
}
