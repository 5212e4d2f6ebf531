//! `scalla residency stage --wait` and `migrate --wait`: waits for the ends of transfers.

use crate::printer::{ProgressLine, err, out};
use base::shown;
use server::admin::{AdminRequest, TransferOrder, TransferPhase, TransferState, ask};
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval between two queries about the files that are left.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A wait for transfers that were ordered.
pub(super) struct TransferWait<'s> {
    pub(super) socket: &'s Path,
    pub(super) order: TransferOrder,
    /// Prints nothing: the caller prints the answers.
    pub(super) json: bool,
    /// The time after which it ends.
    pub(super) limit: Option<Duration>,
}

/// The results of transfers.
pub(super) struct EndedTransfers {
    /// The last state of each one, for JSON.
    pub(super) answers: Vec<serde_json::Value>,
    /// All files are where they were to be.
    pub(super) all_done: bool,
}

/// Numbers of files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct TransferProgress {
    all: usize,
    ended: usize,
    running: usize,
}

impl std::fmt::Display for TransferProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { all, ended, running } = self;
        let waiting = all.saturating_sub(ended + running);
        write!(f, "{ended} of {all} files, {running} being copied, {waiting} waiting (Ctrl-C stops)")
    }
}

impl TransferWait<'_> {
    /// Waits until all transfers have ended, or the time limit is over. Prints a line for each one that ends.
    pub(super) fn until_ended(&self, paths: Vec<String>) -> anyhow::Result<EndedTransfers> {
        let begun = Instant::now();
        let mut progress = TransferProgress { all: paths.len(), ..TransferProgress::default() };
        let mut ended = EndedTransfers { answers: Vec::new(), all_done: true };
        let line = (err().is_terminal() && !self.json).then(ProgressLine::of_messages);
        let mut left = paths;
        while !left.is_empty() {
            let mut still = Vec::new();
            progress.running = 0;
            for path in std::mem::take(&mut left) {
                let request = AdminRequest::TransferState { path: path.clone(), order: self.order };
                let answer = ask(self.socket, &request)?;
                let state: TransferState = serde_json::from_value(answer.clone())?;
                let is_late = self.limit.is_some_and(|limit| begun.elapsed() >= limit);
                match state.state {
                    TransferPhase::Queued | TransferPhase::Running if !is_late => {
                        progress.running += usize::from(state.state == TransferPhase::Running);
                        still.push(path);
                        continue;
                    }
                    _ => {}
                }
                progress.ended += 1;
                ended.all_done &= state.state == TransferPhase::Done;
                ended.answers.push(answer);
                if !self.json {
                    let report = || self.report(&state);
                    match &line {
                        Some(line) => line.suspend(report),
                        None => report(),
                    }
                }
            }
            left = still;
            if let Some(line) = line.as_ref().filter(|_| !left.is_empty()) {
                line.set_message(&progress.to_string());
            }
            if !left.is_empty() {
                let rest = self.limit.map(|limit| limit.saturating_sub(begun.elapsed()));
                std::thread::sleep(rest.map_or(POLL_INTERVAL, |rest| POLL_INTERVAL.min(rest)));
            }
        }
        if let Some(line) = line {
            line.finish_and_clear();
        }
        Ok(ended)
    }

    fn report(&self, transfer: &TransferState) {
        let path = shown(&transfer.path);
        match (transfer.state, self.order, &transfer.reason) {
            (TransferPhase::Done, TransferOrder::Stage, _) => out().line(format_args!("is on disk  {path}")),
            (TransferPhase::Done, TransferOrder::Migrate, _) => {
                out().line(format_args!("has a copy  {path}"))
            }
            (TransferPhase::Queued | TransferPhase::Running, ..) => {
                err().error(format_args!("{path}: it has not ended within the time limit, and goes on"));
            }
            (TransferPhase::Failed, _, reason) => {
                let reason = shown(reason.as_deref().unwrap_or("it has failed"));
                err().error(format_args!("{path}: {reason}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_files() {
        let progress = TransferProgress { all: 10, ended: 3, running: 2 };
        assert_eq!(progress.to_string(), "3 of 10 files, 2 being copied, 5 waiting (Ctrl-C stops)");
    }
}
