//! A metalink as the source of a copy: the places it names are tried in their order, or read from at once; what comes has to
//! be of the size and have the checksums that it says.

use super::Copier;
use super::failure::CopyError;
use super::options::CopyOptions;
use super::place::Place;
use super::source::Source;
use crate::file::OpenWith;
use crate::metalink::{METALINK_BYTES_MAX, Metalink, MetalinkError};
use crate::url::{Scheme, Url};

impl Copier {
    /// The metalink at this place; `None` where `options` do not ask for metalinks, or it has another name.
    ///
    /// # Errors
    /// [`CopyError`].
    pub async fn metalink(
        &self,
        place: &Place,
        options: &CopyOptions,
    ) -> Result<Option<Metalink>, CopyError> {
        let named = match place {
            Place::Local(path) => path.to_str().is_some_and(Metalink::is_named_by),
            Place::Remote(url) => Metalink::is_named_by(&url.path),
            Place::Stream => false,
        };
        if !named || !options.metalinks {
            return Ok(None);
        }
        let bad = |error| CopyError::Metalink { place: place.to_string(), error };
        let bytes = match place {
            Place::Remote(url) => {
                let file = self.client.open(url, &OpenWith::read()).await.map_err(CopyError::source)?;
                let read = file.read(0, METALINK_BYTES_MAX + 1).await.map_err(CopyError::source)?;
                file.close().await.ok();
                read.to_vec()
            }
            Place::Local(path) => {
                let path = path.clone();
                let read = move || read_local(&path);
                self.disk.run(read).await.unwrap_or(Err(CopyError::Cancelled))?
            }
            Place::Stream => return Ok(None),
        };
        let settings = self.client.settings();
        let mut metalink = Metalink::parse(&bytes, &settings.glfn_redirector).map_err(bad)?;
        if place.url().is_some() {
            // What a server says is no reason to read a file of this machine.
            metalink.urls.retain(|url| url.scheme != Scheme::File);
        }
        if settings.tls_metalink != 0 {
            for url in metalink.urls.iter_mut().filter(|url| url.scheme == Scheme::Root) {
                url.scheme = Scheme::Roots;
            }
        }
        if metalink.urls.is_empty() {
            return Err(bad(MetalinkError::Malformed("it names no place that can be read from".to_owned())));
        }
        Ok(Some(metalink))
    }
}

/// As much of a file as a metalink may have, and a byte more.
fn read_local(path: &std::path::Path) -> Result<Vec<u8>, CopyError> {
    use std::io::Read;
    let fail = |error| CopyError::local("open", path, &error);
    let file = std::fs::File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(METALINK_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

impl Source {
    /// The first place of a metalink that has the file, or several at once.
    pub(super) async fn open_mirrored(
        copier: &Copier,
        place: &Place,
        metalink: Metalink,
        options: &CopyOptions,
    ) -> Result<Self, CopyError> {
        let Metalink { size, checksums, urls, .. } = metalink;
        let mut last = None;
        let remote: Vec<Url> = urls.iter().filter(|url| url.scheme != Scheme::File).cloned().collect();
        let together = options.sources > 1 && remote.len() > 1;
        let places: Vec<Url> = if together { remote.iter().take(1).cloned().collect() } else { urls };
        for url in places {
            let mirrors = if together { remote.clone() } else { Vec::new() };
            let at = match url.scheme {
                Scheme::File => Place::Local(url.path.into()),
                _ => Place::Remote(url),
            };
            let opened = Self::open_whole(copier, &at, mirrors, options).await;
            let error = match opened {
                Ok(source) if size.is_none() || source.size == size => {
                    // It is told under the name that was asked for.
                    return Ok(Self { place: place.clone(), known: checksums, ..source });
                }
                Ok(source) => CopyError::Size {
                    place: at.to_string(),
                    size: source.size.unwrap_or(0),
                    expected: size.unwrap_or(0),
                },
                Err(error @ CopyError::Cancelled) => return Err(error),
                Err(error) => error,
            };
            last = Some(error);
        }
        let last = Box::new(last.unwrap_or(CopyError::Cancelled));
        Err(CopyError::NoMirror { place: place.to_string(), last })
    }
}
