//! A ZIP archive at a server as the target of a copy: the source is added as a member.
//!
//! The new member overwrites the directory, and a new directory follows it. All writes happen under
//! a checkpoint, so that the server undoes them if the client or the connection is lost before the
//! commit. A server without checkpoints refuses, and the archive is unchanged. The header of the
//! member is written last because it contains the checksum.

use bytes::Bytes;

use super::Copier;
use super::failure::CopyError;
use super::opening::unless_stopped;
use super::options::{CopyOptions, Watch};
use super::overwrite::{create, refused};
use super::place::Place;
use super::source::SourceReader;
use crate::file::{File, OpenWith};
use crate::url::Url;
use crate::zip::append::{self, Appended};
use crate::zip::{ArchiveError, ZipDirectory, ZipError};

/// Permission bits of a member whose source has none.
const MODE: u32 = 0o644;

/// A member that is being added.
pub(super) struct Adding {
    name: Vec<u8>,
    size: u64,
    mode: u32,
    dos_time: (u16, u16),
    /// The directory before the addition.
    before: ZipDirectory,
    /// Set if the addition can be undone because the archive existed before.
    pub(super) checkpoint: bool,
}

/// Opens or creates the archive.
pub(super) async fn open(
    copier: &Copier,
    url: &Url,
    source: &SourceReader,
    options: &CopyOptions,
    watch: &Watch,
) -> Result<(File, Adding), CopyError> {
    let bad = |error| CopyError::Archive { place: url.to_string(), error };
    let name = name(source, options).ok_or_else(|| {
        CopyError::Usage("a stream has no name under which it could be added to an archive".to_owned())
    })?;
    let Some(size) = source.size else {
        return Err(CopyError::Usage(format!(
            "{} is a stream; members of archives need a size",
            source.place
        )));
    };
    if name.is_empty() || name.len() > append::NAME_BYTES_MAX {
        return Err(bad(ZipError::Unsupported("the name of the member is too long".to_owned())));
    }
    let there = async {
        match copier.client.open(url, &OpenWith::update()).await {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(refused(url, error)),
        }
    };
    let there = unless_stopped(watch, there).await?;
    let checkpoint = there.is_some();
    let (file, before) = match there {
        Some(file) => {
            let begun = async {
                let bytes = file.known_stat().await.map_err(CopyError::target)?.size;
                let before = ZipDirectory::read(&file, bytes).await.map_err(|error| match error {
                    ArchiveError::Read(error) => CopyError::target(error),
                    ArchiveError::Zip(error) => bad(error),
                })?;
                if before.find(&name).is_ok() {
                    return Err(bad(ZipError::Exists(name.clone())));
                }
                file.begin_checkpoint().await.map_err(CopyError::target)?;
                Ok(before)
            };
            let before = unless_stopped(watch, begun).await?;
            (file, before)
        }
        None => {
            (create(copier, url, &OpenWith::create().make_path(), watch).await?, ZipDirectory::of_nothing())
        }
    };
    let (mode, dos_time) = match source.kept {
        Some(kept) => (kept.mode.unwrap_or(MODE), dos_time(kept.modified.0)),
        None => (MODE, dos_time(0)),
    };
    Ok((file, Adding { name: name.into_bytes(), size, mode, dos_time, before, checkpoint }))
}

/// Returns the name of the new member: that of the source without its directories.
fn name(source: &SourceReader, options: &CopyOptions) -> Option<String> {
    let member = options.member_of(&source.place);
    let last = |member: String| member.trim_end_matches('/').rsplit('/').next().map(str::to_owned);
    member.and_then(last).or_else(|| match &source.place {
        Place::Stream => None,
        place => place.name().map(|name| name.to_string_lossy().into_owned()),
    })
}

/// Converts a time to MS-DOS date and time in the time zone of this machine. Times before 1980
/// become the first day of 1980.
fn dos_time(seconds: i64) -> (u16, u16) {
    let zoned =
        jiff::Timestamp::from_second(seconds).map(|time| time.to_zoned(crate::local_zone()).datetime());
    let part = |value: i8| u16::try_from(value).unwrap_or(0);
    match zoned {
        Ok(at) if (1980..2108).contains(&at.year()) => {
            let year = u16::try_from(at.year() - 1980).unwrap_or(0);
            let date = (year << 9) | (part(at.month()) << 5) | part(at.day());
            (date, (part(at.hour()) << 11) | (part(at.minute()) << 5) | (part(at.second()) / 2))
        }
        _ => ((1 << 5) | 1, 0),
    }
}

impl Adding {
    fn member(&self, crc32: u32) -> Appended<'_> {
        Appended { name: &self.name, crc32, size: self.size, mode: self.mode, dos_time: self.dos_time }
    }

    /// Returns the offset of the member's header.
    fn at(&self) -> u64 {
        self.before.end.directory.start
    }

    /// Returns the offset of the member's bytes.
    pub(super) fn data_at(&self) -> u64 {
        self.at() + append::local_header(&self.member(0)).len() as u64
    }

    /// Completes the member with its header and the new directory, after all bytes are written.
    pub(super) async fn finish(&self, file: &File, size: u64, crc32: u32) -> Result<(), CopyError> {
        if size != self.size {
            let place = String::from_utf8_lossy(&self.name).into_owned();
            return Err(CopyError::Short { place, at: size, size: self.size });
        }
        let member = self.member(crc32);
        self.write(file, self.at(), append::local_header(&member)).await?;
        let start = self.data_at() + size;
        let directory = [&self.before.bytes[..], &append::entry(&member, self.at())].concat();
        let entries = self.before.members.len() as u64 + 1;
        let tail = append::tail(start, directory.len() as u64, entries, &self.before.end.comment);
        self.write(file, start, [directory, tail].concat()).await?;
        if self.checkpoint {
            file.commit_checkpoint().await.map_err(CopyError::target)?;
        }
        Ok(())
    }

    async fn write(&self, file: &File, offset: u64, data: Vec<u8>) -> Result<(), CopyError> {
        write(file, self.checkpoint, offset, data.into()).await
    }

    /// Abandons the member and restores the archive.
    pub(super) async fn give_up(&self, file: &File) {
        if self.checkpoint {
            file.roll_back().await.ok();
            file.close().await.ok();
        }
    }
}

/// Writes in pieces of a size that servers accept under a checkpoint.
pub(super) async fn write(file: &File, checkpoint: bool, offset: u64, data: Bytes) -> Result<(), CopyError> {
    const PIECE: usize = 1 << 20;
    let mut at = 0;
    while at < data.len() {
        let piece = data.slice(at..data.len().min(at + PIECE));
        let (place, length) = (offset + at as u64, piece.len());
        let written = if checkpoint {
            file.write_checkpointed(place, piece).await
        } else {
            file.write(place, piece).await
        };
        written.map_err(CopyError::target)?;
        at += length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_times_before_1980_are_clamped() {
        assert_eq!(dos_time(0), (33, 0));
        assert_eq!(dos_time(i64::MAX), (33, 0));
        // The year, in every time zone.
        assert_eq!(dos_time(1_700_000_000).0 >> 9, 43);
    }
}
