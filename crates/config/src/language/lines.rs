//! Splits text into logical lines of tokens.
//!
//! Blanks separate tokens, a leading `#` starts a comment, and a trailing `\` joins the next line.

use std::sync::Arc;

use super::{DirectiveToken, LINE_CHARS_MAX};
use crate::setting::Position;

/// One logical line. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SourceLine {
    pub(super) first: DirectiveToken,
    pub(super) rest: Vec<DirectiveToken>,
}

/// A line that cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LineError {
    pub(super) position: Position,
    pub(super) what: String,
}

/// Splits a file into logical lines. A line that cannot be parsed is an error at its position.
pub(super) fn lines(file: &Arc<str>, content: &[u8]) -> Vec<Result<SourceLine, LineError>> {
    let text = String::from_utf8_lossy(content);
    let mut found = Vec::new();
    let mut joined = JoinedLines::default();
    for (index, physical) in text.split('\n').enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let trimmed = physical.trim_end_matches(['\r', ' ', '\t']);
        let start = trimmed.trim_start_matches([' ', '\t']);
        // Comments and empty lines do not end a continuation.
        if start.is_empty() || start.starts_with('#') {
            continue;
        }
        let (body, more) = match trimmed.strip_suffix('\\') {
            Some(body) => (body, true),
            None => (trimmed, false),
        };
        joined.chars += body.chars().count();
        tokens(file, number, body, &mut joined.tokens);
        if !more {
            found.extend(std::mem::take(&mut joined).finish());
        }
    }
    found.extend(joined.finish());
    found
}

/// The lines joined so far.
#[derive(Default)]
struct JoinedLines {
    tokens: Vec<DirectiveToken>,
    chars: usize,
}

impl JoinedLines {
    fn finish(self) -> Option<Result<SourceLine, LineError>> {
        let chars = self.chars;
        let mut tokens = self.tokens.into_iter();
        let first = tokens.next()?;
        if chars > LINE_CHARS_MAX {
            let what = format!("line of {chars} characters; at most {LINE_CHARS_MAX} are allowed");
            return Some(Err(LineError { position: first.position, what }));
        }
        let line = SourceLine { first, rest: tokens.collect() };
        let broken = std::iter::once(&line.first)
            .chain(&line.rest)
            .find(|token| token.text.contains(|c: char| c == char::REPLACEMENT_CHARACTER || c.is_control()));
        if let Some(token) = broken {
            let what = format!("'{}' is not plain UTF-8 text", token.text.escape_debug());
            return Some(Err(LineError { position: token.position.clone(), what }));
        }
        Some(Ok(line))
    }
}

fn tokens(file: &Arc<str>, line: u32, body: &str, out: &mut Vec<DirectiveToken>) {
    let mut text = String::new();
    let mut start = 0;
    for (column, c) in body.chars().chain(std::iter::once(' ')).enumerate() {
        if c != ' ' && c != '\t' {
            if text.is_empty() {
                start = column;
            }
            text.push(c);
        } else if !text.is_empty() {
            let column = u32::try_from(start + 1).unwrap_or(u32::MAX);
            let position = Position { file: Arc::clone(file), line, column };
            out.push(DirectiveToken { text: std::mem::take(&mut text), position });
        }
    }
}
