//! [`Reader`]: an open file with a cache in memory.
//!
//! It is separate from the file because read-ahead and cache are chosen for each use of a file.
//!
//! | file          | contents                                     |
//! |---------------|----------------------------------------------|
//! | `mod`         | [`Reader`], [`Caching`], [`CacheStatistics`] |
//! | `read_ahead`  | sequential read-ahead with a growing window  |
//! | `lru`         | blocks of one size, with eviction            |
//! | `shared_read` | one read that several callers may wait for   |
//! | `source`      | the file, and the number of bytes read       |

mod lru;
mod read_ahead;
mod shared_read;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::OnceCell;

use self::lru::Lru;
use self::read_ahead::ReadAhead;
use self::shared_read::SharedRead;
use self::source::SourceFile;
use crate::failure::Error;
use crate::file::File;

/// The caching algorithm of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// No cache: every read is a request.
    None,
    /// Sequential read-ahead. The window doubles from the first to the second number of bytes while
    /// each read continues at the end of the previous one. For programs that read files from front
    /// to back.
    ReadAhead {
        /// Initial size of the window.
        least_bytes: usize,
        /// Maximum size of the window.
        most_bytes: usize,
    },
    /// Blocks of one size with eviction of the least recently used. For programs that read the same
    /// ranges repeatedly.
    Blocks {
        /// Size of a block in bytes; a power of two of at least 64 KiB is best.
        block_bytes: usize,
        /// Maximum number of blocks in the cache.
        blocks: usize,
    },
    /// All ranges of [`Reader::prefetch`]. For programs that know their reads in advance.
    Vector,
}

impl Caching {
    /// Read-ahead from 256 KiB to 8 MiB.
    pub const READ_AHEAD: Self = Self::ReadAhead { least_bytes: 256 * 1024, most_bytes: 8 * 1024 * 1024 };
    /// 64 blocks of 256 KiB.
    pub const BLOCKS: Self = Self::Blocks { block_bytes: 256 * 1024, blocks: 64 };

    /// Returns its name, as options spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReadAhead { .. } => "readahead",
            Self::Blocks { .. } => "blocks",
            Self::Vector => "vector",
        }
    }

    /// Returns the algorithm with this name and its default sizes.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::READ_AHEAD, Self::BLOCKS, Self::Vector].into_iter().find(|way| way.name() == name)
    }
}

/// The counters of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheStatistics {
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// Number of reads.
    pub reads: u64,
    /// Number of reads that did not have to wait.
    pub hits: u64,
    /// Number of bytes returned to the caller.
    pub bytes_given: u64,
    /// Number of bytes received from the server.
    pub bytes_fetched: u64,
    /// Number of bytes received from the server and evicted before their first use.
    pub bytes_wasted: u64,
    /// Current size of the window in bytes.
    pub window_bytes: u64,
}

/// Ranges that were requested in advance.
struct Vector {
    ranges: Vec<(u64, usize)>,
    data: OnceCell<Result<Vec<Bytes>, Error>>,
}

impl Vector {
    /// Returns the data of all ranges. The first caller reads it.
    async fn get(&self, source: &SourceFile) -> &Result<Vec<Bytes>, Error> {
        let read = || async {
            let data = source.file.read_vector(&self.ranges).await?;
            let bytes = data.iter().map(|data| data.len() as u64).sum();
            source.fetched.fetch_add(bytes, Ordering::Relaxed);
            Ok(data)
        };
        self.data.get_or_init(read).await
    }
}

/// The cached data for a read.
enum CachedData {
    Nothing,
    /// Pieces that contain it, in order.
    Pieces(Vec<Arc<SharedRead>>),
    /// A range of a vector, which begins at `from`.
    Vector {
        from: u64,
        place: usize,
        vector: Arc<Vector>,
    },
}

enum CacheState {
    None,
    ReadAhead(ReadAhead),
    Blocks(Lru),
    /// By offset: length, index in the reply, and the reply.
    Vector(BTreeMap<u64, (usize, usize, Arc<Vector>)>),
}

/// An open file with a cache. Threads and tasks may share it. It is meant for files that are only
/// read, because it does not detect changes of the file.
pub struct Reader {
    source: Arc<SourceFile>,
    memory: Mutex<CacheState>,
    algorithm: Caching,
    reads: AtomicU64,
    hits: AtomicU64,
    given: AtomicU64,
    wasted: AtomicU64,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({:?}, {})", self.source.file, self.algorithm.name())
    }
}

impl Reader {
    /// Creates a reader of a file. `verified` requests a checksum for each page, where the server
    /// supports them.
    #[must_use]
    pub fn new(file: File, caching: Caching, verified: bool) -> Self {
        let memory = match caching {
            Caching::None => CacheState::None,
            Caching::ReadAhead { least_bytes, most_bytes } => {
                CacheState::ReadAhead(ReadAhead::new(least_bytes.max(1), most_bytes))
            }
            Caching::Blocks { block_bytes, blocks } => CacheState::Blocks(Lru::new(block_bytes, blocks)),
            Caching::Vector => CacheState::Vector(BTreeMap::new()),
        };
        Self {
            source: SourceFile::new(file, verified),
            memory: Mutex::new(memory),
            algorithm: caching,
            reads: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            given: AtomicU64::new(0),
            wasted: AtomicU64::new(0),
        }
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.source.file
    }

