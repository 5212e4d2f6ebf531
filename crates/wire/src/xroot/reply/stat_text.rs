//! Texts that describe a file or a file system, in `kXR_stat`, `kXR_open` and `kXR_dirlist`.
//!
//! `<id> <size> <flags> <mtime> <ctime> <atime> <mode> <owner> <group>`, ended by NUL, in listings
//! by LF.
//!
//! | field             | format                                                          |
//! |-------------------|-----------------------------------------------------------------|
//! | id                | decimal u64; only compared for equality                         |
//! | size              | decimal bytes                                                   |
//! | flags             | decimal sum of [`StatFlags`]                                    |
//! | mtime ctime atime | seconds since the epoch                                         |
//! | mode              | at least 4 octal digits                                         |
//! | owner group       | names, or numbers if unknown                                    |
//! | `[ type:value ]`  | listings with dcksm only: a checksum, value `none` if not known |
//!
//! Servers before release 5 send only the first four fields, so the others are optional. The text
//! about a file system is `<nRW> <freeRW MB> <utilRW %> <nStg> <freeStg MB> <utilStg %>`.
//!
//! Source: xroot protocol 5.2.0, sections 2.7, 2.26. Recorded: `fs_stat`, `api_fs`, `raw_dirlist`.

use std::io::Write as _;

use crate::codec::{Decode, Encode};
use crate::error::WireError;
use crate::xroot::flags::StatFlags;

/// The fields of a stat text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatText<'a> {
    /// Identity of the object.
    pub id: u64,
    /// Size in bytes.
    pub size: u64,
    /// Kind and state.
    pub flags: StatFlags,
    /// Modification time in seconds since the epoch.
    pub mtime: i64,
    /// The other five fields; servers before release 5 do not send them.
    pub extended: Option<StatExtended<'a>>,
}

/// The fields of a stat text since release 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatExtended<'a> {
    /// Change time of the attributes in seconds since the epoch.
    pub ctime: i64,
    /// Access time in seconds since the epoch.
    pub atime: i64,
    /// Permission bits. The sticky bit is set while persist on successful close is pending.
    pub mode: u32,
    /// Name of the owner, or its number.
    pub owner: &'a [u8],
    /// Name of the group, or its number.
    pub group: &'a [u8],
}

/// A checksum behind a stat text in a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedChecksum<'a> {
    /// Name of the algorithm.
    pub kind: &'a [u8],
    /// The value in lower-case hexadecimal; `None` if the server has no stored checksum.
    pub value: Option<&'a [u8]>,
}

impl Encode for StatText<'_> {
    /// Appends the text, without terminator. Blanks and line ends in owner and group become `_`,
    /// because they would violate the grammar.
    fn encode(&self, out: &mut Vec<u8>) {
        // Listings consist of these texts, and `itoa` takes a third of the time of formatting.
        let mut digits = itoa::Buffer::new();
        let number = |out: &mut Vec<u8>, digits: &str| {
            out.extend_from_slice(digits.as_bytes());
            out.push(b' ');
        };
        number(out, digits.format(self.id));
        number(out, digits.format(self.size));
        number(out, digits.format(self.flags.0));
        out.extend_from_slice(digits.format(self.mtime).as_bytes());
        if let Some(more) = &self.extended {
            out.push(b' ');
            number(out, digits.format(more.ctime));
            number(out, digits.format(more.atime));
            octal_text(out, more.mode);
            out.push(b' ');
            name(out, more.owner);
            out.push(b' ');
            name(out, more.group);
        }
    }
}

impl<'a> Decode<'a> for StatText<'a> {
    /// Parses a text with or without terminator. For a text that may contain a checksum see
    /// [`StatText::parse_listed`].
    ///
    /// # Errors
    /// [`WireError::BadText`] with the name of a field that is missing or not a number.
    fn decode(text: &'a [u8]) -> Result<Self, WireError> {
        Self::parse_listed(text).map(|(stat, _)| stat)
    }
}

