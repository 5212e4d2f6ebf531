//! Encodes the records of a new archive member: header, directory entry and end records.
//!
//! ZIP64 records are used only where a number needs them. Source: PKWARE APPNOTE 6.3, section 4.3.

/// A member to be added without compression.
pub(crate) struct Appended<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) crc32: u32,
    pub(crate) size: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// MS-DOS date and time.
    pub(crate) dos_time: (u16, u16),
}

/// Flag for UTF-8 names.
const UTF8: u16 = 1 << 11;
/// Made on Unix, by software of version 4.5.
const MADE_BY: u16 = (3 << 8) | 45;
const REGULAR_FILE: u32 = 0o100_000;
/// Numbers from this value on are stored in the ZIP64 field.
const WIDE: u64 = 0xffff_ffff;

/// Maximum length of a name.
pub(crate) const NAME_BYTES_MAX: usize = 0xffff;

fn version(wide: bool) -> [u8; 2] {
    if wide { 45_u16 } else { 10 }.to_le_bytes()
}

/// Encodes the number, or the placeholder of a large one.
fn short(number: u64) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}

fn count(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes()
}

fn wide_field(numbers: &[u64]) -> Vec<u8> {
    if numbers.is_empty() {
        return Vec::new();
    }
    let mut field = [1_u16.to_le_bytes(), count(8 * numbers.len())].concat();
    numbers.iter().for_each(|number| field.extend(number.to_le_bytes()));
    field
}

/// Encodes the common part of both headers: from the flags to the sizes.
fn common(new: &Appended<'_>) -> Vec<u8> {
    let (date, time) = new.dos_time;
    let mut bytes = Vec::with_capacity(20);
    // Method 0: stored.
    for number in [UTF8, 0, time, date] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(new.crc32.to_le_bytes());
    let size = if new.size >= WIDE { [0xff; 4] } else { short(new.size) };
    bytes.extend(size);
    bytes.extend(size);
    bytes
}

/// Encodes the header in front of the data. Its length does not depend on the checksum.
pub(crate) fn local_header(new: &Appended<'_>) -> Vec<u8> {
    let wide = new.size >= WIDE;
    let extra = if wide { wide_field(&[new.size, new.size]) } else { Vec::new() };
    let mut bytes = [&b"PK\x03\x04"[..], &version(wide), &common(new)].concat();
    bytes.extend(count(new.name.len()));
    bytes.extend(count(extra.len()));
    bytes.extend_from_slice(new.name);
    bytes.extend(extra);
    bytes
}

/// Encodes the directory entry of a member whose header is at `header_at`.
pub(crate) fn entry(new: &Appended<'_>, header_at: u64) -> Vec<u8> {
    let mut numbers = Vec::new();
    if new.size >= WIDE {
        numbers.extend([new.size, new.size]);
    }
    if header_at >= WIDE {
        numbers.push(header_at);
    }
    let extra = wide_field(&numbers);
    let mut bytes =
        [&b"PK\x01\x02"[..], &MADE_BY.to_le_bytes(), &version(!numbers.is_empty()), &common(new)].concat();
    bytes.extend(count(new.name.len()));
    bytes.extend(count(extra.len()));
    // No comment, first part, no internal attributes.
    bytes.extend([0; 6]);
    bytes.extend(((REGULAR_FILE | (new.mode & 0o7777)) << 16).to_le_bytes());
    bytes.extend(if header_at >= WIDE { [0xff; 4] } else { short(header_at) });
    bytes.extend_from_slice(new.name);
    bytes.extend(extra);
    bytes
}

/// Encodes the end records of a directory that begins at `directory`, with its length and number of
/// entries.
pub(crate) fn tail(directory: u64, length: u64, entries: u64, comment: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if directory >= WIDE || length >= WIDE || entries >= 0xffff {
        bytes.extend_from_slice(b"PK\x06\x06");
        bytes.extend(44_u64.to_le_bytes());
        bytes.extend(MADE_BY.to_le_bytes());
        bytes.extend(version(true));
        bytes.extend([0; 8]);
        for number in [entries, entries, length, directory] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend_from_slice(b"PK\x06\x07");
        bytes.extend([0; 4]);
        bytes.extend((directory + length).to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
    }
    bytes.extend_from_slice(b"PK\x05\x06");
    bytes.extend([0; 4]);
    let entries = count(usize::try_from(entries).unwrap_or(usize::MAX));
    bytes.extend(entries);
    bytes.extend(entries);
    bytes.extend(if length >= WIDE { [0xff; 4] } else { short(length) });
    bytes.extend(if directory >= WIDE { [0xff; 4] } else { short(directory) });
    bytes.extend(count(comment.len()));
    bytes.extend_from_slice(comment);
    bytes
}
