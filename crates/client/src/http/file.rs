//! [`HttpFile`]: a file of an HTTP server that is open for reading.
//!
//! HTTP has no open files. The version that the open has found is compared with each reply, so that a reader
//! never gets bytes of two versions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};
use tokio::sync::watch;
use wire::xroot::ErrorCode;

use super::address::{HttpAddress, has_query};
use super::exchange::{HttpExchange, HttpReply, HttpRequest};
use super::files::{FoundFile, find, find_readable};
use super::headers::{ContentRange, HttpVersion, content_length, text};
use super::refusal::refusal;
use crate::answers::StatInfo;
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::pacing::RequestPacing;
use crate::url::Url;

/// Number of times that a transfer which the server has broken off is continued.
const CONTINUATIONS_MAX: usize = 2;

/// A file that is open for reading. Clones share it.
#[derive(Clone)]
pub struct HttpFile {
    client: Client,
    state: Arc<HttpFileState>,
}

struct HttpFileState {
    url: Url,
    /// The address of the URL.
    start: HttpAddress,
    version: HttpVersion,
    stat: StatInfo,
    /// The version is that of a reply with data. Otherwise it is that of `HEAD`.
    is_version_of_data: bool,
    has_ranges: bool,
    /// The address to which the last request was redirected.
    current: Mutex<HttpAddress>,
    moves: watch::Sender<bool>,
}

impl std::fmt::Debug for HttpFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpFile({})", self.state.url)
    }
}

impl HttpFile {
    pub(crate) async fn open(client: &Client, url: &Url) -> Result<Self, Error> {
        let exchange = HttpExchange::new(client, url, "open");
        let start = exchange.address()?;
        if exchange.store().is_some() && start.path().ends_with('/') {
            let text = format!("{start} is a directory");
            return Err(exchange.refused(Cause::Server { code: ErrorCode::IS_DIRECTORY, text }));
        }
        // A server may show the head of a file to clients that may not read it.
        let (found, is_version_of_data) = find_readable(&exchange, &start).await?;
        let FoundFile { stat, version, address, has_ranges } = found;
        if stat.is_dir() {
            let cause =
                Cause::Server { code: ErrorCode::IS_DIRECTORY, text: format!("{address} is a directory") };
            return Err(exchange.error(cause, &address, &[]));
        }
        let (current, moves) = (Mutex::new(address), watch::Sender::new(false));
        let url = url.clone();
        let state =
            HttpFileState { url, start, version, stat, is_version_of_data, has_ranges, current, moves };
        let state = Arc::new(state);
        Ok(Self { client: client.clone(), state })
    }

    /// Returns this file with requests that `pacing` can hold back.
    #[must_use]
    pub fn paced(&self, pacing: Arc<dyn RequestPacing>) -> Self {
        Self { client: self.client.paced(pacing), state: self.state.clone() }
    }

    /// Returns the status of the version that is open.
    #[must_use]
    pub fn stat_at_open(&self) -> &StatInfo {
        &self.state.stat
    }

    /// Reports whether parts of the file can be read, as far as the open has shown it.
    #[must_use]
    pub fn has_ranges(&self) -> bool {
        self.state.has_ranges
    }

