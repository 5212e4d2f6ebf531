//! `scalla admin`: sends requests to a running server over its admin socket.

mod status;

use crate::printer::out;
use anyhow::bail;
use base::shown;
use clap::Subcommand;
use server::admin::{AdminRequest, LiveServer, ask, live_servers, running_servers};
use status::ListedServer;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Inspect and control a running server.
#[derive(clap::Args, Debug)]
pub(crate) struct AdminCommand {
    #[command(flatten)]
    which: ServerSelector,
    /// Print a JSON object.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: AdminSubcommand,
}

/// The running server.
#[derive(clap::Args, Debug)]
pub(crate) struct ServerSelector {
    /// Admin directory of the server (`all.adminpath`). The default is the server of this user
    /// without a configured admin directory.
    #[arg(long, value_name = "DIR", global = true)]
    admin_path: Option<PathBuf>,
    /// Instance name of the server.
    #[arg(long, value_name = "NAME", global = true)]
    instance: Option<String>,
}

#[derive(Subcommand, Debug)]
enum AdminSubcommand {
    /// List the running servers on this machine that this user may control.
    List,
    /// Print the identity and state of the server.
    Status,
    /// Print or set the log level.
    LogLevel {
        /// `info`, or with separate levels for crates: `info,net=debug`.
        levels: Option<String>,
    },
    /// Reopen the log and reload the configuration, as SIGHUP does.
    Reload,
    /// List unfinished files (persist on close), or declare one complete.
    #[command(subcommand)]
    Unfinished(UnfinishedSubcommand),
    /// List files that are blocked by a checkpoint that could not be undone, or resolve one.
    #[command(subcommand)]
    Checkpoint(CheckpointSubcommand),
    /// Accept no new connections and exit when the existing ones have ended, as SIGTERM does.
    Drain,
}

#[derive(Subcommand, Debug)]
enum UnfinishedSubcommand {
    /// List the unfinished files that the server has a record of.
    List {
        /// List unfinished files at and below PATH, including those without a record.
        path: Option<OsString>,
    },
    /// Declare the file at PATH complete. If the file does not exist, delete its record.
    Clear {
        /// Logical path, as printed by `list`.
        path: OsString,
        /// Clear the file even if it was changed within the hold time. Use this only if no other
        /// server is writing it.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Subcommand, Debug)]
enum CheckpointSubcommand {
    /// List blocked files.
    List,
    /// Undo the changes in the current file at PATH, and serve it again. Without --force, this
    /// requires proof that it is the file of the checkpoint; otherwise only print the planned
    /// changes.
    Apply {
        /// Logical path, as printed by `list`.
        path: OsString,
        /// Undo the changes even without proof that it is the right file.
        #[arg(long)]
        force: bool,
    },
    /// Serve the file at PATH as it is, and set the checkpoint aside.
    Discard {
        /// Logical path, as printed by `list`.
        path: OsString,
    },
}

impl AdminCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if matches!(self.command, AdminSubcommand::List) {
            list(self.json);
            return Ok(ExitCode::SUCCESS);
        }
        let socket = self.which.socket()?;
        let is_status = matches!(self.command, AdminSubcommand::Status);
        let request = match self.command {
            AdminSubcommand::Status | AdminSubcommand::List => AdminRequest::Status {},
            AdminSubcommand::LogLevel { levels } => AdminRequest::LogLevel { levels },
            AdminSubcommand::Reload => AdminRequest::Reload {},
            AdminSubcommand::Drain => AdminRequest::Drain {},
            AdminSubcommand::Unfinished(UnfinishedSubcommand::List { path }) => {
                AdminRequest::Unfinished { below: path.as_deref().map(escaped) }
            }
            AdminSubcommand::Unfinished(UnfinishedSubcommand::Clear { path, force }) => {
                AdminRequest::ClearUnfinished { path: escaped(&path), force }
            }
            AdminSubcommand::Checkpoint(CheckpointSubcommand::List) => AdminRequest::Checkpoints {},
            AdminSubcommand::Checkpoint(CheckpointSubcommand::Apply { path, force }) => {
                AdminRequest::ResolveCheckpoint { path: escaped(&path), undo: true, force }
            }
            AdminSubcommand::Checkpoint(CheckpointSubcommand::Discard { path }) => {
                AdminRequest::ResolveCheckpoint { path: escaped(&path), undo: false, force: false }
            }
        };
        let answer = ask(&socket, &request)?;
        if self.json {
            out().json(&answer);
        } else if is_status {
            out().lines(status::topics(&serde_json::from_value(answer)?));
        } else {
            out().lines(files(&answer).unwrap_or_else(|| table(&answer)));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Converts a path as typed to the form that admin requests use. Names are typed as lists print
/// them, or with their own bytes.
pub(crate) fn escaped(path: &OsStr) -> String {
    shown(path.as_encoded_bytes()).to_string()
}

impl ServerSelector {
    /// Returns the admin socket of the selected server.
    pub(crate) fn socket(&self) -> anyhow::Result<PathBuf> {
        let directory = self.admin_path.as_ref().map(|path| match self.instance.as_deref() {
            Some(name) if name != config::ANONYMOUS => path.join(name),
            _ => path.clone(),
        });
        let servers = live_servers(directory.as_deref());
        match (servers.as_slice(), &directory) {
            ([one], _) => Ok(one.socket.clone()),
            ([], Some(directory)) => bail!(match directory.read_dir() {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => format!(
                    "the admin directory {} is not readable for this user: only the user of the server, or root, can query it",
                    directory.display()
                ),
                _ => format!(
                    "no server is running on the admin directory {}{}",
                    directory.display(),
                    hint(directory)
                ),
            }),
            ([], None) => match running_servers().as_slice() {
                [] => bail!("no server of this user runs here; start one: scalla serve DIR, scalla manager"),
                others => bail!("{}", choice(others)),
            },
            (several, _) => bail!("{}", choice(several)),
        }
    }
}

/// Lists the running servers from which one must be selected.
fn choice(servers: &[LiveServer]) -> String {
    let mut text = "name the server with --admin-path; there are:".to_owned();
    for server in servers {
        let directory = shown(server.directory.as_os_str().as_encoded_bytes());
        // Writing to a text cannot fail.
        write!(text, "\n  --admin-path {directory}   ({})", shown(&server.note)).ok();
    }
    text
}

/// Prints the running servers.
fn list(json: bool) {
    let servers: Vec<_> = running_servers().into_iter().map(ListedServer::query).collect();
    if json {
        servers.iter().for_each(|server| out().json(&server.json()));
    } else if servers.is_empty() {
        out().lines("none\n");
    } else {
        out().lines(status::list(&servers));
    }
}

/// Suggests what may have been meant instead of an admin directory without a running server.
fn hint(directory: &Path) -> String {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return ", which does not exist".to_owned(),
        Err(error) => return format!(", which cannot be read: {error}"),
    };
    let below = entries.flatten().map(|entry| entry.path());
    let names = below.filter(|path| !live_servers(Some(path)).is_empty());
    let names: Vec<_> = names
        .filter_map(|path| Some(format!("--instance {}", path.file_name()?.to_string_lossy())))
        .collect();
    if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) }
}

