//! The format of a checkpoint's journal: a head that identifies the file, then the overwritten
//! bytes in order.
//!
//! All integers are little-endian.
//!
//! | bytes of the head | field |
//! |---|---|
//! | 0..4 | `SCKP` |
//! | 4..8 | version: 2; version 1 does not have the two fields after the path |
//! | 8..16 | inode number of the file |
//! | 16..24 | size of the file in bytes before the first change |
//! | 24..28 | length of the path |
//! | 28.. | path |
//! | 4 bytes | length of the identity |
//! | rest | identity as JSON ([`Proof`]) with the account, then CRC32C of all bytes before |
//!
//! | bytes of an entry | field |
//! |---|---|
//! | 0..8 | offset in the file |
//! | 8..12 | length of the saved bytes |
//! | 12.. | saved bytes, then CRC32C of all bytes before |
//!
//! A truncated entry, or one whose checksum does not match, ends the journal. It was not synced
//! yet, so the change that it protects was not made.

use crate::journal::JournalDirectory;
use crate::proof::Proof;
use crate::rights::RecordedUser;
use base::{LogicalPath, PATH_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use storage::StorageUser;

const MAGIC: &[u8; 4] = b"SCKP";
const VERSION: u32 = 2;
/// Oldest version that is read. Its only identity is the inode number.
const VERSION_MIN: u32 = 1;
/// Maximum length of an identity in bytes. An account can have 65,536 groups of up to ten digits.
const PROOF_BYTES_MAX: usize = 1 << 20;
/// Length in bytes of a head before its path, of an entry before its bytes, and of the checksum
/// after both.
const HEAD_BYTES: usize = 28;
const ENTRY_BYTES: usize = 12;
const SUM_BYTES: usize = 4;
/// Maximum number of bytes saved by one entry.
pub(crate) const SAVED_BYTES_MAX: usize = 1 << 20;

/// The file of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JournalHead {
    pub(crate) path: LogicalPath,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// `None` in journals of version 1.
    pub(crate) proof: Option<Proof>,
    /// The account that changes the file; `None` for the server itself.
    pub(crate) account: Option<Arc<StorageUser>>,
}

/// The last field of a head.
#[derive(Serialize, Deserialize)]
struct HeadIdentity {
    #[serde(flatten)]
    proof: Proof,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<RecordedUser>,
}

/// The bytes that one change overwrote: at most [`SAVED_BYTES_MAX`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OverwrittenBytes {
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The content of a journal.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum JournalContent {
    /// The head is incomplete, so the file was not changed.
    Unborn,
    /// The format has a version that this release does not know.
    Unknown(u32),
    /// The file, and the offsets of all entries in the journal.
    Entries(JournalHead, Vec<u64>),
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = digest::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

impl JournalHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let path = self.path.as_bytes();
        let mut bytes = Vec::with_capacity(HEAD_BYTES + path.len() + SUM_BYTES);
        bytes.extend_from_slice(MAGIC);
        let version = if self.proof.is_some() { VERSION } else { VERSION_MIN };
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&self.inode.to_le_bytes());
        bytes.extend_from_slice(&self.size.to_le_bytes());
        // A path has at most 4095 bytes.
        bytes.extend_from_slice(&(path.len() as u32).to_le_bytes());
        bytes.extend_from_slice(path);
        if let Some(proof) = self.proof.clone() {
            let account = self.account.as_ref().map(RecordedUser::from);
            let proof = serde_json::to_vec(&HeadIdentity { proof, account }).unwrap_or_default();
            bytes.extend_from_slice(&(proof.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&proof);
        }
        seal(bytes)
    }

    fn decode(raw: &[u8]) -> Option<(Self, u64)> {
        let path_end = HEAD_BYTES.checked_add(u32_at(raw, 24)? as usize)?;
        let proof_at = path_end.checked_add(4)?;
        let length = match u32_at(raw, 4)? {
            VERSION_MIN => path_end,
            _ => proof_at.checked_add(u32_at(raw, path_end)? as usize)?,
        };
        let block = sealed(raw, length)?;
        let path = LogicalPath::parse(block.get(HEAD_BYTES..path_end)?).ok()?;
        let identity = block.get(proof_at..).and_then(|text| serde_json::from_slice(text).ok());
        let (proof, account) = match identity {
            Some(HeadIdentity { proof, account }) => (Some(proof), account.and_then(RecordedUser::into_user)),
            None => (None, None),
        };
        let head = Self { path, inode: u64_at(block, 8)?, size: u64_at(block, 16)?, proof, account };
        Some((head, (length + SUM_BYTES) as u64))
    }
}