impl<'a> StatText<'a> {
    /// Parses a line of a listing.
    ///
    /// # Errors
    /// Those of [`StatText::decode`].
    pub fn parse_listed(text: &'a [u8]) -> Result<(Self, Option<ListedChecksum<'a>>), WireError> {
        let mut words = words(text);
        let mut stat = Self {
            id: identity(words.next())?,
            size: number(words.next(), "stat size")?,
            flags: StatFlags(number(words.next(), "stat flags")?),
            mtime: number(words.next(), "stat mtime")?,
            extended: None,
        };
        let rest: [Option<&[u8]>; 5] = std::array::from_fn(|_| words.next());
        let [Some(ctime), Some(atime), Some(mode), Some(owner), Some(group)] = rest else {
            return Ok((stat, None));
        };
        stat.extended = Some(StatExtended {
            ctime: number(Some(ctime), "stat ctime")?,
            atime: number(Some(atime), "stat atime")?,
            mode: octal(mode)?,
            owner,
            group,
        });
        let checksum = match [words.next(), words.next(), words.next()] {
            [Some(b"["), Some(pair), Some(b"]")] => checksum(pair),
            _ => None,
        };
        Ok((stat, checksum))
    }
}

impl Encode for ListedChecksum<'_> {
    /// Appends the checksum in the form of a listing: blank, bracket, `type:value`, bracket.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b" [ ");
        out.extend_from_slice(self.kind);
        out.push(b':');
        out.extend_from_slice(self.value.unwrap_or(b"none"));
        out.extend_from_slice(b" ]");
    }
}

/// The fields of a text about a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VfsText {
    /// Number of nodes that can write.
    pub writable_nodes: u64,
    /// Free megabytes of the largest writable area.
    pub free_mb: u64,
    /// Used percent of the writable space.
    pub used_percent: u64,
    /// Number of nodes that can stage.
    pub staging_nodes: u64,
    /// Free megabytes of the largest area for staging.
    pub staging_free_mb: u64,
    /// Used percent of the space for staging.
    pub staging_used_percent: u64,
}

impl Encode for VfsText {
    /// Appends the text, without terminator.
    fn encode(&self, out: &mut Vec<u8>) {
        let Self { writable_nodes, free_mb, used_percent, .. } = self;
        let Self { staging_nodes, staging_free_mb, staging_used_percent, .. } = self;
        print(out, format_args!("{writable_nodes} {free_mb} {used_percent} "));
        print(out, format_args!("{staging_nodes} {staging_free_mb} {staging_used_percent}"));
    }
}

impl Decode<'_> for VfsText {
    /// Parses a text with or without terminator.
    ///
    /// # Errors
    /// [`WireError::BadText`] if a number is missing or invalid.
    fn decode(text: &[u8]) -> Result<Self, WireError> {
        let mut words = words(text);
        let mut next = || number(words.next(), "vfs text");
        Ok(Self {
            writable_nodes: next()?,
            free_mb: next()?,
            used_percent: next()?,
            staging_nodes: next()?,
            staging_free_mb: next()?,
            staging_used_percent: next()?,
        })
    }
}

/// Appends at least four octal digits, as `%04o`.
fn octal_text(out: &mut Vec<u8>, mode: u32) {
    let digits = (32 - mode.leading_zeros()).div_ceil(3).max(4);
    // Each value is below eight.
    out.extend((0..digits).rev().map(|digit| b'0' + ((mode >> (3 * digit)) & 7) as u8));
}

/// Appends formatted text; writing to memory cannot fail.
fn print(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

fn name(out: &mut Vec<u8>, name: &[u8]) {
    out.extend(name.iter().map(|&byte| if matches!(byte, b' ' | b'\n' | 0) { b'_' } else { byte }));
    if name.is_empty() {
        out.push(b'_');
    }
}

/// Returns the words before the terminator.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let line = text.split(|&byte| byte == 0 || byte == b'\n').next().unwrap_or_default();
    line.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
}

fn number<T: std::str::FromStr>(word: Option<&[u8]>, field: &'static str) -> Result<T, WireError> {
    let word = word.and_then(|word| std::str::from_utf8(word).ok());
    word.and_then(|word| word.parse().ok()).ok_or(WireError::BadText { field })
}

/// Parses the id. It is only compared for equality, so a signed number is accepted as well.
fn identity(word: Option<&[u8]>) -> Result<u64, WireError> {
    number(word, "stat id").or_else(|_| number(word, "stat id").map(i64::cast_unsigned))
}

