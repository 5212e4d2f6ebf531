//! The entry point of the crate, [`Logical`]: owns the components and dispatches each operation of
//! [`vfs`] to one of them.

use crate::admin_claims::AdminOrders;
use crate::all_names::IncompleteReason;
use crate::checkpoint::{BlockedFile, CheckpointEffect, CheckpointOrder, CheckpointTable};
use crate::checksum::{ChecksumService, ChecksumServices};
use crate::client_operations::ClientOperations;
use crate::config::{Config, ExportConfig};
use crate::describe::UserDirectory;
use crate::events::{EventForwarder, Events};
use crate::exports::ExportTable;
use crate::file_services::FileServices;
use crate::journal::{DiskDirectory, JournalDirectory};
use crate::multi_user::{MultiUser, UserAccounts};
use crate::open_table::OpenTable;
use crate::persist::{ClearOutcome, ListReply, UnfinishedFile, UnfinishedFiles, WalkLimits};
use crate::presence::{PathPresence, PresenceServices};
use crate::queries::Locator;
use crate::rights::StorageRights;
use crate::status::{LogicalStatus, LogicalTotals};
use crate::third_party::{ThirdPartyCopies, ThirdPartyParts};
use crate::wholeness::WholenessRule;
use crate::writers::FileKey;
use crate::{job, prepare};
use base::{Clock, Error, ErrorKind, LogicalPath, Owner, Supervisor};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use storage::{Backend, Metadata};
use vfs::{Caller, FileSystem, Operation, ReplyTo, Started};

/// Interval of [`Logical::tick`], which checks the hold times of unfinished files.
const TICK: Duration = Duration::from_secs(1);

/// The parts from which a logical file system is built.
pub struct LogicalParts {
    /// The configuration.
    pub config: Config,
    /// The storage.
    pub backend: Arc<dyn Backend>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Names of owners.
    pub users: Arc<dyn UserDirectory>,
    /// The cluster's locations of files; `None` for a stand-alone server.
    pub locator: Option<Arc<dyn Locator>>,
    /// The journals.
    pub journals: Journals,
    /// The accounts with whose rights operations are made; `None`: with those of the server. The
    /// storage must be able to act for users.
    pub accounts: Option<UserAccounts>,
}

/// The storage of data that must survive the process.
pub struct Journals {
    /// The journal of unfinished files.
    pub persist: Arc<dyn JournalDirectory>,
    /// The journals of checkpoints.
    pub checkpoints: Arc<dyn JournalDirectory>,
}

impl Journals {
    /// Returns the directories that the configuration names.
    pub fn on_disk(config: &Config) -> Self {
        Self {
            persist: Arc::new(DiskDirectory::new(config.persist_directory.clone())),
            checkpoints: Arc::new(DiskDirectory::new(config.checkpoint_directory.clone())),
        }
    }
}

/// The logical file system of a data server.
pub struct Logical {
    operations: Arc<ClientOperations>,
    multi_user: Option<Arc<MultiUser>>,
    exports: Arc<ExportTable>,
    orders: AdminOrders,
    presences: Arc<PresenceServices>,
}

impl Logical {
    /// Builds the file system after recovery of the state that an earlier run left. Blocks; for the
    /// start of the server.
    pub fn new(parts: LogicalParts) -> Result<Arc<Self>, Error> {
        let LogicalParts { config, backend, clock, users, locator, journals, accounts } = parts;
        let (checkpoints, persist) = recover(&config, &backend, &clock, journals)?;
        let exports = Arc::new(ExportTable::new(&config.exports));
        let open_table = Arc::new(OpenTable::new());
        let wholeness = Arc::new(WholenessRule {
            persist_mode: config.persist.mode,
            hold: config.persist.hold,
            exports: exports.clone(),
            backend: backend.clone(),
            persist: persist.clone(),
            users: users.clone(),
            clock: clock.clone(),
        });
        let checksums = Arc::new(ChecksumService::new(ChecksumServices {
            config: config.checksums.clone(),
            shares_results: accounts.is_none(),
            delay_max: config.delay_max,
            exports: exports.clone(),
            backend: backend.clone(),
            clock: clock.clone(),
            open_table: open_table.clone(),
            checkpoints: checkpoints.clone(),
            wholeness: wholeness.clone(),
        }));
        let services = Arc::new(FileServices {
            attribute_limits: config.attributes,
            checksum_type: config.checksums.default_type(),
            backend,
            clock,
            users,
            open_table,
            persist,
            checkpoints,
            checksums,
            events: Arc::new(EventForwarder::default()),
            wholeness,
            rights: if accounts.is_some() { StorageRights::Server } else { StorageRights::Common },
        });
        Ok(Arc::new(Self::serving(config, exports, services, (locator, accounts))))
    }

