//! [`PwdFile`]: the file in which servers keep hashes of passwords, and clients keys of servers.
//!
//! ```text
//! file   = header  *( entry | node )            ; all numbers are little-endian
//! header = "XrdIF" 3*NUL  version(i32)  changed(i32)  index changed(i32)  entries(i32)
//!          first node(i32)  unreachable bytes(i32)
//! node   = name length(i32)  next node(i32)  entry(i32)  entry length(i32)  name
//! entry  = status(i16)  count(i16)  changed(i32)  4 * length(i32)  4 buffers
//! ```
//!
//! The nodes are a list, whose positions are offsets in the file. A file is read and written as a
//! whole; entries that were removed are left out.

use super::hash::StoredPassword;
use crate::secret::Secret;
use std::collections::HashSet;
use zeroize::Zeroizing;

const MAGIC: &[u8; 8] = b"XrdIF\0\0\0";
const VERSION: i32 = 1;
const HEADER_BYTES: usize = 32;
const NODE_BYTES: usize = 16;
const ENTRY_BYTES: usize = 24;

/// Number of buffers of an entry.
const BUFFERS: usize = 4;

/// Maximum size of a file in bytes.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// Maximum number of entries of a file.
pub const ENTRIES_MAX: usize = 65_536;

/// Maximum length of the name of an entry in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// The status of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryStatus(pub i16);

impl EntryStatus {
    /// The entry was removed.
    pub const INACTIVE: Self = Self(-2);
    /// The user may not log in.
    pub const DISABLED: Self = Self(-1);
    /// The user may register, and has no password.
    pub const ALLOWED: Self = Self(0);
    /// The password counts.
    pub const OK: Self = Self(1);
    /// The password counts once, for a change of it.
    pub const ONE_TIME: Self = Self(2);
    /// The password must be changed.
    pub const EXPIRED: Self = Self(3);
    /// The entry belongs to the server.
    pub const SPECIAL: Self = Self(4);
}

/// An entry.
#[derive(Clone, Debug)]
pub struct PwdEntry {
    /// Its name: the user and [`super::MODULE_SUFFIX`].
    pub name: String,
    /// Its status.
    pub status: EntryStatus,
    /// A counter, such as that of failed attempts.
    pub count: i16,
    /// Time of the last change, in seconds since 1970.
    pub changed: u32,
    /// Its contents.
    pub buffers: [Secret; BUFFERS],
}

impl PwdEntry {
    /// Returns the password of the entry of a user.
    pub(super) fn password(&self) -> Option<StoredPassword> {
        let [salt, hash, ..] = &self.buffers;
        StoredPassword::of_buffers(salt.expose(), hash.expose())
    }

    /// Reports whether the password logs the user in, at least once it is changed.
    pub(super) fn accepts_password(&self) -> bool {
        self.status == EntryStatus::OK || self.must_change()
    }

    /// Reports whether the user must choose another password at the next login.
    pub(super) fn must_change(&self) -> bool {
        matches!(self.status, EntryStatus::ONE_TIME | EntryStatus::EXPIRED)
    }
}

/// The reason why a file is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PwdFileError {
    /// It is too long.
    #[error("it is longer than {FILE_BYTES_MAX} bytes")]
    TooLong,
    /// It is not such a file.
    #[error("it is no file of passwords")]
    OtherFormat,
    /// It is of a version that is not known.
    #[error("it is of the version {0}, which is not known")]
    Version(i32),
    /// An offset or a length is wrong.
    #[error("it is damaged at offset {0}")]
    Damaged(usize),
    /// Two entries have the same name.
    #[error("two entries have the same name, at offset {0}")]
    Duplicate(usize),
    /// It has too many entries.
    #[error("it has more than {ENTRIES_MAX} entries")]
    TooManyEntries,
}

/// The content of a file.
#[derive(Clone, Default, Debug)]
pub struct PwdFile {
    entries: Vec<PwdEntry>,
}

