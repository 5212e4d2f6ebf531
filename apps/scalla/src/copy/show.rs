//! What a user sees of a copy: progress on a terminal, nothing but failures elsewhere, or lines of JSON.

use std::collections::HashMap;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use client::Client;
use client::copy::{CopyDone, CopyError, CopyJob, Listener, Progress, Tally};
use serde_json::json;

use super::work::INTERRUPTED;
use crate::files::UNCERTAIN;
use crate::hint::{Hints, code_name};
use crate::printer::{Bar, HumanBytes, err, out};

/// How much is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// Progress if there is a terminal; failures.
    Normal,
    /// Failures.
    Quiet,
    /// Also every file.
    Verbose,
    /// A line of JSON for each file, and one for all.
    Json,
}

/// Shows copies.
pub(super) struct Show {
    style: Style,
    begun: Instant,
    bar: Option<Bar>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    found: u64,
    total: u64,
    ended: u64,
    /// Bytes of files on their way, by source.
    done: HashMap<String, u64>,
    failed: bool,
    /// Of something it is unknown whether it was done.
    uncertain: bool,
    hints: Hints,
}

impl Show {
    pub(super) fn new(style: Style, progress: bool) -> Self {
        let wanted = progress && matches!(style, Style::Normal | Style::Verbose);
        let bar = (wanted && err().is_terminal()).then(Bar::of_bytes);
        Self { style, begun: Instant::now(), bar, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, line: impl Display) {
        let print = || err().line(line);
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Tells how all of it ended, with a summary where one is wanted; the exit status.
    pub(super) fn end(&self, done: Result<Tally, CopyError>, summary: bool) -> ExitCode {
        match done {
            Ok(tally) => {
                if summary {
                    self.summary(&tally);
                }
                self.status(tally.failed > 0)
            }
            Err(error) => {
                self.error(&error);
                match error {
                    CopyError::Cancelled => ExitCode::from(INTERRUPTED),
                    _ => self.status(true),
                }
            }
        }
    }

    /// Tells a person what was probably meant by names that are not there.
    pub(super) async fn hint(&self, client: &Client) {
        let hints = std::mem::take(&mut self.state().hints);
        if self.style != Style::Json {
            hints.tell(client).await;
        }
    }

    fn status(&self, failed: bool) -> ExitCode {
        let state = self.state();
        match (state.uncertain, state.failed || failed) {
            (true, _) => ExitCode::from(UNCERTAIN),
            (_, true) => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        }
    }

    /// The last words.
    fn summary(&self, tally: &Tally) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let seconds = self.begun.elapsed().as_secs_f64();
        let Tally { copied, bytes, failed } = *tally;
        match self.style {
            Style::Json => {
                let line = json!({ "copied": copied, "bytes": bytes, "failed": failed, "seconds": seconds });
                out().json(&line);
            }
            Style::Normal if self.bar.is_none() && failed == 0 => {}
            Style::Quiet => {}
            Style::Normal | Style::Verbose => {
                let rate = HumanBytes((bytes as f64 / seconds.max(1e-3)) as u64);
                let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
                let files = if copied == 1 { "file" } else { "files" };
                let size = HumanBytes(bytes);
                err().line(format_args!("{copied} {files}, {size} in {seconds:.1} s ({rate}/s){failed}"));
            }
        }
    }

    /// What went wrong as a whole.
    fn error(&self, error: &CopyError) {
        let uncertain = error.is_uncertain();
        {
            let mut state = self.state();
            state.failed = true;
            state.uncertain |= uncertain;
        }
        if let Some(error) = error.remote_error() {
            self.state().hints.note(error);
        }
        let print = || match self.style {
            Style::Verbose => err().error(format_args!("{error:#}")),
            _ => err().error(error),
        };
        match (self.style, &self.bar) {
            (Style::Json, _) => {
                let mut line = json!({ "error": format!("{error:#}") });
                if uncertain {
                    line["uncertain"] = true.into();
                }
                if let Some(code) = error.remote_error().and_then(client::Error::code) {
                    line["code"] = code_name(code).into();
                }
                out().json(&line);
            }
            (_, Some(bar)) => bar.suspend(print),
            (_, None) => print(),
        }
    }

    fn tell(&self, job: &CopyJob, done: &CopyDone) {
        match self.style {
            Style::Json => {
                let checksums: Vec<_> = done
                    .checksums
                    .iter()
                    .map(|(place, sum)| json!({ "of": place.to_string(), "type": sum.kind, "value": sum.value }))
                    .collect();
                let shares: Vec<_> = done
                    .shares
                    .iter()
                    .map(|share| json!({ "source": share.source, "bytes": share.bytes, "failed": share.failed }))
                    .collect();
                let line = json!({
                    "source": job.source.to_string(), "target": job.target.to_string(), "size": done.size,
                    "copied": done.copied, "seconds": done.time.as_secs_f64(), "checksums": checksums,
                    "shares": shares, "third_party": done.third_party,
                });
                out().json(&line);
            }
            Style::Normal | Style::Verbose => {
                for (place, sum) in &done.checksums {
                    self.line(format_args!("{}: {} {place} {}", sum.kind, sum.value, done.size));
                }
                if self.style == Style::Verbose {
                    self.line(format_args!("{} -> {}", job.source, job.target));
                    for share in &done.shares {
                        let bytes = HumanBytes(share.bytes);
                        let failed = share.failed.as_ref().map(|why| format!(", dropped: {why}"));
                        let failed = failed.unwrap_or_default();
                        self.line(format_args!("  {}: {bytes}{failed}", share.source));
                    }
                }
            }
            Style::Quiet => {}
        }
    }
}

impl Listener for Show {
    fn found(&self, job: &CopyJob) {
        let mut state = self.state();
        state.found += 1;
        state.total += job.size.unwrap_or(0);
        if let Some(bar) = &self.bar {
            bar.set_length(state.total);
        }
    }

    fn progress(&self, job: &CopyJob, progress: Progress) {
        let Some(bar) = &self.bar else { return };
        let mut state = self.state();
        let before = match state.done.insert(job.source.to_string(), progress.done) {
            Some(before) => before,
            None => {
                // Now the size is known that a listing did not tell.
                state.total += progress.total.unwrap_or(0).saturating_sub(job.size.unwrap_or(0));
                bar.set_length(state.total);
                0
            }
        };
        bar.inc(progress.done.saturating_sub(before));
    }

    fn ended(&self, job: &CopyJob, result: &Result<CopyDone, CopyError>) {
        match result {
            Ok(done) => self.tell(job, done),
            Err(CopyError::Cancelled) => {}
            Err(error) => self.error(error),
        }
        let mut state = self.state();
        state.ended += 1;
        state.done.remove(&job.source.to_string());
        if let Some(bar) = &self.bar
            && state.found > 1
        {
            bar.set_prefix(format_args!("{}/{} ", state.ended, state.found));
        }
    }

    fn missed(&self, error: &CopyError) {
        self.error(error);
    }
}
