//! Parses the directory of a ZIP archive: finds its position and decodes its entries, without I/O.
//!
//! An archive is read from its end: the end record contains the position of the directory, or of
//! the ZIP64 record that contains it. The file is untrusted input, so each number is checked
//! against the size of the archive before use, and no memory is reserved for announced sizes.
//! Source: PKWARE APPNOTE 6.3, sections 4.3 and 4.5.3.

use std::borrow::Cow;
use std::ops::Range;

/// Number of bytes at the end of an archive that contain the end record: the record, its longest
/// comment, and the ZIP64 locator in front of it.
pub const TAIL_BYTES: u64 = END_BYTES + 0xffff + LOCATOR_BYTES;
/// Maximum size of a directory: about three million members.
pub const DIRECTORY_BYTES_MAX: u64 = 256 << 20;

const END: [u8; 4] = *b"PK\x05\x06";
const END_BYTES: u64 = 22;
const LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LOCATOR_BYTES: u64 = 20;
const WIDE_END: [u8; 4] = *b"PK\x06\x06";
/// Number of bytes of the ZIP64 end record that are read.
pub const WIDE_END_BYTES: u64 = 56;
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const ENTRY_BYTES: usize = 46;
const LOCAL: [u8; 4] = *b"PK\x03\x04";
/// Size of the header in front of a member's name and data.
pub const LOCAL_BYTES: usize = 30;
/// Id of the ZIP64 extra field.
const WIDE_FIELD: u16 = 1;

/// Errors of an archive or of a request for a member.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZipError {
    /// The end record is missing.
    #[error("it is no ZIP archive, or its end is missing (there is no end-of-central-directory record)")]
    NoEnd,
    /// Numbers in it contradict each other.
    #[error("the archive is damaged: {0}")]
    Damaged(&'static str),
    /// The compressed data of a member is invalid.
    #[error("the compressed data of `{0}` is damaged")]
    BadData(String),
    /// The directory is larger than [`DIRECTORY_BYTES_MAX`].
    #[error("its directory has {0} bytes, more than this program reads")]
    TooLarge(u64),
    /// No member has this name.
    #[error("it has no member `{0}`")]
    Missing(String),
    /// A member of this name exists.
    #[error("it has a member `{0}` already")]
    Exists(String),
    /// The kind of archive or member is not supported.
    #[error("{0}")]
    Unsupported(String),
}

/// The compression method of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Uncompressed.
    Stored,
    /// Deflated (RFC 1951).
    Deflated,
    /// Another method, by its number. Such members are listed but cannot be read.
    Other(u16),
}

/// A member of an archive, as the directory lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Raw name, usually UTF-8; directories end with `/`.
    pub name: Vec<u8>,
    /// Compression method.
    pub method: Method,
    /// Set if a password is needed.
    pub encrypted: bool,
    /// CRC-32 of the uncompressed bytes.
    pub crc32: u32,
    /// Compressed size in bytes.
    pub compressed: u64,
    /// Uncompressed size in bytes.
    pub size: u64,
    /// Offset of the header.
    pub header_at: u64,
    /// Permission bits, if the archive was made on a system that has them.
    pub mode: Option<u32>,
    /// Time of the last change as MS-DOS date and time, in the time zone of the archive's creator.
    pub dos_time: (u16, u16),
}

impl Member {
    /// Returns the name as text.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }

    /// Returns the time of the last change in the time zone of the archive's creator; `None` if it
    /// is not a valid date.
    #[must_use]
    pub fn modified(&self) -> Option<jiff::civil::DateTime> {
        let (date, time) = self.dos_time;
        let part =
            |value: u16, shift: u16, bits: u16| i8::try_from((value >> shift) & ((1 << bits) - 1)).ok();
        let year = 1980 + i16::try_from(date >> 9).ok()?;
        let (month, day) = (part(date, 5, 4)?, part(date, 0, 5)?);
        let (hour, minute, second) = (part(time, 11, 5)?, part(time, 5, 6)?, part(time, 0, 5)? * 2);
        jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()
    }

    /// Returns the range of its bytes, given the [`LOCAL_BYTES`] of its header. It ends before
    /// `directory` begins.
    ///
    /// # Errors
    /// [`ZipError::Damaged`].
    pub fn data(&self, header: &[u8], directory: u64) -> Result<Range<u64>, ZipError> {
        let lengths = || {
            let signature = header.starts_with(&LOCAL);
            signature.then_some(u64::from(u16_at(header, 26)?) + u64::from(u16_at(header, 28)?))
        };
        let more = lengths().ok_or(ZipError::Damaged("a member is not where the directory says"))?;
        let start = self.header_at.checked_add(LOCAL_BYTES as u64 + more);
        let range = start.and_then(|start| Some(start..start.checked_add(self.compressed)?));
        range
            .filter(|range| range.end <= directory)
            .ok_or(ZipError::Damaged("a member reaches into the directory"))
    }
}

