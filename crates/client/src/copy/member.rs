//! A member of a ZIP archive as the source of a copy.
//!
//! Stored members are ranges of the archive and can be read in any order; deflated members are a
//! stream.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use digest::Algorithm;

use super::failure::CopyError;
use super::metadata::PreservedMetadata;
use super::options::CopyOptions;
use super::source::{InflateState, Inflated, SourceKind, SourceReader};
use crate::zip::{ArchiveError, Inflater, Method, ReadAt, ZipDirectory, ZipError, crc_text};

impl ReadAt for SourceReader {
    type Error = CopyError;

    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes, ArchiveError<CopyError>> {
        self.read(offset, length).await.map_err(ArchiveError::Read)
    }
}

impl SourceReader {
    /// Converts an archive error to a copy error.
    pub(super) fn archive_error(&self, error: ArchiveError<CopyError>) -> CopyError {
        match error {
            ArchiveError::Read(error) => error,
            ArchiveError::Zip(error) => CopyError::Archive { place: self.place.to_string(), error },
        }
    }

    /// Returns the member of this name as a source; `self` is the archive.
    pub(super) async fn member(self, name: &str, options: &CopyOptions) -> Result<Self, CopyError> {
        let Some(size) = self.size.filter(|_| !self.is_stream()) else {
            return Err(CopyError::Usage(format!("{} is a stream; members are read from files", self.place)));
        };
        let opened = async {
            let directory = ZipDirectory::read(&self, size).await?;
            let member = directory.find(name)?.clone();
            let data = directory.data(&self, &member).await?;
            Ok((member, data))
        };
        let (member, data) = opened.await.map_err(|error| self.archive_error(error))?;
        // `auto` selects the first one.
        let mut known = if options.metalink_of_member { self.known.clone() } else { Vec::new() };
        known.push((Algorithm::Zcrc32, crc_text(member.crc32)));
        let (place, disk, blocks) = (self.place.clone(), self.disk.clone(), self.blocks.clone());
        let kept = self.kept.map(|kept| PreservedMetadata {
            mode: member.mode.map(|mode| mode & 0o777).filter(|mode| *mode != 0),
            ..kept
        });
        let from = match member.method {
            Method::Deflated => {
                let state = InflateState {
                    at: data.start,
                    input: Bytes::new(),
                    inflater: Inflater::new(member.size),
                };
                SourceKind::Inflated(Inflated {
                    archive: Box::new(self),
                    name: name.to_owned(),
                    end: data.end,
                    chunk_bytes: options.chunk_bytes.max(1),
                    state: Mutex::new(Some(state)),
                })
            }
            _ => SourceKind::Stored(Box::new(self), data.start),
        };
        Ok(Self { place, size: Some(member.size), kept, identity: None, from, known, disk, blocks })
    }
}

impl Inflated {
    /// Returns the archive that contains it.
    pub(super) fn archive(&self) -> &SourceReader {
        &self.archive
    }

    /// Returns the next bytes; empty at the end.
    pub(super) async fn next(&self, length: usize) -> Result<Bytes, CopyError> {
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A call that was dropped half-way does not restore the state.
        let mut state = lock().take().ok_or(CopyError::Cancelled)?;
        let mut block = self.archive.blocks.take(length);
        while block.len() < length && !state.inflater.has_ended() {
            if state.input.is_empty() && state.at < self.end {
                let left = usize::try_from(self.end - state.at).unwrap_or(usize::MAX);
                state.input = self.archive.read(state.at, left.min(self.chunk_bytes)).await?;
                state.at += state.input.len() as u64;
            }
            let last = state.at >= self.end;
            let work = move || {
                let used = state.inflater.inflate(&state.input, last, block.data());
                (used, state, block)
            };
            let inflated = self.archive.disk.run(work).await;
            let (used, after, filled) = inflated.ok_or(CopyError::Cancelled)?;
            (state, block) = (after, filled);
            let used = used.map_err(|_| {
                let error = ZipError::BadData(self.name.clone());
                CopyError::Archive { place: self.archive.place.to_string(), error }
            })?;
            state.input = state.input.slice(used.min(state.input.len())..);
        }
        *lock() = Some(state);
        Ok(block.into_bytes())
    }
}
