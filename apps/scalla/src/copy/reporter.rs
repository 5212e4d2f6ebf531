//! Output of copies: progress on a terminal, only failures elsewhere, or lines of JSON.

use std::collections::HashMap;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::Client;
use client::copy::{CopyDone, CopyError, CopyJob, CopyListener, Progress, Tally};
use serde_json::json;

use super::repeated_failures::RepeatedFailures;
use crate::exit_status::{INTERRUPTED, UNCERTAIN};
use crate::json_failures;
use crate::name_suggestions::NameSuggestions;
use crate::printer::{ProgressLine, err, out};
use base::Size;

/// The level of detail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// Progress on a terminal, and failures.
    Normal,
    /// Failures only.
    Quiet,
    /// Progress, failures and each file.
    Verbose,
    /// A line of JSON per file, and one for the total.
    Json,
}

/// The fate of a file whose copy is interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PartialFileFate {
    /// The partial file is kept, and the same command resumes there.
    Kept,
    /// The partial file is removed; `--continue` would have kept it.
    Removed,
    /// The outcome depends on the servers, or the command restarts with the next file.
    Other,
}

/// Time without transferred bytes after which the reason of the wait replaces the bar.
const STILL: Duration = Duration::from_secs(1);

/// Reports the progress and results of copies.
pub(super) struct CopyReporter {
    style: Style,
    partial_file: PartialFileFate,
    begun: Instant,
    bar: Option<ProgressLine>,
    state: Mutex<ReporterState>,
}

#[derive(Default)]
struct ReporterState {
    found: u64,
    total: u64,
    ended: u64,
    copied: u64,
    failures: u64,
    /// Bytes of all files so far, and when the last of them arrived.
    transferred: u64,
    transferred_at: Option<Instant>,
    /// Name of the first file.
    name: String,
    shows_bytes: bool,
    /// Number of files and directories that a sync removed.
    removed: Option<(u64, u64)>,
    /// State left by an interrupt: bytes and full sizes of incomplete files.
    left: u64,
    left_of: u64,
    /// Failures that concern a server as a whole, and the number of repetitions.
    repeated: RepeatedFailures,
    /// Transferred bytes of incomplete files, by source.
    done: HashMap<String, u64>,
    failed: bool,
    /// Set if it is unknown whether an operation was done.
    uncertain: bool,
    hints: NameSuggestions,
}

