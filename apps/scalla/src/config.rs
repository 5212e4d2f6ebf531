//! `scalla config`: checks and prints configurations without starting a server.

use crate::evaluation::evaluation;
use crate::local_path::absolute;
use crate::printer::{err, out};
use crate::rule_check::check_rules;
use anyhow::bail;
use clap::Subcommand;
use config::{
    ConfigInput, ConfigReport, Effective, EffectiveLine, Loaded, LocalDisk, LocalFiles, Origin, Overrides,
    Problem, ProblemKind, Severity, Strictness,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::SystemTime;

/// Check and print configurations without starting a server.
#[derive(clap::Args, Debug)]
pub(crate) struct ConfigCommand {
    #[command(subcommand)]
    command: ConfigSubcommand,
}

#[derive(Subcommand, Debug)]
enum ConfigSubcommand {
    Check(CheckOptions),
    Show(ShowOptions),
    Manual(ManualOptions),
}

/// Print the reference of all directives, or of one, as Markdown.
#[derive(clap::Args, Debug)]
struct ManualOptions {
    /// Print only these directives.
    directive: Vec<String>,
}

/// Report all problems of configuration files, including missing or inaccessible paths, contradictions,
/// and keys and certificates that a server cannot use or that expire within 30 days.
#[derive(clap::Args, Debug)]
struct CheckOptions {
    /// Files to check, each as a separate configuration.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    reader: EvaluationOptions,
    /// User of the server, as which to examine the files; only root can do this.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Print one JSON object per problem.
    #[arg(long)]
    json: bool,
}

/// Print each effective value and its origin.
#[derive(clap::Args, Debug)]
struct ShowOptions {
    /// Directory to serve, as for `scalla serve DIR`.
    dir: Option<PathBuf>,
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    reader: EvaluationOptions,
    /// Print only this directive; may be repeated.
    #[arg(long, value_name = "NAME")]
    directive: Vec<String>,
    /// Print only values that differ from the default.
    #[arg(long)]
    changed: bool,
    /// Print one JSON object per value.
    #[arg(long)]
    json: bool,
}

/// Program, instance and host to evaluate a file for.
#[derive(clap::Args, Debug)]
struct EvaluationOptions {
    /// Program name that `if exec` compares with.
    #[arg(long, value_name = "NAME", default_value = "xrootd")]
    program: String,
    /// Instance name that `if named` compares with.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Host name that `if HOST` compares with; the default is this host.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

impl ConfigCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            ConfigSubcommand::Check(check) => check.run(),
            ConfigSubcommand::Show(show) => show.run(),
            ConfigSubcommand::Manual(manual) => manual.run(),
        }
    }
}

