//! Lists of paths that a request names: walked in steps, and never on a loop beyond a few of them.

use crate::steps::{self, Step, Steps};
use base::Error;
use std::sync::Arc;
use storage::{Backend, Pool, STEP_ITEMS_MAX};
use vfs::{Answer, Caller, ReplyTo, Started, Target, TargetCursor, TargetList};

/// Paths of a list that are looked at on a loop; longer lists go to a pool.
const ITEMS_NOW_MAX: usize = 64;

/// Goes through a list in the pools of its paths.
pub(crate) struct Walk {
    backend: Arc<dyn Backend>,
    cursor: TargetCursor,
    /// The next one, which belongs in another pool.
    next: Option<Target>,
    /// The pool that the present step runs in.
    pool: Arc<Pool>,
    /// The next one is a link whose way was followed to this pool.
    followed: bool,
}

/// What comes next of a list.
pub(crate) enum Next {
    /// This one, here.
    Target(Target),
    /// One that belongs in this pool.
    MoveTo(Arc<Pool>),
    /// One that cannot be parsed.
    Wrong(Error),
    /// Nothing.
    End,
}

impl Walk {
    pub(crate) fn new(backend: &Arc<dyn Backend>, list: &TargetList) -> Self {
        let pool = backend.pool(&list.first().path).clone();
        Self { backend: backend.clone(), cursor: list.cursor(), next: None, pool, followed: false }
    }

    /// The pool to begin in.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The next path. May block.
    pub(crate) fn next(&mut self) -> Next {
        let target = match self.next.take().map_or_else(|| self.cursor.next(), |target| Some(Ok(target))) {
            None => return Next::End,
            Some(Err(error)) => return Next::Wrong(error),
            Some(Ok(target)) => target,
        };
        if std::mem::take(&mut self.followed) {
            return Next::Target(target);
        }
        let own = self.backend.pool(&target.path);
        let pool = if !Arc::ptr_eq(own, &self.pool) {
            own.clone()
        } else if let Some(place) = self.backend.elsewhere(&target.path, None) {
            self.followed = true;
            place.pool
        } else {
            return Next::Target(target);
        };
        self.next = Some(target);
        self.pool = pool.clone();
        Next::MoveTo(pool)
    }
}

/// Checks every path of a list, then answers. A short list is checked on the spot, a long one in this pool; neither asks a disk.
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
    /// Checks so many paths; the answer if it is known then.
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

impl<C, T> Steps for CheckEach<C, T>
where
    C: Fn(&Target) -> Result<(), Error> + Send + 'static,
    T: FnOnce() -> Answer + Send + 'static,
{
    fn step(&mut self) -> Step {
        self.advance(STEP_ITEMS_MAX).map_or(Step::More, Step::Done)
    }
}