/// The decoded end records of an archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndRecord {
    /// Range of the directory.
    pub directory: Range<u64>,
    /// Number of members; without ZIP64, modulo 65,536.
    pub entries: u64,
    /// Comment behind the end record.
    pub comment: Vec<u8>,
    /// Offset of the first end record; the directory ends there or before.
    at: u64,
    wide: bool,
}

/// The result of a search for the end record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FoundEnd {
    /// The complete end record.
    End(EndRecord),
    /// The ZIP64 record is at this offset, [`WIDE_END_BYTES`] long; [`EndRecord::widen`] decodes
    /// it.
    Wide(EndRecord, u64),
}

impl EndRecord {
    /// Returns the end of an empty file, which has no members.
    #[must_use]
    pub const fn of_nothing() -> Self {
        Self { directory: 0..0, entries: 0, comment: Vec::new(), at: 0, wide: false }
    }

    /// Finds the end record in the last bytes of an archive of `size` bytes.
    ///
    /// # Errors
    /// [`ZipError`].
    pub fn find(tail: &[u8], size: u64) -> Result<FoundEnd, ZipError> {
        let base = size.checked_sub(tail.len() as u64).ok_or(ZipError::NoEnd)?;
        let last = tail.len().checked_sub(END_BYTES as usize).ok_or(ZipError::NoEnd)?;
        let comment_of = |at: usize| {
            let record = tail.get(at..).filter(|record| record.starts_with(&END))?;
            let room = record.len().checked_sub(END_BYTES as usize)?;
            Some((usize::from(u16_at(record, 20)?), room))
        };
        // The record whose comment ends with the archive is preferred. The fallback is the last
        // record, with unrelated bytes behind it.
        let exact =
            (0..=last).rev().find(|at| comment_of(*at).is_some_and(|(comment, room)| comment == room));
        let some =
            || (0..=last).rev().find(|at| comment_of(*at).is_some_and(|(comment, room)| comment <= room));
        let at = exact.or_else(some).ok_or(ZipError::NoEnd)?;
        let record = tail.get(at..).unwrap_or_default();
        let field = |at| u16_at(record, at).ok_or(ZipError::NoEnd);
        let wide_field = |at| u32_at(record, at).ok_or(ZipError::NoEnd);
        let comment = usize::from(field(20)?);
        let comment = record.get(END_BYTES as usize..).and_then(|rest| rest.get(..comment));
        let (disk, first_disk, entries) = (field(4)?, field(6)?, field(10)?);
        let (length, start) = (wide_field(12)?, wide_field(16)?);
        let at_in_file = base + at as u64;
        let locator = at.checked_sub(LOCATOR_BYTES as usize).and_then(|from| tail.get(from..at));
        let locator = locator.filter(|locator| locator.starts_with(&LOCATOR));
        let needed = entries == 0xffff || length == u32::MAX || start == u32::MAX;
        let end = Self {
            directory: 0..0,
            entries: u64::from(entries),
            comment: comment.unwrap_or_default().to_vec(),
            at: at_in_file,
            wide: false,
        };
        if let Some(wide_at) = locator.filter(|_| needed).and_then(|locator| u64_at(locator, 8)) {
            let room = (at_in_file - LOCATOR_BYTES).checked_sub(WIDE_END_BYTES);
            if room.is_none_or(|room| wide_at > room) {
                return Err(ZipError::Damaged("the record of ZIP64 is not in the archive"));
            }
            return Ok(FoundEnd::Wide(Self { at: wide_at, ..end }, wide_at));
        }
        if disk != 0 || first_disk != 0 {
            return Err(several());
        }
        end.with_directory(start.into(), length.into()).map(FoundEnd::End)
    }

    /// Decodes the ZIP64 record.
    ///
    /// # Errors
    /// [`ZipError`].
    pub fn widen(self, record: &[u8]) -> Result<Self, ZipError> {
        let damaged = || ZipError::Damaged("the record of ZIP64 is not where the end says");
        if !record.starts_with(&WIDE_END) {
            return Err(damaged());
        }
        let disks = u64_at(record, 16).ok_or_else(damaged)?;
        if disks != 0 {
            return Err(several());
        }
        let entries = u64_at(record, 32).ok_or_else(damaged)?;
        let (length, start) =
            (u64_at(record, 40).ok_or_else(damaged)?, u64_at(record, 48).ok_or_else(damaged)?);
        Self { entries, wide: true, ..self }.with_directory(start, length)
    }

