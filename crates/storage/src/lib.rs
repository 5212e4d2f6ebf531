//! Physical storage: maps logical names to file systems, reads and writes data and returns its
//! metadata.
//!
//! The `logical` crate above it applies export rules and XRootD semantics. This crate is separate
//! from it because system calls and `unsafe` code for disks are confined to this crate.
//!
//! | file | content |
//! |---|---|
//! | `backend` | [`Backend`] and [`StoredFile`]: the traits of every storage backend |
//! | `incoming` | [`IncomingFile`]: a temporary file that gets its name when it is complete |
//! | `held_file` | [`HeldFile`]: a file that is held open |
//! | `unused_file` | [`UnusedFile`]: a file that no process has open |
//! | `residency_attributes` | [`CopyTime`], [`CopyRecord`], [`FilePin`]: attributes of files with a copy in mass storage |
//! | `directory_stream` | [`DirectoryStream`]: the entries of an open directory |
//! | `directory_lock` | [`DirectoryLock`]: a directory that one process has at a time |
//! | `look_limit` | [`LookLimit`]: limit of the lookups that wait for one file system |
//! | `pool` | [`Pool`]: executor for blocking work; a bounded number of threads per file system. [`Work`]: long work in bounded steps |
//! | `batched_reads` | batches of small blocking reads, one thread per batch |
//! | `ring` | reads that would block, through the event loop's own io_uring |
//! | `transfer` | [`TransferStorage`]: operations on files that are copied from and to mass storage |
//! | `user` | storage operations with the rights of a user: [`UserBackend`], [`UserSwitch`] |
//! | `user_names` | [`UserNameCache`]: names of users and groups by number |
//! | `faulty` | [`Faulty`]: fault injection for tests |
//! | `name_rules` | [`NameRules`]: translation of logical paths to paths below the local root |
//! | `posix` | [`Posix`]: files on POSIX file systems |
//! | `plain_tree` | [`PlainTree`]: files below a directory, reached without following links |
//! | `private` | [`PrivateDirectory`]: directories of the server's state, with verified owner |
//! | `processes` | processes of this machine: owner, environment |
//! | `refused_features` | logs each kernel feature that is refused, once |

#![allow(unsafe_code)]

mod backend;
mod batched_reads;
mod directory_lock;
mod directory_stream;
mod existing_name;
pub mod faulty;
mod held_file;
mod incoming;
mod look_limit;
mod name_rules;
mod plain_tree;
mod pool;
pub mod posix;
mod private;
mod processes;
mod refused_features;
mod replacement;
mod residency_attributes;
pub mod ring;
mod transfer;
mod unused_file;
mod user;
mod user_names;

pub use backend::{
    Backend, CreateMode, DirectoryAbove, DirectoryState, FileIdentity, FileSystemUsage, Metadata, Now,
    OpenMode, ParentCreation, SpaceUsage, StoredFile, WorkPlacement, is_missing,
};
pub use batched_reads::READS_TOGETHER_MAX;
pub use directory_lock::DirectoryLock;
pub use directory_stream::{DirectoryPosition, DirectoryStream, RawEntry};
pub use existing_name::ExistingName;
pub use faulty::Faulty;
pub use held_file::{FileVersion, HeldFile};
pub use incoming::{INCOMING_MODIFIED, INCOMING_PREFIX, IncomingFile, IncomingResult, inherit, lock_file};
pub use look_limit::{LOOK_BYTES_MAX, LOOKS_MAX, LookLimit, LookPermit};
pub use name_rules::NameRules;
pub use plain_tree::{PlainDirectory, PlainFile, PlainKind, PlainStatus, PlainTree, SECOND_NAME_ATTRIBUTE};
pub use pool::PoolFigures;
pub use pool::{
    Job, Pool, QUEUED_JOBS_MAX, QUEUED_JOBS_PER_OWNER_MAX, STEP_BYTES_MAX, STEP_ITEMS_MAX, StepProgress,
    Work, WorkEnd,
};
pub use posix::{Posix, is_open_only_here};
pub use private::{PrivateDirectory, SharedDirectory, UntrustedFile};
pub use processes::{is_in_group_of_session, process_environment, process_numbers, process_owner};
pub use replacement::{is_replacement, replacement_path};
pub use residency_attributes::{
    CLIENT_ATTRIBUTE_PREFIX, COPY_RECORD_ATTRIBUTE, COPY_TIME_ATTRIBUTE, CopyRecord, CopyTime, FilePin,
    PIN_ATTRIBUTE, REQUEST_PIN_ATTRIBUTE,
};
pub use transfer::{Leftovers, TransferStorage};
pub use unused_file::{FileRemoval, UnusedFile};
pub use user::{ActingAs, StorageUser, UserBackend, UserSwitch};
pub use user_names::{NAMES_BELIEVED, NAMES_MAX, UserNameCache};

/// Holds back the reads of this thread that would block, until [`release`] submits them as one
/// batch to the kernel or to their pools.
pub fn hold() {
    ring::hold();
    batched_reads::hold();
}

/// Submits the reads that were held back since [`hold`].
pub fn release() {
    ring::release();
    batched_reads::release();
}
