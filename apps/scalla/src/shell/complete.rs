//! Completion of what is typed: commands, options, their values, paths at the server and on this machine.

use super::names::{Name, Names, locked};
use super::words::{End, quoted, split};
use clap::{Arg, Command, ValueHint};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use std::path::Path;

/// What may stand where the cursor is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    Commands,
    /// Options of a command.
    Options,
    /// One of these.
    Values(Vec<String>),
    There,
    FoldersThere,
    Here,
    FoldersHere,
    /// A path on either side.
    Either,
    Nothing,
}

/// A way to go on: the word, and whether more of it is to come.
struct Candidate {
    word: String,
    shown: String,
    open: bool,
}

/// Completes words.
pub(super) struct Words {
    definition: Command,
    names: Names,
}

impl Words {
    pub(super) fn new(names: Names) -> Self {
        Self { definition: super::line::definition(), names }
    }

    /// What may stand behind these words.
    fn kind(&self, before: &[&str], partial: &str) -> Kind {
        let Some((first, rest)) = before.split_first() else { return Kind::Commands };
        if *first == "help" {
            return Kind::Commands;
        }
        let Some(command) = self.definition.find_subcommand(first) else { return Kind::Nothing };
        let place = Place::behind(command, rest);
        match place.awaiting {
            Some(option) => return of_argument(option),
            None if partial.starts_with('-') && !place.only_positionals => return Kind::Options,
            None => {}
        }
        match command.get_name() {
            "get" if place.positionals == 0 => Kind::There,
            "put" if place.positionals == 0 => Kind::Here,
            "get" | "put" => Kind::Either,
            "cp" | "sync" if partial.starts_with("file:") => Kind::Here,
            "cp" | "sync" => Kind::There,
            "cd" => Kind::FoldersThere,
            _ => {
                let all: Vec<&Arg> = command.get_positionals().collect();
                all.get(place.positionals)
                    .or(all.last())
                    .map_or(Kind::Nothing, |argument| of_argument(argument))
            }
        }
    }

    fn candidates(&self, kind: &Kind, command: Option<&str>, partial: &str) -> Vec<Candidate> {
        let plain = |words: Vec<String>| {
            let fit = words.into_iter().filter(|word| word.starts_with(partial));
            fit.map(|word| Candidate { shown: word.clone(), word, open: false }).collect()
        };
        match kind {
            Kind::Nothing => Vec::new(),
            Kind::Commands => plain(self.commands()),
            Kind::Options => plain(
                command.and_then(|name| self.definition.find_subcommand(name)).map_or_else(Vec::new, options),
            ),
            Kind::Values(values) => plain(values.clone()),
            Kind::There => self.there(partial, false),
            Kind::FoldersThere => self.there(partial, true),
            Kind::Here => here(partial, false),
            Kind::FoldersHere => here(partial, true),
            Kind::Either => {
                let mut all = here(partial, false);
                all.extend(self.there(partial, false));
                all
            }
        }
    }

    fn commands(&self) -> Vec<String> {
        let visible = self.definition.get_subcommands().filter(|command| !command.is_hide_set());
        let names = |command: &Command| {
            let aliases = command.get_visible_aliases().map(str::to_owned);
            std::iter::once(command.get_name().to_owned()).chain(aliases).collect::<Vec<_>>()
        };
        let mut all: Vec<String> = visible.flat_map(names).collect();
        all.sort();
        all
    }

    /// Paths at the server.
    fn there(&self, partial: &str, folders: bool) -> Vec<Candidate> {
        // Of a URL the host is not completed.
        if partial.split_once("://").is_some_and(|(_, rest)| !rest.contains('/')) {
            return Vec::new();
        }
        let (folder, name) = cut(partial);
        let context = locked(&self.names.context).clone();
        let Ok(url) = context.url(if folder.is_empty() { "." } else { folder }) else { return Vec::new() };
        fitting(&self.names.of(&url), folder, name, folders)
    }
}

/// The folder and the beginning of a name.
fn cut(partial: &str) -> (&str, &str) {
    partial.split_at(partial.rfind('/').map_or(0, |slash| slash + 1))
}

