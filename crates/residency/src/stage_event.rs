//! Lines with which a program reports the ends of stages, as XRootD's event pipe has them.
//!
//! `stage OK NAME`, `stage ENOENT NAME TEXT` and `stage BAD NAME TEXT`. A name may contain blanks, so its end is known
//! only by comparison with the names that were asked for.

use crate::entry::{CopyFailure, FailureReason};
use crate::queue::CopyOutcome;

/// Maximum length of a line in bytes. A name has 1024 at most, and a path of them all 4096.
pub(crate) const EVENT_BYTES_MAX: usize = 8192;

/// Returns the name of a line and what it reports; `None` if it is no event of a name for which `is_asked` is true.
pub(crate) fn parse(line: &[u8], is_asked: impl Fn(&[u8]) -> bool) -> Option<(&[u8], CopyOutcome)> {
    let (word, rest) = split(split(line.trim_ascii()).filter(|(verb, _)| *verb == b"stage")?.1)?;
    if word == b"OK" {
        return is_asked(rest).then_some((rest, CopyOutcome::Done));
    }
    let reason = match word {
        b"ENOENT" => FailureReason::NotFound,
        b"BAD" => FailureReason::Temporary,
        _ => return None,
    };
    // The longest name, because the text behind another one would otherwise hide its blanks.
    let ends = (0..=rest.len()).rev().filter(|end| rest.get(*end).is_none_or(u8::is_ascii_whitespace));
    let (name, text) = ends.map(|end| rest.split_at(end)).find(|(name, _)| is_asked(name))?;
    let text = String::from_utf8_lossy(text);
    let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    let what = match reason {
        FailureReason::NotFound => "no such file in mass storage",
        _ => "the program of oss.stagecmd could not bring it",
    };
    let text = if text.is_empty() { what.to_owned() } else { format!("{what}: {text}") };
    Some((name, CopyOutcome::Failed(CopyFailure::new(reason, text))))
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
pub(crate) struct OutputLine {
    pub(crate) text: Vec<u8>,
    /// Its end was dropped.
    pub(crate) is_cut: bool,
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

    fn event(line: &str, names: &[&str]) -> Option<Event> {
        let is_asked = |name: &[u8]| names.iter().any(|asked| asked.as_bytes() == name);
        let (name, outcome) = parse(line.as_bytes(), is_asked)?;
        let outcome = match outcome {
            CopyOutcome::Failed(failure) => Err((failure.reason, failure.text.to_string())),
            _ => Ok(()),
        };
        Some((String::from_utf8_lossy(name).into_owned(), outcome))
    }

    #[test]
    fn events_have_the_form_of_xrootd() {
        let name = |text: &str, outcome| Some((text.to_owned(), outcome));
        assert_eq!(event("stage OK /a", &["/a"]), name("/a", Ok(())));
        assert_eq!(event(" stage  OK  /a b \r", &["/a b", "/a"]), name("/a b", Ok(())));
        let missing = Err((FailureReason::NotFound, "no such file in mass storage: no tape".to_owned()));
        assert_eq!(event("stage ENOENT /a no tape", &["/a"]), name("/a", missing));
        let bad =
            Err((FailureReason::Temporary, "the program of oss.stagecmd could not bring it".to_owned()));
        assert_eq!(event("stage BAD /a b", &["/a b", "/a"]), name("/a b", bad));
    }

    #[test]
    fn other_lines_are_no_events() {
        for line in [
            "",
            "stage",
            "stage OK",
            "stage OK ",
            "stage OK /b",
            "stage OK /a b",
            "stage DONE /a",
            "OK /a",
            "stage BAD /ab text",
            "stage BAD",
            "x stage OK /a",
            "stage ok /a",
            "stageOK /a",
        ] {
            assert_eq!(event(line, &["/a"]), None, "{line}");
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
