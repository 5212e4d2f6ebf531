//! The commands of the prompt: their definition, and the parser of a line.

use crate::copy::{CpCommand, SyncCommand};
use crate::files::FileCommand;
use crate::map::MapCommand;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use std::path::PathBuf;

const HELP: &str = "\
{subcommands}

`help COMMAND` tells more. A path begins at the current directory of the server, for get and put also at that of this machine; \
root://HOST//PATH is anywhere, and for cp and sync file:PATH is on this machine. Blanks in names are quoted as in any shell. \
!COMMAND runs a command of this machine. \
Ctrl-C stops a command, Ctrl-D ends the shell.
";

/// A command line of the shell.
#[derive(Parser, Debug)]
#[command(name = "shell", multicall = true, help_template = HELP, subcommand_help_heading = "Commands")]
pub(super) struct PromptLine {
    #[command(subcommand)]
    command: PromptCommand,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(super) enum PromptCommand {
    #[allow(rustdoc::broken_intra_doc_links, reason = "help text")]
    /// Change to a server: root://HOST[:PORT][//PATH] or HOST[:PORT].
    #[command(visible_alias = "connect")]
    Open {
        /// The server and its initial directory.
        #[arg(value_name = "URL", value_hint = ValueHint::Url)]
        url: String,
    },
    /// Change the directory at the server; - is the previous one.
    Cd {
        /// The directory; the default is /.
        #[arg(value_name = "DIR", value_hint = ValueHint::Url, default_value = "/")]
        path: String,
    },
    /// Print the current directory at the server.
    Pwd,
    /// Change the directory on this machine.
    Lcd {
        /// The directory; the default is the home directory.
        #[arg(value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
    /// Print the current directory on this machine.
    Lpwd,
    /// List a directory of this machine, with the program ls and its options.
    Lls {
        /// Options and paths for ls.
        #[arg(value_hint = ValueHint::AnyPath, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Clear the screen.
    Clear,
    #[command(flatten)]
    Files(FileCommand),
    /// Copy from the server to this machine.
    ///
    /// The last of several arguments is the target on this machine. With a single argument, the
    /// target is the current directory.
    Get(CpCommand),
    /// Copy from this machine to the server.
    ///
    /// The last of several arguments is the target at the server. With a single argument, the
    /// target is the current directory.
    Put(CpCommand),
    /// Copy files at the server, and to and from other servers; file:PATH is on this machine.
    Cp(CpCommand),
    /// Synchronize a directory with another one; file:PATH is on this machine.
    Sync(Box<SyncCommand>),
    Map(MapCommand),
    /// Exit the shell.
    #[command(visible_alias = "quit")]
    Exit {
        /// Exit status; the default is that of the last command.
        status: Option<u8>,
    },
}

/// A parsed line: the command, and its places as written.
pub(super) struct ParsedLine {
    pub(super) command: PromptCommand,
    pub(super) places: Vec<String>,
}

/// Returns the complete definition of the commands.
pub(crate) fn definition() -> clap::Command {
    let mut definition = PromptLine::command();
    definition.build();
    definition
}

/// Returns the names of all commands.
pub(super) fn names() -> Vec<String> {
    let definition = definition();
    let names = |command: &clap::Command| {
        let aliases = command.get_visible_aliases().map(str::to_owned);
        std::iter::once(command.get_name().to_owned()).chain(aliases).collect::<Vec<_>>()
    };
    definition.get_subcommands().flat_map(names).collect()
}

/// Parses the words of a line.
pub(super) fn parse(words: &[String]) -> Result<ParsedLine, clap::Error> {
    let mut definition = PromptLine::command();
    let mut matches = definition.try_get_matches_from_mut(words)?;
    let mut places = Vec::new();
    if let Some((_, of)) = matches.subcommand() {
        for id in ["places", "source", "target"] {
            let raw = of.try_get_raw(id).ok().flatten().into_iter().flatten();
            places.extend(raw.map(|place| place.to_string_lossy().into_owned()));
        }
    }
    let line =
        PromptLine::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut definition))?;
    Ok(ParsedLine { command: line.command, places })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    fn parsed(line: &str) -> Result<ParsedLine, ErrorKind> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words).map_err(|error| error.kind())
    }

    #[test]
    fn lines() {
        definition().debug_assert();
        for line in [
            "open h:1094",
            "connect root://h//a",
            "cd",
            "cd ..",
            "cd -",
            "pwd",
            "lcd",
            "lcd /tmp",
            "lpwd",
            "ls -l",
            "cat a b",
            "get -r a b",
            "put a",
            "cp file:a b",
            "sync a file:b --delete",
            "map",
            "map h --versions",
            "exit",
            "exit 3",
            "quit",
            "lls -la x",
            "clear",
        ] {
            assert!(parsed(line).is_ok(), "{line}: {:?}", parsed(line).err());
        }
        for (line, kind) in [
            ("dance", ErrorKind::InvalidSubcommand),
            ("open", ErrorKind::MissingRequiredArgument),
            ("cd a b", ErrorKind::UnknownArgument),
            ("get", ErrorKind::MissingRequiredArgument),
            ("serve /", ErrorKind::InvalidSubcommand),
            ("help", ErrorKind::DisplayHelp),
            ("help get", ErrorKind::DisplayHelp),
            ("get --help", ErrorKind::DisplayHelp),
        ] {
            assert_eq!(parsed(line).err(), Some(kind), "{line}");
        }
    }

    #[test]
    fn places_are_known_as_they_were_written() {
        let places = |line: &str| parsed(line).map(|parsed| parsed.places);
        assert_eq!(places("get -r a file:b"), Ok(vec!["a".into(), "file:b".into()]));
        assert_eq!(places("sync -n a file:b"), Ok(vec!["a".into(), "file:b".into()]));
        assert_eq!(places("ls a"), Ok(vec![]));
    }

    #[test]
    fn copies_are_explained_in_the_words_of_the_shell() {
        let about = |name: &str| {
            let definition = definition();
            let command = definition.find_subcommand(name).expect("a command");
            command.get_about().map(ToString::to_string).unwrap_or_default()
        };
        assert!(about("get").starts_with("Copy from the server"), "{}", about("get"));
        assert!(about("put").starts_with("Copy from this machine"), "{}", about("put"));
        assert!(about("cp").contains("file:PATH") && about("sync").contains("file:PATH"));
    }
}
