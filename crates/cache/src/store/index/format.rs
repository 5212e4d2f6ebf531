//! The bytes of the files of an index. Numbers are little-endian.
//!
//! | part | bytes |
//! |---|---|
//! | head | 8 for the kind, then generation, disk, mount and bytes of others of 8 each, and CRC-32C |
//! | record of a journal | CRC-32C of the rest, length of the name (2), kind (1), stored bytes (8), last use (8), name |
//! | block of a snapshot | CRC-32C of the rest, length (4), entries |
//! | entry | bytes in common with the name before it (2), length of the rest of the name (2), stored bytes (8), last use (8), rank (1), rest of the name |
//!
//! The last block of a snapshot has no entries but the numbers of files (8) and of their bytes (8).

use super::{IndexFileKind, RecordedFile};
use crate::CacheKey;
use base::LogicalPath;
use digest::crc32c;

/// Size of a head.
pub(super) const HEAD_BYTES: usize = 44;
/// Size of a record without the name.
pub(super) const RECORD_BYTES: usize = 23;
/// Size of a block without its entries.
pub(super) const BLOCK_HEAD_BYTES: usize = 8;
/// Size of an entry without the name.
const ENTRY_BYTES: usize = 21;
/// Size from which a block gets no more entries.
pub(super) const BLOCK_BYTES: usize = 64 * 1024;
/// Maximum size of the entries of a block.
pub(super) const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + ENTRY_BYTES + base::PATH_BYTES_MAX;
/// Size of the content of the last block of a snapshot.
const TOTALS_BYTES: usize = 16;

/// The head of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IndexHead {
    pub(super) kind: IndexFileKind,
    pub(super) generation: u64,
    /// The identity of the disk.
    pub(super) disk: u64,
    /// The mount of the file system; 0 if it is not known.
    pub(super) mounted: u64,
    /// The used bytes of the file system that were not those of cached files, for a snapshot.
    pub(super) others: u64,
}

impl IndexHead {
    const fn magic(kind: IndexFileKind) -> &'static [u8; 8] {
        match kind {
            IndexFileKind::Snapshot | IndexFileKind::Unfinished => b"SCALLAX1",
            IndexFileKind::Journal => b"SCALLAJ1",
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Self::magic(self.kind).to_vec();
        for number in [self.generation, self.disk, self.mounted, self.others] {
            out.extend(number.to_le_bytes());
        }
        out.extend(crc32c(&out).to_le_bytes());
        out
    }

    pub(super) fn decode(kind: IndexFileKind, bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        let mut numbers = content.strip_prefix(Self::magic(kind))?.chunks_exact(8).map(number);
        let (generation, disk) = (numbers.next()?, numbers.next()?);
        let (mounted, others) = (numbers.next()?, numbers.next()?);
        let is_whole = crc32c(content) == u32::from_le_bytes(*checksum);
        is_whole.then_some(Self { kind, generation, disk, mounted, others })
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn key(bytes: &[u8]) -> Option<CacheKey> {
    let path = LogicalPath::parse(bytes).ok()?;
    CacheKey::new(&path).filter(|key| key.data().as_bytes() == bytes)
}

/// A record of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum JournalRecord {
    /// The files of the key are about to be changed.
    Started,
    /// This number of bytes is stored now, with this last use.
    Stored(u64, i64),
    /// Nothing is stored any longer.
    Removed,
}

impl JournalRecord {
    pub(super) fn encode(&self, key: &CacheKey, out: &mut Vec<u8>) {
        let name = key.data().as_bytes();
        let (kind, bytes, used) = match *self {
            Self::Started => (1, 0, 0),
            Self::Stored(bytes, used) => (2, bytes, used),
            Self::Removed => (3, 0, 0),
        };
        let begin = out.len();
        out.extend([0; 4]);
        // A name has at most `PATH_BYTES_MAX` bytes.
        out.extend((name.len() as u16).to_le_bytes());
        out.push(kind);
        out.extend(bytes.to_le_bytes());
        out.extend(used.to_le_bytes());
        out.extend(name);
        let checksum = crc32c(out.get(begin + 4..).unwrap_or_default());
        if let Some(place) = out.get_mut(begin..begin + 4) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    }

