//! Where the bytes of a copy come from.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use digest::Algorithm;
use wire::xroot::ErrorCode;

use super::Copier;
use super::disk::Disk;
use super::failure::CopyError;
use super::local::Kept;
use super::local_source::{LocalSource, read_stream};
use super::many::Crowd;
use super::member::Inflated;
use super::mirrored::InTurn;
use super::options::CopyOptions;
use super::place::Place;
use crate::answers::StatInfo;
use crate::blocks::Blocks;
use crate::file::{File, OpenWith};
use crate::path::shown_path;
use crate::url::Url;

/// An open source.
pub(super) struct Source {
    pub(super) place: Place,
    /// Bytes; `None` when only the end will tell.
    pub(super) size: Option<u64>,
    pub(super) kept: Option<Kept>,
    /// Which file it is, and in which state; `None` where nothing tells that for all of it.
    pub(super) identity: Option<String>,
    pub(super) from: From,
    /// Checksums that it brings along.
    pub(super) known: Vec<(Algorithm, String)>,
    pub(super) disk: Disk,
    pub(super) blocks: Blocks,
}

/// What it is read from.
pub(super) enum From {
    Remote {
        file: File,
        pages: bool,
    },
    Local(Arc<LocalSource>),
    /// Several servers.
    Many(Crowd),
    /// The places of a metalink, one at a time.
    InTurn(Box<InTurn>),
    /// A small file, read when it was opened.
    Memory(Bytes),
    /// Standard input, a pipe or a device: the next bytes are all there is.
    Stream(Stream),
    /// A member of an archive, as it lies there from this place on.
    Stored(Box<Source>, u64),
    /// A member that is inflated on the way: like a stream, but its size is known.
    Inflated(Inflated),
}

/// Something without places.
#[derive(Clone)]
pub(super) enum Stream {
    Input,
    Device(Arc<LocalSource>),
}

/// What a server told about a file, as far as a copy keeps it.
fn kept(stat: &StatInfo) -> Kept {
    let more = stat.more.as_ref();
    Kept {
        modified: (stat.mtime, 0),
        accessed: (more.map_or(stat.mtime, |more| more.atime), 0),
        mode: more.map(|more| more.mode),
    }
}

impl Source {
    pub(super) async fn open(
        copier: &Copier,
        place: &Place,
        options: &CopyOptions,
    ) -> Result<Self, CopyError> {
        let whole = match copier.metalink(place, options).await? {
            Some(metalink) => Box::pin(Self::open_mirrored(copier, place, metalink, options)).await?,
            None => Self::open_whole(copier, place, Vec::new(), options).await?,
        };
        match options.member_of(place) {
            Some(name) => whole.member(&name, options).await,
            None => Ok(whole),
        }
    }

    /// A file; `mirrors` are where several sources of it are, if that is known.
    pub(super) async fn open_whole(
        copier: &Copier,
        place: &Place,
        mirrors: Vec<Url>,
        options: &CopyOptions,
    ) -> Result<Self, CopyError> {
        let mut identity = None;
        let (size, kept, from) = match place {
            Place::Remote(url) if options.sources > 1 || !url.others.is_empty() => {
                let crowd = Crowd::open(copier, url, mirrors, options).await?;
                let stat = crowd.stat().clone();
                (Some(stat.size), Some(kept(&stat)), From::Many(crowd))
            }
            Place::Remote(url) => {
                let with = if options.coerce { OpenWith::read().force() } else { OpenWith::read() };
                let file = copier.client.open(url, &with).await.map_err(|error| match error.code() {
                    Some(ErrorCode::IS_DIRECTORY) => CopyError::IsDirectory(place.to_string()),
                    _ => CopyError::source(error),
                })?;
                let stat = file.known_stat().await.map_err(CopyError::source)?;
                if stat.is_dir() {
                    return Err(CopyError::IsDirectory(place.to_string()));
                }
                let pages = options.pages && file.channel().has_page_io();
                identity = file.identity().map(|identity| identity.to_string());
                (Some(stat.size), Some(kept(&stat)), From::Remote { file, pages })
            }
            Place::Local(path) => {
                let (opened, is) = Self::open_local(copier, path, options).await?;
                identity = is;
                opened
            }
            Place::Stream => (None, None, From::Stream(Stream::Input)),
        };
        let (disk, blocks) = (copier.disk.clone(), copier.client.blocks().clone());
        Ok(Self { place: place.clone(), size, kept, identity, from, known: Vec::new(), disk, blocks })
    }

