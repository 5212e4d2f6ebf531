//! The checksums in progress, and the clients that wait for them.

use super::stored::ChecksumCache;
use crate::checkpoint::CheckpointTable;
use crate::config::Checksums as Config;
use crate::describe;
use crate::errno::{self, unable};
use crate::exports::ExportTable;
use crate::job::{self, WaitingClient};
use crate::open_table::OpenTable;
use crate::wholeness::{Wholeness, WholenessRule};
use base::{Clock, Error, ErrorKind, LogicalPath};
use digest::{Algorithm, Checksum};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::{Backend, Metadata, Pool};
use vfs::{Answer, Caller, Value};

/// A file without a trailing slash in its path, and the algorithm.
pub(super) type ChecksumKey = (LogicalPath, Algorithm);

/// All checksums in progress, and the cache of recent ones.
pub(crate) struct ChecksumService {
    pub(super) services: ChecksumServices,
    jobs: Mutex<HashMap<ChecksumKey, Arc<ChecksumJob>>>,
    /// One pool for each pool of the storage, so that a hung file system delays only its own
    /// checksums.
    pools: Arc<Mutex<HashMap<usize, Arc<Pool>>>>,
    pub(crate) memory: Arc<ChecksumCache>,
}

/// The components that checksums use.
pub(crate) struct ChecksumServices {
    pub(crate) config: Config,
    /// All clients have the same rights, so that a cached checksum may be returned to any of them
    /// without opening the file.
    pub(crate) shares_results: bool,
    /// Maximum time after which a client is asked to retry.
    pub(crate) delay_max: Duration,
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) open_table: Arc<OpenTable>,
    pub(crate) checkpoints: Arc<CheckpointTable>,
    pub(crate) wholeness: Arc<WholenessRule>,
}

/// A checksum in progress.
pub(super) struct ChecksumJob {
    pub(super) key: ChecksumKey,
    /// The path as the client wrote it, for error texts.
    pub(super) path: LogicalPath,
    cancelled: AtomicBool,
    /// Set when no stored checksum was found and the file is being read.
    reading: AtomicBool,
    clients: Mutex<ChecksumClients>,
}

/// The clients that wait for a checksum. When none is left, reading stops.
#[derive(Default)]
pub(super) struct ChecksumClients {
    pub(super) waiting: Vec<WaitingClient>,
    /// Clients that were asked to retry later.
    returning: Vec<Arc<Caller>>,
}

impl ChecksumClients {
    pub(super) fn will_return(&mut self, caller: &Arc<Caller>) {
        // Each request with a token has a caller of its own, but a session is listed once.
        self.returning.retain(|known| !known.is_disconnected() && !known.is_of_session_of(caller));
        self.returning.push(caller.clone());
    }

    /// Removes the clients that have left and returns those whose requests were waiting.
    fn remove_left(&mut self) -> Vec<WaitingClient> {
        self.returning.retain(|caller| !caller.is_disconnected());
        self.waiting.extract_if(.., |one| one.caller.is_disconnected()).collect()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.returning.is_empty()
    }
}

impl ChecksumService {
    pub(crate) fn new(services: ChecksumServices) -> Self {
        Self { services, jobs: Mutex::default(), pools: Arc::default(), memory: Arc::default() }
    }

    /// Returns the service for files as an account sees them. It shares threads with this one, but no
    /// job. A cached checksum is returned if the account may read the file.
    pub(crate) fn for_account(&self, backend: &Arc<dyn Backend>, wholeness: &Arc<WholenessRule>) -> Self {
        let services = &self.services;
        let services = ChecksumServices {
            config: services.config.clone(),
            shares_results: false,
            delay_max: services.delay_max,
            exports: services.exports.clone(),
            backend: backend.clone(),
            clock: services.clock.clone(),
            open_table: services.open_table.clone(),
            checkpoints: services.checkpoints.clone(),
            wholeness: wholeness.clone(),
        };
        Self { services, jobs: Mutex::default(), pools: self.pools.clone(), memory: self.memory.clone() }
    }

    /// Returns the number of checksums in progress.
    pub(crate) fn count(&self) -> usize {
        self.jobs().len()
    }

    pub(super) fn jobs(&self) -> MutexGuard<'_, HashMap<ChecksumKey, Arc<ChecksumJob>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pool that reads the files of this storage pool.
    pub(super) fn pool(&self, of: &Arc<Pool>) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Arc::as_ptr(of) as usize;
        pools
            .entry(key)
            .or_insert_with(|| Pool::for_long_work("checksum", self.services.config.concurrent))
            .clone()
    }

    /// Ends a job and answers all its clients.
    pub(super) fn finish(&self, job: &Arc<ChecksumJob>, result: &Result<Checksum, Error>) {
        forget(&mut self.jobs(), job);
        let clients = std::mem::take(&mut *job.clients());
        for one in clients.waiting {
            one.reply.send(answer(result));
        }
    }

    /// Removes a job if all its clients have left; returns whether it was removed. A later request
    /// starts a new job.
    fn forget_unwanted(&self, job: &Arc<ChecksumJob>) -> bool {
        // No client can join while the table is locked.
        let mut jobs = self.jobs();
        let mut clients = job.clients();
        let left = clients.remove_left();
        let is_unwanted = clients.is_empty();
        if is_unwanted {
            forget(&mut jobs, job);
        }
        drop((clients, jobs));
        for one in left {
            one.reply.send(job::disconnected_answer());
        }
        is_unwanted
    }
}

