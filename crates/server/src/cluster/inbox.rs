//! The work queue of the cluster thread ([`cluster::WorkQueue`]) behind a lock, with a notification
//! that wakes the thread.

use super::engine::ClusterEngine;
use super::pending_requests::{AnswerCallback, LocationQuery};
use super::server_files::StatResult;
use base::LogicalPath;
use cluster::WorkQueue;
use logical::Events;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use vfs::Caller;

/// Work that is done on the cluster thread.
pub(super) type Job = Box<dyn FnOnce(&mut ClusterEngine) + Send>;

/// The request of a client to the cluster thread.
pub(super) enum InboxRequest {
    /// A location query.
    Ask {
        /// The path.
        path: Box<[u8]>,
        /// The kind of the query.
        query: LocationQuery,
        /// The client.
        caller: Arc<Caller>,
        /// Receives the answer.
        tell: AnswerCallback,
    },
    /// An operation, which produces its own answer.
    Order(Job),
}

impl InboxRequest {
    fn bytes(&self) -> usize {
        match self {
            Self::Ask { path, query: LocationQuery::Select { tried, .. }, .. } => path.len() + tried.len(),
            Self::Ask { path, .. } => path.len(),
            Self::Order(_) => 0,
        }
    }
}

/// The work that the thread takes in one turn.
#[derive(Default)]
pub(super) struct InboxBatch {
    pub(super) work: cluster::WorkBatch<StatResult, Job, InboxRequest>,
    /// Set if the thread must end.
    pub(super) is_stopped: bool,
}

/// Work for the cluster thread.
#[derive(Default)]
pub(super) struct Inbox {
    content: Mutex<InboxContent>,
    wake: Notify,
}

#[derive(Default)]
struct InboxContent {
    work: WorkQueue<StatResult, Job, InboxRequest>,
    is_stopped: bool,
    /// Set if the thread has ended.
    is_closed: bool,
}

impl Inbox {
    fn content(&self) -> MutexGuard<'_, InboxContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job of this process. Returns `false` if the thread cannot take it.
    pub(super) fn job(&self, job: Job) -> bool {
        let mut content = self.content();
        let refused = if content.is_closed { Some(job) } else { content.work.add_job(job).err() };
        drop(content);
        self.wake.notify_one();
        refused.is_none()
    }

    /// Adds the request of a client. Returns it if the queue is full. A request that arrives after
    /// the end of the thread is dropped, which answers it.
    pub(super) fn request(&self, caller: &Arc<Caller>, request: InboxRequest) -> Result<(), InboxRequest> {
        // The address identifies the client for as long as one of its requests is queued.
        let client = Arc::as_ptr(caller) as usize;
        let bytes = request.bytes();
        let mut content = self.content();
        if content.is_closed {
            drop(content);
            return Ok(());
        }
        content.work.add_request(client, bytes, request)?;
        drop(content);
        self.wake.notify_one();
        Ok(())
    }

    /// Adds the results of disk look-ups.
    pub(super) fn add_stats(&self, looked: Vec<StatResult>) {
        self.change(|content| content.work.add_looked(looked));
    }

    /// Records that name changes were lost.
    pub(super) fn names_lost(&self) {
        self.change(|content| content.work.names_lost());
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.change(|content| content.is_stopped = true);
    }

    fn change(&self, change: impl FnOnce(&mut InboxContent)) {
        let mut content = self.content();
        if !content.is_closed {
            change(&mut content);
        }
        drop(content);
        self.wake.notify_one();
    }

    /// Takes the next work of all classes, fewer requests if frames of nodes wait.
    pub(super) fn take(&self, turn: &mut InboxBatch, frames_wait: bool) {
        let mut content = self.content();
        content.work.take(&mut turn.work, frames_wait);
        turn.is_stopped |= content.is_stopped;
    }

    /// Waits until there is work.
    pub(super) async fn wait(&self) {
        let is_idle = |content: MutexGuard<'_, InboxContent>| content.work.is_empty() && !content.is_stopped;
        while is_idle(self.content()) {
            self.wake.notified().await;
        }
    }

    fn close(&self) {
        let left = {
            let mut content = self.content();
            std::mem::replace(&mut *content, InboxContent { is_closed: true, ..InboxContent::default() })
        };
        // This happens outside of the lock, because requests that are dropped answer.
        drop(left);
    }
}

/// Closes the inbox when the thread ends, for any reason.
pub(super) struct Receiver(pub(super) Arc<Inbox>);

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Receives name changes, on any thread.
pub(super) struct StorageEvents(pub(super) Arc<Inbox>);

impl Events for StorageEvents {
    fn created(&self, path: &LogicalPath, _pending: bool) {
        self.0.change(|content| content.work.name_changed(path));
    }

    fn removed(&self, path: &LogicalPath) {
        self.0.change(|content| content.work.name_changed(path));
    }

    fn missing(&self, path: &LogicalPath) {
        self.0.change(|content| content.work.name_missed(path));
    }

    fn moved(&self, _: &LogicalPath, _: &LogicalPath) {
        self.0.names_lost();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn caller() -> Arc<Caller> {
        let told = base::LoginNames { user: "u", host: "h", ..base::LoginNames::default() };
        Arc::new(Caller::new(base::Identity::new(&told, 1, None, "host"), true, false))
    }

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
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
            InboxRequest::Order(Box::new(move |_| drop(answers)))
        };
        let receiver = Receiver(inbox.clone());
        assert!(inbox.request(&caller, order()).is_ok());
        drop(receiver);
        assert!(inbox.request(&caller, order()).is_ok());
        StorageEvents(inbox.clone()).created(&path("/f"), false);
        assert!(!inbox.job(Box::new(|_| {})));
        assert_eq!(answered.load(Ordering::Relaxed), 2);
        assert!(inbox.content().work.is_empty());
    }
}
