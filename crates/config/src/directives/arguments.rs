//! The arguments of one directive, read from left to right, and what can be wrong with them.

use std::time::Duration;

use super::Directive;
use crate::language::Token;
use crate::report::ProblemKind;
use crate::setting::Origin;
use crate::values::{self, Range};

/// Why a directive is not accepted.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ProblemKind,
    pub(crate) origin: Origin,
    pub(crate) what: String,
    pub(crate) allowed: String,
}

impl Fault {
    /// A bad value at a token.
    pub(crate) fn at(token: &Token, what: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self {
            kind: ProblemKind::BadValue,
            origin: token.origin(),
            what: what.into(),
            allowed: allowed.into(),
        }
    }

    /// The same as another kind of problem.
    pub(crate) fn of(self, kind: ProblemKind) -> Self {
        Self { kind, ..self }
    }
}

/// A cursor over the arguments of one directive.
pub(crate) struct Arguments<'a> {
    pub(crate) directive: &'static Directive,
    /// The directive's name as it was written.
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

    /// What has not been read yet.
    pub(crate) fn rest(&self) -> &'a [Token] {
        self.rest
    }

    /// Reads the next word if it is this one.
    pub(crate) fn take(&mut self, word: &str) -> Option<&'a Token> {
        if self.peek() == Some(word) { self.next() } else { None }
    }

    /// Where the value of the directive comes from.
    pub(crate) fn origin(&self) -> Origin {
        self.name.origin()
    }

    /// The next word, which must be there.
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

    /// A fault about a word that is none of those allowed.
    pub(crate) fn invalid(&self, token: &Token, what: &str) -> Fault {
        let allowed = format!("allowed: {}", self.directive.grammar);
        Fault::at(token, format!("invalid {what} '{}'", token.text), allowed)
    }
}
