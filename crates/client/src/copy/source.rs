//! The source of a copy.
//!
//! A source can consist of another one: a member of an archive, or the places of a metalink. Therefore
//! all kinds are defined here. `member` and `mirrored` open and read those two.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use digest::Algorithm;
use wire::xroot::ErrorCode;

use super::Copier;
use super::disk::DiskThreads;
use super::failure::CopyError;
use super::local_source::{LocalId, LocalSource, read_stream};
use super::metadata::PreservedMetadata;
use super::multi_source::MultiSource;
use super::options::CopyOptions;
use super::place::Place;
use super::web_source::WebSource;
use crate::answers::StatInfo;
use crate::buffer_pool::DataBufferPool;
use crate::file::{File, OpenWith};
use crate::identity::RemoteFileIdentity;
use crate::path::shown_path;
use crate::url::Url;
use crate::zip::Inflater;

/// An open source.
pub(super) struct SourceReader {
    pub(super) place: Place,
    /// Size in bytes; `None` if it is only known at the end.
    pub(super) size: Option<u64>,
    pub(super) kept: Option<PreservedMetadata>,
    /// The identity and state of the file; `None` if they are not known for all of it.
    pub(super) identity: Option<String>,
    pub(super) from: SourceKind,
    /// Checksums that come with it.
    pub(super) known: Vec<(Algorithm, String)>,
    pub(super) disk: DiskThreads,
    pub(super) blocks: DataBufferPool,
}

/// The kind of a source.
pub(super) enum SourceKind {
    Remote {
        file: File,
        pages: bool,
    },
    Local(Arc<LocalSource>),
    /// A file of an HTTP server.
    Web(WebSource),
    /// Several servers.
    Many(MultiSource),
    /// The places of a metalink, which are tried in turn.
    InTurn(Box<InTurn>),
    /// A small file, read when it was opened.
    Memory(Bytes),
    /// Standard input, a pipe or a device, which can only be read in order.
    Stream(SourceStream),
    /// A member of an archive that is stored uncompressed from this offset on.
    Stored(Box<SourceReader>, u64),
    /// A member that is inflated as it is read: like a stream, but its size is known.
    Inflated(Inflated),
}

/// A source without offsets.
#[derive(Clone)]
pub(super) enum SourceStream {
    Input,
    Device(Arc<LocalSource>),
}

/// A file that is read from one location of a metalink, with the next ones as fallback.
pub(super) struct InTurn {
    pub(super) copier: Copier,
    pub(super) options: CopyOptions,
    /// Current source and the number of locations that failed before.
    pub(super) now: Mutex<(usize, Arc<SourceReader>)>,
    pub(super) waiting: tokio::sync::Mutex<UntriedLocations>,
}

/// Locations of a metalink that were not tried yet.
pub(super) struct UntriedLocations {
    pub(super) metalink: Place,
    /// Expected size of the file in bytes.
    pub(super) size: Option<u64>,
    pub(super) places: VecDeque<Url>,
}

/// A deflated member.
pub(super) struct Inflated {
    pub(super) archive: Box<SourceReader>,
    pub(super) name: String,
    /// End of its compressed bytes.
    pub(super) end: u64,
    pub(super) chunk_bytes: usize,
    /// `None` while a caller takes the next bytes, which one at a time does.
    pub(super) state: Mutex<Option<InflateState>>,
}

/// The position in a deflated member.
pub(super) struct InflateState {
    /// Offset of the next compressed bytes.
    pub(super) at: u64,
    /// Bytes that were read and not decompressed yet.
    pub(super) input: Bytes,
    pub(super) inflater: Inflater,
}

/// Returns the part of a status that a copy preserves.
fn kept(stat: &StatInfo) -> PreservedMetadata {
    let more = stat.more.as_ref();
    PreservedMetadata {
        modified: (stat.mtime, 0),
        accessed: (more.map_or(stat.mtime, |more| more.atime), 0),
        mode: more.map(|more| more.mode),
    }
}

