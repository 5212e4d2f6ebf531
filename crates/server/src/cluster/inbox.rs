//! Work that other threads have for the cluster's thread, in classes. Every class is bounded, so that nothing that clients
//! cause makes it grow, and no class waits behind a lower one.
//!
//! | class, highest first | when it is full |
//! |---|---|
//! | results of looks at the disk | never: one for each look that was begun |
//! | jobs of the administrator and of threads that measure | refused |
//! | names that changed, each once | all are forgotten, and parents receive a reset of what they know |
//! | questions and orders of clients, one client after the other | the client receives a wait |
//! | names that were opened in vain, each once | dropped: the client's next question corrects its manager |
//!
//! The thread takes a limited number of each class at a time; in between the sockets have their turn.

use super::askers::{Tell, Wish};
use super::engine::Engine;
use super::fair_queue::FairQueue;
use super::holdings::Looked;
use super::news::News;
use base::LogicalPath;
use logical::Events;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use vfs::Caller;

/// Jobs that wait at most.
const JOBS_MAX: usize = 1024;
/// Questions and orders of all clients that wait at most.
const REQUESTS_MAX: usize = 1 << 16;
/// Bytes of their paths at most.
const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Requests of one client that wait at most.
const REQUESTS_PER_CLIENT_MAX: usize = 8192;

/// A client with fewer may use the last quarter of the room.
const FEW_REQUESTS: usize = 16;

/// How much of each class the thread takes at once.
const LOOKED_AT_ONCE: usize = 256;
const JOBS_AT_ONCE: usize = 16;
const CHANGES_AT_ONCE: usize = 64;
const REQUESTS_AT_ONCE: usize = 32;
const MISSES_AT_ONCE: usize = 8;

/// Something that is done on the cluster's thread.
pub(super) type Job = Box<dyn FnOnce(&mut Engine) + Send>;

/// A client's request to the cluster's thread.
pub(super) enum Request {
    /// An answer.
    Ask {
        /// About what.
        path: Box<[u8]>,
        /// The kind of the question.
        wish: Wish,
        /// By whom.
        caller: Arc<Caller>,
        /// Brings the answer.
        tell: Tell,
    },
    /// Something done, and an answer by it.
    Order(Job),
}

impl Request {
    fn bytes(&self) -> usize {
        match self {
            Self::Ask { path, wish: Wish::Select { tried, .. }, .. } => path.len() + tried.len(),
            Self::Ask { path, .. } => path.len(),
            Self::Order(_) => 0,
        }
    }
}

/// The work that the thread takes at once.
#[derive(Default)]
pub(super) struct Turn {
    /// Results of looks at the disk.
    pub(super) looked: Vec<Looked>,
    pub(super) jobs: Vec<Job>,
    /// Names have changed that nobody knows any more, or a directory with all that is below it.
    pub(super) is_reset: bool,
    /// Names that changed; those that were opened in vain come last.
    pub(super) changed: Vec<Arc<LogicalPath>>,
    pub(super) requests: Vec<Request>,
    pub(super) missed: Vec<Arc<LogicalPath>>,
    /// The thread is to end.
    pub(super) is_stopped: bool,
}

/// Work for the cluster's thread.
#[derive(Default)]
pub(super) struct Inbox {
    content: Mutex<Content>,
    bell: Notify,
}

#[derive(Default)]
struct Content {
    looked: VecDeque<Looked>,
    jobs: VecDeque<Job>,
    news: News,
    requests: FairQueue<Request>,
    request_bytes: usize,
    is_stopped: bool,
    /// The thread has ended.
    is_closed: bool,
}

impl Content {
    fn is_empty(&self) -> bool {
        self.looked.is_empty()
            && self.jobs.is_empty()
            && self.news.is_empty()
            && self.requests.is_empty()
            && !self.is_stopped
    }

    fn has_room(&self, client: usize, bytes: usize) -> bool {
        let own = self.requests.len_of(client);
        // The last quarter is for clients that have few requests here.
        let limit = if own < FEW_REQUESTS { REQUESTS_MAX } else { REQUESTS_MAX / 4 * 3 };
        let byte_limit = if own < FEW_REQUESTS { REQUEST_BYTES_MAX } else { REQUEST_BYTES_MAX / 4 * 3 };
        own < REQUESTS_PER_CLIENT_MAX
            && self.requests.len() < limit
            && self.request_bytes + bytes <= byte_limit
    }
}

