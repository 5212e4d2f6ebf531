//! Splits the text of an authorization database into records of words with their positions.
//!
//! A record is a line; a `\` at the end of a line joins the next one to it. Empty lines and lines
//! that begin with `#` are skipped, also between joined lines.

use std::fmt;

/// A position in the file. Both numbers count from 1; columns count bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AuthdbPosition {
    /// Line.
    pub line: u32,
    /// Column of the first byte of the word.
    pub column: u32,
}

impl fmt::Display for AuthdbPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A word of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AuthdbWord<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: AuthdbPosition,
}

/// An iterator over the records of a file.
pub(super) struct AuthdbRecords<'a> {
    rest: &'a [u8],
    line: u32,
}

impl<'a> AuthdbRecords<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, line: 0 }
    }

    /// Returns the next line without its end; `None` at the end of the file.
    fn next_line(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let (line, rest) = match end {
            Some(end) => (self.rest.get(..end), self.rest.get(end + 1..)),
            None => (Some(self.rest), None),
        };
        self.rest = rest.unwrap_or_default();
        self.line = self.line.saturating_add(1);
        line
    }
}

impl<'a> Iterator for AuthdbRecords<'a> {
    type Item = Vec<AuthdbWord<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut words = Vec::new();
        while let Some(line) = self.next_line() {
            let start = line.iter().position(|byte| !is_blank(*byte));
            let Some(start) = start.filter(|start| line.get(*start) != Some(&b'#')) else { continue };
            let kept = line
                .iter()
                .rposition(|byte| !is_blank(*byte))
                .map_or(line, |last| line.get(..=last).unwrap_or_default());
            let (kept, is_joined) = match kept.strip_suffix(b"\\") {
                Some(kept) => (kept, true),
                None => (kept, false),
            };
            add_words(kept, start, self.line, &mut words);
            if !is_joined && !words.is_empty() {
                return Some(words);
            }
        }
        (!words.is_empty()).then_some(words)
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn add_words<'a>(line: &'a [u8], start: usize, number: u32, words: &mut Vec<AuthdbWord<'a>>) {
    let mut begin = start;
    while begin < line.len() {
        let rest = line.get(begin..).unwrap_or_default();
        let length = rest.iter().position(|byte| is_blank(*byte)).unwrap_or(rest.len());
        if length > 0 {
            let column = u32::try_from(begin + 1).unwrap_or(u32::MAX);
            let at = AuthdbPosition { line: number, column };
            words.push(AuthdbWord { text: rest.get(..length).unwrap_or_default(), at });
        }
        begin += length + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str) -> Vec<Vec<(String, u32, u32)>> {
        let words = |record: Vec<AuthdbWord<'_>>| {
            let words = record.iter();
            words
                .map(|word| (String::from_utf8_lossy(word.text).into_owned(), word.at.line, word.at.column))
                .collect()
        };
        AuthdbRecords::new(text.as_bytes()).map(words).collect()
    }

    #[test]
    fn words_have_positions() {
        let found = records("# c\n\n u\tbob  /a r\nx");
        let word = |text: &str, line, column| (text.to_owned(), line, column);
        assert_eq!(found[0], [word("u", 3, 2), word("bob", 3, 4), word("/a", 3, 9), word("r", 3, 12)]);
        assert_eq!(found[1], [word("x", 4, 1)]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn joined_lines_are_one_record() {
        let joined = |text| {
            let found = records(text);
            found
                .iter()
                .map(|record| record.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(joined("u bob \\\n/a r\nv"), ["u bob /a r", "v"]);
        assert_eq!(joined("u bob /a r\\\n# c\n\n /b w\n"), ["u bob /a r /b w"]);
        assert_eq!(joined("u bob /a r \\"), ["u bob /a r"]);
        assert_eq!(joined("# foo \\\nu bob"), ["u bob"]);
        assert_eq!(joined("\\\n\\\n"), Vec::<String>::new());
    }
}
