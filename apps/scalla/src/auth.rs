//! `scalla auth`: explains decisions of the authorization rules of a configuration, shows
//! identities, and makes the files of a protected server.

mod init;

use crate::evaluation::load_here;
use crate::exit_status;
use crate::files::{FileCommand, WhoamiCommand};
use crate::local_path::absolute;
use crate::printer::{err, out};
use crate::usage_error::UsageError;
use anyhow::Context;
use auth::access::{
    AccessDatabase, AccessExplanation, AccessOperation, AuthdbCheck, DecidingPair, Principal, RecordKind,
};
use base::LogicalPath;
use clap::Subcommand;
use config::{AuthorizationConfig, Loaded};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Authentication and authorization: protect a server, explain decisions, show identities.
#[derive(clap::Args, Debug)]
pub(crate) struct AuthCommand {
    #[command(subcommand)]
    command: AuthSubcommand,
}

#[derive(Subcommand, Debug)]
enum AuthSubcommand {
    Init(init::InitCommand),
    Check(CheckAccessOptions),
    Whoami(WhoamiCommand),
}

/// Decide whether a user may perform an operation, and print the rules that decide.
///
/// The exit status is 0 if the operation is allowed and 1 if it is denied.
#[derive(clap::Args, Debug)]
struct CheckAccessOptions {
    /// Name of the user; `*` for a client without a name.
    user: String,
    /// Path, as clients see it.
    path: String,
    /// Operation: any, chmod, chown, create, delete, insert, lock, mkdir, read, readdir, rename,
    /// stat, update, stage or poll.
    operation: String,
    /// Configuration file with the directives `acc.`.
    #[arg(long, value_name = "FILE", required_unless_present = "authdb")]
    config: Option<PathBuf>,
    /// Rule file to use instead of that of the configuration.
    #[arg(long, value_name = "FILE")]
    authdb: Option<PathBuf>,
    /// Instance name that `if named` in the configuration compares with.
    #[arg(long, value_name = "NAME", requires = "config")]
    instance: Option<String>,
    /// Host name of the client.
    #[arg(long, value_name = "NAME", default_value = "")]
    host: String,
    /// Groups of the client, separated by blanks.
    #[arg(long, value_name = "GROUPS", default_value = "")]
    groups: String,
    /// Virtual organizations of the client, separated by blanks.
    #[arg(long, value_name = "NAMES", default_value = "")]
    vo: String,
    /// Roles of the client, separated by blanks.
    #[arg(long, value_name = "ROLES", default_value = "")]
    roles: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl AuthCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            AuthSubcommand::Init(init) => init.run(),
            AuthSubcommand::Check(check) => check.run(),
            AuthSubcommand::Whoami(whoami) => FileCommand::Whoami(whoami).start(),
        }
    }
}

/// Returns the settings of authorization of a configuration file.
fn settings(file: &Path, instance: Option<String>) -> anyhow::Result<AuthorizationConfig> {
    let Loaded { effective, report } = load_here(&absolute(file)?, instance);
    if !report.is_ok() {
        err().lines(&report);
        anyhow::bail!("the configuration has errors");
    }
    if !*effective.authorization.enabled {
        err().line(format_args!(
            "warning: the configuration does not have ofs.authorize, so a server with it allows everything"
        ));
    }
    Ok(effective.authorization)
}

impl CheckAccessOptions {
    fn run(self) -> anyhow::Result<ExitCode> {
        let operation = AccessOperation::of_name(&self.operation).ok_or_else(|| {
            let names: Vec<&str> = AccessOperation::ALL.iter().map(|known| known.name()).collect();
            UsageError(format!("no operation '{}'; allowed: {}", self.operation, names.join(" ")))
        })?;
        let path = LogicalPath::parse(self.path.as_bytes())
            .map_err(|_| UsageError(format!("'{}' is not an absolute path without '..'", self.path)))?;
        let mut values = match &self.config {
            Some(file) => settings(file, self.instance.clone())?,
            None => AuthorizationConfig::default(),
        };
        if let Some(file) = &self.authdb {
            values.authdb.value = Some(file.clone());
        }
        let database = AccessDatabase::load(
            &server::authdb_source(&values),
            AuthdbCheck::ForOwner,
            &server::SystemNetgroups,
        )
        .context("the authorization rules cannot be used")?;
        let principal = Principal {
            protocol: "",
            name: (self.user != "*").then_some(self.user.as_str()),
            host: &self.host,
            organizations: &self.vo,
            roles: &self.roles,
            groups: &self.groups,
            ..Principal::default()
        };
        let found = database.explain(&principal, operation, &path);
        if self.json {
            out().json(&as_json(&database, &found));
        } else {
            self.explain(&database, operation, &found);
        }
        Ok(if found.is_allowed { ExitCode::SUCCESS } else { ExitCode::from(exit_status::FAILED) })
    }

    fn explain(&self, database: &AccessDatabase, operation: AccessOperation, found: &AccessExplanation) {
        let verdict = if found.is_allowed { "allowed" } else { "denied" };
        out().line(format_args!("{verdict}: {} {} {}", self.user, operation.name(), self.path));
        if found.is_inconsistent {
            out().line(format_args!(
                "  The numbers of organizations, roles and groups differ, so nothing is granted."
            ));
            return;
        }
        let needs = match operation.needs() {
            None => "which no rule can grant".to_owned(),
            Some(needs) if operation == AccessOperation::Any && needs.is_empty() => {
                "any privilege".to_owned()
            }
            Some(needs) if needs.to_string().is_empty() => "the privilege a".to_owned(),
            Some(needs) => format!("privileges {needs}"),
        };
        let held = if found.privileges.is_empty() { "none".to_owned() } else { found.privileges.to_string() };
        out().line(format_args!("  needs {needs}; has {held}"));
        for pair in &found.pairs {
            let file = database.path().display();
            out().line(format_args!("  {file}:{}: {}", pair.path_at, describe(pair)));
        }
        if found.pairs.is_empty() {
            out().line(format_args!("  no rule in {} applies", database.path().display()));
        }
    }
}

/// Describes a rule: `u bob (line 5) grants rw, denies d`.
fn describe(pair: &DecidingPair) -> String {
    let mut effects = Vec::new();
    if !pair.positive.is_empty() {
        effects.push(format!("grants {}", pair.positive));
    }
    if !pair.negative.is_empty() {
        effects.push(format!("denies {}", pair.negative));
    }
    if effects.is_empty() {
        effects.push("grants nothing: its path ends within a name, or it has no privileges".to_owned());
    }
    let alone = if pair.kind == RecordKind::Exclusive { ", and decides alone" } else { "" };
    let (letter, line) = (pair.kind.letter(), pair.record_at.line);
    format!("{letter} {} (line {line}) {}{alone}", pair.id, effects.join(", "))
}

fn as_json(database: &AccessDatabase, found: &AccessExplanation) -> serde_json::Value {
    let pairs = found.pairs.iter().map(|pair| {
        json!({
            "record": format!("{} {}", pair.kind.letter(), pair.id),
            "record_line": pair.record_at.line,
            "line": pair.path_at.line,
            "column": pair.path_at.column,
            "grants": pair.positive.to_string(),
            "denies": pair.negative.to_string(),
        })
    });
    json!({
        "allowed": found.is_allowed,
        "privileges": found.privileges.to_string(),
        "consistent": !found.is_inconsistent,
        "file": database.path().display().to_string(),
        "rules": pairs.collect::<Vec<_>>(),
    })
}
