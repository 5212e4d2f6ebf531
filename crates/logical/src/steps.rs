//! Long work on files: done in steps on a pool, and always answered.

use crate::job;
use std::sync::Arc;
use storage::{Pool, Progress, Work, WorkEnd};
use vfs::{Answer, Caller, Reply, ReplyTo, Started};

/// Long work whose end is an answer.
pub(crate) trait Steps: Send + 'static {
    /// Does the next step, of at most [`storage::STEP_ITEMS_MAX`] items or [`storage::STEP_BYTES_MAX`] bytes. May block.
    fn step(&mut self) -> Step;

    /// Takes back what was done, because it ends before it is done. May block.
    fn abandon(&mut self) {}
}

/// What a step came to.
pub(crate) enum Step {
    /// There is more to do.
    More,
    /// There is more to do, in this pool.
    MoveTo(Arc<Pool>),
    /// The answer.
    Done(Answer),
}

/// Starts long work in a pool. It ends when its client has gone; dropped by a panic, it answers with an error.
pub(crate) fn start(pool: &Pool, caller: &Arc<Caller>, reply: &ReplyTo, steps: impl Steps) -> Started {
    start_with(pool, caller, reply.defer(), steps);
    Started::Pending
}

/// Starts long work whose duty to answer was made already.
pub(crate) fn start_with(pool: &Pool, caller: &Arc<Caller>, reply: Reply, steps: impl Steps) {
    let owner = reply.owner();
    pool.start(owner, Box::new(Answered { steps, caller: caller.clone(), reply: Some(reply) }));
}

struct Answered<S> {
    // Dropped before the reply: whoever waits for the answer finds nothing in use.
    steps: S,
    caller: Arc<Caller>,
    reply: Option<Reply>,
}

impl<S: Steps> Work for Answered<S> {
    fn step(&mut self) -> Progress {
        match self.steps.step() {
            Step::More => Progress::More,
            Step::MoveTo(pool) => Progress::MoveTo(pool),
            Step::Done(answer) => {
                if let Some(reply) = self.reply.take() {
                    reply.send(answer);
                }
                Progress::Done
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        self.caller.has_left()
    }

    fn end(mut self: Box<Self>, reason: WorkEnd) {
        self.steps.abandon();
        let Self { steps, reply, .. } = *self;
        drop(steps);
        if let Some(reply) = reply {
            reply.send(match reason {
                WorkEnd::Cancelled => job::left(),
                WorkEnd::Refused => job::overloaded(),
            });
        }
    }
}
