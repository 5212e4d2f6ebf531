//! The bytes of a checkpoint's journal: a head that says of which file it speaks, then what was overwritten, in order.
//!
//! All integers are little-endian.
//!
//! | bytes of the head | field |
//! |---|---|
//! | 0..4 | `SCKP` |
//! | 4..8 | version, 1 |
//! | 8..16 | inode of the file |
//! | 16..24 | its size in bytes before the first change |
//! | 24..28 | length of its path |
//! | 28.. | its path, then CRC32C of all before |
//!
//! | bytes of an entry | field |
//! |---|---|
//! | 0..8 | offset in the file |
//! | 8..12 | length of the saved bytes |
//! | 12.. | the bytes, then CRC32C of all before |
//!
//! An entry that is cut or does not verify ends the journal: it was never promised to be there, so nothing was
//! overwritten on its strength.

use base::LogicalPath;

const MAGIC: &[u8; 4] = b"SCKP";
const VERSION: u32 = 1;

/// Of which file a journal speaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) path: LogicalPath,
    pub(crate) inode: u64,
    pub(crate) size: u64,
}

/// What one change overwrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
}

/// What a journal's bytes say.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Content<'a> {
    /// It never came to be complete, so nothing was changed under it.
    Unborn,
    /// A format that this release does not know.
    Unknown(u32),
    /// It speaks.
    Entries(Head, Vec<Entry<'a>>),
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = digest::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

impl Head {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let path = self.path.as_bytes();
        let mut bytes = Vec::with_capacity(32 + path.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.inode.to_le_bytes());
        bytes.extend_from_slice(&self.size.to_le_bytes());
        // A path has at most 4095 bytes.
        bytes.extend_from_slice(&(path.len() as u32).to_le_bytes());
        bytes.extend_from_slice(path);
        seal(bytes)
    }
}

impl Entry<'_> {
    /// `bytes` must be shorter than 4 GiB, which the limit of a checkpoint sees to.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.bytes.len());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.bytes);
        seal(bytes)
    }
}

/// Cuts a sealed block of `length` bytes and its sum off `rest`; `None` if it is cut or does not verify.
fn sealed<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (block, after) = rest.split_at_checked(length)?;
    let (sum, after) = after.split_first_chunk()?;
    if digest::crc32c(block) != u32::from_le_bytes(*sum) {
        return None;
    }
    *rest = after;
    Some(block)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|raw| u32::from_le_bytes(*raw))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|raw| u64::from_le_bytes(*raw))
}

fn head(rest: &mut &[u8]) -> Option<Head> {
    let length = u32_at(rest, 24)? as usize;
    let block = sealed(rest, length.checked_add(28)?)?;
    let path = LogicalPath::parse(block.get(28..)?).ok()?;
    Some(Head { path, inode: u64_at(block, 8)?, size: u64_at(block, 16)? })
}

fn entry<'a>(rest: &mut &'a [u8]) -> Option<Entry<'a>> {
    let length = u32_at(rest, 8)? as usize;
    let block = sealed(rest, length.checked_add(12)?)?;
    Some(Entry { offset: u64_at(block, 0)?, bytes: block.get(12..)? })
}

/// Reads a journal.
pub(crate) fn parse(bytes: &[u8]) -> Content<'_> {
    let mut rest = bytes;
    if bytes.get(..4) == Some(MAGIC)
        && let Some(version) = u32_at(bytes, 4)
        && version != VERSION
    {
        return Content::Unknown(version);
    }
    if bytes.get(..4) != Some(MAGIC) {
        return Content::Unborn;
    }
    let Some(head) = head(&mut rest) else { return Content::Unborn };
    let mut entries = Vec::new();
    while let Some(entry) = entry(&mut rest) {
        entries.push(entry);
    }
    Content::Entries(head, entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_cut_at_any_byte_says_what_is_complete() {
        let head = Head { path: LogicalPath::parse(b"/a\xff").unwrap(), inode: 7, size: 1 << 40 };
        let entries = [Entry { offset: 5, bytes: b"hello" }, Entry { offset: 1 << 33, bytes: b"" }];
        let mut bytes = head.encode();
        let mut ends = vec![bytes.len()];
        for entry in &entries {
            bytes.extend(entry.encode());
            ends.push(bytes.len());
        }
        for cut in 0..=bytes.len() {
            let complete = ends.iter().filter(|end| **end <= cut).count();
            let content = parse(&bytes[..cut]);
            if complete == 0 {
                assert_eq!(content, Content::Unborn, "{cut}");
            } else {
                assert_eq!(
                    content,
                    Content::Entries(head.clone(), entries[..complete - 1].to_vec()),
                    "{cut}"
                );
            }
        }
    }

    #[test]
    fn damage_ends_the_journal_and_another_version_is_not_guessed_at() {
        let head = Head { path: LogicalPath::parse(b"/a").unwrap(), inode: 7, size: 3 };
        let mut bytes = head.encode();
        bytes.extend(Entry { offset: 0, bytes: b"abc" }.encode());
        let at = bytes.len() - 6;
        bytes[at] ^= 1;
        assert_eq!(parse(&bytes), Content::Entries(head, Vec::new()));
        bytes[4] = 9;
        assert_eq!(parse(&bytes), Content::Unknown(9));
        assert_eq!(parse(b"something else"), Content::Unborn);
    }
}
