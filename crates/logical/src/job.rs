//! Work on a pool, and that its answer always comes.
//!
//! Work on a path begins in the pool of its file system. Where a link leads elsewhere it goes on there as a whole, so that a
//! disk that hangs holds up only what is asked of it ([`at`]).

use base::{Error, ErrorKind, LogicalPath, Owner};
use std::sync::{Arc, Mutex, PoisonError};
use storage::{Backend, CreateHow, Elsewhere, Job, Pool};
use vfs::{Answer, Caller, Reply, ReplyTo, Started, Target, Value};

/// Runs `work` with this context where blocking on `target`'s file system is allowed.
pub(crate) fn on_pool<C: Send + Sync + 'static>(
    backend: &Arc<dyn Backend>,
    context: &Arc<C>,
    target: Target,
    reply: &ReplyTo,
    work: impl FnOnce(&C, &Target) -> Result<Value, Error> + Send + 'static,
) -> Started {
    let (path, inside) = (target.path.clone(), context.clone());
    spawn_at(backend, &path, None, reply, move |_, reply| reply.send(work(&inside, &target).into()))
}

/// An answer that is there already.
pub(crate) fn done(result: Result<Value, Error>) -> Started {
    Started::Done(Answer::from(result))
}

/// Runs `work` in the pool to which `run` gives jobs, and sends what it yields. A full pool answers that the server is overloaded;
/// a panic in the work answers with an error when its reply is dropped.
pub(crate) fn spawn_by(
    run: impl FnOnce(Job) -> Result<(), Job>,
    reply: &ReplyTo,
    work: impl FnOnce() -> Answer + Send + 'static,
) -> Started {
    spawn_to(run, reply, |reply| reply.send(work()))
}

/// The same for work that answers itself.
pub(crate) fn spawn_to(
    run: impl FnOnce(Job) -> Result<(), Job>,
    reply: &ReplyTo,
    work: impl FnOnce(Reply) + Send + 'static,
) -> Started {
    give(run, reply.defer(), work, refuse);
    Started::Pending
}

/// Has `run` do `work` with something that `refused` gets if a pool takes no more.
pub(crate) fn give<T: Send + 'static>(
    run: impl FnOnce(Job) -> Result<(), Job>,
    what: T,
    work: impl FnOnce(T) + Send + 'static,
    refused: impl FnOnce(T),
) {
    let (slot, inside) = Slot::pair(what);
    if run(Box::new(move || inside.with(work))).is_err() {
        slot.with(refused);
    }
}

/// Runs `work` where blocking on what is at `path` is allowed ([`at`]).
pub(crate) fn spawn_at(
    backend: &Arc<dyn Backend>,
    path: &LogicalPath,
    create: Option<CreateHow>,
    reply: &ReplyTo,
    work: impl FnOnce(Option<Elsewhere>, Reply) + Send + 'static,
) -> Started {
    let (slot, inside) = Slot::pair(reply.defer());
    let job = move |place| inside.with(|reply| work(place, reply));
    at(backend, reply.owner(), path, create, job, move || slot.with(refuse));
    Started::Pending
}

/// Runs a job of this owner where what it waits for is that which is at `path`: in the pool of the path, or in that of the file system to which
/// a link leads or to which a file is to come that `create` tells of; of such a place it is told. `refused` is called instead if
/// a pool takes no more.
pub(crate) fn at(
    backend: &Arc<dyn Backend>,
    owner: Owner,
    path: &LogicalPath,
    create: Option<CreateHow>,
    job: impl FnOnce(Option<Elsewhere>) + Send + 'static,
    refused: impl Fn() + Clone + Send + 'static,
) {
    let (inside, name, refused_later) = (backend.clone(), path.clone(), refused.clone());
    let first = move || match inside.elsewhere(&name, create.as_ref()) {
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

/// What goes to other pools, that of each together.
pub(crate) type ByPool<T> = Vec<(Arc<Pool>, Vec<T>)>;

/// Adds one that goes to this pool.
pub(crate) fn sort_in<T>(all: &mut ByPool<T>, pool: Arc<Pool>, one: T) {
    match all.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &pool)) {
        Some((_, group)) => group.push(one),
        None => all.push((pool, vec![one])),
    }
}

/// What lies outside of a job too, because a refused job cannot be asked for it: mostly a reply.
struct Slot<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Slot<T> {
    fn pair(what: T) -> (Self, Self) {
        let slot = Self(Arc::new(Mutex::new(Some(what))));
        (slot.clone(), slot)
    }

    /// Taken before the work, so that unwinding drops it, and a reply that is dropped answers.
    fn with(&self, work: impl FnOnce(T)) {
        let what = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(what) = what {
            work(what);
        }
    }
}

/// A client that waits for the answer of work that it shares with others.
pub(crate) struct Waiting {
    pub(crate) reply: Reply,
    pub(crate) caller: Arc<Caller>,
}

impl Waiting {
    pub(crate) fn new(caller: &Arc<Caller>, reply: &ReplyTo) -> Self {
        Self { reply: reply.defer(), caller: caller.clone() }
    }
}

/// The answer to a client that has left: nobody gets it, but the duty to answer ends.
pub(crate) fn left() -> Answer {
    Answer::error(ErrorKind::Cancelled, "The client has left")
}

/// Answers that too much waits already.
pub(crate) fn refuse(reply: Reply) {
    reply.send(overloaded());
}

/// The answer when too much waits already.
pub(crate) fn overloaded() -> Answer {
    Answer::Error(overload())
}

/// The error of that answer.
pub(crate) fn overload() -> Error {
    Error::new(ErrorKind::Overloaded, "The server is overloaded; too many operations wait for the disk")
}
