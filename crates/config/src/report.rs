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
    /// A consequence of a directive for the whole server.
    Consequence,
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
            Self::NoEffect | Self::Consequence => Severity::Note,
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
    /// The allowed values, a remedy, or the consequence; may be empty.
    pub allowed: String,
    /// The directive, with the argument in question, where a list names it; may be empty.
    pub subject: String,
    /// The part of the server that is missing, where it is about one.
    pub part: Option<&'static str>,
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

/// Number of problems of protection from which they are printed as one list.
const UNPROTECTED_LISTED_FROM: usize = 3;
/// Width of such a list in columns.
const LIST_COLUMNS: usize = 96;

/// All problems of one configuration, in the order of detection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfigReport {
    problems: Vec<Problem>,
    strictness: Strictness,
    in_force: usize,
}

impl ConfigReport {
    /// Returns an empty report.
    #[must_use]
    pub fn new(strictness: Strictness) -> Self {
        Self { problems: Vec::new(), strictness, in_force: 0 }
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
        self.add_about("", kind, origin, what, allowed);
    }

    /// Adds a problem of a directive, which lists name by `subject`.
    pub(crate) fn add_about(
        &mut self,
        subject: &str,
        kind: ProblemKind,
        origin: Origin,
        what: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        let severity = kind.severity(self.strictness);
        let (what, allowed, subject) = (what.into(), allowed.into(), subject.to_owned());
        self.problems.push(Problem { kind, severity, origin, what, allowed, subject, part: None });
    }

    /// Adds something that is not in force yet: the consequence, and the part that is missing.
    pub(crate) fn add_not_yet(
        &mut self,
        origin: Origin,
        what: String,
        consequence: String,
        part: Option<&'static str>,
    ) {
        let kind = ProblemKind::NotYet;
        let severity = kind.severity(self.strictness);
        let subject = String::new();
        self.problems.push(Problem { kind, severity, origin, what, allowed: consequence, subject, part });
    }

    /// Counts a directive that is in force.
    pub(crate) fn count_in_force(&mut self) {
        self.in_force += 1;
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

    /// Returns a summary line, for example `2 errors, 1 warning: does not start. Works: 27
    /// directives. Without: HTTP, monitoring.`
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let (errors, warnings) = (self.errors().count(), self.warnings().count());
        let (errors, warnings) = (count(errors, "error"), count(warnings, "warning"));
        let starts = if self.is_ok() { "starts" } else { "does not start" };
        let works = count(self.in_force, "directive");
        let mut parts: Vec<&str> = self.problems.iter().filter_map(|problem| problem.part).collect();
        parts.sort_unstable();
        parts.dedup();
        let without =
            if parts.is_empty() { String::new() } else { format!(" Without: {}.", parts.join(", ")) };
        format!("{errors}, {warnings}: {starts}. Works: {works}.{without}")
    }

    /// Writes the problems of protection as one list: where each is, and which directive it is.
    fn list_unprotected(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unprotected: Vec<&Problem> =
            self.problems.iter().filter(|problem| problem.kind == ProblemKind::Unprotected).collect();
        let Some(first) = unprotected.first() else { return Ok(()) };
        if let Origin::File(position) = &first.origin {
            write!(f, "{}: ", position.file)?;
        }
        let count = unprotected.len();
        writeln!(
            f,
            "error: {count} lines ask for protection that Scalla does not have yet, so it does not start:"
        )?;
        let file_of = |problem: &Problem| match &problem.origin {
            Origin::File(position) => Some(position.file.clone()),
            Origin::Default | Origin::CommandLine => None,
        };
        let mut line = String::new();
        for problem in &unprotected {
            let place = match &problem.origin {
                Origin::File(position) if file_of(problem) == file_of(first) => position.line.to_string(),
                Origin::File(position) => format!("{}:{}", position.file, position.line),
                other => other.to_string(),
            };
            let item = format!("{place} {}", problem.subject);
            if !line.is_empty() && line.chars().count() + 2 + item.chars().count() > LIST_COLUMNS {
                writeln!(f, "    {line},")?;
                line.clear();
            }
            if !line.is_empty() {
                line.push_str(", ");
            }
            line.push_str(&item);
        }
        writeln!(f, "    {line}")?;
        writeln!(f, "    Remove them only if everybody may have the data that they protect.")
    }
}

/// Prints one line per problem, in the order of [`ConfigReport::problems`]. Shared advice is
/// printed once, after the last problem that has it. Several problems of protection are one list at
/// the end.
impl fmt::Display for ConfigReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_unprotected = |problem: &Problem| problem.kind == ProblemKind::Unprotected;
        let lists =
            self.problems.iter().filter(|problem| is_unprotected(problem)).count() >= UNPROTECTED_LISTED_FROM;
        let single: Vec<&Problem> =
            self.problems.iter().filter(|problem| !(lists && is_unprotected(problem))).collect();
        // For each advice: the number of problems with it, and the number of those not printed yet.
        let mut sharing = HashMap::<&str, (usize, usize)>::new();
        for problem in single.iter().filter(|problem| !problem.allowed.is_empty()) {
            let (all, left) = sharing.entry(&problem.allowed).or_default();
            (*all, *left) = (*all + 1, *left + 1);
        }
        for problem in single {
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
        if lists { self.list_unprotected(f) } else { Ok(()) }
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
        let mut report = ConfigReport::new(Strictness::Strict);
        let mut add = |kind, origin, what: &str, advice: &str| report.add(kind, origin, what, advice);
        add(ProblemKind::NotYet, at("b", 2), "c", "");
        add(ProblemKind::Syntax, at("b", 1), "b", "remove it");
        add(ProblemKind::Syntax, at("a", 9), "d", "remove it");
        add(ProblemKind::BadValue, Origin::CommandLine, "a", "numbers");
        add(ProblemKind::Syntax, at("b", 3), "e", "remove it");
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

    #[test]
    fn many_problems_of_protection_are_one_list_and_the_last_line_sums_up() {
        let mut report = ConfigReport::new(Strictness::Strict);
        for (file, line, subject) in [("f", 2, "sec.protocol gsi"), ("f", 7, "acc.authdb")] {
            report.add_about(subject, ProblemKind::Unprotected, at(file, line), "restricts", "remove it");
        }
        assert_eq!(
            report.to_string(),
            "f:2:1: error: restricts; remove it\nf:7:1: error: restricts; remove it\n"
        );
        report.add_about("xrd.tls", ProblemKind::Unprotected, at("g", 1), "restricts", "remove it");
        report.add_not_yet(
            at("f", 9),
            "x is not in force yet".into(),
            "none is sent".into(),
            Some("monitoring"),
        );
        report.add_not_yet(at("f", 10), "y is not in force yet".into(), "refused".into(), Some("HTTP"));
        report.count_in_force();
        let expected = "\
f:9:1: warning: x is not in force yet; none is sent
f:10:1: warning: y is not in force yet; refused
f: error: 3 lines ask for protection that Scalla does not have yet, so it does not start:
    2 sec.protocol gsi, 7 acc.authdb, g:1 xrd.tls
    Remove them only if everybody may have the data that they protect.
";
        assert_eq!(report.to_string(), expected);
        assert_eq!(
            report.summary(),
            "3 errors, 2 warnings: does not start. Works: 1 directive. Without: HTTP, monitoring."
        );
    }
}
