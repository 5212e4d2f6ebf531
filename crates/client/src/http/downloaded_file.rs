//! [`DownloadedFile`]: a file, or a range of it, that arrives.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};

use super::exchange::cause_of;
use super::headers::text;
use super::transfer::OwnConnection;
use crate::failure::Cause;

/// A file that is received.
pub struct DownloadedFile {
    pub(super) size: Option<u64>,
    pub(super) headers: HeaderMap,
    pub(super) incoming: Incoming,
    pub(super) _connection: OwnConnection,
}

impl DownloadedFile {
    /// Returns its size, if the server has announced it. Then a body without an error has this size.
    #[must_use]
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// Returns the headers of the reply.
    #[must_use]
    pub const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Reports whether the server may send ranges of the file.
    #[must_use]
    pub fn may_have_ranges(&self) -> bool {
        text(&self.headers, &header::ACCEPT_RANGES).is_none_or(|units| !units.eq_ignore_ascii_case("none"))
    }

    /// Returns the strong entity tag of the version that arrives, if it has one.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        text(&self.headers, &header::ETAG).filter(|tag| tag.starts_with('"'))
    }

    /// Returns the next data; `None` at the end. A call that is dropped before its end loses nothing.
    ///
    /// # Errors
    /// [`Cause`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Cause> {
        loop {
            let Some(frame) = self.incoming.frame().await else { return Ok(None) };
            match frame.map_err(|error| cause_of(&error))?.into_data() {
                Ok(data) if !data.is_empty() => return Ok(Some(data)),
                // Trailers do not count.
                Ok(_) | Err(_) => {}
            }
        }
    }
}
