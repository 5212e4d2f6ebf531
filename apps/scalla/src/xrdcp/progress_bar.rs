//! The progress bar of `xrdcp`: on standard error, if standard output is a terminal.

use super::job_queue::XrdcpJob;
use crate::printer::err;
use crate::xrootd_compat::format::size;
use client::copy::Progress;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Number of characters of a full bar.
const WIDTH: u64 = 50;
/// Minimum time between two updates.
const PAUSE: Duration = Duration::from_secs(1);

/// The bar of sequential or parallel jobs.
pub(super) struct JobProgressBar {
    shown: bool,
    at_once: bool,
    /// Set if not all jobs are known before the first one begins.
    streams: bool,
    state: Mutex<BarState>,
}

struct BarState {
    /// Number of jobs found so far.
    jobs: usize,
    /// Set if these are all jobs.
    is_all: bool,
    /// The jobs that have begun. If they are found while others run, only those that are running.
    begun: BTreeMap<usize, (Instant, Progress)>,
    last: Option<Instant>,
}

const NOTHING: Progress = Progress { done: 0, total: None };

impl JobProgressBar {
    pub(super) fn new(shown: bool, (jobs, is_all): (usize, bool), at_once: bool) -> Self {
        let state = BarState { jobs, is_all, begun: BTreeMap::new(), last: None };
        Self { shown, at_once: at_once && jobs > 1, streams: !is_all, state: Mutex::new(state) }
    }

    /// Sets the number of jobs found so far, and whether these are all.
    pub(super) fn count(&self, (jobs, is_all): (usize, bool)) {
        self.with(|state| (state.jobs, state.is_all) = (jobs, is_all));
    }

    fn with(&self, change: impl FnOnce(&mut BarState)) {
        if self.shown {
            change(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        }
    }

    pub(super) fn begin(&self, index: usize, job: &XrdcpJob) {
        self.with(|state| {
            state.begun.insert(index, (Instant::now(), NOTHING));
            if !self.at_once {
                state.last = Some(Instant::now());
            }
            if state.jobs > 1 {
                let (source, target) = (job.source_name(), job.target_name());
                let more = if state.is_all { "" } else { "+" };
                err().line(format_args!("Job: {}/{}{more}", index + 1, state.jobs));
                err().line(format_args!("Source: {source}"));
                err().line(format_args!("Target: {target}"));
            }
        });
    }

    pub(super) fn progress(&self, index: usize, progress: Progress) {
        self.with(|state| {
            if let Some((_, so_far)) = state.begun.get_mut(&index) {
                *so_far = progress;
            }
            let whole = progress.total.is_some_and(|total| progress.done >= total);
            if whole || state.last.is_none_or(|last| last.elapsed() >= PAUSE) {
                state.last = Some(Instant::now());
                err().replace_line(self.text(state, index));
            }
        });
    }

    pub(super) fn end(&self, index: usize) {
        self.with(|state| {
            err().replace_line(self.text(state, index));
            if !self.at_once {
                err().literal("\n");
            }
            if !self.at_once || self.streams {
                state.begun.remove(&index);
            }
        });
    }

    /// Ends the bar after all jobs.
    pub(super) fn finish(&self) {
        if self.at_once {
            self.with(|_| err().literal("\n"));
        }
    }

    fn text(&self, state: &BarState, index: usize) -> String {
        let pair = |index: usize| {
            let (begun, progress) = state.begun.get(&index).copied().unwrap_or((Instant::now(), NOTHING));
            (progress, begun.elapsed().as_secs())
        };
        if !self.at_once {
            let (progress, seconds) = pair(index);
            return one(progress, seconds);
        }
        let part = |index: usize| {
            let (progress, seconds) = pair(index);
            format!("[#{}: {}% {}/s] ", index + 1, percent(progress), size(progress.done / seconds.max(1)))
        };
        let parts: String = match self.streams {
            false => (0..state.jobs).map(part).collect(),
            true => state.begun.keys().copied().map(part).collect(),
        };
        format!("{parts}        ")
    }
}

fn percent(progress: Progress) -> u64 {
    let total = progress.total.unwrap_or(progress.done).max(progress.done);
    (u128::from(progress.done) * 100)
        .checked_div(total.into())
        .map_or(100, |part| u64::try_from(part).unwrap_or(100))
}

fn one(progress: Progress, seconds: u64) -> String {
    let percent = percent(progress);
    let filled = percent * WIDTH / 100;
    let mut bar: String = (0..filled).map(|_| '=').collect();
    if filled < WIDTH {
        bar.push('>');
    }
    let (done, total) = (size(progress.done), size(progress.total.unwrap_or(progress.done)));
    let (width, rate) = (usize::try_from(WIDTH).unwrap_or(0), size(progress.done / seconds.max(1)));
    format!("[{done}/{total}][{percent:3}%][{bar:width$}][{rate}/s]  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_as_the_real_program_draws_it() {
        let progress = Progress { done: 8 << 20, total: Some(25_000_000) };
        let expected = "[8MB/23.84MB][ 33%][================>                                 ][8MB/s]  ";
        assert_eq!(one(progress, 0), expected);
        let full = format!("[0B/0B][100%][{}][0B/s]  ", "=".repeat(50));
        assert_eq!(one(NOTHING, 0), full);
    }
}
