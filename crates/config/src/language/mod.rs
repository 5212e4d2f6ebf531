//! The language itself: files to directives.
//!
//! It evaluates conditions, substitutes variables and follows `continue`. `lines` splits text into
//! tokens, `variables` substitutes, `condition` evaluates `if`, and `stream` drives them. It knows
//! no directives except its own, which keeps the tables in `directives` independent of the syntax.

mod condition;
mod lines;
mod stream;
#[cfg(test)]
mod tests;
mod variables;

use std::collections::BTreeMap;

pub(crate) use stream::{Evaluated, evaluate};

use crate::setting::{Origin, Position};

/// Maximum length of a logical line (continuation lines joined), in characters.
pub(crate) const LINE_CHARS_MAX: usize = 16 * 1024;
/// Maximum length of a variable name, in characters.
pub(crate) const VARIABLE_NAME_MAX: usize = 63;
/// Maximum length of a token after substitution, in characters.
pub(crate) const SUBSTITUTED_CHARS_MAX: usize = 512;
/// Upper bound (exclusive) of a file that `set NAME < file` reads, in bytes.
pub(crate) const VALUE_FILE_BYTES_MAX: usize = 1024;
/// Maximum number of files of one configuration.
pub(crate) const FILES_MAX: usize = 1024;

/// Instance name of a server without one.
pub const ANONYMOUS: &str = "anon";

/// The program, instance and host for which a configuration is evaluated. Conditions and variables
/// depend on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Evaluation {
    /// `xrootd`, `cmsd`, …: compared by `if exec`.
    pub program: String,
    /// `-n`; `None` is the anonymous instance, which `if named anon` matches.
    pub instance: Option<String>,
    /// The canonical host name, compared by `if HOST`.
    pub host: String,
    /// Environment variables, for `set NAME = $VARIABLE` and `if defined ?~VARIABLE`.
    pub environment: BTreeMap<String, String>,
}

/// One word of a directive, after substitution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DirectiveToken {
    pub(crate) text: String,
    pub(crate) position: Position,
}

impl DirectiveToken {
    pub(crate) fn origin(&self) -> Origin {
        Origin::File(self.position.clone())
    }
}

/// One directive that applies: its name and its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Statement {
    pub(crate) name: DirectiveToken,
    pub(crate) arguments: Vec<DirectiveToken>,
}
