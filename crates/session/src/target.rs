//! Parsing of the paths in requests.
//!
//! A refused path is reported with the verb of its request, because clients know these error texts.

use base::Error;
use vfs::{Target, TargetList};

/// The verb for an operation on a path, used in the error when the path is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verb(pub(crate) &'static str);

impl Verb {
    pub(crate) const OPEN: Self = Self("Opening");
    pub(crate) const STAT: Self = Self("Stating");
    pub(crate) const LIST: Self = Self("Listing");
    pub(crate) const LOCATE: Self = Self("Locating");
    pub(crate) const REMOVE: Self = Self("Removing");
    pub(crate) const CREATE: Self = Self("Creating");
    pub(crate) const RENAME: Self = Self("Renaming");
    pub(crate) const RENAME_TO: Self = Self("Renaming to");
    pub(crate) const MODIFY: Self = Self("Modifying");
    pub(crate) const TRUNCATE: Self = Self("Truncating");
    pub(crate) const PREPARE: Self = Self("Preparing");
    pub(crate) const CHECKSUM: Self = Self("Check summing");
    pub(crate) const QUERY: Self = Self("Querying");
    pub(crate) const SET: Self = Self("Setting");
    pub(crate) const INSPECT_ATTRIBUTES: Self = Self("Inspecting file attributes");
    pub(crate) const MODIFY_ATTRIBUTES: Self = Self("Modifying file attributes");
}

/// Parses `path[?cgi]`. A NUL ends it.
pub(crate) fn target(raw: &[u8], verb: Verb) -> Result<Target, Error> {
    Target::parse(raw, verb.0)
}

/// Parses several targets, one per line. Returns `None` if the list is empty.
pub(crate) fn targets(raw: &[u8], verb: Verb) -> Result<Option<TargetList>, Error> {
    TargetList::parse(raw, verb.0)
}
