//! The records of an authorization database after parsing, and the problems found in them.

use super::privileges::Privileges;
use super::tokens::AuthdbPosition;
use std::fmt;

/// Maximum size of a file in bytes.
pub const AUTHDB_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of paths of all records, after the expansion of templates. Without a limit,
/// templates that use templates grow exponentially.
pub const AUTHDB_PAIRS_MAX: usize = 1 << 20;
/// Maximum number of errors, and of warnings, that are reported for a file.
pub const AUTHDB_PROBLEMS_MAX: usize = 20;

/// `acc.encoding`: the spelling of identifiers and paths in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AuthdbEncoding {
    /// A character that stands for a blank in identifiers.
    pub space: Option<u8>,
    /// Decode `%XX` in paths.
    pub decode_paths: bool,
}

/// An error or warning at a position of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthdbProblem {
    /// Position.
    pub at: AuthdbPosition,
    /// Description, and what to do.
    pub what: String,
}

impl fmt::Display for AuthdbProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// The clients to which a record applies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecordKind {
    /// `u *`: everybody.
    Everybody,
    /// `u =`: every client with a name.
    Named,
    /// `u name`.
    User,
    /// `g group`.
    Group,
    /// `h host`.
    Host,
    /// `h .domain`.
    Domain,
    /// `n netgroup`.
    Netgroup,
    /// `o organization`.
    Organization,
    /// `r role`.
    Role,
    /// `s identity`: adds to the others.
    Special,
    /// `x identity`: decides alone.
    Exclusive,
}

impl RecordKind {
    /// Returns the letter of the record.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Everybody | Self::Named | Self::User => 'u',
            Self::Group => 'g',
            Self::Host | Self::Domain => 'h',
            Self::Netgroup => 'n',
            Self::Organization => 'o',
            Self::Role => 'r',
            Self::Special => 's',
            Self::Exclusive => 'x',
        }
    }
}

/// A path with its privileges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AuthdbPair {
    pub(super) path: Box<[u8]>,
    pub(super) positive: Privileges,
    pub(super) negative: Privileges,
    /// Position of the path; for a pair of a template, in the template.
    pub(super) at: AuthdbPosition,
}

/// The parts of a compound identity. All present parts must match.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CompoundIdentity {
    pub(super) user: Option<Box<[u8]>>,
    pub(super) host: Option<Box<[u8]>>,
    pub(super) group: Option<Box<[u8]>>,
    pub(super) organization: Option<Box<[u8]>>,
    pub(super) role: Option<Box<[u8]>>,
}

impl CompoundIdentity {
    /// Reports whether every client with another identity has this one, too.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let is_part = |own: &Option<Box<[u8]>>, others: &Option<Box<[u8]>>| own.is_none() || own == others;
        is_part(&self.user, &other.user)
            && is_part(&self.host, &other.host)
            && is_part(&self.group, &other.group)
            && is_part(&self.organization, &other.organization)
            && is_part(&self.role, &other.role)
    }
}

/// A record that grants or denies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AuthdbRule {
    pub(super) kind: RecordKind,
    pub(super) id: Box<[u8]>,
    pub(super) at: AuthdbPosition,
    pub(super) pairs: Vec<AuthdbPair>,
    /// The identity of `s` and `x` records.
    pub(super) compound: Option<CompoundIdentity>,
}

/// A parsed file.
#[derive(Debug, Default)]
pub(super) struct ParsedAuthdb {
    /// The records that grant or deny, in file order.
    pub(super) rules: Vec<AuthdbRule>,
    /// Number of records of all types.
    pub(super) records: usize,
    /// Records and paths that have no effect.
    pub(super) warnings: Vec<AuthdbProblem>,
}
