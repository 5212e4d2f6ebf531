//! The file `cinfo` beside each cached file: which blocks are there, and when clients had it open.
//!
//! Version 4, all integers little-endian:
//!
//! | offset | content |
//! |---|---|
//! | 0 | version, 4 bytes |
//! | 4 | size of a block, size of the file, time of creation, time of the first unverified block (0: none), number of opens; 8 bytes each |
//! | 44 | how the content was verified, 4 bytes |
//! | 48 | number n of accesses, 4 bytes |
//! | 52 | CRC-32C of the bytes from 4 to 52 |
//! | 56 | [`BlockMap`], then n accesses of 56 bytes, then the CRC-32C of both |
//!
//! XRootD rewrites a file in place, so bytes of a longer state can follow. Versions 2 and 3 have the
//! map behind the size of the file, its MD5 checksum, the time of creation, the number of opens, and
//! accesses up to the end of the file.
//!
//! Source: proxy facts, section 12.

use crate::BlockMap;
use digest::{Algorithm, RunningChecksum, crc32c};
use thiserror::Error;

/// Maximum size of a file: that of 2 TiB in blocks of 4 KiB, with its accesses.
pub const CINFO_BYTES_MAX: u64 = 72 << 20;

/// Maximum size of a block, and of a file.
const BLOCK_BYTES_MAX: u64 = 1 << 30;
const FILE_BYTES_MAX: u64 = 1 << 60;

const HEAD_BYTES: usize = 48;
const ACCESS_BYTES: usize = 56;
const ACCESS_BYTES_V2: usize = 40;
const MD5_BYTES: usize = 16;

/// The version of a file that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CinfoVersion {
    /// Version 2.
    Two,
    /// Version 3.
    Three,
    /// Version 4, the only one that is written.
    Four,
}

impl CinfoVersion {
    /// Returns the number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
            Self::Four => 4,
        }
    }
}

/// How the content of a cached file was verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheChecks {
    /// It was not.
    None,
    /// On the disk of the cache.
    Cache,
    /// On its way from the origin.
    Network,
    /// Both.
    Both,
}

impl CacheChecks {
    const fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::None,
            1 => Self::Cache,
            2 => Self::Network,
            _ => Self::Both,
        }
    }

    const fn bits(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Cache => 1,
            Self::Network => 2,
            Self::Both => 3,
        }
    }
}

/// A period in which clients had the file open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheAccess {
    /// Begin, in seconds since the epoch.
    pub attached: i64,
    /// End, in seconds since the epoch; 0 if it has not ended, or by a crash.
    pub detached: i64,
    /// Number of opens.
    pub opens: i32,
    /// Time in seconds, added up over the opens.
    pub duration: i32,
    /// Number of other periods that were merged with this one.
    pub merged: i32,
    /// Number of bytes that were in the cache.
    pub bytes_hit: i64,
    /// Number of bytes that were fetched and stored.
    pub bytes_missed: i64,
    /// Number of bytes that were fetched and not stored.
    pub bytes_bypassed: i64,
}

/// The content of a `cinfo` file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cinfo {
    /// The version of the file that was read.
    pub version: CinfoVersion,
    /// Size of a block in bytes.
    pub block_bytes: u64,
    /// Size of the cached file in bytes.
    pub file_bytes: u64,
    /// Time of creation, in seconds since the epoch.
    pub created: i64,
    /// Time at which the first unverified block was stored, in seconds since the epoch.
    pub unverified_since: Option<i64>,
    /// Number of all opens.
    pub opens: u64,
    /// How the content was verified.
    pub checks: CacheChecks,
    /// The blocks in the cache.
    pub blocks: BlockMap,
    /// The periods in which clients had the file open, from the oldest.
    pub accesses: Vec<CacheAccess>,
}

