//! Requests of the administrator that concern files with a copy in mass storage.

use super::repairs;
use crate::admin::{
    AdminCall, AdminRequest, AdminResponse, FileState, ListedTransfer, PinOrder, ResidencyStatus,
    TransferCounts, TransferList, TransferOrder, TransferPhase, TransferState, VolumeStatus,
};
use crate::purging::ServerResidency;
use crate::residency::ServerTransfers;
use base::{LogicalPath, Owner};
use logical::Logical;
use residency::{
    DirectionCounts, EntryKey, EntryState, ExaminedFile, Priority, PurgeThread, StageError, Submission,
    TransferDirection, TransferEntry,
};
use rustix::fs::FileType;
use std::path::Path;
use std::sync::Arc;
use storage::{COPY_TIME_ATTRIBUTE, CopyTime, FilePin};
use tokio::sync::oneshot;

/// The client and the owner of transfers that an administrator orders.
const ADMINISTRATOR: &str = "administrator";

/// Number of files in one answer.
const FILES_MAX: usize = 1000;

/// The error of a server that does not purge.
const NO_PURGE: &str = "no export of this server is purged: see purge of all.export, and frm.purge.policy";

/// The error of a server without transfers.
const NO_QUEUE: &str = "this server stages no files: see stage of all.export, and frm.xfr.copycmd";

/// Bytes of the paths, clients and reasons of one list of transfers.
const TRANSFER_BYTES_MAX: usize = 64 * 1024;

/// Reports whether a request is to be answered by [`answer`].
pub(super) fn is_residency(request: &AdminRequest) -> bool {
    matches!(
        request,
        AdminRequest::TransferQueue {}
            | AdminRequest::ResidencyStatus {}
            | AdminRequest::Pin { .. }
            | AdminRequest::Transfer { .. }
            | AdminRequest::TransferState { .. }
            | AdminRequest::Release { .. }
            | AdminRequest::Purge {}
            | AdminRequest::PurgePreview { .. }
    )
}

/// Answers a request. Disks are read on other threads.
pub(super) fn answer(residency: Option<&ServerResidency>, logical: Option<&Arc<Logical>>, call: AdminCall) {
    let AdminCall { request, answer } = call;
    if matches!(request, AdminRequest::TransferQueue {}) {
        let directory = residency.and_then(ServerResidency::queue_directory).map(Path::to_path_buf);
        let (Some(directory), Some(logical)) = (directory, logical) else {
            answer.send(AdminResponse::failed(NO_QUEUE)).ok();
            return;
        };
        let work = move || drop(answer.send(transfers(&directory)));
        logical.backend().pool(&LogicalPath::root()).run_surely(Owner::SERVER, Box::new(work));
        return;
    }
    if let AdminRequest::TransferState { path, order } = request {
        let directory = residency.and_then(ServerResidency::queue_directory).map(Path::to_path_buf);
        let (Some(directory), Some(logical)) = (directory, logical.cloned()) else {
            answer.send(AdminResponse::failed(NO_QUEUE)).ok();
            return;
        };
        let pool = logical.backend().pool(&LogicalPath::root()).clone();
        let work = move || drop(answer.send(transfer_state(&directory, &logical, &path, order)));
        return pool.run_surely(Owner::SERVER, Box::new(work));
    }
    if let AdminRequest::Transfer { path, order } = request {
        let transfers = residency.and_then(|residency| residency.transfers.clone());
        let (Some(transfers), Some(logical)) = (transfers, logical.cloned()) else {
            answer.send(AdminResponse::failed(NO_QUEUE)).ok();
            return;
        };
        let pool = logical.backend().pool(&LogicalPath::root()).clone();
        let work = move || order_transfer(&transfers, &logical, (&path, order), answer);
        return pool.run_surely(Owner::SERVER, Box::new(work));
    }
    let purge = residency.and_then(|residency| residency.purge.clone());
    let queue = residency.and_then(ServerResidency::queue_directory).map(Path::to_path_buf);
    if let (None, Some(queue), Some(logical), AdminRequest::ResidencyStatus {}) =
        (&purge, &queue, logical, &request)
    {
        let directory = queue.clone();
        let work = move || drop(answer.send(status(None, Some(&directory))));
        logical.backend().pool(&LogicalPath::root()).run_surely(Owner::SERVER, Box::new(work));
        return;
    }
    let (Some(purge), Some(logical)) = (purge, logical.cloned()) else {
        answer.send(AdminResponse::failed(NO_PURGE)).ok();
        return;
    };
    if let AdminRequest::PurgePreview { below } = request {
        // It may take long, so it has a thread of its own.
        let work = move || {
            let response = preview(&purge, below.as_deref(), &|| !answer.is_closed());
            answer.send(response).ok();
        };
        if let Err(error) = std::thread::Builder::new().name("purge-preview".to_owned()).spawn(work) {
            tracing::warn!(%error, "cannot start a thread for the examination of files");
        }
        return;
    }
    let pool = logical.backend().pool(&LogicalPath::root()).clone();
    let work = move || drop(answer.send(purge_answer(request, (&purge, queue.as_deref()), &logical)));
    pool.run_surely(Owner::SERVER, Box::new(work));
}

