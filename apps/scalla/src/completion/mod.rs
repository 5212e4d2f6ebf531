//! Completion of command lines: commands, options, their values, hosts, paths at servers and on
//! this machine.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Completion`]: the candidates for a word, from the definition of the command line |
//! | `remote_names` | entries of directories at servers, with a time limit |
//! | `known_hosts` | servers that the user has named before |
//! | `xrootd_programs` | the command lines of `xrdcp` and `xrdfs` |
//! | `complete_command` | `scalla complete`, which the scripts of shells run |
//! | `scripts` | `scalla completions`: the scripts |

mod complete_command;
mod known_hosts;
pub(crate) mod remote_names;
mod scripts;
mod xrootd_programs;

pub(crate) use complete_command::CompleteCommand;
pub(crate) use scripts::CompletionsCommand;

use crate::named_servers;
use clap::{Arg, Command, ValueHint};
use client::digest::Algorithm;
use remote_names::{Name, RemoteNames, locked};
use std::path::Path;

/// The kind of word at the cursor.
#[derive(Clone, PartialEq, Eq, Debug)]
enum WordKind {
    Commands,
    /// An option of a command.
    Options,
    /// One of these values.
    Values(Vec<String>),
    RemotePath,
    RemoteDirectory,
    LocalPath,
    LocalDirectory,
    /// A path on either side.
    EitherPath,
    /// A path of this machine, or a URL.
    PathOrUrl,
    Nothing,
}

/// A candidate for a word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CompletionCandidate {
    /// The whole word.
    pub(crate) word: String,
    /// The part of the word that a list shows.
    pub(crate) display: String,
    /// The description, or empty.
    pub(crate) description: String,
    /// Set if the word is incomplete, such as a directory.
    pub(crate) is_partial: bool,
}

impl CompletionCandidate {
    fn new(word: String, about: String) -> Self {
        Self { display: word.clone(), word, description: about, is_partial: false }
    }
}

/// The dialect of the completed words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompletionDialect {
    /// Lines of `scalla shell`: paths are relative to the current directory of the server.
    Shell,
    /// Command lines of `scalla`: places of copies are on this machine unless they name a server.
    Program,
}

/// Finds candidates for words.
pub(crate) struct Completion {
    scope: CompletionDialect,
    definition: Command,
    names: RemoteNames,
    /// Servers that the user named before, as `HOST[:PORT]`.
    hosts: Vec<String>,
}

impl Completion {
    /// Creates a completion. `definition` must be complete.
    pub(crate) fn new(
        scope: CompletionDialect,
        definition: Command,
        names: RemoteNames,
        hosts: Vec<String>,
    ) -> Self {
        Self { scope, definition, names, hosts }
    }

    /// Returns the candidates for a partial word after the words `before`.
    pub(crate) fn candidates(&self, before: &[&str], partial: &str) -> Vec<CompletionCandidate> {
        if let Some((option, value)) = partial.split_once('=').filter(|(option, _)| option.starts_with("--"))
        {
            let Some((command, _)) = self.command(before) else { return Vec::new() };
            let name = option.trim_start_matches('-');
            let Some(argument) = option_with_value(command, |argument| argument.get_long() == Some(name))
            else {
                return Vec::new();
            };
            let mut found = self.of_kind(&of_argument(argument), None, value);
            for candidate in &mut found {
                candidate.word = format!("{option}={}", candidate.word);
            }
            return found;
        }
        let command = self.command(before).map(|(command, _)| command);
        self.of_kind(&self.kind(before, partial), command, partial)
    }

