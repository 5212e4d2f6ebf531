//! `setenv` of the configuration: for the programs the server starts and the libraries it opens.
//!
//! Changing the environment of a running process is not safe beside other threads, so the program starts anew in the same
//! process, with the new environment and under its old name.

use config::EnvironmentChange;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Returns at once if the environment is already as it should be; otherwise does not return unless it fails. To be called
/// before anything is opened that another program must not inherit.
///
/// # Errors
/// When the program cannot be started anew.
pub fn apply_environment(changes: &[EnvironmentChange]) -> io::Result<()> {
    // The last one of a name counts.
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