/// Answers a request about purges. Blocks.
fn purge_answer(
    request: AdminRequest,
    (purge, queue): (&PurgeThread, Option<&Path>),
    logical: &Logical,
) -> AdminResponse {
    match request {
        AdminRequest::Purge {} => match stop_file(purge) {
            Some(file) => AdminResponse::failed(format!("nothing is purged, because {file} exists")),
            None => {
                // The numbers before it show its end.
                let status = status(Some(purge), queue);
                purge.begin();
                status
            }
        },
        AdminRequest::Pin { path, pin } => set_pin(purge, logical, &path, pin),
        AdminRequest::Release { path } => release(purge, logical, &path),
        _ => status(Some(purge), queue),
    }
}

/// Adds a transfer to the queue, and answers when it is durable there, or when it is not needed.
fn order_transfer(
    transfers: &ServerTransfers,
    logical: &Logical,
    (path, order): (&str, TransferOrder),
    answer: oneshot::Sender<AdminResponse>,
) {
    let path = match check_transfer(logical, path, order) {
        Ok((path, true)) => path,
        Ok((path, false)) => {
            answer.send(resolved(&path, "is on disk already".to_owned())).ok();
            return;
        }
        Err(error) => {
            answer.send(AdminResponse::failed(error)).ok();
            return;
        }
    };
    let (direction, state) = match order {
        TransferOrder::Stage => (TransferDirection::In, "will be staged"),
        TransferOrder::Migrate => (TransferDirection::Out, "will be migrated"),
    };
    tracing::info!(path = %path.shown(), ?order, "an administrator ordered a transfer");
    let submission = Submission {
        key: EntryKey { direction, path: path.clone() },
        priority: Priority::new(u8::MAX),
        source: transfers.source(),
        client: ADMINISTRATOR.into(),
        owner: ADMINISTRATOR.into(),
        request: None,
        removes: false,
    };
    let reply = move |result: Result<(), StageError>| {
        let response = match result {
            Ok(()) => resolved(&path, state.to_owned()),
            Err(error) => AdminResponse::failed(format!("{}: {error}", path.escaped())),
        };
        answer.send(response).ok();
    };
    transfers.retry(submission, Box::new(reply));
}

/// Checks whether a file can be transferred. Returns its path, and whether that is needed.
fn check_transfer(
    logical: &Logical,
    path: &str,
    order: TransferOrder,
) -> Result<(LogicalPath, bool), String> {
    let path = repairs::parse(path)?;
    let (is_wanted, option) = match order {
        TransferOrder::Stage => (logical.stages(&path), "stage"),
        TransferOrder::Migrate => (logical.migrates(&path), "mig"),
    };
    if !is_wanted {
        return Err(format!("{} is not on an export with {option}", path.escaped()));
    }
    match (logical.backend().stat(&path), order) {
        (Ok(found), _) if FileType::from_raw_mode(found.mode).is_dir() => {
            Err(format!("{} is a directory", path.escaped()))
        }
        (Ok(_), TransferOrder::Stage) => Ok((path, false)),
        (Ok(_), TransferOrder::Migrate) => Ok((path, true)),
        (Err(error), TransferOrder::Stage) if storage::is_missing(&error) => Ok((path, true)),
        (Err(error), _) => Err(format!("{}: {}", path.escaped(), base::errno_text(&error))),
    }
}

