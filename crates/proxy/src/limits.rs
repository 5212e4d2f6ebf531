//! Limits of one origin: requests that are made at once, and those that wait for a turn.
//!
//! An origin has limits for quick requests about names and for slow ones. Each of its servers has limits for
//! open files, so a slow server delays only its own readers. Sessions take turns, and none has more than a quarter. The sessions of one host have at most
//! half, and a quarter is for sessions that have no other request.

use crate::connections::{CONNECTIONS_MAX, NameConnection};
use crate::place::RequestFailure;
use base::{ClientHost, FairShareQueue, Owner};
use client::RequestPacing;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Maximum number of opens and quick requests about names that an origin has at once, and of requests about
/// open files that one of its servers has.
pub(crate) const REQUESTS_MAX: usize = 512;
/// Maximum number of slow requests about names that an origin has at once.
pub(crate) const SLOW_REQUESTS_MAX: usize = 128;
/// The same limits of an origin or a server that speaks HTTP, where each request needs a connection of its own:
/// requests about open files, opens and quick requests, and slow ones.
pub(crate) const HTTP_REQUESTS_MAX: usize = 64;
pub(crate) const HTTP_QUICK_REQUESTS_MAX: usize = 32;
pub(crate) const HTTP_SLOW_REQUESTS_MAX: usize = 16;

const _: () =
    assert!(HTTP_REQUESTS_MAX + HTTP_QUICK_REQUESTS_MAX + HTTP_SLOW_REQUESTS_MAX <= CONNECTIONS_MAX);

/// Maximum number of requests of each kind that wait for a turn.
pub(crate) const QUEUE_MAX: usize = 8192;
/// Maximum number of files that persist on close at one origin. Each has a connection of its own. A part of those
/// to one server, so that they leave enough for all other files.
pub(crate) const PERSISTING_MAX: usize = 24;
/// Maximum number of origins of a forwarding proxy.
pub(crate) const ORIGINS_MAX: usize = 1024;
/// Maximum number of origins that the clients of one host have named.
pub(crate) const HOST_ORIGINS_MAX: usize = 64;
/// Number of origins of a forwarding proxy above which unused ones are forgotten, because each keeps
/// memory for data.
pub(crate) const UNUSED_ORIGINS_MAX: usize = 64;
/// Maximum number of servers behind one origin whose state is known.
pub(crate) const PLACES_MAX: usize = 4096;

/// Waiting requests of one session that a full queue still takes, so that no session fills it for others.
const QUEUE_SPARE: usize = 16;
/// Part of the requests, and of the queue, that one session has at most.
const SHARE: usize = 4;
/// Part of the requests that the sessions of one host have at most.
const HOST_SHARE: usize = 2;
/// Part of the requests that only sessions without another request make.
const RESERVE: usize = 4;

/// The client that makes a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Requester {
    /// Its session.
    pub(crate) owner: Owner,
    pub(crate) host: ClientHost,
}

/// A limit of requests with a bounded queue, in which sessions take turns.
#[derive(Clone)]
pub(crate) struct RequestLane(Arc<LaneInner>);

struct LaneInner {
    state: Mutex<LaneState>,
    requests_max: usize,
    queue_max: usize,
    /// Time for which a request waits for its turn.
    queue_time: Duration,
}

struct LaneState {
    /// Requests that wait. Those that were given up leave their entry behind.
    turns: FairShareQueue<LaneEntry>,
    /// Number of requests that are made for the clients of each host.
    hosts: HashMap<ClientHost, usize>,
    /// Number of requests that wait and were not given up.
    waiting: usize,
}

/// A request that waits.
struct LaneEntry {
    host: ClientHost,
    turn: oneshot::Sender<TurnPermit>,
}

impl LaneState {
    /// Reports whether a request may be made at once.
    fn may_begin(&self, requests_max: usize, Requester { owner, host }: Requester) -> bool {
        let of_session = self.turns.running_of(owner);
        self.turns.may_run(owner)
            && may_run(self.turns.running(), &self.hosts, (requests_max, host), of_session)
    }

    /// Takes the request whose turn it is.
    fn next(&mut self, requests_max: usize) -> Option<(Owner, LaneEntry)> {
        if self.turns.running() >= requests_max || !self.turns.is_ready() {
            return None;
        }
        let (running, hosts) = (self.turns.running(), &self.hosts);
        let may_run =
            |entry: &LaneEntry, of_session| may_run(running, hosts, (requests_max, entry.host), of_session);
        let (owner, entry) = self.turns.pop_if(may_run)?;
        self.count(entry.host);
        Some((owner, entry))
    }

