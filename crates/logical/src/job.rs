//! Runs work on a pool, and guarantees that its client gets an answer, even if the work panics or
//! is refused.
//!
//! Work on a path starts in the pool of its file system. Where a link leads to another file system,
//! all of the work moves to that pool ([`at`]). So a hung disk delays only requests for its own
//! files.

use crate::errno;
use base::{Error, ErrorKind, LogicalPath, Owner};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use storage::{Backend, CreateMode, Job, Pool, WorkPlacement};
use vfs::{Answer, Caller, DeferredReply, ReplyTo, Started, Target, Value};

/// Time after which a client repeats an operation that met a lease, in seconds.
const LEASE_SECONDS: u32 = 1;

/// Runs `work` with this context on the pool of the file system of `target`, where it may block.
pub(crate) fn on_pool<C: Send + Sync + 'static>(
    backend: &Arc<dyn Backend>,
    context: &Arc<C>,
    target: Target,
    reply: &ReplyTo,
    work: impl FnOnce(&C, &Target) -> Result<Value, Error> + Send + 'static,
) -> Started {
    let (path, inside) = (target.path.clone(), context.clone());
    spawn_where_blocking(backend, &path, None, reply, move |_, reply| {
        let result = work(&inside, &target);
        let wait = result.as_ref().err().and_then(|error| leased(&target.path, error));
        reply.send(wait.unwrap_or_else(|| result.into()))
    })
}

/// Returns the answer to an operation that failed because another process has a lease of the file, or
/// because the file is being purged. The operation has told the system to end the lease.
pub(crate) fn leased(path: &LogicalPath, error: &Error) -> Option<Answer> {
    let number = error.source.as_ref().and_then(io::Error::raw_os_error);
    (number == Some(errno::TRY_AGAIN)).then(|| {
        let text = format!("{} is in use by another process, which was asked to release it", path.text());
        Answer::Wait { seconds: LEASE_SECONDS, text }
    })
}

/// Returns an answer that is available at once.
pub(crate) fn done(result: Result<Value, Error>) -> Started {
    Started::Done(Answer::from(result))
}

/// Runs `work` as a job that `run` queues, and sends its result. A full pool answers that the
/// server is overloaded. A panic in the work drops the reply, which then answers with an error.
pub(crate) fn spawn_answer(
    run: impl FnOnce(Job) -> Result<(), Job>,
    reply: &ReplyTo,
    work: impl FnOnce() -> Answer + Send + 'static,
) -> Started {
    spawn_reply(run, reply, |reply| reply.send(work()))
}

/// Runs work that sends its reply itself as a job that `run` queues.
pub(crate) fn spawn_reply(
    run: impl FnOnce(Job) -> Result<(), Job>,
    reply: &ReplyTo,
    work: impl FnOnce(DeferredReply) + Send + 'static,
) -> Started {
    submit_or(run, reply.defer(), work, refuse);
    Started::Pending
}

/// Runs `work` with `what` as a job that `run` queues; if the pool is full, `refused` gets `what`
/// instead.
pub(crate) fn submit_or<T: Send + 'static>(
    run: impl FnOnce(Job) -> Result<(), Job>,
    what: T,
    work: impl FnOnce(T) + Send + 'static,
    refused: impl FnOnce(T),
) {
    let (slot, inside) = SharedSlot::pair(what);
    if run(Box::new(move || inside.with(work))).is_err() {
        slot.with(refused);
    }
}

/// Runs `work` on the pool of the file at `path` ([`at`]), where it may block.
pub(crate) fn spawn_where_blocking(
    backend: &Arc<dyn Backend>,
    path: &LogicalPath,
    create: Option<CreateMode>,
    reply: &ReplyTo,
    work: impl FnOnce(Option<WorkPlacement>, DeferredReply) + Send + 'static,
) -> Started {
    let (slot, inside) = SharedSlot::pair(reply.defer());
    let job = move |place| inside.with(|reply| work(place, reply));
    run_where_blocking(backend, reply.owner(), path, create, job, move || slot.with(refuse));
    Started::Pending
}

/// Runs a job of this owner in the pool of the file at `path`.
///
/// This is the pool of the path, unless a link leads to another file system, or a file with the
/// options `create` will be created there. In these cases the job runs in that pool and gets the
/// destination as its argument. `refused` is called instead if a pool is full.
pub(crate) fn run_where_blocking(
    backend: &Arc<dyn Backend>,
    owner: Owner,
    path: &LogicalPath,
    create: Option<CreateMode>,
    job: impl FnOnce(Option<WorkPlacement>) + Send + 'static,
    refused: impl Fn() + Clone + Send + 'static,
) {
    let (inside, name, refused_later) = (backend.clone(), path.clone(), refused.clone());
    let first = move || match inside.placement(&name, create.as_ref()) {
        None => job(None),
        Some(place) => {
            let pool = place.pool.clone();
            if pool.take_over(Box::new(move || job(Some(place)))).is_err() {
                refused_later();
            }
        }
    };
    if backend.pool(path).run(owner, Box::new(first)).is_err() {
        refused();
    }
}

/// Items grouped by the pool that they need.
pub(crate) type ByPool<T> = Vec<(Arc<Pool>, Vec<T>)>;

/// Adds an item to the group of its pool.
pub(crate) fn sort_in<T>(all: &mut ByPool<T>, pool: Arc<Pool>, one: T) {
    match all.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &pool)) {
        Some((_, group)) => group.push(one),
        None => all.push((pool, vec![one])),
    }
}

/// A value shared between a job and its caller, mostly a reply, because a refused job does not
/// return its captures.
struct SharedSlot<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for SharedSlot<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> SharedSlot<T> {
    fn pair(what: T) -> (Self, Self) {
        let slot = Self(Arc::new(Mutex::new(Some(what))));
        (slot.clone(), slot)
    }

    /// Takes the value before the work, so that unwinding drops it; a dropped reply answers with an
    /// error.
    fn with(&self, work: impl FnOnce(T)) {
        let what = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(what) = what {
            work(what);
        }
    }
}

/// A client that waits for the result of shared work.
pub(crate) struct WaitingClient {
    pub(crate) reply: DeferredReply,
    pub(crate) caller: Arc<Caller>,
}

impl WaitingClient {
    pub(crate) fn new(caller: &Arc<Caller>, reply: &ReplyTo) -> Self {
        Self { reply: reply.defer(), caller: caller.clone() }
    }
}

/// Returns the answer to a client that has left. It is sent to nobody but fulfils the duty to
/// answer.
pub(crate) fn disconnected_answer() -> Answer {
    Answer::error(ErrorKind::Cancelled, "The client has left")
}

/// Sends the answer that the server is overloaded.
pub(crate) fn refuse(reply: DeferredReply) {
    reply.send(overloaded());
}

/// Returns the answer that the server is overloaded.
pub(crate) fn overloaded() -> Answer {
    Answer::Error(overload())
}

/// Returns the error that the server is overloaded.
pub(crate) fn overload() -> Error {
    Error::new(ErrorKind::Overloaded, "The server is overloaded; too many operations wait for the disk")
}