/// Formats one line per file with its state and path. Returns `None` if the answer is not a list of
/// files.
pub(crate) fn files(answer: &serde_json::Value) -> Option<String> {
    let files = answer.get("files")?.as_array()?;
    let field = |file: &serde_json::Value, name: &str| {
        let text = file.get(name).and_then(serde_json::Value::as_str).unwrap_or("-");
        shown(text).to_string()
    };
    let rows: Vec<_> = files.iter().map(|file| (field(file, "state"), field(file, "path"))).collect();
    let width = rows.iter().map(|(state, _)| state.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (state, path) in rows {
        // Writing to a text cannot fail.
        writeln!(text, "{state:width$}  {path}").ok();
    }
    if files.is_empty() {
        text.push_str("none\n");
    }
    if let Some(stopped) = answer.get("stopped").and_then(serde_json::Value::as_str) {
        writeln!(text, "... stopped because {}; name a directory further down", shown(stopped)).ok();
    }
    let unreadable = answer.get("unreadable").and_then(serde_json::Value::as_array);
    for one in unreadable.into_iter().flatten() {
        writeln!(text, "... not looked at: {} ({})", field(one, "path"), field(one, "reason")).ok();
    }
    if let Some(more) = answer.get("more_unreadable").and_then(serde_json::Value::as_u64) {
        writeln!(text, "... not looked at: {more} further directories or files").ok();
    }
    Some(text)
}

/// Formats one line per field, with aligned names. Values may contain text of clients and other
/// servers, so they are escaped.
fn table(answer: &serde_json::Value) -> String {
    let Some(fields) = answer.as_object() else { return String::new() };
    let fields: Vec<_> = fields.iter().filter(|(name, _)| *name != "ok").collect();
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in fields {
        let value = match value {
            serde_json::Value::String(value) => value.clone(),
            serde_json::Value::Null => "-".to_owned(),
            serde_json::Value::Array(items) if items.is_empty() => "-".to_owned(),
            serde_json::Value::Array(items) => items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                .collect::<Vec<_>>()
                .join(", "),
            other => other.to_string(),
        };
        // Writing to a text cannot fail.
        writeln!(text, "{:width$}  {}", name.replace('_', " "), shown(&value)).ok();
    }
    if text.is_empty() { "done\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_a_column_for_people() {
        let answer = serde_json::json!({
            "ok": true, "port": 1094, "exports": ["/a", "/b (read-only)"], "config_file": null, "log_levels": "info",
        });
        let expected =
            "config file  -\nexports      /a, /b (read-only)\nlog levels   info\nport         1094\n";
        assert_eq!(table(&answer), expected);
        assert_eq!(table(&serde_json::json!({ "ok": true })), "done\n");
    }

    #[test]
    fn a_list_that_is_not_complete_says_why() {
        let answer = serde_json::json!({
            "ok": true, "files": [{ "path": "/a", "state": "open (1)" }], "complete": false,
            "stopped": "1000 names were examined",
            "unreadable": [{ "path": "/b\\n", "reason": "Permission denied (os error 13)" }], "more_unreadable": 7,
        });
        let expected = "open (1)  /a\n\
            ... stopped because 1000 names were examined; name a directory further down\n\
            ... not looked at: /b\\n (Permission denied (os error 13))\n\
            ... not looked at: 7 further directories or files\n";
        assert_eq!(files(&answer).unwrap(), expected);
        let empty = serde_json::json!({ "ok": true, "files": [], "complete": true });
        assert_eq!(files(&empty).unwrap(), "none\n");
    }

    #[test]
    fn values_are_escaped() {
        let answer = serde_json::json!({ "name": "a\nport  1\u{1b}[2J\u{85}", "list": ["b\rc\u{202e}"] });
        assert_eq!(table(&answer), "list  b\\rc\\u202e\nname  a\\nport  1\\u001b[2J\\u0085\n");
    }
}
