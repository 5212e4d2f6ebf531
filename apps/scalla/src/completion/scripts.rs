//! `scalla completions SHELL`: prints the script that makes a shell complete our command lines.

use crate::printer::out;
use clap::Command;
use clap_complete::Shell;
use std::process::ExitCode;

/// Print the completion script of a shell for the command lines of this program.
///
/// bash: run source <(scalla completions bash), or write the output to
/// ~/.local/share/bash-completion/completions/scalla. zsh: write it to _scalla in a directory of
/// fpath. fish: write it to ~/.config/fish/completions/scalla.fish. These three shells also
/// complete servers from earlier commands and paths at servers, and the command lines of xrdcp,
/// xrdcopy and xrdfs.
#[derive(clap::Args, Debug)]
pub(crate) struct CompletionsCommand {
    /// The shell.
    shell: Shell,
}

impl CompletionsCommand {
    pub(crate) fn run(self, definition: Command) -> anyhow::Result<ExitCode> {
        out().lines(script(self.shell, definition));
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the script: one that runs `scalla complete`, or for other shells one that only knows the
/// definitions.
fn script(shell: Shell, mut definition: Command) -> String {
    match shell {
        Shell::Bash => include_str!("scalla.bash").to_owned(),
        Shell::Zsh => include_str!("scalla.zsh").to_owned(),
        Shell::Fish => include_str!("scalla.fish").to_owned(),
        _ => {
            let mut bytes = Vec::new();
            clap_complete::generate(shell, &mut definition, "scalla", &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::definition;

    #[test]
    fn scripts_have_every_subcommand_or_ask_for_it() {
        let definition = definition();
        for shell in [Shell::Elvish, Shell::PowerShell] {
            let script = script(shell, definition.clone());
            for command in definition.get_subcommands().filter(|command| !command.is_hide_set()) {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
            assert!(script.contains("log-format"), "{shell} knows no options");
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(script(shell, definition.clone()).contains(&format!("complete {shell} --")), "{shell}");
        }
    }
}