    fn with_directory(self, start: u64, length: u64) -> Result<Self, ZipError> {
        let end = start.checked_add(length).filter(|end| *end <= self.at);
        let end = end.ok_or(ZipError::Damaged("the directory is not in the archive"))?;
        if length > DIRECTORY_BYTES_MAX {
            return Err(ZipError::TooLarge(length));
        }
        Ok(Self { directory: start..end, ..self })
    }

    /// Decodes the members from the bytes of the directory, in its order.
    ///
    /// # Errors
    /// [`ZipError::Damaged`].
    pub fn members(&self, directory: &[u8]) -> Result<Vec<Member>, ZipError> {
        let damaged = ZipError::Damaged("its directory makes no sense");
        let mut members = Vec::new();
        let mut rest = directory;
        while !rest.is_empty() {
            // A signature of the directory itself may follow the members.
            if members.len() as u64 == self.entries && !rest.starts_with(&ENTRY) {
                break;
            }
            let (member, after) = member(rest).ok_or_else(|| damaged.clone())?;
            let least = (member.header_at.checked_add(LOCAL_BYTES as u64))
                .and_then(|data| data.checked_add(member.compressed));
            if least.is_none_or(|least| least > self.directory.start) {
                return Err(ZipError::Damaged("the directory lists what is not in the archive"));
            }
            members.push(member);
            rest = after;
        }
        let count = members.len() as u64;
        let counted = if self.wide { count } else { count & 0xffff };
        if counted == self.entries { Ok(members) } else { Err(damaged) }
    }
}

fn several() -> ZipError {
    ZipError::Unsupported("it is one of several parts of an archive".to_owned())
}

/// Decodes the first entry of a directory and returns the rest.
fn member(bytes: &[u8]) -> Option<(Member, &[u8])> {
    let (fixed, rest) = bytes.split_at_checked(ENTRY_BYTES)?;
    if !fixed.starts_with(&ENTRY) {
        return None;
    }
    let length = |at| u16_at(fixed, at).map(usize::from);
    let (name, rest) = rest.split_at_checked(length(28)?)?;
    let (extra, rest) = rest.split_at_checked(length(30)?)?;
    let (_, rest) = rest.split_at_checked(length(32)?)?;
    let mut wide = wide_fields(extra);
    let mut number = |at| {
        let short = u32_at(fixed, at)?;
        if short == u32::MAX { wide.as_mut()?.next() } else { Some(u64::from(short)) }
    };
    // The ZIP64 field has this order.
    let (size, compressed, header_at) = (number(24)?, number(20)?, number(42)?);
    let method = match u16_at(fixed, 10)? {
        0 => Method::Stored,
        8 => Method::Deflated,
        other => Method::Other(other),
    };
    let made_on_unix = u16_at(fixed, 4)? >> 8 == 3;
    let member = Member {
        name: name.to_vec(),
        method,
        encrypted: u16_at(fixed, 8)? & 1 != 0,
        crc32: u32_at(fixed, 16)?,
        compressed,
        size,
        header_at,
        mode: (u32_at(fixed, 38).map(|attributes| attributes >> 16)).filter(|_| made_on_unix),
        dos_time: (u16_at(fixed, 14)?, u16_at(fixed, 12)?),
    };
    (method != Method::Stored || size == compressed || member.encrypted).then_some((member, rest))
}