fn octal(word: &[u8]) -> Result<u32, WireError> {
    let digits = std::str::from_utf8(word).ok().filter(|word| word.len() >= 4 && !word.starts_with('+'));
    digits.and_then(|word| u32::from_str_radix(word, 8).ok()).ok_or(WireError::BadText { field: "stat mode" })
}

fn checksum(pair: &[u8]) -> Option<ListedChecksum<'_>> {
    let (kind, value) = pair.split_at_checked(pair.iter().position(|&byte| byte == b':')?)?;
    let (_, value) = value.split_first()?;
    Some(ListedChecksum { kind, value: (value != b"none").then_some(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_four_octal_digits_or_more() {
        for mode in [0, 7, 0o10, 0o644, 0o777, 0o1755, 0o7777, 0o10000, 0o100_644, u32::MAX] {
            let mut out = Vec::new();
            octal_text(&mut out, mode);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{mode:04o}"));
        }
    }

    const RECORDED: &[u8] =
        b"43100903053524480 10000 48 1795187167 1795187168 1795187172 0644 nobody nogroup";

    #[test]
    fn the_recorded_text_parses_and_encodes() {
        let stat = StatText::decode(RECORDED).unwrap();
        assert_eq!(stat.flags, StatFlags::READABLE | StatFlags::WRITABLE);
        assert_eq!(stat.extended.unwrap().mode, 0o644);
        assert_eq!(stat.encoded(), RECORDED);
        let terminated = [RECORDED, b"\0"].concat();
        assert_eq!(StatText::decode(&terminated), Ok(stat));
    }

    #[test]
    fn four_to_eight_words_are_the_form_before_release_5() {
        for text in [&b"1 2 3 4"[..], b"1 2 3 4 5 6 0644 owner\n"] {
            let stat = StatText::decode(text).unwrap();
            assert_eq!((stat.size, stat.mtime, stat.extended), (2, 4, None));
            assert_eq!(stat.encoded(), b"1 2 3 4");
        }
    }

    #[test]
    fn invalid_numbers_are_refused() {
        let bad = |text: &'static [u8]| StatText::decode(text).unwrap_err();
        assert_eq!(bad(b"1 2 3"), WireError::BadText { field: "stat mtime" });
        assert_eq!(bad(b"1 2x 3 4"), WireError::BadText { field: "stat size" });
        assert_eq!(bad(b"1 2 3 4 5 6 644 o g"), WireError::BadText { field: "stat mode" });
        assert_eq!(bad(b"1 2 3 4 5 6 0648 o g"), WireError::BadText { field: "stat mode" });
        assert_eq!(StatText::decode(b"-1 2 3 4").unwrap().id, u64::MAX);
    }

    #[test]
    fn a_checksum_in_brackets_is_parsed() {
        let line = [RECORDED, b" [ adler32:cfbd70e6 ]"].concat();
        let (stat, checksum) = StatText::parse_listed(&line).unwrap();
        let expected = ListedChecksum { kind: b"adler32", value: Some(b"cfbd70e6") };
        assert_eq!(checksum, Some(expected));
        let mut out = stat.encoded();
        expected.encode(&mut out);
        assert_eq!(out, line);
        let line = [RECORDED, b" [ adler32:none ]"].concat();
        let (_, checksum) = StatText::parse_listed(&line).unwrap();
        assert_eq!(checksum, Some(ListedChecksum { kind: b"adler32", value: None }));
    }

    #[test]
    fn blanks_in_names_are_replaced() {
        let mut stat = StatText::decode(RECORDED).unwrap();
        stat.extended.as_mut().unwrap().owner = b"domain users\n";
        stat.extended.as_mut().unwrap().group = b"";
        assert!(stat.encoded().ends_with(b" 0644 domain_users_ _"));
    }

    #[test]
    fn a_file_system_text_parses_and_encodes() {
        let text = VfsText::decode(b"1 74274 71 0 0 0\0").unwrap();
        assert_eq!((text.writable_nodes, text.free_mb, text.used_percent), (1, 74274, 71));
        assert_eq!(text.encoded(), b"1 74274 71 0 0 0");
        assert!(VfsText::decode(b"1 74274 71 0 0").is_err());
    }
}
