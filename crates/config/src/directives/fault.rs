//! The reason to reject a directive.
//!
//! It is apart from the arguments, because the parsers of values return it and the arguments use
//! those parsers.

use super::shared::STOPS_UNPROTECTED;
use crate::language::DirectiveToken;
use crate::report::ProblemKind;
use crate::setting::Origin;

/// The reason to reject a directive.
#[derive(Debug)]
pub(crate) struct DirectiveFault {
    pub(crate) kind: ProblemKind,
    pub(crate) origin: Origin,
    pub(crate) what: String,
    pub(crate) allowed: String,
    /// The argument it is about, for a list of faults; may be empty.
    pub(crate) subject: String,
}

impl DirectiveFault {
    /// Returns a fault for a bad value at a token.
    pub(crate) fn at(token: &DirectiveToken, what: impl Into<String>, allowed: impl Into<String>) -> Self {
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

    /// Replaces the advice of a directive that stops the start by the remedy that has the same purpose.
    pub(crate) fn instead(self, remedy: &str) -> Self {
        Self { allowed: format!("{STOPS_UNPROTECTED}; {remedy}"), ..self }
    }

    /// Changes the kind of the problem.
    pub(crate) fn of(self, kind: ProblemKind) -> Self {
        Self { kind, ..self }
    }
}
