//! `kinit`, the program of the system that asks the user for a password and gets a ticket.

use std::io::{self, IsTerminal};
use std::process::Command;

/// Variables that the program keeps. Others are not its concern.
const KEPT: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TERM", "KRB5_CONFIG", "KRB5CCNAME", "KRB5_TRACE"];

/// Runs the program for a cache; `None` is the default. Waits for its end.
///
/// # Errors
/// No terminal, or a failure of the program.
pub(super) fn run(cache: Option<&str>, forwardable: bool) -> Result<(), String> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err("kinit is not run without a terminal".to_owned());
    }
    let mut command = command(cache, forwardable, |name| std::env::var(name).ok());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("kinit failed ({status})")),
        Err(error) => Err(format!("kinit cannot be run: {}", base::errno_text(&error))),
    }
}

fn command(cache: Option<&str>, forwardable: bool, variable: impl Fn(&str) -> Option<String>) -> Command {
    let mut command = Command::new("kinit");
    command.env_clear().envs(KEPT.iter().filter_map(|name| Some((name, variable(name)?))));
    if forwardable {
        command.arg("-f");
    }
    if let Some(cache) = cache {
        command.args(["-c", cache]);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_gets_arguments_and_a_clean_environment() {
        let made = command(Some("FILE:/t/a; rm b"), true, |name| Some(format!("of {name}")));
        let arguments: Vec<_> = made.get_args().collect();
        assert_eq!(
            (made.get_program(), &arguments[..]),
            ("kinit".as_ref(), &["-f", "-c", "FILE:/t/a; rm b"].map(std::ffi::OsStr::new)[..])
        );
        let names: Vec<_> = made.get_envs().map(|(name, _)| name.to_str().unwrap()).collect();
        assert!(names.len() == KEPT.len() && names.iter().all(|name| KEPT.contains(name)), "{names:?}");
        assert_eq!(command(None, false, |_| None).get_args().count(), 0);
    }
}
