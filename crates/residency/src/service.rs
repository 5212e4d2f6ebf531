//! [`Residency`]: the queue at work. One thread owns the database and decides; each copy that runs
//! has a thread of its own, the number of which the limits bound.
//!
//! A client that waits is a function in a table, and no thread. The commands that arrived together
//! become one transaction, and nothing follows from a command before it is durable.

use crate::entry::{CopyFailure, FailedFile, RequestId};
use crate::migration::Migration;
use crate::migration_search::{MigrationSchedule, MigrationSearch};
use crate::notification::RequestNotice;
use crate::outlived::QueueRun;
use crate::ports::{RemoteCatalog, ResidencyPaths};
use crate::purge::Purger;
use crate::queue::{QueueLimits, Submission, TransferQueue};
use crate::queue_thread::{Command, QueueThread};
use crate::queue_wake;
use crate::reaper::ProgramReaper;
use crate::record_import::RecordImport;
use crate::sqlite_store::{SqliteStore, StoreError, StoreOpenError};
use crate::stage_processes::EarlierPrograms;
use crate::staging::Staging;
use crate::sweep::remove_leftovers;
use crate::tape_load::TapeLoad;
use crate::tape_pins::{self, TapePins};
use crate::tape_requests::{TapeChange, TapeOutcome, TapeRequestStatus, read_tape_request};
use crate::waiting::Waiter;
use crate::work_claim::SharedWork;
use base::{Clock, LogicalPath, Supervisor};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::UNIX_EPOCH;
use storage::{Backend, DirectoryLock, PrivateDirectory};
use thiserror::Error;

/// The reason for which the queue cannot start.
#[derive(Debug, Error)]
pub enum ResidencyStartError {
    /// Another process has the lock.
    #[error("another process executes the transfers in {}: end it, or choose another directory with frm.xfr.qcheck", .0.display())]
    Locked(PathBuf),
    /// The directory cannot be used.
    #[error("cannot use the directory of transfers {}: {error}", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The queue cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    /// The queue cannot be read.
    #[error(transparent)]
    Read(#[from] StoreError),
    /// The thread cannot be started.
    #[error("cannot start the thread of transfers: {0}")]
    Thread(io::Error),
}

/// The reason for which a file did not come.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StageError {
    /// The copy failed for good.
    #[error("{0}")]
    Failed(CopyFailure),
    /// The request could not be recorded.
    #[error("{0}")]
    Queue(String),
}

/// A function that is called once with the result of a command. It never blocks.
pub type StageReply<T> = Box<dyn FnOnce(Result<T, StageError>) + Send>;

/// The state of a request.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RequestStatus {
    /// Number of files that have not come yet, counted up to [`REQUEST_FILES_COUNTED`].
    pub waiting: usize,
    /// The time of the first of them, in seconds since the epoch.
    pub added: u64,
    /// The priority of the first of them.
    pub priority: u8,
    /// The client that asked for the first of them.
    pub client: String,
    /// Files that failed for good, the first [`REQUEST_FAILURES_LISTED`].
    pub failed: Vec<FailedFile>,
}

/// Number of failed files of a request that a query lists.
pub const REQUEST_FAILURES_LISTED: usize = 100;

/// Number of files of a request that a query counts.
pub const REQUEST_FILES_COUNTED: usize = 100_000;

/// The queue at work.
pub struct Residency {
    commands: Sender<Command>,
    source: Arc<str>,
    catalog: Option<Arc<dyn RemoteCatalog>>,
    directory: PathBuf,
    /// Tape changes that wait.
    load: Arc<TapeLoad>,
}

/// Removes temporary files when no program of an earlier run can create others any more.
fn sweep_after(earlier: &EarlierPrograms, backend: &dyn Backend, paths: &dyn ResidencyPaths) {
    earlier.wait(None);
    remove_leftovers(backend, paths);
}

