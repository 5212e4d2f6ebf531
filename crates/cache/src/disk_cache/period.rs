//! [`CacheObserver`]: a port that gets the end of each period in which readers had a file open.
//!
//! It is a trait, because this crate sends nothing to collectors; the `server` crate implements it.

use crate::CacheAccess;
use base::LogicalPath;

/// Maximum number of servers that a period names.
const REMOTES_MAX: usize = 16;

/// What happened to a file in a period, beside the figures that are stored with it.
#[derive(Default)]
pub(super) struct PeriodFigures {
    /// Bytes that were written to the disk.
    pub(super) stored: u64,
    /// Bytes that were fetched ahead of readers.
    pub(super) ahead: u64,
    /// Blocks whose checksums did not match.
    pub(super) damaged: u64,
    /// The servers at which readers had the file open.
    pub(super) remotes: Vec<String>,
}

impl PeriodFigures {
    /// Adds a server, once.
    pub(super) fn add_remote(&mut self, remote: Option<String>) {
        let Some(remote) = remote else { return };
        if self.remotes.len() < REMOTES_MAX && !self.remotes.contains(&remote) {
            self.remotes.push(remote);
        }
    }
}

/// A file whose last reader has left.
#[derive(Clone, Copy, Debug)]
pub struct ClosedCacheFile<'a> {
    /// Its name in the cache.
    pub path: &'a LogicalPath,
    /// Its size in bytes.
    pub size: u64,
    /// Size of its blocks in bytes.
    pub block_bytes: u64,
    /// Number of its blocks in the cache.
    pub blocks_stored: u64,
    /// Number of opens since the file is in the cache.
    pub opens: u64,
    /// The period.
    pub access: CacheAccess,
    /// Bytes that were written to the disk.
    pub stored: u64,
    /// Bytes that were fetched ahead of readers.
    pub ahead: u64,
    /// Blocks whose checksums did not match.
    pub damaged: u64,
    /// The servers at which readers had the file open.
    pub remotes: &'a [String],
}

/// Gets the ends of periods.
pub trait CacheObserver: Send + Sync {
    /// Takes the end of a period; never blocks.
    fn closed(&self, file: &ClosedCacheFile<'_>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_names_each_server_once_and_not_too_many() {
        let mut figures = PeriodFigures::default();
        for number in 0..100 {
            figures.add_remote(Some(format!("h{}:1094", number / 2)));
            figures.add_remote(None);
        }
        assert_eq!(figures.remotes.len(), REMOTES_MAX);
        assert_eq!(figures.remotes[..2], ["h0:1094", "h1:1094"]);
    }
}
