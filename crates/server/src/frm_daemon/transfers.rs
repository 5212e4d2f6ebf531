//! `frm_xfrd`: transfers while no server executes them.

use super::configured_paths::{ConfiguredPaths, DaemonEvents};
use super::{DaemonEnd, DaemonParts, open_tree};
use crate::error::StartError;
use crate::residency::{TransferPlan, end};
use residency::{DaemonClaim, DaemonWork, Residency, ResidencyStartError};
use std::sync::Arc;

/// Executes transfers, or stands by, until a signal or a hand-over.
pub(super) async fn run(
    parts: &mut DaemonParts,
    claim: &DaemonClaim,
    ready: impl FnOnce() -> Result<(), StartError>,
) -> Result<DaemonEnd, StartError> {
    let directory_fails = |error: std::io::Error| StartError::Residency(error.to_string());
    if TransferPlan::of(&parts.effective)?.is_none() {
        return Err(StartError::Residency(
            "No copy commands specified; execution is meaningless! Set stage or mig of all.export, and frm.xfr.copycmd"
                .to_owned(),
        ));
    }
    ready()?;
    let mut working: Option<(Arc<Residency>, DaemonWork)> = None;
    let mut stands_by = false;
    loop {
        if working.is_some()
            && claim.is_for_server().map_err(directory_fails)?
            && let Some((residency, work)) = working.take()
        {
            tracing::info!(
                "a server executes the transfers from now on; the copies that run begin again there"
            );
            end(Some(residency)).await;
            return Ok(DaemonEnd::HandedOver(work));
        }
        if working.is_none() {
            working = begin(parts, claim.begin().map_err(directory_fails)?)?;
            match &working {
                Some(_) => tracing::info!("no server runs: executing transfers"),
                None => note(&mut stands_by),
            }
        }
        if parts.signals.is_end(&parts.log).await {
            end(working.map(|(residency, _)| residency)).await;
            return Ok(DaemonEnd::Done);
        }
    }
}

fn note(stands_by: &mut bool) {
    if !*stands_by {
        tracing::info!("standing by: another process executes the transfers");
    }
    *stands_by = true;
}

/// Starts the queue if this daemon may work. `None` if another process executes it.
fn begin(
    parts: &DaemonParts,
    work: Option<DaemonWork>,
) -> Result<Option<(Arc<Residency>, DaemonWork)>, StartError> {
    let Some(work) = work else { return Ok(None) };
    Ok(start(parts)?.map(|residency| (residency, work)))
}

/// Starts the queue. `None` if another process executes it.
fn start(parts: &DaemonParts) -> Result<Option<Arc<Residency>>, StartError> {
    let effective = &parts.effective;
    let Some(plan) = TransferPlan::of(effective)? else { return Ok(None) };
    let paths = Arc::new(ConfiguredPaths::new(effective, Vec::new()));
    let backend = Arc::new(open_tree(effective)?);
    let events = Arc::new(DaemonEvents::of(effective)?);
    let queue = plan.into_parts(effective, backend, (paths, events));
    match Residency::start(queue, &parts.supervisor) {
        Ok(residency) => Ok(Some(Arc::new(residency))),
        Err(ResidencyStartError::Locked(_)) => Ok(None),
        Err(error) => Err(StartError::Residency(error.to_string())),
    }
}
