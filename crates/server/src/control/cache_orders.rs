//! Requests of the administrator that concern the disk cache of a proxy.

use super::repairs;
use crate::admin::{AdminCall, AdminRequest, AdminResponse, CacheStatus, EvictionAnswer};
use cache::CacheEviction;
use proxy::{EvictionReply, ProxyFiles};
use tokio::sync::oneshot;

/// The error of a server without a cache.
const NO_CACHE: &str = "this server has no disk cache: see pss.cachelib";

/// Reports whether a request is to be answered by [`answer`].
pub(super) fn is_about_cache(request: &AdminRequest) -> bool {
    matches!(request, AdminRequest::CacheStatus {} | AdminRequest::EvictCached { .. })
}

/// Answers a request. Files are removed in the background.
pub(super) fn answer(proxy: Option<&ProxyFiles>, call: AdminCall) {
    let AdminCall { request, answer } = call;
    let Some((proxy, status)) = proxy.and_then(|proxy| Some((proxy, self::status(proxy)?))) else {
        answer.send(AdminResponse::failed(NO_CACHE)).ok();
        return;
    };
    let AdminRequest::EvictCached { path } = request else {
        answer.send(AdminResponse::CacheStatus(Box::new(status))).ok();
        return;
    };
    let logical = match repairs::parse(&path) {
        Ok(logical) => logical,
        Err(reason) => {
            answer.send(AdminResponse::failed(reason)).ok();
            return;
        }
    };
    tracing::info!(path = %logical.shown(), "an administrator removes cached files");
    proxy.evict(logical, AdministratorReply { path, answer });
}

/// Sends the result of a removal to an administrator.
struct AdministratorReply {
    path: String,
    answer: oneshot::Sender<AdminResponse>,
}

impl EvictionReply for AdministratorReply {
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    fn send(self, eviction: CacheEviction) {
        let CacheEviction { removed, in_use, failed, is_partial } = eviction;
        let answer = EvictionAnswer { path: self.path, removed, in_use, failed, is_partial };
        self.answer.send(AdminResponse::Evicted(answer)).ok();
    }
}

/// Returns the state of the cache; `None` if there is none.
fn status(proxy: &ProxyFiles) -> Option<CacheStatus> {
    let (directory, status) = proxy.cache_status()?;
    Some(CacheStatus {
        directory: directory.display().to_string(),
        files: status.files,
        bytes: status.bytes,
        is_known: status.is_known,
        open_files: status.open_files,
        memory: status.memory,
        is_paused: status.is_paused,
        opens: status.opens,
        uncached_opens: status.uncached_opens,
        bytes_hit: status.bytes_hit,
        bytes_missed: status.bytes_missed,
        bytes_bypassed: status.bytes_bypassed,
        bytes_stored: status.bytes_stored,
        damaged_blocks: status.damaged_blocks,
        evicted_files: status.evicted_files,
        evicted_bytes: status.evicted_bytes,
    })
}