/// Returns the numbers in the ZIP64 field.
fn wide_fields(mut extra: &[u8]) -> Option<impl Iterator<Item = u64> + '_> {
    loop {
        let (id, length) = (u16_at(extra, 0)?, usize::from(u16_at(extra, 2)?));
        let (field, rest) = extra.get(4..)?.split_at_checked(length)?;
        if id == WIDE_FIELD {
            return Some(field.chunks_exact(8).filter_map(|number| u64_at(number, 0)));
        }
        extra = rest;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zip::append::{Appended, entry, local_header, tail};

    /// Builds an archive of these members, uncompressed.
    fn archive(members: &[(&str, &[u8])], comment: &[u8]) -> Vec<u8> {
        let (mut bytes, mut directory) = (Vec::new(), Vec::new());
        for (name, data) in members {
            let new = Appended {
                name: name.as_bytes(),
                crc32: 7,
                size: data.len() as u64,
                mode: 0o644,
                dos_time: (1, 2),
            };
            let at = bytes.len() as u64;
            bytes.extend(local_header(&new));
            bytes.extend_from_slice(data);
            directory.extend(entry(&new, at));
        }
        let at = bytes.len() as u64;
        bytes.extend_from_slice(&directory);
        bytes.extend(tail(at, directory.len() as u64, members.len() as u64, comment));
        bytes
    }

    fn members(bytes: &[u8]) -> Result<Vec<Member>, ZipError> {
        let at = |range: Range<u64>| &bytes[range.start as usize..range.end as usize];
        let end = match EndRecord::find(bytes, bytes.len() as u64)? {
            FoundEnd::End(end) => end,
            FoundEnd::Wide(end, wide) => end.widen(at(wide..wide + WIDE_END_BYTES))?,
        };
        end.members(at(end.directory.clone()))
    }

    #[test]
    fn members_are_listed_with_their_ranges() {
        let bytes = archive(&[("a", b"one"), ("dir/b", b""), ("c", b"three")], b"");
        let members = members(&bytes).unwrap();
        let names: Vec<_> = members.iter().map(|member| (member.name().into_owned(), member.size)).collect();
        assert_eq!(names, [("a".to_owned(), 3), ("dir/b".to_owned(), 0), ("c".to_owned(), 5)]);
        let last = &members[2];
        let header = &bytes[last.header_at as usize..][..LOCAL_BYTES];
        let data = last.data(header, bytes.len() as u64).unwrap();
        assert_eq!(&bytes[data.start as usize..data.end as usize], b"three");
        assert_eq!((last.mode.map(|mode| mode & 0o777), last.crc32), (Some(0o644), 7));
        assert!(last.data(header, last.header_at + 33).is_err() && last.data(&header[..29], 1000).is_err());
    }

    #[test]
    fn the_end_record_is_found_among_comments_and_trailing_bytes() {
        for comment in [&b""[..], b"a comment", b"PK\x05\x06 is no end", &[b'x'; 65_535]] {
            let mut bytes = archive(&[("a", b"one")], comment);
            assert_eq!(members(&bytes).unwrap().len(), 1);
            bytes.extend_from_slice(b"surplus");
            if comment.len() < 20 {
                assert_eq!(members(&bytes).unwrap().len(), 1);
            }
        }
        assert_eq!(members(&archive(&[], b"")), Ok(Vec::new()));
        for none in [&b""[..], b"PK\x05\x06", &[b'x'; 1000]] {
            assert_eq!(members(none), Err(ZipError::NoEnd));
        }
    }

    /// No change of a byte leads to a range outside of the archive or to a panic.
    #[test]
    fn every_damage_is_reported_or_harmless() {
        let bytes = archive(&[("a", b"one"), ("b", b"two")], b"c");
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = bytes.clone();
                bad[at] = value;
                for member in members(&bad).unwrap_or_default() {
                    assert!(member.header_at + 30 + member.compressed <= bytes.len() as u64);
                }
            }
            assert!(members(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn numbers_beyond_32_bits_are_read_from_the_zip64_field() {
        let huge = Appended { name: b"huge", crc32: 1, size: 5 << 32, mode: 0, dos_time: (0, 0) };
        let directory = entry(&huge, 6 << 32);
        let (found, rest) = member(&directory).unwrap();
        assert_eq!((found.size, found.compressed, found.header_at), (5 << 32, 5 << 32, 6 << 32));
        assert!(rest.is_empty());
        let at = 12 << 32;
        let tail = tail(at, directory.len() as u64, 70_000, b"");
        let size = at + (directory.len() + tail.len()) as u64;
        let Ok(FoundEnd::Wide(end, wide)) = EndRecord::find(&tail, size) else { panic!() };
        assert_eq!(wide, at + directory.len() as u64);
        let end = end.widen(&tail[..WIDE_END_BYTES as usize]).unwrap();
        assert_eq!((end.directory.start, end.entries), (at, 70_000));
        assert!(end.members(&directory).is_err());
    }

    #[test]
    fn split_archives_and_large_directories_are_refused() {
        let mut bytes = archive(&[("a", b"one")], b"");
        let end = bytes.len() - 22;
        bytes[end + 4] = 1;
        assert!(matches!(members(&bytes), Err(ZipError::Unsupported(_))));
        let tail = tail(10, DIRECTORY_BYTES_MAX + 1, 1, b"");
        let size = 10 + DIRECTORY_BYTES_MAX + 1 + tail.len() as u64;
        assert_eq!(EndRecord::find(&tail, size), Err(ZipError::TooLarge(DIRECTORY_BYTES_MAX + 1)));
    }

    #[test]
    fn invalid_dates_are_none() {
        let bytes = archive(&[("a", b"")], b"");
        let mut member = members(&bytes).unwrap().remove(0);
        member.dos_time = ((46 << 9) | (11 << 5) | 21, (23 << 11) | (3 << 5) | 5);
        assert_eq!(member.modified().unwrap().to_string(), "2026-11-21T23:03:10");
        member.dos_time = (0, 0);
        assert_eq!(member.modified(), None);
    }
}