impl ManualOptions {
    fn run(self) -> anyhow::Result<ExitCode> {
        if self.directive.is_empty() {
            out().lines(config::manual());
        }
        for name in &self.directive {
            let Some(page) = config::manual_of(name) else {
                let hint = match config::nearest_directive(name) {
                    Some(near) => format!("did you mean {near}?"),
                    None => "`scalla config manual` lists all".to_owned(),
                };
                bail!("no directive is called `{name}`; {hint}");
            };
            out().lines(page);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl EvaluationOptions {
    fn load(&self, file: Option<&Path>, overrides: Overrides) -> Loaded {
        let mut evaluation = evaluation(&self.program, self.instance.clone());
        evaluation.host = self.host.clone().unwrap_or_else(server::host_name);
        let file = file.map(|path| path.to_string_lossy().into_owned());
        config::load(
            &ConfigInput { file, evaluation, overrides, strictness: Strictness::Strict },
            &LocalFiles,
        )
    }
}

impl CheckOptions {
    fn run(self) -> anyhow::Result<ExitCode> {
        let user = self.user.as_deref().map(server::User::find).transpose()?;
        let mut good = true;
        match self.files.as_slice() {
            [file] => good = self.check(file, user.as_ref())?,
            // Each configuration has an environment of its own (`setenv`).
            files => {
                for file in files {
                    good &= self.check_in_process(file)?;
                }
            }
        }
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Checks a file in a new process.
    fn check_in_process(&self, file: &Path) -> anyhow::Result<bool> {
        let EvaluationOptions { program, instance, host } = &self.reader;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["config", "check", "--program", program]);
        for (option, value) in [("--instance", instance), ("--host", host), ("--user", &self.user)] {
            if let Some(value) = value {
                command.arg(format!("{option}={value}"));
            }
        }
        command.args(self.json.then_some("--json"));
        Ok(command.arg("--").arg(file).status()?.success())
    }

    /// Checks a file in the environment of its server. Returns whether it has no errors.
    fn check(&self, file: &Path, user: Option<&server::User>) -> anyhow::Result<bool> {
        // A server reads its configuration before it switches to its user.
        let Loaded { effective, mut report } = self.reader.load(Some(file), Overrides::default());
        // This may execute the program again, so nothing is printed before it.
        server::apply_environment(&server::environment_of_server(&effective.environment, user))?;
        if let Some(user) = user {
            user.switch()?;
        }
        // Root starts servers for other users (`-R`), and systemd does so too.
        let is_any_user = user.is_none() && server::User::is_root();
        report.append(config::check(&effective, &LocalDisk, Strictness::Strict));
        check_rules(&effective, &mut report);
        server::check_credentials(&effective, SystemTime::now(), is_any_user, &mut report);
        note_programs(&effective, &mut report);
        report.order_by_line();
        if self.json {
            report.problems().iter().for_each(|problem| out().json(&problem_json(file, problem)));
        } else {
            out().lines(&report);
            out().line(format_args!("{}: {}", file.display(), verdict(&report)));
        }
        Ok(report.is_ok())
    }
}

/// Notes the directives whose programs keep the privileges of their files, because this concerns the whole
/// server.
fn note_programs(effective: &Effective, report: &mut ConfigReport) {
    let names: Vec<&str> = config::program_directives(effective).map(|one| one.names[0]).collect();
    if !names.is_empty() {
        let what = format!(
            "programs that the server executes gain the privileges of their files (setuid), because of {}",
            names.join(", ")
        );
        let allowed = "without programs, no_new_privs is in force; see docs/operating.md";
        report.add(ProblemKind::Consequence, Origin::Default, what, allowed);
    }
}

fn verdict(report: &ConfigReport) -> String {
    if report.problems().is_empty() { "good".to_owned() } else { report.summary() }
}

impl ShowOptions {
    fn run(self) -> anyhow::Result<ExitCode> {
        let overrides =
            Overrides { directory: self.dir.as_deref().map(absolute).transpose()?, ..Overrides::default() };
        let Loaded { mut effective, report } = self.reader.load(self.config.as_deref(), overrides);
        if !report.is_ok() {
            err().lines(&report);
            bail!("the configuration has errors");
        }
        let admin_path = &mut effective.process.admin_path;
        if admin_path.origin.is_default() {
            effective.process.admin_path.value.path = server::default_admin_directory(&effective);
        }
        let lines = config::show(&effective);
        if let Some(unknown) =
            self.directive.iter().find(|name| lines.iter().all(|line| line.directive != **name))
        {
            bail!("no value is set by `{unknown}`; without --directive all are shown");
        }
        let is_wanted = |line: &EffectiveLine| {
            let named = self.directive.is_empty() || self.directive.iter().any(|name| name == line.directive);
            named && !(self.changed && line.origin.is_default())
        };
        for line in lines.into_iter().filter(is_wanted) {
            if self.json {
                let value = json!({
                    "directive": line.directive,
                    "value": line.value,
                    "origin": origin_json(&line.origin),
                    "reloadable": line.reload == config::Reload::Safe,
                });
                out().json(&value);
            } else {
                out().line(line);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn problem_json(file: &Path, problem: &Problem) -> Value {
    json!({
        "configuration": file.display().to_string(),
        "severity": match problem.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        },
        "kind": format!("{:?}", problem.kind),
        "origin": origin_json(&problem.origin),
        "what": problem.what,
        "allowed": problem.allowed,
    })
}

fn origin_json(origin: &Origin) -> Value {
    match origin {
        Origin::File(at) => json!({ "file": &*at.file, "line": at.line, "column": at.column }),
        other => json!(other.to_string()),
    }
}