fn forget(jobs: &mut HashMap<ChecksumKey, Arc<ChecksumJob>>, job: &Arc<ChecksumJob>) {
    if jobs.get(&job.key).is_some_and(|known| Arc::ptr_eq(known, job)) {
        jobs.remove(&job.key);
    }
}

impl ChecksumJob {
    /// Creates a job with its first client.
    pub(super) fn new(key: ChecksumKey, path: &LogicalPath, client: WaitingClient) -> Self {
        Self {
            key,
            path: path.clone(),
            cancelled: AtomicBool::new(false),
            reading: AtomicBool::new(false),
            clients: Mutex::new(ChecksumClients { waiting: vec![client], returning: Vec::new() }),
        }
    }

    /// Reports whether the file is being read.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.load(Ordering::Acquire)
    }

    /// Records that no stored checksum was found and the file is being read.
    pub(super) fn set_reading(&self) {
        self.reading.store(true, Ordering::Release);
    }

    /// Stops reading before the next step. No one waits for that.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub(super) fn clients(&self) -> MutexGuard<'_, ChecksumClients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks clients that do not accept a deferred reply to retry later, because the file has to be
    /// read.
    pub(super) fn ask_to_retry(&self, seconds: u32) {
        let mut clients = self.clients();
        let go: Vec<WaitingClient> =
            clients.waiting.extract_if(.., |one| !one.caller.accepts_deferred_reply).collect();
        go.iter().for_each(|one| clients.will_return(&one.caller));
        drop(clients);
        for one in go {
            one.reply.send(Answer::Wait { seconds, text: String::new() });
        }
    }
}

/// Returns the answer to the clients of a checksum.
pub(super) fn answer(result: &Result<Checksum, Error>) -> Answer {
    match result {
        Ok(checksum) => Answer::Value(Value::Checksum {
            algorithm: checksum.algorithm().name().into(),
            hex: checksum.hex(),
        }),
        Err(error) => Answer::error(error.kind, error.text.clone()),
    }
}

/// Guards a job: its clients get an answer even if the job panics or is dropped.
pub(super) struct ChecksumGuard {
    pub(super) checksums: Arc<ChecksumService>,
    pub(super) job: Arc<ChecksumJob>,
    done: bool,
}

impl ChecksumGuard {
    pub(super) fn new(checksums: &Arc<ChecksumService>, job: &Arc<ChecksumJob>) -> Self {
        Self { checksums: checksums.clone(), job: job.clone(), done: false }
    }

    /// Answers all clients.
    pub(super) fn finish(&mut self, result: &Result<Checksum, Error>) {
        self.done = true;
        self.checksums.finish(&self.job, result);
    }

    /// Reports whether the job was cancelled, or all clients have left.
    pub(super) fn is_unwanted(&self) -> bool {
        self.job.cancelled.load(Ordering::Acquire) || self.checksums.forget_unwanted(&self.job)
    }

    pub(super) fn run(mut self, step: impl FnOnce(&Arc<ChecksumService>, &Arc<ChecksumJob>)) {
        step(&self.checksums, &self.job);
        self.done = true;
    }
}

impl Drop for ChecksumGuard {
    fn drop(&mut self) {
        if !self.done {
            let text = format!(
                "Unable to checksum {}; an internal error ended the computation",
                self.job.path.text()
            );
            self.checksums.finish(&self.job, &Err(Error::new(ErrorKind::ServerError, text)));
        }
    }
}

/// Checks that a file has a checksum: it is complete and no directory.
pub(super) fn check(
    services: &ChecksumServices,
    job: &ChecksumJob,
    metadata: &Metadata,
) -> Result<(), Error> {
    if describe::is_directory(metadata) {
        return Err(unable("checksum", &job.path, errno::IS_A_DIRECTORY));
    }
    if services.wholeness.at(&job.key.0, metadata) != Wholeness::Whole {
        return Err(unable("checksum", &job.path, errno::TEXT_BUSY));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use base::{Identity, LoginNames};

    /// Requests with tokens have callers of their own, and one session can send many of them while a
    /// large file is read.
    #[test]
    fn a_session_that_will_return_is_listed_once() {
        let caller =
            || Arc::new(Caller::new(Identity::new(&LoginNames::default(), 1, None, "h"), false, false));
        let (one, other) = (caller(), caller());
        let mut clients = ChecksumClients::default();
        for session in [&one, &other] {
            clients.will_return(session);
            for name in ["alice", "bob"] {
                clients.will_return(&Arc::new(session.with_request_name(name)));
            }
        }
        assert_eq!(clients.returning.len(), 2);
        one.disconnect();
        other.disconnect();
        assert!(clients.remove_left().is_empty() && clients.is_empty());
    }
}
