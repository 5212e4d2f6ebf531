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
//! | `sqlite_store` | [`SqliteStore`]: the durable queue |
//! | `network_file_system` | recognises directories in which the queue would not be safe |

mod entry;
mod memory_store;
mod network_file_system;
mod queue;
mod sqlite_store;
mod store;

pub use entry::{CopyFailure, Direction, Entry, EntryKey, EntryState, FailureReason, Priority, RequestId};
pub use memory_store::MemoryStore;
pub use queue::{
    CopyOutcome, QueueAction, QueueError, QueueLimits, Submission, SubmissionOutcome, TransferQueue,
};
pub use sqlite_store::{SqliteStore, StoreError, StoreOpenError};
pub use store::EntryStore;
