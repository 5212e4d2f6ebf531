//! Escaping of text from clients and other servers for logs and terminals.
//!
//! Control characters can end a line, forge the next one or change the state of a terminal.
//! Characters that change the direction of text can make one name look like another. They are
//! written as JSON escape sequences, so that one line of a text or JSON log stays one line.

use std::fmt::{self, Write};

use crate::byte_text::byte_of;

/// Text whose control characters are escaped when it is displayed.
///
/// Escaping is idempotent: backslashes are not escaped.
#[derive(Clone, Copy)]
pub struct Shown<'a>(&'a [u8]);

/// Returns `text` in a form for logs and terminals; bytes that are not UTF-8 become `\xNN`.
pub fn shown<T: AsRef<[u8]> + ?Sized>(text: &T) -> Shown<'_> {
    Shown(text.as_ref())
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            Escape(&mut *f).write_str(chunk.valid())?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A writer that escapes control characters and passes the text on to `W`.
pub struct Escape<W>(pub W);

impl<W: Write> Write for Escape<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_escaped(*c)) {
            let (plain, tail) = rest.split_at(at);
            self.0.write_str(plain)?;
            match c {
                '\n' => self.0.write_str("\\n")?,
                '\r' => self.0.write_str("\\r")?,
                '\t' => self.0.write_str("\\t")?,
                c if byte_of(c).is_some() => write!(self.0, "\\x{:02x}", byte_of(c).unwrap_or_default())?,
                _ => write!(self.0, "\\u{:04x}", u32::from(c))?,
            }
            rest = tail.get(c.len_utf8()..).unwrap_or_default();
        }
        self.0.write_str(rest)
    }
}

/// Reports whether a character is a control character, represents a byte that is not UTF-8, ends a
/// line or changes the direction of text.
fn is_escaped(c: char) -> bool {
    c.is_control()
        || byte_of(c).is_some()
        || matches!(c, '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_that_ends_a_line_or_drives_a_terminal_is_escaped() {
        for c in (0..=0xffff).filter_map(char::from_u32) {
            let text = shown(&format!("a{c}b")).to_string();
            let raw = c.is_control()
                || ('\u{2028}'..='\u{202e}').contains(&c)
                || ('\u{2066}'..='\u{2069}').contains(&c);
            let raw = raw || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}');
            assert_eq!(text == format!("a{c}b"), !raw, "{:x}", u32::from(c));
            assert_eq!(shown(&text).to_string(), text);
            let json: String = serde_like(&text);
            assert!(!raw || json == format!("a{c}b"), "{text}");
        }
    }

    /// Resolves the escapes as JSON does.
    fn serde_like(text: &str) -> String {
        let Some((before, after)) = text.split_once('\\') else { return text.to_owned() };
        let (c, rest) = match after.as_bytes()[0] {
            b'n' => ('\n', &after[1..]),
            b'r' => ('\r', &after[1..]),
            b't' => ('\t', &after[1..]),
            b'u' => (char::from_u32(u32::from_str_radix(&after[1..5], 16).unwrap()).unwrap(), &after[5..]),
            _ => return text.to_owned(),
        };
        format!("{before}{c}{rest}")
    }

    #[test]
    fn bytes_that_are_not_utf8_are_escaped() {
        assert_eq!(shown(b"/a\xff\x1b[31m\xc3\xa9\\n").to_string(), "/a\\xff\\u001b[31mé\\n");
        assert_eq!(format!("{:?}", shown("x\ny")), "x\\ny");
        assert_eq!(shown(&*crate::text_of(b"/a\xff")).to_string(), "/a\\xff");
    }
}
