//! Checksums of files on demand.
//!
//! What is stored with a file and still speaks for it is the answer. Otherwise the file is read, in a pool of its own so
//! that neither loops nor other work wait for it; however many ask for the same, it is read once. The result is stored
//! with the file unless somebody has it open for writing.

mod growing;
pub(crate) mod stored;

use crate::config::Checksums as Config;
use crate::describe;
use crate::file_system::done;
use crate::job;
use crate::shared::{Shared, errno, unable};
use base::{Cgi, Error, ErrorKind, LogicalPath};
use digest::{Algorithm, Checksum, Record, Running};
pub(crate) use growing::Growing;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::{Elsewhere, Metadata, OpenHow, Pool};
use vfs::{Answer, Caller, Reply, ReplyTo, Started, Target, Value};

/// Files whose checksums may be wanted at once.
pub(crate) const JOBS_MAX: usize = 10_000;
/// What a client that can wait is told.
const LATER_SECONDS: u32 = 600;
const LATER_TEXT: &str = "Job scheduled.";
/// What a client that cannot is told.
const WAIT_SECONDS: u32 = 30;
/// How often a file is read again because it changed meanwhile.
const ATTEMPTS: usize = 3;
/// ECANCELED.
const CANCELLED: i32 = 125;

type Key = (LogicalPath, Algorithm);

/// All checksums in the making, and those remembered.
pub(crate) struct Checksums {
    config: Config,
    jobs: Mutex<HashMap<Key, Arc<Job>>>,
    /// One for each pool of the storage, so that a hung file system holds up its own checksums only.
    pools: Mutex<HashMap<usize, Arc<Pool>>>,
    pub(crate) memory: stored::Memory,
}

/// One in the making.
struct Job {
    key: Key,
    /// As the client wrote it, for texts.
    path: LogicalPath,
    cancelled: AtomicBool,
    /// Nothing is stored; the file is being read.
    reading: AtomicBool,
    waiting: Mutex<Vec<Waiting>>,
}

/// One who waits for the answer.
struct Waiting {
    reply: Reply,
    takes_later: bool,
}

impl Checksums {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, jobs: Mutex::default(), pools: Mutex::default(), memory: stored::Memory::default() }
    }

    /// The type that `cks.type` names, or the first configured one.
    pub(crate) fn algorithm(&self, cgi: &Cgi) -> Result<Algorithm, Error> {
        let Some(default) = self.config.types.first() else {
            return Err(Error::new(ErrorKind::Unsupported, "query chksum is not supported"));
        };
        let Some(name) = cgi.get("cks.type").filter(|name| !name.is_empty()) else { return Ok(*default) };
        let named = std::str::from_utf8(name).ok().and_then(Algorithm::from_name);
        named.filter(|named| self.config.types.contains(named)).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Error::new(ErrorKind::ServerError, format!("{name} checksum not supported."))
        })
    }

    /// The type that is computed while files are written.
    pub(crate) fn default_type(&self) -> Option<Algorithm> {
        self.config.types.first().copied()
    }

    /// How many are in the making.
    pub(crate) fn count(&self) -> usize {
        self.jobs().len()
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<Key, Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool that reads files of this pool of the storage.
    fn pool(&self, of: &Arc<Pool>) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Arc::as_ptr(of) as usize;
        pools.entry(key).or_insert_with(|| Pool::new("checksum", self.config.concurrent)).clone()
    }

    /// Ends a job: all who wait get the answer.
    fn finish(&self, job: &Arc<Job>, result: &Result<Checksum, Error>) {
        {
            let mut jobs = self.jobs();
            if jobs.get(&job.key).is_some_and(|known| Arc::ptr_eq(known, job)) {
                jobs.remove(&job.key);
            }
        }
        let waiting = std::mem::take(&mut *job.waiting());
        for one in waiting {
            one.reply.send(answer(result));
        }
    }
}

