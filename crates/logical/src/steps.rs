//! Long work on files in steps on a pool, with a guaranteed answer. It is the counterpart of
//! [`crate::job`] for work that is not bounded.

use crate::job;
use std::sync::Arc;
use storage::{Pool, StepProgress, Work, WorkEnd};
use vfs::{Answer, Caller, DeferredReply, ReplyTo, Started};

/// Long work that ends with an answer.
pub(crate) trait StepwiseWork: Send + 'static {
    /// Does the next step, of at most [`storage::STEP_ITEMS_MAX`] items or
    /// [`storage::STEP_BYTES_MAX`] bytes. May block.
    fn step(&mut self) -> StepResult;

    /// Undoes the work, because it ends early. May block.
    fn abandon(&mut self) {}
}

/// The result of a step.
pub(crate) enum StepResult {
    /// More steps follow.
    More,
    /// More steps follow, in this pool.
    MoveTo(Arc<Pool>),
    /// The work is complete, with this answer.
    Done(Answer),
}

/// Starts long work in a pool. It ends early when its client leaves. If a panic drops it, it
/// answers with an error.
pub(crate) fn start(pool: &Pool, caller: &Arc<Caller>, reply: &ReplyTo, steps: impl StepwiseWork) -> Started {
    start_with(pool, caller, reply.defer(), steps);
    Started::Pending
}

/// Starts long work with an existing reply.
pub(crate) fn start_with(pool: &Pool, caller: &Arc<Caller>, reply: DeferredReply, steps: impl StepwiseWork) {
    let owner = reply.owner();
    pool.start(owner, Box::new(AnsweredWork { steps, caller: caller.clone(), reply: Some(reply) }));
}

struct AnsweredWork<S> {
    // Declared, and so dropped, before the reply: when the client gets the answer, nothing is in
    // use any more.
    steps: S,
    caller: Arc<Caller>,
    reply: Option<DeferredReply>,
}

impl<S: StepwiseWork> Work for AnsweredWork<S> {
    fn step(&mut self) -> StepProgress {
        match self.steps.step() {
            StepResult::More => StepProgress::More,
            StepResult::MoveTo(pool) => StepProgress::MoveTo(pool),
            StepResult::Done(answer) => {
                if let Some(reply) = self.reply.take() {
                    reply.send(answer);
                }
                StepProgress::Done
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        self.caller.is_disconnected()
    }

    fn end(mut self: Box<Self>, reason: WorkEnd) {
        self.steps.abandon();
        let Self { steps, reply, .. } = *self;
        drop(steps);
        if let Some(reply) = reply {
            reply.send(match reason {
                WorkEnd::Cancelled => job::disconnected_answer(),
                WorkEnd::Refused => job::overloaded(),
            });
        }
    }
}