/// Those names that begin so, below a folder as it was typed.
fn fitting(names: &[Name], folder: &str, beginning: &str, folders: bool) -> Vec<Candidate> {
    let fits = |(name, is_folder): &&Name| {
        let hidden = name.starts_with('.') && !beginning.starts_with('.');
        // The editor writes a line to the terminal as it is.
        let is_plain = base::shown(name).to_string() == *name;
        name.starts_with(beginning) && !hidden && is_plain && (*is_folder || !folders)
    };
    let candidate = |(name, is_folder): &Name| {
        let slash = if *is_folder { "/" } else { "" };
        Candidate {
            word: format!("{folder}{name}{slash}"),
            shown: format!("{name}{slash}"),
            open: *is_folder,
        }
    };
    let mut found: Vec<Candidate> = names.iter().filter(fits).map(candidate).collect();
    found.sort_by(|one, other| one.word.cmp(&other.word));
    found
}

/// Paths on this machine, which may be written with `file:`.
fn here(partial: &str, folders: bool) -> Vec<Candidate> {
    let (prefix, path) = match partial.strip_prefix("file:") {
        Some(path) => ("file:", path),
        None => ("", partial),
    };
    let (folder, beginning) = cut(path);
    let entries = std::fs::read_dir(if folder.is_empty() { Path::new(".") } else { Path::new(folder) });
    let name = |entry: std::fs::DirEntry| {
        let is_folder = entry.path().is_dir();
        entry.file_name().into_string().ok().map(|name| (name, is_folder))
    };
    let names: Vec<Name> = entries.into_iter().flatten().flatten().filter_map(name).collect();
    fitting(&names, &format!("{prefix}{folder}"), beginning, folders)
}

/// All options of a command.
fn options(command: &Command) -> Vec<String> {
    let mut all = Vec::new();
    for option in command.get_arguments().filter(|option| !option.is_positional() && !option.is_hide_set()) {
        all.extend(option.get_long().map(|long| format!("--{long}")));
        all.extend(option.get_short().map(|short| format!("-{short}")));
    }
    all.sort();
    all
}

fn of_argument(argument: &Arg) -> Kind {
    let values: Vec<String> =
        argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !values.is_empty() {
        return Kind::Values(values);
    }
    match argument.get_value_hint() {
        ValueHint::Url => Kind::There,
        ValueHint::DirPath => Kind::FoldersHere,
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::ExecutablePath => Kind::Here,
        _ => Kind::Nothing,
    }
}

/// Where in the arguments of a command we are.
struct Place<'a> {
    /// The option whose value comes next.
    awaiting: Option<&'a Arg>,
    /// How many words were no options.
    positionals: usize,
    /// `--` was there.
    only_positionals: bool,
}

impl<'a> Place<'a> {
    fn behind(command: &'a Command, words: &[&str]) -> Self {
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
                    place.awaiting = valued(command, |option| option.get_long() == Some(long));
                }
                None => place.awaiting = short_awaiting(command, word.trim_start_matches('-')),
            }
        }
        place
    }
}

fn valued(command: &Command, is_it: impl Fn(&Arg) -> bool) -> Option<&Arg> {
    command.get_arguments().find(|option| is_it(option) && option.get_action().takes_values())
}

/// The option among letters whose value comes in the next word: the last of them, if none before it takes the rest.
fn short_awaiting<'a>(command: &'a Command, letters: &str) -> Option<&'a Arg> {
    let mut letters = letters.chars();
    while let Some(letter) = letters.next() {
        if let Some(option) = valued(command, |option| option.get_short() == Some(letter)) {
            return letters.as_str().is_empty().then_some(option);
        }
    }
    None
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let line = line.get(..at).unwrap_or(line);
        let mut split = split(line);
        let last = match split.end {
            End::Comment => return Ok((at, Vec::new())),
            End::Blank => None,
            // A backslash alone is what two quoted names have in common.
            End::Word | End::Single | End::Double | End::Escape => split.words.pop(),
        };
        let (partial, start) = last.map_or((String::new(), at), |word| (word.text, word.start));
        let before: Vec<&str> = split.words.iter().map(|word| word.text.as_str()).collect();
        let kind = self.kind(&before, &partial);
        let found = self.candidates(&kind, before.first().copied(), &partial);
        Ok((start, pairs(found, split.end)))
    }
}

/// Candidates as they are typed. A single one that is complete ends its word; of several only what they have in common is
/// typed, so the rest of each is left as it is, lest they have half of an escape in common.
fn pairs(found: Vec<Candidate>, end: End) -> Vec<Pair> {
    let alone = found.len() == 1;
    let common = common(&found);
    let pair = |candidate: Candidate| {
        let rest = candidate.word.get(common.len()..).unwrap_or_default();
        let mut replacement = quoted(&common, end) + rest;
        if alone && !candidate.open {
            replacement.push_str(match end {
                End::Single => "' ",
                End::Double => "\" ",
                _ => " ",
            });
        }
        Pair { display: candidate.shown, replacement }
    };
    found.into_iter().map(pair).collect()
}

