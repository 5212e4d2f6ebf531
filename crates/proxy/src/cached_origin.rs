//! [`CachedOrigin`]: a file at an origin as the source of a cache, and [`FileCache`]: the cache of a proxy, on disk or in
//! memory.

use crate::place::RequestFailure;
use crate::remote_file::RemoteFile;
use crate::settings::ProxyConfig;
use base::{LogicalPath, Owner, ReadPiece, bytes_of};
use cache::{
    CacheChange, CacheClock, CacheKey, CacheOrigin, CacheReadError, CacheReader, DiskCache, MemoryCache,
    MemoryCacheChange, MemoryCacheReader, OpenTicket, OriginVersion,
};
use client::{Bytes, StatInfo, join_bounded};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Number of requests that an open file makes at once. A vector read of a client can need thousands, more than may
/// wait for the origin.
const REQUESTS_MAX: usize = 64;

/// The disk cache of a proxy.
pub(crate) type ProxyCache = DiskCache<CachedOrigin>;

/// The cache of a proxy.
#[derive(Clone)]
pub(crate) enum FileCache {
    Disk(Arc<ProxyCache>),
    Memory(Arc<MemoryCache>),
}

/// A change of a cached file or directory.
pub(crate) enum ProxyCacheChange {
    Disk(CacheChange<CachedOrigin>),
    Memory(MemoryCacheChange),
}

/// A reader of a cached file, with the status of the version that it reads.
pub(crate) struct ProxyCacheReader {
    reader: CachedFileReader,
    pub(crate) stat: StatInfo,
}

enum CachedFileReader {
    Disk(CacheReader<CachedOrigin>),
    Memory(Arc<MemoryCacheReader<CachedOrigin>>),
}

impl FileCache {
    /// Starts the cache that a proxy has, if it has one. A disk cache replaces a memory cache.
    pub(crate) fn start(config: &ProxyConfig, runtime: &Handle) -> std::io::Result<Option<Self>> {
        if let Some(disk) = &config.cache {
            return Ok(Some(Self::Disk(disk.start(runtime)?)));
        }
        Ok(config.memory_cache.map(|settings| Self::Memory(MemoryCache::new(settings, CacheClock::system()))))
    }

    /// Returns the disk cache, if it is one.
    pub(crate) fn disk(&self) -> Option<&Arc<ProxyCache>> {
        match self {
            Self::Disk(cache) => Some(cache),
            Self::Memory(_) => None,
        }
    }

    /// Returns the memory cache, if it is one.
    pub(crate) fn memory(&self) -> Option<&Arc<MemoryCache>> {
        match self {
            Self::Disk(_) => None,
            Self::Memory(cache) => Some(cache),
        }
    }

    /// Returns the state of changes of a file, which a reader takes before it asks the origin.
    pub(crate) fn ticket(&self, key: &CacheKey) -> Option<OpenTicket> {
        match self {
            Self::Disk(cache) => cache.ticket(key),
            Self::Memory(cache) => cache.ticket(key),
        }
    }

    /// Begins a change of the content of a file, before the origin is asked for it.
    pub(crate) fn change_content(&self, path: &LogicalPath) -> ProxyCacheChange {
        match self {
            Self::Disk(cache) => ProxyCacheChange::Disk(cache.change_content(path)),
            Self::Memory(cache) => ProxyCacheChange::Memory(cache.change_content(path)),
        }
    }

    /// Begins a removal or a renaming of a file or directory.
    pub(crate) fn change_name(&self, path: &LogicalPath) -> ProxyCacheChange {
        match self {
            Self::Disk(cache) => ProxyCacheChange::Disk(cache.change_name(path)),
            Self::Memory(cache) => ProxyCacheChange::Memory(cache.change_name(path)),
        }
    }