    /// Returns the current status, in the way in which the open has found it.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn stat(&self) -> Result<StatInfo, Error> {
        let exchange = HttpExchange::new(&self.client, &self.state.url, "stat");
        match self.state.is_version_of_data {
            true => Ok(find_readable(&exchange, &self.state.start).await?.0.stat),
            false => Ok(find(&exchange, &self.state.start).await?.stat),
        }
    }

    /// Reports whether a change of the file can be noticed, and the URL alone chooses its content. Otherwise
    /// its data must not be kept.
    #[must_use]
    pub fn has_version(&self) -> bool {
        let is_in_store = self.client.has_object_store() || self.state.url.is_object();
        let has_query = has_query(&self.state.url) && !is_in_store;
        (self.state.stat.mtime != 0 || self.state.stat.id != 0) && !has_query
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.state.url
    }

    /// Returns the URL of the server that has sent the last reply.
    #[must_use]
    pub fn location(&self) -> Url {
        let current = self.current();
        // In the spelling of the caller, if it is that server.
        let moved = (current.server != self.state.start.server).then(|| current.server_url()).flatten();
        moved.unwrap_or_else(|| self.state.url.clone())
    }

    /// Returns a signal of moves to other servers.
    #[must_use]
    pub fn moves(&self) -> watch::Receiver<bool> {
        self.state.moves.subscribe()
    }

    /// Has the next request begin at the URL, and not where earlier ones were redirected to.
    pub fn leave_location(&self) {
        self.set_current(&self.state.start);
    }

    fn current(&self) -> MutexGuard<'_, HttpAddress> {
        self.state.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_current(&self, address: &HttpAddress) {
        let mut current = self.current();
        if *current != *address {
            current.clone_from(address);
            drop(current);
            self.state.moves.send_replace(false);
        }
    }

    /// Reads into all of `into` and returns the number of bytes. Fewer mean the end of the file.
    ///
    /// # Errors
    /// [`Error`]: also [`Cause::Changed`] if the file is another version, and [`Cause::Unsupported`] if the
    /// server ignores ranges.
    pub async fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let left = usize::try_from(self.state.stat.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = into.len().min(left);
        let Some(into) = into.get_mut(..length) else { return Ok(0) };
        let exchange = HttpExchange::new(&self.client, &self.state.url, "read");
        let (mut done, mut broken_off) = (0, 0);
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let mut came = 0;
            let read = self.read_part(&exchange, (offset + done as u64, rest), &mut came).await;
            done += came;
            match read {
                Err(error) if broken_off < CONTINUATIONS_MAX && matches!(error.cause(), Cause::Lost(_)) => {
                    broken_off += 1;
                }
                read => read?,
            }
        }
        Ok(done)
    }

    /// Reads a range as [`HttpFile::read_into`] does.
    ///
    /// # Errors
    /// Those of [`HttpFile::read_into`].
    pub async fn read(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        let left = usize::try_from(self.state.stat.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut data = vec![0; length.min(left)];
        let came = self.read_into(offset, &mut data).await?;
        data.truncate(came);
        Ok(data.into())
    }

    /// Makes one request, for all of `into`. `came` counts the bytes that have arrived, also with an error.
    async fn read_part(
        &self,
        exchange: &HttpExchange<'_>,
        (offset, into): (u64, &mut [u8]),
        came: &mut usize,
    ) -> Result<(), Error> {
        let last = offset + into.len() as u64 - 1;
        let mut request = HttpRequest::new(Method::GET).with("range", &format!("bytes={offset}-{last}"));
        let tag = self.state.version.tag.as_ref().filter(|_| !self.state.version.is_weak);
        if let Some(tag) = tag.filter(|_| exchange.store().is_some()) {
            // An object store sends no bytes of another version then.
            request = request.with("if-match", tag);
        }
        let reply = self.send(exchange, &request).await?;
        let HttpReply { address, hops, status, headers, mut body, .. } = reply;
        let failed = |cause| exchange.error(cause, &address, &hops);
        let announced =
            self.announced(exchange, (status, &headers), (offset, last), &address).map_err(failed)?;
        let place = into.get_mut(..announced).unwrap_or_default();
        while let Some(data) = body.chunk().await.map_err(failed)? {
            let Some(part) = place.get_mut(*came..*came + data.len()) else {
                return Err(failed(Cause::BadAnswer("it has more bytes than it announces".to_owned())));
            };
            part.copy_from_slice(&data);
            *came += data.len();
        }
        if *came < announced {
            return Err(failed(Cause::Lost(format!("{came} of {announced} bytes have arrived"))));
        }
        Ok(())
    }

    /// Returns the number of bytes in the reply to a request for a range, at most as many as were asked for.
    fn announced(
        &self,
        exchange: &HttpExchange<'_>,
        (status, headers): (StatusCode, &HeaderMap),
        (first, last): (u64, u64),
        address: &HttpAddress,
    ) -> Result<usize, Cause> {
        let changed = |what: String| Err(Cause::Changed(what));
        let HttpFileState { version, stat, .. } = &*self.state;
        let is_data = matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT);
        if is_data && !HttpVersion::of(headers).may_be(version) {
            return changed("its entity tag or time is another one".to_owned());
        }
        if is_data {
            exchange.check_encoding(headers)?;
        }
        let length = content_length(headers);
        let asked = last - first + 1;
        let bytes =
            |bytes: u64| usize::try_from(bytes).map_err(|_| Cause::TooLarge(format!("{bytes} bytes")));
        match status {
            StatusCode::PARTIAL_CONTENT => {
                let range = text(headers, &header::CONTENT_RANGE).and_then(ContentRange::parse);
                let bad = |why: &str| Cause::BadAnswer(format!("the range in it {why}"));
                let range = range.ok_or_else(|| bad("is missing or not one range"))?;
                if let Some(total) = range.total.filter(|total| *total != stat.size) {
                    return changed(format!("it has {total} bytes, not {}", stat.size));
                }
                let (from, to) = range.bytes.ok_or_else(|| bad("has no bytes"))?;
                if from != first || to > last {
                    return Err(bad("is not the one that was asked for"));
                }
                if length.is_some_and(|length| length != to - from + 1) {
                    return Err(bad("contradicts its length"));
                }
                bytes(to - from + 1)
            }
            StatusCode::OK => match length {
                Some(length) if length != stat.size => {
                    changed(format!("it has {length} bytes, not {}", stat.size))
                }
                _ if asked == stat.size => bytes(asked),
                _ => Err(Cause::Unsupported(format!(
                    "{address} ignores ranges (it answers 200 OK to a request for one), so parts of files \
                         cannot be read; allow ranges at that server"
                ))),
            },
            StatusCode::RANGE_NOT_SATISFIABLE => changed("it is shorter".to_owned()),
            status => Err(refusal(status, address)),
        }
    }

    /// Makes a request where the last one was redirected to, and at the URL if that fails.
    async fn send(&self, exchange: &HttpExchange<'_>, request: &HttpRequest) -> Result<HttpReply, Error> {
        let from = self.current().clone();
        let mut sent = exchange.send(request, &from).await;
        let is_refused = |reply: &HttpReply| {
            (reply.status.is_client_error() && reply.status != StatusCode::RANGE_NOT_SATISFIABLE)
                || reply.status.is_server_error()
        };
        if from != self.state.start && sent.as_ref().map_or(true, is_refused) {
            self.leave_location();
            sent = exchange.send(request, &self.state.start).await;
        }
        if let Ok(reply) = &sent {
            self.set_current(&reply.address);
        }
        sent
    }
}
