//! `setenv` of the configuration, for child processes and libraries of the server.
//!
//! The program is executed again in the same process, with the new environment and the same name. A
//! change of the environment is not safe while other threads run.

use super::user::User;
use config::{EnvironmentChange, Position};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Returns the changes of the environment for a command that reads files as a server of a user does: the
/// home directory of the user, which service managers set, and those of the configuration.
#[must_use]
pub fn environment_of_server(changes: &[EnvironmentChange], user: Option<&User>) -> Vec<EnvironmentChange> {
    let home = user.and_then(|user| user.home().to_str());
    let home = home.map(|home| EnvironmentChange {
        name: "HOME".to_owned(),
        value: home.to_owned(),
        position: Position { file: "--user".into(), line: 0, column: 0 },
    });
    home.into_iter().chain(changes.iter().cloned()).collect()
}

/// Returns immediately if the environment is as configured already; otherwise does not return
/// unless it fails. Must be called before any file is opened that another program must not inherit.
///
/// # Errors
/// The program cannot be executed again.
pub fn apply_environment(changes: &[EnvironmentChange]) -> io::Result<()> {
    // The last change of a name applies.
    let last = |name: &str| changes.iter().rev().find(|change| change.name == name);
    let missing: Vec<_> = changes
        .iter()
        .filter_map(|change| last(&change.name))
        .filter(|change| std::env::var_os(&change.name).as_deref() != Some(change.value.as_ref()))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut arguments = std::env::args_os();
    let mut program = Command::new(std::env::current_exe()?);
    if let Some(name) = arguments.next() {
        program.arg0(name);
    }
    program.args(arguments).envs(missing.iter().map(|change| (&change.name, &change.value)));
    Err(program.exec())
}
