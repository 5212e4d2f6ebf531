//! The memory of connections, charged to the limit of the process (`scalla.memory`).
//!
//! A request is charged for the memory that one of its method can hold, until its reply has been handed over. A
//! connection without a request is charged for its buffers, from its first request on. A request that
//! gets no memory is refused with 503, before anything is done for it. HTTP takes at most half of the
//! memory, so that sessions of the xroot protocol always find some, and one host at most a part of that.

use crate::activity::RequestInProgress;
use crate::reply::ReplyBody;
use crate::served_connection::ServedConnection;
use crate::status_counters::CountedReply;
use crate::{
    DOWNLOAD_BYTES, HOST_SHARE, IDLE_BYTES, KEPT_BYTES, LISTING_BYTES, MEMORY_SHARE, REQUEST_BYTES,
    UPLOAD_BYTES,
};
use base::{ClientHost, MemoryBudget, MemoryPurpose, SharedCharge};
use bytes::Bytes;
use hyper::Method;
use hyper::body::{Body, Frame, SizeHint};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// The bytes that are claimed.
#[derive(Default)]
struct ClaimedBytes {
    all: usize,
    hosts: HashMap<ClientHost, usize>,
}

/// The memory of HTTP.
pub(crate) struct HttpMemory {
    budget: Arc<MemoryBudget>,
    claimed: Mutex<ClaimedBytes>,
}

impl HttpMemory {
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(Self { budget, claimed: Mutex::default() })
    }

    fn claimed(&self) -> MutexGuard<'_, ClaimedBytes> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes, if there are some, for a host if they are not limited otherwise. The first request of a
    /// host is served also where its part of the memory is smaller.
    pub(crate) fn take(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        purpose: MemoryPurpose,
        bytes: usize,
    ) -> Option<HttpCharge> {
        let host = address.map(|address| ClientHost::from(Some(address)));
        let limit = self.budget.limit() / MEMORY_SHARE;
        let mut claimed = self.claimed();
        let own = host.and_then(|host| claimed.hosts.get(&host)).copied().unwrap_or_default();
        let all = claimed.all.checked_add(bytes).filter(|sum| *sum <= limit)?;
        if own > 0 && own.saturating_add(bytes) > limit / HOST_SHARE {
            return None;
        }
        let charge = SharedCharge::take(&self.budget, purpose, bytes)?;
        claimed.all = all;
        if let Some(host) = host {
            claimed.hosts.insert(host, own + bytes);
        }
        drop(claimed);
        Some(HttpCharge { memory: self.clone(), host, charge })
    }

    fn give_back(&self, host: Option<ClientHost>, bytes: usize) {
        let mut claimed = self.claimed();
        claimed.all = claimed.all.saturating_sub(bytes);
        if let Some(host) = host
            && let Some(own) = claimed.hosts.get_mut(&host)
        {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                claimed.hosts.remove(&host);
            }
        }
    }
}

/// Bytes that HTTP holds, until dropped.
pub(crate) struct HttpCharge {
    memory: Arc<HttpMemory>,
    host: Option<ClientHost>,
    charge: SharedCharge,
}

impl HttpCharge {
    fn shrink(&mut self, bytes: usize) {
        let before = self.charge.bytes();
        if bytes < before && self.charge.resize(MemoryPurpose::Request, bytes) {
            self.memory.give_back(self.host, before - bytes);
        }
    }
}

impl Drop for HttpCharge {
    fn drop(&mut self) {
        self.memory.give_back(self.host, self.charge.bytes());
    }
}

/// The memory of one connection.
pub(crate) struct ConnectionMemory {
    memory: Arc<HttpMemory>,
    address: IpAddr,
    held: Mutex<Option<HttpCharge>>,
}