/// The reason why a file is not a valid `cinfo` file.
#[derive(Clone, Copy, PartialEq, Eq, Error, Debug)]
pub enum CinfoError {
    /// The file ends too early.
    #[error("the file ends too early")]
    Short,
    /// The version is not supported.
    #[error("version {0} is not supported (2, 3 and 4 are)")]
    Version(i32),
    /// A size or number is out of range.
    #[error("the {0} is out of range")]
    Range(&'static str),
    /// A checksum does not match.
    #[error("the checksum of its {0} does not match: the file is damaged")]
    Checksum(&'static str),
}

/// The rest of a file.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], CinfoError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(CinfoError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CinfoError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(CinfoError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn i32(&mut self) -> Result<i32, CinfoError> {
        self.array().map(i32::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, CinfoError> {
        self.array().map(u32::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, CinfoError> {
        self.array().map(i64::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, CinfoError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a size of at most `most`.
    fn size(&mut self, what: &'static str, most: u64) -> Result<u64, CinfoError> {
        u64::try_from(self.i64()?).ok().filter(|size| *size <= most).ok_or(CinfoError::Range(what))
    }

    /// Takes the sizes of a block and of the file.
    fn sizes(&mut self) -> Result<(u64, u64), CinfoError> {
        let block_bytes = self.size("size of a block", BLOCK_BYTES_MAX)?;
        if block_bytes == 0 {
            return Err(CinfoError::Range("size of a block"));
        }
        Ok((block_bytes, self.size("size of the cached file", FILE_BYTES_MAX)?))
    }

    /// Takes the map of a file with these sizes.
    fn blocks(&mut self, block_bytes: u64, file_bytes: u64) -> Result<BlockMap, CinfoError> {
        // An empty file has one block.
        let blocks = file_bytes.div_ceil(block_bytes).max(1);
        let count = usize::try_from(BlockMap::byte_count(blocks)).map_err(|_| CinfoError::Short)?;
        BlockMap::new(self.take(count)?.to_vec(), blocks).ok_or(CinfoError::Short)
    }

    fn access(&mut self) -> Result<CacheAccess, CinfoError> {
        let (attached, detached, opens, duration) = (self.i64()?, self.i64()?, self.i32()?, self.i32()?);
        let merged = self.i32()?;
        let _reserved = self.i32()?;
        let (bytes_hit, bytes_missed, bytes_bypassed) = (self.i64()?, self.i64()?, self.i64()?);
        Ok(CacheAccess {
            attached,
            detached,
            opens,
            duration,
            merged,
            bytes_hit,
            bytes_missed,
            bytes_bypassed,
        })
    }

    /// Takes an access of version 2, which has one open.
    fn access_v2(&mut self) -> Result<CacheAccess, CinfoError> {
        let (attached, detached) = (self.i64()?, self.i64()?);
        let (bytes_hit, bytes_missed, bytes_bypassed) = (self.i64()?, self.i64()?, self.i64()?);
        let seconds = if detached == 0 { 0 } else { detached.saturating_sub(attached) };
        let duration = i32::try_from(seconds).unwrap_or(i32::MAX);
        Ok(CacheAccess {
            attached,
            detached,
            opens: 1,
            duration,
            merged: 0,
            bytes_hit,
            bytes_missed,
            bytes_bypassed,
        })
    }
}

impl CacheAccess {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.attached.to_le_bytes());
        out.extend(self.detached.to_le_bytes());
        for number in [self.opens, self.duration, self.merged, 0] {
            out.extend(number.to_le_bytes());
        }
        for number in [self.bytes_hit, self.bytes_missed, self.bytes_bypassed] {
            out.extend(number.to_le_bytes());
        }
    }

    /// Reports whether the times are possible.
    const fn is_possible(&self) -> bool {
        self.opens > 0 && self.attached > 0 && (self.detached == 0 || self.detached >= self.attached)
    }
}

impl Cinfo {
    /// Decodes a file of version 2, 3 or 4. Bytes after the last checksum of version 4 are ignored.
    ///
    /// # Errors
    /// [`CinfoError`] if the content is not valid.
    pub fn decode(bytes: &[u8]) -> Result<Self, CinfoError> {
        let mut rest = Rest(bytes);
        match rest.i32()? {
            2 => Self::decode_old(rest, CinfoVersion::Two),
            3 => Self::decode_old(rest, CinfoVersion::Three),
            4 => Self::decode_v4(rest),
            version => Err(CinfoError::Version(version)),
        }
    }

    fn decode_v4(mut rest: Rest<'_>) -> Result<Self, CinfoError> {
        let mut head = Rest(rest.take(HEAD_BYTES)?);
        if crc32c(head.0) != rest.u32()? {
            return Err(CinfoError::Checksum("head"));
        }
        let (block_bytes, file_bytes) = head.sizes()?;
        let (created, unverified, opens) = (head.i64()?, head.i64()?, head.u64()?);
        let (status, count) = (head.u32()?, head.i32()?);
        let count = usize::try_from(count).map_err(|_| CinfoError::Range("number of accesses"))?;
        let checked = rest.0;
        let blocks = rest.blocks(block_bytes, file_bytes)?;
        let size = count.checked_mul(ACCESS_BYTES).ok_or(CinfoError::Short)?;
        let mut records = Rest(rest.take(size)?);
        let (checked, _) = checked.split_at(checked.len() - rest.0.len());
        if crc32c(checked) != rest.u32()? {
            return Err(CinfoError::Checksum("blocks and accesses"));
        }
        let accesses = (0..count).map(|_| records.access()).collect::<Result<_, _>>()?;
        Ok(Self {
            version: CinfoVersion::Four,
            block_bytes,
            file_bytes,
            created,
            unverified_since: (unverified != 0).then_some(unverified),
            opens,
            checks: CacheChecks::from_bits(status),
            blocks,
            accesses,
        })
    }

    fn decode_old(mut rest: Rest<'_>, version: CinfoVersion) -> Result<Self, CinfoError> {
        let (block_bytes, file_bytes) = rest.sizes()?;
        let blocks = rest.blocks(block_bytes, file_bytes)?;
        if RunningChecksum::of(Algorithm::Md5, blocks.as_bytes()).bytes() != rest.take(MD5_BYTES)? {
            return Err(CinfoError::Checksum("blocks"));
        }
        let (created, opens) = (rest.i64()?, rest.u64()?);
        let mut accesses = Vec::new();
        let size = if version == CinfoVersion::Two { ACCESS_BYTES_V2 } else { ACCESS_BYTES };
        // A record that was cut off by a crash is left out.
        while rest.0.len() >= size {
            let access = if version == CinfoVersion::Two { rest.access_v2()? } else { rest.access()? };
            accesses.extend(Some(access).filter(CacheAccess::is_possible));
        }
        Ok(Self {
            version,
            block_bytes,
            file_bytes,
            created,
            unverified_since: None,
            opens,
            checks: CacheChecks::None,
            blocks,
            accesses,
        })
    }

    /// Encodes the file in version 4.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = CinfoVersion::Four.number().to_le_bytes().to_vec();
        let mut head = Vec::with_capacity(HEAD_BYTES);
        for number in [self.block_bytes, self.file_bytes] {
            head.extend(number.to_le_bytes());
        }
        for time in [self.created, self.unverified_since.unwrap_or(0)] {
            head.extend(time.to_le_bytes());
        }
        head.extend(self.opens.to_le_bytes());
        head.extend(self.checks.bits().to_le_bytes());
        // More accesses than a file can have are never read.
        let accesses = &self.accesses[..self.accesses.len().min(i32::MAX as usize)];
        head.extend((accesses.len() as u32).to_le_bytes());
        out.extend(&head);
        out.extend(crc32c(&head).to_le_bytes());
        let mut tail = self.blocks.as_bytes().to_vec();
        accesses.iter().for_each(|access| access.encode(&mut tail));
        out.extend(&tail);
        out.extend(crc32c(&tail).to_le_bytes());
        out
    }

    /// Reports whether the whole file is in the cache. An empty file always is.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.file_bytes == 0 || self.blocks.present() == self.blocks.len()
    }
}
