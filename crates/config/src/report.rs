//! The report of a configuration: all problems at once, each with its position and the allowed
//! values.
//!
//! Problems are collected instead of returned one by one, so that an operator can fix a file in one
//! pass.

use std::collections::HashMap;
use std::fmt;

use crate::setting::Origin;

/// Treatment of unknown directives, unknown options and contradictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strictness {
    /// They are errors: `scalla serve`, `scalla config check`.
    #[default]
    Strict,
    /// They are warnings with the same text: the `xrootd` link, where existing files of a site must
    /// still start.
    Legacy,
}

/// Kind of a problem.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProblemKind {
    /// The file cannot be parsed.
    Syntax,
    /// A value that is not allowed.
    BadValue,
    /// An unknown directive or option.
    Unknown,
    /// A directive that restricts access or demands encryption but is not in force, so the server
    /// must not start.
    Unprotected,
    /// A third-party library, which is never loaded.
    ForeignLibrary,
    /// An unsupported request without which the server would serve other data than the file
    /// describes.
    Unsupported,
    /// A contradiction between directives, or between a directive and the disk.
    Contradiction,
    /// A value that is probably not intended.
    Doubtful,
    /// A known directive that is not in force yet.
    NotYet,
    /// A part of the file that is not evaluated.
    Ignored,
    /// An accepted directive that has no effect in this server.
    NoEffect,
}

/// Severity of a problem.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Stops the start.
    Error,
    /// Needs the attention of the operator.
    Warning,
    /// For information.
    Note,
}

impl ProblemKind {
    /// Returns the severity of this kind of problem.
    #[must_use]
    pub fn severity(self, strictness: Strictness) -> Severity {
        match self {
            Self::Syntax | Self::BadValue | Self::Unprotected | Self::ForeignLibrary | Self::Unsupported => {
                Severity::Error
            }
            Self::Unknown | Self::Contradiction => match strictness {
                Strictness::Strict => Severity::Error,
                Strictness::Legacy => Severity::Warning,
            },
            Self::Doubtful | Self::NotYet | Self::Ignored => Severity::Warning,
            Self::NoEffect => Severity::Note,
        }
    }
}

/// One problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// Severity of the problem.
    pub severity: Severity,
    /// Position of the problem.
    pub origin: Origin,
    /// Description of the problem.
    pub what: String,
    /// The allowed values, or a remedy; may be empty.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File(position) => write!(f, "{position}: ")?,
            Origin::CommandLine => f.write_str("command line: ")?,
            Origin::Default => {}
        }
        f.write_str(match self.severity {
            Severity::Error => "error: ",
            Severity::Warning => "warning: ",
            Severity::Note => "note: ",
        })?;
        f.write_str(&self.what)?;
        if !self.allowed.is_empty() {
            write!(f, "; {}", self.allowed)?;
        }
        Ok(())
    }
}

/// Number of problems with the same advice from which it is printed once.
const ADVICE_SHARED_FROM: usize = 3;

/// All problems of one configuration, in the order of detection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    problems: Vec<Problem>,
    strictness: Strictness,
}

impl Report {
    /// Returns an empty report.
    #[must_use]
    pub fn new(strictness: Strictness) -> Self {
        Self { problems: Vec::new(), strictness }
    }

    /// Returns the treatment of unknown directives.
    #[must_use]
    pub fn strictness(&self) -> Strictness {
        self.strictness
    }

    /// Adds a problem. Its severity follows from kind and strictness.
    pub fn add(
        &mut self,
        kind: ProblemKind,
        origin: Origin,
        what: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        let severity = kind.severity(self.strictness);
        self.problems.push(Problem { kind, severity, origin, what: what.into(), allowed: allowed.into() });
    }

    /// Adds all problems of another report.
    pub fn append(&mut self, other: Self) {
        self.problems.extend(other.problems);
    }

    /// Adds the problems of another report without duplicates, because a file that is read twice
    /// yields the same ones.
    pub fn append_new(&mut self, other: Self) {
        for problem in other.problems {
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }

    /// Returns all problems in the order of detection.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Sorts the problems by file and line. Files keep the order in which they were read; problems
    /// without a line come first.
    pub fn order_by_line(&mut self) {
        let mut files = Vec::new();
        for problem in &self.problems {
            if let Origin::File(position) = &problem.origin
                && !files.contains(&position.file)
            {
                files.push(position.file.clone());
            }
        }
        self.problems.sort_by_key(|problem| match &problem.origin {
            Origin::File(position) => {
                let file = files.iter().position(|file| *file == position.file);
                (file.map(|index| index + 1), position.line, position.column)
            }
            Origin::Default | Origin::CommandLine => (None, 0, 0),
        });
    }

    /// Returns the problems of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| problem.severity == severity)
    }

    /// Returns the problems that stop the start.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.of(Severity::Error)
    }

    /// Returns the warnings.
    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.of(Severity::Warning)
    }

    /// Reports whether no problem stops the start.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.errors().next().is_none()
    }

    /// Returns a summary line: `2 errors, 1 warning`.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        format!("{}, {}", count(self.errors().count(), "error"), count(self.warnings().count(), "warning"))
    }
}

/// Prints one line per problem, in the order of [`Report::problems`]. Shared advice is printed
/// once, after the last problem that has it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // For each advice: the number of problems with it, and the number of those not printed yet.
        let mut sharing = HashMap::<&str, (usize, usize)>::new();
        for problem in self.problems.iter().filter(|problem| !problem.allowed.is_empty()) {
            let (all, left) = sharing.entry(&problem.allowed).or_default();
            (*all, *left) = (*all + 1, *left + 1);
        }
        for problem in &self.problems {
            match sharing.get_mut(problem.allowed.as_str()) {
                Some((all, left)) if *all >= ADVICE_SHARED_FROM => {
                    writeln!(f, "{}", Problem { allowed: String::new(), ..problem.clone() })?;
                    *left -= 1;
                    if *left == 0 {
                        writeln!(f, "    all {all}: {}", problem.allowed)?;
                    }
                }
                _ => writeln!(f, "{problem}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Position;

    fn at(file: &str, line: u32) -> Origin {
        Origin::File(Position { file: file.into(), line, column: 1 })
    }

    #[test]
    fn problems_are_sorted_by_line_and_shared_advice_is_printed_once() {
        let mut report = Report::new(Strictness::Strict);
        let mut add = |kind, origin, what: &str, advice: &str| report.add(kind, origin, what, advice);
        add(ProblemKind::NotYet, at("b", 2), "c", "");
        add(ProblemKind::Unprotected, at("b", 1), "b", "remove it");
        add(ProblemKind::Unprotected, at("a", 9), "d", "remove it");
        add(ProblemKind::BadValue, Origin::CommandLine, "a", "numbers");
        add(ProblemKind::Unprotected, at("b", 3), "e", "remove it");
        add(ProblemKind::BadValue, at("a", 10), "f", "numbers");
        report.order_by_line();
        let expected = "\
command line: error: a; numbers
b:1:1: error: b
b:2:1: warning: c
b:3:1: error: e
a:9:1: error: d
    all 3: remove it
a:10:1: error: f; numbers
";
        assert_eq!(report.to_string(), expected);
    }
}
