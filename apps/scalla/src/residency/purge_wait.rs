//! `scalla residency purge --wait`: begins a purge, and waits for its end.

use super::table;
use crate::exit_status::FAILED;
use crate::files::format::human;
use crate::printer::{ProgressLine, err, out};
use server::admin::{AdminRequest, ResidencyStatus, ask};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Interval between two queries about the purge.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the number of purges that have ended when one that begins after this status has ended. One that runs may
/// have begun before the order, so the one behind it counts.
fn ended_after(before: &ResidencyStatus) -> u64 {
    before.purges + if before.is_purging { 2 } else { 1 }
}

/// Describes how far the purge is.
fn progress(status: &ResidencyStatus) -> String {
    let missing = |free: u64, until: u64| until.saturating_sub(free);
    let all = status.volumes.iter().filter(|volume| volume.free < volume.purge_until);
    let missing: u64 = all.map(|volume| missing(volume.free, volume.purge_until)).sum();
    format!("purging, {} are still missing (Ctrl-C stops the wait)", human(missing))
}

/// Begins a purge, and waits for its end. Fails if too little space is free after it.
pub(super) fn purge(socket: &Path, limit: Option<Duration>, json: bool) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let before: ResidencyStatus = serde_json::from_value(ask(socket, &AdminRequest::Purge {})?)?;
    let wanted = ended_after(&before);
    let line = (err().is_terminal() && !json).then(ProgressLine::of_messages);
    loop {
        let answer = ask(socket, &AdminRequest::ResidencyStatus {})?;
        let status: ResidencyStatus = serde_json::from_value(answer.clone())?;
        let is_late = limit.is_some_and(|limit| begun.elapsed() >= limit);
        if status.purges < wanted && !is_late {
            if let Some(line) = &line {
                line.set_message(&progress(&status));
            }
            std::thread::sleep(POLL_INTERVAL);
            continue;
        }
        if let Some(line) = line {
            line.finish_and_clear();
        }
        if json {
            out().json(&answer);
        } else {
            out().lines(table(&status));
        }
        if status.purges < wanted {
            err().error("the purge has not ended within the time limit, and goes on");
            return Ok(FAILED.into());
        }
        return Ok(if status.short_of_space.is_empty() { ExitCode::SUCCESS } else { FAILED.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::admin::VolumeStatus;

    #[test]
    fn a_purge_that_runs_before_the_order_does_not_count() {
        let status = |is_purging| ResidencyStatus { purges: 4, is_purging, ..ResidencyStatus::default() };
        assert_eq!((ended_after(&status(false)), ended_after(&status(true))), (5, 6));
    }

    #[test]
    fn progress_is_the_space_that_is_missing() {
        let volume = |free| VolumeStatus {
            export: "/store".to_owned(),
            total: 1 << 40,
            free,
            purge_below: 1 << 20,
            purge_until: 2 << 20,
        };
        let volumes = vec![volume(1 << 20), volume(3 << 20)];
        let text = progress(&ResidencyStatus { volumes, ..ResidencyStatus::default() });
        assert!(text.starts_with(&format!("purging, {} are", human(1 << 20))), "{text}");
    }
}
