//! All output of commands to standard output and standard error.
//!
//! Names, owners, error texts and file contents come from servers and from other users. On a
//! terminal, a control character in them could move the cursor, change colours and titles, or forge
//! lines. Therefore no command writes to these streams directly (`cargo xtask tidy` rejects it). It
//! passes values to a [`Printer`] or collects them in an [`OutputText`], which escape them:
//!
//! * standard output on a terminal: every control character, and every character that changes the
//!   direction of text, is written as an escape sequence (`\n`, `\u001b`, `\xff`);
//! * standard output to a pipe or a file: nothing is escaped, so that scripts get names and
//!   contents byte for byte;
//! * standard error: always escaped, because logs end up on terminals too.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Printer`]: the two streams |
//! | `text` | [`OutputText`]: values with the fixed text around them |
//! | `content` | [`ContentWriter`]: file content, escaped for a terminal |
//! | `buffer` | [`OutputBuffer`], [`OutputWriter`]: buffered output, written by a thread |
//! | `bar` | [`ProgressLine`]: progress on standard error |

mod bar;
mod buffer;
mod content;
mod text;

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

pub(crate) use bar::ProgressLine;
pub(crate) use buffer::{OutputBuffer, OutputError, OutputWriter};
pub(crate) use content::ContentWriter;
pub(crate) use text::{Colour, OutputText};

/// Default width of a terminal that does not report its width.
const WIDTH: usize = 80;

/// Standard output or standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Printer {
    Output,
    Error,
}

/// Returns standard output.
pub(crate) const fn out() -> Printer {
    Printer::Output
}

/// Returns standard error.
pub(crate) const fn err() -> Printer {
    Printer::Error
}

impl Printer {
    /// Reports whether the stream is a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        static OUTPUT: OnceLock<bool> = OnceLock::new();
        static ERROR: OnceLock<bool> = OnceLock::new();
        match self {
            Self::Output => *OUTPUT.get_or_init(|| io::stdout().is_terminal()),
            Self::Error => *ERROR.get_or_init(|| io::stderr().is_terminal()),
        }
    }

    /// Reports whether values are escaped.
    fn escapes(self) -> bool {
        self == Self::Error || self.is_terminal()
    }

    /// Reports whether colours may be used: on a terminal that supports them, unless `NO_COLOR` is
    /// set.
    pub(crate) fn has_colours(self) -> bool {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        self.is_terminal() && !is_dumb && !is_set("NO_COLOR")
    }

    /// Returns an empty text for this stream.
    pub(crate) fn text(self) -> OutputText {
        OutputText::new(self.escapes())
    }

    /// Returns a value as shown on this stream, as part of one line.
    pub(crate) fn shown(self, value: &str) -> Cow<'_, str> {
        self.text().shown(value)
    }

    /// Writes a text. A closed pipe (`scalla ... | head`) is not an error.
    pub(crate) fn put(self, text: &OutputText) {
        self.write(&text.as_bytes());
    }

    /// Writes one line. Line ends in `line` are escaped too.
    pub(crate) fn line(self, line: impl Display) {
        self.put(self.text().add(line).literal("\n"));
    }

    /// Writes an error for people, without the numbers of system errors.
    pub(crate) fn error(self, error: impl Display) {
        let colour = self.has_colours().then_some(Colour::Red);
        let error = error.to_string();
        let error = without_numbers(&error);
        self.put(
            self.text().add_coloured("scalla: error:", colour).literal(" ").add_lines(error).literal("\n"),
        );
    }

    /// Writes text of several lines, including their line ends.
    pub(crate) fn lines(self, lines: impl Display) {
        self.put(self.text().add_lines(lines));
    }

    /// Writes a text without a line end, such as a question or a prompt.
    pub(crate) fn prompt(self, question: impl Display) {
        self.put(self.text().add(question));
    }

    /// Replaces the current line of the terminal.
    pub(crate) fn replace_line(self, line: impl Display) {
        self.put(self.text().literal("\r").add(line));
    }

    /// Writes fixed text without escaping.
    pub(crate) fn literal(self, text: &'static str) {
        self.write(text.as_bytes());
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json(self, value: &serde_json::Value) {
        self.put(&OutputText::of_json(value));
    }

    /// Writes the help, the version or the error of a command line with these words.
    pub(crate) fn command_line(mut error: clap::Error, words: &[OsString]) {
        if !error.use_stderr() {
            return Self::Output.rendered(&error, words);
        }
        // Removes the tip to quote a word that begins with a dash, because such a word is usually a
        // mistyped option.
        if error.kind() == clap::error::ErrorKind::UnknownArgument {
            error.remove(clap::error::ContextKind::Suggested);
        }
        Self::Error.rendered(&error, words);
    }

    fn rendered(self, error: &clap::Error, words: &[OsString]) {
        let printer = self;
        // The error repeats words, whose escape sequences could not be told from its own colours.
        let is_plain = |word: &OsString| !word.as_encoded_bytes().iter().any(|byte| byte.is_ascii_control());
        if printer.has_colours() && words.iter().all(is_plain) {
            let mut text = printer.text();
            printer.put(text.add_coloured_lines(&adapted_error(&error.render().ansi().to_string())));
        } else {
            printer.lines(adapted_error(&error.render().to_string()));
        }
    }

    /// Returns the width of the terminal in columns.
    pub(crate) fn width(self) -> usize {
        let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        set.or_else(|| self.columns()).filter(|width| *width > 0).unwrap_or(WIDTH)
    }

    /// Returns the current width of the terminal and ignores the environment: a redrawn line must fit,
    /// and help is wrapped as by the parser of the command line.
    pub(crate) fn width_now(self) -> usize {
        self.columns().filter(|width| *width > 0).unwrap_or(WIDTH)
    }

    fn columns(self) -> Option<usize> {
        let size = match self {
            Self::Output => rustix::termios::tcgetwinsize(io::stdout()),
            Self::Error => rustix::termios::tcgetwinsize(io::stderr()),
        };
        size.ok().map(|size| usize::from(size.ws_col))
    }

    fn write(self, bytes: &[u8]) {
        self.try_write(bytes).ok();
    }

    fn try_write(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Output => {
                let mut out = io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()
            }
            Self::Error => io::stderr().write_all(bytes),
        }
    }
}

/// Adapts the text of a command line error: adds the common prefix, and describes invalid numbers.
fn adapted_error(text: &str) -> String {
    let text = text.replace("invalid digit found in string", "it is not a whole number");
    match text.find("error:") {
        // Escape sequences of colours may precede it.
        Some(at) if text.get(..at).is_some_and(|before| !before.contains(' ') && !before.contains('\n')) => {
            format!("{}scalla: {}", text.get(..at).unwrap_or_default(), text.get(at..).unwrap_or_default())
        }
        _ => text,
    }
}

/// Removes ` (os error N)` after texts of the system.
pub(crate) fn without_numbers(text: &str) -> Cow<'_, str> {
    const BEGIN: &str = " (os error ";
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        kept.push_str(before);
        rest = match after.split_once(')') {
            Some((number, behind)) if number.parse::<u32>().is_ok() => behind,
            _ => {
                kept.push_str(BEGIN);
                after
            }
        };
    }
    match kept.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(kept + rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_system_are_left_out() {
        let text = "cannot read /x: Permission denied (os error 13); and (os error y) (os error 2)";
        assert_eq!(without_numbers(text), "cannot read /x: Permission denied; and (os error y)");
        assert_eq!(without_numbers("plain"), "plain");
    }
}
