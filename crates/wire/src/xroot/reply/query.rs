//! Texts that answer `kXR_query`.
//!
//! | type   | text                                                   |
//! |--------|--------------------------------------------------------|
//! | cksum  | `type hex`, then NUL                                   |
//! | space  | see [`SpaceUsageText`]: six `oss.` elements, then NUL       |
//! | xattr  | see [`XattrText`]: `oss.` elements, `ofs.ap`, then NUL |
//! | config | one line per key, `value LF`, no NUL                   |
//!
//! space: `oss.cgroup=…&oss.space=…&oss.free=…&oss.maxf=…&oss.used=…&oss.quota=…`
//!
//! xattr: `oss.cgroup=…&oss.type=f&oss.used=…&oss.mt=…&oss.ct=…&oss.at=…` followed by
//! `&oss.u=*&oss.g=*&oss.fs=w&ofs.ap=a`
//!
//! The keys are in the order of XRootD.
//!
//! Source: xroot protocol 5.2.0, section 2.16. Recorded: `raw_query`, `fs_query_misc`,
//! `fs_query_config`.

use std::io::Write as _;

use crate::codec::{Decode, Encode};
use crate::error::WireError;
use crate::xroot::cgi::CgiText;

/// A checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChecksumText<'a> {
    /// Name of the algorithm, in lower case.
    pub kind: &'a [u8],
    /// The value in hexadecimal.
    pub value: &'a [u8],
}

impl Encode for ChecksumText<'_> {
    /// Appends `type hex` and a NUL.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.kind);
        out.push(b' ');
        out.extend_from_slice(self.value);
        out.push(0);
    }
}

impl<'a> Decode<'a> for ChecksumText<'a> {
    /// Parses exactly two words, with or without NUL.
    ///
    /// # Errors
    /// [`WireError::BadText`] for any other number of words.
    fn decode(text: &'a [u8]) -> Result<Self, WireError> {
        let line = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        match [words.next(), words.next(), words.next()] {
            [Some(kind), Some(value), None] => Ok(Self { kind, value }),
            _ => Err(WireError::BadText { field: "checksum" }),
        }
    }
}

/// The answer to a query for space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceUsageText<'a> {
    /// Name of the space.
    pub cgroup: &'a [u8],
    /// Total bytes.
    pub space: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes of the largest free area.
    pub largest_free: u64,
    /// Used bytes.
    pub used: u64,
    /// Allowed bytes; `None` without quota, encoded as -1.
    pub quota: Option<u64>,
}

impl Encode for SpaceUsageText<'_> {
    /// Appends the text and a NUL.
    fn encode(&self, out: &mut Vec<u8>) {
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
}

impl<'a> Decode<'a> for SpaceUsageText<'a> {
    /// Parses the text, with or without NUL.
    ///
    /// # Errors
    /// [`WireError::BadText`] with the name of a number that is missing or malformed.
    fn decode(text: &'a [u8]) -> Result<Self, WireError> {
        let cgi = CgiText::new(text.split(|&byte| byte == 0).next().unwrap_or_default());
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

/// The answer to a query for the attributes of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XattrText<'a> {
    /// Name of the space.
    pub cgroup: &'a [u8],
    /// `f` file, `d` directory, `o` other.
    pub kind: u8,
    /// Size in bytes.
    pub used: u64,
    /// Modification time in seconds since the epoch.
    pub mtime: i64,
    /// Change time of the attributes in seconds since the epoch.
    pub ctime: i64,
    /// Access time in seconds since the epoch.
    pub atime: i64,
    /// The path may be written.
    pub writable: bool,
    /// Privileges of the client, one letter each; `a` is all.
    pub privileges: &'a [u8],
}

impl Encode for XattrText<'_> {
    /// Appends the text and a NUL.
    fn encode(&self, out: &mut Vec<u8>) {
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
        let checksum = ChecksumText::decode(b"adler32 cfbd70e6\0").unwrap();
        assert_eq!(checksum.encoded(), b"adler32 cfbd70e6\0");
        assert!(ChecksumText::decode(b"adler32").is_err());
        assert!(ChecksumText::decode(b"adler32 a b").is_err());
    }

    #[test]
    fn a_space_text_parses_and_encodes() {
        let text = b"oss.cgroup=public&oss.space=9&oss.free=5&oss.maxf=4&oss.used=3&oss.quota=-1\0";
        let space = SpaceUsageText::decode(text).unwrap();
        assert_eq!(
            (space.space, space.free, space.largest_free, space.used, space.quota),
            (9, 5, 4, 3, None)
        );
        assert_eq!(space.encoded(), text);
    }
}
