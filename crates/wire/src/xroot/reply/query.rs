//! Texts in answer to `kXR_query`.
//!
//! | type  | text                                                                                       |
//! |-------|--------------------------------------------------------------------------------------------|
//! | cksum | `type hex`, then NUL                                                                       |
//! | space | `oss.cgroup=…&oss.space=…&oss.free=…&oss.maxf=…&oss.used=…&oss.quota=…`, then NUL          |
//! | xattr | `oss.cgroup=…&oss.type=f&oss.used=…&oss.mt=…&oss.ct=…&oss.at=…&oss.u=*&oss.g=*&oss.fs=w&ofs.ap=a`, then NUL |
//! | config| one line per key, `value LF`, no NUL                                                       |
//!
//! Source: xroot protocol 5.2.0, section 2.16. Recorded: `raw_query`, `fs_query_misc`, `fs_query_config`.

use std::io::Write as _;

use crate::error::WireError;
use crate::xroot::cgi::Cgi;

/// A checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checksum<'a> {
    /// Name of the algorithm, lower case.
    pub kind: &'a [u8],
    /// The value in hexadecimal.
    pub value: &'a [u8],
}

impl<'a> Checksum<'a> {
    /// Appends `type hex` and a NUL.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.kind);
        out.push(b' ');
        out.extend_from_slice(self.value);
        out.push(0);
    }

    /// Parses exactly two words, with or without NUL.
    ///
    /// # Errors
    /// [`WireError::BadText`].
    pub fn parse(text: &'a [u8]) -> Result<Self, WireError> {
        let line = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        match [words.next(), words.next(), words.next()] {
            [Some(kind), Some(value), None] => Ok(Self { kind, value }),
            _ => Err(WireError::BadText { field: "checksum" }),
        }
    }
}

/// Answer to a query for space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceText<'a> {
    /// Name of the space.
    pub cgroup: &'a [u8],
    /// Bytes there are.
    pub space: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes of the largest free area.
    pub largest_free: u64,
    /// Bytes that are used.
    pub used: u64,
    /// Bytes that may be used; `None` without quota, printed as -1.
    pub quota: Option<u64>,
}

impl<'a> SpaceText<'a> {
    /// Appends the text and a NUL.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Self { space, free, largest_free, used, .. } = self;
        out.extend_from_slice(b"oss.cgroup=");
        out.extend_from_slice(self.cgroup);
        // Writing to memory cannot fail.
        let _ = write!(out, "&oss.space={space}&oss.free={free}&oss.maxf={largest_free}&oss.used={used}");
        let _ = match self.quota {
            Some(quota) => write!(out, "&oss.quota={quota}\0"),
            None => write!(out, "&oss.quota=-1\0"),
        };
    }

    /// Parses the text, with or without NUL.
    ///
    /// # Errors
    /// [`WireError::BadText`] naming the number that is missing or malformed.
    pub fn parse(text: &'a [u8]) -> Result<Self, WireError> {
        let cgi = Cgi::new(text.split(|&byte| byte == 0).next().unwrap_or_default());
        let number = |key: &'static str| cgi.number::<u64>(key).ok_or(WireError::BadText { field: key });
        Ok(Self {
            cgroup: cgi.get("oss.cgroup").unwrap_or_default(),
            space: number("oss.space")?,
            free: number("oss.free")?,
            largest_free: number("oss.maxf")?,
            used: number("oss.used")?,
            quota: cgi.number("oss.quota"),
        })
    }
}

/// Answer to a query for the attributes of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XattrText<'a> {
    /// Name of the space.
    pub cgroup: &'a [u8],
    /// `f` file, `d` directory, `o` other.
    pub kind: u8,
    /// Bytes.
    pub used: u64,
    /// Last modification, seconds since the epoch.
    pub mtime: i64,
    /// Last change of the attributes, seconds since the epoch.
    pub ctime: i64,
    /// Last access, seconds since the epoch.
    pub atime: i64,
    /// Whether the path may be written.
    pub writable: bool,
    /// What the client may do, a letter for each privilege; `a` is all.
    pub privileges: &'a [u8],
}

impl XattrText<'_> {
    /// Appends the text and a NUL.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Self { used, mtime, ctime, atime, .. } = self;
        out.extend_from_slice(b"oss.cgroup=");
        out.extend_from_slice(self.cgroup);
        out.extend_from_slice(b"&oss.type=");
        out.push(self.kind);
        // Writing to memory cannot fail.
        let _ = write!(out, "&oss.used={used}&oss.mt={mtime}&oss.ct={ctime}&oss.at={atime}&oss.u=*&oss.g=*");
        out.extend_from_slice(if self.writable { b"&oss.fs=w&ofs.ap=" } else { b"&oss.fs=r&ofs.ap=" });
        out.extend_from_slice(self.privileges);
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_exactly_two_words() {
        let checksum = Checksum::parse(b"adler32 cfbd70e6\0").unwrap();
        let mut out = Vec::new();
        checksum.encode(&mut out);
        assert_eq!(out, b"adler32 cfbd70e6\0");
        assert!(Checksum::parse(b"adler32").is_err());
        assert!(Checksum::parse(b"adler32 a b").is_err());
    }

    #[test]
    fn space_both_ways() {
        let text = b"oss.cgroup=public&oss.space=9&oss.free=5&oss.maxf=4&oss.used=3&oss.quota=-1\0";
        let space = SpaceText::parse(text).unwrap();
        assert_eq!(
            (space.space, space.free, space.largest_free, space.used, space.quota),
            (9, 5, 4, 3, None)
        );
        let mut out = Vec::new();
        space.encode(&mut out);
        assert_eq!(out, text);
    }
}
