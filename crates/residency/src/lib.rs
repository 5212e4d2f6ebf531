//! Residency of files: brings them in from mass storage when clients want them, and copies new and
//! changed files there.
//!
//! The crate knows no client protocol. It keeps the requests in one durable queue and executes them
//! within limits. The file system, and never the queue, decides what is resident (decision 048).
//!
//! | file | content |
//! |---|---|
//! | `entry` | [`TransferEntry`]: one transfer in the queue, its key and its state |
//! | `queue` | [`TransferQueue`]: the state machine; no clock, thread or disk |
//! | `store` | [`EntryStore`]: where the entries are, as a port of the state machine |
//! | `memory_store` | [`MemoryStore`]: entries in memory, for tests and simulations |
//! | `sqlite_store` | [`SqliteStore`]: the durable queue |
//! | `sqlite_schema`, `sqlite_rows` | its tables and their upgrade; its rows as entries |
//! | `catalog` | [`CatalogProgram`]: the names in mass storage, through a program of the site |
//! | `catalog_names` | its orders that change names, and its listings |
//! | `catalog_answer` | the form of its answers |
//! | `catalog_processes` | [`CatalogProcesses`]: such programs that answer line by line |
//! | `line_process` | a program that runs for long, and answers lines with lines |
//! | `ports` | what the crate needs from outside: [`CopyAgent`], [`RemoteCatalog`], [`ResidencyEvents`] |
//! | `copy_command` | command lines of copy programs, with their variables |
//! | `copy_program` | [`CopyPrograms`]: runs copy programs of the site |
//! | `stage_agent` | [`StageAgent`]: a program that is started once, and reads a line for each file to be staged |
//! | `stage_watch` | looks whether a program that does not report it has completed a file |
//! | `stage_agent_thread`, `stage_agent_process` | its thread, and one process of it |
//! | `fed_process` | [`FedProcess`]: one process of a program that reads lines |
//! | `stage_requests` | the files that it is asked for, and which of them the next line is for |
//! | `stage_processes` | all its processes, also those of earlier runs of the server |
//! | `wake_event` | wakes its thread, and those that wait for a file |
//! | `stage_event` | the lines with which it reports the ends of stages |
//! | `outlived`, `reaper` | copy programs of earlier runs of the server, and the thread that watches them |
//! | `staging` | [`Staging`]: brings one file in, whole or not at all |
//! | `content_check` | compares the content of files with the checksums that mass storage knows |
//! | `migration` | copies one file to mass storage, and records that it has a copy |
//! | `copy_candidate` | decides whether a file needs a copy |
//! | `failure_pause` | pauses migration while each copy fails |
//! | `migration_search` | [`MigrationSchedule`]; searches the exports for such files |
//! | `service` | [`Residency`]: the queue at work |
//! | `queue_counts` | [`count_queue`]: numbers of transfers in the queue |
//! | `queue_list` | [`list_queue`]: the queue for administrators |
//! | `queue_thread` | the thread of the queue |
//! | `queue_agent`, `queue_wake` | [`QueueAgent`]: requests of other processes, and how they reach the thread |
//! | `notification` | [`RequestNotice`]: messages about the ends of transfers |
//! | `record_file`, `record_import` | queues of XRootD's daemon, and how a start takes them over |
//! | `work_claim` | which process works: [`ServerClaim`], [`DaemonClaim`], [`PurgeTurn`] |
//! | `tape_requests` | [`TapeSubmission`]: many files under one id, whose states are kept |
//! | `tape_schema` | its tables |
//! | `tape_load` | how many tape changes wait for the queue, and how many one transaction has |
//! | `tape_pins` | the pins of files that tape requests keep on disk |
//! | `waiting` | [`Waiter`]: clients that wait for files |
//! | `tree_walk` | a walk over the directories of exports |
//! | `sweep` | removes temporary files that an earlier run has left |
//! | `purge_policy` | [`PurgePolicy`]: which files may be removed, and in which order |
//! | `purge` | [`Purger`]: removes files when space is needed |
//! | `policy_program` | [`PolicyProgram`]: a program of the site that selects files to be removed |
//! | `empty_directories` | removes empty directories |
//! | `purge_volume` | the purge of one file system, and its end |
//! | `purge_candidates` | the files that go first, in bounded memory |
//! | `purge_thread` | [`PurgeThread`]: when purges begin |
//! | `network_file_system` | recognises directories in which the queue would not be safe |

