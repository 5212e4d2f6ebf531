//! `scalla serve DIR`: a folder, served.

use crate::cli::absolute;
use anyhow::Context;
use clap::ValueEnum;
use config::{Evaluation, Folder, Load, LogFormat, Overrides, Port, Strictness};
use server::log::{Levels, Retention};
use server::{Launch, LogTarget};
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve DIR as `/` (or what a configuration file says) until told to end.
#[derive(clap::Args, Debug)]
pub(crate) struct Serve {
    /// The folder to serve.
    #[arg(required_unless_present = "config")]
    dir: Option<PathBuf>,
    /// Port to listen on; 0 takes a free one. Without it 1094, or what the file says.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Forbid every change.
    #[arg(long)]
    read_only: bool,
    /// User to become, when started as root.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Configuration file in XRootD's language.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Instance name, for `if named` and folders of its own.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Folder for the admin socket and journals.
    #[arg(long, value_name = "DIR")]
    admin_path: Option<PathBuf>,
    /// Log to a file, a new one each day.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Old log files to keep: a number (7), a size (500m), or `sighup` for none of our business.
    #[arg(long, value_name = "WHAT", requires = "log")]
    keep: Option<Retention>,
    /// Form of log lines.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<Format>,
    /// Detach from the terminal once the port is open.
    #[arg(long)]
    background: bool,
    /// Write the process number to a file.
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Log more; twice: everything.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Form of log lines.
#[derive(Clone, Copy, ValueEnum, Debug)]
enum Format {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        Ok(server::run(self.launch()?))
    }

    fn launch(self) -> anyhow::Result<Launch> {
        let full = |path: Option<PathBuf>| path.as_deref().map(absolute).transpose();
        let log = match full(self.log)? {
            Some(path) => LogTarget::File { path, exact: true, retention: self.keep.unwrap_or_default() },
            None => LogTarget::Stderr,
        };
        let directory = match &self.dir {
            Some(dir) => Some(dir.canonicalize().with_context(|| format!("cannot serve {}", dir.display()))?),
            None => None,
        };
        let overrides = Overrides {
            directory,
            read_only: self.read_only,
            port: self.port.map(|port| if port == 0 { Port::Any } else { Port::Number(port) }),
            admin_path: full(self.admin_path)?.map(|path| Folder { path, group: false }),
            log_format: self.log_format.map(|format| match format {
                Format::Text => LogFormat::Text,
                Format::Json => LogFormat::Json,
            }),
            ..Overrides::default()
        };
        Ok(Launch {
            load: Load {
                file: full(self.config)?.map(|path| path.to_string_lossy().into_owned()),
                evaluation: evaluation("xrootd", self.instance),
                overrides,
                strictness: Strictness::Strict,
            },
            log,
            levels: Levels::raised(self.verbose),
            precise: false,
            user: self.user,
            background: self.background,
            pid_file: full(self.pid_file)?,
            traditional_files: false,
            announce: true,
        })
    }
}

/// For whom files are evaluated: this process's environment counts, the host's name is found out later.
pub(crate) fn evaluation(program: &str, instance: Option<String>) -> Evaluation {
    Evaluation {
        program: program.to_owned(),
        instance: instance.filter(|name| name != config::ANONYMOUS),
        host: String::new(),
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
    }
}
