//! The language itself: files to directives, with conditions evaluated, variables substituted and `continue`
//! followed. Knows no directive but its own.
//!
//! `lines` cuts text into tokens, `variables` substitutes, `condition` decides `if`, `stream` drives.

mod condition;
mod lines;
mod stream;
#[cfg(test)]
mod tests;
mod variables;

use std::collections::BTreeMap;

pub(crate) use stream::{Evaluated, evaluate};

use crate::setting::{Origin, Position};

/// Longest logical line (continuation lines joined), in characters.
pub(crate) const LINE_CHARS_MAX: usize = 16 * 1024;
/// Longest variable name, in characters.
pub(crate) const VARIABLE_NAME_MAX: usize = 63;
/// Longest token after substitution, in characters.
pub(crate) const SUBSTITUTED_CHARS_MAX: usize = 512;
/// Largest file that `set NAME < file` reads, in bytes, plus one.
pub(crate) const VALUE_FILE_BYTES_MAX: usize = 1024;
/// Most files one configuration may consist of.
pub(crate) const FILES_MAX: usize = 1024;

/// Instance name of a server without one.
pub const ANONYMOUS: &str = "anon";

/// For whom a configuration is evaluated: conditions and variables depend on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Evaluation {
    /// `xrootd`, `cmsd`, …: what `if exec` compares with.
    pub program: String,
    /// `-n`; `None` is the anonymous instance, which `if named anon` finds.
    pub instance: Option<String>,
    /// The canonical host name: what `if HOST` compares with.
    pub host: String,
    /// Environment variables, for `set NAME = $VARIABLE` and `if defined ?~VARIABLE`.
    pub environment: BTreeMap<String, String>,
}

/// One word of a directive, after substitution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) position: Position,
}

impl Token {
    pub(crate) fn origin(&self) -> Origin {
        Origin::File(self.position.clone())
    }
}

/// One directive that applies: its name and its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Statement {
    pub(crate) name: Token,
    pub(crate) arguments: Vec<Token>,
}