impl Job {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is stored: those who cannot be told to wait for an answer ask again.
    fn send_away(&self, seconds: u32) {
        let mut waiting = self.waiting();
        let (stay, go) = std::mem::take(&mut *waiting).into_iter().partition(|one| one.takes_later);
        *waiting = stay;
        drop(waiting);
        let go: Vec<Waiting> = go;
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

/// The checksum of a file.
pub(crate) fn start(shared: &Arc<Shared>, caller: &Caller, target: Target, reply: &ReplyTo) -> Started {
    let checksums = &shared.checksums;
    let checked = shared.export(&target.path, "Check summing").and_then(|_| checksums.algorithm(&target.cgi));
    let algorithm = match checked {
        Ok(algorithm) => algorithm,
        Err(error) => return done(Err(error)),
    };
    let plain = target.path.without_slash();
    match shared.metadata_now(&target.path, "checksum") {
        Some(Err(error)) => return done(Err(error)),
        Some(Ok(metadata)) => {
            if let Some(checksum) = checksums.memory.get(&plain, algorithm, &metadata)
                && !shared.locks.has_writer(&plain)
            {
                return Started::Done(answer(&Ok(checksum)));
            }
        }
        None => {}
    }
    join(shared, caller, &target.path, (plain, algorithm), reply)
}

/// Waits for the checksum with all others who want it, or starts it.
fn join(shared: &Arc<Shared>, caller: &Caller, path: &LogicalPath, key: Key, reply: &ReplyTo) -> Started {
    let takes_later = caller.takes_later;
    let later = || {
        if takes_later {
            Started::Later { seconds: LATER_SECONDS, text: LATER_TEXT }
        } else {
            Started::Pending
        }
    };
    let mut jobs = shared.checksums.jobs();
    if let Some(job) = jobs.get(&key) {
        if !takes_later && job.reading.load(Ordering::Acquire) {
            let seconds = wait_seconds(shared);
            return Started::Done(Answer::Wait { seconds, text: String::new() });
        }
        job.waiting().push(Waiting { reply: reply.defer(), takes_later });
        return later();
    }
    if jobs.len() >= JOBS_MAX {
        return Started::Done(job::overloaded());
    }
    let job = Arc::new(Job {
        key: key.clone(),
        path: path.clone(),
        cancelled: AtomicBool::new(false),
        reading: AtomicBool::new(false),
        waiting: Mutex::new(vec![Waiting { reply: reply.defer(), takes_later }]),
    });
    jobs.insert(key, job.clone());
    drop(jobs);
    let watch = Watch { shared: shared.clone(), job, done: false };
    let first = move |place: Option<Elsewhere>| watch.run(|shared, job| look_up(shared, job, place));
    // A refused job is dropped, and its watch answers.
    job::at(&shared.backend, path, None, first, || {});
    later()
}

fn wait_seconds(shared: &Shared) -> u32 {
    let most = u32::try_from(shared.config.delay_max.as_secs()).unwrap_or(u32::MAX);
    WAIT_SECONDS.min(most).max(1)
}

/// A step of a job: whatever happens to it, those who wait get an answer.
struct Watch {
    shared: Arc<Shared>,
    job: Arc<Job>,
    done: bool,
}

impl Watch {
    fn run(mut self, step: impl FnOnce(&Arc<Shared>, &Arc<Job>)) {
        step(&self.shared, &self.job);
        self.done = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.done {
            let text = format!("Unable to checksum {}; the work broke off", self.job.path);
            self.shared.checksums.finish(&self.job, &Err(Error::new(ErrorKind::ServerError, text)));
        }
    }
}

/// First step: is there a stored one? Else the file must be read.
fn look_up(shared: &Arc<Shared>, job: &Arc<Job>, place: Option<Elsewhere>) {
    match find_stored(shared, job) {
        Ok(None) => {
            job.reading.store(true, Ordering::Release);
            job.send_away(wait_seconds(shared));
            let of = place.map_or_else(|| shared.backend.pool(&job.key.0).clone(), |place| place.pool);
            let watch = Watch { shared: shared.clone(), job: job.clone(), done: false };
            let read = move || {
                watch.run(|shared, job| {
                    let result = compute(shared, job);
                    shared.checksums.finish(job, &result);
                });
            };
            drop(shared.checksums.pool(&of).run(Box::new(read)));
        }
        Ok(Some(checksum)) => shared.checksums.finish(job, &Ok(checksum)),
        Err(error) => shared.checksums.finish(job, &Err(error)),
    }
}

fn check(job: &Job, metadata: &Metadata) -> Result<(), Error> {
    if describe::is_directory(metadata) {
        return Err(unable("checksum", &job.path, errno::IS_A_DIRECTORY));
    }
    if describe::is_pending(metadata) {
        return Err(unable("checksum", &job.path, errno::TEXT_BUSY));
    }
    Ok(())
}

fn find_stored(shared: &Shared, job: &Job) -> Result<Option<Checksum>, Error> {
    let metadata = shared.metadata(&job.path, "checksum")?;
    check(job, &metadata)?;
    let (path, algorithm) = &job.key;
    if shared.locks.has_writer(path) {
        return Ok(None);
    }
    let raw = shared.backend.attribute(path, &Record::attribute(*algorithm)).unwrap_or_default();
    let found = raw.and_then(|raw| stored::valid(&raw, *algorithm, &metadata));
    if let Some(checksum) = found {
        shared.checksums.memory.put(path, &metadata, checksum);
    }
    Ok(found)
}

/// Second step: reads the file.
fn compute(shared: &Arc<Shared>, job: &Arc<Job>) -> Result<Checksum, Error> {
    let fail = |error: io::Error| Error::unable("checksum", &job.path, error);
    let (path, algorithm) = &job.key;
    shared.checkpoints.check_open(path, false).map_err(fail)?;
    let file = shared.backend.open(path, &OpenHow::default()).map_err(fail)?;
    let mut buffer = vec![0; shared.checksums.config.read_bytes.max(4096)];
    for _ in 0..ATTEMPTS {
        let before = file.stat().map_err(fail)?;
        check(job, &before)?;
        let mut running = Running::new(*algorithm);
        let mut offset = 0;
        loop {
            if job.cancelled.load(Ordering::Acquire) {
                return Err(unable("checksum", &job.path, CANCELLED));
            }
            let read = file.read(offset, &mut buffer).map_err(fail)?;
            running.update(buffer.get(..read).unwrap_or_default());
            offset += read as u64;
            if read < buffer.len() {
                break;
            }
        }
        let after = file.stat().map_err(fail)?;
        if stored::is_unchanged(&before, &after) && offset == after.size {
            let checksum = running.finish();
            // While somebody writes, what is stored could be outdated within the resolution of times.
            if !shared.locks.has_writer(path) {
                stored::store(shared, path, file.as_ref(), &after, checksum);
            }
            return Ok(checksum);
        }
    }
    Err(unable("checksum", &job.path, errno::TEXT_BUSY))
}

/// Cancels those in the making for a path: of the type in `cks.type`, or of all types.
pub(crate) fn cancel(shared: &Arc<Shared>, target: &Target) -> Started {
    if let Err(error) = shared.export(&target.path, "Check summing") {
        return done(Err(error));
    }
    let plain = target.path.without_slash();
    let named = target.cgi.text("cks.type").filter(|name| !name.is_empty());
    let concerned: Vec<Arc<Job>> = shared
        .checksums
        .jobs()
        .values()
        .filter(|job| {
            let (path, algorithm) = &job.key;
            *path == plain && named.is_none_or(|name| name.eq_ignore_ascii_case(algorithm.name()))
        })
        .cloned()
        .collect();
    for job in concerned {
        // The reading stops at its next piece; nobody waits for that.
        job.cancelled.store(true, Ordering::Release);
        shared.checksums.finish(&job, &Err(unable("checksum", &job.path, CANCELLED)));
    }
    done(Ok(Value::Nothing))
}
