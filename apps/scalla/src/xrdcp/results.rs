//! The results of jobs: the failures and the exit status.

use super::failure::{XrdcpFailure, report};
use crate::printer::err;
use crate::xrootd_compat::{XrdClStatus, code};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use tokio::task::JoinError;

/// Maximum number of failures that are held until the end, to be reported in the order of the jobs.
const HELD_MAX: usize = 1000;

/// The index and the result of a job.
type JobResult = (usize, Result<(), XrdClStatus>);

/// The results of the jobs so far.
#[derive(Default)]
pub(super) struct JobResults {
    /// Number of jobs begun.
    begun: usize,
    running: BTreeSet<usize>,
    errors: usize,
    /// The failure with the lowest number, which determines the exit status.
    first: Option<(usize, XrdClStatus)>,
    /// The failures that are not reported yet.
    held: BTreeMap<usize, XrdClStatus>,
}

impl JobResults {
    /// Begins a job and returns its index.
    pub(super) fn begin(&mut self) -> usize {
        self.running.insert(self.begun);
        self.begun += 1;
        self.begun - 1
    }

    /// Records the result of a job.
    pub(super) fn end(&mut self, index: usize, result: Result<(), XrdClStatus>) {
        self.running.remove(&index);
        let Err(status) = result else { return };
        self.errors += 1;
        if self.first.as_ref().is_none_or(|(first, _)| index < *first) {
            self.first = Some((index, status.clone()));
        }
        self.held.insert(index, status);
        if self.held.len() >= HELD_MAX {
            self.report();
        }
    }

    /// Records the result of a task. One that panicked counts as interrupted at the end.
    pub(super) fn take(&mut self, ended: Option<Result<JobResult, JoinError>>) {
        if let Some(Ok((index, result))) = ended {
            self.end(index, result);
        }
    }

    fn report(&mut self) {
        for (index, status) in std::mem::take(&mut self.held) {
            err().line(format_args!("Job #{}: {}", index + 1, status.to_string().trim_end()));
        }
    }

    /// Reports the failures. The exit status is that of the first one.
    pub(super) fn summary(mut self) -> ExitCode {
        for index in std::mem::take(&mut self.running) {
            self.end(index, Err(XrdClStatus::error(code::INTERRUPTED)));
        }
        let Some((_, first)) = self.first.take() else { return ExitCode::SUCCESS };
        if self.begun == 1 {
            return report(&XrdcpFailure::Run(first));
        }
        self.report();
        err().line(format_args!("Jobs total: {0}, run: {0}, errors: {1}", self.begun, self.errors));
        first.exit()
    }
}
