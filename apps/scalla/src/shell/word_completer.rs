//! Completion of words at the prompt, which keeps their quoting.

use super::parser;
use crate::completion::remote_names::RemoteNames;
use crate::completion::{Completion, CompletionCandidate, CompletionDialect};
use crate::printer::out;
use crate::quoting::{QuotingState, quoted, split};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use std::borrow::Cow;

/// Completes words.
pub(super) struct WordCompleter(Completion);

impl WordCompleter {
    pub(super) fn new(names: RemoteNames) -> Self {
        Self(Completion::new(CompletionDialect::Shell, parser::definition(), names, Vec::new()))
    }
}

impl Completer for WordCompleter {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let line = line.get(..at).unwrap_or(line);
        let mut split = split(line);
        let last = match split.end {
            QuotingState::Comment => return Ok((at, Vec::new())),
            QuotingState::Blank => None,
            // Two quoted names may have only a backslash in common.
            QuotingState::Word | QuotingState::Single | QuotingState::Double | QuotingState::Escape => {
                split.words.pop()
            }
        };
        let (partial, start) = last.map_or((String::new(), at), |word| (word.text, word.start));
        let before: Vec<&str> = split.words.iter().map(|word| word.text.as_str()).collect();
        Ok((start, pairs(self.0.candidates(&before, &partial), split.end)))
    }
}

/// Returns candidates as they are typed. A single complete candidate ends its word. With several
/// candidates, only their common prefix is inserted, so the rest of each is not quoted. Otherwise
/// half of an escape sequence could be in the common prefix.
fn pairs(found: Vec<CompletionCandidate>, end: QuotingState) -> Vec<Pair> {
    let alone = found.len() == 1;
    let width = found.iter().map(|candidate| candidate.display.chars().count()).max().unwrap_or(0);
    let common = common(&found);
    let pair = |candidate: CompletionCandidate| {
        let rest = candidate.word.get(common.len()..).unwrap_or_default();
        let mut replacement = quoted(&common, end) + rest;
        if alone && !candidate.is_partial {
            replacement.push_str(match end {
                QuotingState::Single => "' ",
                QuotingState::Double => "\" ",
                _ => " ",
            });
        }
        let display = match candidate.description.as_str() {
            "" => candidate.display,
            about => format!("{:width$}  {about}", candidate.display),
        };
        Pair { display, replacement }
    };
    found.into_iter().map(pair).collect()
}

/// Returns the common prefix of all candidates.
fn common(found: &[CompletionCandidate]) -> String {
    let mut words = found.iter().map(|candidate| candidate.word.as_str());
    let first = words.next().unwrap_or_default();
    words.fold(first.to_owned(), |common, word| {
        common.chars().zip(word.chars()).take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
    })
}

impl Hinter for WordCompleter {
    type Hint = String;
}

impl Highlighter for WordCompleter {
    /// Shows the host of the prompt in colour.
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        match prompt.split_once(' ') {
            Some((host, path)) if out().has_colours() && !path.is_empty() => {
                Cow::Owned(format!("\x1b[1;32m{host}\x1b[0m {path}"))
            }
            _ => Cow::Borrowed(prompt),
        }
    }
}
impl Validator for WordCompleter {}
impl Helper for WordCompleter {}

#[cfg(test)]
mod tests {
    use super::*;
    use client::{Client, Credentials, Settings, Url};
    use rustyline::history::MemHistory;

    /// Creates a completion whose server is unreachable.
    fn words() -> (tokio::runtime::Runtime, WordCompleter) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let base = Url::parse("root://h//a").ok();
        let context =
            crate::files::Context::new(Client::with(Settings::default(), Credentials::none(), "test"), base);
        let names = RemoteNames::new(runtime.handle().clone(), context);
        (runtime, WordCompleter::new(names))
    }

    #[test]
    fn words_are_completed_in_their_quotation() {
        let (_runtime, words) = words();
        let directory = std::env::temp_dir().join(format!("scalla-complete-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("my data")).unwrap();
        std::fs::write(directory.join("my file"), "").unwrap();
        std::fs::write(directory.join(".hidden"), "").unwrap();
        let at = directory.display().to_string();
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
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
