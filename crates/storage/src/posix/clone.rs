//! Copies a range from one file to another: by sharing blocks, as a fallback in the kernel, and
//! otherwise through memory.

use super::tree::DisabledFeatures;
use crate::StoredFile;
use base::CopyRange;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The file that receives the copy, and its descriptor.
pub(super) struct CloneTarget<'a> {
    pub(super) file: &'a dyn StoredFile,
    pub(super) fd: &'a OwnedFd,
    pub(super) without: DisabledFeatures,
}

/// Maximum number of bytes that one call copies in the kernel, so that no call takes minutes.
const KERNEL_COPY_BYTES: usize = 64 << 20;
/// Number of bytes copied through memory at a time.
const MEMORY_COPY_BYTES: u64 = 1 << 20;

/// Copies a range of `source` to a file. An empty range copies nothing. A source that ends before the
/// range is `EINVAL`. Ranges of one file may overlap: the target receives the bytes that were in the
/// source range before. `descriptor` is that of `source` if it is a file of this backend.
pub(super) fn range(
    to: &CloneTarget<'_>,
    source: &dyn StoredFile,
    descriptor: Option<&OwnedFd>,
    range: CopyRange,
) -> io::Result<()> {
    let end = range.source_end().ok_or(Errno::INVAL)?;
    if range.length == 0 {
        return Ok(());
    }
    if source.stat()?.size < end {
        return Err(Errno::INVAL.into());
    }
    let Some(descriptor) = descriptor else {
        return through_memory(to.file, source, range, CopyOrder::Forwards);
    };
    if !to.without.reflink && share(to.fd, descriptor, range)? {
        return Ok(());
    }
    let (mut copied, same) = (0, is_same(to.fd, descriptor)?);
    let overlap = same && range.from < range.to.saturating_add(range.length) && range.to < end;
    if !to.without.copy_file_range && !overlap {
        copied = in_kernel(to.fd, descriptor, range)?;
    }
    let order = if overlap && range.from < range.to { CopyOrder::Backwards } else { CopyOrder::Forwards };
    through_memory(to.file, source, range.part(copied, range.length - copied), order)
}

fn is_same(a: &OwnedFd, b: &OwnedFd) -> io::Result<bool> {
    let (a, b) = (rustix::fs::fstat(a)?, rustix::fs::fstat(b)?);
    Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

/// Shares blocks; `false` if that is not possible here. The kernel shares either all blocks or
/// none.
fn share(to: &OwnedFd, from: &OwnedFd, range: CopyRange) -> io::Result<bool> {
    let range = libc::file_clone_range {
        src_fd: i64::from(from.as_raw_fd()),
        src_offset: range.from,
        src_length: range.length,
        dest_offset: range.to,
    };
    // SAFETY: the structure has the kernel's layout and outlives the call, which keeps no reference
    // to it.
    let result = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Copying would fail in the same way. All other errors concern sharing only.
        Some(libc::ENOSPC | libc::EDQUOT | libc::EIO | libc::EBADF) => Err(error),
        _ => Ok(false),
    }
}

/// Copies in the kernel as far as possible and returns the number of bytes copied.
fn in_kernel(to: &OwnedFd, from: &OwnedFd, range: CopyRange) -> io::Result<u64> {
    let mut copied = 0;
    while copied < range.length {
        let CopyRange { from: mut at, to: mut into, length } = range.part(copied, range.length - copied);
        let piece = usize::try_from(length).unwrap_or(usize::MAX).min(KERNEL_COPY_BYTES);
        match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut into), piece) {
            // Either the source ended, which reading will report, or the file system does not
            // support this copy.
            Ok(0) => break,
            Ok(more) => copied += more as u64,
            Err(Errno::INTR) => {}
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::BADF | Errno::FBIG)) => {
                return Err(error.into());
            }
            Err(_) => break,
        }
    }
    Ok(copied)
}

/// The order in which the pieces of a range are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyOrder {
    Forwards,
    /// The last piece first, because the ranges overlap.
    Backwards,
}

fn through_memory(
    to: &dyn StoredFile,
    from: &dyn StoredFile,
    range: CopyRange,
    order: CopyOrder,
) -> io::Result<()> {
    let mut buffer = vec![0; usize::try_from(range.length.min(MEMORY_COPY_BYTES)).unwrap_or(0)];
    let mut copied = 0;
    while copied < range.length {
        let bytes = (range.length - copied).min(MEMORY_COPY_BYTES);
        let at = match order {
            CopyOrder::Forwards => copied,
            CopyOrder::Backwards => range.length - copied - bytes,
        };
        let piece = buffer.get_mut(..usize::try_from(bytes).unwrap_or(0)).unwrap_or_default();
        if from.read(range.from + at, piece)? < piece.len() {
            return Err(Errno::INVAL.into());
        }
        to.write(range.to + at, piece)?;
        copied += bytes;
    }
    Ok(())
}
