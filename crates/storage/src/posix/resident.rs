//! Asking the kernel whether a piece of a file is in memory (`cachestat`, Linux 6.5).

use crate::refusal::Facility;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The kernel does not have it, or a container forbids it.
static MISSING: AtomicBool = AtomicBool::new(false);

/// Are all pages of this piece in memory? `false` where it cannot be told.
pub(super) fn is_resident(fd: BorrowedFd<'_>, offset: u64, length: usize) -> bool {
    look(fd, offset, length) == Some(true)
}

/// Are all pages of this piece in memory? `None` where it cannot be told.
pub(super) fn look(fd: BorrowedFd<'_>, offset: u64, length: usize) -> Option<bool> {
    if length == 0 {
        return Some(true);
    }
    let last = offset.checked_add(length as u64 - 1)?;
    if MISSING.load(Ordering::Relaxed) {
        return None;
    }
    let range = Range { offset, length: length as u64 };
    let mut pages = Pages::default();
    // SAFETY: both structures have the kernel's layout and outlive the call, which keeps neither.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        // A container that does not know the call may say EPERM.
        if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
            MISSING.store(true, Ordering::Relaxed);
            Facility::Cachestat.refused(error);
        }
        return None;
    }
    let page = rustix::param::page_size() as u64;
    Some(pages.cached > last / page - offset / page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn what_was_just_written_is_in_memory_and_a_hole_is_not() {
        let path = std::env::temp_dir().join(format!("scalla-resident-{}", std::process::id()));
        let mut file =
            std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        file.set_len(1 << 20).unwrap();
        if !is_resident(file.as_fd(), 0, 1) {
            // Kernels before 6.5 cannot tell, and then it must be `false` for all.
            assert!(MISSING.load(Ordering::Relaxed));
        } else {
            assert!(is_resident(file.as_fd(), 100, 9_900));
            assert!(is_resident(file.as_fd(), 4095, 2));
        }
        assert!(!is_resident(file.as_fd(), 0, 40_000));
        assert!(!is_resident(file.as_fd(), 500_000, 1));
        assert!(!is_resident(file.as_fd(), u64::MAX, 2));
    }
}