    /// Decodes the record at the begin of bytes. Returns it with its size; `None` if it is not whole.
    pub(super) fn decode(bytes: &[u8]) -> Option<(CacheKey, Self, usize)> {
        let (checksum, rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_le_bytes(*rest.first_chunk::<2>()?));
        let content = rest.get(..RECORD_BYTES - 4 + length)?;
        if crc32c(content) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let (head, name) = content.split_at_checked(RECORD_BYTES - 4)?;
        let (bytes, used) = (number(head.get(3..11)?), number(head.get(11..19)?) as i64);
        let record = match head.get(2)? {
            1 => Self::Started,
            2 => Self::Stored(bytes, used),
            3 => Self::Removed,
            _ => return None,
        };
        Some((key(name)?, record, RECORD_BYTES + length))
    }
}

/// Adds an entry to the entries of a block. `before` is the name of the one before it in the block, and empty for the
/// first one.
pub(super) fn add_entry(file: &RecordedFile, before: &[u8], out: &mut Vec<u8>) {
    let name = file.key.data().as_bytes();
    let common = name.iter().zip(before).take_while(|(one, other)| one == other).count();
    let rest = name.get(common..).unwrap_or_default();
    out.extend((common as u16).to_le_bytes());
    out.extend((rest.len() as u16).to_le_bytes());
    out.extend(file.bytes.to_le_bytes());
    out.extend(file.used.to_le_bytes());
    out.push(file.rank);
    out.extend(rest);
}

/// Decodes the entries of a block; `None` if they are damaged.
pub(super) fn decode_entries(mut content: &[u8]) -> Option<Vec<RecordedFile>> {
    let (mut files, mut name) = (Vec::new(), Vec::new());
    while !content.is_empty() {
        let (head, rest) = content.split_at_checked(ENTRY_BYTES)?;
        let (common, length) = (number(head.get(..2)?) as usize, number(head.get(2..4)?) as usize);
        let (bytes, used) = (number(head.get(4..12)?), number(head.get(12..20)?) as i64);
        let rank = *head.get(20)?;
        let (suffix, rest) = rest.split_at_checked(length)?;
        if common > name.len() {
            return None;
        }
        name.truncate(common);
        name.extend(suffix);
        files.push(RecordedFile { key: key(&name)?, bytes, used, rank });
        content = rest;
    }
    Some(files)
}

/// Encodes a block.
pub(super) fn block(entries: &[u8]) -> Vec<u8> {
    let mut content = (entries.len() as u32).to_le_bytes().to_vec();
    content.extend(entries);
    let mut out = crc32c(&content).to_le_bytes().to_vec();
    out.extend(content);
    out
}

/// Returns the size of the entries of a block by its head; `None` if it cannot be one.
pub(super) fn block_length(head: &[u8; BLOCK_HEAD_BYTES]) -> Option<usize> {
    let length = number(head.get(4..)?) as usize;
    (length <= BLOCK_BYTES_MAX).then_some(length)
}

/// Reports whether a block has its checksum.
pub(super) fn is_whole(block: &[u8]) -> bool {
    let parts = block.split_first_chunk::<4>();
    parts.is_some_and(|(checksum, content)| crc32c(content) == u32::from_le_bytes(*checksum))
}

/// Encodes the last block of a snapshot. Its content is never that of a block with entries, because no entry is so short.
pub(super) fn totals_block(files: u64, bytes: u64) -> Vec<u8> {
    block([files.to_le_bytes(), bytes.to_le_bytes()].as_flattened())
}

/// Returns the numbers of files and bytes of the last block of a snapshot; `None` for another block.
pub(super) fn decode_totals(content: &[u8]) -> Option<(u64, u64)> {
    let (files, bytes) = content.split_at_checked(8).filter(|_| content.len() == TOTALS_BYTES)?;
    Some((number(files), number(bytes)))
}
