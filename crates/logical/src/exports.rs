//! The exported parts of the name space, and which of them a path lies in.

use crate::config::Export;
use crate::errno::{self, unable};
use base::{Error, ErrorKind, LogicalPath};

/// All exports of a server.
pub(crate) struct Exports {
    /// Longest prefix first.
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

    /// Returns the export that a path lies in. Outside of all exports the error is
    /// `Stating path '/x' is disallowed.` with the operation's participle.
    pub(crate) fn find(&self, path: &LogicalPath, participle: &str) -> Result<&Export, Error> {
        self.sorted.iter().find(|export| path.is_within(&export.prefix)).ok_or_else(|| {
            Error::new(
                ErrorKind::NotAuthorized,
                format!("{participle} path '{}' is disallowed.", path.text()),
            )
        })
    }

    /// Returns the export that a path lies in, if clients may change it.
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
