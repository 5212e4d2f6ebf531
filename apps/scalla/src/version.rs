//! `scalla version`: prints the version.

use crate::printer::out;
use std::process::ExitCode;

/// Print the version.
#[derive(clap::Args, Debug)]
pub(crate) struct VersionCommand {
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

impl VersionCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let text = match self.json {
            true => serde_json::json!({ "program": "scalla", "version": server::VERSION }).to_string(),
            false => format!("scalla {}", server::VERSION),
        };
        out().line(format_args!("{text}"));
        Ok(ExitCode::SUCCESS)
    }
}
