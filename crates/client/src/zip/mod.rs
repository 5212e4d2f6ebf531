//! [`Archive`]: reads single members of a ZIP archive at a server, without a transfer of the rest.
//!
//! | file        | contents                                 |
//! |-------------|------------------------------------------|
//! | `mod`       | [`Archive`]: open, find, read            |
//! | `directory` | parser of the directory into [`Member`]s |
//! | `inflate`   | decompression of deflated members        |
//! | `append`    | encoder of the records of a new member   |

pub(crate) mod append;
mod directory;
mod inflate;

use bytes::Bytes;
use std::sync::Arc;

use crate::failure::Error;
use crate::file::File;

pub use directory::{
    DIRECTORY_BYTES_MAX, EndRecord, FoundEnd, LOCAL_BYTES, Member, Method, TAIL_BYTES, WIDE_END_BYTES,
    ZipError,
};
pub(crate) use inflate::Inflater;

/// Size of one read of a whole member.
const CHUNK_BYTES: u64 = 2 << 20;

/// The reason why an archive cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ArchiveError<E = Error> {
    /// A read failed.
    #[error("{0}")]
    Read(E),
    /// The bytes are not a valid archive, or the member is missing.
    #[error("{0}")]
    Zip(#[from] ZipError),
}

/// A file that archives are read from.
pub(crate) trait ReadAt {
    /// Error of a read.
    type Error;

    /// Reads exactly `length` bytes from `offset`.
    fn read_at(
        &self,
        offset: u64,
        length: usize,
    ) -> impl Future<Output = Result<Bytes, ArchiveError<Self::Error>>> + Send;
}

/// The directory of an archive.
#[derive(Clone, Debug)]
pub(crate) struct ZipDirectory {
    pub(crate) end: EndRecord,
    /// Raw bytes of the directory.
    pub(crate) bytes: Bytes,
    pub(crate) members: Vec<Member>,
}

impl ZipDirectory {
    /// Returns the directory of an empty file.
    pub(crate) const fn of_nothing() -> Self {
        Self { end: EndRecord::of_nothing(), bytes: Bytes::new(), members: Vec::new() }
    }

    /// Reads the directory with at most three reads, one for a small archive.
    pub(crate) async fn read<R: ReadAt + Sync>(from: &R, size: u64) -> Result<Self, ArchiveError<R::Error>> {
        if size == 0 {
            return Ok(Self::of_nothing());
        }
        let tail_at = size.saturating_sub(TAIL_BYTES);
        let tail = from.read_at(tail_at, usize::try_from(size - tail_at).unwrap_or(usize::MAX)).await?;
        let part = async |at: u64, length: u64| {
            let length = usize::try_from(length).map_err(|_| ZipError::TooLarge(length))?;
            let there = at.checked_sub(tail_at).and_then(|from| usize::try_from(from).ok());
            match there.filter(|from| from + length <= tail.len()) {
                Some(from) => Ok(tail.slice(from..from + length)),
                None => from.read_at(at, length).await,
            }
        };
        let end = match EndRecord::find(&tail, size)? {
            FoundEnd::End(end) => end,
            FoundEnd::Wide(end, at) => end.widen(&part(at, WIDE_END_BYTES).await?)?,
        };
        let length = end.directory.end - end.directory.start;
        let bytes = part(end.directory.start, length).await?;
        let members = end.members(&bytes)?;
        Ok(Self { end, bytes, members })
    }

    /// Returns the member of this name; the last one of several.
    pub(crate) fn find(&self, name: &str) -> Result<&Member, ZipError> {
        let found = self.members.iter().rfind(|member| member.name == name.as_bytes());
        found.ok_or_else(|| ZipError::Missing(name.to_owned()))
    }

    /// Returns the range of the bytes of a supported member.
    pub(crate) async fn data<R: ReadAt + Sync>(
        &self,
        from: &R,
        member: &Member,
    ) -> Result<std::ops::Range<u64>, ArchiveError<R::Error>> {
        if member.encrypted {
            return Err(ZipError::Unsupported(format!("`{}` is encrypted", member.name())).into());
        }
        if let Method::Other(number) = member.method {
            let text =
                format!("`{}` is compressed in a way (number {number}) that is not read here", member.name());
            return Err(ZipError::Unsupported(text).into());
        }
        let header = from.read_at(member.header_at, LOCAL_BYTES).await?;
        Ok(member.data(&header, self.end.directory.start)?)
    }
}

/// An archive at a server. Clones share it.
#[derive(Clone, Debug)]
pub struct Archive {
    file: File,
    directory: Arc<ZipDirectory>,
}

impl ReadAt for File {
    type Error = Error;

    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes, ArchiveError> {
        let data = self.read_range(true, offset, length).await.map_err(ArchiveError::Read)?;
        if data.len() == length { Ok(data) } else { Err(ZipError::Damaged("it has become shorter").into()) }
    }
}

impl Archive {
    /// Reads the directory of an open file.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub async fn open(file: &File) -> Result<Self, ArchiveError> {
        let size = file.known_stat().await.map_err(ArchiveError::Read)?.size;
        let directory = Arc::new(ZipDirectory::read(file, size).await?);
        Ok(Self { file: file.clone(), directory })
    }

    /// Returns the members in the order of the directory.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.directory.members
    }

    /// Returns the member of this name; the last one of several.
    ///
    /// # Errors
    /// [`ZipError::Missing`].
    pub fn find(&self, name: &str) -> Result<&Member, ZipError> {
        self.directory.find(name)
    }

    /// Reads a whole member and passes each piece to `take`, in order. The checksum is verified
    /// only when this function has returned.
    ///
    /// # Errors
    /// [`ArchiveError`], and errors of `take`.
    pub async fn read(
        &self,
        member: &Member,
        mut take: impl FnMut(&[u8]) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let data = self.directory.data(&self.file, member).await?;
        let bad = || ZipError::BadData(member.name().into_owned());
        let mut sum = digest::RunningChecksum::new(digest::Algorithm::Zcrc32);
        let mut inflater = (member.method == Method::Deflated).then(|| Inflater::new(member.size));
        let mut at = data.start;
        while at < data.end {
            let length = (data.end - at).min(CHUNK_BYTES);
            let piece = self.file.read_at(at, usize::try_from(length).unwrap_or(usize::MAX)).await?;
            at += length;
            let Some(inflater) = &mut inflater else {
                sum.update(&piece);
                take(&piece)?;
                continue;
            };
            let mut input = &piece[..];
            while !input.is_empty() || (at == data.end && !inflater.has_ended()) {
                let mut out = Vec::with_capacity(CHUNK_BYTES as usize);
                let used = inflater.inflate(input, at == data.end, &mut out).map_err(|_| bad())?;
                input = input.get(used..).unwrap_or_default();
                sum.update(&out);
                take(&out)?;
            }
        }
        let whole = inflater.is_none_or(|inflater| inflater.has_ended());
        if whole && sum.finish().hex() == crc_text(member.crc32) { Ok(()) } else { Err(bad().into()) }
    }
}

/// Returns the checksum of a member in the form of `zcrc32`.
pub(crate) fn crc_text(crc32: u32) -> String {
    format!("{:08x}", crc32.swap_bytes())
}
