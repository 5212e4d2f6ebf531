//! Purges of a running server, beside its queue of transfers.

use crate::copy_programs::check_program;
use crate::error::StartError;
use crate::residency::{Exports, FileEvents, ServerTransfers, remote_catalog, server_claim, staged_files};
use crate::transfer_monitor::TransferMonitor;
use base::Supervisor;
use config::{Effective, FreeSpaceLimit};
use logical::Logical;
use residency::{
    FreeSpaceMark, PolicyProgram, PurgePolicies, PurgePolicy, PurgeThread, PurgeTurn, Purger,
    STOP_PURGE_FILE, ServerClaim, SharedWork,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::FileSystem;

/// What a server does between its disk and mass storage.
#[derive(Clone)]
pub(crate) struct ServerResidency {
    /// The queue of transfers, if any export has one.
    pub(crate) transfers: Option<ServerTransfers>,
    /// The purges, if any export has them.
    pub(crate) purge: Option<Arc<PurgeThread>>,
    queue_directory: PathBuf,
    /// What keeps daemons from the same work.
    _claims: Arc<Vec<ServerClaim>>,
}

impl ServerResidency {
    /// Returns the directory of the queue of transfers, if there is one.
    pub(crate) fn queue_directory(&self) -> Option<&Path> {
        self.transfers.is_some().then_some(&*self.queue_directory)
    }
}

/// Starts purges and the queue of transfers as far as the exports need them. Returns the files of the
/// server behind the queue.
pub(crate) fn start(
    logical: &Arc<Logical>,
    effective: &Effective,
    supervisor: &Supervisor,
) -> Result<(Arc<dyn FileSystem>, Option<ServerResidency>), StartError> {
    let monitor = TransferMonitor::start(effective)?;
    let (files, transfers) = staged_files(logical, effective, &monitor, supervisor)?;
    let (transfers, claim) = transfers.unzip();
    // The queue of transfers searches for temporary files itself.
    if transfers.is_none() {
        remove_leftovers(logical, effective)?;
    }
    let (purge, purge_claim) = purge(logical, effective, &monitor, transfers.as_ref())?.unzip();
    let is_needed = transfers.is_some() || purge.is_some();
    Ok((
        files,
        is_needed.then_some(ServerResidency {
            transfers,
            purge,
            queue_directory: effective.transfer_directory(),
            _claims: Arc::new(claim.into_iter().chain(purge_claim).collect()),
        }),
    ))
}

/// Ends all copies, and waits for the end of their programs. A purge ends with the process.
pub(crate) async fn end(residency: Option<ServerResidency>) {
    crate::residency::end(residency.and_then(|residency| residency.transfers)).await;
}

/// Removes the temporary files that purges of an earlier run have left, on a thread of its own.
fn remove_leftovers(logical: &Arc<Logical>, effective: &Effective) -> Result<(), StartError> {
    if !effective.storage.exports.iter().any(|export| export.attributes.purge) {
        return Ok(());
    }
    let (backend, paths) = (logical.backend().clone(), Exports(Arc::downgrade(logical)));
    let work = move || residency::remove_leftovers(backend.as_ref(), &paths);
    let thread = std::thread::Builder::new().name("purge-sweep".to_owned()).spawn(work);
    thread.map(drop).map_err(|error| {
        StartError::Residency(format!("cannot start the search for temporary files of purges: {error}"))
    })
}

fn purge(
    logical: &Arc<Logical>,
    effective: &Effective,
    monitor: &Option<Arc<TransferMonitor>>,
    transfers: Option<&ServerTransfers>,
) -> Result<Option<(Arc<PurgeThread>, ServerClaim)>, StartError> {
    let policies = purge_policies(effective);
    if !policies.are_active() {
        return Ok(None);
    }
    if !effective.storage.exports.iter().any(|export| export.attributes.purge) {
        return Ok(None);
    }
    let purger = Purger {
        backend: logical.backend().clone(),
        paths: Arc::new(Exports(Arc::downgrade(logical))),
        events: Arc::new(FileEvents::new(logical, monitor, effective)),
        catalog: match transfers {
            Some(transfers) => transfers.catalog(),
            None => remote_catalog(effective)?,
        },
        stop_file: Some(effective.transfer_directory().join(STOP_PURGE_FILE)),
        policies,
        program: policy_program(effective).map_err(StartError::Residency)?,
        directory_hold: effective.residency.purge_directories.value,
    };
    let claim = server_claim(effective, SharedWork::Purges)?;
    let directory = effective.transfer_directory();
    let interval = effective.residency.purge_interval.value;
    let thread = PurgeThread::start(purger, interval, Box::new(move || turn(&directory)))
        .map_err(|error| StartError::Residency(format!("cannot start the thread of purges: {error}")))?;
    Ok(Some((Arc::new(thread), claim)))
}

/// Returns the policies of a configuration.
pub(crate) fn purge_policies(effective: &Effective) -> PurgePolicies {
    let spaces = effective.residency.purge_spaces.iter();
    PurgePolicies {
        default: purge_policy(&effective.residency.purge.value),
        spaces: spaces.map(|(name, rule)| (name.clone(), purge_policy(&rule.value))).collect(),
    }
}

/// Returns the policy of a rule; `None` if it purges nothing.
pub(crate) fn purge_policy(rule: &config::PurgeRule) -> Option<PurgePolicy> {
    let (low, high) = rule.free?;
    let limit = |limit| match limit {
        FreeSpaceLimit::Percent(percent) => FreeSpaceMark::Percent(percent),
        FreeSpaceLimit::Bytes(bytes) => FreeSpaceMark::Bytes(bytes),
    };
    let hold = rule.hold.as_secs();
    Some(PurgePolicy { low: limit(low), high: limit(high), hold, asks_program: rule.asks_program })
}

/// Returns the program that selects files, after a check that it can be run, if any policy asks one.
pub(crate) fn policy_program(effective: &Effective) -> Result<Option<PolicyProgram>, String> {
    let program = effective.residency.purge_program.value.as_ref();
    let Some(config::PurgeProgram { command, variables }) =
        program.filter(|_| effective.residency.purge_rules().any(|rule| rule.asks_program))
    else {
        return Ok(None);
    };
    check_program(&command.path)?;
    Ok(Some(PolicyProgram::new(command.path.clone(), command.arguments.clone(), variables.clone())))
}

/// Returns the right to purge now. A directory that cannot be used gives none.
pub(crate) fn turn(directory: &Path) -> Option<PurgeTurn> {
    PurgeTurn::take(directory).unwrap_or_else(|error| {
        tracing::error!(directory = %directory.display(), %error, "nothing is purged: its lock cannot be taken");
        None
    })
}