mod catalog;
mod catalog_answer;
mod catalog_names;
mod catalog_processes;
mod content_check;
mod copy_candidate;
mod copy_command;
mod copy_program;
mod empty_directories;
mod entry;
mod failure_pause;
mod fed_process;
mod line_process;
mod memory_store;
mod migration;
mod migration_search;
mod network_file_system;
mod notification;
mod outlived;
mod policy_program;
mod ports;
mod purge;
mod purge_candidates;
mod purge_policy;
mod purge_thread;
mod purge_volume;
mod queue;
mod queue_agent;
mod queue_counts;
mod queue_list;
mod queue_thread;
mod queue_wake;
mod reaper;
mod record_file;
mod record_import;
mod service;
mod sqlite_rows;
mod sqlite_schema;
mod sqlite_store;
mod stage_agent;
mod stage_agent_process;
mod stage_agent_thread;
mod stage_event;
mod stage_processes;
mod stage_requests;
mod stage_watch;
mod staging;
mod store;
mod sweep;
mod tape_load;
mod tape_pins;
mod tape_requests;
mod tape_schema;
mod tree_walk;
mod waiting;
mod wake_event;
mod work_claim;

pub use catalog::CatalogProgram;
pub use catalog_processes::CatalogProcesses;
pub use content_check::{CopyDifferences, has_content};
pub use copy_command::{CopyCommand, StageMessage};
pub use copy_program::CopyPrograms;
pub use entry::{
    CopyFailure, EntryKey, EntryState, FailedFile, FailureReason, Priority, RequestId, TransferDirection,
    TransferEntry,
};
pub use fed_process::{FedProcess, LoggedOutput, timespec};
pub use memory_store::MemoryStore;
pub use migration_search::MigrationSchedule;
pub use notification::RequestNotice;
pub use outlived::QueueRun;
pub use policy_program::PolicyProgram;
pub use ports::{
    CopyAgent, EndedCopy, IncomingCopy, NameOrder, NameOutcome, OddChecksum, OutgoingCopy, PathResidency,
    RemoteCatalog, RemoteNames, RemoteStatus, ResidencyEvents, ResidencyPaths, StopSignal, WriterWatch,
};
pub use purge::{ExaminedFile, PurgeOutcome, PurgedVolume, Purger, STOP_PURGE_FILE};
pub use purge_policy::{FreeSpaceMark, KeptReason, PurgePolicies, PurgePolicy};
pub use purge_thread::{PurgeThread, TakeTurn};
pub use queue::{
    CopyOutcome, QueueAction, QueueError, QueueLimits, Submission, SubmissionOutcome, TransferQueue,
};
pub use queue_agent::QueueAgent;
pub use queue_counts::{DirectionCounts, QueueCounts, count_queue};
pub use queue_list::{find_transfer, has_queue, list_queue, visit_queue};
pub use service::{
    REQUEST_FAILURES_LISTED, REQUEST_FILES_COUNTED, RequestStatus, Residency, ResidencyParts,
    ResidencyStartError, StageError, StageReply,
};
pub use sqlite_store::{SqliteStore, StoreError, StoreOpenError};
pub use stage_agent::{StageAgent, StageAgentSettings};
pub use stage_event::OutputLine;
pub use staging::{Staging, remote_name, source_of};
pub use store::{EntryStore, OwnerTurn, QueuePlaces};
pub use sweep::remove_leftovers;
pub use tape_requests::{
    SubmittedTapeFile, TAPE_BYTES_MAX, TAPE_FILE_BYTES, TAPE_REQUESTS_MAX, TAPE_SECONDS_KEPT, TapeChange,
    TapeFileNeed, TapeFileProgress, TapeFileStatus, TapeOutcome, TapeRequestStatus, TapeSubmission,
    read_tape_request,
};
pub use waiting::Waiter;
pub use wake_event::WakeEvent;
pub use work_claim::{DaemonClaim, DaemonWork, PurgeTurn, ServerClaim, SharedWork};
