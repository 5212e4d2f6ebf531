//! The dialogue: commands line by line, from a terminal or a pipe.

use super::session::XrdfsSession;
use crate::editor::{self, EditorInput, LineEditor, LineHistory};
use crate::printer::{err, out};
use crate::xrootd_compat::XrdClStatus;
use std::io::BufRead;
use std::process::ExitCode;

/// Runs a command, whose name is the first word.
type RunCommand = fn(&mut XrdfsSession, &[&str]) -> Result<(), XrdClStatus>;

/// Runs commands until the end of the input.
pub(super) fn run(shell: &mut XrdfsSession, run_command: RunCommand) -> ExitCode {
    // At a terminal, lines are edited and kept in a history. Other input is echoed, so that the
    // output reads like a dialogue.
    let editor = editor::is_interactive()
        .then(|| LineEditor::start((), LineHistory::of_xrdfs(), belongs_in_history).ok())
        .flatten();
    loop {
        let cwd = shell.cwd.as_deref().unwrap_or("/");
        let prompt = format!("[{}] {cwd} > ", shell.fs.url().authority());
        let Some(line) = read(shell, editor.as_ref(), prompt) else { break };
        let words = split(&line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if line.is_empty() {
            continue;
        }
        if ends(&words) {
            break;
        }
        if let Err(status) = run_command(shell, &words) {
            err().lines(format_args!("{status}\n"));
        }
    }
    out().literal("Goodbye.\n\n");
    ExitCode::SUCCESS
}

fn ends(words: &[&str]) -> bool {
    matches!(words.first(), Some(&("exit" | "quit")))
}

/// Reports whether a line belongs in the history.
fn belongs_in_history(line: &str) -> bool {
    let words = split(line);
    !words.is_empty() && !ends(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns a line, with the following lines while a quotation is open. Returns `None` at the end.
fn read(shell: &XrdfsSession, editor: Option<&LineEditor>, prompt: String) -> Option<String> {
    let mut line = read_one(shell, editor, prompt)?;
    while is_open(&line) {
        line.push('\n');
        line.push_str(&read_one(shell, editor, "> ".to_owned())?);
    }
    Some(line)
}

fn read_one(shell: &XrdfsSession, editor: Option<&LineEditor>, prompt: String) -> Option<String> {
    let Some(editor) = editor else {
        return shell.runtime.run_blocking(move || read_plain(&prompt))?;
    };
    match shell.runtime.wait(editor.read(prompt)) {
        EditorInput::Line(line) => Some(line),
        EditorInput::End => None,
        // The real program does not handle interrupts, so it is terminated by them.
        EditorInput::Interrupted => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT).ok();
            None
        }
    }
}

fn read_plain(prompt: &str) -> Option<String> {
    let shown = !std::io::IsTerminal::is_terminal(&std::io::stdin());
    out().prompt(prompt);
    let mut bytes = Vec::new();
    if std::io::stdin().lock().read_until(b'\n', &mut bytes).ok()? == 0 {
        return None;
    }
    let line = String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned();
    if shown {
        out().line(format_args!("{line}"));
    }
    Some(line)
}

/// Reports whether a quotation in the line is open.
fn is_open(line: &str) -> bool {
    line.chars().fold(None, quoted).is_some()
}

/// Returns the quotation mark that is open after a letter.
const fn quoted(open: Option<char>, letter: char) -> Option<char> {
    match (open, letter) {
        (None, '"' | '\'') => Some(letter),
        (Some('"'), '"') | (Some('\''), '\'') => None,
        (open, _) => open,
    }
}

/// Splits a line into words. Blanks within quotes are part of a word.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut open = None;
    for letter in line.chars() {
        let before = open;
        open = quoted(open, letter);
        if before != open {
            word.get_or_insert_default();
        } else if letter == ' ' && open.is_none() {
            words.extend(word.take());
        } else {
            word.get_or_insert_default().push(letter);
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_remembered() {
        for (line, expected) in
            [("ls /", true), ("", false), ("  ", false), ("exit", false), (" quit now", false)]
        {
            assert_eq!(belongs_in_history(line), expected, "{line}");
        }
    }

    #[test]
    fn words_and_quotations() {
        let table: [(&str, &[&str]); 6] = [
            ("", &[]),
            ("  ls   -l ", &["ls", "-l"]),
            ("ls \"x y\"", &["ls", "x y"]),
            ("ls '/d/\"dir'\"/su'b\"", &["ls", "/d/\"dir/su'b"]),
            ("stat with\\ blank", &["stat", "with\\", "blank"]),
            ("rm ''", &["rm", ""]),
        ];
        for (line, expected) in table {
            assert_eq!(split(line), expected, "{line}");
        }
        assert!(is_open("ls \"/a") && is_open("'\"") && !is_open("'\"'"));
    }
}
