//! `frm_xfrd`: transfers while no server executes them.

use super::configured_paths::{ConfiguredPaths, NoEvents};
use super::{DaemonEnd, DaemonParts, open_tree};
use crate::error::StartError;
use crate::residency::{TransferPlan, end};
use residency::{DaemonClaim, Residency, ResidencyStartError};
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
    let mut residency: Option<Arc<Residency>> = None;
    let mut stands_by = false;
    loop {
        let is_for_server = claim.is_for_server().map_err(directory_fails)?;
        match (&residency, is_for_server) {
            (Some(_), true) => {
                tracing::info!(
                    "a server executes the transfers from now on; the copies that run begin again there"
                );
                end(residency).await;
                return Ok(DaemonEnd::HandedOver);
            }
            (None, false) => match start(parts)? {
                Some(started) => {
                    tracing::info!("no server runs: executing transfers");
                    residency = Some(started);
                }
                None => note(&mut stands_by),
            },
            (None, true) => note(&mut stands_by),
            (Some(_), false) => {}
        }
        if parts.signals.is_end(&parts.log).await {
            end(residency).await;
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

/// Starts the queue. `None` if another process executes it.
fn start(parts: &DaemonParts) -> Result<Option<Arc<Residency>>, StartError> {
    let effective = &parts.effective;
    let Some(plan) = TransferPlan::of(effective)? else { return Ok(None) };
    let paths = Arc::new(ConfiguredPaths::new(effective, Vec::new()));
    let backend = Arc::new(open_tree(effective)?);
    let queue = plan.into_parts(effective, backend, (paths, Arc::new(NoEvents)));
    match Residency::start(queue, &parts.supervisor) {
        Ok(residency) => Ok(Some(Arc::new(residency))),
        Err(ResidencyStartError::Locked(_)) => Ok(None),
        Err(error) => Err(StartError::Residency(error.to_string())),
    }
}
