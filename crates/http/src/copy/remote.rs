//! Traits that the server implements for copies: connections to remote servers.

use base::Identity;
use bytes::Bytes;
use hyper::HeaderMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// Third-party copies.
#[derive(Clone)]
pub struct Copies {
    /// Connects to remote servers.
    pub servers: Arc<dyn RemoteServers>,
    /// Maximum time without progress.
    pub stall_time: Duration,
    /// Maximum time until the first progress, and for the reply to a complete upload.
    pub first_time: Duration,
    /// Files are opened at other servers, to which clients are redirected. Then no remote server is
    /// contacted.
    pub redirects: bool,
    /// Gets the ends of copies, if anybody wants to know of them.
    pub observer: Option<Arc<dyn HttpCopyObserver>>,
}

/// A copy over HTTP that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedHttpCopy<'a> {
    /// The client that ordered it.
    pub client: &'a Identity,
    /// Its authenticated name.
    pub user: Option<&'a str>,
    /// The order was encrypted.
    pub is_tls: bool,
    /// When the order came.
    pub begun: SystemTime,
    /// When the copy ended.
    pub ended: SystemTime,
    /// 0, or the status of the failure.
    pub status: u16,
    /// This server is the source.
    pub is_push: bool,
    /// The path of the file of this server.
    pub local: &'a str,
    /// The URL of the remote file without its query.
    pub remote: &'a str,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// Gets the ends of copies.
pub trait HttpCopyObserver: Send + Sync {
    /// Takes the end of a copy; never blocks.
    fn ended(&self, copy: &EndedHttpCopy<'_>);
}

/// A request for a file at a remote server.
pub struct RemoteRequest {
    /// The URL, which may contain secrets.
    pub url: String,
    /// The headers of the request, which may be secrets.
    pub headers: HeaderMap,
    /// The address of the client that orders the copy.
    pub client: IpAddr,
    /// Maximum time until a reply begins.
    pub reply_time: Duration,
    /// The value of `Want-Digest`, if a checksum is needed.
    pub wanted_digest: Option<String>,
    /// Gets the address that is connected to.
    pub peer: RemotePeer,
}

/// The address of a remote server that is connected to.
#[derive(Clone, Default)]
pub struct RemotePeer(Arc<Mutex<Option<SocketAddr>>>);

impl RemotePeer {
    /// Records the address.
    pub fn set(&self, address: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    /// Returns the address, if there is a connection.
    pub fn get(&self) -> Option<SocketAddr> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The failure of a request to a remote server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RemoteFailure {
    /// The address of the server is not allowed.
    Refused(String),
    /// The URL or a header cannot be used.
    Invalid(String),
    /// The server has replied with an error.
    Status {
        /// Its number.
        status: u16,
        /// The text of the server.
        text: String,
    },
    /// The connection or the reply is missing, or the reply makes no sense.
    Failed(String),
}

impl fmt::Display for RemoteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => write!(f, "connection to the remote server is forbidden: {text}"),
            Self::Invalid(text) | Self::Failed(text) => f.write_str(text),
            Self::Status { status, text } => {
                write!(f, "Remote side failed with status code {status}; error message: \"{}\"", text.trim())
            }
        }
    }
}

/// A result that is not there yet.
pub type RemoteFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RemoteFailure>> + Send + 'a>>;

/// The parts of a file that arrives.
pub trait RemoteParts: Send {
    /// Returns the next part; `None` at the end. A future that is dropped before its end loses nothing.
    fn next(&mut self) -> RemoteFuture<'_, Option<Bytes>>;
}

/// Receives ranges of a file, each on a connection of its own.
pub trait RemoteRanges: Send + Sync {
    /// Reports whether a range of another version than the one that arrives is certain to fail.
    fn is_one_version(&self) -> bool;

    /// Begins to receive a range. More bytes do not arrive.
    fn range(&self, offset: u64, length: u64) -> RemoteFuture<'static, Box<dyn RemoteParts>>;
}

/// A file that arrives.
pub struct RemoteDownload {
    /// Its size, if it is known.
    pub size: Option<u64>,
    /// Headers with the checksums of the remote server.
    pub digests: HeaderMap,
    /// Its parts.
    pub parts: Box<dyn RemoteParts>,
    /// Its ranges, if the server may send them.
    pub ranges: Option<Arc<dyn RemoteRanges>>,
}

/// Starts to read the file of an upload from its beginning.
pub type UploadSource = Arc<dyn Fn() -> mpsc::Receiver<io::Result<Bytes>> + Send + Sync>;

/// Connects to the servers that clients name.
pub trait RemoteServers: Send + Sync {
    /// Begins to receive a file.
    fn fetch(&self, request: RemoteRequest) -> RemoteFuture<'static, RemoteDownload>;

    /// Sends a file of `length` bytes. The limit of time for a reply does not count.
    fn store(&self, request: RemoteRequest, length: u64, source: UploadSource) -> RemoteFuture<'static, ()>;
}
