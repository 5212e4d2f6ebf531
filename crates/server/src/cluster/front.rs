//! Interface of client connections to the cluster. Cached locations are answered on the event loop,
//! all others by the cluster thread.

use super::engine::ClusterEngine;
use super::forward::Forward;
use super::inbox::{Inbox, InboxRequest};
use super::pending_requests::{AnswerCallback, LocationQuery};
use auth::SystemRng;
use base::{Clock, Rng as _, SplitMix64};
use cluster::{ClusterAnswer, LocateFlags, LocationReader, OrderPermit, ResolverShared, SelectOptions};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vfs::Caller;

/// Each front has separate readers on each thread.
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The readers of this thread, with the number of the front they belong to. There is one,
    /// except in tests with several managers in a process.
    static READERS: RefCell<Vec<(u64, LocationReader, SplitMix64)>> = const { RefCell::new(Vec::new()) };
}

/// Answers queries of connections for nodes and locations of files.
pub(crate) struct ClusterFront {
    number: u64,
    shared: Arc<ResolverShared>,
    clock: Arc<dyn Clock>,
    inbox: Arc<Inbox>,
    /// Set if the administrator has suspended this node, so that it accepts no clients.
    suspended: Arc<AtomicBool>,
    /// The wait time sent to clients if the thread cannot take more requests.
    busy: Duration,
}

impl ClusterFront {
    pub(super) fn new(
        shared: Arc<ResolverShared>,
        clock: Arc<dyn Clock>,
        inbox: Arc<Inbox>,
        suspended: Arc<AtomicBool>,
        busy: Duration,
    ) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { number, shared, clock, inbox, suspended, busy }
    }

    /// Selects the node for a client. Returns the answer, or `None` if `tell` delivers it later, on
    /// another thread.
    pub(crate) fn select(
        &self,
        caller: &Arc<Caller>,
        path: &[u8],
        options: SelectOptions,
        tried: &[u8],
        tell: impl FnOnce() -> AnswerCallback,
    ) -> Option<ClusterAnswer> {
        if tried.is_empty()
            && let Some(answer) = self.read(|reader, now, rng| reader.select(path, options, now, rng))
        {
            return Some(answer);
        }
        self.ask(caller, path, LocationQuery::Select { options, tried: tried.into() }, tell())
    }

    /// Returns the locations of a path; `*` and `*<path>` as in the protocol.
    pub(crate) fn locate(
        &self,
        caller: &Arc<Caller>,
        path: &[u8],
        options: LocateFlags,
        tell: impl FnOnce() -> AnswerCallback,
    ) -> Option<ClusterAnswer> {
        if let Some(answer) = self.read(|reader, now, _| reader.locate(path, options, now)) {
            return Some(answer);
        }
        self.ask(caller, path, LocationQuery::Locate(options), tell())
    }

    /// Forwards a name change to all servers; `tell` receives the outcome. Returns `false` if the
    /// thread cannot take the request.
    pub(crate) fn change_names(
        &self,
        caller: &Arc<Caller>,
        permit: OrderPermit,
        forward: Forward,
        tell: impl FnOnce(Result<(), ClusterAnswer>) + Send + 'static,
    ) -> bool {
        self.with(caller, move |engine| engine.client_orders(permit, forward, tell))
    }

    /// Runs `work` on the cluster thread for a client. Returns `false` if it cannot take more now.
    pub(crate) fn with(
        &self,
        caller: &Arc<Caller>,
        work: impl FnOnce(&mut ClusterEngine) + Send + 'static,
    ) -> bool {
        self.inbox.request(caller, InboxRequest::Order(Box::new(work))).is_ok()
    }

    fn ask(
        &self,
        caller: &Arc<Caller>,
        path: &[u8],
        query: LocationQuery,
        tell: AnswerCallback,
    ) -> Option<ClusterAnswer> {
        let question = InboxRequest::Ask { path: path.into(), query, caller: caller.clone(), tell };
        // If the thread has ended with the process, the request is dropped, which answers it.
        if let Err(InboxRequest::Ask { tell, .. }) = self.inbox.request(caller, question) {
            tell(ClusterAnswer::Wait(self.busy));
        }
        None
    }

    /// Reads the answer from the cache. Retry replies are left to the machine, because it may know
    /// the time.
    fn read(
        &self,
        look: impl FnOnce(&mut LocationReader, Duration, &mut SplitMix64) -> Option<ClusterAnswer>,
    ) -> Option<ClusterAnswer> {
        if self.suspended.load(Ordering::Relaxed) {
            return None;
        }
        let now = self.clock.now();
        let answer = READERS.with_borrow_mut(|readers| {
            let at = readers.iter().position(|(number, ..)| *number == self.number).unwrap_or_else(|| {
                readers.push((self.number, self.shared.reader(), seeded_rng()));
                readers.len() - 1
            });
            let (_, reader, rng) = readers.get_mut(at)?;
            look(reader, now, rng)
        });
        answer.filter(|answer| match answer {
            ClusterAnswer::Wait(_) => false,
            ClusterAnswer::Redirect { .. } | ClusterAnswer::Error(..) => true,
            ClusterAnswer::Located(list) => !list.is_empty(),
        })
    }
}

/// Returns random numbers for the selection of a node. They need not be unpredictable.
fn seeded_rng() -> SplitMix64 {
    let mut seed = [0; 8];
    SystemRng.fill(&mut seed);
    SplitMix64::new(u64::from_ne_bytes(seed))
}
