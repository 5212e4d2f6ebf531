//! `scalla config`: looks at configurations without starting anything.

use crate::cli::{absolute, complain, print};
use crate::serve::evaluation;
use anyhow::bail;
use clap::Subcommand;
use config::{Files, Load, Loaded, LocalDisk, Origin, Overrides, Problem, Report, Severity, Strictness};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Look at configurations without starting anything.
#[derive(clap::Args, Debug)]
pub(crate) struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Check(Check),
    Show(Show),
    /// Print the reference of all directives, as Markdown.
    Manual,
}

/// Say everything that is wrong with configuration files, dead paths and contradictions too.
#[derive(clap::Args, Debug)]
struct Check {
    /// The files, each a configuration of its own.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    reader: Reader,
    /// As JSON: one object per problem.
    #[arg(long)]
    json: bool,
}

/// Print every effective value, and where it came from.
#[derive(clap::Args, Debug)]
struct Show {
    /// As `scalla serve DIR` would have it.
    dir: Option<PathBuf>,
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    reader: Reader,
    /// As JSON: one object per value.
    #[arg(long)]
    json: bool,
}

/// For whom a file is read.
#[derive(clap::Args, Debug)]
struct Reader {
    /// The program that reads the file (`if exec`).
    #[arg(long, value_name = "NAME", default_value = "xrootd")]
    program: String,
    /// The instance that reads the file (`if named`).
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// The host that reads the file (`if HOST`); without it this one.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

impl Config {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Check(check) => check.run(),
            Command::Show(show) => show.run(),
            Command::Manual => {
                print(&config::manual());
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl Reader {
    fn load(&self, file: Option<&Path>, overrides: Overrides) -> Loaded {
        let mut evaluation = evaluation(&self.program, self.instance.clone());
        evaluation.host = self.host.clone().unwrap_or_else(server::host_name);
        let file = file.map(|path| path.to_string_lossy().into_owned());
        config::load(&Load { file, evaluation, overrides, strictness: Strictness::Strict }, &Files)
    }
}

impl Check {
    fn run(self) -> anyhow::Result<ExitCode> {
        let mut good = true;
        for file in &self.files {
            let Loaded { effective, mut report } = self.reader.load(Some(file), Overrides::default());
            report.append(config::check(&effective, &LocalDisk, Strictness::Strict));
            good &= report.is_ok();
            if self.json {
                report
                    .problems()
                    .iter()
                    .for_each(|problem| print(&format!("{}\n", problem_json(file, problem))));
            } else {
                print(&format!("{report}{}: {}\n", file.display(), verdict(&report)));
            }
        }
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn verdict(report: &Report) -> String {
    if report.problems().is_empty() { "good".to_owned() } else { report.summary() }
}

impl Show {
    fn run(self) -> anyhow::Result<ExitCode> {
        let overrides =
            Overrides { directory: self.dir.as_deref().map(absolute).transpose()?, ..Overrides::default() };
        let Loaded { effective, report } = self.reader.load(self.config.as_deref(), overrides);
        if !report.is_ok() {
            complain(&report.to_string());
            bail!("the configuration has errors");
        }
        for line in config::show(&effective) {
            if self.json {
                let value = json!({
                    "directive": line.directive,
                    "value": line.value,
                    "origin": origin_json(&line.origin),
                    "reloadable": line.reload == config::Reload::Safe,
                });
                print(&format!("{value}\n"));
            } else {
                print(&format!("{line}\n"));
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