    /// Returns the command of the words, and the words after its name.
    fn command<'w, 'b>(&self, before: &'b [&'w str]) -> Option<(&Command, &'b [&'w str])> {
        let (mut command, mut rest) = (&self.definition, before);
        while command.has_subcommands() {
            let Some(at) = CursorPosition::first_positional(command, rest) else { break };
            command = command.find_subcommand(rest.get(at)?)?;
            rest = rest.get(at + 1..)?;
        }
        Some((command, rest))
    }

    /// Returns the kind of word that may follow these words.
    fn kind(&self, before: &[&str], partial: &str) -> WordKind {
        if before.first() == Some(&"help") {
            return WordKind::Commands;
        }
        let Some((command, rest)) = self.command(before) else { return WordKind::Nothing };
        let place = CursorPosition::after(command, rest);
        match place.awaiting {
            Some(option) => return of_argument(option),
            None if partial.starts_with('-') && !place.only_positionals => return WordKind::Options,
            None if command.has_subcommands() => return WordKind::Commands,
            None => {}
        }
        match (self.scope, command.get_name()) {
            (CompletionDialect::Shell, "get") if place.positionals == 0 => WordKind::RemotePath,
            (CompletionDialect::Shell, "put") if place.positionals == 0 => WordKind::LocalPath,
            (CompletionDialect::Shell, "get" | "put") => WordKind::EitherPath,
            (CompletionDialect::Shell, "cp" | "sync") if partial.starts_with("file:") => WordKind::LocalPath,
            (CompletionDialect::Shell, "cp" | "sync") => WordKind::RemotePath,
            (CompletionDialect::Shell, "cd") => WordKind::RemoteDirectory,
            (CompletionDialect::Program, "cp" | "sync") => WordKind::PathOrUrl,
            _ => {
                let all: Vec<&Arg> = command.get_positionals().collect();
                all.get(place.positionals)
                    .or(all.last())
                    .map_or(WordKind::Nothing, |argument| of_argument(argument))
            }
        }
    }

    /// Returns the candidates of a kind.
    fn of_kind(&self, kind: &WordKind, command: Option<&Command>, partial: &str) -> Vec<CompletionCandidate> {
        let fitting = |mut all: Vec<CompletionCandidate>| {
            all.retain(|candidate| candidate.word.starts_with(partial));
            all
        };
        match kind {
            WordKind::Nothing => Vec::new(),
            WordKind::Commands => fitting(commands(command.unwrap_or(&self.definition))),
            WordKind::Options => fitting(command.map_or_else(Vec::new, options)),
            WordKind::Values(values) => fitting(
                values.iter().map(|value| CompletionCandidate::new(value.clone(), String::new())).collect(),
            ),
            WordKind::RemotePath => self.remote_places(partial),
            WordKind::RemoteDirectory => self.remote_paths(partial, true),
            WordKind::LocalPath => local_paths(partial, false),
            WordKind::LocalDirectory => local_paths(partial, true),
            WordKind::EitherPath => {
                let mut all = local_paths(partial, false);
                all.extend(self.remote_paths(partial, false));
                all
            }
            WordKind::PathOrUrl => self.copy_places(partial),
        }
    }

    /// Completes places at servers: first hosts, then paths.
    pub(crate) fn remote_places(&self, partial: &str) -> Vec<CompletionCandidate> {
        let mut all = self.remote_paths(partial, false);
        all.extend(self.servers(partial));
        all
    }

    /// Completes places of copies.
    pub(crate) fn copy_places(&self, partial: &str) -> Vec<CompletionCandidate> {
        let is_remote = partial.contains("://") || named_servers::resolve_named(partial).is_some();
        if is_remote {
            return self.remote_places(partial);
        }
        let mut all = local_paths(partial, false);
        all.extend(self.servers(partial));
        all
    }

    /// Completes servers as the beginning of a URL: those named before, and those with a short
    /// name.
    fn servers(&self, partial: &str) -> Vec<CompletionCandidate> {
        if partial.is_empty() && self.scope == CompletionDialect::Shell {
            return Vec::new();
        }
        let known = self.hosts.iter().map(|host| CompletionCandidate {
            is_partial: true,
            ..CompletionCandidate::new(format!("root://{host}//"), String::new())
        });
        let named = named_servers::all().map(|(name, url)| CompletionCandidate {
            is_partial: true,
            ..CompletionCandidate::new(format!("{name}:"), url.to_string())
        });
        known
            .chain(named)
            .filter(|candidate| candidate.word.starts_with(partial) && candidate.word != partial)
            .collect()
    }

    /// Completes paths at the server.
    fn remote_paths(&self, partial: &str, directories: bool) -> Vec<CompletionCandidate> {
        // The host of a URL is not completed.
        if partial.split_once("://").is_some_and(|(_, rest)| !rest.contains('/')) {
            return Vec::new();
        }
        let (directory, name) = match cut(partial) {
            ("", _) if named_servers::resolve_named(partial).is_some() => {
                partial.split_at(partial.find(':').map_or(0, |colon| colon + 1))
            }
            cut => cut,
        };
        // The path of a URL begins with two slashes.
        let is_host =
            directory.split_once("://").is_some_and(|(_, rest)| rest.find('/') == Some(rest.len() - 1));
        let directory = if is_host { format!("{directory}/") } else { directory.to_owned() };
        let context = locked(&self.names.context).clone();
        let Ok(url) = context.url(if directory.is_empty() { "." } else { &directory }) else {
            return Vec::new();
        };
        matching_names(&self.names.of(&url), &directory, name, directories)
    }
}