impl SourceReader {
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

    /// Opens a file. `mirrors` are the places of several sources, if known.
    pub(super) async fn open_whole(
        copier: &Copier,
        place: &Place,
        mirrors: Vec<Url>,
        options: &CopyOptions,
    ) -> Result<Self, CopyError> {
        let mut identity = None;
        let (size, kept, from) = match place {
            Place::Remote(url) if url.is_http() => {
                let web = WebSource::open(&copier.client, url).await.map_err(|error| match error.code() {
                    Some(ErrorCode::IS_DIRECTORY) => CopyError::IsDirectory(place.to_string()),
                    _ => CopyError::source(error),
                })?;
                identity = web.identity();
                (web.size(), web.kept(), SourceKind::Web(web))
            }
            Place::Remote(url) if options.sources > 1 || !url.others.is_empty() => {
                let sources = MultiSource::open(copier, url, mirrors, options).await?;
                let stat = sources.stat().clone();
                (Some(stat.size), Some(kept(&stat)), SourceKind::Many(sources))
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
                (Some(stat.size), Some(kept(&stat)), SourceKind::Remote { file, pages })
            }
            Place::Local(path) => {
                let (opened, is) = Self::open_local(copier, path, options).await?;
                identity = is;
                opened
            }
            Place::Stream => (None, None, SourceKind::Stream(SourceStream::Input)),
        };
        let (disk, blocks) = (copier.disk.clone(), copier.client.blocks().clone());
        Ok(Self { place: place.clone(), size, kept, identity, from, known: Vec::new(), disk, blocks })
    }

    async fn open_local(
        copier: &Copier,
        path: &Path,
        options: &CopyOptions,
    ) -> Result<((Option<u64>, Option<PreservedMetadata>, SourceKind), Option<String>), CopyError> {
        let (path, blocks, small) = (path.to_owned(), copier.client.blocks().clone(), options.chunk_bytes);
        let opened = copier.disk.run(move || {
            let source = LocalSource::open(&path)?;
            let (size, kept) = (source.size, source.kept);
            if !source.regular {
                return Ok(((None, None, SourceKind::Stream(SourceStream::Device(Arc::new(source)))), None));
            }
            let identity = Some(source.identity.clone());
            if size > small as u64 {
                return Ok(((Some(size), Some(kept), SourceKind::Local(Arc::new(source))), identity));
            }
            let data = source.read(0, usize::try_from(size).unwrap_or(0), &blocks)?;
            if data.len() as u64 != size {
                let place = shown_path(&path).into_owned();
                return Err(CopyError::Short { place, at: data.len() as u64, size });
            }
            Ok(((Some(size), Some(kept), SourceKind::Memory(data)), identity))
        });
        opened.await.unwrap_or(Err(CopyError::Cancelled))
    }

    /// Returns the parts that must be read; the rest is zeros.
    pub(super) async fn extents(&self, from: u64) -> Vec<Range<u64>> {
        let size = self.size.unwrap_or(u64::MAX);
        let whole = std::iter::once(from..size).collect();
        match &self.from {
            SourceKind::Local(source) => {
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
            SourceKind::Remote { file, pages } => {
                file.read_range(*pages, offset, length).await.map_err(CopyError::source)?
            }
            SourceKind::Web(web) => Box::pin(web.read(offset, length)).await.map_err(CopyError::source)?,
            SourceKind::Many(sources) => Box::pin(sources.read(offset, length)).await?,
            SourceKind::InTurn(places) => Box::pin(places.read(offset, length)).await?,
            SourceKind::Local(source) => {
                let (source, blocks) = (source.clone(), self.blocks.clone());
                let read = self.disk.run(move || source.read(offset, length, &blocks)).await;
                read.unwrap_or(Err(CopyError::Cancelled))?
            }
            SourceKind::Memory(data) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
                data.slice(from..data.len().min(from + length))
            }
            SourceKind::Stored(archive, start) => Box::pin(archive.read(start + offset, length)).await?,
            SourceKind::Stream(_) | SourceKind::Inflated(_) => self.read_next(length).await?,
        };
        if data.len() != length {
            let (place, at) = (self.place.to_string(), offset + data.len() as u64);
            return Err(CopyError::Short { place, at, size: self.size.unwrap_or(at) });
        }
        Ok(data)
    }