/// Returns the state of the transfer of a file: that in the queue, or what its end has left.
fn transfer_state(directory: &Path, logical: &Logical, path: &str, order: TransferOrder) -> AdminResponse {
    let path = match repairs::parse(path) {
        Ok(path) => path,
        Err(error) => return AdminResponse::failed(error),
    };
    let direction = match order {
        TransferOrder::Stage => TransferDirection::In,
        TransferOrder::Migrate => TransferDirection::Out,
    };
    let key = EntryKey { direction, path };
    let entry = match residency::find_transfer(directory, &key) {
        Ok(entry) => entry,
        Err(error) => return AdminResponse::failed(error),
    };
    let tries = entry.as_ref().map(|entry| entry.tries);
    let (state, reason) = match entry.map(|entry| entry.state) {
        Some(EntryState::Queued { .. }) => (TransferPhase::Queued, None),
        Some(EntryState::Active) => (TransferPhase::Running, None),
        Some(EntryState::Failed { failure, .. }) => (TransferPhase::Failed, Some(failure.text.to_string())),
        Some(EntryState::Stopping) => (TransferPhase::Failed, Some("it was cancelled".to_owned())),
        None => match ended(logical, &key.path, order) {
            Ok(()) => (TransferPhase::Done, None),
            Err(reason) => (TransferPhase::Failed, Some(reason)),
        },
    };
    let tries = tries.filter(|_| matches!(state, TransferPhase::Queued | TransferPhase::Running));
    AdminResponse::Transfer(TransferState { path: key.path.escaped(), state, reason, tries })
}

/// Checks what a transfer that is not in the queue has left.
fn ended(logical: &Logical, path: &LogicalPath, order: TransferOrder) -> Result<(), String> {
    let found = logical.backend().stat(path).map_err(|error| match storage::is_missing(&error) {
        true => "it is not on disk; the log of the server has the reason".to_owned(),
        false => base::errno_text(&error),
    })?;
    if order == TransferOrder::Stage {
        return Ok(());
    }
    let copied = logical.backend().attribute(path, COPY_TIME_ATTRIBUTE);
    let copied = copied.map_err(|error| base::errno_text(&error))?;
    match CopyTime::shows_copy(copied.as_deref(), found.modified) {
        true => Ok(()),
        false => Err(
            "mass storage does not have this version: it was changed a moment ago, or is open for writing"
                .to_owned(),
        ),
    }
}

/// Removes a file from disk that mass storage has.
fn release(purge: &PurgeThread, logical: &Logical, path: &str) -> AdminResponse {
    let path = match repairs::parse(path) {
        Ok(path) => path,
        Err(error) => return AdminResponse::failed(error),
    };
    if let Some(file) = stop_file(purge) {
        return AdminResponse::failed(format!("nothing is removed, because {file} exists"));
    }
    if let Err(error) = logical.backend().stat(&path) {
        return AdminResponse::failed(format!("{}: {}", path.escaped(), base::errno_text(&error)));
    }
    match purge.purger().release(&path) {
        Ok(bytes) => {
            tracing::info!(path = %path.shown(), bytes, "an administrator released a file");
            resolved(&path, format!("was removed from disk ({bytes} bytes)"))
        }
        Err(reason) => AdminResponse::failed(format!("{} stays: {reason}", path.escaped())),
    }
}

fn resolved(path: &LogicalPath, state: String) -> AdminResponse {
    AdminResponse::Resolved { path: path.escaped(), state }
}

fn transfers(directory: &Path) -> AdminResponse {
    let entries = match residency::list_queue(directory, FILES_MAX + 1) {
        Ok(entries) => entries,
        Err(error) => return AdminResponse::failed(error),
    };
    let mut list = TransferList { complete: true, ..TransferList::default() };
    let mut bytes = 0;
    for entry in entries {
        let transfer = listed(entry);
        bytes +=
            transfer.path.len() + transfer.client.len() + transfer.reason.as_ref().map_or(0, String::len);
        if list.transfers.len() == FILES_MAX / 2 || bytes > TRANSFER_BYTES_MAX {
            list.complete = false;
            break;
        }
        list.transfers.push(transfer);
    }
    AdminResponse::Transfers(list)
}

fn listed(entry: TransferEntry) -> ListedTransfer {
    let (state, reason) = match entry.state {
        EntryState::Queued { .. } => ("queued", None),
        EntryState::Active => ("running", None),
        EntryState::Stopping => ("cancelled", None),
        EntryState::Failed { failure, .. } => ("failed", Some(failure.text.to_string())),
    };
    let direction = match entry.key.direction {
        TransferDirection::In => "in",
        TransferDirection::Out => "out",
    };
    ListedTransfer {
        path: entry.key.path.escaped(),
        direction: direction.to_owned(),
        state: state.to_owned(),
        reason,
        tries: entry.tries,
        priority: entry.priority.number(),
        client: entry.client.to_string(),
        added: entry.added,
    }
}

