//! Work on a pool, and that its answer always comes.

use base::{Error, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use storage::{Job, Pool};
use vfs::{Answer, ReplyTo, Started};

/// Runs `work` on `pool` and sends what it yields. A full pool answers that the server is overloaded; a panic in the
/// work answers with an error when its reply is dropped.
pub(crate) fn spawn(
    pool: &Arc<Pool>,
    reply: &ReplyTo,
    work: impl FnOnce() -> Answer + Send + 'static,
) -> Started {
    spawn_by(|job| pool.run(job), reply, work)
}

/// The same where `run` gives the job to a pool.
pub(crate) fn spawn_by(
    run: impl FnOnce(Job) -> Result<(), Job>,
    reply: &ReplyTo,
    work: impl FnOnce() -> Answer + Send + 'static,
) -> Started {
    // The reply lies outside of the job too, because a refused job cannot be asked for it.
    let slot = Arc::new(Mutex::new(Some(reply.defer())));
    let inside = slot.clone();
    let job = move || {
        let reply = inside.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Taken before the work, so that unwinding drops it, which answers.
        if let Some(reply) = reply {
            reply.send(work());
        }
    };
    if run(Box::new(job)).is_err()
        && let Some(reply) = slot.lock().unwrap_or_else(PoisonError::into_inner).take()
    {
        reply.send(overloaded());
    }
    Started::Pending
}

/// The answer when too much waits already.
pub(crate) fn overloaded() -> Answer {
    Answer::Error(Error::new(
        ErrorKind::Overloaded,
        "The server is overloaded; too many operations wait for the disk",
    ))
}
