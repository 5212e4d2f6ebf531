//! [`SampleTrace`]: requests of typical work, from a seed.

use super::access_trace::TraceRequest;
use base::SplitMix64;
use std::convert::Infallible;

/// The bytes of a request.
const REQUEST_BYTES: u64 = 128 * 1024;
/// The requests that read a whole file.
const REQUESTS_PER_FILE: u64 = 512;
/// The jobs that read at the same time.
const JOBS: usize = 24;
/// The files that a job reads.
const FILES_PER_JOB: u64 = 20;
/// The number of data sets.
const DATA_SETS: u64 = 40;
/// The files of a data set.
const FILES_PER_DATA_SET: u64 = 50;
/// The kinds of analysis; each reads its own branches.
const ANALYSES: u64 = 8;
/// The part of each file that an analysis reads, in per cent.
const BRANCHES_PERCENT: u64 = 22;
/// The part of production's requests that goes to files which all jobs need, in per cent.
const SHARED_PERCENT: u64 = 30;
/// The number of these files.
const SHARED_FILES: u64 = 60;

/// The kinds of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleTraceKind {
    /// Jobs of several analyses read some branches of all files of a data set. Some data sets are more
    /// popular than others.
    Analysis,
    /// Jobs read whole files, each once, and parts of files that all jobs need.
    Production,
}

impl SampleTraceKind {
    /// All kinds, with their names.
    pub const ALL: [(&str, Self); 2] = [("analysis", Self::Analysis), ("production", Self::Production)];
}

/// A job: it reads files of a data set, one after the other.
#[derive(Clone, Copy)]
struct SampleJob {
    first_file: u64,
    files_left: u64,
    analysis: u64,
    next_request: u64,
}

/// An endless trace of a kind of work. The same seed gives the same requests.
pub struct SampleTrace {
    kind: SampleTraceKind,
    rng: SplitMix64,
    jobs: Vec<SampleJob>,
    /// The number of files that production has read.
    files_read: u64,
}

impl SampleTrace {
    /// Creates a trace.
    #[must_use]
    pub fn new(kind: SampleTraceKind, seed: u64) -> Self {
        let mut trace = Self { kind, rng: SplitMix64::new(seed), jobs: Vec::new(), files_read: 0 };
        trace.jobs = (0..JOBS).map(|_| trace.new_job()).collect();
        trace
    }

    fn below(&mut self, end: u64) -> u64 {
        self.rng.draw() % end.max(1)
    }

    /// Returns a number below `end`; half of all draws are in the first twentieth, as popular data sets
    /// have it.
    fn popular_below(&mut self, end: u64) -> u64 {
        let unit = self.below(1 << 20) as f64 / f64::from(1 << 20);
        // The power whose median is a twentieth.
        let place = unit.powf(20_f64.log2()) * end as f64;
        (place as u64).min(end.saturating_sub(1))
    }

    fn new_job(&mut self) -> SampleJob {
        match self.kind {
            SampleTraceKind::Analysis => {
                let data_set = self.popular_below(DATA_SETS);
                let parts = FILES_PER_DATA_SET - FILES_PER_JOB;
                SampleJob {
                    first_file: data_set * FILES_PER_DATA_SET + self.below(parts),
                    files_left: FILES_PER_JOB,
                    analysis: self.below(ANALYSES),
                    next_request: 0,
                }
            }
            SampleTraceKind::Production => {
                let first_file = SHARED_FILES + self.files_read;
                self.files_read += 1;
                SampleJob { first_file, files_left: 1, analysis: 0, next_request: 0 }
            }
        }
    }

    /// Reports whether an analysis reads this part of each file.
    fn reads(analysis: u64, request: u64) -> bool {
        let mixed = SplitMix64::new(analysis << 32 | request).draw();
        mixed % 100 < BRANCHES_PERCENT
    }

    fn advance(&mut self, job: usize) -> TraceRequest {
        let is_analysis = self.kind == SampleTraceKind::Analysis;
        loop {
            let Some(mut current) = self.jobs.get(job).copied() else {
                return TraceRequest { file: 0, offset: 0, length: 0 };
            };
            let request = current.next_request;
            let file = current.first_file;
            current.next_request += 1;
            if current.next_request == REQUESTS_PER_FILE {
                current.next_request = 0;
                current.first_file += 1;
                current.files_left -= 1;
            }
            if current.files_left == 0 {
                current = self.new_job();
            }
            if let Some(place) = self.jobs.get_mut(job) {
                *place = current;
            }
            if !is_analysis || Self::reads(current.analysis, request) {
                return sample_request(file, request);
            }
        }
    }
}

fn sample_request(file: u64, request: u64) -> TraceRequest {
    let file = u32::try_from(file).unwrap_or(u32::MAX);
    TraceRequest { file, offset: request * REQUEST_BYTES, length: REQUEST_BYTES }
}

impl Iterator for SampleTrace {
    type Item = Result<TraceRequest, Infallible>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.kind == SampleTraceKind::Production && self.below(100) < SHARED_PERCENT {
            let file = self.popular_below(SHARED_FILES);
            let request = self.below(REQUESTS_PER_FILE);
            return Some(Ok(sample_request(file, request)));
        }
        let job = usize::try_from(self.below(JOBS as u64)).unwrap_or(0);
        Some(Ok(self.advance(job)))
    }
}
