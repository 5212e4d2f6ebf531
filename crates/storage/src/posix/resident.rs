//! Asks the kernel whether a range of a file is in memory (`cachestat`, Linux 6.5).
//!
//! This decides between `sendfile`, which would block on a page that is missing, and a read on
//! another thread.

use crate::refused_features::KernelFeature;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// System call number, equal on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct CachestatPages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The kernel does not have the call.
static MISSING: AtomicBool = AtomicBool::new(false);

/// The kernel's answer about a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Residency {
    /// All its pages are in memory.
    There,
    /// Some pages are missing.
    NotThere,
    /// The kernel cannot answer for any file, or not for this range.
    Unknown,
    /// The kernel refuses to answer for this file. Since Linux 6.14 it answers only to the owner
    /// and to users with write permission. Containers that forbid the call refuse it for every
    /// file.
    Forbidden,
}

/// Asks the kernel whether all pages of this range are in memory.
pub(super) fn look(fd: BorrowedFd<'_>, offset: u64, length: usize) -> Residency {
    if MISSING.load(Ordering::Relaxed) {
        return Residency::Unknown;
    }
    if length == 0 {
        return Residency::There;
    }
    let Some(last) = offset.checked_add(length as u64 - 1) else { return Residency::Unknown };
    let range = CachestatRange { offset, length: length as u64 };
    let mut pages = CachestatPages::default();
    // SAFETY: both structures have the kernel's layout and outlive the call, which keeps no
    // reference to them.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    if result == 0 {
        let page = rustix::param::page_size() as u64;
        let wanted = last / page - offset / page + 1;
        return if pages.cached >= wanted { Residency::There } else { Residency::NotThere };
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            MISSING.store(true, Ordering::Relaxed);
            KernelFeature::Cachestat.refused(error);
            Residency::Unknown
        }
        Some(libc::EPERM) => {
            KernelFeature::CachestatOfFile.refused(error);
            Residency::Forbidden
        }
        _ => Residency::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn written_pages_are_resident_and_holes_are_not() {
        let path = std::env::temp_dir().join(format!("scalla-resident-{}", std::process::id()));
        let mut file =
            std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        file.set_len(1 << 20).unwrap();
        let is_resident = |offset, length| look(file.as_fd(), offset, length) == Residency::There;
        if !is_resident(0, 1) {
            // Kernels before 6.5 do not have the call, so the result must be `false` for every
            // range.
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
    fn a_refusal_for_a_file_of_another_user_does_not_affect_others() {
        let path = std::env::temp_dir().join(format!("scalla-resident-ours-{}", std::process::id()));
        std::fs::write(&path, [7; 10_000]).unwrap();
        let ours = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let before = look(ours.as_fd(), 0, 10_000);

        let stranger = std::thread::spawn(|| {
            std::fs::read("/etc/passwd").unwrap();
            let theirs = std::fs::File::open("/etc/passwd").unwrap();
            // SAFETY: the call takes no pointer. It changes the user of this thread only, if that
            // was root.
            unsafe { libc::setfsuid(65534) };
            look(theirs.as_fd(), 0, 1)
        });
        // Kernels differ in which users they answer.
        assert_ne!(stranger.join().unwrap(), Residency::NotThere);
        assert_eq!(look(ours.as_fd(), 0, 10_000), before);
    }
}