/// What all candidates begin with.
fn common(found: &[Candidate]) -> String {
    let mut words = found.iter().map(|candidate| candidate.word.as_str());
    let first = words.next().unwrap_or_default();
    words.fold(first.to_owned(), |common, word| {
        common.chars().zip(word.chars()).take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
    })
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}
impl Validator for Words {}
impl Helper for Words {}

#[cfg(test)]
mod tests {
    use super::*;
    use client::{Client, Settings, Url};
    use rustyline::history::MemHistory;

    /// Completion at a server that nobody reaches.
    fn words() -> (tokio::runtime::Runtime, Words) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let base = Url::parse("root://h//a").ok();
        let context = crate::files::Context::new(Client::with(Settings::default(), "test"), base);
        let names = Names::new(runtime.handle().clone(), context);
        (runtime, Words::new(names))
    }

    #[test]
    fn what_may_stand_where() {
        let (_runtime, words) = words();
        let table = [
            (&[][..], "l", Kind::Commands),
            (&["help"], "", Kind::Commands),
            (&["ls"], "", Kind::There),
            (&["ls"], "-", Kind::Options),
            (&["ls", "--"], "-", Kind::There),
            (&["ls", "-l", "a"], "b", Kind::There),
            (&["cd"], "", Kind::FoldersThere),
            (&["lcd"], "", Kind::FoldersHere),
            (&["get"], "", Kind::There),
            (&["get", "-r", "--parallel", "3"], "", Kind::There),
            (&["get", "-rS", "3", "a"], "", Kind::Either),
            (&["put", "-S3"], "", Kind::Here),
            (&["cp", "a"], "file:b", Kind::Here),
            (&["cp", "a"], "b", Kind::There),
            (&["cp", "--tpc"], "", Kind::Values(vec!["first".into(), "only".into()])),
            (&["cp", "--tpc=only"], "", Kind::There),
            (&["cp", "--checksum"], "", Kind::Nothing),
            (&["pwd"], "", Kind::Nothing),
            (&["dance"], "", Kind::Nothing),
        ];
        for (before, partial, kind) in table {
            assert_eq!(words.kind(before, partial), kind, "{before:?} {partial}");
        }
    }

    #[test]
    fn words_are_completed_in_their_quotation() {
        let (_runtime, words) = words();
        let folder = std::env::temp_dir().join(format!("scalla-complete-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("my data")).unwrap();
        std::fs::write(folder.join("my file"), "").unwrap();
        std::fs::write(folder.join(".hidden"), "").unwrap();
        let at = folder.display().to_string();
        let history = MemHistory::new();
        let complete = |line: &str| {
            let (start, pairs) = words.complete(line, line.len(), &Context::new(&history)).unwrap();
            let texts: Vec<String> = pairs.into_iter().map(|pair| pair.replacement).collect();
            (start, texts)
        };
        assert_eq!(complete("lp"), (0, vec!["lpwd ".to_owned()]));
        assert_eq!(
            complete("cp --no-"),
            (3, ["--no-progress", "--no-sync", "--no-verify"].map(str::to_owned).to_vec())
        );
        assert_eq!(complete("cp --tpc o"), (9, vec!["only ".to_owned()]));
        assert_eq!(complete(&format!("put {at}/my\\ f")), (4, vec![format!("{at}/my\\ file ")]));
        assert_eq!(complete(&format!("put '{at}/my f")), (4, vec![format!("'{at}/my file' ")]));
        assert_eq!(complete(&format!("put \"{at}/my d")), (4, vec![format!("\"{at}/my data/")]));
        assert_eq!(complete(&format!("lcd {at}/")), (4, vec![format!("{at}/my\\ data/")]));
        assert_eq!(complete(&format!("put {at}/")).1.len(), 2);
        assert_eq!(complete(&format!("cp file:{at}/.h")), (3, vec![format!("file:{at}/.hidden ")]));
        assert_eq!(
            complete(&format!("put {at}/m")).1,
            [format!("{at}/my\\ data/"), format!("{at}/my\\ file")]
        );
        assert_eq!(complete("ls root://host"), (3, vec![]));
        assert_eq!(complete("ls # x"), (6, vec![]));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