impl PwdFile {
    /// Decodes a file.
    ///
    /// # Errors
    /// [`PwdFileError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, PwdFileError> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(PwdFileError::TooLong);
        }
        if !bytes.starts_with(MAGIC) {
            return Err(PwdFileError::OtherFormat);
        }
        let [version, _, _, count, first, _] = numbers(bytes, MAGIC.len())?;
        if version != VERSION {
            return Err(PwdFileError::Version(version));
        }
        let mut file = Self::default();
        let (mut names, mut next) = (HashSet::new(), offset(first, MAGIC.len())?);
        // The list of a damaged file may be a circle.
        let mut left = offset(count, MAGIC.len())?;
        while next != 0 && left > 0 {
            if file.entries.len() >= ENTRIES_MAX {
                return Err(PwdFileError::TooManyEntries);
            }
            let at = next;
            let (node, entry) = Node::decode(bytes, at)?;
            next = node;
            left -= 1;
            let Some(entry) = entry else { continue };
            if !names.insert(entry.name.clone()) {
                return Err(PwdFileError::Duplicate(at));
            }
            file.entries.push(entry);
        }
        Ok(file)
    }

    /// Encodes the file. `now` is the time in seconds since 1970.
    #[must_use]
    pub fn encode(&self, now: u32) -> Zeroizing<Vec<u8>> {
        let mut body = Zeroizing::new(Vec::new());
        let mut first = 0;
        // Where the offset of the next node is stored, as soon as it is known.
        let mut link = None;
        for entry in &self.entries {
            let start = HEADER_BYTES + body.len();
            body.extend_from_slice(&entry.status.0.to_le_bytes());
            body.extend_from_slice(&entry.count.to_le_bytes());
            body.extend_from_slice(&entry.changed.to_le_bytes());
            entry.buffers.iter().for_each(|buffer| push_length(&mut body, buffer.expose().len()));
            entry.buffers.iter().for_each(|buffer| body.extend_from_slice(buffer.expose()));
            let node = HEADER_BYTES + body.len();
            push_length(&mut body, entry.name.len());
            match link.replace(body.len()) {
                None => first = node,
                Some(at) => set_length(&mut body, at, node),
            }
            push_length(&mut body, 0);
            push_length(&mut body, start);
            push_length(&mut body, node - start);
            body.extend_from_slice(entry.name.as_bytes());
        }
        let mut bytes = Zeroizing::new(MAGIC.to_vec());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&now.to_le_bytes());
        bytes.extend_from_slice(&now.to_le_bytes());
        push_length(&mut bytes, self.entries.len());
        push_length(&mut bytes, first);
        push_length(&mut bytes, 0);
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Returns the entries in their order.
    #[must_use]
    pub fn entries(&self) -> &[PwdEntry] {
        &self.entries
    }

    /// Returns the entry of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&PwdEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Adds an entry, or replaces the one of the same name.
    pub fn set(&mut self, entry: PwdEntry) {
        match self.entries.iter_mut().find(|known| known.name == entry.name) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    /// Removes the entry of a name. Returns `false` if there is none.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.name != name);
        self.entries.len() < before
    }
}

/// A node of the list.
struct Node;

impl Node {
    /// Returns the offset of the next node, and the entry unless it was removed.
    fn decode(bytes: &[u8], at: usize) -> Result<(usize, Option<PwdEntry>), PwdFileError> {
        let damaged = || PwdFileError::Damaged(at);
        let [name_length, next, entry, entry_length] = numbers(bytes, at)?;
        let (name_length, next) = (offset(name_length, at)?, offset(next, at)?);
        if name_length > NAME_BYTES_MAX {
            return Err(damaged());
        }
        let name = part(bytes, at + NODE_BYTES, name_length).ok_or_else(damaged)?;
        let name = std::str::from_utf8(name).map_err(|_| damaged())?.to_owned();
        let (start, length) = (offset(entry, at)?, offset(entry_length, at)?);
        let content = part(bytes, start, length).ok_or_else(damaged)?;
        let (&[s1, s2, c1, c2, t1, t2, t3, t4], _) = content.split_first_chunk().ok_or_else(damaged)?;
        let status = EntryStatus(i16::from_le_bytes([s1, s2]));
        if status == EntryStatus::INACTIVE {
            return Ok((next, None));
        }
        let lengths: [i32; BUFFERS] = numbers(content, 8).map_err(|_| damaged())?;
        let mut position = ENTRY_BYTES;
        let mut buffers: [Secret; BUFFERS] = Default::default();
        for (buffer, length) in buffers.iter_mut().zip(lengths) {
            let length = offset(length, at)?;
            *buffer = Secret::from(part(content, position, length).ok_or_else(damaged)?);
            position += length;
        }
        let (count, changed) = (i16::from_le_bytes([c1, c2]), u32::from_le_bytes([t1, t2, t3, t4]));
        Ok((next, Some(PwdEntry { name, status, count, changed, buffers })))
    }
}

