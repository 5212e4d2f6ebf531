//! A reversible printable form of paths.
//!
//! Administrators copy names from listings into commands, so every path must have a printable form
//! that is parsed back to the same bytes. [`shown()`] alone is not reversible, because it leaves
//! backslashes as they are.

use crate::{LogicalPath, PathError, shown};
use std::fmt;

/// The reason why a text is not an escaped path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EscapeError {
    /// A backslash is not followed by a known sequence.
    Sequence,
    /// The unescaped bytes are not a logical path.
    Path(PathError),
}

impl fmt::Display for EscapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sequence => {
                "a backslash in a name is written \\\\, and other bytes \\xNN, \\uNNNN, \\n, \\r or \\t"
            }
            Self::Path(PathError::Relative) => "it must begin with / and have no component ..",
            Self::Path(PathError::TooLong) => "it is too long",
            Self::Path(PathError::Nul) => "it holds a NUL byte",
        })
    }
}

impl LogicalPath {
    /// Returns the path in the form of [`shown()`] with each backslash doubled, so that different
    /// paths have different texts.
    pub fn escaped(&self) -> String {
        let mut bytes = Vec::with_capacity(self.as_bytes().len());
        for &byte in self.as_bytes() {
            bytes.push(byte);
            if byte == b'\\' {
                bytes.push(byte);
            }
        }
        shown(&bytes).to_string()
    }

    /// Parses the result of [`LogicalPath::escaped`].
    pub fn from_escaped(text: &str) -> Result<Self, EscapeError> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some((plain, sequence)) = rest.split_once('\\') {
            bytes.extend_from_slice(plain.as_bytes());
            rest = unescape(sequence, &mut bytes).ok_or(EscapeError::Sequence)?;
        }
        bytes.extend_from_slice(rest.as_bytes());
        Self::parse(&bytes).map_err(EscapeError::Path)
    }

    /// Returns the escaped path as one word of a shell command, quoted if necessary.
    pub fn shell_word(&self) -> String {
        let escaped = self.escaped();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:@%,".contains(&byte);
        if escaped.bytes().all(is_plain) {
            return escaped;
        }
        format!("'{}'", escaped.replace('\'', "'\\''"))
    }
}

/// Appends the bytes of the escape sequence at the start of `sequence` and returns the remaining
/// text. `sequence` begins after the backslash.
fn unescape<'a>(sequence: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let kind = sequence.chars().next()?;
    let rest = sequence.get(kind.len_utf8()..)?;
    let digits = |count: usize| {
        let digits = rest.get(..count).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        Some((u32::from_str_radix(digits, 16).ok()?, rest.get(count..)?))
    };
    match kind {
        '\\' => bytes.push(b'\\'),
        'n' => bytes.push(b'\n'),
        'r' => bytes.push(b'\r'),
        't' => bytes.push(b'\t'),
        'x' => {
            let (value, rest) = digits(2)?;
            bytes.push(u8::try_from(value).ok()?);
            return Some(rest);
        }
        'u' => {
            let (value, rest) = digits(4)?;
            let c = char::from_u32(value)?;
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(rest);
        }
        _ => return None,
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(raw: &[u8]) -> LogicalPath {
        LogicalPath::parse(raw).unwrap()
    }

    #[test]
    fn every_path_survives_escaping_and_parsing() {
        let all: Vec<u8> = (1..=255).collect();
        let odd = [b"/".as_slice(), &all].concat();
        let names: [&[u8]; 6] =
            [b"/a", &odd, b"/a\\n", b"/a\\x41", "/é\u{202e}\u{85}".as_bytes(), b"/half \xe2\x82"];
        for raw in names {
            let path = path(raw);
            let text = path.escaped();
            assert!(!text.chars().any(char::is_control), "{text}");
            assert_eq!(LogicalPath::from_escaped(&text), Ok(path), "{text}");
            assert_eq!(shown(&text).to_string(), text, "the text is safe for a terminal");
        }
        assert_eq!(path(b"/a\\n\xff\n").escaped(), "/a\\\\n\\xff\\n");
    }

    #[test]
    fn invalid_escape_sequences_are_refused() {
        for text in ["/a\\", "/a\\q", "/a\\x4", "/a\\x+4", "/a\\ud800", "/a\\u12", "/a\\é"] {
            assert_eq!(LogicalPath::from_escaped(text), Err(EscapeError::Sequence), "{text}");
        }
        let refused = |text| LogicalPath::from_escaped(text).unwrap_err();
        assert_eq!(refused("a"), EscapeError::Path(PathError::Relative));
        assert_eq!(refused("/\\x2e\\x2e/a"), EscapeError::Path(PathError::Relative));
        assert_eq!(refused("/a\\x00"), EscapeError::Path(PathError::Nul));
    }

    #[test]
    fn a_shell_word_is_quoted_only_when_necessary() {
        for (raw, word) in [
            (&b"/store/run_1/f-2.root"[..], "/store/run_1/f-2.root"),
            (b"/a b", "'/a b'"),
            (b"/it's; rm", "'/it'\\''s; rm'"),
            (b"/a\x1b\xff", "'/a\\u001b\\xff'"),
            (b"/$(x)", "'/$(x)'"),
            (b"/a\\", "'/a\\\\'"),
        ] {
            assert_eq!(path(raw).shell_word(), word);
        }
    }
}
