//! Residency of files: brings them in from mass storage when clients want them.
//!
//! The crate knows no client protocol. It keeps the requests in one durable queue and executes them
//! within limits. The file system, and never the queue, decides what is resident (decision 048).
//!
//! | file | content |
//! |---|---|
//! | `entry` | [`Entry`]: one transfer in the queue, its key and its state |
//! | `queue` | [`TransferQueue`]: the state machine; no clock, thread or disk |
//! | `store` | [`EntryStore`]: where the entries are, as a port of the state machine |
//! | `memory_store` | [`MemoryStore`]: entries in memory, for tests and simulations |

mod entry;
mod memory_store;
mod queue;
mod store;

pub use entry::{CopyFailure, Direction, Entry, EntryKey, EntryState, FailureReason, Priority, RequestId};
pub use memory_store::MemoryStore;
pub use queue::{
    CopyOutcome, QueueAction, QueueError, QueueLimits, Submission, SubmissionOutcome, TransferQueue,
};
pub use store::EntryStore;
