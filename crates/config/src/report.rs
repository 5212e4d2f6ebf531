//! What there is to say about a configuration: every problem at once, each with its place and what is allowed.

use std::collections::HashMap;
use std::fmt;

use crate::setting::Origin;

/// How an unknown directive or option, or a contradiction, is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strictness {
    /// It is an error: `scalla serve`, `scalla config check`.
    #[default]
    Strict,
    /// It is a warning with the same text: the `xrootd` link, where a site's old file must still start.
    Legacy,
}

/// What kind of thing is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProblemKind {
    /// The file cannot be read as a configuration.
    Syntax,
    /// A value that is not allowed.
    BadValue,
    /// A directive or option nobody knows.
    Unknown,
    /// A directive restricts access or demands encryption, and that is not in force: the start must not go on.
    Unprotected,
    /// A library that is not ours to load.
    ForeignLibrary,
    /// What is asked for would serve something else than the file says.
    Unsupported,
    /// Directives contradict each other, or what is on disk.
    Contradiction,
    /// Probably not what was meant.
    Doubtful,
    /// Known, and not in force yet.
    NotYet,
    /// Something in the file is not looked at.
    Ignored,
    /// Accepted; there is nothing here it could change.
    NoEffect,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The start stops.
    Error,
    /// The operator should know.
    Warning,
    /// For completeness.
    Note,
}

impl ProblemKind {
    /// How bad a problem of this kind is.
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
    /// Its kind.
    pub kind: ProblemKind,
    /// How bad it is.
    pub severity: Severity,
    /// Where it is.
    pub origin: Origin,
    /// What is wrong.
    pub what: String,
    /// What would be right, or what to do; may be empty.
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

/// Advice that so many problems share comes once.
const ADVICE_SHARED_FROM: usize = 3;

/// All problems of one configuration, in the order they were found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    problems: Vec<Problem>,
    strictness: Strictness,
}

impl Report {
    /// An empty report.
    #[must_use]
    pub fn new(strictness: Strictness) -> Self {
        Self { problems: Vec::new(), strictness }
    }

    /// How unknown directives are taken.
    #[must_use]
    pub fn strictness(&self) -> Strictness {
        self.strictness
    }

    /// Adds a problem; its severity follows from kind and strictness.
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

    /// Adds the problems of another report that are not in this one: a file read twice has the same ones.
    pub fn append_new(&mut self, other: Self) {
        for problem in other.problems {
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }

    /// Every problem, in the order found.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Orders the problems by file and line, files as they were met; what has no line comes first.
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

    /// Those of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| problem.severity == severity)
    }

    /// Those that stop the start.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.of(Severity::Error)
    }

    /// Those the operator should know.
    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.of(Severity::Warning)
    }

    /// True if nothing stops the start.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.errors().next().is_none()
    }

    /// One line in the end: `2 errors, 1 warning`.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        format!("{}, {}", count(self.errors().count(), "error"), count(self.warnings().count(), "warning"))
    }
}

/// One line per problem, in the order of [`Report::problems`]. Advice that several share comes once, behind the last of them.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // For each advice the problems that have it, and those of them that are still to come.
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
    fn problems_are_ordered_by_line_and_shared_advice_comes_once() {
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
