//! Lines with which a program reports the ends of stages. They have the form of XRootD's event pipe, with a word that
//! its line for the file had instead of a name.
//!
//! `stage OK WORD`, `stage ENOENT WORD TEXT` and `stage BAD WORD TEXT`. Each line has another word, so a second report of one
//! end, which arrives when the same file is staged again, is none of that.

use crate::entry::{CopyFailure, FailureReason};
use crate::queue::CopyOutcome;

/// Maximum length of a line in bytes. Some have a path behind their word.
pub(crate) const EVENT_BYTES_MAX: usize = 8192;

/// Maximum length of the text of a failure in bytes, as of copy programs.
const TEXT_BYTES_MAX: usize = 1024;

/// Returns the word of a line and the outcome that it reports; `None` for other lines, and for words that `is_asked` rejects.
pub(crate) fn parse(line: &[u8], is_asked: impl Fn(&[u8]) -> bool) -> Option<(&[u8], CopyOutcome)> {
    let (event, rest) = split(split(line.trim_ascii()).filter(|(verb, _)| *verb == b"stage")?.1)?;
    let (word, text) = split(rest).unwrap_or((rest, b""));
    let reason = match event {
        _ if !is_asked(word) => return None,
        b"OK" => return Some((word, CopyOutcome::Done)),
        b"ENOENT" => FailureReason::NotFound,
        b"BAD" => FailureReason::Temporary,
        _ => return None,
    };
    let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
    let text = String::from_utf8_lossy(text);
    let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    let what = match reason {
        FailureReason::NotFound => "no such file in mass storage",
        _ => "the program of oss.stagecmd could not bring it",
    };
    let text = if text.is_empty() { what.to_owned() } else { format!("{what}: {text}") };
    Some((word, CopyOutcome::Failed(CopyFailure::new(reason, text))))
}

/// Splits a line at its first blank.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(u8::is_ascii_whitespace)?;
    let (word, rest) = line.split_at(end);
    Some((word, rest.trim_ascii()))
}

/// The lines of an output. A line that is too long is cut, and the rest of it is dropped.
#[derive(Default)]
pub(crate) struct OutputLines {
    current: Vec<u8>,
    is_cut: bool,
}

/// A line of an output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputLine {
    /// Its bytes without the end.
    pub text: Vec<u8>,
    /// Its end was dropped.
    pub is_cut: bool,
}

impl OutputLines {
    /// Adds bytes, and calls `take` with each line that they complete.
    pub(crate) fn add(&mut self, bytes: &[u8], mut take: impl FnMut(OutputLine)) {
        for byte in bytes {
            match byte {
                b'\n' => take(OutputLine {
                    text: std::mem::take(&mut self.current),
                    is_cut: std::mem::take(&mut self.is_cut),
                }),
                _ if self.current.len() < EVENT_BYTES_MAX => self.current.push(*byte),
                _ => self.is_cut = true,
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    type Event = (String, Result<(), (FailureReason, String)>);

    fn event(line: &str) -> Option<Event> {
        let (word, outcome) = parse(line.as_bytes(), |word| word == b"a.1")?;
        let outcome = match outcome {
            CopyOutcome::Failed(failure) => Err((failure.reason, failure.text.to_string())),
            _ => Ok(()),
        };
        Some((String::from_utf8_lossy(word).into_owned(), outcome))
    }

    #[test]
    fn events_have_the_form_of_xrootd() {
        let of_file = |outcome| Some(("a.1".to_owned(), outcome));
        assert_eq!(event("stage OK a.1"), of_file(Ok(())));
        assert_eq!(event(" stage  OK  a.1 /a b \r"), of_file(Ok(())));
        let missing = Err((FailureReason::NotFound, "no such file in mass storage: no tape".to_owned()));
        assert_eq!(event("stage ENOENT a.1 no tape"), of_file(missing));
        let bad =
            Err((FailureReason::Temporary, "the program of oss.stagecmd could not bring it".to_owned()));
        assert_eq!(event("stage BAD a.1"), of_file(bad));
        let (_, long) = event(&format!("stage BAD a.1 {}", "x".repeat(8000))).unwrap();
        assert!(long.unwrap_err().1.len() < 1100);
    }

    #[test]
    fn other_lines_are_no_events() {
        for line in [
            "",
            "stage",
            "stage OK",
            "stage OK ",
            "stage OK a.2",
            "stage OK /a a.1",
            "stage DONE a.1",
            "OK a.1",
            "stage BAD a.10 text",
            "stage BAD",
            "x stage OK a.1",
            "stage ok a.1",
            "stageOK a.1",
        ] {
            assert_eq!(event(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_without_an_end_costs_bounded_memory() {
        let mut lines = OutputLines::default();
        let mut found = Vec::new();
        lines.add(b"one\n\ntw", |line| found.push(line));
        for _ in 0..1000 {
            lines.add(&[b'x'; 1000], |line| found.push(line));
        }
        assert_eq!((found.len(), lines.current.len()), (2, EVENT_BYTES_MAX));
        lines.add(b"\nstage OK /a\n", |line| found.push(line));
        assert!(found[2].is_cut && found[2].text.starts_with(b"twxx"));
        assert_eq!(found[3], OutputLine { text: b"stage OK /a".to_vec(), is_cut: false });
    }
}