    /// Opens a file through the cache. The status is that of the open file, because that is what later requests
    /// are compared with. `None` if the file is not cached now.
    pub(crate) async fn open(
        &self,
        (key, ticket): (&CacheKey, OpenTicket),
        remote: &Arc<RemoteFile>,
        owner: Owner,
    ) -> Option<ProxyCacheReader> {
        let origin = Arc::new(CachedOrigin::new(remote.clone()));
        let stat = remote.stat().await.ok().filter(StatInfo::is_file)?;
        let version = version(&stat);
        let reader = match self {
            Self::Disk(cache) => {
                CachedFileReader::Disk(cache.open(key, ticket, version, (origin, owner)).await?)
            }
            Self::Memory(cache) => {
                CachedFileReader::Memory(Arc::new(cache.open(key, ticket, version, origin)?))
            }
        };
        Some(ProxyCacheReader { reader, stat })
    }
}

impl ProxyCacheChange {
    /// Reports that the change was made or may have been made.
    async fn made(&mut self) {
        match self {
            Self::Disk(change) => change.made().await,
            Self::Memory(change) => change.made(),
        }
    }

    /// Reports that nothing was changed.
    fn refused(self) {
        match self {
            Self::Disk(change) => change.refused(),
            Self::Memory(change) => change.refused(),
        }
    }
}

impl ProxyCacheReader {
    /// Returns the reader of the disk cache, if it is one.
    pub(crate) const fn of_disk(&self) -> Option<&CacheReader<CachedOrigin>> {
        match &self.reader {
            CachedFileReader::Disk(reader) => Some(reader),
            CachedFileReader::Memory(_) => None,
        }
    }

    /// Reads without waiting. `None` if that is not possible; `into` may be written partly then.
    pub(crate) fn read_now(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        match &self.reader {
            CachedFileReader::Disk(reader) => reader.read_now(offset, into),
            CachedFileReader::Memory(reader) => reader.read_now(offset, into),
        }
    }

    /// Reads pieces, all at once. Returns the lengths of the pieces that were found.
    pub(crate) async fn read(
        &self,
        buffer: &mut [u8],
        pieces: &[ReadPiece],
    ) -> Result<Vec<usize>, RequestFailure> {
        match &self.reader {
            CachedFileReader::Disk(reader) => read_disk(reader, buffer, pieces).await,
            CachedFileReader::Memory(reader) => read_memory(reader, buffer, pieces).await,
        }
    }
}

async fn read_disk(
    cached: &CacheReader<CachedOrigin>,
    buffer: &mut [u8],
    pieces: &[ReadPiece],
) -> Result<Vec<usize>, RequestFailure> {
    cached.check().await?;
    let begin = |piece: &ReadPiece| {
        let length = piece.place().map_or(0, |place| place.len());
        cached.begin(piece.extent.offset, length)
    };
    let reads: Vec<_> = pieces.iter().map(begin).collect();
    let mut lengths = Vec::with_capacity(pieces.len());
    for (piece, read) in pieces.iter().zip(reads) {
        let place = piece.place().and_then(|place| buffer.get_mut(place));
        lengths.push(read.finish(place.unwrap_or_default()).await?);
    }
    Ok(lengths)
}

async fn read_memory(
    cached: &Arc<MemoryCacheReader<CachedOrigin>>,
    buffer: &mut [u8],
    pieces: &[ReadPiece],
) -> Result<Vec<usize>, RequestFailure> {
    let length = |piece: &ReadPiece| piece.place().map_or(0, |place| place.len());
    if let [piece] = pieces {
        let place = piece.place().and_then(|place| buffer.get_mut(place));
        return Ok(vec![cached.read(piece.extent.offset, place.unwrap_or_default()).await?]);
    }
    let read = |(offset, length): (u64, usize)| {
        let cached = cached.clone();
        Box::pin(async move {
            let mut part = vec![0; length];
            let count = cached.read(offset, &mut part).await?;
            Ok::<_, RequestFailure>((part, count))
        })
    };
    let ranges: Vec<_> = pieces.iter().map(|piece| (piece.extent.offset, length(piece))).collect();
    let found = join_bounded(ranges, read).await;
    let mut lengths = Vec::with_capacity(pieces.len());
    for (piece, found) in pieces.iter().zip(found) {
        let (part, count) = found?;
        if let Some(place) = piece.place().and_then(|place| buffer.get_mut(place))
            && place.len() == part.len()
        {
            place.copy_from_slice(&part);
        }
        lengths.push(count);
    }
    Ok(lengths)
}

