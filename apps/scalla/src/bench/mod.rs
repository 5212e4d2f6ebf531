//! `scalla bench`: a load generator for xroot servers, ours and others.
//!
//! | file | contents |
//! |---|---|
//! | `options` | the command line |
//! | `load_plan` | a load: the validated command line |
//! | `generator` | the event loop: a single thread drives all connections |
//! | `operation` | one operation: its request and the check of its reply |
//! | `pattern` | the content of test files; `scalla bench gen` |
//! | `written_files` | verification and removal of written files |
//! | `counters` | counters and latencies |
//! | `process_usage`, `resource_usage` | CPU time and memory used |
//! | `report` | the report, as text and JSON |

mod counters;
mod generator;
mod load_plan;
mod operation;
mod options;
mod pattern;
mod process_usage;
mod report;
mod resource_usage;
mod written_files;

pub(crate) use options::BenchCommand;

use anyhow::Context;
use client::SecuredLogin;
use generator::LoadGenerator;
use load_plan::LoadPlan;
use options::LoadCommand;
use rawclient::Login;
use report::BenchReport;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::process::ExitCode;

use crate::printer::out;

/// Exit status of a load that ran with errors.
const WRONG_STATUS: u8 = 3;

impl BenchCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.load {
            LoadCommand::Gen(generate) => generate.run(),
            load => measure(&LoadPlan::new(load)?),
        }
    }
}

fn measure(plan: &LoadPlan) -> anyhow::Result<ExitCode> {
    if let Some(cpu) = plan.cpu {
        pin(cpu)?;
    }
    allow_descriptors(plan.connections)?;
    let login = SecuredLogin::new(&Login::of_process("scalla-bench"), &plan.url, plan.resumes);
    let (address, session) = generator::probe_address(plan, &login)?;
    // Otherwise there would be one connection more than requested.
    drop(session);
    let mut ran = LoadGenerator::new(plan, login.clone(), address)?.run()?;
    written_files::verify_and_remove(plan, &login, &mut ran)?;
    let report = BenchReport::new(plan, &ran);
    out().lines(if plan.json { format!("{}\n", report.json()) } else { report.text() });
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(WRONG_STATUS) })
}

/// Pins this process to a processor.
fn pin(cpu: u32) -> anyhow::Result<()> {
    let mut processors = CpuSet::new();
    let number = cpu as usize;
    if number >= CpuSet::MAX_CPU {
        anyhow::bail!("--cpu {cpu}: there is no such processor");
    }
    processors.set(number);
    sched_setaffinity(None, &processors).with_context(|| format!("cannot stay on processor {cpu}"))
}

/// Raises the limit of open files as far as needed.
fn allow_descriptors(connections: usize) -> anyhow::Result<()> {
    /// Descriptors that are not connections.
    const OTHERS: u64 = 64;
    let needed = connections as u64 + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        anyhow::bail!(
            "{connections} connections need {needed} open files, and this process may have {}: raise the limit \
             (ulimit -n)",
            limit.maximum.unwrap_or(0)
        );
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .context("cannot raise the limit of open files")
}
