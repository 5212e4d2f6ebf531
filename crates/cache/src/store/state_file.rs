//! [`StoredState`]: the content of the file beside the data. It is a `cinfo` file of version 4, followed by what
//! XRootD does not keep:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `SCALLAC1` |
//! | 4, 4 | the two checksums within the `cinfo` before it |
//! | 8, 8 | time of modification and identity of the file at the origin |
//! | as the map of blocks | the blocks with a checksum |
//! | 4 each | their CRC-32C, in order |
//! | 4 | CRC-32C of all of this |
//!
//! XRootD ignores bytes behind a `cinfo`. When it has changed the file, its checksums no longer
//! match, so nothing of the rest is believed.

use super::OriginVersion;
use super::origin_version::VERSION_AGE_MIN;
use crate::{BlockMap, CacheChecks, Cinfo, CinfoError, CinfoVersion};
use digest::crc32c;

/// Begin of the part that XRootD ignores.
const MAGIC: &[u8; 8] = b"SCALLAC1";
/// Number of bytes before the map of this part.
const HEAD_BYTES: usize = 32;
/// Maximum number of blocks of a file. Larger files have larger blocks.
pub(super) const BLOCKS_MAX: u64 = 1 << 20;
/// Maximum size of a state file. That of XRootD may have more blocks, and is not used then.
pub(super) const STATE_BYTES_MAX: u64 = 8 << 20;

/// The state of a cached file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredState {
    pub(crate) cinfo: Cinfo,
    /// The version at the origin; `None` if XRootD has written the file, which does not record it.
    pub(crate) version: Option<OriginVersion>,
    pub(crate) checksums: BlockChecksums,
}

/// The checksums of blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BlockChecksums {
    /// The blocks with a checksum.
    known: BlockMap,
    values: Vec<u32>,
}

impl BlockChecksums {
    /// Creates the checksums of a file none of whose blocks has one; `None` if it has too many blocks.
    pub(crate) fn new(blocks: u64) -> Option<Self> {
        let count = usize::try_from(blocks).ok().filter(|_| blocks <= BLOCKS_MAX)?;
        Some(Self { known: empty_map(blocks)?, values: vec![0; count] })
    }

    pub(crate) fn get(&self, block: u64) -> Option<u32> {
        let value = usize::try_from(block).ok().and_then(|at| self.values.get(at))?;
        self.known.contains(block).then_some(*value)
    }

    pub(crate) fn set(&mut self, block: u64, value: Option<u32>) {
        if let (Some(value), Some(place)) = (value, self.values.get_mut(block as usize)) {
            *place = value;
            self.known.insert(block);
        } else {
            self.known.remove(block);
        }
    }
}

/// Returns a map without blocks.
pub(crate) fn empty_map(blocks: u64) -> Option<BlockMap> {
    let count = usize::try_from(BlockMap::byte_count(blocks)).ok()?;
    BlockMap::new(vec![0; count], blocks)
}

/// Returns the size of the blocks of a new file: the least multiple of `wanted` with which it has at most
/// [`BLOCKS_MAX`] of them.
pub(super) fn block_bytes_for(size: u64, wanted: u64) -> u64 {
    let wanted = wanted.max(1);
    let mut bytes = wanted;
    while size.div_ceil(bytes) > BLOCKS_MAX {
        bytes = bytes.saturating_mul(2);
    }
    bytes
}

/// The result of decoding a state file.
#[derive(Debug)]
pub(crate) enum DecodedState {
    /// It is valid.
    Valid(Box<StoredState>),
    /// It is a `cinfo` file whose content is damaged.
    Damaged,
    /// It is something else.
    Foreign,
}

impl StoredState {
    /// Creates the state of a file of which nothing is stored; `None` if it has too many blocks.
    pub(crate) fn new(version: OriginVersion, block_bytes: u64, now: i64) -> Option<Self> {
        let blocks = version.size.div_ceil(block_bytes).max(1);
        let checksums = BlockChecksums::new(blocks)?;
        let cinfo = Cinfo {
            version: CinfoVersion::Four,
            block_bytes,
            file_bytes: version.size,
            created: now,
            unverified_since: None,
            opens: 0,
            checks: CacheChecks::None,
            blocks: empty_map(blocks)?,
            accesses: Vec::new(),
        };
        Some(Self { cinfo, version: Some(version), checksums })
    }