    /// Counts a request for the clients of a host.
    fn count(&mut self, host: ClientHost) {
        *self.hosts.entry(host).or_default() += 1;
    }

    fn end(&mut self, requester: Requester) {
        self.turns.record_end(requester.owner);
        if let Entry::Occupied(mut count) = self.hosts.entry(requester.host) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// Reports whether another request may be made, besides those that are `running`, for a client of this host,
/// of a session that makes `of_session` requests.
fn may_run(
    running: usize,
    hosts: &HashMap<ClientHost, usize>,
    (requests_max, host): (usize, ClientHost),
    of_session: usize,
) -> bool {
    // The reserve is for sessions that have nothing running.
    let most = if of_session == 0 { requests_max } else { requests_max - requests_max / RESERVE };
    let of_host = hosts.get(&host).copied().unwrap_or_default();
    running < most && of_host < requests_max.div_ceil(HOST_SHARE)
}

/// The permission to make a request, which passes on when it is dropped.
struct TurnPermit {
    lane: Option<RequestLane>,
    requester: Requester,
}

impl Drop for TurnPermit {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.state().end(self.requester);
            lane.pass_on();
        }
    }
}

/// A request in the queue.
struct QueuedTurn<'a>(&'a RequestLane);

impl Drop for QueuedTurn<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl RequestLane {
    /// Creates a lane for `requests_max` requests at once and `queue_max` more that wait.
    pub(crate) fn new(requests_max: usize, queue_max: usize, queue_time: Duration) -> Self {
        let turns = FairShareQueue::new(requests_max.div_ceil(SHARE));
        let state = Mutex::new(LaneState { turns, hosts: HashMap::new(), waiting: 0 });
        Self(Arc::new(LaneInner { state, requests_max, queue_max, queue_time }))
    }

    fn state(&self) -> MutexGuard<'_, LaneState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a request of a session.
    pub(crate) async fn enter(&self, requester: Requester) -> Result<RequestTurn, RequestFailure> {
        let is_refused = {
            let state = self.state();
            let of_owner = state.turns.waiting_of(requester.owner);
            let is_full = state.waiting >= self.0.queue_max && of_owner >= QUEUE_SPARE.min(self.0.queue_max);
            is_full || of_owner >= self.0.queue_max.div_ceil(SHARE)
        };
        if is_refused {
            return Err(RequestFailure::Busy);
        }
        let permit = tokio::time::timeout(self.0.queue_time, self.permit(requester)).await;
        let Ok(permit) = permit else { return Err(RequestFailure::Busy) };
        let state = TurnState { permit, connection: None, in_flight: 0, is_sent: false, is_over: false };
        let (state, resuming) = (Mutex::new(state), tokio::sync::Mutex::default());
        Ok(RequestTurn(Arc::new(TurnInner { lane: self.clone(), requester, state, resuming })))
    }

    /// Takes a permit without regard to the limits.
    fn permit_now(&self, requester: Requester) -> TurnPermit {
        self.begin(&mut self.state(), requester)
    }

    fn begin(&self, state: &mut LaneState, requester: Requester) -> TurnPermit {
        state.turns.record_start(requester.owner);
        state.count(requester.host);
        TurnPermit { lane: Some(self.clone()), requester }
    }

    /// Waits for a permit, also in a full queue.
    async fn permit(&self, requester: Requester) -> Option<TurnPermit> {
        let queued = {
            let mut state = self.state();
            if state.may_begin(self.0.requests_max, requester) {
                return Some(self.begin(&mut state, requester));
            }
            if state.turns.waiting() >= 2 * self.0.queue_max.max(state.waiting) {
                state.turns.retain(|entry| !entry.turn.is_closed());
            }
            let (turn, queued) = oneshot::channel();
            state.turns.push(requester.owner, LaneEntry { host: requester.host, turn });
            state.waiting += 1;
            queued
        };
        let _queued = QueuedTurn(self);
        queued.await.ok()
    }

    /// Gives free turns to requests that wait.
    fn pass_on(&self) {
        loop {
            let next = self.state().next(self.0.requests_max);
            let Some((owner, LaneEntry { host, turn })) = next else { return };
            let requester = Requester { owner, host };
            if let Err(mut unused) = turn.send(TurnPermit { lane: Some(self.clone()), requester }) {
                // The request was given up.
                unused.lane = None;
                self.state().end(requester);
            }
        }
    }
}

/// The turn of a request. It is dropped when the caller has the result or has left. The turn ends when, in
/// addition, the origin works on none of its requests.
pub(crate) struct RequestTurn(Arc<TurnInner>);

