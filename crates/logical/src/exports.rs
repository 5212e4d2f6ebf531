//! The exported parts of the name space, and the lookup of a path's export. Every operation starts
//! with this lookup, because a path outside of all exports is refused.

use crate::config::Export;
use crate::errno::{self, unable};
use base::{Error, ErrorKind, LogicalPath};

/// All exports of a server.
pub(crate) struct Exports {
    /// Sorted by length of the prefix, the longest first.
    sorted: Vec<Export>,
}

impl Exports {
    pub(crate) fn new(exports: &[Export]) -> Self {
        let mut sorted = exports.to_vec();
        sorted.sort_by_key(|export| std::cmp::Reverse(export.prefix.without_slash().as_bytes().len()));
        Self { sorted }
    }

    /// Returns all exports, longest prefix first.
    pub(crate) fn all(&self) -> &[Export] {
        &self.sorted
    }

    /// Returns the export of a path. Outside of all exports the error is `Stating path '/x' is
    /// disallowed.` with the participle of the operation.
    pub(crate) fn find(&self, path: &LogicalPath, participle: &str) -> Result<&Export, Error> {
        self.sorted.iter().find(|export| path.is_within(&export.prefix)).ok_or_else(|| {
            Error::new(
                ErrorKind::NotAuthorized,
                format!("{participle} path '{}' is disallowed.", path.text()),
            )
        })
    }

    /// Returns the export of a path, unless it is read-only.
    pub(crate) fn find_writable(
        &self,
        path: &LogicalPath,
        participle: &str,
        verb: &str,
    ) -> Result<&Export, Error> {
        let export = self.find(path, participle)?;
        if export.is_read_only() { Err(unable(verb, path, errno::READ_ONLY)) } else { Ok(export) }
    }
}
