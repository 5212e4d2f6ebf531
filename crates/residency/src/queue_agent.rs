//! [`QueueAgent`]: adds requests to the durable queue beside the process that executes them, or without one.

use crate::entry::{CopyFailure, RequestId};
use crate::notification::RequestNotice;
use crate::queue::{QueueLimits, Submission, TransferQueue};
use crate::queue_thread::{AppliedCommand, Command, apply};
use crate::queue_wake::wake;
use crate::sqlite_store::{SqliteStore, StoreError, StoreOpenError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use storage::PrivateDirectory;

/// A writer of the queue that executes nothing.
pub struct QueueAgent {
    directory: PathBuf,
    store: SqliteStore,
    queue: TransferQueue,
}

impl QueueAgent {
    /// Opens the queue in a directory, and creates it if it is missing.
    pub fn open(directory: &Path, limits: QueueLimits) -> Result<Self, StoreOpenError> {
        let fail = |error: io::Error| StoreOpenError::Directory { directory: directory.to_owned(), error };
        let place = PrivateDirectory::create(directory).map_err(fail)?;
        let store = SqliteStore::open(&place)?;
        Ok(Self { directory: directory.to_owned(), store, queue: TransferQueue::new(limits) })
    }

    /// Records requests, all or none of them. They are durable at the return. `Some` is the reason for which
    /// they are refused. `notice` are the notifications that the request of all of them wants.
    pub fn submit(
        &mut self,
        submissions: Vec<Submission>,
        notice: Option<RequestNotice>,
    ) -> Result<Option<CopyFailure>, StoreError> {
        let submit = Command::Submit(submissions, notice, Box::new(|_| {}));
        let mut applied = self.apply_all(std::iter::once(&submit))?;
        match applied.pop().unwrap_or(AppliedCommand::Done) {
            AppliedCommand::Refused(failure) => Ok(Some(failure)),
            _ => {
                self.wake();
                Ok(None)
            }
        }
    }

    /// Cancels a request. Copies that nobody else wants are ended by the process that executes them.
    pub fn cancel(&mut self, request: RequestId) -> Result<(), StoreError> {
        self.apply_all([&Command::Cancel(request, Box::new(|_| {}))].into_iter())?;
        self.wake();
        Ok(())
    }

    /// Has the queue read by the process that executes it.
    pub fn wake(&self) {
        wake(&self.directory);
    }

    fn apply_all<'c>(
        &mut self,
        commands: impl Iterator<Item = &'c Command> + Clone,
    ) -> Result<Vec<AppliedCommand>, StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (queue, mut ignored) = (&mut self.queue, Vec::new());
        self.store.transaction(|store| {
            commands.map(|command| apply(queue, store, command, now, &mut ignored)).collect()
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use crate::entry::{EntryKey, Priority, TransferDirection};
    use base::LogicalPath;

    const LIMITS: QueueLimits = QueueLimits {
        slots_in: 1,
        slots_out: 1,
        slots_of_source: 1,
        slots_of_owner: 1,
        places: 1000,
        tries_max: 1,
        backoff: 1,
        deny: 1,
        failures_kept: 1,
    };

    fn submission(request: &str, path: &str) -> Submission {
        Submission {
            key: EntryKey {
                direction: TransferDirection::In,
                path: LogicalPath::parse(path.as_bytes()).unwrap(),
            },
            priority: Priority::new(0),
            source: "".into(),
            client: "test".into(),
            owner: "test".into(),
            request: Some(RequestId(request.into())),
            removes: false,
        }
    }

    #[test]
    fn a_large_request_is_recorded_with_all_of_its_files_or_not_at_all() {
        let path = std::env::temp_dir().join(format!("residency-large-request-{}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        let mut agent = QueueAgent::open(&path, QueueLimits { places: 100, ..LIMITS }).unwrap();
        let mut submit = |request: &str, number: usize| {
            let files = (0..number).map(|number| submission(request, &format!("/f{number}")));
            agent.submit(files.collect(), None).unwrap()
        };
        let recorded = || crate::list_queue(&path, usize::MAX).unwrap().len();
        // Each of them leaves one place less to the next one.
        for number in [100, 80, 51] {
            assert!(submit("r", number).is_some(), "{number}");
            assert_eq!(recorded(), 0);
        }
        assert_eq!(submit("r", 50), None);
        assert_eq!(recorded(), 50);
        // Those that are there need no place.
        assert_eq!(submit("again", 50), None);
        assert!(submit("more", 51).is_some());
        assert_eq!(recorded(), 50);
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn agents_that_begin_at_once_lose_no_request() {
        let path = std::env::temp_dir().join(format!("residency-queue-agent-{}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        let add = |number: usize| {
            let mut agent = QueueAgent::open(&path, LIMITS).unwrap();
            for file in 0..10 {
                let name = format!("/{number}/{file}");
                let owner = format!("test{number}").into();
                let submission = Submission { owner, ..submission(&name, &name) };
                assert_eq!(agent.submit(vec![submission], None).unwrap(), None);
            }
        };
        std::thread::scope(|scope| {
            let add = &add;
            let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || add(number))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(crate::list_queue(&path, usize::MAX).unwrap().len(), 80);
        let counts = crate::count_queue(&path).unwrap();
        let (inward, outward) = (counts.inward, counts.outward);
        let unfinished = |of: crate::DirectionCounts| of.queued + of.running + of.stopping;
        assert_eq!(unfinished(inward) + inward.failed + unfinished(outward) + outward.failed, 80);
        let mut agent = QueueAgent::open(&path, LIMITS).unwrap();
        agent.cancel(RequestId("/3/4".into())).unwrap();
        assert_eq!(crate::list_queue(&path, usize::MAX).unwrap().len(), 79);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
