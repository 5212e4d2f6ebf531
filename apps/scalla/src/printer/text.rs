//! [`OutputText`]: values with the fixed text around them.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

use base::Escape;

/// The colour of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Colour {
    BoldBlue,
    BoldGreen,
    Faint,
    Red,
    Yellow,
}

impl Colour {
    const fn start(self) -> &'static str {
        match self {
            Self::BoldBlue => "\x1b[1;34m",
            Self::BoldGreen => "\x1b[1;32m",
            Self::Faint => "\x1b[2m",
            Self::Red => "\x1b[31m",
            Self::Yellow => "\x1b[33m",
        }
    }
}

const COLOUR_END: &str = "\x1b[0m";

/// Text for one stream. If the stream needs it, everything except fixed text and colours of this
/// program is escaped.
#[derive(Debug)]
pub(crate) struct OutputText {
    text: String,
    escapes: bool,
}

impl OutputText {
    pub(super) const fn new(escapes: bool) -> Self {
        Self { text: String::new(), escapes }
    }

    /// Formats a line of JSON. JSON does not escape some control characters. They are escaped in
    /// pipes too, because that does not change the value.
    pub(crate) fn of_json(value: &serde_json::Value) -> Self {
        let mut text = Self::new(true);
        for c in value.to_string().chars() {
            match base::byte_of(c) {
                // The value must contain the escape sequence as text.
                Some(byte) => text.add(format_args!("\\\\x{byte:02x}")),
                None => text.add(c),
            };
        }
        text.literal("\n");
        text
    }

    /// Adds fixed text without escaping.
    pub(crate) fn literal(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Adds a value that is part of a line.
    pub(crate) fn add(&mut self, value: impl Display) -> &mut Self {
        // Writing to a string does not fail.
        let _ = if self.escapes {
            write!(Escape(&mut self.text), "{value}")
        } else {
            write!(self.text, "{value}")
        };
        self
    }

    /// Adds text that includes its line ends.
    pub(crate) fn add_lines(&mut self, lines: impl Display) -> &mut Self {
        let _ = if self.escapes {
            write!(EscapedLines(&mut self.text), "{lines}")
        } else {
            write!(self.text, "{lines}")
        };
        self
    }

    /// Adds a value in a colour.
    pub(crate) fn add_coloured(&mut self, value: impl Display, colour: Option<Colour>) -> &mut Self {
        match colour {
            None => self.add(value),
            Some(colour) => self.literal(colour.start()).add(value).literal(COLOUR_END),
        }
    }

    /// Adds `count` blanks.
    pub(crate) fn blanks(&mut self, count: usize) -> &mut Self {
        self.text.extend(std::iter::repeat_n(' ', count));
        self
    }

    /// Returns a value as shown in this text.
    pub(crate) fn shown<'a>(&self, value: &'a str) -> Cow<'a, str> {
        if !self.escapes {
            return Cow::Borrowed(value);
        }
        match base::shown(value).to_string() {
            escaped if escaped == value => Cow::Borrowed(value),
            escaped => Cow::Owned(escaped),
        }
    }

    /// Adds lines in which colour sequences are kept.
    pub(super) fn add_coloured_lines(&mut self, lines: &str) -> &mut Self {
        let mut rest = lines;
        while let Some(at) = rest.find("\x1b[") {
            let (plain, tail) = rest.split_at(at);
            self.add_lines(plain);
            let colour = colour_bytes(tail);
            let (sequence, behind) = tail.split_at(colour.unwrap_or(1));
            match colour {
                Some(_) => self.text.push_str(sequence),
                None => drop(self.add_lines(sequence)),
            }
            rest = behind;
        }
        self.add_lines(rest)
    }

    /// Returns the bytes to write. In text without escapes, names that are not UTF-8 keep their
    /// original bytes.
    pub(super) fn as_bytes(&self) -> Cow<'_, [u8]> {
        base::bytes_of(&self.text)
    }
}

impl Display for OutputText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the length of the colour sequence at the beginning of a text.
fn colour_bytes(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|sign: char| !sign.is_ascii_digit() && sign != ';')?;
    parameters.get(end..)?.starts_with('m').then_some("\x1b[".len() + end + 1)
}

/// Escapes everything except line ends.
struct EscapedLines<'a>(&'a mut String);

impl Write for EscapedLines<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (index, part) in text.split('\n').enumerate() {
            if index > 0 {
                self.0.push('\n');
            }
            Escape(&mut *self.0).write_str(part)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREIGN: &str = "a\nb\r\t\u{1b}[31m\u{9b}2J\u{202e}";
    const ESCAPED: &str = "a\\nb\\r\\t\\u001b[31m\\u009b2J\\u202e";

    #[test]
    fn values_are_escaped_and_fixed_text_is_not() {
        let mut text = OutputText::new(true);
        text.add(FOREIGN).literal("\t").add_coloured(FOREIGN, Some(Colour::BoldBlue)).literal("\n");
        assert_eq!(text.text, format!("{ESCAPED}\t\u{1b}[1;34m{ESCAPED}\u{1b}[0m\n"));
        assert_eq!(text.shown(FOREIGN), ESCAPED);
        assert!(matches!(text.shown("plain ü"), Cow::Borrowed(_)));
        let mut lines = OutputText::new(true);
        lines.add_lines(format_args!("{FOREIGN}\n{FOREIGN}\n"));
        assert_eq!(lines.text, format!("{ESCAPED}\n{ESCAPED}\n").replace("\\n", "\n"));
    }

    #[test]
    fn a_pipe_gets_values_as_they_are() {
        let mut text = OutputText::new(false);
        text.add(FOREIGN).literal("\n").add_lines(FOREIGN);
        assert_eq!(text.text, format!("{FOREIGN}\n{FOREIGN}"));
        assert_eq!(text.shown(FOREIGN), FOREIGN);
    }

    #[test]
    fn only_colours_pass_among_coloured_lines() {
        let mut text = OutputText::new(true);
        text.add_coloured_lines("\u{1b}[1m\u{1b}[31merror\u{1b}[0m: a\n\u{1b}]0;t\u{7}\u{1b}[2J\u{1b}[");
        let expected = "\u{1b}[1m\u{1b}[31merror\u{1b}[0m: a\n\\u001b]0;t\\u0007\\u001b[2J\\u001b[";
        assert_eq!(text.text, expected);
    }
}
