//! Lists of paths in requests, processed in steps because a list may be long: on the event loop
//! only the first few paths.

use crate::steps::{self, StepResult, StepwiseWork};
use base::Error;
use std::sync::Arc;
use storage::{Backend, Pool, STEP_ITEMS_MAX};
use vfs::{Answer, Caller, ReplyTo, Started, Target, TargetCursor, TargetList};

/// Maximum number of paths checked on an event loop; longer lists go to a pool.
const ITEMS_NOW_MAX: usize = 64;

/// An iteration over a list that moves through the pools of its paths.
pub(crate) struct PathListWalk {
    backend: Arc<dyn Backend>,
    cursor: TargetCursor,
    /// The next path, which needs another pool.
    next: Option<Target>,
    /// The pool of the present step.
    pool: Arc<Pool>,
    /// The next path is a link that was resolved to this pool.
    followed: bool,
}

/// The next element of a list.
pub(crate) enum PathListStep {
    /// A path to process here.
    Target(Target),
    /// The next path needs this pool.
    MoveTo(Arc<Pool>),
    /// A path that cannot be parsed.
    Wrong(Error),
    /// The end of the list.
    End,
}

impl PathListWalk {
    pub(crate) fn new(backend: &Arc<dyn Backend>, list: &TargetList) -> Self {
        let pool = backend.pool(&list.first().path).clone();
        Self { backend: backend.clone(), cursor: list.cursor(), next: None, pool, followed: false }
    }

    /// Returns the pool of the first path.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the next path. May block.
    pub(crate) fn next(&mut self) -> PathListStep {
        let target = match self.next.take().map_or_else(|| self.cursor.next(), |target| Some(Ok(target))) {
            None => return PathListStep::End,
            Some(Err(error)) => return PathListStep::Wrong(error),
            Some(Ok(target)) => target,
        };
        if std::mem::take(&mut self.followed) {
            return PathListStep::Target(target);
        }
        let own = self.backend.pool(&target.path);
        let pool = if !Arc::ptr_eq(own, &self.pool) {
            own.clone()
        } else if let Some(place) = self.backend.placement(&target.path, None) {
            self.followed = true;
            place.pool
        } else {
            return PathListStep::Target(target);
        };
        self.next = Some(target);
        self.pool = pool.clone();
        PathListStep::MoveTo(pool)
    }
}

/// Checks each path of a list, then answers. A short list is checked at once, a long one in this
/// pool; neither accesses a disk.
pub(crate) fn check_each(
    pool: &Pool,
    caller: &Arc<Caller>,
    list: &TargetList,
    reply: &ReplyTo,
    check: impl Fn(&Target) -> Result<(), Error> + Send + 'static,
    then: impl FnOnce() -> Answer + Send + 'static,
) -> Started {
    let mut checks = CheckEach { cursor: list.cursor(), check, then: Some(then) };
    match checks.advance(ITEMS_NOW_MAX) {
        Some(answer) => Started::Done(answer),
        None => steps::start(pool, caller, reply, checks),
    }
}

struct CheckEach<C, T> {
    cursor: TargetCursor,
    check: C,
    then: Option<T>,
}

impl<C: Fn(&Target) -> Result<(), Error>, T: FnOnce() -> Answer> CheckEach<C, T> {
    /// Checks up to `items` paths; returns the answer if it is known then.
    fn advance(&mut self, items: usize) -> Option<Answer> {
        for _ in 0..items {
            match self.cursor.next() {
                Some(target) => {
                    if let Err(error) = target.and_then(|target| (self.check)(&target)) {
                        return Some(Answer::Error(error));
                    }
                }
                None => return Some(self.then.take().map_or(Answer::DONE, |then| then())),
            }
        }
        None
    }
}

impl<C, T> StepwiseWork for CheckEach<C, T>
where
    C: Fn(&Target) -> Result<(), Error> + Send + 'static,
    T: FnOnce() -> Answer + Send + 'static,
{
    fn step(&mut self) -> StepResult {
        self.advance(STEP_ITEMS_MAX).map_or(StepResult::More, StepResult::Done)
    }
}