    fn memory(&self) -> MutexGuard<'_, CacheState> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counters.
    #[must_use]
    pub fn statistics(&self) -> CacheStatistics {
        let window_bytes = match &*self.memory() {
            CacheState::ReadAhead(ahead) => ahead.window() as u64,
            _ => 0,
        };
        CacheStatistics {
            algorithm: self.algorithm.name(),
            reads: self.reads.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            bytes_given: self.given.load(Ordering::Relaxed),
            bytes_fetched: self.source.fetched.load(Ordering::Relaxed),
            bytes_wasted: self.wasted.load(Ordering::Relaxed),
            window_bytes,
        }
    }

    /// Returns the size of the file at its open; ranges beyond it are not cached.
    fn size(&self) -> u64 {
        self.source.file.stat_at_open().map_or(u64::MAX, |stat| stat.size)
    }

    /// Reads like [`File::read`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn read(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let size = self.size();
        let end = offset.saturating_add(length as u64);
        let data = match self.look(offset, length, size) {
            CachedData::Nothing => self.source.read(offset, length).await?,
            CachedData::Pieces(pieces) => self.gather(&pieces, offset, end.min(size)).await?,
            CachedData::Vector { from, place, vector } => {
                if vector.data.initialized() {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                }
                let skip = usize::try_from(offset - from).unwrap_or(usize::MAX);
                let held = vector.get(&self.source).await.as_ref().ok().and_then(|held| held.get(place));
                match held.filter(|held| skip + length <= held.len()) {
                    Some(held) => held.slice(skip..skip + length),
                    // The failure of a vector may come from another of its ranges.
                    None => self.source.read(offset, length).await?,
                }
            }
        };
        self.given.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(data)
    }

    /// Returns the cached or pending data for a read.
    fn look(&self, offset: u64, length: usize, size: u64) -> CachedData {
        let end = offset.saturating_add(length as u64);
        let (pieces, new) =
            match &mut *self.memory() {
                CacheState::None => return CachedData::Nothing,
                CacheState::ReadAhead(ahead) => {
                    let plan = ahead.plan(offset, length, size);
                    self.wasted.fetch_add(plan.wasted, Ordering::Relaxed);
                    (plan.pieces, plan.begin)
                }
                CacheState::Blocks(blocks) => {
                    let plan = blocks.plan(offset, end, size);
                    (plan.pieces, plan.begin)
                }
                CacheState::Vector(ranges) => {
                    let found = ranges.range(..=offset).next_back();
                    let found = found.filter(|(from, (held, ..))| end <= *from + *held as u64);
                    return found.map_or(CachedData::Nothing, |(from, (_, place, vector))| {
                        CachedData::Vector { from: *from, place: *place, vector: vector.clone() }
                    });
                }
            };
        if pieces.is_empty() {
            return CachedData::Nothing;
        }
        if pieces.iter().all(|piece| piece.is_there()) {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        new.iter().for_each(|fetch| fetch.begin(&self.source));
        CachedData::Pieces(pieces)
    }

    async fn gather(&self, pieces: &[Arc<SharedRead>], offset: u64, end: u64) -> Result<Bytes, Error> {
        let held = self.held(pieces, offset, end).await?;
        if held.is_empty() && offset < end {
            // A piece may be short in the middle of the file; the rest of the range is read again.
            return self.source.read(offset, usize::try_from(end - offset).unwrap_or(usize::MAX)).await;
        }
        Ok(held)
    }

    /// Returns the bytes of the pieces in `offset..end`, up to the first gap.
    async fn held(&self, pieces: &[Arc<SharedRead>], offset: u64, end: u64) -> Result<Bytes, Error> {
        if let [piece] = pieces {
            return piece.part(&self.source, offset, end).await;
        }
        let mut whole = BytesMut::with_capacity(usize::try_from(end - offset).unwrap_or(0));
        for piece in pieces {
            let at = offset + whole.len() as u64;
            let part = piece.part(&self.source, at, end).await?;
            let expected = piece.end().min(end).saturating_sub(at);
            whole.extend_from_slice(&part);
            if (part.len() as u64) < expected {
                break;
            }
        }
        Ok(whole.freeze())
    }

    /// Starts to read ranges that will be needed, in as few requests as possible. Only
    /// [`Caching::Vector`] keeps them and drops the ranges of an earlier call. Other algorithms do
    /// nothing.
    pub fn prefetch(&self, ranges: &[(u64, usize)]) {
        let CacheState::Vector(kept) = &mut *self.memory() else { return };
        let vector = Arc::new(Vector { ranges: ranges.to_vec(), data: OnceCell::new() });
        let places = ranges.iter().enumerate();
        *kept = places.map(|(place, &(offset, length))| (offset, (length, place, vector.clone()))).collect();
        let source = self.source.clone();
        tokio::spawn(async move {
            vector.get(&source).await;
        });
    }
}
