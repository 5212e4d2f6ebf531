//! [`CachedOrigin`]: a file at an origin as the source of the disk cache.

use crate::place::RequestFailure;
use crate::remote_file::RemoteFile;
use base::{LogicalPath, Owner, bytes_of};
use cache::{CacheChange, CacheKey, CacheOrigin, CacheReadError, CacheReader, DiskCache, OriginVersion};
use client::{Bytes, StatInfo};
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Number of requests that an open file makes at once. A vector read of a client can need thousands, more than may
/// wait for the origin.
const REQUESTS_MAX: usize = 64;

/// The disk cache of a proxy.
pub(crate) type ProxyCache = DiskCache<CachedOrigin>;

/// A change of a cached file or directory.
pub(crate) type ProxyCacheChange = CacheChange<CachedOrigin>;

/// A reader of a cached file, with the status of the version that it reads.
pub(crate) struct ProxyCacheReader {
    pub(crate) reader: CacheReader<CachedOrigin>,
    pub(crate) stat: StatInfo,
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

/// Opens a file through the cache. The status is that of the open file, because that is what later requests
/// are compared with. `None` if the file is not cached now.
pub(crate) async fn open(
    cache: &Arc<ProxyCache>,
    (key, ticket): (&CacheKey, cache::OpenTicket),
    remote: &Arc<RemoteFile>,
    owner: Owner,
) -> Option<ProxyCacheReader> {
    let origin = CachedOrigin::new(remote.clone());
    let stat = remote.stat().await.ok().filter(StatInfo::is_file)?;
    let reader = cache.open(key, ticket, version(&stat), (Arc::new(origin), owner)).await?;
    Some(ProxyCacheReader { reader, stat })
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
