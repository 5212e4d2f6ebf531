//! Checksums of files on demand.
//!
//! A stored checksum is returned if it is still valid. Otherwise the file is read in a separate
//! pool, so that neither event loops nor other work wait for it. Concurrent requests for the same
//! checksum share one read. The result is stored with the file unless a client has it open for
//! writing. A file is read in steps ([`reading`]), and reading stops when all clients that
//! requested the checksum have left.

mod growing;
mod reading;
pub(crate) mod stored;
mod types;

use crate::checkpoint::CheckpointTable;
use crate::config::Checksums as Config;
use crate::describe;
use crate::errno::{self, unable};
use crate::exports::ExportTable;
use crate::job::{self, WaitingClient, done};
use crate::lookup::{metadata, metadata_now};
use crate::open_table::OpenTable;
use crate::wholeness::{Wholeness, WholenessRule};
use base::{Clock, Error, ErrorKind, LogicalPath};
use digest::{Algorithm, Checksum, ChecksumRecord};
pub(crate) use growing::GrowingChecksum;
use reading::ChecksumReading;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::{Backend, Metadata, Pool, WorkPlacement};
use vfs::{Answer, Caller, ReplyTo, Started, Target, Value};

/// Maximum number of checksums in progress.
pub(crate) const JOBS_MAX: usize = 10_000;
/// The reply to a client that accepts a deferred reply.
const LATER_SECONDS: u32 = 600;
const LATER_TEXT: &str = "Job scheduled.";
/// The reply to other clients.
const WAIT_SECONDS: u32 = 30;

type Key = (LogicalPath, Algorithm);

/// All checksums in progress, and the cache of recent ones.
pub(crate) struct ChecksumService {
    services: ChecksumServices,
    jobs: Mutex<HashMap<Key, Arc<ChecksumJob>>>,
    /// One pool for each pool of the storage, so that a hung file system delays only its own
    /// checksums.
    pools: Mutex<HashMap<usize, Arc<Pool>>>,
    pub(crate) memory: stored::ChecksumCache,
}

/// The components that checksums use.
pub(crate) struct ChecksumServices {
    pub(crate) config: Config,
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
struct ChecksumJob {
    key: Key,
    /// The path as the client wrote it, for error texts.
    path: LogicalPath,
    cancelled: AtomicBool,
    /// Set when no stored checksum was found and the file is being read.
    reading: AtomicBool,
    clients: Mutex<ChecksumClients>,
}

/// The clients that wait for a checksum. When none is left, reading stops.
#[derive(Default)]
struct ChecksumClients {
    waiting: Vec<WaitingClient>,
    /// Clients that were asked to retry later.
    returning: Vec<Arc<Caller>>,
}

impl ChecksumClients {
    fn will_return(&mut self, caller: &Arc<Caller>) {
        self.returning.retain(|known| !known.is_disconnected() && !Arc::ptr_eq(known, caller));
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
        Self {
            services,
            jobs: Mutex::default(),
            pools: Mutex::default(),
            memory: stored::ChecksumCache::default(),
        }
    }

    /// Returns the number of checksums in progress.
    pub(crate) fn count(&self) -> usize {
        self.jobs().len()
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<Key, Arc<ChecksumJob>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pool that reads the files of this storage pool.
    fn pool(&self, of: &Arc<Pool>) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Arc::as_ptr(of) as usize;
        pools
            .entry(key)
            .or_insert_with(|| Pool::for_long_work("checksum", self.services.config.concurrent))
            .clone()
    }