impl Inbox {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job of this process; `false` when the thread cannot take it.
    pub(super) fn job(&self, job: Job) -> bool {
        let mut content = self.content();
        let fits = content.jobs.len() < JOBS_MAX && !content.is_closed;
        if fits {
            content.jobs.push_back(job);
        }
        drop(content);
        self.bell.notify_one();
        fits
    }

    /// Adds a request of a client. Returns it when there is no room; one that comes after the end of the thread is
    /// dropped, which answers it.
    pub(super) fn request(&self, caller: &Arc<Caller>, request: Request) -> Result<(), Request> {
        // The address is the client's for as long as one of its requests is here.
        let client = Arc::as_ptr(caller) as usize;
        let bytes = request.bytes();
        let mut content = self.content();
        if content.is_closed {
            drop(content);
            return Ok(());
        }
        if !content.has_room(client, bytes) {
            return Err(request);
        }
        content.request_bytes += bytes;
        content.requests.push(client, request);
        drop(content);
        self.bell.notify_one();
        Ok(())
    }

    /// Adds what looks at the disk have shown.
    pub(super) fn looked(&self, looked: Vec<Looked>) {
        self.change(|content| content.looked.extend(looked));
    }

    /// More names changed than can be named.
    pub(super) fn names_lost(&self) {
        self.change(|content| content.news.moved());
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.change(|content| content.is_stopped = true);
    }

    fn change(&self, change: impl FnOnce(&mut Content)) {
        let mut content = self.content();
        if !content.is_closed {
            change(&mut content);
        }
        drop(content);
        self.bell.notify_one();
    }

    /// Takes the next work of all classes.
    pub(super) fn take(&self, turn: &mut Turn) {
        let mut content = self.content();
        let content = &mut *content;
        let some = content.looked.len().min(LOOKED_AT_ONCE);
        turn.looked.extend(content.looked.drain(..some));
        let some = content.jobs.len().min(JOBS_AT_ONCE);
        turn.jobs.extend(content.jobs.drain(..some));
        turn.is_reset |= content.news.take_reset();
        turn.changed.extend(content.news.take_changed(CHANGES_AT_ONCE));
        for _ in 0..REQUESTS_AT_ONCE {
            let Some(request) = content.requests.pop() else { break };
            content.request_bytes -= request.bytes();
            turn.requests.push(request);
        }
        turn.missed.extend(content.news.take_missed(MISSES_AT_ONCE));
        turn.is_stopped |= content.is_stopped;
    }

    /// Waits until there is work.
    pub(super) async fn wait(&self) {
        while self.content().is_empty() {
            self.bell.notified().await;
        }
    }

    fn close(&self) {
        let left = {
            let mut content = self.content();
            std::mem::replace(&mut *content, Content { is_closed: true, ..Content::default() })
        };
        // Outside of the lock: requests that are dropped answer.
        drop(left);
    }
}

/// Closes the inbox when the thread ends, however it does.
pub(super) struct Receiver(pub(super) Arc<Inbox>);

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Receives changes of names, on any thread.
pub(super) struct StorageEvents(pub(super) Arc<Inbox>);

impl Events for StorageEvents {
    fn made(&self, path: &LogicalPath, _pending: bool) {
        self.0.change(|content| content.news.changed(path));
    }

    fn gone(&self, path: &LogicalPath) {
        self.0.change(|content| content.news.changed(path));
    }

    fn missing(&self, path: &LogicalPath) {
        self.0.change(|content| content.news.missed(path));
    }

