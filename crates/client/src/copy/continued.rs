//! Completes the partial file of an earlier copy: finds the byte from which the copy continues.
//!
//! A part with a [`Note`](super::note) of this source and this file is complete up to the byte in
//! the note; samples at both ends are compared. Every other part is compared with the source as a
//! whole. Pages of zeros are writes that never arrived. One page with other bytes shows that it is
//! another file, which is left unchanged.

use digest::{Algorithm, RunningChecksum};
use wire::xroot::limits::PAGE_BYTES;

use super::Copier;
use super::checks::same;
use super::failure::CopyError;
use super::holes::is_zero;
use super::local::Left;
use super::place::Place;
use super::source::SourceReader;
use super::target::CopyTarget;
use crate::url::Url;

/// Number of bytes at both ends of a part with a note that are compared with the source.
const SAMPLE_BYTES: u64 = 1024 * 1024;
/// Number of bytes that are compared at once.
const PIECE_BYTES: usize = 4 * 1024 * 1024;
impl CopyTarget {
    /// Returns the byte from which the part has to be copied.
    ///
    /// # Errors
    /// [`CopyError::NotContinued`] if it is not a part of the source.
    pub(super) async fn go_on(
        &mut self,
        copier: &Copier,
        place: &Place,
        source: &SourceReader,
        left: Left,
    ) -> Result<u64, CopyError> {
        let refuse = |why: &str| CopyError::NotContinued { target: place.to_string(), why: why.to_owned() };
        let Some(size) = source.size.filter(|_| !source.is_stream()) else {
            return Err(refuse("the source is a stream or compressed, which has no places to go on from"));
        };
        let noted = left.noted.filter(|noted| Some(&noted.source) == source.identity.as_ref());
        let from = match noted {
            Some(noted) => {
                let from = noted.written.min(left.bytes);
                if from > size || !self.has_ends_of(copier, source, from).await? {
                    return Err(refuse("its bytes are not those of the source"));
                }
                from
            }
            None if left.bytes > size => {
                return Err(refuse(&format!("it has {} bytes, the source has {size}", left.bytes)));
            }
            None if left.bytes == size && self.has_sum_of(copier, source, size).await => size,
            None => {
                let compared = self.compare(copier, source, left.bytes).await?;
                compared.ok_or_else(|| refuse("its bytes are not those of the source"))?
            }
        };
        match self {
            Self::Local(target) => target.keep_first(from)?,
            Self::Remote { file, .. } if from < left.bytes => {
                file.truncate(from).await.map_err(CopyError::target)?;
            }
            Self::Remote { .. } | Self::Archive { .. } | Self::Output => {}
        }
        Ok(from)
    }

    /// Reports whether the start and the end of its first `bytes` bytes equal those of the source.
    async fn has_ends_of(
        &self,
        copier: &Copier,
        source: &SourceReader,
        bytes: u64,
    ) -> Result<bool, CopyError> {
        let sample = bytes.min(SAMPLE_BYTES);
        let length = usize::try_from(sample).unwrap_or(0);
        for at in [0, bytes - sample] {
            if length > 0 && self.read_back(copier, at, length).await? != source.read(at, length).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reports whether its checksum equals that of the source; `false` if the servers have no
    /// checksums.
    async fn has_sum_of(&self, copier: &Copier, source: &SourceReader, size: u64) -> bool {
        if size <= SAMPLE_BYTES {
            return false;
        }
        let ask = async |url: &Url, kind: Option<Algorithm>| {
            let files = copier.client.file_system(url);
            files.checksum(&url.path, kind.map(|kind| kind.name())).await.ok()
        };
        let target = match self {
            Self::Remote { file, .. } => Some(file.location()),
            _ => None,
        };
        let (Some(first), other) = (match (source.location(), target) {
            (Some(source), target) => (Some(source), target),
            (None, target) => (target, None),
        }) else {
            return false;
        };
        let Some(one) = ask(&first, None).await else { return false };
        let Some(algorithm) = Algorithm::from_name(&one.kind) else { return false };
        let value = match other {
            Some(url) => ask(&url, Some(algorithm)).await.map(|sum| sum.value),
            None => self.sum_here(copier, source, algorithm, size).await.ok(),
        };
        value.is_some_and(|value| same(algorithm, &one.value, &value))
    }

    /// Computes the checksum of the file that is on this machine.
    async fn sum_here(
        &self,
        copier: &Copier,
        source: &SourceReader,
        algorithm: Algorithm,
        size: u64,
    ) -> Result<String, CopyError> {
        let mut sum = RunningChecksum::new(algorithm);
        let mut at = 0;
        while at < size {
            let length = usize::try_from(size - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let data = match self {
                Self::Local(_) => self.read_back(copier, at, length).await?,
                _ => source.read(at, length).await?,
            };
            if data.len() != length {
                return Err(CopyError::Cancelled);
            }
            sum.update(&data);
            at += length as u64;
        }
        Ok(sum.finish().hex())
    }

    /// Compares its first `bytes` bytes with the source. Returns the number of bytes before the
    /// first missing page, or `None` if it is another file.
    async fn compare(
        &self,
        copier: &Copier,
        source: &SourceReader,
        bytes: u64,
    ) -> Result<Option<u64>, CopyError> {
        let (mut at, mut whole_to) = (0, None);
        while at < bytes {
            let length = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let both = tokio::try_join!(self.read_back(copier, at, length), source.read(at, length));
            let (ours, theirs) = both?;
            if ours.len() != theirs.len() {
                return Ok(None);
            }
            let pages = ours.chunks(PAGE_BYTES).zip(theirs.chunks(PAGE_BYTES)).enumerate();
            for (number, (ours, _)) in pages.filter(|(_, (ours, theirs))| ours != theirs) {
                if !is_zero(ours) {
                    return Ok(None);
                }
                whole_to.get_or_insert(at + (number * PAGE_BYTES) as u64);
            }
            at += length as u64;
        }
        Ok(Some(whole_to.unwrap_or(bytes)))
    }

    async fn read_back(&self, copier: &Copier, at: u64, length: usize) -> Result<bytes::Bytes, CopyError> {
        match self {
            Self::Local(target) => {
                let mut block = copier.client.blocks().take(length);
                block.data().resize(length, 0);
                let got = target.read_back(at, block.data())?;
                block.data().truncate(got);
                Ok(block.into_bytes())
            }
            Self::Remote { file, .. } => file.read_range(true, at, length).await.map_err(CopyError::target),
            Self::Archive { .. } | Self::Output => Ok(bytes::Bytes::new()),
        }
    }
}
