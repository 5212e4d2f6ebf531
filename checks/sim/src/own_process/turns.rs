//! The thread of a node of our own, which takes batches of work from its queue in turns.
//!
//! Without it every event is handled at once; with it, requests wait as they do in a busy server.

use std::collections::HashMap;
use std::time::Duration;

use base::LogicalPath;
use cluster::work_queue::{CHANGES_MAX, MISSES_MAX, REQUEST_BYTES_MAX, REQUESTS_AT_ONCE, REQUESTS_MAX};
use cluster::{WorkBatch, WorkQueue};

use crate::messages::{ClientRequest, HostReply, Name};

/// The delay before a client retries that was refused by a full queue.
const BUSY: Duration = Duration::from_secs(5);

/// A request with its arrival.
pub(super) struct QueuedRequest {
    pub(super) request: ClientRequest,
    /// The last turn before its arrival.
    turn: u64,
    /// Earlier waiting requests of the same client.
    ahead: u64,
}

/// The work queue of a process, and the turns of its thread.
pub(crate) struct WorkTurns {
    queue: WorkQueue<(), (), QueuedRequest>,
    pace: Duration,
    /// The time of the next turn, if there is work.
    at: Option<Duration>,
    turns: u64,
    /// The number of waiting requests, by client.
    waiting: HashMap<usize, u64>,
    /// The largest number of clients that waited at once.
    clients_most: u64,
    /// Resets that parents received because of lost names.
    pub(crate) resets: u64,
    /// Requests refused by a full queue.
    pub(crate) refused: u64,
    /// A request that waited for more than its share of turns.
    unfair: Option<String>,
}

impl WorkTurns {
    /// Creates a queue of which a batch is taken every `pace`.
    pub(crate) fn new(pace: Duration) -> Self {
        Self {
            queue: WorkQueue::default(),
            pace,
            at: None,
            turns: 0,
            waiting: HashMap::new(),
            clients_most: 0,
            resets: 0,
            refused: 0,
            unfair: None,
        }
    }

    pub(super) const fn deadline(&self) -> Option<Duration> {
        self.at
    }

    fn arm(&mut self, now: Duration) {
        self.at.get_or_insert(now + self.pace);
    }

    pub(super) fn name_changed(&mut self, path: &Name, now: Duration) {
        if let Ok(path) = LogicalPath::parse(path) {
            self.queue.name_changed(&path);
            self.arm(now);
        }
    }

    pub(super) fn name_missed(&mut self, path: &Name, now: Duration) {
        if let Ok(path) = LogicalPath::parse(path) {
            self.queue.name_missed(&path);
            self.arm(now);
        }
    }

    /// Adds a request of a client. With `in_line` all clients share one place in the queue.
    pub(super) fn enqueue(&mut self, request: &ClientRequest, in_line: bool, now: Duration) -> HostReply {
        let bytes = request.path.len() + request.tried.len();
        let ahead = self.waiting.get(&request.client).copied().unwrap_or_default();
        let arrival = QueuedRequest { request: request.clone(), turn: self.turns, ahead };
        let client = if in_line { 0 } else { request.client };
        if self.queue.add_request(client, bytes, arrival).is_err() {
            self.refused += 1;
            return HostReply::Wait(BUSY);
        }
        *self.waiting.entry(request.client).or_default() += 1;
        self.clients_most = self.clients_most.max(self.waiting.len() as u64);
        self.arm(now);
        HostReply::Later
    }

    /// Takes a batch of work if it is due.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<WorkBatch<(), (), QueuedRequest>> {
        self.at.filter(|at| *at <= now)?;
        self.turns += 1;
        let mut batch = WorkBatch::default();
        self.queue.take(&mut batch, false);
        self.at = (!self.queue.is_empty()).then_some(now + self.pace);
        self.resets += u64::from(batch.is_reset);
        batch.requests.iter().for_each(|arrival| self.note_taken(arrival));
        Some(batch)
    }

    /// Returns the first violated rule.
    pub(crate) fn error(&self) -> Option<String> {
        let stats = self.queue.stats();
        let is_bounded = stats.requests <= REQUESTS_MAX
            && stats.request_bytes <= REQUEST_BYTES_MAX
            && (stats.changes, stats.change_bytes) <= (CHANGES_MAX.0, usize::MAX)
            && stats.change_bytes <= CHANGES_MAX.1
            && stats.misses <= MISSES_MAX.0
            && stats.miss_bytes <= MISSES_MAX.1;
        if !is_bounded {
            return Some(format!("{stats:?} wait"));
        }
        self.unfair.clone()
    }

    /// Checks a request that is taken. During the wait of the `ahead + 1`st request of its client,
    /// each other client may have had at most as many.
    fn note_taken(&mut self, arrival: &QueuedRequest) {
        let client = arrival.request.client;
        if let Some(count) = self.waiting.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&client);
            }
        }
        let share = ((arrival.ahead + 1) * self.clients_most).div_ceil(REQUESTS_AT_ONCE as u64) + 1;
        let waited = self.turns - arrival.turn;
        if waited > share && self.unfair.is_none() {
            self.unfair = Some(format!(
                "a request of client {client} with {} before it waited for {waited} turns, its share is {share}",
                arrival.ahead
            ));
        }
    }
}
