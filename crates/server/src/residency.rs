//! Staging and migration of a running server: its queue and programs, as the port that the file system uses.

use crate::adapters::SystemClock;
use crate::copy_programs::{check_program, copy_agent};
use crate::error::StartError;
use crate::name_space_events::NameSpaceEvents;
use crate::transfer_monitor::TransferMonitor;
use base::{Error, ErrorKind, LogicalPath, Supervisor};
use config::Effective;
use logical::{
    HasLeft, Logical, RecordChange, RecordedFile, RecordedNeed, StageNotice, StageRequest, StagedFiles,
    Stager, StagerReply,
};
use residency::{
    CatalogProcesses, CatalogProgram, CopyAgent, CopyDifferences, CopyFailure, EndedCopy, EntryKey,
    FailureReason, MigrationSchedule, NameOrder, NameOutcome, PathResidency, Priority, QueueLimits,
    RemoteCatalog, RemoteNames, RequestId, RequestNotice, RequestStatus, Residency, ResidencyEvents,
    ResidencyParts, ResidencyPaths, ServerClaim, SharedWork, StageError, Staging, Submission,
    SubmittedTapeFile, TapeChange, TapeFileNeed, TapeFileProgress, TapeOutcome, TapeRequestStatus,
    TapeSubmission, TransferDirection, Waiter, WriterWatch, remote_name,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use storage::Metadata;
use vfs::{FileSystem, TapeFileState, TapeProgress, TapeState};

/// Number of tries of a copy, and seconds between the first and the second one. A client waits for
/// all of them.
const TRIES_MAX: u32 = 3;
const BACKOFF_SECONDS: u64 = 2;

/// Maximum time that an orderly end of the server waits for the end of copy programs. They have 5 s
/// between two signals.
const COPIES_END_MAX: Duration = Duration::from_secs(8);

/// Number of files that a program that reads lines has at once, without `oss.xfr`.
const AGENT_FILES: u32 = 64;

/// Number of files of a tape request that are read at once.
const TAPE_FILES_OF_PAGE: usize = 256;

/// `st_mode` of files and directories in mass storage.
const TYPE_FILE: u32 = 0o100_000;
const TYPE_DIRECTORY: u32 = 0o040_000;

/// The transfers that a configuration wants.
pub(crate) struct TransferPlan {
    programs: Arc<dyn CopyAgent>,
    catalog: Option<Arc<dyn RemoteCatalog>>,
    stages: bool,
    migrates: bool,
}

impl TransferPlan {
    /// Returns the transfers of a configuration, after a check of their programs. `None` if no export stages or
    /// migrates files, or no program copies them.
    pub(crate) fn of(effective: &Effective) -> Result<Option<Self>, StartError> {
        let values = &effective.residency;
        let has_export = |is_wanted: fn(&config::ExportAttributes) -> bool| {
            effective.storage.exports.iter().any(|export| is_wanted(&export.attributes))
        };
        let stages = has_export(|attributes| attributes.stage) && values.has_copy_program();
        let migrates = has_export(|attributes| attributes.migrate) && values.has_migration_program();
        if !stages && !migrates {
            return Ok(None);
        }
        let root = values.remote_root.value.clone().unwrap_or_default();
        let programs = copy_agent(effective, &root, (stages, migrates)).map_err(StartError::Residency)?;
        let catalog = remote_catalog(effective)?;
        Ok(Some(Self { programs, catalog, stages, migrates }))
    }

    /// Returns the parts of the queue.
    pub(crate) fn into_parts(
        self,
        effective: &Effective,
        backend: Arc<dyn storage::Backend>,
        (paths, events): (Arc<dyn ResidencyPaths>, Arc<dyn ResidencyEvents>),
    ) -> ResidencyParts {
        let values = &effective.residency;
        let staging = Staging {
            backend,
            agent: self.programs,
            events,
            catalog: self.catalog,
            remote_root: values.remote_root.value.clone().unwrap_or_default(),
            differences: CopyDifferences::default(),
        };
        ResidencyParts {
            directory: effective.transfer_directory(),
            limits: queue_limits(effective),
            staging,
            paths,
            migration: self.migrates.then_some(MigrationSchedule {
                interval: values.migration_interval.value,
                idle: values.migration_idle.value,
            }),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

/// Returns the limits of the queue of a configuration.
pub(crate) fn queue_limits(effective: &Effective) -> QueueLimits {
    let values = &effective.residency;
    let threads = (*values.stage_threads).filter(|_| values.stage_program.is_some());
    let default = if values.stage_form.reads_lines() { AGENT_FILES } else { values.slots.inward };
    let slots = usize::try_from(threads.unwrap_or(default)).unwrap_or(1);
    QueueLimits {
        slots_in: slots,
        slots_out: usize::try_from(values.slots.outward).unwrap_or(1),
        slots_of_source: slots,
        slots_of_owner: values.share.value.copies.map_or(slots, |copies| copies as usize),
        places: u64::from(values.share.value.places),
        tries_max: TRIES_MAX,
        backoff: BACKOFF_SECONDS,
        deny: values.deny.as_secs(),
        failures_kept: values.prepare_keep.as_secs(),
    }
}

/// Returns the files of a server behind its queue of transfers, if any export stages or migrates files
/// and there is a program that copies them.
pub(crate) fn staged_files(
    logical: &Arc<Logical>,
    effective: &Effective,
    monitor: &Option<Arc<TransferMonitor>>,
    supervisor: &Supervisor,
) -> Result<(Arc<dyn FileSystem>, Option<ClaimedTransfers>), StartError> {
    let Some(plan) = TransferPlan::of(effective)? else { return Ok((logical.clone(), None)) };
    let catalog = plan.catalog.clone();
    // Without one, names in mass storage are not asked for.
    let is_staging = plan.stages;
    let is_in_front = plan.stages || catalog.is_some();
    let claim = server_claim(effective, SharedWork::Transfers)?;
    let paths = Arc::new(Exports(Arc::downgrade(logical)));
    let events = Arc::new(FileEvents::new(logical, monitor, effective));
    let parts = plan.into_parts(effective, logical.backend().clone(), (paths, events));
    let residency = Residency::start(parts, supervisor);
    let residency = Arc::new(residency.map_err(|error| StartError::Residency(error.to_string()))?);
    if !is_in_front {
        return Ok((logical.clone(), Some((residency, claim))));
    }
    let creates = is_staging && effective.residency.stage_creates;
    let stager =
        QueueStager { residency: residency.clone(), catalog, creates, warned: AtomicBool::new(false) };
    Ok((StagedFiles::before(logical.clone(), Arc::new(stager)), Some((residency, claim))))
}

/// Claims work for this server, so that no daemon does it.
pub(crate) fn server_claim(effective: &Effective, work: SharedWork) -> Result<ServerClaim, StartError> {
    let directory = effective.transfer_directory();
    let fail = |reason: String| {
        let directory = directory.display();
        StartError::Residency(format!("cannot use the directory of transfers {directory}: {reason}"))
    };
    let claim = ServerClaim::take(&directory, work).map_err(|error| fail(error.to_string()))?;
    claim.ok_or_else(|| fail("another server uses it; choose another one with frm.xfr.qcheck".to_owned()))
}

/// The transfers of a server.
pub(crate) type ServerTransfers = Arc<Residency>;
/// That queue, and what keeps daemons from the same work.
type ClaimedTransfers = (ServerTransfers, ServerClaim);

/// Ends all copies, and waits for the end of their programs.
pub(crate) async fn end(transfers: Option<ServerTransfers>) {
    let Some(transfers) = transfers else { return };
    let (reply, ended) = tokio::sync::oneshot::channel();
    let report = move || {
        // It fails if nobody waits any more.
        reply.send(()).ok();
    };
    transfers.end(Box::new(report));
    if tokio::time::timeout(COPIES_END_MAX, ended).await.is_err() {
        tracing::warn!("copy programs still run; the next start of the server continues with them");
    }
}

/// Returns the names in mass storage, after a check of the program that knows them, if there is one.
pub(crate) fn remote_catalog(effective: &Effective) -> Result<Option<Arc<dyn RemoteCatalog>>, StartError> {
    let values = &effective.residency;
    let Some(program) = &values.catalog.value else { return Ok(None) };
    check_program(&program.path).map_err(StartError::Residency)?;
    let root = values.remote_root.value.clone().unwrap_or_default();
    Ok(Some(Arc::new(CatalogProgram {
        program: program.path.clone(),
        arguments: program.arguments.clone(),
        remote_name: Box::new(move |path| remote_name(&root, path)),
        processes: values.catalog_reads_lines.then(CatalogProcesses::default),
    })))
}

/// The exports of the file system.
pub(super) struct Exports(pub(super) Weak<Logical>);

impl ResidencyPaths for Exports {
    fn roots(&self) -> Vec<LogicalPath> {
        self.0.upgrade().map(|logical| logical.export_prefixes()).unwrap_or_default()
    }

    fn of(&self, path: &LogicalPath) -> PathResidency {
        let Some(logical) = self.0.upgrade() else { return PathResidency::default() };
        PathResidency {
            stage: logical.stages(path),
            migrate: logical.migrates(path),
            purge: logical.purges(path),
        }
    }

    fn has_writer(&self, path: &LogicalPath, metadata: &Metadata) -> bool {
        self.0.upgrade().is_some_and(|logical| logical.has_writer(path, metadata))
    }

    fn watch_writers(&self, metadata: &Metadata) -> WriterWatch {
        match self.0.upgrade() {
            Some(logical) => Box::new(logical.watch_writers(metadata)),
            None => Box::new(|| true),
        }
    }
}

/// Reports files that came to the file system, or left it.
pub(super) struct FileEvents {
    logical: Weak<Logical>,
    monitor: Option<Arc<TransferMonitor>>,
    name_space: NameSpaceEvents,
}

impl FileEvents {
    pub(super) fn new(
        logical: &Arc<Logical>,
        monitor: &Option<Arc<TransferMonitor>>,
        effective: &Effective,
    ) -> Self {
        let name_space = NameSpaceEvents::of(effective);
        Self { logical: Arc::downgrade(logical), monitor: monitor.clone(), name_space }
    }
}

impl ResidencyEvents for FileEvents {
    fn arrived(&self, path: &LogicalPath) {
        if let Some(logical) = self.logical.upgrade() {
            logical.report_arrival(path);
        }
    }

    fn removed(&self, path: &LogicalPath) {
        if let Some(logical) = self.logical.upgrade() {
            logical.report_removal(path);
        }
        self.name_space.removed(path);
    }

    fn purged(&self, path: &LogicalPath, metadata: &Metadata) {
        if let Some(monitor) = &self.monitor {
            monitor.purged(path, metadata);
        }
    }

    fn copied(&self, copy: &EndedCopy<'_>) {
        if let Some(monitor) = &self.monitor {
            monitor.copied(copy);
        }
        self.name_space.copied(copy);
    }
}

/// The queue as the port of the file system.
struct QueueStager {
    residency: ServerTransfers,
    catalog: Option<Arc<dyn RemoteCatalog>>,
    /// The files that clients create are staged too.
    creates: bool,
    /// The log has a line about orders that its program does not know.
    warned: AtomicBool,
}

impl QueueStager {
    /// Gives an order to the program that knows the names in mass storage. One that does not know it changes nothing.
    fn order(&self, order: NameOrder<'_>) -> Result<NameOutcome, Error> {
        let Some(catalog) = &self.catalog else { return Ok(NameOutcome::Unknown) };
        let outcome = catalog.order(order).map_err(|reason| failure(&reason))?;
        if outcome == NameOutcome::Unknown && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the program of oss.rsscmd does not know {}, so mass storage does not follow what clients do with names",
                match order {
                    NameOrder::Create(..) => "create",
                    NameOrder::Remove(_) => "rm",
                    NameOrder::Rename(..) => "mv",
                }
            );
        }
        Ok(outcome)
    }

    fn change_tape_request(&self, change: TapeChange, reply: StagerReply<()>) {
        let done = move |result: Result<TapeOutcome, StageError>| {
            reply(match result {
                Ok(TapeOutcome::Done) => Ok(()),
                Ok(TapeOutcome::Unknown) => Err(Error::new(ErrorKind::NotFound, "There is no such request")),
                Ok(TapeOutcome::OtherFile(path)) => {
                    let text = format!("{} is not a file of the request", path.text());
                    Err(Error::new(ErrorKind::ArgInvalid, text))
                }
                Ok(TapeOutcome::NoPlace(text)) => Err(Error::new(ErrorKind::OverQuota, text)),
                Err(failure) => Err(error(failure)),
            });
        };
        self.residency.change_tape_request(change, Box::new(done));
    }

    fn submission(&self, request: StageRequest, id: Option<&RequestId>) -> Submission {
        Submission {
            key: EntryKey { direction: TransferDirection::In, path: request.path },
            priority: Priority::new(request.priority),
            source: self.residency.source(),
            client: request.client,
            owner: request.owner,
            request: id.cloned(),
            removes: false,
        }
    }
}

fn failure(failure: &CopyFailure) -> Error {
    let kind = match failure.reason {
        FailureReason::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::FsError,
    };
    Error::new(kind, failure.text.to_string())
}

fn error(error: StageError) -> Error {
    match error {
        StageError::Failed(reason) => failure(&reason),
        StageError::Queue(text) => Error::new(ErrorKind::FsError, text),
    }
}

/// Describes a request as XRootD does: id, client, priority, number of files, time. A line follows for
/// each file that failed.
fn describe(id: &str, status: RequestStatus) -> Option<String> {
    let RequestStatus { waiting, added, priority, client, failed } = status;
    let mut text = format!("{id} {client} {priority} {waiting} {added}");
    for file in &failed {
        text.push_str(&format!("\n{}: {}", printable(&file.path), printable(&file.text)));
    }
    (waiting > 0 || !failed.is_empty()).then_some(text)
}

/// Returns the state of a tape request, with a page of its files.
fn tape_state(status: TapeRequestStatus) -> TapeState {
    let progress = |progress| match progress {
        TapeFileProgress::Submitted => TapeProgress::Submitted,
        TapeFileProgress::Started => TapeProgress::Started,
        TapeFileProgress::Completed => TapeProgress::Completed,
        TapeFileProgress::Failed => TapeProgress::Failed,
        TapeFileProgress::Cancelled => TapeProgress::Cancelled,
    };
    TapeState {
        created: status.created,
        started: status.started.unwrap_or(status.created),
        completed: status.completed,
        is_last: status.is_last,
        files: status
            .files
            .into_iter()
            .map(|file| TapeFileState {
                path: file.path,
                progress: progress(file.progress),
                started: file.started,
                finished: file.finished,
                error: file.text.map(|text| printable(&text)),
            })
            .collect(),
    }
}

/// Returns a text in one line.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl Stager for QueueStager {
    fn stages_new_files(&self) -> bool {
        self.creates
    }

    fn fetch(&self, request: StageRequest, has_left: HasLeft, reply: StagerReply<()>) {
        let submission = self.submission(request, None);
        let owner = submission.owner.clone();
        let reply = Box::new(|result: Result<_, _>| reply(result.map_err(error)));
        self.residency.fetch(submission, Waiter { owner, has_left, reply });
    }

    fn submit(
        &self,
        id: &str,
        requests: Vec<StageRequest>,
        notice: Option<StageNotice>,
        reply: StagerReply<()>,
    ) {
        let id = RequestId(id.into());
        let notice = notice.map(|notice| RequestNotice {
            destinations: format!("udp://{}/", notice.address),
            on_success: true,
            on_failure: notice.on_failure,
        });
        let submissions = requests.into_iter().map(|request| self.submission(request, Some(&id))).collect();
        self.residency.submit(submissions, notice, Box::new(|result| reply(result.map_err(error))));
    }

    fn cancel(&self, id: &str, reply: StagerReply<()>) {
        self.residency.cancel(RequestId(id.into()), Box::new(|result| reply(result.map_err(error))));
    }

    fn query(&self, id: &str, reply: StagerReply<Option<String>>) {
        let text = id.to_owned();
        let describe = move |result: Result<_, _>| {
            reply(result.map(|status| describe(&text, status)).map_err(error));
        };
        self.residency.query(RequestId(id.into()), Box::new(describe));
    }

    fn record(&self, id: &str, files: Vec<RecordedFile>, reply: StagerReply<()>) {
        let id = RequestId(id.into());
        let owner = files.first().map(|file| file.request.owner.clone()).unwrap_or_else(|| "".into());
        let files = files.into_iter().map(|file| SubmittedTapeFile {
            submission: self.submission(file.request, Some(&id)),
            lifetime: file.lifetime,
            need: match file.need {
                RecordedNeed::Transfer => TapeFileNeed::Transfer,
                RecordedNeed::OnDisk => TapeFileNeed::OnDisk,
                RecordedNeed::Refused(text) => TapeFileNeed::Refused(printable(&text)),
            },
        });
        let files = files.collect();
        self.change_tape_request(TapeChange::Record(TapeSubmission { id, owner, files }), reply);
    }

    fn change_record(&self, id: &str, change: RecordChange, reply: StagerReply<()>) {
        let id = RequestId(id.into());
        let change = match change {
            RecordChange::Cancel(paths) => TapeChange::Cancel(id, paths),
            RecordChange::Forget => TapeChange::Forget(id),
            RecordChange::Release(paths) => TapeChange::Release(id, paths),
        };
        self.change_tape_request(change, reply);
    }

    fn recorded_state(&self, id: &str, after: Option<&LogicalPath>) -> Result<Option<TapeState>, Error> {
        let found = self.residency.tape_request(&RequestId(id.into()), after, TAPE_FILES_OF_PAGE);
        Ok(found.map_err(error)?.map(tape_state))
    }

    fn has_catalog(&self) -> bool {
        self.catalog.is_some()
    }

    fn create_remote(&self, path: &LogicalPath, mode: u32) -> Result<(), Error> {
        match self.order(NameOrder::Create(path, mode))? {
            NameOutcome::Exists => Err(Error::new(ErrorKind::ItExists, "mass storage has the name")),
            NameOutcome::Missing => Err(Error::new(ErrorKind::NotFound, "its directory is missing there")),
            NameOutcome::Done | NameOutcome::Unknown => Ok(()),
        }
    }

    fn remove_remote(&self, path: &LogicalPath) -> Result<(), Error> {
        self.order(NameOrder::Remove(path)).map(drop)
    }

    fn rename_remote(&self, from: &LogicalPath, to: &LogicalPath) -> Result<bool, Error> {
        match self.order(NameOrder::Rename(from, to))? {
            NameOutcome::Exists => Err(Error::new(ErrorKind::ItExists, "mass storage has the new name")),
            outcome => Ok(outcome == NameOutcome::Done),
        }
    }

    fn remote_names(&self, path: &LogicalPath) -> Result<Option<RemoteNames>, Error> {
        match &self.catalog {
            Some(catalog) => catalog.list(path).map_err(|reason| failure(&reason)),
            None => Ok(None),
        }
    }

    fn remote_status(&self, path: &LogicalPath) -> Result<Option<Metadata>, Error> {
        let Some(catalog) = &self.catalog else { return Ok(None) };
        let Some(found) = catalog.shown_status(path).map_err(|reason| failure(&reason))? else {
            return Ok(None);
        };
        Ok(Some(Metadata {
            device: 0,
            inode: 0,
            mode: found.mode & 0o777 | if found.is_directory { TYPE_DIRECTORY } else { TYPE_FILE },
            size: found.size,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            modified: found.modified,
            modified_nanoseconds: 0,
            changed: found.modified,
            accessed: found.modified,
            offline: !found.is_directory,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_described_as_by_xrootd() {
        let client = "u.1:2@h".to_owned();
        let status =
            RequestStatus { waiting: 3, added: 1_795_186_726, priority: 1, client, failed: Vec::new() };
        assert_eq!(describe("id", status.clone()).as_deref(), Some("id u.1:2@h 1 3 1795186726"));
        let failed = residency::FailedFile {
            path: "/a\nb".to_owned(),
            client: "u.1:2@h".to_owned(),
            priority: 1,
            added: 5,
            text: "no drive".to_owned(),
        };
        let status = RequestStatus { waiting: 0, failed: vec![failed], ..status };
        let wanted = "id u.1:2@h 1 0 1795186726\n/a?b: no drive";
        assert_eq!(describe("id", status).as_deref(), Some(wanted));
        assert_eq!(describe("id", RequestStatus::default()), None);
    }
}
