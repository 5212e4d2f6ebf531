//! Logical files: what a client may do with a name, and what an open file is beyond its bytes.
//!
//! Between the doors (which speak [`vfs`]) and the bytes (which [`storage`] keeps). Answers come on the spot where the
//! system has in memory what they need; everything that may wait for a disk runs on the pool of its file system.
//!
//! | file | what it holds |
//! |---|---|
//! | `config` | [`Config`]: what the room is told |
//! | `exports` | the exported parts of the name space |
//! | `errno` | error numbers, and errors made from them |
//! | `lookup` | the metadata of a path, with errors as clients see them |
//! | `file_system` | [`Logical`]: each operation of the contract and who does it |
//! | `events` | [`Events`]: who is told what becomes of names |
//! | `job` | work on a pool, and that its answer always comes |
//! | `steps` | long work, done in steps on a pool |
//! | `open` | from a name to an open file |
//! | `file_services` | the parts of a server that open files use |
//! | `handle` | a session's hold on an open file: the contract |
//! | `flying` | operations in flight, which keep a file open |
//! | `open_file` | the open file itself: reads, writes, checkpoints, letting go |
//! | `clone` | copies of ranges between files, and new files that begin as a copy |
//! | `open_table` | the files that clients have open |
//! | `names` | the names of files open for writing, which a sync makes stable |
//! | `claimed` | orders of the administrator: their parts, and the name and file of one |
//! | `lock` | readers and writers of a path exclude each other |
//! | `writers` | files that are open for writing, by device and inode |
//! | `wholeness` | whether a file is whole or unfinished |
//! | `persist` | files that persist only on a successful close |
//! | `checkpoint` | changes that can be undone, also after a crash |
//! | `third_party` | copies between servers, as source and as destination; [`Fetcher`], who pulls |
//! | `checksum` | checksums on demand, stored, and of files while they are written |
//! | `journal` | where the two keep what must survive the process |
//! | `describe` | metadata in the terms that clients see; [`Users`], names of owners |
//! | `change` | directories, removing, renaming, modes, sizes |
//! | `stat` | the status of paths |
//! | `listing` | directories, page by page |
//! | `lists` | lists of paths that a request names, in steps |
//! | `scan` | one reading of a directory for all who asked before it began |
//! | `attribute` | user attributes |
//! | `inquiry` | locate, space and file queries |
//! | `presence` | whether a path is here, and all that is, for a cluster |
//! | `prepare` | prepare requests of a server without mass storage |
//! | `status` | what the administrator sees |

pub mod config;

mod all_names;
mod attribute;
mod change;
mod checkpoint;
mod checksum;
mod claimed;
mod clone;
mod describe;
mod errno;
mod events;
mod exports;
mod file_services;
mod file_system;
mod flying;
mod handle;
mod inquiry;
mod job;
mod journal;
mod listing;
mod lists;
mod lock;
mod lookup;
mod names;
mod open;
mod open_file;
mod open_table;
mod persist;
mod prepare;
mod presence;
mod proof;
mod scan;
mod stat;
mod status;
mod steps;
mod third_party;
mod wholeness;
mod writers;

pub use all_names::Gap;
pub use checkpoint::{BlockedFile, CheckpointBlock, CheckpointEffect, CheckpointOrder};
pub use config::Config;
pub use describe::{NumberedUsers, Users};
pub use events::Events;
pub use file_system::{Journals, Logical, Parts};
pub use inquiry::{Located, Locator};
pub use journal::{DiskFolder, Journal, JournalFolder};
pub use persist::{
    Cleared, ListReply, Unfinished, UnfinishedList, UnfinishedState, UnreadableEntry, WalkLimit, WalkLimits,
};
pub use prepare::{Prepares, nothing_known};
pub use presence::Presence;
pub use status::Status;
pub use third_party::{
    Bytes, Fetch, Fetched, Fetcher, Finish, HostRule, Names, ProofRule, Running,
    Settings as ThirdPartySettings, Sink, ThirdPartyParts, Written,
};
