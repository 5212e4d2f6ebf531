//! A metalink as the source of a copy.
//!
//! The locations in the metalink are tried in their order, also as a fallback when one fails in the
//! middle of the file, or read in parallel. The bytes must have the size and checksums of the
//! metalink.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::Copier;
use super::failure::CopyError;
use super::options::CopyOptions;
use super::place::Place;
use super::source::{InTurn, SourceKind, SourceReader, UntriedLocations};
use crate::credentials::copy_choice;
use crate::failure::{Cause, Error};
use crate::file::OpenWith;
use crate::metalink::{METALINK_BYTES_MAX, Metalink, MetalinkError};
use crate::url::{Scheme, Url};

/// The document at a place whose name has the suffix of metalinks.
pub(super) struct MetalinkDocument<'a> {
    copier: &'a Copier,
    place: &'a Place,
}

impl<'a> MetalinkDocument<'a> {
    /// Returns the document at `place`; `None` if its name has another suffix.
    pub(super) fn at(copier: &'a Copier, place: &'a Place) -> Option<Self> {
        let is_named = match place {
            Place::Local(path) => path.to_str().is_some_and(Metalink::is_named_by),
            Place::Remote(url) => Metalink::is_named_by(&url.path),
            Place::Stream => false,
        };
        is_named.then_some(Self { copier, place })
    }

    /// Reads the document, and prepares its locations for a copy.
    pub(super) async fn read(&self) -> Result<Metalink, CopyError> {
        let place = self.place;
        let bad = |error| CopyError::Metalink { place: place.to_string(), error };
        let bytes = self.bytes().await?;
        let settings = self.copier.client.settings();
        let mut metalink = Metalink::parse(&bytes, &settings.glfn_redirector).map_err(bad)?;
        if let Some(of_user) = place.url() {
            // Local files are excluded because a document of a server must not select files of this
            // machine.
            metalink.urls.retain(|url| url.scheme != Scheme::File);
            metalink.urls.iter_mut().for_each(|url| copy_choice(url, of_user));
        }
        if settings.tls_metalink != 0 {
            for url in metalink.urls.iter_mut().filter(|url| url.scheme == Scheme::Root) {
                url.scheme = Scheme::Roots;
            }
        }
        if metalink.urls.is_empty() {
            return Err(bad(MetalinkError::Malformed("it names no place that can be read from".to_owned())));
        }
        Ok(metalink)
    }

    /// Reads the document up to the size limit of metalinks plus one byte.
    async fn bytes(&self) -> Result<Vec<u8>, CopyError> {
        match self.place {
            Place::Remote(url) => {
                let seconds = self.copier.client.settings().max_metalink_wait.max(1);
                let read = tokio::time::timeout(Duration::from_secs(seconds), self.read_remote(url)).await;
                let late = |_| Err(Error::new("read", url, Cause::TimedOut(seconds)));
                read.unwrap_or_else(late).map_err(CopyError::source)
            }
            Place::Local(path) => {
                let path = path.clone();
                let read = move || read_local(&path);
                self.copier.disk.run(read).await.unwrap_or(Err(CopyError::Cancelled))
            }
            // `at` returns no document of a stream.
            Place::Stream => Ok(Vec::new()),
        }
    }

    /// Reads a file at a server up to the same limit.
    async fn read_remote(&self, url: &Url) -> Result<Vec<u8>, Error> {
        if url.is_http() {
            let file = self.copier.client.open_http(url).await?;
            return Ok(file.read(0, METALINK_BYTES_MAX + 1).await?.to_vec());
        }
        let file = self.copier.client.open(url, &OpenWith::read()).await?;
        let size = usize::try_from(file.known_stat().await?.size).unwrap_or(usize::MAX);
        let read = file.read_range(false, 0, size.min(METALINK_BYTES_MAX + 1)).await?;
        file.close().await.ok();
        Ok(read.to_vec())
    }
}

