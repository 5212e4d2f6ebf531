//! Logs the features that a kernel, a container or a file system refuses, each with its fallback,
//! once per process.
//!
//! A refusal is detected at the start or on first use, and costs only speed. Without the limit, a
//! process would log it for each file system and file.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};

/// A feature that may be refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KernelFeature {
    /// `openat2`.
    Openat2,
    /// `openat2` with `RESOLVE_CACHED`.
    ResolveCached,
    /// `preadv2` with `RWF_NOWAIT`, on a file system whose files are in memory anyway.
    NoWaitInMemory,
    /// `preadv2` with `RWF_NOWAIT`, on any other file system.
    NoWait,
    /// `cachestat`.
    Cachestat,
    /// `cachestat`, for one file.
    CachestatOfFile,
    /// `sendfile`.
    Sendfile,
}

impl KernelFeature {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Returns the name of the feature and its fallback.
    fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Openat2 => ("openat2", "paths are followed name by name, on threads"),
            Self::ResolveCached => {
                ("openat2 with RESOLVE_CACHED", "files are opened and looked up on threads")
            }
            Self::NoWaitInMemory => (
                "preadv2 with RWF_NOWAIT, by a file system in memory,",
                "plain reads are made there, which do not wait",
            ),
            Self::NoWait => {
                ("preadv2 with RWF_NOWAIT", "reads of such a file system go through io_uring or threads")
            }
            Self::Cachestat => ("cachestat", "large reads are copied instead of sent by sendfile"),
            Self::CachestatOfFile => (
                "cachestat",
                "large reads of files that it is refused for (where the server's user neither owns nor may write them) are copied",
            ),
            Self::Sendfile => ("sendfile", "large reads of such a file system are copied"),
        }
    }

    /// Logs the refusal, unless it was logged before.
    pub(crate) fn refused(self, error: impl Display) {
        static TOLD: AtomicU8 = AtomicU8::new(0);
        if self.is_news(&TOLD) {
            let (what, instead) = self.text();
            tracing::info!("{what} is refused ({error}); {instead}");
        }
    }

    fn is_news(self, told: &AtomicU8) -> bool {
        told.load(Ordering::Relaxed) & self.bit() == 0
            && told.fetch_or(self.bit(), Ordering::Relaxed) & self.bit() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_logged_once() {
        use KernelFeature::*;
        let told = AtomicU8::new(0);
        for facility in [Openat2, ResolveCached, NoWaitInMemory, NoWait, Cachestat, CachestatOfFile, Sendfile]
        {
            assert!(facility.is_news(&told), "{facility:?}");
            assert!(!facility.is_news(&told), "{facility:?}");
        }
    }
}