impl CopyReporter {
    pub(super) fn new(style: Style, progress: bool, leftover: PartialFileFate) -> Self {
        let wanted = progress && matches!(style, Style::Normal | Style::Verbose);
        let bar = (wanted && err().is_terminal()).then(ProgressLine::of_copies);
        Self { style, partial_file: leftover, begun: Instant::now(), bar, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ReporterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, line: impl Display) {
        let print = || err().line(line);
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Reports the end of the command, with an optional summary. Returns the exit status.
    pub(super) fn finish(&self, done: Result<Tally, CopyError>, summary: bool) -> ExitCode {
        match done {
            Ok(tally) => {
                self.report_repeated();
                if summary {
                    self.summary(&tally);
                }
                self.status(tally.failed > 0)
            }
            Err(CopyError::Cancelled) => {
                self.interrupted();
                ExitCode::from(if self.state().uncertain { UNCERTAIN } else { INTERRUPTED })
            }
            Err(error) => {
                self.error(&error, None);
                self.status(true)
            }
        }
    }

    /// Reports the state that an interrupt left.
    fn interrupted(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let text = interrupted(&self.state(), self.partial_file);
        match self.style {
            Style::Json => out().json(&json_failures::failure(&text, Some("Cancelled")).into()),
            _ => err().error(text),
        }
    }

    /// Reports the number of suppressed similar failures.
    fn report_repeated(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        for (text, more) in self.state().repeated.more() {
            err().error(format_args!("{more} more failed alike: {text} (--verbose lists them)"));
        }
    }

    /// Updates the progress, or shows the reason of a wait if no bytes arrive.
    pub(super) fn refresh(&self, wait: Option<String>) {
        let Some(bar) = &self.bar else { return };
        let mut state = self.state();
        let prefix = match state.found {
            0 | 1 => state.name.clone(),
            found => format!("{}/{found}", state.ended),
        };
        let is_still = state.transferred_at.is_none_or(|at| at.elapsed() >= STILL);
        state.shows_bytes = false;
        match wait {
            Some(wait) if is_still => bar.show_message(format!("{prefix}  {wait}").trim_start()),
            _ if state.transferred == 0 => bar.show_message(&prefix),
            _ if state.total == 0 => bar.show_message(&format!("{prefix}  {}", Size(state.transferred))),
            _ => {
                state.shows_bytes = true;
                bar.show_bytes(prefix);
            }
        }
    }

    /// Suggests similar names for names that do not exist.
    pub(super) async fn print_suggestions(&self, client: &Client) {
        let hints = std::mem::take(&mut self.state().hints);
        if self.style != Style::Json {
            hints.show(client).await;
        }
    }

    /// Sets the numbers of removed files and directories, for the summary.
    pub(super) fn set_removed(&self, files: u64, directories: u64) {
        self.state().removed = Some((files, directories));
    }

    fn status(&self, failed: bool) -> ExitCode {
        let state = self.state();
        match (state.uncertain, state.failed || failed) {
            (true, _) => ExitCode::from(UNCERTAIN),
            (_, true) => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        }
    }

    /// Prints the summary.
    fn summary(&self, tally: &Tally) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let seconds = self.begun.elapsed().as_secs_f64();
        let (copied, bytes) = (tally.copied, tally.bytes);
        let (failed, found, removed) = {
            let state = self.state();
            (tally.failed.max(state.failures), state.found, state.removed)
        };
        match self.style {
            Style::Json => {
                let mut line = json!({
                    "kind": "sum", "copied": copied, "bytes": bytes, "failed": failed, "seconds": seconds,
                });
                if let Some((files, directories)) = removed {
                    line["removed"] = files.into();
                    line["removed_directories"] = directories.into();
                }
                out().json(&line);
            }
            Style::Normal if self.bar.is_none() && failed == 0 => {}
            Style::Quiet => {}
            // For a single file the failure itself is sufficient.
            Style::Normal | Style::Verbose if failed > 0 && found <= 1 && copied == 0 => {}
            Style::Normal | Style::Verbose => {
                let rate = Size((bytes as f64 / seconds.max(1e-3)) as u64);
                let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
                let files = if copied == 1 { "file" } else { "files" };
                let size = Size(bytes);
                let removed = removed.filter(|removed| *removed != (0, 0));
                let removed =
                    removed.map(|(files, directories)| format!(", {} removed", files + directories));
                let removed = removed.unwrap_or_default();
                err().line(format_args!(
                    "{copied} {files}, {size} in {seconds:.1} s ({rate}/s){removed}{failed}"
                ));
            }
        }
    }

    /// Reports the failure of a copy, or of the whole command.
    fn error(&self, error: &CopyError, job: Option<&CopyJob>) {
        let uncertain = error.is_uncertain();
        {
            let mut state = self.state();
            state.failed = true;
            state.failures += 1;
            state.uncertain |= uncertain;
        }
        if let Some(error) = error.remote_error() {
            self.state().hints.record(error);
        }
        let folds = matches!(self.style, Style::Normal | Style::Quiet);
        if folds && !self.state().repeated.is_first(error) {
            return;
        }
        let print = || match self.style {
            Style::Verbose => err().error(format_args!("{error:#}")),
            _ => err().error(error),
        };
        match (self.style, &self.bar) {
            (Style::Json, _) => {
                let mut line = json_failures::of_copy(error);
                if let Some(job) = job {
                    line.insert("source".to_owned(), job.source.to_string().into());
                    line.insert("target".to_owned(), job.target.to_string().into());
                }
                out().json(&line.into());
            }
            (_, Some(bar)) => bar.suspend(print),
            (_, None) => print(),
        }
    }

    fn report_copied(&self, job: &CopyJob, done: &CopyDone) {
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
                    "kind": "file", "source": job.source.to_string(), "target": job.target.to_string(), "size": done.size,
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
                        let bytes = Size(share.bytes);
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

impl CopyListener for CopyReporter {
    fn found(&self, job: &CopyJob) {
        let mut state = self.state();
        state.found += 1;
        if state.found == 1 {
            state.name =
                job.source.name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        }
        state.total += job.size.unwrap_or(0);
        if let Some(bar) = &self.bar {
            bar.set_length(state.total);
        }
    }

    fn progress(&self, job: &CopyJob, progress: Progress) {
        let mut state = self.state();
        let before = match state.done.insert(job.source.to_string(), progress.done) {
            Some(before) => before,
            None => {
                // The listing lacked the size, which is known now.
                state.total += progress.total.unwrap_or(0).saturating_sub(job.size.unwrap_or(0));
                if let Some(bar) = &self.bar {
                    bar.set_length(state.total);
                }
                0
            }
        };
        let more = progress.done.saturating_sub(before);
        if let Some(bar) = &self.bar {
            bar.inc(more);
        }
        state.transferred += more;
        if more > 0 {
            state.transferred_at = Some(Instant::now());
        }
        let begins = more > 0 && !state.shows_bytes && self.bar.is_some();
        drop(state);
        if begins {
            self.refresh(None);
        }
    }

    fn ended(&self, job: &CopyJob, result: &Result<CopyDone, CopyError>) {
        match result {
            Ok(done) => self.report_copied(job, done),
            Err(CopyError::Cancelled) => {}
            Err(error) => self.error(error, Some(job)),
        }
        let mut state = self.state();
        state.ended += 1;
        state.copied += u64::from(result.is_ok());
        let done = state.done.remove(&job.source.to_string());
        if let (Err(CopyError::Cancelled), Some(done)) = (result, done) {
            state.left += done;
            state.left_of += job.size.unwrap_or(0).max(done);
        }
    }

    fn note(&self, text: &str) {
        match self.style {
            Style::Quiet => {}
            Style::Json => out().json(&json!({ "kind": "note", "text": text })),
            Style::Normal | Style::Verbose => self.line(format_args!("scalla: note: {text}")),
        }
    }

    fn missed(&self, error: &CopyError) {
        self.error(error, None);
    }
}

/// Formats the report about an interrupt.
fn interrupted(state: &ReporterState, leftover: PartialFileFate) -> String {
    let files = match (state.copied, state.found) {
        (_, 0 | 1) => String::new(),
        (copied, found) => format!("; {copied} of {found} files are copied"),
    };
    let (left, of) = (Size(state.left), Size(state.left_of));
    match leftover {
        _ if state.left == 0 => format!("interrupted{files}"),
        PartialFileFate::Kept => {
            format!("interrupted{files}; {left} of {of} are kept, and the same command goes on there")
        }
        PartialFileFate::Removed => {
            format!(
                "interrupted{files}; nothing is kept of what was on its way (--continue would have kept {left} of {of})"
            )
        }
        PartialFileFate::Other => format!("interrupted{files}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_tells_what_is_left() {
        let of = |found, copied, left, leftover| {
            let state = ReporterState { found, copied, left, left_of: 19 << 20, ..ReporterState::default() };
            interrupted(&state, leftover)
        };
        assert_eq!(of(1, 0, 0, PartialFileFate::Kept), "interrupted");
        let kept = "interrupted; 11.00 MiB of 19.00 MiB are kept, and the same command goes on there";
        assert_eq!(of(1, 0, 11 << 20, PartialFileFate::Kept), kept);
        assert!(of(1, 0, 11 << 20, PartialFileFate::Removed).contains("nothing is kept"));
        assert_eq!(of(40, 12, 11 << 20, PartialFileFate::Other), "interrupted; 12 of 40 files are copied");
    }
}
