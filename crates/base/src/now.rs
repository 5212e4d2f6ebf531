//! The result of a call that must not block.

use crate::Error;

/// The result of a call that must not block (`..._now`).
#[derive(Debug)]
pub enum Now<T, E = Error> {
    /// The call completed.
    Done(Result<T, E>),
    /// The call would have to wait, usually for a disk. The caller repeats it where it may wait.
    WouldBlock,
}
