//! Logical files: the operations that clients may perform on names and open files, with XRootD
//! semantics.
//!
//! The crate lies between the protocol front ends, which use [`vfs`], and the bytes in [`storage`].
//! An operation is answered without waiting if all its data is in memory. Everything that may wait
//! for a disk runs on the pool of its file system.
//!
//! | file | content |
//! |---|---|
//! | `authorization` | [`AuthorizedFiles`]: decides about operations in front of a file system |
//! | `multi_user` | makes each operation with the rights of the account of its client |
//! | `client_operations` | dispatches each operation of [`vfs`] to its component |
//! | `rights` | the rights with which components access the storage |
//! | `config` | [`Config`]: the configuration of a logical file system |
//! | `exports` | the exported parts of the name space |
//! | `errno` | error numbers, and errors made from them |
//! | `lookup` | the metadata of a path, with errors as clients see them |
//! | `file_system` | [`Logical`]: the file system, its timeouts, and administrator commands |
//! | `events` | [`Events`]: events about changed names |
//! | `job` | work on a pool, with a guaranteed answer |
//! | `steps` | long work in steps on a pool |
//! | `open` | opening files |
//! | `file_services` | the components that open files use |
//! | `handle` | the file handle of a session |
//! | `in_flight` | operations in progress, which keep a file open |
//! | `open_file` | the open file: reads, writes, checkpoints, release |
//! | `copy_mark` | the attribute of files that need a copy in mass storage |
//! | `copy_withdrawal` | its durable reset before the content of a file changes |
//! | `clone` | copies of ranges between files, and new files created as a copy |
//! | `open_table` | all open files |
//! | `names` | the names of files open for writing, which a sync makes durable |
//! | `admin_claims` | administrator commands: their components, and the claim on a file |
//! | `lock` | mutual exclusion of readers and writers by path |
//! | `writers` | files open for writing, by device and inode |
//! | `wholeness` | decides whether a file is complete or unfinished |
//! | `proof` | proofs that a record belongs to the file at its path |
//! | `persisting_release` | the release of a file that persists on close |
//! | `persist` | persist on successful close (POSC) |
//! | `checkpoint` | changes that can be undone, even after a crash |
//! | `third_party` | copies between servers, as source and as destination; [`Fetcher`] |
//! | `checksum` | checksums on demand, stored checksums, and those of files being written |
//! | `journal` | journals, which survive the process |
//! | `describe` | metadata as clients see it; [`UserDirectory`], names of owners |
//! | `name_operations` | creating and removing directories, removing, renaming, modes, sizes |
//! | `stat` | the status of paths |
//! | `listing` | directory listings in pages |
//! | `directory_reading` | one reading of a directory, and the description of its entries |
//! | `path_lists` | lists of paths in requests, processed in steps |
//! | `scan` | shared readings: one for all concurrent listings of a directory |
//! | `own_pages` | the pages of a listing that reads its directory by itself |
//! | `access_time` | access times of files on exports that purge |
//! | `attribute` | user attributes |
//! | `queries` | locate, space and file queries |
//! | `presence` | whether a path exists here, and all that do, for a cluster |
//! | `all_names` | all names of the exports, for the inventory of a cluster |
//! | `prepare` | prepare requests of a server without mass storage |
//! | `stager` | [`Stager`]: the port to mass storage |
//! | `notifying_files` | [`NotifyingFiles`]: reports what clients do, for a program of the site |
//! | `staged_files` | [`StagedFiles`]: missing files that may be in mass storage |
//! | `status` | counters for the administrator |

pub mod config;

mod access_time;
mod admin_claims;
mod all_names;
mod attribute;
mod authorization;
mod checkpoint;
mod checksum;
mod client_operations;
mod clone;
mod copy_mark;
mod copy_withdrawal;
mod describe;
mod directory_reading;
mod errno;
mod events;
mod exports;
mod file_services;
mod file_system;
mod handle;
mod in_flight;
mod job;
mod journal;
mod listing;
mod lock;
mod lookup;
mod multi_user;
mod name_operations;
mod names;
mod notifying_files;
mod open;
mod open_file;
mod open_table;
mod own_pages;
mod path_lists;
mod persist;
mod persisting_release;
mod prepare;
mod presence;
mod proof;
mod queries;
mod rights;
mod scan;
mod staged_files;
mod staged_names;
mod stager;
mod stat;
mod status;
mod steps;
mod tape;
mod third_party;
mod wholeness;
mod writers;

pub use all_names::IncompleteReason;
pub use authorization::{AuthorizationRole, AuthorizedFiles, ForwardedChanges};
pub use checkpoint::{BlockedFile, CheckpointBlock, CheckpointEffect, CheckpointOrder};
pub use config::Config;
pub use describe::{NumberedUsers, UserDirectory};
pub use events::Events;
pub use file_system::{Journals, Logical, LogicalParts};
pub use journal::{DiskDirectory, Journal, JournalDirectory};
pub use multi_user::{AccountLimits, UserAccounts};
pub use notifying_files::{NotifyReceiver, NotifyValues, NotifyingFiles};
pub use persist::{
    ClearOutcome, ListReply, UnfinishedFile, UnfinishedList, UnfinishedState, UnreadableEntry, WalkLimit,
    WalkLimits,
};
pub use prepare::{Prepares, nothing_known};
pub use presence::PathPresence;
pub use queries::{LocateOutcome, Locator};
pub use staged_files::StagedFiles;
pub use stager::{
    HasLeft, RecordChange, RecordedFile, RecordedNeed, StageNotice, StageRequest, Stager, StagerReply,
};
pub use status::{LogicalStatus, LogicalTotals};
pub use third_party::{
    Bytes, CopyObserver, CopyingFiles, DelegatedCredentials, DestinationAttribute, EndedPull, Fetcher,
    HostLookup, HostRule, ProofRule, RunningTransfer, Settings as ThirdPartySettings, ThirdPartyCounts,
    ThirdPartyParts, TransferCompletion, TransferRequest, TransferResult, TransferSink, Written,
    is_copy as is_third_party_copy,
};
