//! A value and its origin.
//!
//! The origin is kept because `config show` prints it and error messages refer to it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A position in a configuration file. Lines and columns count from 1; columns count characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The file as named on the command line or by `continue`.
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

/// The origin of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Origin {
    /// The built-in default.
    #[default]
    Default,
    /// An option or argument of the command line.
    CommandLine,
    /// A directive in a file.
    File(Position),
}

impl Origin {
    /// Reports whether the value is the built-in default.
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

/// An effective value with its origin. It dereferences to the value (`*setting`,
/// `setting.method()`). Equality includes the origin; compare `value` to find changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Setting<T> {
    /// The value in force.
    pub value: T,
    /// The origin of the value.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// Returns a built-in default.
    pub fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    /// Returns a value with its origin.
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// Returns a value from the command line.
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