    /// Ends a job and answers all its clients.
    fn finish(&self, job: &Arc<ChecksumJob>, result: &Result<Checksum, Error>) {
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

fn forget(jobs: &mut HashMap<Key, Arc<ChecksumJob>>, job: &Arc<ChecksumJob>) {
    if jobs.get(&job.key).is_some_and(|known| Arc::ptr_eq(known, job)) {
        jobs.remove(&job.key);
    }
}

impl ChecksumJob {
    fn clients(&self) -> MutexGuard<'_, ChecksumClients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks clients that do not accept a deferred reply to retry later, because the file has to be
    /// read.
    fn ask_to_retry(&self, seconds: u32) {
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

fn answer(result: &Result<Checksum, Error>) -> Answer {
    match result {
        Ok(checksum) => Answer::Value(Value::Checksum {
            algorithm: checksum.algorithm().name().into(),
            hex: checksum.hex(),
        }),
        Err(error) => Answer::error(error.kind, error.text.clone()),
    }
}

/// Starts a request for the checksum of a file.
pub(crate) fn start(
    checksums: &Arc<ChecksumService>,
    caller: &Arc<Caller>,
    target: Target,
    reply: &ReplyTo,
) -> Started {
    let services = &checksums.services;
    let checked = services.exports.find(&target.path, "Check summing");
    let checked = checked.and_then(|_| services.config.algorithm(&target.cgi));
    let algorithm = match checked {
        Ok(algorithm) => algorithm,
        Err(error) => return done(Err(error)),
    };
    let plain = target.path.without_slash();
    match metadata_now(services.backend.as_ref(), &target.path, "checksum") {
        Some(Err(error)) => return done(Err(error)),
        Some(Ok(metadata)) => {
            if let Some(checksum) = checksums.memory.get(algorithm, &metadata)
                && !services.open_table.has_writer(&plain, &metadata)
            {
                return Started::Done(answer(&Ok(checksum)));
            }
        }
        None => {}
    }
    join(checksums, caller, &target.path, (plain, algorithm), reply)
}

/// Joins the job that computes the checksum, or starts it.
fn join(
    checksums: &Arc<ChecksumService>,
    caller: &Arc<Caller>,
    path: &LogicalPath,
    key: Key,
    reply: &ReplyTo,
) -> Started {
    let defers = caller.accepts_deferred_reply;
    let later = || {
        if defers { Started::Later { seconds: LATER_SECONDS, text: LATER_TEXT } } else { Started::Pending }
    };
    let mut jobs = checksums.jobs();
    if let Some(job) = jobs.get(&key) {
        if !defers && job.reading.load(Ordering::Acquire) {
            job.clients().will_return(caller);
            let seconds = wait_seconds(checksums);
            return Started::Done(Answer::Wait { seconds, text: String::new() });
        }
        job.clients().waiting.push(WaitingClient::new(caller, reply));
        return later();
    }
    if jobs.len() >= JOBS_MAX {
        return Started::Done(job::overloaded());
    }
    let job = Arc::new(ChecksumJob {
        key: key.clone(),
        path: path.clone(),
        cancelled: AtomicBool::new(false),
        reading: AtomicBool::new(false),
        clients: Mutex::default(),
    });
    job.clients().waiting.push(WaitingClient::new(caller, reply));
    jobs.insert(key, job.clone());
    drop(jobs);
    let watch = ChecksumGuard::new(checksums, &job);
    let first =
        move |place: Option<WorkPlacement>| watch.run(|checksums, job| look_up(checksums, job, place));
    // A refused job is dropped, and its watch answers the clients.
    job::run_where_blocking(&checksums.services.backend, reply.owner(), path, None, first, || {});
    later()
}

fn wait_seconds(checksums: &ChecksumService) -> u32 {
    let most = u32::try_from(checksums.services.delay_max.as_secs()).unwrap_or(u32::MAX);
    WAIT_SECONDS.min(most).max(1)
}

/// Guards a job: its clients get an answer even if the job panics or is dropped.
struct ChecksumGuard {
    checksums: Arc<ChecksumService>,
    job: Arc<ChecksumJob>,
    done: bool,
}

impl ChecksumGuard {
    fn new(checksums: &Arc<ChecksumService>, job: &Arc<ChecksumJob>) -> Self {
        Self { checksums: checksums.clone(), job: job.clone(), done: false }
    }

    /// Answers all clients.
    fn finish(&mut self, result: &Result<Checksum, Error>) {
        self.done = true;
        self.checksums.finish(&self.job, result);
    }

    /// Reports whether the job was cancelled, or all clients have left.
    fn is_unwanted(&self) -> bool {
        self.job.cancelled.load(Ordering::Acquire) || self.checksums.forget_unwanted(&self.job)
    }

    fn run(mut self, step: impl FnOnce(&Arc<ChecksumService>, &Arc<ChecksumJob>)) {
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

/// Looks for a stored checksum, and otherwise starts reading the file.
fn look_up(checksums: &Arc<ChecksumService>, job: &Arc<ChecksumJob>, place: Option<WorkPlacement>) {
    match find_stored(checksums, job) {
        Ok(None) => {
            job.reading.store(true, Ordering::Release);
            job.ask_to_retry(wait_seconds(checksums));
            let of =
                place.map_or_else(|| checksums.services.backend.pool(&job.key.0).clone(), |place| place.pool);
            let reading = Box::new(ChecksumReading::new(checksums, job));
            checksums.pool(&of).start(Pool::current_owner(), reading);
        }
        Ok(Some(checksum)) => checksums.finish(job, &Ok(checksum)),
        Err(error) => checksums.finish(job, &Err(error)),
    }
}

fn check(services: &ChecksumServices, job: &ChecksumJob, metadata: &Metadata) -> Result<(), Error> {
    if describe::is_directory(metadata) {
        return Err(unable("checksum", &job.path, errno::IS_A_DIRECTORY));
    }
    if services.wholeness.at(&job.key.0, metadata) != Wholeness::Whole {
        return Err(unable("checksum", &job.path, errno::TEXT_BUSY));
    }
    Ok(())
}

fn find_stored(checksums: &ChecksumService, job: &ChecksumJob) -> Result<Option<Checksum>, Error> {
    let services = &checksums.services;
    let metadata = metadata(services.backend.as_ref(), &job.path, "checksum")?;
    check(services, job, &metadata)?;
    let (path, algorithm) = &job.key;
    if services.open_table.has_writer(path, &metadata) {
        return Ok(None);
    }
    let raw = services.backend.attribute(path, &ChecksumRecord::attribute(*algorithm)).unwrap_or_default();
    let found = raw.and_then(|raw| stored::valid(&raw, *algorithm, &metadata));
    if let Some(checksum) = found {
        checksums.memory.put(&metadata, checksum);
    }
    Ok(found)
}

/// Cancels the checksums in progress for a path: those of the type in `cks.type`, or of all types.
pub(crate) fn cancel(checksums: &Arc<ChecksumService>, target: &Target) -> Started {
    if let Err(error) = checksums.services.exports.find(&target.path, "Check summing") {
        return done(Err(error));
    }
    let plain = target.path.without_slash();
    let named = target.cgi.text("cks.type").filter(|name| !name.is_empty());
    let concerned: Vec<Arc<ChecksumJob>> = checksums
        .jobs()
        .values()
        .filter(|job| {
            let (path, algorithm) = &job.key;
            *path == plain && named.is_none_or(|name| name.eq_ignore_ascii_case(algorithm.name()))
        })
        .cloned()
        .collect();
    for job in concerned {
        // Reading stops before its next step; no one waits for that.
        job.cancelled.store(true, Ordering::Release);
        checksums.finish(&job, &Err(unable("checksum", &job.path, errno::CANCELLED)));
    }
    done(Ok(Value::Nothing))
}