    fn serving(
        config: Config,
        exports: Arc<ExportTable>,
        services: Arc<FileServices>,
        (locator, accounts): (Option<Arc<dyn Locator>>, Option<UserAccounts>),
    ) -> Self {
        let orders = AdminOrders {
            exports: exports.clone(),
            backend: services.backend.clone(),
            open_table: services.open_table.clone(),
            persist: services.persist.clone(),
            checkpoints: services.checkpoints.clone(),
            checksums: services.checksums.clone(),
            wholeness: services.wholeness.clone(),
            events: services.events.clone(),
        };
        let presences = PresenceServices {
            exports: exports.clone(),
            backend: services.backend.clone(),
            persist: services.persist.clone(),
            wholeness: services.wholeness.clone(),
        };
        let clock = services.clock.clone();
        let operations = Arc::new(ClientOperations::new(config, &exports, services, locator));
        let multi_user = accounts.map(|accounts| MultiUser::new(accounts, operations.clone(), clock));
        Self { operations, multi_user, exports, orders, presences: Arc::new(presences) }
    }

    fn services(&self) -> &FileServices {
        self.operations.services()
    }

    /// Reports whether operations are made with the rights of the accounts of clients.
    pub fn acts_for_users(&self) -> bool {
        self.multi_user.is_some()
    }

    /// Returns the storage.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.services().backend
    }

    /// Sets the receiver of events about names. To be called once, before the first request; later
    /// calls are ignored.
    pub fn set_events(&self, events: Arc<dyn Events>) {
        self.services().events.set(events);
    }

    /// Enables third-party copies. To be called once, before the first request. Without it, an open
    /// that belongs to such a copy is refused.
    pub fn copy_for_others(&self, parts: ThirdPartyParts) {
        let third = ThirdPartyCopies::new(parts, self.services().clock.clone());
        let _ = self.operations.third_party().set(Arc::new(third));
    }

    /// Handles all timeouts: removes unfinished files after their hold time, ends third-party
    /// copies without progress, and starts listings that have waited too long for others.
    ///
    /// To be called about once per second; [`Logical::start_timer`] does so. Never blocks.
    pub fn tick(&self) {
        self.operations.tick();
        if let Some(multi_user) = &self.multi_user {
            multi_user.tick();
        }
        if let Some(third) = self.operations.third_party().get() {
            third.tick();
        }
        for (ticket, path) in self.services().persist.expired() {
            let (services, other) = (self.operations.services().clone(), self.operations.services().clone());
            let job = move |_| {
                if let Some(path) = services.persist.remove(ticket, services.backend.as_ref()) {
                    services.events.removed(&path);
                }
            };
            job::run_where_blocking(&self.services().backend, Owner::SERVER, &path, None, job, move || {
                other.persist.postpone(ticket)
            });
        }
    }

    /// Starts the thread that calls [`Logical::tick`] as long as this file system lives; faults go
    /// to `supervisor`.
    pub fn start_timer(self: &Arc<Self>, supervisor: &Supervisor) -> std::io::Result<()> {
        let weak = Arc::downgrade(self);
        let beat = move || {
            while let Some(logical) = weak.upgrade() {
                logical.tick();
                drop(logical);
                std::thread::sleep(TICK);
            }
        };
        supervisor.spawn("logical-timer", "the timer of the file system", beat).map(drop)
    }

    /// Adds up a number of the components of all accounts.
    fn of_accounts(&self, number: impl Fn(&ClientOperations) -> usize) -> usize {
        self.multi_user.as_ref().map_or(0, |multi_user| multi_user.sum(number))
    }

    /// Returns the numbers since the start.
    pub fn totals(&self) -> LogicalTotals {
        let third_party = self.operations.third_party().get();
        LogicalTotals {
            undone_files: self.services().persist.undone(),
            third_party: third_party.map(|third| third.counters.counts()).unwrap_or_default(),
        }
    }

    /// Returns the present counters.
    pub fn status(&self) -> LogicalStatus {
        let services = self.services();
        let locks = services.open_table.locks.counts();
        LogicalStatus {
            open_files: services.open_table.handles(),
            open_paths: locks.paths,
            readers: locks.readers,
            writers: locks.writers,
            pending_files: services.persist.count(),
            checkpoints: services.checkpoints.count(),
            checksums: services.checksums.count() + self.of_accounts(|of| of.services().checksums.count()),
            scans: self.operations.scans() + self.of_accounts(ClientOperations::scans),
        }
    }
}

