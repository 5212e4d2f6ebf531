//! One cached file on disk.
//!
//! | file | contents |
//! |---|---|
//! | `access_history` | the periods in which clients had a file open, a limited number of them |
//! | `block_store` | [`BlockStore`]: the blocks of one version of a file, and the claim of those that are durable |
//! | `cache_key` | [`CacheKey`]: the name of a file in the cache |
//! | `directory` | [`CacheDirectory`]: the contents of a directory of a cache |
//! | `disk` | [`CacheDisk`]: the system calls that the cache makes |
//! | `index` | [`IndexJournal`], [`RecordedIndex`]: which files are stored, for the next start |
//! | `origin_version` | [`OriginVersion`]: a version of a file at its origin |
//! | `page_checksums` | checksums of pages that were compared with those of their blocks |
//! | `page_read` | a read of stored bytes that verifies its pages |
//! | `pin_file` | [`CachePin`]: files that stay, and the file with all pins |
//! | `state_file` | [`StoredState`]: the content of the file beside the data |
//! | `store_context` | [`StoreContext`]: what all stores share, and removals |
//!
//! All calls block.

mod access_history;
mod block_store;
mod cache_key;
mod directory;
mod disk;
mod index;
mod origin_version;
mod page_checksums;
mod page_read;
mod pin_file;
mod state_file;
mod store_context;

/// Maximum depth of the directories that are looked through.
pub(crate) const DEPTH_MAX: usize = 64;

#[cfg(test)]
pub(crate) mod memory_disk;
#[cfg(test)]
mod part_tests;
#[cfg(test)]
mod tests;

pub(crate) use block_store::DirectData;
pub use block_store::{BlockStore, DamagedBlocks, StoreError};
pub use cache_key::CacheKey;
pub(crate) use cache_key::OWN_DIRECTORY;
pub(crate) use directory::look;
pub use directory::{CacheDirectory, CachedFileStatus};
pub use disk::{CacheDisk, CacheDiskEntries, CacheDiskFile, open_disk};
pub(crate) use index::{IndexJournal, RecordedFile, RecordedIndex, SnapshotWriter, resume as resume_index};
pub use origin_version::{OriginVersion, VERSION_AGE_MIN};
pub(crate) use page_checksums::PageChecksums;
pub(crate) use pin_file::add as add_pin;
pub use pin_file::{CACHE_PINS_MAX, CachePin};
pub(crate) use state_file::{DecodedState, StoredState, stored_bytes};
pub(crate) use store_context::{FilePartsToRemove, RemainingFile, StoreContext, found, is_full};
