//! A cursor over the arguments of one directive, and the errors it can report.
//!
//! Each directive reads its arguments through it, so that equal errors have equal texts.

use std::time::Duration;

use super::Directive;
use crate::language::Token;
use crate::report::ProblemKind;
use crate::setting::Origin;
use crate::values::{self, Range};

/// The reason to reject a directive.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ProblemKind,
    pub(crate) origin: Origin,
    pub(crate) what: String,
    pub(crate) allowed: String,
    /// The argument it is about, for a list of faults; may be empty.
    pub(crate) subject: String,
}

impl Fault {
    /// Returns a fault for a bad value at a token.
    pub(crate) fn at(token: &Token, what: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self {
            kind: ProblemKind::BadValue,
            origin: token.origin(),
            what: what.into(),
            allowed: allowed.into(),
            subject: String::new(),
        }
    }

    /// Names the argument that the problem concerns.
    pub(crate) fn about(self, subject: String) -> Self {
        Self { subject, ..self }
    }

    /// Changes the kind of the problem.
    pub(crate) fn of(self, kind: ProblemKind) -> Self {
        Self { kind, ..self }
    }
}

/// A cursor over the arguments of one directive.
pub(crate) struct Arguments<'a> {
    pub(crate) directive: &'static Directive,
    /// The name of the directive as written.
    pub(crate) name: &'a Token,
    rest: &'a [Token],
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(directive: &'static Directive, name: &'a Token, rest: &'a [Token]) -> Self {
        Self { directive, name, rest }
    }

    pub(crate) fn next(&mut self) -> Option<&'a Token> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.rest.first().map(|token| token.text.as_str())
    }

    /// Returns the unread arguments.
    pub(crate) fn rest(&self) -> &'a [Token] {
        self.rest
    }

    /// Reads the next word if it equals `word`.
    pub(crate) fn take(&mut self, word: &str) -> Option<&'a Token> {
        if self.peek() == Some(word) { self.next() } else { None }
    }

    /// Returns the origin of the directive's value.
    pub(crate) fn origin(&self) -> Origin {
        self.name.origin()
    }

    /// Reads the next word, which is required.
    pub(crate) fn need(&mut self, what: &str) -> Result<&'a Token, Fault> {
        self.next().ok_or_else(|| {
            Fault::at(
                self.name,
                format!("{what} not specified"),
                format!("allowed: {}", self.directive.grammar),
            )
        })
    }

    pub(crate) fn size(&mut self, what: &str, range: Range) -> Result<u64, Fault> {
        values::size(self.need(&format!("{what} value"))?, what, range)
    }

    pub(crate) fn time(&mut self, what: &str, range: Range) -> Result<Duration, Fault> {
        values::time(self.need(&format!("{what} value"))?, what, range)
    }

    pub(crate) fn count(&mut self, what: &str, min: u32, max: u32) -> Result<u32, Fault> {
        values::count32(self.need(&format!("{what} value"))?, what, min, max)
    }

    pub(crate) fn path(&mut self, what: &str) -> Result<String, Fault> {
        values::path(self.need(&format!("{what} path"))?, what)
    }

    /// Returns a fault for a word that is not among the allowed ones.
    pub(crate) fn invalid(&self, token: &Token, what: &str) -> Fault {
        let allowed = format!("allowed: {}", self.directive.grammar);
        Fault::at(token, format!("invalid {what} '{}'", token.text), allowed)
    }
}