/// Administrator commands.
impl Logical {
    /// Returns the unfinished files that have a record, sorted by path. Never blocks.
    pub fn unfinished(&self) -> Vec<UnfinishedFile> {
        self.orders.unfinished()
    }

    /// Lists the unfinished files at and below a path in an export, including files with the mark
    /// but without a record. The walk ends early when the list is no longer needed.
    ///
    /// Never blocks: `reply` is called on a pool thread with the list or an error.
    pub fn list_unfinished(&self, below: &LogicalPath, limits: WalkLimits, reply: impl ListReply) {
        self.orders.list_unfinished(below, limits, reply);
    }

    /// Declares an unfinished file complete, or ends the record of a file that does not exist.
    /// Without `force` a file that another server may be writing is refused. Blocks.
    pub fn clear_unfinished(&self, path: &LogicalPath, force: bool) -> Result<ClearOutcome, Error> {
        self.orders.clear_unfinished(path, force)
    }

    /// Returns the files whose checkpoint is neither committed nor undone, and which no client may
    /// change.
    pub fn blocked_files(&self) -> Vec<BlockedFile> {
        self.orders.blocked_files()
    }

    /// Resolves the checkpoint of a blocked file, and returns the effect on the file. The journal
    /// is renamed and kept. Blocks.
    pub fn resolve_checkpoint(
        &self,
        path: &LogicalPath,
        order: CheckpointOrder,
    ) -> Result<Option<CheckpointEffect>, Error> {
        self.orders.resolve_checkpoint(path, order)
    }
}

/// Queries by the cluster node of this server.
impl Logical {
    /// Reports whether a path lies in an export, independent of its existence.
    pub fn exports(&self, path: &LogicalPath) -> bool {
        self.presences.is_exported(path)
    }

    /// Returns whether a path exists here, if that is in memory; `None` otherwise, see
    /// [`Self::look`]. Never blocks.
    pub fn look_now(&self, path: &LogicalPath) -> Option<PathPresence> {
        self.presences.look_now(path)
    }

    /// Looks up whether these paths exist here.
    ///
    /// `then` receives the results, several at a time, on a pool thread of their file system. For
    /// links it is that of the target. If that pool is full, it is called at once. Names on local
    /// disks are looked up one after the other on one thread, because waking a thread for each
    /// would take longer. Never blocks.
    pub fn look<T, F>(&self, paths: Vec<(LogicalPath, T)>, then: &F)
    where
        T: Copy + Send + 'static,
        F: Fn(Vec<(LogicalPath, T, PathPresence)>) + Clone + Send + 'static,
    {
        self.presences.look(paths, then);
    }

    /// Sets the access time of a file to now, if it exists here, because a prepare request named
    /// it. Never blocks.
    pub fn freshen(&self, path: &LogicalPath) {
        if self.exports.find(path, "Preparing").is_ok() {
            prepare::freshen(&self.services().backend, path);
        }
    }

    /// Returns an id for a request of a client that outlives its connection. Nobody can guess it.
    pub(crate) fn issue_random_id(&self, owner: &str) -> String {
        self.operations.prepare_ids().issue_random(owner, &mut auth::SystemRng)
    }

    /// Refuses a path that lies in no export.
    pub(crate) fn check_export(&self, path: &LogicalPath) -> Result<(), Error> {
        self.exports.find(path, "Preparing").map(drop)
    }

    /// Returns whether a path exists here. May block.
    pub(crate) fn presence(&self, path: &LogicalPath) -> PathPresence {
        self.presences.presence_of(path)
    }

    /// Returns the paths of all exports.
    pub fn export_prefixes(&self) -> Vec<LogicalPath> {
        self.exports.all().iter().map(|export| export.prefix.without_slash()).collect()
    }

    /// Reports whether missing files at a path are brought in from mass storage.
    pub fn stages(&self, path: &LogicalPath) -> bool {
        self.exports.find(path, "Staging").is_ok_and(|export| export.stage)
    }

    /// Reports whether a file at a path is created only if it does not exist in mass storage.
    pub fn checks(&self, path: &LogicalPath) -> bool {
        self.exports.find(path, "Creating").is_ok_and(|export| export.check && !export.is_read_only())
    }

    /// Reports whether a new file at a path is created in mass storage first. With multi-user, only the disk knows who may
    /// create it.
    pub(crate) fn creates_remote(&self, path: &LogicalPath) -> bool {
        let export = self.exports.find(path, "Creating");
        !self.acts_for_users()
            && export.is_ok_and(|export| {
                export.remote_create && !export.is_read_only() && Self::has_remote(export)
            })
    }