    /// Reports whether the stored blocks are those of a version at the origin.
    ///
    /// XRootD records the size only. The content is that of a file that was not modified since the cache began
    /// to store it. An origin that sends no time (0) does not show that.
    pub(crate) fn is_of(&self, version: &OriginVersion) -> bool {
        match &self.version {
            Some(own) => own == version,
            None => {
                let created = self.cinfo.created.saturating_sub(VERSION_AGE_MIN);
                self.cinfo.file_bytes == version.size && (1..created).contains(&version.modified)
            }
        }
    }

    /// Returns the number of bytes that are stored.
    pub(crate) fn stored_bytes(&self) -> u64 {
        stored_bytes(&self.cinfo.blocks, self.cinfo.block_bytes, self.cinfo.file_bytes)
    }

    /// Returns the end of the last stored block, an offset in the file.
    pub(super) fn stored_end(&self) -> u64 {
        let Cinfo { blocks, block_bytes, file_bytes, .. } = &self.cinfo;
        let last = (0..blocks.len()).rev().find(|block| blocks.contains(*block));
        last.map_or(0, |last| (last + 1).saturating_mul(*block_bytes).min(*file_bytes))
    }

    /// Encodes the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.cinfo.encode();
        let Some(version) = self.version else { return out };
        let Some(checksums) = cinfo_checksums(&out) else { return out };
        let begin = out.len();
        out.extend(MAGIC);
        out.extend(checksums);
        out.extend(version.modified.to_le_bytes());
        out.extend(version.id.to_le_bytes());
        let mut known = self.checksums.known.clone();
        let blocks = &self.cinfo.blocks;
        (0..blocks.len()).filter(|block| !blocks.contains(*block)).for_each(|block| known.remove(block));
        out.extend(known.as_bytes());
        let values = self.checksums.values.iter().zip(known.iter()).filter(|(_, is_known)| *is_known);
        values.for_each(|(value, _)| out.extend(value.to_le_bytes()));
        let checksum = crc32c(out.get(begin..).unwrap_or_default());
        out.extend(checksum.to_le_bytes());
        out
    }

    /// Returns the last use in seconds since the epoch: the end of the last recorded access, or the begin of the storing.
    pub(crate) fn last_use(&self) -> i64 {
        let accessed = self.cinfo.accesses.last().map(|last| last.detached.max(last.attached));
        self.cinfo.created.max(accessed.unwrap_or(0))
    }

    /// Decodes a file.
    pub(crate) fn decode(bytes: &[u8]) -> DecodedState {
        let cinfo = match Cinfo::decode(bytes) {
            Ok(cinfo) => cinfo,
            Err(CinfoError::Checksum(_)) => return DecodedState::Damaged,
            Err(_) => return DecodedState::Foreign,
        };
        let Some(mut checksums) = BlockChecksums::new(cinfo.blocks.len()) else {
            return DecodedState::Foreign;
        };
        let version = decode_rest(&cinfo, bytes, &mut checksums);
        if version.is_none() {
            (0..cinfo.blocks.len()).for_each(|block| checksums.set(block, None));
        }
        DecodedState::Valid(Box::new(Self { cinfo, version, checksums }))
    }
}

/// Returns the number of bytes of the blocks of a map.
pub(crate) fn stored_bytes(blocks: &BlockMap, block_bytes: u64, file_bytes: u64) -> u64 {
    let all = blocks.present().saturating_mul(block_bytes);
    let Some(last) = blocks.len().checked_sub(1).filter(|last| blocks.contains(*last)) else { return all };
    let missing = (last + 1).saturating_mul(block_bytes).saturating_sub(file_bytes);
    all.saturating_sub(missing)
}

/// Returns the checksums within an encoded `cinfo`. A checksum of all of it would not depend on the content,
/// because it would cover the checksums as well.
fn cinfo_checksums(cinfo: &[u8]) -> Option<[u8; 8]> {
    let head = cinfo.get(52..)?.first_chunk::<4>()?;
    let tail = cinfo.last_chunk::<4>()?;
    [head.as_slice(), tail].concat().try_into().ok()
}

