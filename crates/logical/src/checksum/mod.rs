//! Checksums of files on demand.
//!
//! A stored checksum is returned if it is still valid. Otherwise the file is read in a separate
//! pool, so that neither event loops nor other work wait for it. Concurrent requests for the same
//! checksum share one read. The result is stored with the file unless a client has it open for
//! writing. A file is read in steps ([`reading`]), and reading stops when all clients that
//! requested the checksum have left.

mod growing;
mod reading;
mod service;
pub(crate) mod stored;
mod types;

use crate::errno::{self, unable};
use crate::job::{self, WaitingClient, done};
use crate::lookup::{metadata, metadata_now};
use base::{Error, LogicalPath};
use digest::{Algorithm, Checksum, ChecksumRecord};
pub(crate) use growing::GrowingChecksum;
use reading::ChecksumReading;
use service::{ChecksumGuard, ChecksumJob, ChecksumKey, answer, check};
pub(crate) use service::{ChecksumService, ChecksumServices};
use std::sync::Arc;
use storage::{OpenMode, Pool, WorkPlacement};
use vfs::{Answer, Caller, ReplyTo, Started, Target, Value};

/// Maximum number of checksums in progress.
pub(crate) const JOBS_MAX: usize = 10_000;
/// The reply to a client that accepts a deferred reply.
const LATER_SECONDS: u32 = 600;
const LATER_TEXT: &str = "Job scheduled.";
/// The reply to other clients.
const WAIT_SECONDS: u32 = 30;

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
            if services.shares_results
                && let Some(checksum) = checksums.memory.get(algorithm, &metadata)
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
    key: ChecksumKey,
    reply: &ReplyTo,
) -> Started {
    let defers = caller.accepts_deferred_reply;
    let later = || {
        if defers { Started::Later { seconds: LATER_SECONDS, text: LATER_TEXT } } else { Started::Pending }
    };
    let mut jobs = checksums.jobs();
    if let Some(job) = jobs.get(&key) {
        if !defers && job.is_reading() {
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
    let job = Arc::new(ChecksumJob::new(key.clone(), path, WaitingClient::new(caller, reply)));
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

/// Looks for a stored checksum, and otherwise starts reading the file.
fn look_up(checksums: &Arc<ChecksumService>, job: &Arc<ChecksumJob>, place: Option<WorkPlacement>) {
    match find_stored(checksums, job) {
        Ok(None) => {
            job.set_reading();
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
    Ok(found.or_else(|| readable_cached(checksums, path, *algorithm)))
}

/// Returns a cached checksum for an account, which could often not store it with the file. The file
/// is opened, because only an account that may read it gets its checksum.
fn readable_cached(
    checksums: &ChecksumService,
    path: &LogicalPath,
    algorithm: Algorithm,
) -> Option<Checksum> {
    let services = &checksums.services;
    if services.shares_results {
        return None;
    }
    let file = services.backend.open(path, &OpenMode::default()).ok()?;
    checksums.memory.get(algorithm, &file.stat().ok()?)
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
        job.cancel();
        checksums.finish(&job, &Err(unable("checksum", &job.path, errno::CANCELLED)));
    }
    done(Ok(Value::Nothing))
}