    async fn open_local(
        copier: &Copier,
        path: &Path,
        options: &CopyOptions,
    ) -> Result<((Option<u64>, Option<Kept>, From), Option<String>), CopyError> {
        let (path, blocks, small) = (path.to_owned(), copier.client.blocks().clone(), options.chunk_bytes);
        let opened = copier.disk.run(move || {
            let source = LocalSource::open(&path)?;
            let (size, kept) = (source.size, source.kept);
            if !source.regular {
                return Ok(((None, None, From::Stream(Stream::Device(Arc::new(source)))), None));
            }
            let identity = Some(source.identity.clone());
            if size > small as u64 {
                return Ok(((Some(size), Some(kept), From::Local(Arc::new(source))), identity));
            }
            let data = source.read(0, usize::try_from(size).unwrap_or(0), &blocks)?;
            if data.len() as u64 != size {
                let place = shown_path(&path).into_owned();
                return Err(CopyError::Short { place, at: data.len() as u64, size });
            }
            Ok(((Some(size), Some(kept), From::Memory(data)), identity))
        });
        opened.await.unwrap_or(Err(CopyError::Cancelled))
    }

    /// The parts that have to be read; the rest is zeros.
    pub(super) async fn extents(&self, from: u64) -> Vec<Range<u64>> {
        let size = self.size.unwrap_or(u64::MAX);
        let whole = std::iter::once(from..size).collect();
        match &self.from {
            From::Local(source) => {
                let source = source.clone();
                self.disk.run(move || source.extents(from)).await.unwrap_or(whole)
            }
            _ if from < size => whole,
            _ => Vec::new(),
        }
    }

    /// Reads exactly `length` bytes from `offset`.
    pub(super) async fn read(&self, offset: u64, length: usize) -> Result<Bytes, CopyError> {
        let data = match &self.from {
            From::Remote { file, pages } => {
                file.read_as(*pages, offset, length).await.map_err(CopyError::source)?
            }
            From::Many(crowd) => Box::pin(crowd.read(offset, length)).await?,
            From::InTurn(places) => Box::pin(places.read(offset, length)).await?,
            From::Local(source) => {
                let (source, blocks) = (source.clone(), self.blocks.clone());
                let read = self.disk.run(move || source.read(offset, length, &blocks)).await;
                read.unwrap_or(Err(CopyError::Cancelled))?
            }
            From::Memory(data) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
                data.slice(from..data.len().min(from + length))
            }
            From::Stored(archive, start) => Box::pin(archive.read(start + offset, length)).await?,
            From::Stream(_) | From::Inflated(_) => self.read_next(length).await?,
        };
        if data.len() != length {
            let (place, at) = (self.place.to_string(), offset + data.len() as u64);
            return Err(CopyError::Short { place, at, size: self.size.unwrap_or(at) });
        }
        Ok(data)
    }

    /// The next bytes of a stream, fewer only at its end.
    pub(super) async fn read_next(&self, length: usize) -> Result<Bytes, CopyError> {
        let stream = match &self.from {
            From::Stream(stream) => stream,
            From::Inflated(member) => return Box::pin(member.next(length)).await,
            _ => return Ok(Bytes::new()),
        };
        let (stream, blocks) = (stream.clone(), self.blocks.clone());
        let read = move || match stream {
            Stream::Input => read_stream(std::io::stdin(), Path::new("standard input"), length, &blocks),
            Stream::Device(source) => source.read_next(length, &blocks),
        };
        self.disk.run(read).await.unwrap_or(Err(CopyError::Cancelled))
    }

    /// Where its server is asked about it.
    pub(super) fn location(&self) -> Option<Url> {
        match &self.from {
            From::Remote { file, .. } => Some(file.location()),
            From::Many(crowd) => crowd.location(),
            From::InTurn(places) => places.now().1.location(),
            // Servers know the archive, not what is in it.
            _ => None,
        }
    }

    /// Whether it has no places.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.from, From::Stream(_) | From::Inflated(_))
    }
}