    /// Reads the next bytes of a stream, fewer only at its end.
    pub(super) async fn read_next(&self, length: usize) -> Result<Bytes, CopyError> {
        let stream = match &self.from {
            SourceKind::Stream(stream) => stream,
            SourceKind::Inflated(member) => return Box::pin(member.next(length)).await,
            SourceKind::Web(web) => return Box::pin(web.read_next(length)).await.map_err(CopyError::source),
            _ => return Ok(Bytes::new()),
        };
        let (stream, blocks) = (stream.clone(), self.blocks.clone());
        let read = move || match stream {
            SourceStream::Input => {
                read_stream(std::io::stdin(), Path::new("standard input"), length, &blocks)
            }
            SourceStream::Device(source) => source.read_next(length, &blocks),
        };
        self.disk.run(read).await.unwrap_or(Err(CopyError::Cancelled))
    }

    /// Returns the identity of the open file of this machine. A file in memory has none, because it
    /// is not read again.
    pub(super) fn local_id(&self) -> Option<LocalId> {
        match &self.from {
            SourceKind::Local(source) => Some(source.id),
            SourceKind::InTurn(places) => places.now().1.local_id(),
            SourceKind::Stored(archive, _) => archive.local_id(),
            SourceKind::Inflated(member) => member.archive().local_id(),
            SourceKind::Remote { .. }
            | SourceKind::Web(_)
            | SourceKind::Many(_)
            | SourceKind::Memory(_)
            | SourceKind::Stream(_) => None,
        }
    }

    /// Returns the identities of the files that are open at servers.
    pub(super) fn identities(&self) -> Vec<RemoteFileIdentity> {
        match &self.from {
            SourceKind::Remote { file, .. } => file.identity().into_iter().collect(),
            SourceKind::Many(sources) => {
                sources.present().iter().filter_map(|(_, file)| file.identity()).collect()
            }
            SourceKind::InTurn(places) => places.now().1.identities(),
            SourceKind::Stored(archive, _) => archive.identities(),
            SourceKind::Inflated(member) => member.archive().identities(),
            SourceKind::Local(_) | SourceKind::Memory(_) | SourceKind::Stream(_) | SourceKind::Web(_) => {
                Vec::new()
            }
        }
    }

    /// Returns the URL for requests about it.
    pub(super) fn location(&self) -> Option<Url> {
        match &self.from {
            SourceKind::Remote { file, .. } => Some(file.location()),
            SourceKind::Web(web) => Some(web.url().clone()),
            SourceKind::Many(sources) => sources.location(),
            SourceKind::InTurn(places) => places.now().1.location(),
            // Servers know the archive, not its members.
            _ => None,
        }
    }

    /// Returns the source whose file is read: the place of a metalink that is in use, or the archive of a member.
    pub(super) fn with_file<R>(&self, look: &mut dyn FnMut(&Self) -> R) -> R {
        match &self.from {
            SourceKind::InTurn(places) => places.now().1.with_file(look),
            SourceKind::Stored(archive, _) => archive.with_file(look),
            SourceKind::Inflated(member) => member.archive().with_file(look),
            _ => look(self),
        }
    }

    /// Reports whether a file of an HTTP server is read.
    pub(super) fn is_web(&self) -> bool {
        self.with_file(&mut |source| matches!(source.from, SourceKind::Web(_)))
    }

    /// Reports whether it has no offsets.
    pub(super) fn is_stream(&self) -> bool {
        match &self.from {
            SourceKind::Web(web) => web.is_stream(),
            from => matches!(from, SourceKind::Stream(_) | SourceKind::Inflated(_)),
        }
    }
}
