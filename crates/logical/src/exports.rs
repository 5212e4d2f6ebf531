//! The exported parts of the name space, and the lookup of a path's export. Every operation starts
//! with this lookup, because a path outside of all exports is refused.

use crate::config::ExportConfig;
use crate::errno::{self, unable};
use base::{Error, ErrorKind, LogicalPath};

/// Names that an error lists at most, and their bytes.
const LISTED_MAX: usize = 8;
const LISTED_BYTES_MAX: usize = 512;

/// The names, as many as an error has room for, with the number of the others.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut left = 0;
    for (index, name) in names.enumerate() {
        if index >= LISTED_MAX || text.len() + name.len() > LISTED_BYTES_MAX {
            left += 1;
            continue;
        }
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
    }
    if left > 0 {
        text.push_str(&format!(" and {left} more"));
    }
    text
}

/// All exports of a server.
pub(crate) struct ExportTable {
    /// Sorted by length of the prefix, the longest first.
    sorted: Vec<ExportConfig>,
}

impl ExportTable {
    pub(crate) fn new(exports: &[ExportConfig]) -> Self {
        let mut sorted = exports.to_vec();
        sorted.sort_by_key(|export| std::cmp::Reverse(export.prefix.without_slash().as_bytes().len()));
        Self { sorted }
    }

    /// Returns all exports, longest prefix first.
    pub(crate) fn all(&self) -> &[ExportConfig] {
        &self.sorted
    }

    /// Returns the export of a path. Outside of all exports the error is `Stating path '/x' is
    /// disallowed.` with the participle of the operation, and lists the exports.
    pub(crate) fn find(&self, path: &LogicalPath, participle: &str) -> Result<&ExportConfig, Error> {
        if storage::is_replacement(path) {
            let text = format!(
                "{participle} path '{}' is disallowed. The name is reserved for files that replace others.",
                path.text()
            );
            return Err(Error::new(ErrorKind::NotAuthorized, text));
        }
        self.sorted.iter().find(|export| path.is_within(&export.prefix)).ok_or_else(|| {
            let mut exported: Vec<String> =
                self.sorted.iter().map(|export| export.prefix.without_slash().text().into_owned()).collect();
            exported.sort();
            let exported = list(exported.iter().map(String::as_str));
            let text =
                format!("{participle} path '{}' is disallowed. This server exports {exported}.", path.text());
            Error::new(ErrorKind::NotAuthorized, text)
        })
    }

    /// Returns the export of a path, unless it is read-only.
    pub(crate) fn find_writable(
        &self,
        path: &LogicalPath,
        participle: &str,
        verb: &str,
    ) -> Result<&ExportConfig, Error> {
        let export = self.find(path, participle)?;
        if export.is_read_only() { Err(unable(verb, path, errno::READ_ONLY)) } else { Ok(export) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_in_an_error_is_bounded() {
        let names: Vec<String> = (0..10).map(|number| format!("/{number}")).collect();
        let all = |names: &[String]| list(names.iter().map(String::as_str));
        assert_eq!(all(&names[..2]), "/0, /1");
        assert_eq!(all(&names), "/0, /1, /2, /3, /4, /5, /6, /7 and 2 more");
        let long = vec!["/".repeat(LISTED_BYTES_MAX), "/a".to_owned()];
        assert!(all(&long).ends_with(" and 1 more") && all(&long).len() < 2 * LISTED_BYTES_MAX);
    }
}
