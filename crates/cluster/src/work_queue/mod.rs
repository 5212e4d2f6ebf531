//! Bounded queues of work, by class, from other threads for the thread of a node (decision 025).
//!
//! Each class is bounded, so that clients cannot make it grow, and no class waits behind a lower
//! one.
//!
//! | class, highest first | when it is full |
//! |---|---|
//! | results of looks at the disk | never: one for each look that was begun |
//! | jobs of the administrator and of threads that measure | refused |
//! | names that changed, each once | all are forgotten, and parents receive a reset |
//! | requests of clients, one client after the other | the client receives a wait (back-pressure) |
//! | names that were opened in vain, each once | dropped: the client's next request corrects its manager |
//!
//! The thread takes a limited number of each class at a time (a batch) and serves the sockets
//! between two batches. The server wraps a [`WorkQueue`] in a lock; `checks/sim` drives it on
//! virtual time.

mod changed_paths;
mod fair_queue;

use std::collections::VecDeque;
use std::sync::Arc;

use base::LogicalPath;

pub use changed_paths::{CHANGES_MAX, MISSES_MAX};

use changed_paths::ChangedPaths;
use fair_queue::FairQueue;

/// The maximum number of waiting jobs.
pub const JOBS_MAX: usize = 1024;
/// The maximum number of waiting requests of all clients.
pub const REQUESTS_MAX: usize = 1 << 16;
/// The maximum number of bytes of their paths.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The maximum number of waiting requests of one client.
pub const REQUESTS_PER_CLIENT_MAX: usize = 8192;
/// The number of requests below which a client may use the last quarter of the queue.
pub const FEW_REQUESTS: usize = 16;

/// The batch size for results of looks.
const LOOKED_AT_ONCE: usize = 256;
/// The batch size for jobs.
const JOBS_AT_ONCE: usize = 16;
/// The batch size for names that changed.
const CHANGES_AT_ONCE: usize = 64;
/// The batch size for requests.
pub const REQUESTS_AT_ONCE: usize = 32;
/// The batch size for requests while frames of nodes wait. A request causes a frame of each child
/// that it concerns, so an equal number of both per turn would keep these frames waiting.
pub const REQUESTS_BESIDE_FRAMES: usize = 8;
/// The batch size for names that were opened in vain.
pub const MISSES_AT_ONCE: usize = 8;

/// One batch of work.
#[derive(Debug)]
pub struct WorkBatch<Looked, Job, Request> {
    /// Results of looks at the disk.
    pub looked: Vec<Looked>,
    /// Jobs of this process.
    pub jobs: Vec<Job>,
    /// More names changed than could be stored, or a directory with all names below it.
    pub is_reset: bool,
    /// Names that changed.
    pub changed: Vec<Arc<LogicalPath>>,
    /// Requests of clients.
    pub requests: Vec<Request>,
    /// Names that were opened in vain.
    pub missed: Vec<Arc<LogicalPath>>,
}

impl<Looked, Job, Request> Default for WorkBatch<Looked, Job, Request> {
    fn default() -> Self {
        Self {
            looked: Vec::new(),
            jobs: Vec::new(),
            is_reset: false,
            changed: Vec::new(),
            requests: Vec::new(),
            missed: Vec::new(),
        }
    }
}

/// The numbers of waiting entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkStats {
    /// Jobs.
    pub jobs: usize,
    /// Requests of clients.
    pub requests: usize,
    /// Bytes of the requests.
    pub request_bytes: usize,
    /// Names that changed.
    pub changes: usize,
    /// Bytes of these names.
    pub change_bytes: usize,
    /// Names that were opened in vain.
    pub misses: usize,
    /// Bytes of these names.
    pub miss_bytes: usize,
}

/// The queue of one thread.
#[derive(Debug)]
pub struct WorkQueue<Looked, Job, Request> {
    looked: VecDeque<Looked>,
    jobs: VecDeque<Job>,
    news: ChangedPaths,
    /// Requests with their bytes.
    requests: FairQueue<(usize, Request)>,
    request_bytes: usize,
}

impl<Looked, Job, Request> Default for WorkQueue<Looked, Job, Request> {
    fn default() -> Self {
        Self {
            looked: VecDeque::new(),
            jobs: VecDeque::new(),
            news: ChangedPaths::default(),
            requests: FairQueue::default(),
            request_bytes: 0,
        }
    }
}

