//! Requests of the administrator that concern the disk cache of a proxy.

use super::repairs;
use crate::admin::{AdminCall, AdminRequest, AdminResponse, CacheStatus, CachedPin, EvictionAnswer};
use base::LogicalPath;
use cache::{CacheEviction, CachePinStatus};
use proxy::{CacheOrders, EvictionReply, ProxyFiles};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// The error of a server without a cache.
const NO_CACHE: &str = "this server has no disk cache: see pss.cachelib";

/// Reports whether a request is to be answered by [`answer`].
pub(super) fn is_about_cache(request: &AdminRequest) -> bool {
    matches!(
        request,
        AdminRequest::CacheStatus {}
            | AdminRequest::EvictCached { .. }
            | AdminRequest::PinCached { .. }
            | AdminRequest::UnpinCached { .. }
    )
}

/// Answers a request. Files are removed, and pins stored, in the background.
pub(super) fn answer(proxy: Option<&ProxyFiles>, call: AdminCall) {
    let AdminCall { request, answer } = call;
    let Some(cache) = proxy.and_then(ProxyFiles::cache_orders) else {
        answer.send(AdminResponse::failed(NO_CACHE)).ok();
        return;
    };
    let (AdminRequest::EvictCached { path }
    | AdminRequest::PinCached { path, .. }
    | AdminRequest::UnpinCached { path }) = &request
    else {
        answer.send(AdminResponse::CacheStatus(Box::new(status(&cache)))).ok();
        return;
    };
    let (path, logical) = match repairs::parse(path) {
        Ok(logical) => (path.clone(), logical),
        Err(reason) => {
            answer.send(AdminResponse::failed(reason)).ok();
            return;
        }
    };
    match request {
        AdminRequest::PinCached { seconds, .. } => pin(&cache, (path, logical), seconds, answer),
        AdminRequest::UnpinCached { .. } => unpin(&cache, (path, logical), answer),
        _ => {
            tracing::info!(path = %logical.shown(), "an administrator removes cached files");
            cache.evict(logical, AdministratorReply { path, answer });
        }
    }
}

fn pin(
    cache: &CacheOrders<'_>,
    (path, logical): (String, LogicalPath),
    seconds: u64,
    answer: oneshot::Sender<AdminResponse>,
) {
    tracing::info!(path = %logical.shown(), seconds, "an administrator pins cached files");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expires = i64::try_from(now.saturating_add(seconds)).unwrap_or(i64::MAX);
    cache.pin(logical, expires, move |pinned| {
        let answered = match pinned {
            Ok(bytes) => {
                AdminResponse::Pinned(CachedPin { path, expires, bytes: Some(bytes), is_kept: true })
            }
            Err(failure) => AdminResponse::failed(failure),
        };
        answer.send(answered).ok();
    });
}

fn unpin(
    cache: &CacheOrders<'_>,
    (path, logical): (String, LogicalPath),
    answer: oneshot::Sender<AdminResponse>,
) {
    tracing::info!(path = %logical.shown(), "an administrator ends a pin of cached files");
    cache.unpin(logical, move |unpinned| {
        let answered = match unpinned {
            Ok(true) => AdminResponse::Resolved { path, state: "not pinned".to_owned() },
            Ok(false) => {
                AdminResponse::failed("there is no pin of this path; scalla cache status lists all pins")
            }
            Err(error) => AdminResponse::failed(format!("the pins cannot be stored: {error}")),
        };
        answer.send(answered).ok();
    });
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
        let CacheEviction { removed, in_use, pinned, failed, is_partial } = eviction;
        let answer = EvictionAnswer { path: self.path, removed, in_use, pinned, failed, is_partial };
        self.answer.send(AdminResponse::Evicted(answer)).ok();
    }
}

/// Returns the state of the cache.
fn status(cache: &CacheOrders<'_>) -> CacheStatus {
    let (directory, status) = cache.status();
    CacheStatus {
        directory: directory.display().to_string(),
        files: status.files,
        bytes: status.bytes,
        is_known: status.is_known,
        open_files: status.open_files,
        memory: status.memory,
        is_paused: status.is_paused,
        opens: status.opens,
        uncached_opens: status.uncached_opens,
        direct_opens: status.direct_opens,
        bytes_hit: status.bytes_hit,
        bytes_missed: status.bytes_missed,
        bytes_bypassed: status.bytes_bypassed,
        bytes_stored: status.bytes_stored,
        damaged_blocks: status.damaged_blocks,
        evicted_files: status.evicted_files,
        evicted_parts: status.evicted_parts,
        evicted_bytes: status.evicted_bytes,
        pins: cache.pins().into_iter().map(pin_status).collect(),
    }
}

fn pin_status(CachePinStatus { pin, bytes, is_kept }: CachePinStatus) -> CachedPin {
    CachedPin { path: pin.path.escaped(), expires: pin.expires, bytes: Some(bytes), is_kept }
}