    /// Reports whether listings of a path also have the names in mass storage. With multi-user, nothing shows who may
    /// list a directory that is not on disk.
    pub(crate) fn lists_remote(&self, path: &LogicalPath) -> bool {
        let export = self.exports.find(path, "Listing");
        export.is_ok_and(|export| export.remote_directories && Self::has_remote(export))
    }

    /// Reports whether files at a path are in mass storage too, so that changes of their names concern it.
    pub(crate) fn is_remote(&self, path: &LogicalPath) -> bool {
        self.exports.find(path, "Removing").is_ok_and(Self::has_remote)
    }

    fn has_remote(export: &ExportConfig) -> bool {
        export.stage || export.migrate
    }

    /// Reports whether new and changed files at a path are copied to mass storage.
    pub fn migrates(&self, path: &LogicalPath) -> bool {
        self.exports.find(path, "Migrating").is_ok_and(|export| export.migrate)
    }

    /// Reports whether files at a path with a copy in mass storage may be removed.
    pub fn purges(&self, path: &LogicalPath) -> bool {
        self.exports.find(path, "Purging").is_ok_and(|export| export.purge)
    }

    /// Reports whether a file is open for writing or being renamed, under this name or another.
    pub fn has_writer(&self, path: &LogicalPath, metadata: &Metadata) -> bool {
        self.services().open_table.has_writer(path, metadata)
    }

    /// Returns a function that reports whether a file had a writer at any time since, or is being
    /// renamed, under whatever name.
    pub fn watch_writers(&self, metadata: &Metadata) -> impl Fn() -> bool + Send + use<> {
        let observer = self.services().open_table.writers.observe(FileKey::from(metadata));
        move || observer.was_disturbed()
    }

    pub(crate) fn is_read_only(&self, path: &LogicalPath) -> bool {
        self.exports.find(path, "Stating").is_ok_and(ExportConfig::is_read_only)
    }

    pub(crate) fn users(&self) -> &dyn UserDirectory {
        self.services().users.as_ref()
    }

    /// Reports a file that came from mass storage to the receiver of events.
    pub fn report_arrival(&self, path: &LogicalPath) {
        self.services().events.created(path, false);
    }

    /// Reports a file that was removed because its space was needed to the receiver of events.
    pub fn report_removal(&self, path: &LogicalPath) {
        self.services().events.removed(path);
    }

    /// Calls `with` for each file that exists here, directory by directory, until it returns
    /// `false`.
    ///
    /// Unfinished files are omitted. A directory that is reached through links is visited once,
    /// under one of its paths. Blocks for long and needs its own thread.
    pub fn walk(&self, with: &mut dyn FnMut(&LogicalPath) -> bool) {
        self.presences.walk(with);
    }

    /// Calls `with` for each name below the exports, including directories and unfinished files,
    /// until it returns `false`.
    ///
    /// Returns the reason if the list is incomplete: a failure of the storage, an early stop by
    /// `with`, or links that give a file a second path. No event reports a file under its second
    /// path. Blocks for long and needs its own thread.
    pub fn walk_names(&self, with: &mut dyn FnMut(&LogicalPath) -> bool) -> Option<IncompleteReason> {
        self.presences.walk_names(with)
    }
}

impl FileSystem for Logical {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        match &self.multi_user {
            None => self.operations.start(caller, operation, reply),
            Some(multi_user) => multi_user.start(caller, operation, reply),
        }
    }
}

/// Recovers the state that an earlier run left. Blocks.
fn recover(
    config: &Config,
    backend: &Arc<dyn Backend>,
    clock: &Arc<dyn Clock>,
    journals: Journals,
) -> Result<(Arc<CheckpointTable>, Arc<UnfinishedFiles>), Error> {
    let fail = |what: &str| {
        let what = what.to_owned();
        move |e: io::Error| Error { kind: ErrorKind::from_io(&e), text: what, source: Some(e) }
    };
    // Checkpoints are undone first, because all other decisions need the file in its proper state.
    let checkpoints =
        CheckpointTable::new(config.checkpoints.clone(), journals.checkpoints, backend.as_ref())
            .map_err(fail("cannot undo the checkpoints of an earlier run"))?;
    let persist =
        UnfinishedFiles::new(config.persist.clone(), clock.clone(), journals.persist, backend.as_ref())
            .map_err(fail("cannot read or write the journal of unfinished files"))?;
    Ok((Arc::new(checkpoints), Arc::new(persist)))
}