/// The turn as the client library sees it.
struct TurnInner {
    lane: RequestLane,
    requester: Requester,
    state: Mutex<TurnState>,
    /// Held while the turn is waited for, so that several requests of one turn take one permit.
    resuming: tokio::sync::Mutex<()>,
}

struct TurnState {
    permit: Option<TurnPermit>,
    connection: Option<NameConnection>,
    /// Number of requests that the origin works on.
    in_flight: usize,
    /// A request was given to a connection.
    is_sent: bool,
    /// The caller waits no longer.
    is_over: bool,
}

impl RequestTurn {
    /// Keeps the connection of the request counted until the turn ends.
    pub(crate) fn set_connection(&self, connection: NameConnection) {
        self.0.state().connection = Some(connection);
    }

    /// Returns the pacing of the request: its turn is free for others while the origin asks to wait.
    pub(crate) fn pacing(&self) -> Arc<dyn RequestPacing> {
        self.0.clone()
    }

    /// Reports whether the request was given to a connection, so that the origin may carry it out.
    pub(crate) fn is_sent(&self) -> bool {
        self.0.state().is_sent
    }
}

impl Drop for RequestTurn {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.end_if_over();
    }
}

impl TurnInner {
    fn state(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the turn if its caller waits no longer and the origin works on nothing.
    fn end_if_over(&self) {
        let ended = {
            let mut state = self.state();
            let is_over = state.is_over && state.in_flight == 0;
            is_over.then(|| (state.permit.take(), state.connection.take()))
        };
        drop(ended);
    }
}

impl RequestPacing for TurnInner {
    fn sent(&self) {
        let mut state = self.state();
        state.is_sent = true;
        state.in_flight += 1;
        if state.permit.is_none() {
            // Another request of this turn has given it up meanwhile.
            state.permit = Some(self.lane.permit_now(self.requester));
        }
    }

    fn ended(&self) {
        self.state().in_flight -= 1;
        self.end_if_over();
    }

    fn pause(&self) {
        let permit = {
            let mut state = self.state();
            if state.in_flight == 0 { state.permit.take() } else { None }
        };
        drop(permit);
    }

    fn resume(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let has_turn = || {
                let state = self.state();
                state.is_over || state.permit.is_some()
            };
            if has_turn() {
                return;
            }
            let _resuming = self.resuming.lock().await;
            if has_turn() {
                return;
            }
            let permit = self.lane.permit(self.requester).await;
            let mut state = self.state();
            if !state.is_over && state.permit.is_none() {
                state.permit = permit;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::NameConnections;
    use std::net::{IpAddr, Ipv4Addr};

    const GREEDY: Requester = Requester { owner: Owner(1), host: host(1) };
    const POLITE: Requester = Requester { owner: Owner(2), host: host(2) };

    const QUEUE_TIME: Duration = Duration::from_secs(1800);

    const fn host(number: u8) -> ClientHost {
        ClientHost::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)))
    }

    impl RequestLane {
        /// Returns the number of requests that wait, and of those that are made.
        fn counts(&self) -> (usize, usize) {
            let state = self.state();
            (state.waiting, state.turns.running())
        }
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_free_turn_is_taken() {
        let lane = RequestLane::new(1, 1, QUEUE_TIME);
        let first = lane.enter(GREEDY).await.unwrap();
        let second = lane.enter(GREEDY);
        tokio::pin!(second);
        assert!(is_pending(&mut second).await);
        assert!(matches!(lane.enter(GREEDY).await, Err(RequestFailure::Busy)));
        drop(first);
        drop(second.await.unwrap());
        drop(lane.enter(GREEDY).await.unwrap());
        assert_eq!(lane.counts(), (0, 0));
    }

