//! Long work, which a pool does in bounded steps.
//!
//! A job keeps its thread until it ends, so it has to be short: a few system calls, one block of data. What walks a list or
//! copies data without a small bound is [`Work`] instead: each step does at most a quota, and between steps the pool gives others their
//! turn and looks whether anybody still waits for the result.

use crate::Pool;
use std::sync::Arc;

/// Items (paths, names) that one step looks at.
pub const STEP_ITEMS_MAX: usize = 1024;

/// Bytes that one step copies or reads.
pub const STEP_BYTES_MAX: u64 = 64 << 20;

/// Long work, in steps.
pub trait Work: Send {
    /// Does the next step: at most [`STEP_ITEMS_MAX`] items or [`STEP_BYTES_MAX`] bytes. May block. Work that is done has given its answer.
    fn step(&mut self) -> Progress;

    /// Reports whether nobody waits for it any longer. Asked before each step.
    fn is_cancelled(&self) -> bool;

    /// Ends before it is done, and answers.
    fn end(self: Box<Self>, reason: WorkEnd);
}

/// The result of a step.
pub enum Progress {
    /// There is more to do.
    More,
    /// There is more to do, in this pool, because the next step waits for another file system.
    MoveTo(Arc<Pool>),
    /// It is done.
    Done,
}

/// Why work ends before it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkEnd {
    /// [`Work::is_cancelled`].
    Cancelled,
    /// A pool takes nothing more.
    Refused,
}