/// Decodes what follows a `cinfo`. Returns the version; `None` if it does not belong to the `cinfo`.
fn decode_rest(cinfo: &Cinfo, bytes: &[u8], checksums: &mut BlockChecksums) -> Option<OriginVersion> {
    if cinfo.version != CinfoVersion::Four {
        return None;
    }
    let map_bytes = cinfo.blocks.as_bytes().len();
    let length = 56 + map_bytes + cinfo.accesses.len() * 56 + 4;
    let (main, rest) = bytes.split_at_checked(length)?;
    let (head, after) = rest.split_first_chunk::<HEAD_BYTES>()?;
    let (map, values) = after.split_at_checked(map_bytes)?;
    let known = BlockMap::new(map.to_vec(), cinfo.blocks.len())?;
    let count = usize::try_from(known.present()).ok()?;
    let (values, sum) = values.split_at_checked(count.checked_mul(4)?)?;
    let sum = u32::from_le_bytes(*sum.first_chunk()?);
    let whole = rest.get(..HEAD_BYTES + map_bytes + values.len())?;
    let is_ours = head.starts_with(MAGIC) && crc32c(whole) == sum;
    let field = |at: usize| head.get(at..).and_then(|part| part.first_chunk::<8>().copied());
    if !is_ours || field(8)? != cinfo_checksums(main)? {
        return None;
    }
    let mut values = values.chunks_exact(4);
    for block in (0..known.len()).filter(|block| known.contains(*block)) {
        let value = values.next().and_then(|value| value.first_chunk::<4>().copied())?;
        checksums.set(block, Some(u32::from_le_bytes(value)));
    }
    let (modified, id) = (i64::from_le_bytes(field(16)?), u64::from_le_bytes(field(24)?));
    Some(OriginVersion { size: cinfo.file_bytes, modified, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: OriginVersion = OriginVersion { size: 10_000, modified: 500, id: 77 };

    fn state() -> StoredState {
        let mut state = StoredState::new(VERSION, 4096, 1000).unwrap();
        for (block, sum) in [(0, 7), (2, 9)] {
            state.cinfo.blocks.insert(block);
            state.checksums.set(block, Some(sum));
        }
        state
    }

    fn decoded(bytes: &[u8]) -> StoredState {
        match StoredState::decode(bytes) {
            DecodedState::Valid(state) => *state,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_state_is_a_cinfo_file_with_version_and_checksums() {
        let state = state();
        let bytes = state.encode();
        assert_eq!(Cinfo::decode(&bytes).as_ref(), Ok(&state.cinfo), "XRootD can read it");
        assert_eq!(decoded(&bytes), state);
        assert_eq!((state.stored_bytes(), state.stored_end()), (4096 + 1808, 10_000));
        assert_eq!((state.checksums.get(0), state.checksums.get(1)), (Some(7), None));
        assert!(state.is_of(&VERSION));
        for other in [
            OriginVersion { size: 9_999, ..VERSION },
            OriginVersion { modified: 501, ..VERSION },
            OriginVersion { id: 78, ..VERSION },
        ] {
            assert!(!state.is_of(&other));
        }
    }

    #[test]
    fn no_changed_bit_and_no_cut_is_believed() {
        let state = state();
        let bytes = state.encode();
        for at in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[at / 8] ^= 1 << (at % 8);
            match StoredState::decode(&changed) {
                DecodedState::Valid(found) => {
                    assert_eq!((found.version, found.checksums.get(0)), (None, None), "bit {at}");
                    assert_eq!(found.cinfo, state.cinfo);
                }
                DecodedState::Damaged | DecodedState::Foreign => {}
            }
        }
        for length in 0..bytes.len() {
            if let DecodedState::Valid(found) = StoredState::decode(&bytes[..length]) {
                assert_eq!(found.version, None, "{length} bytes");
            }
        }
    }

    /// XRootD stores another block and leaves the rest of the file as it was.
    #[test]
    fn a_state_that_xrootd_has_changed_has_no_version() {
        let before = state();
        let mut changed = before.clone();
        changed.cinfo.blocks.insert(1);
        let mut bytes = changed.cinfo.encode();
        bytes.extend(&before.encode()[bytes.len()..]);
        let found = decoded(&bytes);
        assert_eq!((found.version, found.cinfo.blocks.present()), (None, 3));
        assert!((0..3).all(|block| found.checksums.get(block).is_none()));
    }

    #[test]
    fn a_file_of_xrootd_is_believed_if_the_origin_is_older_than_it() {
        let state = StoredState { version: None, ..state() };
        assert!(state.is_of(&OriginVersion { modified: 989, id: 5, ..VERSION }));
        assert!(!state.is_of(&OriginVersion { modified: 990, ..VERSION }));
        assert!(!state.is_of(&OriginVersion { modified: 0, ..VERSION }), "the origin sends no time");
        assert!(!state.is_of(&OriginVersion { size: 10_001, ..VERSION }));
    }

    #[test]
    fn large_files_have_large_blocks() {
        assert_eq!(block_bytes_for(0, 4096), 4096);
        assert_eq!(block_bytes_for(4096 * BLOCKS_MAX, 4096), 4096);
        assert_eq!(block_bytes_for(4096 * BLOCKS_MAX + 1, 4096), 8192);
        assert!(StoredState::new(OriginVersion { size: 1 << 62, ..VERSION }, 4096, 0).is_none());
    }
}