    fn moved(&self, _: &LogicalPath, _: &LogicalPath) {
        self.0.names_lost();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::LocateOptions;
    use logical::Presence;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn caller() -> Arc<Caller> {
        let told = base::Told { user: "u", host: "h", ..base::Told::default() };
        Arc::new(Caller::new(base::Identity::new(&told, 1, None, "host"), true, false))
    }

    fn ask(caller: &Arc<Caller>, path: &str) -> Request {
        let wish = Wish::Locate(LocateOptions::default());
        let tell = Box::new(|_| {});
        Request::Ask { path: path.as_bytes().into(), wish, caller: caller.clone(), tell }
    }

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    fn turn(inbox: &Inbox) -> Turn {
        let mut turn = Turn::default();
        inbox.take(&mut turn);
        turn
    }

    #[test]
    fn a_client_with_many_requests_does_not_keep_the_others_waiting() {
        let inbox = Inbox::default();
        let greedy: Vec<Arc<Caller>> = (0..8).map(|_| caller()).collect();
        for caller in &greedy {
            (0..1000).for_each(|n| assert!(inbox.request(caller, ask(caller, &format!("/{n}"))).is_ok()));
        }
        let polite = caller();
        assert!(inbox.request(&polite, ask(&polite, "/f")).is_ok());
        let first = turn(&inbox).requests;
        let is_polite = |request: &Request| matches!(request, Request::Ask { caller, .. } if Arc::ptr_eq(caller, &polite));
        assert_eq!(first.iter().position(is_polite), Some(8));
    }

    #[test]
    fn greedy_clients_leave_room_for_others() {
        let inbox = Inbox::default();
        let greedy: Vec<Arc<Caller>> = (0..16).map(|_| caller()).collect();
        let fill = |path: &str| {
            let mut taken = 0;
            for caller in &greedy {
                while inbox.request(caller, ask(caller, path)).is_ok() {
                    taken += 1;
                }
            }
            taken
        };
        assert!(fill("/f") < REQUESTS_MAX / 4 * 3 + greedy.len() * FEW_REQUESTS);
        let polite = caller();
        assert!(inbox.request(&polite, ask(&polite, "/f")).is_ok());
        while !turn(&inbox).requests.is_empty() {}
        let long = "/".to_owned() + &"x".repeat(4094);
        assert!(fill(&long) * long.len() <= REQUEST_BYTES_MAX);
        assert!(inbox.request(&polite, ask(&polite, &long)).is_ok());
        while !turn(&inbox).requests.is_empty() {}
        assert_eq!(inbox.content().request_bytes, 0);
    }

    #[test]
    fn answers_and_news_do_not_wait_behind_requests_or_names_sought_in_vain() {
        let inbox = Arc::new(Inbox::default());
        let events = StorageEvents(inbox.clone());
        let greedy = caller();
        for n in 0..10_000 {
            events.missing(&path(&format!("/missing/{n}")));
            inbox.request(&greedy, ask(&greedy, "/f")).ok();
        }
        events.made(&path("/new"), false);
        inbox.looked(vec![(path("/looked"), 1, Presence::NotHere)]);
        assert!(inbox.job(Box::new(|_| {})));
        let turn = turn(&inbox);
        assert_eq!(turn.looked.len(), 1);
        assert_eq!(turn.jobs.len(), 1);
        assert_eq!(turn.changed.iter().map(|path| path.as_bytes()).collect::<Vec<_>>(), [b"/new"]);
        assert!(!turn.is_reset, "names that were sought in vain void nothing");
        assert_eq!((turn.requests.len(), turn.missed.len()), (REQUESTS_AT_ONCE, MISSES_AT_ONCE));
    }

    #[test]
    fn what_is_left_at_the_end_of_the_thread_is_dropped() {
        struct Answers(Arc<AtomicUsize>);
        impl Drop for Answers {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let inbox = Arc::new(Inbox::default());
        let (caller, answered) = (caller(), Arc::<AtomicUsize>::default());
        let order = || {
            let answers = Answers(answered.clone());
            Request::Order(Box::new(move |_| drop(answers)))
        };
        let receiver = Receiver(inbox.clone());
        assert!(inbox.request(&caller, order()).is_ok());
        drop(receiver);
        assert!(inbox.request(&caller, order()).is_ok());
        StorageEvents(inbox.clone()).made(&path("/f"), false);
        assert!(!inbox.job(Box::new(|_| {})));
        assert_eq!(answered.load(Ordering::Relaxed), 2);
        assert!(inbox.content().is_empty());
    }
}
