//! The caches of remote files: on disk (decision 050), and in memory.
//!
//! | file | contents |
//! |---|---|
//! | `cinfo` | [`Cinfo`]: the file beside each cached file, with its blocks and accesses |
//! | `cache_tree` | [`CacheTree`]: the files of a cache on disk, for tools |
//! | `block_map` | [`BlockMap`]: the blocks of a file that are in the cache |
//! | `disk_cache` | [`DiskCache`]: the cache of a server |
//! | `eviction` | [`EvictionPolicy`]: the order in which a full cache removes its units |
//! | `fill` | [`FileFill`]: reads of a file of which parts are cached |
//! | `memory_cache` | [`MemoryCache`]: the memory cache of a server |
//! | `part_layout` | `PartLayout`: the parts of a file that a cache removes one by one |
//! | `store` | [`BlockStore`]: one cached file on disk |
//! | `simulation` | [`SimulatedCache`]: hit rates for recorded requests |

mod block_map;
mod cache_tree;
mod cinfo;
mod disk_cache;
mod eviction;
mod fill;
mod memory_cache;
mod part_layout;
mod simulation;
mod store;

pub use block_map::BlockMap;
pub use cache_tree::{CacheTree, CacheTreeLock, FileVerification, VerifiedBlocks};
pub use cinfo::{CINFO_BYTES_MAX, CacheAccess, CacheChecks, Cinfo, CinfoError, CinfoVersion};
pub use disk_cache::{
    CacheChange, CacheClock, CacheEviction, CacheLimits, CacheObserver, CacheOrigin, CachePinFailure,
    CachePinStatus, CacheRead, CacheReadError, CacheReader, CacheStartError, ClosedCacheFile, ColdFiles,
    DIRECT_DIRECTORY, DirectoryQuota, DiskCache, DiskCacheSettings, DiskCacheStatus, DiskShare, FileEviction,
    FileShares, OpenTicket,
};
pub use eviction::{EvictionPolicy, LruPolicy, S3FifoPolicy};
pub use fill::{FetchId, FileFill, FillAction, ReadId, ReadPattern, ReaderId};
pub use memory_cache::{
    MemoryCache, MemoryCacheChange, MemoryCacheReader, MemoryCacheSettings, MemoryCacheStatus,
};
pub use simulation::{
    SampleTrace, SampleTraceKind, SimulatedCache, SimulatedCounts, SimulatedPolicy, TraceError, TraceReader,
    TraceRequest, TraceSize,
};
pub use store::{
    BlockStore, CACHE_PINS_MAX, CacheDirectory, CacheDisk, CacheDiskEntries, CacheDiskFile, CacheKey,
    CachePin, CachedFileStatus, DamagedBlocks, OriginVersion, StoreError, VERSION_AGE_MIN, open_disk,
};
