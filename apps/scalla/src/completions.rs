//! `scalla completions SHELL`: what a shell needs to complete our command lines.

use clap_complete::Shell;
use std::process::ExitCode;

/// Print what makes a shell complete the command lines of this program.
///
/// For bash: source <(scalla completions bash), or put the output into
/// ~/.local/share/bash-completion/completions/scalla. For zsh: write it to _scalla in a directory of fpath. For fish: write it to
/// ~/.config/fish/completions/scalla.fish.
#[derive(clap::Args, Debug)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        crate::printer::out().lines(script(self.shell));
        Ok(ExitCode::SUCCESS)
    }
}

fn script(shell: Shell) -> String {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut crate::cli::definition(), "scalla", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_hears_of_every_subcommand() {
        let definition = crate::cli::definition();
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for command in definition.get_subcommands().filter(|command| !command.is_hide_set()) {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
            assert!(script.contains("log-format"), "{shell} knows no options");
        }
    }
}
