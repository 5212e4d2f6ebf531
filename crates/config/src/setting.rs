//! A value and where it came from: what `config show` prints and every message points at.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A place in a configuration file. Lines and columns count from 1; columns count characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The file as it was named (on the command line or by `continue`).
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Who decided a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Origin {
    /// Nobody: it is the built-in default.
    #[default]
    Default,
    /// An option or argument of the command line.
    CommandLine,
    /// A directive in a file.
    File(Position),
}

impl Origin {
    /// True for a value that nobody set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        matches!(self, Self::Default)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::CommandLine => f.write_str("command line"),
            Self::File(position) => position.fmt(f),
        }
    }
}

/// One effective value with its origin. Reads like the value itself (`*setting`, `setting.method()`).
/// Equality looks at the value and the origin; compare `value` to ask whether anything changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Setting<T> {
    /// The value in force.
    pub value: T,
    /// Who decided it.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// A built-in default.
    pub fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    /// A value with its origin.
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// A value from the command line.
    pub fn from_command_line(value: T) -> Self {
        Self { value, origin: Origin::CommandLine }
    }

    /// Replaces value and origin.
    pub fn set(&mut self, value: T, origin: Origin) {
        self.value = value;
        self.origin = origin;
    }
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
