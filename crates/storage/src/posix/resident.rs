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

/// The kernel does not have it.
static MISSING: AtomicBool = AtomicBool::new(false);

/// What the kernel says of a piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// All its pages are in memory.
    There,
    /// Some are not.
    NotThere,
    /// It cannot be told of any file, or not of such a piece.
    Unknown,
    /// It is not told of this file: since Linux 6.14 only those may ask who own it or may write to it. Containers that forbid
    /// the call say so of every file.
    Forbidden,
}

/// Are all pages of this piece in memory?
pub(super) fn look(fd: BorrowedFd<'_>, offset: u64, length: usize) -> Look {
    if MISSING.load(Ordering::Relaxed) {
        return Look::Unknown;
    }
    if length == 0 {
        return Look::There;
    }
    let Some(last) = offset.checked_add(length as u64 - 1) else { return Look::Unknown };
    let range = Range { offset, length: length as u64 };
    let mut pages = Pages::default();
    // SAFETY: both structures have the kernel's layout and outlive the call, which keeps neither.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    if result == 0 {
        let page = rustix::param::page_size() as u64;
        let wanted = last / page - offset / page + 1;
        return if pages.cached >= wanted { Look::There } else { Look::NotThere };
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            MISSING.store(true, Ordering::Relaxed);
            Facility::Cachestat.refused(error);
            Look::Unknown
        }
        Some(libc::EPERM) => {
            Facility::CachestatOfFile.refused(error);
            Look::Forbidden
        }
        _ => Look::Unknown,
    }
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
        let is_resident = |offset, length| look(file.as_fd(), offset, length) == Look::There;
        if !is_resident(0, 1) {
            // Kernels before 6.5 cannot tell, and then it must be `false` for all.
            assert!(MISSING.load(Ordering::Relaxed));
        } else {
            assert!(is_resident(100, 9_900));
            assert!(is_resident(4095, 2));
        }
        assert!(!is_resident(0, 40_000));
        assert!(!is_resident(500_000, 1));
        assert!(!is_resident(u64::MAX, 2));
    }

    #[test]
    fn a_file_of_somebody_else_says_nothing_about_ours() {
        let path = std::env::temp_dir().join(format!("scalla-resident-ours-{}", std::process::id()));
        std::fs::write(&path, [7; 10_000]).unwrap();
        let ours = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let before = look(ours.as_fd(), 0, 10_000);

        let stranger = std::thread::spawn(|| {
            std::fs::read("/etc/passwd").unwrap();
            let theirs = std::fs::File::open("/etc/passwd").unwrap();
            // SAFETY: takes no pointer. It makes this thread alone nobody where it was root, and else does nothing.
            unsafe { libc::setfsuid(65534) };
            look(theirs.as_fd(), 0, 1)
        });
        // Kernels differ in whom they tell.
        assert_ne!(stranger.join().unwrap(), Look::NotThere);
        assert_eq!(look(ours.as_fd(), 0, 10_000), before);
    }
}