impl OverwrittenBytes {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENTRY_BYTES + self.bytes.len() + SUM_BYTES);
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.bytes);
        seal(bytes)
    }
}

/// Returns the block of `length` bytes at the start of `raw`; `None` if it is truncated or its
/// checksum does not match.
fn sealed(raw: &[u8], length: usize) -> Option<&[u8]> {
    let (block, after) = raw.split_at_checked(length)?;
    let sum = after.first_chunk()?;
    (digest::crc32c(block) == u32::from_le_bytes(*sum)).then_some(block)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|raw| u32::from_le_bytes(*raw))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|raw| u64::from_le_bytes(*raw))
}

/// Reads a journal one entry at a time.
pub(crate) struct JournalReader<'a> {
    directory: &'a dyn JournalDirectory,
    name: &'a str,
}

impl<'a> JournalReader<'a> {
    pub(crate) fn new(directory: &'a dyn JournalDirectory, name: &'a str) -> Self {
        Self { directory, name }
    }

    /// Reads the head and the offsets of the entries.
    pub(crate) fn content(&self) -> io::Result<JournalContent> {
        let raw = self.directory.read_at(
            self.name,
            0,
            HEAD_BYTES + PATH_BYTES_MAX + 4 + PROOF_BYTES_MAX + SUM_BYTES,
        )?;
        match (raw.get(..4), u32_at(&raw, 4)) {
            (Some(magic), Some(VERSION_MIN..=VERSION)) if magic == MAGIC => {}
            (Some(magic), Some(version)) if magic == MAGIC => return Ok(JournalContent::Unknown(version)),
            _ => return Ok(JournalContent::Unborn),
        }
        let Some((head, mut at)) = JournalHead::decode(&raw) else { return Ok(JournalContent::Unborn) };
        let mut places = Vec::new();
        while let Some(entry) = self.entry(at)? {
            places.push(at);
            at += (ENTRY_BYTES + entry.bytes.len() + SUM_BYTES) as u64;
        }
        Ok(JournalContent::Entries(head, places))
    }

