//! The body of the replies to `kXR_dirlist`.
//!
//! Entries are in any order, without `.` and `..`, each ended by LF; the last byte of the whole
//! answer is NUL instead.
//!
//! | form  | empty directory   | otherwise                                            |
//! |-------|-------------------|------------------------------------------------------|
//! | plain | no bytes          | `name LF` …                                          |
//! | dstat | `.LF 0 0 0 0 NUL` | `.LF 0 0 0 0 LF` once, then `name LF stat-text LF` … |
//! | dcksm | as for dstat      | ` [ type:value ]` after the stat text                |
//!
//! The pseudo entry `.` exists so that a client can detect whether the server appended the status.
//! Long listings are split into `kXR_oksofar` frames between entries. A name that contains LF
//! cannot be represented.
//!
//! Source: xroot protocol 5.2.0, section 2.7. Recorded: `raw_dirlist`, `fs_ls_l`.

use super::stat_text::{ListedChecksum, StatText};
use crate::codec::Encode;
use crate::error::WireError;

/// The pseudo entry at the start of a listing with stat texts, including its last LF.
pub const STAT_PREFIX: &[u8] = b".\n0 0 0 0\n";

/// Appends an entry. Returns `false` and appends no bytes if the name cannot be represented.
pub fn entry(out: &mut Vec<u8>, name: &[u8]) -> bool {
    let expressible = !name.is_empty() && !name.iter().any(|&byte| byte == b'\n' || byte == 0);
    if expressible {
        out.extend_from_slice(name);
        out.push(b'\n');
    }
    expressible
}

/// Appends an entry with its stat text, and its checksum if requested. Returns `false` in the case
/// of [`entry`].
pub fn entry_with_stat(
    out: &mut Vec<u8>,
    name: &[u8],
    stat: &StatText<'_>,
    checksum: Option<&ListedChecksum<'_>>,
) -> bool {
    if !entry(out, name) {
        return false;
    }
    stat.encode(out);
    if let Some(checksum) = checksum {
        checksum.encode(out);
    }
    out.push(b'\n');
    true
}

/// Ends the body of the last frame, which begins at `body_at` of `out`, by replacing its last LF
/// with NUL. An empty body stays empty.
pub fn finish(out: &mut [u8], body_at: usize) {
    if let Some(last @ b'\n') = out.get_mut(body_at..).and_then(<[u8]>::last_mut) {
        *last = 0;
    }
}

/// An iterator over a complete listing, that is, the concatenated bodies of all its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listing<'a> {
    rest: &'a [u8],
    with_stat: bool,
}

/// An entry of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Name of the entry.
    pub name: &'a [u8],
    /// Status of the entry, if the server appended it.
    pub stat: Option<StatText<'a>>,
    /// Checksum of the entry, if the server appended it.
    pub checksum: Option<ListedChecksum<'a>>,
}

impl<'a> Listing<'a> {
    /// Creates a listing from the concatenated bodies.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        // The last line of the prefix ends with NUL if the directory is empty.
        let prefix = STAT_PREFIX.split_last().map_or(STAT_PREFIX, |(_, prefix)| prefix);
        match body.strip_prefix(prefix).and_then(<[u8]>::split_first) {
            Some((b'\n' | 0, rest)) => Self { rest, with_stat: true },
            _ => Self { rest: body, with_stat: false },
        }
    }

    /// Reports whether entries have a status. Otherwise it was not requested or the server does not
    /// support it.
    #[must_use]
    pub const fn has_stat(&self) -> bool {
        self.with_stat
    }

    /// Returns the number of bytes behind the entries already returned.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&byte| byte == b'\n' || byte == 0).unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest.split_first().map_or(&[], |(_, rest)| rest);
        Some(line)
    }
}

impl<'a> Iterator for Listing<'a> {
    type Item = Result<Entry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let name = self.line().filter(|name| !name.is_empty())?;
        if !self.with_stat {
            return Some(Ok(Entry { name, stat: None, checksum: None }));
        }
        let parsed = StatText::parse_listed(self.line().unwrap_or_default());
        Some(parsed.map(|(stat, checksum)| Entry { name, stat: Some(stat), checksum }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Decode;

    fn plain(names: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        names.iter().for_each(|name| assert!(entry(&mut out, name)));
        finish(&mut out, 0);
        out
    }

    fn names(body: &[u8]) -> Vec<Vec<u8>> {
        Listing::new(body).map(|entry| entry.unwrap().name.to_vec()).collect()
    }

    #[test]
    fn plain_listings_encode_and_decode() {
        assert_eq!(plain(&[]), b"");
        assert_eq!(plain(&[b"a", b"b c"]), b"a\nb c\0");
        assert_eq!(names(b"a\nb c\0"), [&b"a"[..], b"b c"]);
        assert!(names(b"").is_empty());
        assert!(!Listing::new(b"a\0").has_stat());
    }

    #[test]
    fn names_that_cannot_be_represented_are_refused() {
        let mut out = Vec::new();
        for name in [&b""[..], b"a\nb", b"a\0b"] {
            assert!(!entry(&mut out, name));
        }
        assert!(out.is_empty());
    }

    #[test]
    fn listings_with_stat_and_checksum_encode_and_decode() {
        let stat = StatText::decode(b"1 2 48 4 5 6 0644 o g").unwrap();
        let checksum = ListedChecksum { kind: b"adler32", value: None };
        let mut out = STAT_PREFIX.to_vec();
        assert!(entry_with_stat(&mut out, b"one", &stat, Some(&checksum)));
        assert!(entry_with_stat(&mut out, b"two", &stat, None));
        finish(&mut out, 0);
        assert!(out.ends_with(b"o g\0"));
        let entries: Vec<_> = Listing::new(&out).map(Result::unwrap).collect();
        let expected = Entry { name: b"one", stat: Some(stat), checksum: Some(checksum) };
        assert_eq!(entries, [expected, Entry { name: b"two", stat: Some(stat), checksum: None }]);
    }

    #[test]
    fn an_empty_directory_with_stat_is_the_prefix_alone() {
        let mut out = STAT_PREFIX.to_vec();
        finish(&mut out, 0);
        assert_eq!(out, b".\n0 0 0 0\0");
        assert!(Listing::new(&out).has_stat());
        assert_eq!(Listing::new(&out).count(), 0);
    }

    #[test]
    fn a_missing_stat_text_is_an_error() {
        let body = [STAT_PREFIX, b"one\0"].concat();
        assert!(Listing::new(&body).any(|entry| entry.is_err()));
    }
}
