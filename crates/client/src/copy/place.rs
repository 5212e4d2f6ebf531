//! [`Place`]: the source or target of a copy.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::path::{Name, NameError, RelativePath, shown_path};
use crate::url::{Scheme, Url};
use crate::url_error::UrlError;

/// A file, a directory, or a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// On this machine.
    Local(PathBuf),
    /// On a server.
    Remote(Url),
    /// Standard input or output.
    Stream,
}

impl Place {
    /// Parses text written by users: a URL with `://`, `-`, or a path on this machine.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text == "-" {
            return Ok(Self::Stream);
        }
        let is_url = text.split_once("://").is_some_and(|(name, _)| !name.contains(['/', '?']));
        if !is_url {
            return if text.is_empty() { Err(UrlError::Empty) } else { Ok(Self::Local(text.into())) };
        }
        let url = Url::parse(text)?.with_decoded_path()?;
        Ok(match url.scheme {
            Scheme::File => Self::Local(url.local.into()),
            Scheme::Stdio => Self::Stream,
            _ => Self::Remote(url),
        })
    }

    /// Returns the last component of its path; `None` if none names an entry.
    #[must_use]
    pub fn name(&self) -> Option<OsString> {
        match self {
            Self::Local(path) => path.file_name().map(OsStr::to_owned),
            Self::Remote(url) => url.path.name().map(|name| name.to_os()),
            Self::Stream => None,
        }
    }

    /// Returns the place of an entry of this directory.
    #[must_use]
    pub fn join(&self, name: &Name) -> Self {
        match self {
            Self::Local(path) => Self::Local(path.join(name.to_os())),
            Self::Remote(url) => Self::Remote(url.at(url.path.join(name))),
            Self::Stream => Self::Stream,
        }
    }

    /// Returns the place of the entry with this local name: one component, of any bytes.
    ///
    /// # Errors
    /// [`NameError`] if no request can carry it to the server of this place.
    pub fn join_os(&self, name: &OsStr) -> Result<Self, NameError> {
        match self {
            Self::Local(path) => Ok(Self::Local(path.join(name))),
            Self::Remote(_) => Name::from_os(name).map(|name| self.join(&name)),
            Self::Stream => Ok(Self::Stream),
        }
    }

    /// Returns the place of a descendant of this directory.
    #[must_use]
    pub fn below(&self, path: &RelativePath) -> Self {
        match self {
            _ if path.is_empty() => self.clone(),
            Self::Local(above) => Self::Local(above.join(path.to_path())),
            Self::Remote(url) => Self::Remote(url.at(url.path.below(path))),
            Self::Stream => Self::Stream,
        }
    }

    /// Reports whether it has the form of a directory, with `/` at its end.
    #[must_use]
    pub fn ends_with_slash(&self) -> bool {
        match self {
            Self::Local(path) => path.as_os_str().as_encoded_bytes().ends_with(b"/"),
            Self::Remote(url) => url.path.ends_with('/'),
            Self::Stream => false,
        }
    }

    /// Returns the URL, if it is on a server.
    #[must_use]
    pub fn url(&self) -> Option<&Url> {
        if let Self::Remote(url) = self { Some(url) } else { None }
    }

    /// Returns the path, if it is on this machine.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        if let Self::Local(path) = self { Some(path) } else { None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => f.write_str(&shown_path(path)),
            Self::Remote(url) => url.fmt(f),
            Self::Stream => f.write_str("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write() {
        let local = |path: &str| Place::Local(path.into());
        for (text, place) in [
            ("a", local("a")),
            ("/a/b", local("/a/b")),
            ("file:///a", local("/a")),
            ("a://b/c", local("a://b/c")),
            ("./x?y", local("./x?y")),
            ("-", Place::Stream),
        ] {
            if text == "a://b/c" {
                assert_eq!(Place::parse(text), Err(UrlError::UnknownScheme("a".into())));
            } else {
                assert_eq!(Place::parse(text).unwrap(), place, "{text}");
            }
        }
        assert_eq!(Place::parse("root://h//a").unwrap().to_string(), "root://h:1094//a");
        assert_eq!(Place::parse(""), Err(UrlError::Empty));
    }

    #[test]
    fn names_and_joins() {
        let place = |text: &str| Place::parse(text).unwrap();
        let name = |text: &str| Name::new(text).unwrap();
        assert_eq!(place("root://h//a/b/?x=1").name(), Some("b".into()));
        assert_eq!(place("root://h").name(), None);
        assert_eq!(place("dir/..").name(), None);
        let old = place("dir/data?old").name().unwrap();
        assert_eq!(old, "data?old");
        assert_eq!(place("root://h//a").join_os(&old), Err(NameError::QuestionMark));
        assert_eq!(place("a").join_os(&old), Ok(Place::Local("a/data?old".into())));
        let below = RelativePath::from(name("b")).join(&name("c"));
        assert_eq!(place("root://h//a/?x=1").below(&below).to_string(), "root://h:1094//a/b/c");
        assert_eq!(place("a").join(&name("b")), Place::Local("a/b".into()));
        assert!(place("a/").ends_with_slash() && !place("root://h//a").ends_with_slash());
    }
}