/// Returns the subcommands of a command.
fn commands(of: &Command) -> Vec<CompletionCandidate> {
    let visible = of.get_subcommands().filter(|command| !command.is_hide_set());
    let candidates = |command: &Command| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let names = std::iter::once(command.get_name()).chain(command.get_visible_aliases());
        names.map(|name| CompletionCandidate::new(name.to_owned(), about.clone())).collect::<Vec<_>>()
    };
    let mut all: Vec<CompletionCandidate> = visible.flat_map(candidates).collect();
    all.sort_by(|one, other| one.word.cmp(&other.word));
    all
}

/// Splits a path into its directory and the beginning of a name.
fn cut(partial: &str) -> (&str, &str) {
    partial.split_at(partial.rfind('/').map_or(0, |slash| slash + 1))
}

/// Returns the names with a prefix, below a directory as it was typed.
fn matching_names(
    names: &[Name],
    directory: &str,
    beginning: &str,
    directories: bool,
) -> Vec<CompletionCandidate> {
    let fits = |(name, is_directory): &&Name| {
        let hidden = name.starts_with('.') && !beginning.starts_with('.');
        // The editor writes a line to the terminal unescaped.
        let is_plain = base::shown(name).to_string() == *name;
        name.starts_with(beginning) && !hidden && is_plain && (*is_directory || !directories)
    };
    let candidate = |(name, is_directory): &Name| {
        let slash = if *is_directory { "/" } else { "" };
        CompletionCandidate {
            word: format!("{directory}{name}{slash}"),
            display: format!("{name}{slash}"),
            description: String::new(),
            is_partial: *is_directory,
        }
    };
    let mut found: Vec<CompletionCandidate> = names.iter().filter(fits).map(candidate).collect();
    found.sort_by(|one, other| one.word.cmp(&other.word));
    found
}

/// Completes paths on this machine, with or without `file:`.
fn local_paths(partial: &str, directories: bool) -> Vec<CompletionCandidate> {
    let (prefix, path) = match partial.strip_prefix("file:") {
        Some(path) => ("file:", path),
        None => ("", partial),
    };
    let (directory, beginning) = cut(path);
    let entries = std::fs::read_dir(if directory.is_empty() { Path::new(".") } else { Path::new(directory) });
    let name = |entry: std::fs::DirEntry| {
        let is_directory = entry.path().is_dir();
        entry.file_name().into_string().ok().map(|name| (name, is_directory))
    };
    let names: Vec<Name> = entries.into_iter().flatten().flatten().filter_map(name).collect();
    matching_names(&names, &format!("{prefix}{directory}"), beginning, directories)
}

/// Returns all options of a command.
fn options(command: &Command) -> Vec<CompletionCandidate> {
    let mut all = Vec::new();
    for option in command.get_arguments().filter(|option| !option.is_positional() && !option.is_hide_set()) {
        let about = option.get_help().map(ToString::to_string).unwrap_or_default();
        let long = option.get_long().map(|long| format!("--{long}"));
        let short = option.get_short().map(|short| format!("-{short}"));
        all.extend(long.into_iter().chain(short).map(|word| CompletionCandidate::new(word, about.clone())));
    }
    all.sort_by(|one, other| one.word.cmp(&other.word));
    all
}

fn of_argument(argument: &Arg) -> WordKind {
    let values: Vec<String> =
        argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !values.is_empty() {
        return WordKind::Values(values);
    }
    if argument
        .get_value_names()
        .is_some_and(|names| names.first().is_some_and(|name| name.starts_with("TYPE")))
    {
        let types = Algorithm::ALL.iter().map(|algorithm| algorithm.name());
        return WordKind::Values(types.chain(["auto"]).map(str::to_owned).collect());
    }
    match argument.get_value_hint() {
        ValueHint::Url => WordKind::RemotePath,
        ValueHint::DirPath => WordKind::LocalDirectory,
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::ExecutablePath => WordKind::LocalPath,
        _ => WordKind::Nothing,
    }
}

/// The position in the arguments of a command.
struct CursorPosition<'a> {
    /// The option whose value comes next.
    awaiting: Option<&'a Arg>,
    /// Number of words that are not options.
    positionals: usize,
    /// Set after `--`.
    only_positionals: bool,
}

impl<'a> CursorPosition<'a> {
    /// Returns the index of the first word that is neither an option nor the value of one.
    fn first_positional(command: &Command, words: &[&str]) -> Option<usize> {
        (0..words.len())
            .find(|at| CursorPosition::after(command, words.get(..=*at).unwrap_or_default()).positionals > 0)
    }

