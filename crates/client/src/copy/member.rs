//! A member of a ZIP archive as the source of a copy.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use digest::Algorithm;

use super::failure::CopyError;
use super::options::CopyOptions;
use super::source::{From, Source};
use crate::zip::{ArchiveError, Directory, Inflater, Method, ReadAt, ZipError, crc_text};

impl ReadAt for Source {
    type Error = CopyError;

    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes, ArchiveError<CopyError>> {
        self.read(offset, length).await.map_err(ArchiveError::Read)
    }
}

impl Source {
    /// What archive errors are for a copy.
    pub(super) fn archive_error(&self, error: ArchiveError<CopyError>) -> CopyError {
        match error {
            ArchiveError::Read(error) => error,
            ArchiveError::Zip(error) => CopyError::Archive { place: self.place.to_string(), error },
        }
    }

    /// The member of this name, of which this is the archive.
    pub(super) async fn member(self, name: &str, options: &CopyOptions) -> Result<Self, CopyError> {
        let Some(size) = self.size else {
            return Err(CopyError::Usage(format!("{} is a stream; members are read from files", self.place)));
        };
        let opened = async {
            let directory = Directory::read(&self, size).await?;
            let member = directory.find(name)?.clone();
            let data = directory.data(&self, &member).await?;
            Ok((member, data))
        };
        let (member, data) = opened.await.map_err(|error| self.archive_error(error))?;
        // The first is what `auto` stands for.
        let mut known = if options.metalink_of_member { self.known.clone() } else { Vec::new() };
        known.push((Algorithm::Zcrc32, crc_text(member.crc32)));
        let (place, disk, blocks) = (self.place.clone(), self.disk.clone(), self.blocks.clone());
        let kept = self.kept.map(|kept| super::local::Kept {
            mode: member.mode.map(|mode| mode & 0o777).filter(|mode| *mode != 0),
            ..kept
        });
        let from = match member.method {
            Method::Deflated => {
                let state =
                    State { at: data.start, input: Bytes::new(), inflater: Inflater::new(member.size) };
                From::Inflated(Inflated {
                    archive: Box::new(self),
                    name: name.to_owned(),
                    end: data.end,
                    chunk_bytes: options.chunk_bytes.max(1),
                    state: Mutex::new(Some(state)),
                })
            }
            _ => From::Stored(Box::new(self), data.start),
        };
        Ok(Self { place, size: Some(member.size), kept, identity: None, from, known, disk, blocks })
    }
}

/// A deflated member.
pub(super) struct Inflated {
    archive: Box<Source>,
    name: String,
    /// Where its compressed bytes end.
    end: u64,
    chunk_bytes: usize,
    /// Away while somebody takes the next bytes, which one at a time does.
    state: Mutex<Option<State>>,
}

struct State {
    /// Where the next compressed bytes are.
    at: u64,
    /// Those that were read already.
    input: Bytes,
    inflater: Inflater,
}

impl Inflated {
    /// The next bytes; none at the end.
    pub(super) async fn next(&self, length: usize) -> Result<Bytes, CopyError> {
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Who was stopped in the middle leaves nothing behind.
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
