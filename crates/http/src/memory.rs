//! The memory of connections, charged to the limit of the process (`scalla.memory`).
//!
//! A request is charged for what one of its method can hold, until its reply has been handed over. A
//! connection without a request is charged for its buffers, from its first request on. A request that
//! gets no memory is refused with 503, before anything is done for it. HTTP takes at most half of the
//! memory, so that sessions of the xroot protocol always find some.

use crate::reply::ReplyBody;
use crate::service::ServedConnection;
use crate::{DOWNLOAD_BYTES, IDLE_BYTES, LISTING_BYTES, MEMORY_SHARE, REQUEST_BYTES, UPLOAD_BYTES};
use base::{MemoryBudget, MemoryPurpose, SharedCharge};
use bytes::Bytes;
use hyper::Method;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// The memory of HTTP.
pub(crate) struct HttpMemory {
    budget: Arc<MemoryBudget>,
    claimed: AtomicUsize,
}

impl HttpMemory {
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(Self { budget, claimed: AtomicUsize::new(0) })
    }

    /// Takes bytes, if there are some.
    pub(crate) fn take(self: &Arc<Self>, purpose: MemoryPurpose, bytes: usize) -> Option<HttpCharge> {
        let limit = self.budget.limit() / MEMORY_SHARE;
        let add = |claimed: usize| claimed.checked_add(bytes).filter(|sum| *sum <= limit);
        self.claimed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).ok()?;
        let Some(charge) = SharedCharge::take(&self.budget, purpose, bytes) else {
            self.claimed.fetch_sub(bytes, Ordering::SeqCst);
            return None;
        };
        Some(HttpCharge { memory: self.clone(), charge })
    }
}

/// Bytes that HTTP holds, until dropped.
pub(crate) struct HttpCharge {
    memory: Arc<HttpMemory>,
    charge: SharedCharge,
}

impl HttpCharge {
    fn shrink(&mut self, bytes: usize) {
        let before = self.charge.bytes();
        if bytes < before && self.charge.resize(MemoryPurpose::Request, bytes) {
            self.memory.claimed.fetch_sub(before - bytes, Ordering::SeqCst);
        }
    }
}

impl Drop for HttpCharge {
    fn drop(&mut self) {
        self.memory.claimed.fetch_sub(self.charge.bytes(), Ordering::SeqCst);
    }
}

/// The memory of one connection.
pub(crate) struct ConnectionMemory {
    memory: Arc<HttpMemory>,
    held: Mutex<Option<HttpCharge>>,
}

impl ConnectionMemory {
    pub(crate) fn new(memory: Arc<HttpMemory>) -> Self {
        Self { memory, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Option<HttpCharge>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the memory of a request in place of that of the one before. Reports whether there is some.
    pub(crate) fn admit(&self, bytes: usize) -> bool {
        let mut held = self.held();
        if held.as_ref().is_some_and(|held| held.charge.bytes() == bytes) {
            return true;
        }
        *held = None;
        *held = self.memory.take(MemoryPurpose::Request, bytes);
        held.is_some()
    }

    /// Returns the memory of a request that has been answered, except for that of an idle connection.
    fn settle(&self) {
        if let Some(held) = self.held().as_mut() {
            held.shrink(IDLE_BYTES);
        }
    }
}

/// The body of a reply. Its end returns the memory of the request.
pub(crate) struct ChargedBody {
    body: ReplyBody,
    connection: Arc<ServedConnection>,
}

impl ChargedBody {
    pub(crate) fn new(body: ReplyBody, connection: Arc<ServedConnection>) -> Self {
        Self { body, connection }
    }
}

impl Drop for ChargedBody {
    fn drop(&mut self) {
        self.connection.memory.settle();
    }
}

impl Body for ChargedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the memory of a request with this method.
pub(crate) fn bytes_of(method: &Method) -> usize {
    match method.as_str() {
        "PUT" => UPLOAD_BYTES,
        "GET" => DOWNLOAD_BYTES,
        "PROPFIND" => LISTING_BYTES,
        _ => REQUEST_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Ceilings;

    const LIMIT: usize = 4 * IDLE_BYTES;

    fn memory() -> (Arc<MemoryBudget>, Arc<HttpMemory>) {
        let all = Ceilings { argument: LIMIT, request: LIMIT, data: LIMIT };
        let budget = MemoryBudget::new(all, all, 0);
        (budget.clone(), HttpMemory::new(budget))
    }

    #[test]
    fn a_connection_has_the_memory_of_its_last_request() {
        let (budget, memory) = memory();
        let connection = ConnectionMemory::new(memory);
        for bytes in [IDLE_BYTES + 100, IDLE_BYTES + 300, IDLE_BYTES + 300, IDLE_BYTES] {
            assert!(connection.admit(bytes));
            assert_eq!(budget.claimed(), bytes);
        }
        assert!(connection.admit(IDLE_BYTES + 1));
        connection.settle();
        assert_eq!(budget.claimed(), IDLE_BYTES, "the request was answered");
        assert_eq!(connection.memory.claimed.load(Ordering::SeqCst), IDLE_BYTES);
        drop(connection);
        assert_eq!(budget.claimed(), 0);
    }

    #[test]
    fn http_leaves_half_of_the_memory_to_others() {
        let (budget, memory) = memory();
        let first = memory.take(MemoryPurpose::Data, LIMIT / 2).unwrap();
        assert!(memory.take(MemoryPurpose::Data, 1).is_none());
        let other = ConnectionMemory::new(memory.clone());
        assert!(!other.admit(1), "the request is refused");
        drop(first);
        assert!(other.admit(LIMIT / 2));
        assert_eq!(budget.claimed(), LIMIT / 2);
    }

    #[test]
    fn memory_that_sessions_hold_is_not_taken() {
        let (budget, memory) = memory();
        let session = SharedCharge::take(&budget, MemoryPurpose::Data, LIMIT).unwrap();
        let connection = ConnectionMemory::new(memory);
        assert!(!connection.admit(1));
        drop(session);
        assert!(connection.admit(1));
    }
}