    fn after(command: &'a Command, words: &[&str]) -> Self {
        let mut place = Self { awaiting: None, positionals: 0, only_positionals: false };
        for word in words {
            if place.awaiting.take().is_some() {
                continue;
            }
            match word.strip_prefix("--") {
                _ if place.only_positionals || !word.starts_with('-') || *word == "-" => {
                    place.positionals += 1
                }
                Some("") => place.only_positionals = true,
                Some(long) => {
                    place.awaiting = option_with_value(command, |option| option.get_long() == Some(long));
                }
                None => place.awaiting = short_awaiting(command, word.trim_start_matches('-')),
            }
        }
        place
    }
}

fn option_with_value(command: &Command, is_it: impl Fn(&Arg) -> bool) -> Option<&Arg> {
    command.get_arguments().find(|option| is_it(option) && option.get_action().takes_values())
}

/// Returns the short option whose value is the next word: the last letter, if no letter before it
/// takes the rest as its value.
fn short_awaiting<'a>(command: &'a Command, letters: &str) -> Option<&'a Arg> {
    let mut letters = letters.chars();
    while let Some(letter) = letters.next() {
        if let Some(option) = option_with_value(command, |option| option.get_short() == Some(letter)) {
            return letters.as_str().is_empty().then_some(option);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli, files, shell};
    use client::{Client, Credentials, Settings, Url};

    /// Creates a completion whose server is unreachable.
    fn words(scope: CompletionDialect) -> (tokio::runtime::Runtime, Completion) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let base = Url::parse("root://h//a").ok();
        let context =
            files::Context::new(Client::with(Settings::default(), Credentials::none(), "test"), base);
        let names = RemoteNames::new(runtime.handle().clone(), context);
        let mut definition = cli::definition();
        definition.build();
        let hosts = vec!["h1.example.org:1094".to_owned(), "h2".to_owned()];
        let completion = match scope {
            CompletionDialect::Shell => Completion::new(scope, shell::definition(), names, Vec::new()),
            CompletionDialect::Program => Completion::new(scope, definition, names, hosts),
        };
        (runtime, completion)
    }

    #[test]
    fn what_may_stand_where() {
        let (_runtime, words) = words(CompletionDialect::Shell);
        let table = [
            (&[][..], "l", WordKind::Commands),
            (&["help"], "", WordKind::Commands),
            (&["ls"], "", WordKind::RemotePath),
            (&["ls"], "-", WordKind::Options),
            (&["ls", "--"], "-", WordKind::RemotePath),
            (&["ls", "-l", "a"], "b", WordKind::RemotePath),
            (&["cd"], "", WordKind::RemoteDirectory),
            (&["lcd"], "", WordKind::LocalDirectory),
            (&["get"], "", WordKind::RemotePath),
            (&["get", "-r", "--parallel", "3"], "", WordKind::RemotePath),
            (&["get", "-rS", "3", "a"], "", WordKind::EitherPath),
            (&["put", "-S3"], "", WordKind::LocalPath),
            (&["cp", "a"], "file:b", WordKind::LocalPath),
            (&["cp", "a"], "b", WordKind::RemotePath),
            (&["cp", "--tpc"], "", WordKind::Values(["first", "only", "delegate"].map(Into::into).into())),
            (&["cp", "--tpc=only"], "", WordKind::RemotePath),
            (&["pwd"], "", WordKind::Nothing),
            (&["dance"], "", WordKind::Nothing),
        ];
        for (before, partial, kind) in table {
            assert_eq!(words.kind(before, partial), kind, "{before:?} {partial}");
        }
    }

    fn found(completion: &Completion, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let (partial, before) = words.split_last().unwrap();
        completion.candidates(before, partial).into_iter().map(|candidate| candidate.word).collect()
    }

    #[test]
    fn command_lines_of_the_program() {
        let (_runtime, completion) = words(CompletionDialect::Program);
        let table: [(&str, &[&str]); 12] = [
            ("ver", &["version"]),
            ("config ch", &["check"]),
            ("admin --admin-path x stat", &["status"]),
            ("config check --js", &["--json"]),
            ("cp --checksum crc", &["crc32", "crc32c"]),
            ("cp --checksum=ad", &["--checksum=adler32"]),
            ("checksum -t au", &["auto"]),
            ("ls root://h1", &["root://h1.example.org:1094//"]),
            ("cp ro", &["root://h1.example.org:1094//", "root://h2//"]),
            ("help vers", &["version"]),
            ("dance ", &[]),
            ("ls --nonsense=x", &[]),
        ];
        for (line, expected) in table {
            assert_eq!(found(&completion, line), expected, "{line}");
        }
        let described = completion.candidates(&["cp"], "--forc");
        assert_eq!(
            described.first().map(|candidate| candidate.description.as_str()),
            Some("Overwrite existing files")
        );
    }
}
