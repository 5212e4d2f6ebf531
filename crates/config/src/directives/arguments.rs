//! A cursor over the arguments of one directive.
//!
//! Each directive reads its arguments through it, so that equal errors have equal texts.

use std::time::Duration;

use super::fault::DirectiveFault;
use crate::language::DirectiveToken;
use crate::setting::Origin;
use crate::values::{self, ValueRange};

/// A cursor over the arguments of one directive.
pub(crate) struct Arguments<'a> {
    /// Grammar of the directive, for messages.
    pub(crate) grammar: &'static str,
    /// The name of the directive as written.
    pub(crate) name: &'a DirectiveToken,
    rest: &'a [DirectiveToken],
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(grammar: &'static str, name: &'a DirectiveToken, rest: &'a [DirectiveToken]) -> Self {
        Self { grammar, name, rest }
    }

    pub(crate) fn next(&mut self) -> Option<&'a DirectiveToken> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.rest.first().map(|token| token.text.as_str())
    }

    /// Returns the unread arguments.
    pub(crate) fn rest(&self) -> &'a [DirectiveToken] {
        self.rest
    }

    /// Reads the next word if it equals `word`.
    pub(crate) fn take(&mut self, word: &str) -> Option<&'a DirectiveToken> {
        if self.peek() == Some(word) { self.next() } else { None }
    }

    /// Returns the origin of the directive's value.
    pub(crate) fn origin(&self) -> Origin {
        self.name.origin()
    }

    /// Reads the next word, which is required.
    pub(crate) fn need(&mut self, what: &str) -> Result<&'a DirectiveToken, DirectiveFault> {
        self.next().ok_or_else(|| {
            DirectiveFault::at(
                self.name,
                format!("{what} not specified"),
                format!("allowed: {}", self.grammar),
            )
        })
    }

    pub(crate) fn size(&mut self, what: &str, range: ValueRange) -> Result<u64, DirectiveFault> {
        values::size(self.need(&format!("{what} value"))?, what, range)
    }

    pub(crate) fn time(&mut self, what: &str, range: ValueRange) -> Result<Duration, DirectiveFault> {
        values::time(self.need(&format!("{what} value"))?, what, range)
    }

    pub(crate) fn count(&mut self, what: &str, min: u32, max: u32) -> Result<u32, DirectiveFault> {
        values::count32(self.need(&format!("{what} value"))?, what, min, max)
    }

    pub(crate) fn path(&mut self, what: &str) -> Result<String, DirectiveFault> {
        values::path(self.need(&format!("{what} path"))?, what)
    }

    /// Returns a fault for a word that is not among the allowed ones.
    pub(crate) fn invalid(&self, token: &DirectiveToken, what: &str) -> DirectiveFault {
        let allowed = format!("allowed: {}", self.grammar);
        DirectiveFault::at(token, format!("invalid {what} '{}'", token.text), allowed)
    }
}
