//! Long work, which a pool does in bounded steps.
//!
//! A job keeps its thread until it ends, so it has to be short: a few system calls, one block of
//! data. Walking a list or copying data without a small bound is [`Work`] instead. Each step does
//! at most a quota, and between steps the pool serves others and checks whether the result is still
//! needed.

use crate::Pool;
use std::sync::Arc;

/// Maximum number of items (paths, names) in one step.
pub const STEP_ITEMS_MAX: usize = 1024;

/// Maximum number of bytes copied or read in one step.
pub const STEP_BYTES_MAX: u64 = 64 << 20;

/// Long work that is done in steps.
pub trait Work: Send {
    /// Does the next step: at most [`STEP_ITEMS_MAX`] items or [`STEP_BYTES_MAX`] bytes. May block.
    /// The last step also delivers the result.
    fn step(&mut self) -> StepProgress;

    /// Reports whether the result is no longer needed. Called before each step.
    fn is_cancelled(&self) -> bool;

    /// Ends the work early and answers its caller.
    fn end(self: Box<Self>, reason: WorkEnd);
}

/// The result of a step.
pub enum StepProgress {
    /// More steps follow.
    More,
    /// More steps follow in this pool, because the next one waits for another file system.
    MoveTo(Arc<Pool>),
    /// The work is complete.
    Done,
}

/// The reason for ending work early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkEnd {
    /// [`Work::is_cancelled`] returned `true`.
    Cancelled,
    /// The queue of a pool is full.
    Refused,
}
