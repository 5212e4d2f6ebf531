//! A positional read that appends to a buffer without zeroing its memory first.
//!
//! Zeroing costs a tenth of a small read, and the kernel overwrites the memory at once.

use rustix::io::{Errno, ReadWriteFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kernel takes an offset as two words; on 64 bits the first one holds all of it.
const HIGH_HALF_OF_OFFSET: libc::c_long = 0;
const _: () = assert!(libc::c_long::BITS == 64);

/// Appends up to `length` bytes of the file at `offset` to `out` by one system call with these
/// flags. Returns the number of bytes read.
pub(super) fn read(
    fd: BorrowedFd<'_>,
    (offset, length): (u64, usize),
    out: &mut Vec<u8>,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    out.reserve(length);
    let offset = libc::c_long::try_from(offset).map_err(|_| Errno::INVAL)?;
    let room = out.spare_capacity_mut();
    let iov_len = length.min(room.len());
    let place = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len };
    let read = if flags.is_empty() {
        // `pread64` also works where `preadv2` is unknown or forbidden. SAFETY: the memory belongs
        // to `out`, and the kernel writes at most its length there.
        unsafe { libc::syscall(libc::SYS_pread64, fd.as_raw_fd(), place.iov_base, place.iov_len, offset) }
    } else {
        // The C library's function costs twice as much, because it is a cancellation point. SAFETY:
        // there is one buffer, it belongs to `out`, and the kernel writes at most its length there.
        unsafe {
            libc::syscall(
                libc::SYS_preadv2,
                fd.as_raw_fd(),
                &raw const place,
                1_usize,
                offset,
                HIGH_HALF_OF_OFFSET,
                flags.bits(),
            )
        }
    };
    let Ok(read) = usize::try_from(read) else {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    // SAFETY: the capacity holds that many bytes behind the present ones, and the kernel has
    // written them.
    unsafe { out.set_len(out.len() + read.min(iov_len)) };
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_read_appends_exactly_the_bytes_of_the_file() {
        let (end, start) = rustix::pipe::pipe().unwrap();
        let plain = ReadWriteFlags::empty();
        let mut out = b"before".to_vec();
        // A pipe has no offsets.
        assert_eq!(read(end.as_fd(), (0, 4), &mut out, plain), Err(Errno::SPIPE));
        drop((end, start));
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(read(file.as_fd(), (1, 3), &mut out, plain), Ok(3));
        assert_eq!(out, b"beforeELF");
        let size = file.metadata().unwrap().len();
        assert_eq!(read(file.as_fd(), (size - 2, 100), &mut out, plain), Ok(2));
        assert_eq!((read(file.as_fd(), (size, 100), &mut out, plain), out.len()), (Ok(0), 11));
        assert_eq!(read(file.as_fd(), (u64::MAX, 1), &mut out, plain), Err(Errno::INVAL));
        assert_eq!((read(file.as_fd(), (0, 0), &mut out, plain), out.len()), (Ok(0), 11));
    }
}
