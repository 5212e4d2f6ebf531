//! Paths of requests: cut, checked and named in errors the way clients know them.

use base::{Cgi, Error, ErrorKind, LogicalPath, PathError};
use vfs::Target;

/// The word for what a request does to a path, in refusals of the path.
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
    pub(crate) const INSPECT_ATTRIBUTES: Self = Self("Inspecting file attributes");
    pub(crate) const MODIFY_ATTRIBUTES: Self = Self("Modifying file attributes");
}

/// `path[?cgi]`; a NUL ends it.
pub(crate) fn target(raw: &[u8], verb: Verb) -> Result<Target, Error> {
    let raw = raw.split(|&byte| byte == 0).next().unwrap_or_default();
    let (path, cgi) = Cgi::split(raw);
    match LogicalPath::parse(path) {
        Ok(path) => Ok(Target { path, cgi }),
        Err(PathError::TooLong) => {
            Err(Error::new(ErrorKind::ArgTooLong, format!("{} path is too long", verb.0)))
        }
        Err(PathError::Relative | PathError::Nul) => {
            let path = String::from_utf8_lossy(path);
            let text = format!("{} relative path '{path}' is disallowed.", verb.0);
            Err(Error::new(ErrorKind::NotAuthorized, text))
        }
    }
}

/// Several of them, one a line; empty lines are passed over.
pub(crate) fn targets(raw: &[u8], verb: Verb) -> Result<Vec<Target>, Error> {
    let raw = raw.split(|&byte| byte == 0).next().unwrap_or_default();
    raw.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(|line| target(line, verb)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_refused_in_the_words_clients_know() {
        let text = |raw: &[u8]| target(raw, Verb::STAT).unwrap_err().text;
        assert_eq!(text(b"data/x"), "Stating relative path 'data/x' is disallowed.");
        assert_eq!(text(b"/data/../x?y"), "Stating relative path '/data/../x' is disallowed.");
        let fine = target(b"/a//b?x=1?y\0rest", Verb::OPEN).unwrap();
        assert_eq!((fine.path.to_string().as_str(), fine.cgi.as_bytes()), ("/a/b", &b"x=1?y"[..]));
    }

    #[test]
    fn lists_have_a_path_on_each_line() {
        let list = targets(b"/a\n\n/b?c\n", Verb::PREPARE).unwrap();
        assert_eq!(list.len(), 2);
        assert!(targets(b"/a\nb", Verb::PREPARE).is_err());
    }
}