/// Reads a local file up to the same limit.
fn read_local(path: &std::path::Path) -> Result<Vec<u8>, CopyError> {
    use std::io::Read;
    let fail = |error| CopyError::local("open", path, &error);
    let file = std::fs::File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(METALINK_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

impl SourceReader {
    /// Opens the first available location of a metalink, with the others as fallback, or several at
    /// once.
    pub(super) async fn open_mirrored(
        copier: &Copier,
        place: &Place,
        metalink: Metalink,
        options: &CopyOptions,
    ) -> Result<Self, CopyError> {
        let Metalink { size, checksums, urls, .. } = metalink;
        let remote: Vec<Url> = urls.iter().filter(|url| url.scheme != Scheme::File).cloned().collect();
        let together = options.sources > 1 && remote.len() > 1;
        let (places, mirrors) = if together {
            (remote.iter().take(1).cloned().collect(), remote)
        } else {
            (VecDeque::from(urls), Vec::new())
        };
        let mut waiting = UntriedLocations { metalink: place.clone(), size, places };
        let mut opened = waiting.next(copier, &mirrors, options, None).await?;
        opened.known = checksums;
        if waiting.places.is_empty()
            || !matches!(opened.from, SourceKind::Remote { .. } | SourceKind::Local(_))
        {
            // The source is reported under the requested name.
            return Ok(Self { place: place.clone(), ..opened });
        }
        waiting.size = opened.size;
        let (size, kept, known) = (opened.size, opened.kept, opened.known.clone());
        let (disk, blocks) = (opened.disk.clone(), opened.blocks.clone());
        let from = SourceKind::InTurn(Box::new(InTurn {
            copier: copier.clone(),
            options: options.clone(),
            now: Mutex::new((0, Arc::new(opened))),
            waiting: tokio::sync::Mutex::new(waiting),
        }));
        Ok(Self { place: place.clone(), size, kept, identity: None, from, known, disk, blocks })
    }
}

impl UntriedLocations {
    /// Opens the file at the next available location; `last` is the error of the previous one.
    async fn next(
        &mut self,
        copier: &Copier,
        mirrors: &[Url],
        options: &CopyOptions,
        mut last: Option<CopyError>,
    ) -> Result<SourceReader, CopyError> {
        while let Some(url) = self.places.pop_front() {
            let at = match url.scheme {
                Scheme::File => Place::Local(url.local.into()),
                _ => Place::Remote(url),
            };
            let opened = SourceReader::open_whole(copier, &at, mirrors.to_vec(), options).await;
            let error = match opened {
                Ok(source) if self.size.is_none() || source.size == self.size => return Ok(source),
                Ok(source) => CopyError::Size {
                    place: at.to_string(),
                    size: source.size.unwrap_or(0),
                    expected: self.size.unwrap_or(0),
                },
                Err(error @ CopyError::Cancelled) => return Err(error),
                Err(error) => error,
            };
            last = Some(error);
        }
        let last = Box::new(last.unwrap_or(CopyError::Cancelled));
        Err(CopyError::NoMirror { place: self.metalink.to_string(), last })
    }
}

impl InTurn {
    /// Returns the current source and its number.
    pub(super) fn now(&self) -> (usize, Arc<SourceReader>) {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads exactly `length` bytes from `offset`.
    pub(super) async fn read(&self, offset: u64, length: usize) -> Result<Bytes, CopyError> {
        loop {
            let (number, source) = self.now();
            match source.read(offset, length).await {
                Ok(data) => return Ok(data),
                Err(error @ CopyError::Cancelled) => return Err(error),
                Err(error) => self.leave(number, error).await?,
            }
        }
    }

    /// Switches to the next location, unless another caller has done so.
    async fn leave(&self, number: usize, error: CopyError) -> Result<(), CopyError> {
        let mut waiting = self.waiting.lock().await;
        if self.now().0 != number {
            return Ok(());
        }
        tracing::debug!(%error, "on to the next place of the metalink");
        let next = waiting.next(&self.copier, &[], &self.options, Some(error)).await?;
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = (number + 1, Arc::new(next));
        Ok(())
    }
}