    /// Returns the entry at an offset; `None` if there is no complete one.
    pub(crate) fn entry(&self, at: u64) -> io::Result<Option<OverwrittenBytes>> {
        let raw = self.directory.read_at(self.name, at, ENTRY_BYTES)?;
        let Some(length) = u32_at(&raw, 8).map(|length| length as usize) else { return Ok(None) };
        if length > SAVED_BYTES_MAX {
            return Ok(None);
        }
        let raw = self.directory.read_at(self.name, at, ENTRY_BYTES + length + SUM_BYTES)?;
        let entry = sealed(&raw, ENTRY_BYTES + length).and_then(|block| {
            Some(OverwrittenBytes { offset: u64_at(block, 0)?, bytes: block.get(ENTRY_BYTES..)?.to_vec() })
        });
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;

    /// A read-only directory with one journal.
    struct Only(Vec<u8>);

    impl JournalDirectory for Only {
        fn names(&self) -> io::Result<Vec<String>> {
            Ok(vec![String::new()])
        }
        fn read(&self, _: &str) -> io::Result<Vec<u8>> {
            Ok(self.0.clone())
        }
        fn create(&self, _: &str) -> io::Result<Box<dyn Journal>> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn replace(&self, _: &str, _: &[u8]) -> io::Result<Box<dyn Journal>> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn remove(&self, _: &str) -> io::Result<()> {
            Ok(())
        }
    }

    /// Decodes the head and all entries.
    fn read(bytes: &[u8]) -> Result<(JournalHead, Vec<OverwrittenBytes>), Box<JournalContent>> {
        let directory = Only(bytes.to_vec());
        let reader = JournalReader::new(&directory, "");
        match reader.content().unwrap() {
            JournalContent::Entries(head, places) => {
                Ok((head, places.into_iter().map(|at| reader.entry(at).unwrap().unwrap()).collect()))
            }
            other => Err(Box::new(other)),
        }
    }

    #[test]
    fn a_truncated_journal_yields_its_complete_entries() {
        let text = r#"{"file":{"device":1,"inode":7,"born":[5,6]},"above":[{"device":1,"inode":2}]}"#;
        for proof in [None, Some(serde_json::from_str(text).unwrap())] {
            check_cuts(proof);
        }
    }

    fn check_cuts(proof: Option<Proof>) {
        // Version 1 has neither.
        let account = proof.as_ref().and_then(|_| StorageUser::new(7, 8, [9, 10]).map(Arc::new));
        let path = LogicalPath::parse(b"/a\xff").unwrap();
        let head = JournalHead { path, inode: 7, size: 1 << 40, proof, account };
        let entries = [
            OverwrittenBytes { offset: 5, bytes: b"hello".to_vec() },
            OverwrittenBytes { offset: 1 << 33, bytes: Vec::new() },
        ];
        let mut bytes = head.encode();
        let mut ends = vec![bytes.len()];
        for entry in &entries {
            bytes.extend(entry.encode());
            ends.push(bytes.len());
        }
        for cut in 0..=bytes.len() {
            let complete = ends.iter().filter(|end| **end <= cut).count();
            let content = read(&bytes[..cut]);
            if complete == 0 {
                assert_eq!(content, Err(Box::new(JournalContent::Unborn)), "{cut}");
            } else {
                assert_eq!(content, Ok((head.clone(), entries[..complete - 1].to_vec())), "{cut}");
            }
        }
    }

    #[test]
    fn an_account_with_all_groups_that_the_kernel_accepts_is_read() {
        let text = r#"{"file":{"device":1,"inode":7,"born":[5,6]},"above":[{"device":1,"inode":2}]}"#;
        let groups = (0..65_536).map(|number| u32::MAX - 1 - number);
        let head = JournalHead {
            path: LogicalPath::parse(b"/a").unwrap(),
            inode: 7,
            size: 3,
            proof: Some(serde_json::from_str(text).unwrap()),
            account: Some(Arc::new(StorageUser::new(7, 8, groups).unwrap())),
        };
        assert_eq!(read(&head.encode()), Ok((head, Vec::new())));
    }

    #[test]
    fn damage_ends_the_journal_and_unknown_versions_are_reported() {
        let head = JournalHead {
            path: LogicalPath::parse(b"/a").unwrap(),
            inode: 7,
            size: 3,
            proof: None,
            account: None,
        };
        let mut bytes = head.encode();
        bytes.extend(OverwrittenBytes { offset: 0, bytes: b"abc".to_vec() }.encode());
        let at = bytes.len() - 6;
        bytes[at] ^= 1;
        assert_eq!(read(&bytes), Ok((head.clone(), Vec::new())));
        bytes[at] ^= 1;
        let length = head.encode().len() + 8;
        bytes[length..length + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&bytes), Ok((head, Vec::new())));
        bytes[4] = 9;
        assert_eq!(read(&bytes), Err(Box::new(JournalContent::Unknown(9))));
        assert_eq!(read(b"something else"), Err(Box::new(JournalContent::Unborn)));
    }
}