/// Returns the numbers at an offset.
fn numbers<const COUNT: usize>(bytes: &[u8], at: usize) -> Result<[i32; COUNT], PwdFileError> {
    let content = part(bytes, at, 4 * COUNT).ok_or(PwdFileError::Damaged(at))?;
    let mut numbers = [0; COUNT];
    for (number, bytes) in numbers.iter_mut().zip(content.as_chunks().0) {
        *number = i32::from_le_bytes(*bytes);
    }
    Ok(numbers)
}

fn offset(number: i32, at: usize) -> Result<usize, PwdFileError> {
    usize::try_from(number).map_err(|_| PwdFileError::Damaged(at))
}

fn part(bytes: &[u8], start: usize, length: usize) -> Option<&[u8]> {
    bytes.get(start..start.checked_add(length)?)
}

fn push_length(bytes: &mut Vec<u8>, length: usize) {
    // Files have at most `FILE_BYTES_MAX` bytes.
    bytes.extend_from_slice(&i32::try_from(length).unwrap_or(i32::MAX).to_le_bytes());
}

fn set_length(bytes: &mut [u8], at: usize, length: usize) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&i32::try_from(length).unwrap_or(i32::MAX).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, buffers: [&[u8]; 2]) -> PwdEntry {
        let [one, two] = buffers.map(Secret::from);
        let buffers = [one, two, Secret::default(), Secret::default()];
        PwdEntry { name: name.to_owned(), status: EntryStatus::OK, count: 3, changed: 17, buffers }
    }

    fn file() -> PwdFile {
        let mut file = PwdFile::default();
        file.set(entry("alice_1", [b"salt", b"hash"]));
        file.set(entry("bob_1", [b"", b"x"]));
        file
    }

    #[test]
    fn a_file_survives_encoding() {
        let mut file = file();
        file.set(entry("alice_1", [b"other", b"hash"]));
        let decoded = PwdFile::decode(&file.encode(9)).unwrap();
        assert_eq!(decoded.entries().len(), 2);
        let alice = decoded.find("alice_1").unwrap();
        assert_eq!((alice.status, alice.count, alice.changed), (EntryStatus::OK, 3, 17));
        assert!(alice.buffers[0].is_equal(b"other") && alice.buffers[1].is_equal(b"hash"));
        assert!(file.remove("alice_1") && !file.remove("alice_1"));
        assert!(PwdFile::decode(&file.encode(9)).unwrap().find("alice_1").is_none());
        assert!(PwdFile::decode(&PwdFile::default().encode(9)).unwrap().entries().is_empty());
    }

    /// Made by the real program: `xrdpwdadmin add`.
    #[test]
    fn the_layout_of_the_real_program() {
        let bytes = file().encode(0x6b0a_9a5a);
        assert_eq!(bytes[..8], *b"XrdIF\0\0\0");
        assert_eq!(bytes[8..32], *b"\x01\0\0\0Z\x9a\x0akZ\x9a\x0ak\x02\0\0\0\x40\0\0\0\0\0\0\0");
        assert_eq!(bytes[0x20..0x40], *b"\x01\0\x03\0\x11\0\0\0\x04\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0salthash");
        assert_eq!(bytes[0x40..0x57], *b"\x07\0\0\0\x70\0\0\0\x20\0\0\0\x20\0\0\0alice_1");
    }

    #[test]
    fn damaged_files_are_refused() {
        let bytes = file().encode(9);
        for length in 0..bytes.len() {
            assert!(PwdFile::decode(&bytes[..length]).is_err(), "{length}");
        }
        assert_eq!(PwdFile::decode(b"no such file").map(drop), Err(PwdFileError::OtherFormat));
        let with = |at: usize, value: i32| {
            let mut bytes = bytes.to_vec();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            PwdFile::decode(&bytes).map(|file| file.entries().len())
        };
        assert_eq!(with(8, 2), Err(PwdFileError::Version(2)));
        for value in [-1, i32::MAX, i32::MIN, 1 << 20] {
            for at in [24, 0x28, 0x2c, 0x40, 0x44, 0x48, 0x4c] {
                assert!(with(at, value).is_err(), "{at:#x} {value}");
            }
        }
        // A circle ends at the number of entries, and has the same name twice.
        assert_eq!(with(0x44, 0x40), Err(PwdFileError::Duplicate(0x40)));
        let huge = vec![0; FILE_BYTES_MAX + 1];
        assert_eq!(PwdFile::decode(&huge).map(drop), Err(PwdFileError::TooLong));
    }
}