impl<Looked, Job, Request> WorkQueue<Looked, Job, Request> {
    /// Reports whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.looked.is_empty() && self.jobs.is_empty() && self.news.is_empty() && self.requests.is_empty()
    }

    /// Adds results of looks at the disk.
    pub fn add_looked(&mut self, looked: impl IntoIterator<Item = Looked>) {
        self.looked.extend(looked);
    }

    /// Adds a job.
    ///
    /// # Errors
    /// Returns the job if the queue is full.
    pub fn add_job(&mut self, job: Job) -> Result<(), Job> {
        if self.jobs.len() >= JOBS_MAX {
            return Err(job);
        }
        self.jobs.push_back(job);
        Ok(())
    }

    /// Adds a request of a client that occupies `bytes`.
    ///
    /// # Errors
    /// Returns the request if the queue is full.
    pub fn add_request(&mut self, client: usize, bytes: usize, request: Request) -> Result<(), Request> {
        if !self.has_room(client, bytes) {
            return Err(request);
        }
        self.request_bytes += bytes;
        self.requests.push(client, (bytes, request));
        Ok(())
    }

    fn has_room(&self, client: usize, bytes: usize) -> bool {
        let own = self.requests.len_of(client);
        // The last quarter is reserved for clients with few waiting requests.
        let limit = if own < FEW_REQUESTS { REQUESTS_MAX } else { REQUESTS_MAX / 4 * 3 };
        let byte_limit = if own < FEW_REQUESTS { REQUEST_BYTES_MAX } else { REQUEST_BYTES_MAX / 4 * 3 };
        own < REQUESTS_PER_CLIENT_MAX
            && self.requests.len() < limit
            && self.request_bytes + bytes <= byte_limit
    }

    /// Adds a name that was created or removed.
    pub fn name_changed(&mut self, path: &LogicalPath) {
        self.news.changed(path);
    }

    /// Adds a name that was opened in vain.
    pub fn name_missed(&mut self, path: &LogicalPath) {
        self.news.missed(path);
    }

    /// Records that more names changed than can be listed.
    pub fn names_lost(&mut self) {
        self.news.moved();
    }

    /// Takes the next batch of work of all classes. With `frames_wait`, frames of nodes are left
    /// from the last turn, so that new requests have a smaller share.
    pub fn take(&mut self, turn: &mut WorkBatch<Looked, Job, Request>, frames_wait: bool) {
        let some = self.looked.len().min(LOOKED_AT_ONCE);
        turn.looked.extend(self.looked.drain(..some));
        let some = self.jobs.len().min(JOBS_AT_ONCE);
        turn.jobs.extend(self.jobs.drain(..some));
        turn.is_reset |= self.news.take_reset();
        turn.changed.extend(self.news.take_changed(CHANGES_AT_ONCE));
        for _ in 0..if frames_wait { REQUESTS_BESIDE_FRAMES } else { REQUESTS_AT_ONCE } {
            let Some((bytes, request)) = self.requests.pop() else { break };
            self.request_bytes -= bytes;
            turn.requests.push(request);
        }
        turn.missed.extend(self.news.take_missed(MISSES_AT_ONCE));
    }

    /// Returns the numbers of waiting entries.
    pub fn stats(&self) -> WorkStats {
        let ((changes, change_bytes), (misses, miss_bytes)) = self.news.sizes();
        WorkStats {
            jobs: self.jobs.len(),
            requests: self.requests.len(),
            request_bytes: self.request_bytes,
            changes,
            change_bytes,
            misses,
            miss_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Queue = WorkQueue<u32, u32, usize>;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    fn turn(queue: &mut Queue) -> WorkBatch<u32, u32, usize> {
        let mut turn = WorkBatch::default();
        queue.take(&mut turn, false);
        turn
    }

    #[test]
    fn frames_that_wait_leave_new_requests_a_smaller_share() {
        let mut queue = Queue::default();
        (0..100).for_each(|n| assert!(queue.add_request(0, 10, n).is_ok()));
        let mut turn = WorkBatch::default();
        queue.take(&mut turn, true);
        assert_eq!(turn.requests, (0..REQUESTS_BESIDE_FRAMES).collect::<Vec<_>>());
    }

    #[test]
    fn a_client_with_many_requests_does_not_keep_the_others_waiting() {
        let mut queue = Queue::default();
        for client in 0..8 {
            (0..1000).for_each(|_| assert!(queue.add_request(client, 10, client).is_ok()));
        }
        turn(&mut queue);
        assert!(queue.add_request(8, 10, 8).is_ok());
        let next = turn(&mut queue).requests;
        assert!(next[..2].contains(&8), "{next:?}");
    }

    #[test]
    fn greedy_clients_leave_room_for_others() {
        let mut queue = Queue::default();
        let fill = |queue: &mut Queue, bytes| {
            let one = |client| (0..).take_while(|_| queue.add_request(client, bytes, client).is_ok()).count();
            (0..16).map(one).sum::<usize>()
        };
        assert!(fill(&mut queue, 2) < REQUESTS_MAX / 4 * 3 + 16 * FEW_REQUESTS);
        assert!(queue.add_request(16, 2, 16).is_ok());
        while !turn(&mut queue).requests.is_empty() {}
        assert!(fill(&mut queue, 4095) * 4095 <= REQUEST_BYTES_MAX);
        assert!(queue.add_request(16, 4095, 16).is_ok());
        while !turn(&mut queue).requests.is_empty() {}
        assert_eq!(queue.stats(), WorkStats::default());
    }

    #[test]
    fn results_and_changes_do_not_wait_behind_requests_or_names_opened_in_vain() {
        let mut queue = Queue::default();
        for n in 0..10_000 {
            queue.name_missed(&path(&format!("/missing/{n}")));
            queue.add_request(1, 2, 1).ok();
        }
        queue.name_changed(&path("/new"));
        queue.add_looked([1]);
        assert!(queue.add_job(1).is_ok());
        let turn = turn(&mut queue);
        assert_eq!((turn.looked.len(), turn.jobs.len()), (1, 1));
        assert_eq!(turn.changed.iter().map(|path| path.as_bytes()).collect::<Vec<_>>(), [b"/new"]);
        assert!(!turn.is_reset, "names that were opened in vain void nothing");
        assert_eq!((turn.requests.len(), turn.missed.len()), (REQUESTS_AT_ONCE, MISSES_AT_ONCE));
    }
}