/// Returns the file by which an administrator has stopped purges.
fn stop_file(purge: &PurgeThread) -> Option<String> {
    let purger = purge.purger();
    purger.stop_file.as_ref().filter(|_| purger.is_stopped()).map(|file| file.display().to_string())
}

/// Returns the numbers of transfers in the queue, from and to mass storage, if it can be read.
fn counts(directory: &Path) -> Option<(TransferCounts, TransferCounts)> {
    let counts = residency::count_queue(directory);
    let counts = counts.inspect_err(|error| tracing::warn!(%error, "cannot count transfers")).ok()?;
    let shown = |of: DirectionCounts| TransferCounts {
        queued: of.queued,
        running: of.running + of.stopping,
        failed: of.failed,
    };
    Some((shown(counts.inward), shown(counts.outward)))
}

fn status(purge: Option<&PurgeThread>, queue: Option<&Path>) -> AdminResponse {
    let (staging, migration) = queue.and_then(counts).unzip();
    let mut status = ResidencyStatus { staging, migration, ..ResidencyStatus::default() };
    let Some(purge) = purge else { return AdminResponse::Residency(Box::new(status)) };
    // Before the result of the last one, which has the number of the next one otherwise.
    (status.purges, status.is_purging) = purge.progress();
    let volumes = purge.purger().purged_volumes().into_iter().map(|volume| VolumeStatus {
        export: volume.export.escaped(),
        total: volume.total,
        free: volume.free,
        purge_below: volume.low,
        purge_until: volume.high,
    });
    (status.volumes, status.stopped_by) = (volumes.collect(), stop_file(purge));
    if let Some(last) = purge.last() {
        status.last_purge = Some(last.ended);
        (status.purged_files, status.purged_bytes) = (last.files, last.bytes);
        status.short_of_space = last.short.iter().map(LogicalPath::escaped).collect();
    }
    AdminResponse::Residency(Box::new(status))
}

fn set_pin(purge: &PurgeThread, logical: &Logical, path: &str, pin: PinOrder) -> AdminResponse {
    let path = match repairs::parse(path) {
        Ok(path) if logical.purges(&path) => path,
        Ok(path) => {
            return AdminResponse::failed(format!("{} is not on an export with purge", path.escaped()));
        }
        Err(error) => return AdminResponse::failed(error),
    };
    let (pin, state) = match pin {
        PinOrder::Forever => (Some(FilePin::Forever), "pinned".to_owned()),
        PinOrder::Idle { seconds } => {
            (Some(FilePin::Idle(seconds)), format!("pinned until idle for {seconds} s"))
        }
        PinOrder::Until { time } => (Some(FilePin::Until(time)), format!("pinned until {time}")),
        PinOrder::Off => (None, "not pinned".to_owned()),
    };
    match purge.purger().set_pin(&path, pin) {
        Ok(()) => {
            tracing::info!(path = %path.shown(), %state, "an administrator changed a pin");
            resolved(&path, state)
        }
        Err(error) => AdminResponse::failed(format!(
            "cannot change the pin of {}: {}",
            path.escaped(),
            base::errno_text(&error)
        )),
    }
}

fn preview(purge: &PurgeThread, below: Option<&str>, is_awaited: &dyn Fn() -> bool) -> AdminResponse {
    let below = match below.map(repairs::parse).transpose() {
        Ok(below) => below,
        Err(error) => return AdminResponse::failed(error),
    };
    if let Some(path) = &below
        && let Err(error) = purge.purger().backend.stat(path)
    {
        return AdminResponse::failed(format!("{}: {}", path.escaped(), base::errno_text(&error)));
    }
    let mut files = Vec::new();
    purge.purger().examine(below.as_ref(), &mut |ExaminedFile { path, size, kept }| {
        let reason = kept.map(|reason| reason.to_string());
        let state = match &reason {
            Some(reason) => format!("stays: {reason}"),
            None => format!("may go ({size} bytes)"),
        };
        let (bytes, eligible) = (Some(size), Some(reason.is_none()));
        files.push(FileState { path: path.escaped(), state, bytes, eligible, reason });
        files.len() <= FILES_MAX && is_awaited()
    });
    AdminResponse::Files(repairs::list(files.into_iter()))
}
