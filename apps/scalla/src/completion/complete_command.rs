//! `scalla complete`: prints the candidates for a word, for the scripts of `scalla completions`.

use super::remote_names::RemoteNames;
use super::{Completion, CompletionCandidate, CompletionDialect, known_hosts, xrootd_programs};
use crate::environment::{self, ClientRuntime};
use crate::files::Context;
use crate::named_servers;
use crate::printer::out;
use crate::quoting::{QuotingState, quoted, split};
use clap::Command;
use std::path::Path;
use std::process::ExitCode;

/// Maximum number of candidates printed.
const CANDIDATES_MAX: usize = 2_000;
/// Characters at which bash itself begins a new word.
const BREAKS: [char; 2] = [':', '='];

/// Print the candidates for the last word of a command line, for the scripts of `scalla
/// completions`.
#[derive(clap::Args, Debug)]
pub(crate) struct CompleteCommand {
    /// The shell that completes the line.
    shell: CompletingShell,
    /// bash: the line up to the cursor. Other shells: the words up to the cursor; the last
    /// one may be incomplete.
    #[arg(last = true, allow_hyphen_values = true, num_args = 1..)]
    words: Vec<String>,
}

/// Format of the candidates.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum CompletingShell {
    /// Words, quoted for insertion into the line.
    Bash,
    /// Words and descriptions, separated by a tab.
    Zsh,
    /// Same format as zsh.
    Fish,
}

impl CompleteCommand {
    pub(crate) fn run(self, definition: Command) -> anyhow::Result<ExitCode> {
        let (words, end) = match self.shell {
            CompletingShell::Bash => of_line(self.words.first().map_or("", String::as_str)),
            CompletingShell::Zsh | CompletingShell::Fish => (self.words, QuotingState::Word),
        };
        let found = candidates(definition, words.clone())?;
        let partial = words.last().map_or("", String::as_str);
        let alone = found.len() == 1;
        for candidate in found.iter().take(CANDIDATES_MAX) {
            match self.shell {
                CompletingShell::Bash => {
                    if let Some(word) = for_bash(candidate, partial, end, alone) {
                        out().line(word);
                    }
                }
                CompletingShell::Zsh | CompletingShell::Fish => {
                    out().line(format_args!("{}\t{}", candidate.word, candidate.description));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Splits a line into words and returns the quoting state at its end. The last word is the one at
/// the cursor.
fn of_line(line: &str) -> (Vec<String>, QuotingState) {
    let split = split(line);
    let mut words: Vec<String> = split.words.into_iter().map(|word| word.text).collect();
    if matches!(split.end, QuotingState::Blank | QuotingState::Comment) {
        words.push(String::new());
    }
    (words, split.end)
}

/// Returns the candidates for the last word of a command line that begins with the program.
fn candidates(mut definition: Command, words: Vec<String>) -> anyhow::Result<Vec<CompletionCandidate>> {
    let ClientRuntime { runtime, log: _log } = environment::start_runtime(0)?;
    let base = named_servers::default_server().ok().flatten();
    let context = Context::new(environment::client("scalla"), base);
    let names = RemoteNames::new(runtime.handle().clone(), context);
    let (send, receive) = tokio::sync::oneshot::channel();
    // Replies of servers arrive on this thread, so another thread waits for them.
    std::thread::Builder::new().name("complete".to_owned()).spawn(move || {
        definition.build();
        let completion =
            Completion::new(CompletionDialect::Program, definition, names, known_hosts::recent_hosts());
        send.send(of_program(&completion, &words)).ok();
    })?;
    let found = runtime.block_on(receive).unwrap_or_default();
    runtime.shutdown_background();
    Ok(found)
}

fn of_program(completion: &Completion, words: &[String]) -> Vec<CompletionCandidate> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [program, before @ .., partial] = words.as_slice() else { return Vec::new() };
    match Path::new(program).file_name().and_then(|name| name.to_str()) {
        Some("xrdcp" | "xrdcopy") => xrootd_programs::xrdcp(completion, before, partial),
        Some("xrdfs") => xrootd_programs::xrdfs(completion, before, partial),
        _ => completion.candidates(before, partial),
    }
}

/// Returns the text with which bash replaces the current word. Outside of quotes, bash begins a new
/// word after each colon and equals sign.
fn for_bash(
    candidate: &CompletionCandidate,
    partial: &str,
    end: QuotingState,
    alone: bool,
) -> Option<String> {
    let space = if alone && !candidate.is_partial { " " } else { "" };
    match end {
        // Within quotes, bash closes the word itself.
        QuotingState::Single | QuotingState::Double => {
            let is_plain = quoted(&candidate.word, end).len() == candidate.word.len() + 1;
            is_plain.then(|| candidate.word.clone())
        }
        _ => {
            let from = partial.rfind(BREAKS).map_or(0, |at| at + 1);
            let rest = candidate.word.get(from..)?;
            Some(format!("{}{space}", quoted(rest, QuotingState::Word)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_bash_replace_what_bash_takes_for_the_word() {
        let candidate = |word: &str, open| CompletionCandidate {
            is_partial: open,
            ..CompletionCandidate::new(word.to_owned(), String::new())
        };
        let file = candidate("root://h:1//a b", false);
        assert_eq!(for_bash(&file, "root://h:1//a", QuotingState::Word, true).as_deref(), Some("1//a\\ b "));
        assert_eq!(
            for_bash(&file, "root://h:1//a", QuotingState::Single, true).as_deref(),
            Some("root://h:1//a b")
        );
        assert_eq!(for_bash(&candidate("it's", false), "it", QuotingState::Single, true), None);
        assert_eq!(for_bash(&candidate("ls", false), "l", QuotingState::Word, false).as_deref(), Some("ls"));
        assert_eq!(
            for_bash(&candidate("set/", true), "s", QuotingState::Word, true).as_deref(),
            Some("set/")
        );
        let option = candidate("--checksum=md5", false);
        assert_eq!(for_bash(&option, "--checksum=m", QuotingState::Word, true).as_deref(), Some("md5 "));
    }

    #[test]
    fn a_line_that_ends_with_a_blank_begins_a_new_word() {
        assert_eq!(of_line("scalla ls ").0, ["scalla", "ls", ""]);
        assert_eq!(of_line("scalla ls 'a b").0, ["scalla", "ls", "a b"]);
    }
}
