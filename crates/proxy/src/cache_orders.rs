//! Orders of administrators about the disk cache.

use crate::cached_origin::ProxyCache;
use base::LogicalPath;
use cache::{CacheEviction, CachePinFailure, CachePinStatus, DiskCacheStatus};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Receives the result of a removal of cached files.
pub trait EvictionReply: Send + Sync + 'static {
    /// Reports whether somebody waits for the result.
    fn is_wanted(&self) -> bool;
    /// Takes the result.
    fn send(self, eviction: CacheEviction);
}

/// The disk cache of a proxy, for administrators.
pub struct CacheOrders<'a> {
    cache: &'a Arc<ProxyCache>,
    directory: &'a Path,
    runtime: &'a Handle,
}

impl<'a> CacheOrders<'a> {
    pub(crate) const fn new(cache: &'a Arc<ProxyCache>, directory: &'a Path, runtime: &'a Handle) -> Self {
        Self { cache, directory, runtime }
    }

    /// Returns the directory and the state of the cache.
    #[must_use]
    pub fn status(&self) -> (&'a Path, DiskCacheStatus) {
        (self.directory, self.cache.status())
    }

    /// Returns the pins.
    #[must_use]
    pub fn pins(&self) -> Vec<CachePinStatus> {
        self.cache.pins()
    }

    /// Removes cached files at and below a path that nobody has open.
    pub fn evict<D: EvictionReply>(&self, path: LogicalPath, reply: D) {
        let cache = self.cache.clone();
        self.runtime.spawn(async move {
            let eviction = cache.evict(&path, || reply.is_wanted()).await;
            reply.send(eviction);
        });
    }

    /// Pins cached files at and below a path until a time, in seconds since the epoch. Sends their bytes.
    pub fn pin(
        &self,
        path: LogicalPath,
        expires: i64,
        send: impl FnOnce(Result<u64, CachePinFailure>) + Send + 'static,
    ) {
        let cache = self.cache.clone();
        self.runtime.spawn(async move { send(cache.pin(&path, expires).await) });
    }

    /// Ends the pin of a path. Sends whether there was one.
    pub fn unpin(&self, path: LogicalPath, send: impl FnOnce(io::Result<bool>) + Send + 'static) {
        let cache = self.cache.clone();
        self.runtime.spawn(async move { send(cache.unpin(&path).await) });
    }
}