/// A file at an origin that a client has open for reading.
pub(crate) struct CachedOrigin {
    remote: Arc<RemoteFile>,
    /// The server at which it was opened.
    server: String,
    requests: Semaphore,
}

impl CachedOrigin {
    pub(crate) fn new(remote: Arc<RemoteFile>) -> Self {
        let server = remote.server();
        Self { remote, server, requests: Semaphore::new(REQUESTS_MAX) }
    }

    /// Waits for the turn of a request.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Arc<RequestFailure>> {
        self.requests.acquire().await.map_err(|_| Arc::new(RequestFailure::Cancelled))
    }
}

impl CacheOrigin for CachedOrigin {
    /// Several reads may wait for one request.
    type Failure = Arc<RequestFailure>;

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes, Arc<RequestFailure>> {
        let _turn = self.turn().await?;
        self.remote.read_bytes(offset, length).await.map_err(Arc::new)
    }

    async fn version(&self) -> Result<OriginVersion, Arc<RequestFailure>> {
        let _turn = self.turn().await?;
        self.remote.stat().await.map(|stat| version(&stat)).map_err(Arc::new)
    }

    fn has_moved(&self) -> bool {
        self.remote.server() != self.server
    }

    fn remote(&self) -> Option<String> {
        Some(self.remote.server())
    }
}

fn version(stat: &StatInfo) -> OriginVersion {
    OriginVersion { size: stat.size, modified: stat.mtime, id: stat.id }
}

impl From<CacheReadError<Arc<RequestFailure>>> for RequestFailure {
    fn from(error: CacheReadError<Arc<Self>>) -> Self {
        match error {
            CacheReadError::Origin(failure) => Self::Shared(failure),
            CacheReadError::Changed => Self::Changed,
            CacheReadError::Ended => Self::Cancelled,
        }
    }
}

/// Makes a request that changes files. What is cached of them is removed before its result is returned, unless the
/// origin has refused the change. Returns the changes as well, which are in progress until they are dropped.
pub(crate) async fn make_change<T>(
    changes: impl IntoIterator<Item = ProxyCacheChange>,
    request: impl Future<Output = Result<T, RequestFailure>>,
) -> Result<(T, Vec<ProxyCacheChange>), RequestFailure> {
    // Dropped without a report if the caller leaves.
    let mut changes: Vec<_> = changes.into_iter().collect();
    let result = request.await;
    if result.as_ref().is_err_and(RequestFailure::is_refusal) {
        changes.drain(..).for_each(ProxyCacheChange::refused);
    }
    for change in &mut changes {
        change.made().await;
    }
    result.map(|value| (value, changes))
}

/// Returns the name of a file in the cache: its path at the fixed origin, and below the name of the server if
/// the client has named that.
pub(crate) fn cached_path(url: &client::Url, is_forwarded: bool) -> Option<LogicalPath> {
    let path = url.path.as_str();
    let name = match is_forwarded {
        true => format!("/{}:/{}/{path}", url.scheme.name(), url.authority()),
        false => format!("/{path}"),
    };
    LogicalPath::parse(&bytes_of(&name)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_path_of_two_origins_has_two_names() {
        let name = |url: &str, is_forwarded| {
            let url = client::Url::parse(url).unwrap();
            cached_path(&url, is_forwarded).unwrap().text().into_owned()
        };
        assert_eq!(name("root://o:1//data/f?x=1", false), "/data/f");
        assert_eq!(name("root://o:1//data/f", true), "/root:/o:1/data/f");
        assert_eq!(name("roots://p//data/f", true), "/roots:/p:1094/data/f");
    }
}