    #[tokio::test]
    async fn one_session_takes_neither_all_turns_nor_the_queue() {
        let lane = RequestLane::new(8, 4, QUEUE_TIME);
        let mut turns = Vec::new();
        let mut waiting = Vec::new();
        for _ in 0..8 {
            let mut turn = Box::pin(lane.enter(GREEDY));
            tokio::select! {
                biased;
                turn = &mut turn => turns.push(turn),
                () = std::future::ready(()) => waiting.push(turn),
            }
        }
        assert_eq!(
            turns.iter().filter(|turn| turn.is_ok()).count() - waiting.len(),
            1,
            "a quarter, and one waits"
        );
        drop(lane.enter(POLITE).await.unwrap());
        // Requests that were given up take no place.
        drop(waiting);
        turns.clear();
        assert_eq!(lane.counts(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_limited_time() {
        let lane = RequestLane::new(1, 1, QUEUE_TIME);
        let _first = lane.enter(GREEDY).await.unwrap();
        assert!(matches!(lane.enter(POLITE).await, Err(RequestFailure::Busy)));
        assert_eq!(lane.counts(), (0, 1));
    }

    /// Begins as many requests of these requesters as there are turns for.
    async fn fill(lane: &RequestLane, requesters: impl Iterator<Item = Requester>) -> Vec<RequestTurn> {
        let mut turns = Vec::new();
        for requester in requesters {
            tokio::select! {
                biased;
                turn = lane.enter(requester) => turns.extend(turn.ok()),
                () = std::future::ready(()) => {}
            }
        }
        turns
    }

    #[tokio::test]
    async fn sessions_of_one_host_do_not_take_all_turns() {
        let lane = RequestLane::new(16, 64, QUEUE_TIME);
        let sessions = (1..=16).map(|number| Requester { owner: Owner(number), host: host(1) });
        let greedy = fill(&lane, sessions.cycle().take(64)).await;
        assert_eq!(greedy.len(), 8, "half of them");
        let waiting = lane.enter(Requester { owner: Owner(1), host: host(1) });
        tokio::pin!(waiting);
        assert!(is_pending(&mut waiting).await);
        // Another session is not behind it.
        drop(lane.enter(Requester { owner: Owner(99), host: host(2) }).await.unwrap());
        drop(greedy);
        drop(waiting.await.unwrap());
        assert_eq!(lane.counts(), (0, 0));
        assert!(lane.state().hosts.is_empty());
    }

    #[tokio::test]
    async fn some_turns_are_for_sessions_that_make_no_request() {
        let lane = RequestLane::new(16, 64, QUEUE_TIME);
        let few = (0..64).map(|number| {
            let number = number % 4;
            Requester { owner: Owner(1 + u64::from(number)), host: host(number) }
        });
        let busy = fill(&lane, few).await;
        assert_eq!(busy.len(), 12, "a quarter is left");
        let new: Vec<_> =
            (0..64).map(|number| Requester { owner: Owner(100 + number), host: host(9) }).collect();
        assert_eq!(fill(&lane, new.into_iter()).await.len(), 4);
    }

    #[tokio::test]
    async fn a_turn_is_free_while_the_origin_asks_to_wait() {
        let lane = RequestLane::new(1, 1, QUEUE_TIME);
        let first = lane.enter(GREEDY).await.unwrap();
        let pacing = first.pacing();
        pacing.pause();
        let second = lane.enter(POLITE).await.unwrap();
        let resumed = pacing.resume();
        tokio::pin!(resumed);
        assert!(is_pending(&mut resumed).await);
        drop(second);
        resumed.await;
        assert_eq!(lane.counts().1, 1);
        // The client may keep the turn of a request that is over.
        drop(first);
        pacing.resume().await;
        assert_eq!(lane.counts().1, 0);
    }

    #[tokio::test]
    async fn a_turn_lasts_while_the_origin_works_also_without_its_caller() {
        let lane = RequestLane::new(1, 1, QUEUE_TIME);
        let connections = Arc::new(NameConnections::new('n'));
        let turn = lane.enter(GREEDY).await.unwrap();
        turn.set_connection(connections.choose(GREEDY));
        let pacing = turn.pacing();
        pacing.resume().await;
        pacing.sent();
        drop(turn);
        let next = lane.enter(POLITE);
        tokio::pin!(next);
        assert!(is_pending(&mut next).await, "the origin still works on the first");
        assert_eq!(connections.choose(GREEDY).user(), "n1");
        pacing.ended();
        drop(next.await.unwrap());
        assert_eq!((lane.counts(), connections.choose(GREEDY).user()), ((0, 0), "n0".to_owned()));
    }

    #[tokio::test]
    async fn requests_of_one_turn_give_it_up_together() {
        let lane = RequestLane::new(1, 1, QUEUE_TIME);
        let turn = lane.enter(GREEDY).await.unwrap();
        let pacing = turn.pacing();
        pacing.sent();
        pacing.sent();
        pacing.ended();
        pacing.pause();
        let other = lane.enter(POLITE);
        tokio::pin!(other);
        assert!(is_pending(&mut other).await, "the origin works on the second request");
        pacing.ended();
        pacing.pause();
        drop(other.await.unwrap());
        tokio::join!(pacing.resume(), pacing.resume());
        assert_eq!(lane.counts(), (0, 1));
        drop(turn);
        assert_eq!(lane.counts(), (0, 0));
    }

    /// Polls a future once and reports whether it is pending.
    async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
        tokio::select! {
            biased;
            _ = future => false,
            () = std::future::ready(()) => true,
        }
    }
}