/// The parts of a queue.
pub struct ResidencyParts {
    /// The directory of the database.
    pub directory: PathBuf,
    /// The limits.
    pub limits: QueueLimits,
    /// The copies.
    pub staging: Staging,
    /// The exports.
    pub paths: Arc<dyn ResidencyPaths>,
    /// The search for files to be migrated; `None` if no export migrates.
    pub migration: Option<MigrationSchedule>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Residency {
    /// Opens the queue, and continues the transfers of an earlier run. Blocks; for the start of the
    /// server.
    pub fn start(parts: ResidencyParts, supervisor: &Supervisor) -> Result<Self, ResidencyStartError> {
        let ResidencyParts { directory, limits, staging, paths, migration, clock } = parts;
        let fail = |error| ResidencyStartError::Directory { directory: directory.clone(), error };
        // It holds the arguments of programs, so nobody else may have put anything there.
        let place = PrivateDirectory::create(&directory).map_err(fail)?;
        let lock = DirectoryLock::claim(&place, SharedWork::Transfers.worker())
            .map_err(fail)?
            .ok_or_else(|| ResidencyStartError::Locked(directory.clone()))?;
        let mut store = SqliteStore::open(&place)?;
        let mut import = RecordImport {
            store: &mut store,
            queue: &TransferQueue::new(limits.clone()),
            paths: paths.as_ref(),
            remote_root: &staging.remote_root,
            source: staging.source().into(),
            now: clock.today().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        import.run(&place)?;
        let run = QueueRun::of(place.path()).map_err(fail)?;
        let source: Arc<str> = staging.source().into();
        let (backend, catalog) = (staging.backend.clone(), staging.catalog.clone());
        let (commands, inbox) = channel();
        let staging = Arc::new(staging);
        let purger = Purger::for_releases(&staging, &paths, &directory);
        let copies = Migration { staging: staging.clone(), paths: paths.clone(), purger };
        let pins = TapePins::new(backend.clone(), place.path());
        let earlier = Arc::new(EarlierPrograms::of(place.path()).map_err(fail)?);
        let parts = (limits, (staging, copies), (run.clone(), earlier.clone()), pins);
        let thread = QueueThread::recovered(store, parts, clock, (commands.clone(), inbox), lock)?;
        let work = move || thread.run();
        supervisor.spawn("residency", "the queue of transfers", work).map_err(ResidencyStartError::Thread)?;
        if let Err(error) = queue_wake::receive(&place, commands.clone()) {
            tracing::warn!(%error, "requests of frm_xfragent begin up to a minute late: no socket for them");
        }
        let wanted = commands.clone();
        let reaper = ProgramReaper {
            run,
            backend: backend.clone(),
            paths: paths.clone(),
            is_wanted: Box::new(move |key| {
                let (reply, answer) = channel();
                wanted.send(Command::IsWanted(key, reply)).ok()?;
                answer.recv().ok()
            }),
        };
        let search = migration.map(|schedule| MigrationSearch {
            backend: backend.clone(),
            paths: paths.clone(),
            catalog: catalog.clone(),
            schedule,
            source: source.clone(),
            commands: commands.clone(),
        });
        let (pinned, queue) = (backend.clone(), place.path().to_owned());
        let sweep = move || sweep_after(&earlier, backend.as_ref(), paths.as_ref());
        for (name, work) in [
            ("staging-sweep", Box::new(sweep) as Box<dyn FnOnce() + Send>),
            ("tape-pins", Box::new(move || tape_pins::renew_all(pinned.as_ref(), &queue))),
            ("staging-reaper", Box::new(move || reaper.run())),
            ("migration-search", Box::new(move || search.into_iter().for_each(MigrationSearch::run))),
        ] {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn(work).map_err(ResidencyStartError::Thread)?;
        }
        let directory = place.path().to_owned();
        Ok(Self { commands, source, catalog, directory, load: Arc::default() })
    }

    /// Ends all copies, which stay in the queue, and starts no other one. `reply` is called when all
    /// programs have ended.
    pub fn end(&self, reply: Box<dyn FnOnce() + Send>) {
        self.send(Command::End(reply));
    }

    /// Returns the host that files come from, for [`Submission::source`].
    #[must_use]
    pub fn source(&self) -> Arc<str> {
        self.source.clone()
    }

    /// Returns the names in mass storage, if there is a program for them. Purges beside the queue use the same one, so that
    /// no more of its processes run.
    #[must_use]
    pub fn catalog(&self) -> Option<Arc<dyn RemoteCatalog>> {
        self.catalog.clone()
    }

    /// Brings a file in. The waiter gets the result when the file has its name, or has failed for good.
    /// If all clients that wait for it have left before its copy starts, it does not start.
    pub fn fetch(&self, submission: Submission, waiter: Waiter) {
        self.send(Command::Fetch(submission, waiter));
    }

    /// Records requests. `reply` is called when they are durable. If one of the transfers is refused
    /// because it failed a short time ago, none is recorded.
    /// `notice` are the messages that the request wants.
    pub fn submit(&self, submissions: Vec<Submission>, notice: Option<RequestNotice>, reply: StageReply<()>) {
        self.send(Command::Submit(submissions, notice, reply));
    }

    /// Records one request, also for a transfer that failed a short time ago. `reply` is called when it
    /// is durable.
    pub fn retry(&self, submission: Submission, reply: StageReply<()>) {
        self.send(Command::Retry(submission, reply));
    }

    /// Cancels a request. Transfers that nobody else wants end.
    pub fn cancel(&self, request: RequestId, reply: StageReply<()>) {
        self.send(Command::Cancel(request, reply));
    }

    /// Returns the state of a request. One without a file that is still to come, and without a file
    /// that failed lately, is like one that never existed.
    pub fn query(&self, request: RequestId, reply: StageReply<RequestStatus>) {
        self.send(Command::Query(request, reply));
    }

    /// Changes a tape request. `reply` is called when the change is durable. It finds no place if too many
    /// changes wait.
    pub fn change_tape_request(&self, change: TapeChange, reply: StageReply<TapeOutcome>) {
        match self.load.admit(&change) {
            Some(permit) => self.send(Command::Tape(change, permit, reply)),
            None => reply(Ok(TapeOutcome::NoPlace("too many requests wait; try again later".to_owned()))),
        }
    }

    /// Returns the state of a tape request, see [`read_tape_request`]. Blocks.
    ///
    /// # Errors
    /// [`StageError::Queue`] if the queue cannot be read.
    pub fn tape_request(
        &self,
        id: &RequestId,
        after: Option<&LogicalPath>,
        most: usize,
    ) -> Result<Option<TapeRequestStatus>, StageError> {
        read_tape_request(&self.directory, id, after, most)
            .map_err(|error| StageError::Queue(error.to_string()))
    }

    fn send(&self, command: Command) {
        if let Err(refused) = self.commands.send(command) {
            refused.0.fail(&StageError::Queue("the queue of transfers has ended".to_owned()));
        }
    }
}