impl ConnectionMemory {
    pub(crate) fn new(memory: Arc<HttpMemory>, address: IpAddr) -> Self {
        Self { memory, address, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Option<HttpCharge>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes memory beside that of the request, until dropped.
    pub(crate) fn take_beside(&self, bytes: usize) -> Option<HttpCharge> {
        self.memory.take(Some(self.address), MemoryPurpose::Request, bytes)
    }

    /// Takes the memory of a request in place of that of the one before. Reports whether there is some.
    pub(crate) fn admit(&self, bytes: usize) -> bool {
        let mut held = self.held();
        if held.as_ref().is_some_and(|held| held.charge.bytes() == bytes) {
            return true;
        }
        *held = None;
        *held = self.memory.take(Some(self.address), MemoryPurpose::Request, bytes);
        held.is_some()
    }

    /// Returns the memory of a request that has been answered, except for that of the buffers of the connection.
    pub(crate) fn settle(&self) {
        self.shrink(KEPT_BYTES);
    }

    /// Returns that of the buffers too.
    pub(crate) fn settle_idle(&self) {
        self.shrink(IDLE_BYTES);
    }

    fn shrink(&self, bytes: usize) {
        if let Some(held) = self.held().as_mut() {
            held.shrink(bytes);
        }
    }
}

/// The body of a reply. Its end returns the memory of the request.
pub(crate) struct ChargedBody {
    body: ReplyBody,
    connection: Arc<ServedConnection>,
    /// The request, if it is counted.
    counted: Option<CountedReply>,
    _request: RequestInProgress,
}

impl ChargedBody {
    pub(crate) fn new(
        body: ReplyBody,
        connection: Arc<ServedConnection>,
        counted: Option<CountedReply>,
        request: RequestInProgress,
    ) -> Self {
        Self { body, connection, counted, _request: request }
    }
}

impl Drop for ChargedBody {
    fn drop(&mut self) {
        self.connection.settle();
    }
}

impl Body for ChargedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let is_whole = self.body.is_end_stream();
        if let Some(counted) = &mut self.counted {
            match &frame {
                Poll::Ready(Some(Err(_))) => counted.fail(),
                Poll::Ready(None) => counted.whole(),
                // Nobody may ask for the end behind the last part.
                Poll::Ready(Some(Ok(_))) if is_whole => counted.whole(),
                Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
            }
        }
        frame
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

    const LIMIT: usize = 16 * KEPT_BYTES;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn memory() -> (Arc<MemoryBudget>, Arc<HttpMemory>) {
        let all = Ceilings { argument: LIMIT, request: LIMIT, data: LIMIT };
        let budget = MemoryBudget::new(all, all, 0);
        (budget.clone(), HttpMemory::new(budget))
    }

    #[test]
    fn a_connection_has_the_memory_of_its_last_request() {
        let (budget, memory) = memory();
        let connection = ConnectionMemory::new(memory, address(1));
        for bytes in [KEPT_BYTES + 100, KEPT_BYTES + 300, KEPT_BYTES + 300, KEPT_BYTES] {
            assert!(connection.admit(bytes));
            assert_eq!(budget.claimed(), bytes);
        }
        assert!(connection.admit(KEPT_BYTES + 1));
        connection.settle();
        assert_eq!(budget.claimed(), KEPT_BYTES, "the request was answered");
        assert_eq!(connection.memory.claimed().all, KEPT_BYTES);
        connection.settle_idle();
        assert_eq!((budget.claimed(), connection.memory.claimed().all), (IDLE_BYTES, IDLE_BYTES));
        connection.settle();
        assert_eq!(budget.claimed(), IDLE_BYTES, "nothing was taken");
        let memory = connection.memory.clone();
        drop(connection);
        assert_eq!((budget.claimed(), memory.claimed().all), (0, 0));
        assert!(memory.claimed().hosts.is_empty());
    }

    #[test]
    fn one_host_has_a_part_of_the_memory() {
        let (_budget, memory) = memory();
        let part = LIMIT / MEMORY_SHARE / HOST_SHARE;
        let first = memory.take(Some(address(1)), MemoryPurpose::Request, part).unwrap();
        assert!(memory.take(Some(address(1)), MemoryPurpose::Request, 1).is_none());
        let other = memory.take(Some(address(2)), MemoryPurpose::Request, part + 1);
        assert!(other.is_some(), "the first request of a host is served");
        drop(first);
        assert!(memory.take(Some(address(1)), MemoryPurpose::Request, part).is_some());
    }

    #[test]
    fn http_leaves_half_of_the_memory_to_others() {
        let (budget, memory) = memory();
        let first = memory.take(Some(address(1)), MemoryPurpose::Data, LIMIT / 2).unwrap();
        assert!(memory.take(Some(address(2)), MemoryPurpose::Data, 1).is_none());
        let other = ConnectionMemory::new(memory.clone(), address(3));
        assert!(!other.admit(1), "the request is refused");
        drop(first);
        assert!(other.admit(LIMIT / 2));
        assert_eq!(budget.claimed(), LIMIT / 2);
    }

    #[test]
    fn memory_that_sessions_hold_is_not_taken() {
        let (budget, memory) = memory();
        let session = SharedCharge::take(&budget, MemoryPurpose::Data, LIMIT).unwrap();
        let connection = ConnectionMemory::new(memory, address(1));
        assert!(!connection.admit(1));
        drop(session);
        assert!(connection.admit(1));
    }
}
