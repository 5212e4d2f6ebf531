//! The programs of a site that copy files: from the configuration to commands, after a check of those that are needed.

use config::{Effective, StageForm, StageProgram};
use residency::{CopyAgent, CopyCommand, CopyPrograms, StageAgent, StageAgentSettings, StageMessage};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time limit of the program of `oss.stagecmd` without a `frm.xfr.copycmd in` that has one.
const STAGE_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// The time between the end of a program that reads lines and its next start, at first and at most.
const AGENT_PAUSE: Duration = Duration::from_secs(1);
const AGENT_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The interval between two looks at a file whose program does not report its end.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Returns what copies files, after a check of the programs that are needed.
pub(crate) fn copy_agent(
    effective: &Effective,
    root: &str,
    needed: (bool, bool),
) -> Result<Arc<dyn CopyAgent>, String> {
    if let Some(fault) = effective.stage_fault().filter(|_| needed.0) {
        return Err(format!("{}; {}", fault.what, fault.remedy));
    }
    let programs = copy_programs(effective, root, needed)?;
    with_stage_agent(effective, needed.0, programs)
}

/// Returns the programs that copy files, after a check of those that are needed.
fn copy_programs(
    effective: &Effective,
    root: &str,
    (stages, migrates): (bool, bool),
) -> Result<CopyPrograms, String> {
    let values = &effective.residency;
    let command = |program: &Option<StageProgram>, is_needed: bool| {
        program.as_ref().filter(|_| is_needed).map(copy_command)
    };
    let is_run = stages && !values.stage_form.reads_lines();
    let stage_program = values.stage_program.as_ref().filter(|_| is_run);
    let stage_program = stage_program.map(|program| stage_command(program, stage_time_limit(effective)));
    let programs = CopyPrograms {
        from_path: stage_program.clone().or_else(|| command(&values.from_path, stages)),
        from_url: stage_program.or_else(|| command(&values.from_url, stages)),
        to_path: command(&values.to_path, migrates),
        to_url: command(&values.to_url, migrates),
        instance: effective.instance.clone().unwrap_or_else(|| config::ANONYMOUS.to_owned()),
    };
    let CopyPrograms { from_path, from_url, to_path, to_url, .. } = &programs;
    for program in [from_path, from_url, to_path, to_url].into_iter().flatten() {
        check_program(&program.program)?;
        if let Some(name) = program.variable_without_value() {
            return Err(format!(
                "frm.xfr.copycmd: ${name} has no value here; remove it, or write \\${name} for the text"
            ));
        }
    }
    let is_url = !root.is_empty() && !root.starts_with('/');
    let (kind, option) = if is_url { ("URLs", " url") } else { ("paths", "") };
    for (direction, is_needed, of_path, of_url) in [
        ("in", stages && !values.stage_form.reads_lines(), from_path, from_url),
        ("out", migrates, to_path, to_url),
    ] {
        if is_needed && (if is_url { of_url } else { of_path }).is_none() {
            return Err(format!(
                "oss.remoteroot makes {kind} of the remote names: set frm.xfr.copycmd {direction}{option} for them"
            ));
        }
    }
    Ok(programs)
}

/// Returns the programs, with the one that reads lines if there is one.
fn with_stage_agent(
    effective: &Effective,
    stages: bool,
    programs: CopyPrograms,
) -> Result<Arc<dyn CopyAgent>, String> {
    let values = &effective.residency;
    let program = values.stage_program.as_ref().filter(|_| stages && values.stage_form.reads_lines());
    let Some(program) = program else { return Ok(Arc::new(programs)) };
    check_program(&program.path)?;
    let directory = effective.transfer_directory();
    let has_reports = values.stage_form == StageForm::Reporting;
    let template = values.stage_message.as_deref().unwrap_or_default();
    let message = StageMessage::new(template, &directory, has_reports)
        .map_err(|reason| format!("oss.stagemsg: {reason}"))?;
    let settings = StageAgentSettings {
        program: program.path.clone(),
        arguments: program.arguments.clone(),
        message,
        directory,
        time_limit: stage_time_limit(effective),
        pause: AGENT_PAUSE,
        pause_max: AGENT_PAUSE_MAX,
        look_interval: (!has_reports).then_some(LOOK_INTERVAL),
    };
    let agent = StageAgent::new(settings, programs).map_err(|error| base::errno_text(&error))?;
    Ok(Arc::new(agent))
}

/// Checks that a program that copies files exists and can be executed.
pub(crate) fn check_program(path: &Path) -> Result<(), String> {
    check_executable(path).map_err(|reason| {
        format!("{reason}; correct frm.xfr.copycmd, oss.stagecmd, oss.rsscmd or frm.purge.polprog")
    })
}

/// Checks that a program exists and can be executed.
pub(crate) fn check_executable(path: &Path) -> Result<(), String> {
    use rustix::fs::{Access, access};
    access(path, Access::EXEC_OK).map_err(|error| {
        let reason = base::errno_text(&error.into());
        format!("cannot run {}: {reason}", path.display())
    })
}

fn copy_command(program: &StageProgram) -> CopyCommand {
    CopyCommand {
        program: program.command.path.clone(),
        arguments: program.command.arguments.clone(),
        time_limit: program.timeout,
        creates_file: program.creates_file,
    }
}

/// Returns the command of `oss.stagecmd`: the name in mass storage and that of the new file follow its arguments, which have
/// no variables.
fn stage_command(program: &config::CopyProgram, limit: Duration) -> CopyCommand {
    let arguments = program.arguments.iter().map(|argument| argument.replace('$', "\\$"));
    CopyCommand {
        program: program.path.clone(),
        arguments: arguments.chain(["$SRC", "$DST"].map(str::to_owned)).collect(),
        time_limit: Some(limit),
        creates_file: false,
    }
}

/// Returns the time limit of a file that the program of `oss.stagecmd` brings.
fn stage_time_limit(effective: &Effective) -> Duration {
    let timeout = |program: &Option<StageProgram>| program.as_ref().and_then(|program| program.timeout);
    let values = &effective.residency;
    timeout(&values.from_path).or_else(|| timeout(&values.from_url)).unwrap_or(STAGE_TIME_MAX)
}
