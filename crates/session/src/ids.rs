//! Identifiers that the session and its driver exchange.

/// A connection of a session: 0 is the control connection, 1 to 15 are the path ids of bound ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PathId(pub u8);

impl PathId {
    /// The connection that logged in.
    pub const CONTROL: Self = Self(0);
}

/// Identifies a request without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallId(pub u32);

/// A slot of the table of open files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileIndex(pub u32);

/// Identifies an operation from its registration to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SequenceId(pub(crate) u32);
