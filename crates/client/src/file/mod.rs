//! [`File`]: an open file that survives the loss of its connection and server.
//!
//! | file        | contents                                              |
//! |-------------|-------------------------------------------------------|
//! | `mod`       | [`File`]: open, stat, sync, truncate, close           |
//! | `open_with` | [`OpenWith`]: the options of an open                  |
//! | `handle`    | requests by handle, and reopening after a lost handle |
//! | `read`      | reads, plain and with page checksums                  |
//! | `vector`    | vector reads: split, merged and reassembled           |
//! | `write`     | writes, plain, with page checksums and in vectors     |

mod handle;
mod open_with;
mod read;
mod vector;
mod write;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rawclient::Encoded;
use wire::Decode;
use wire::xroot::codes::{ChkpointOpcode, QueryType};
use wire::xroot::flags::{OpenOptions, StatOptions, StatWants};
use wire::xroot::reply::{ChkpointSizes, OpenDetail, OpenReply};
use wire::xroot::request::{Chkpoint, Close, Query, Request, Stat, Sync, Truncate};
use wire::xroot::{ErrorCode, FileHandle};

use crate::answers::{Attribute, StatInfo, line};
use crate::attributes::{AttributeOwner, NamedValue};
use crate::changes::{ROUNDS_AGAIN, look_at, not_asked};
use crate::channel::{BodyLimit, Channel, ChannelGuard};
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::identity::RemoteFileIdentity;
use crate::request_loop::Repeat;
use crate::route::{Balancer, PathRequest, Route};
use crate::url::Url;

pub use open_with::OpenWith;
pub use read::READ_BYTES_MAX;
pub use vector::VectorLimits;
pub use write::WRITE_BYTES_MAX;

/// An open file. Clones share it. It is closed by [`File::close`], or without a check of the reply
/// when the last clone is dropped. A file that is persisted on successful close is *not* closed by
/// dropping it.
///
/// Offsets and lengths are in bytes. Any number of operations may run concurrently.
#[derive(Clone)]
pub struct File(Arc<RemoteFileState>);

struct RemoteFileState {
    client: Client,
    /// The URL of the user.
    origin: Url,
    with: OpenWith,
    opened: Mutex<OpenHandle>,
    /// Held during a reopen.
    reopening: tokio::sync::Mutex<()>,
    closed: AtomicBool,
    /// End of the furthest acknowledged write.
    written_to: AtomicU64,
    /// Set while a checkpoint is active. It ends with the connection, so the file must not be
    /// reopened.
    checkpoint: AtomicBool,
    recoveries: AtomicU64,
}

/// The server and handle of the open file.
struct OpenHandle {
    /// Number of opens.
    generation: u64,
    guard: Arc<ChannelGuard>,
    fhandle: FileHandle,
    at: Url,
    home: Home,
    stat: Option<StatInfo>,
    /// Identity of the file as reported by this open.
    identity: Option<RemoteFileIdentity>,
}

/// The servers at which a file may be reopened after a lost connection.
#[derive(Clone)]
enum Home {
    /// For readers: each server with the file that the balancer knows.
    Anywhere(Option<Box<Balancer>>),
    /// For writers: only the same server.
    Here,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({})", self.0.origin)
    }
}

impl Client {
    /// Opens a file.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn open(&self, url: &Url, with: &OpenWith) -> Result<File, Error> {
        File::open(self, url, with).await
    }
}

impl File {
    pub(crate) async fn open(client: &Client, url: &Url, with: &OpenWith) -> Result<Self, Error> {
        let mut url = url.clone();
        if let Some(size) = with.expected_size {
            url.cgi.entry("oss.asize".to_owned()).or_insert_with(|| size.to_string());
        }
        let mut route = Route::new(client, &url, client.end());
        let opened = match open(client, &mut route, with, with.sent_options(), 0).await {
            Err(error) if error.is_uncertain() && with.options.intersects(OpenOptions::NEW) => {
                Box::pin(created(client, &route, with, error)).await?
            }
            opened => opened?,
        };
        Ok(Self(Arc::new(RemoteFileState {
            client: client.clone(),
            origin: url,
            with: with.clone(),
            opened: Mutex::new(opened),
            reopening: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
            written_to: AtomicU64::new(0),
            checkpoint: AtomicBool::new(false),
            recoveries: AtomicU64::new(0),
        })))
    }

    fn opened(&self) -> MutexGuard<'_, OpenHandle> {
        self.0.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the URL as it was opened.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.0.origin
    }

    /// Returns the URL at the current server, after all redirects.
    #[must_use]
    pub fn location(&self) -> Url {
        self.opened().at.clone()
    }

    /// Returns the current connection.
    #[must_use]
    pub fn channel(&self) -> Arc<Channel> {
        self.opened().guard.channel().clone()
    }

    /// Returns the status in the reply to the open; it does not show later writes.
    #[must_use]
    pub fn stat_at_open(&self) -> Option<StatInfo> {
        self.opened().stat.clone()
    }

    /// Returns the identity of the file at the current server, as reported by the open.
    #[must_use]
    pub fn identity(&self) -> Option<RemoteFileIdentity> {
        self.opened().identity.clone()
    }

    /// Returns the status in the reply to the open, or requests it if there was none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn known_stat(&self) -> Result<StatInfo, Error> {
        match self.stat_at_open() {
            Some(stat) => Ok(stat),
            None => self.stat().await,
        }
    }

    /// Returns the number of reopens after a lost connection.
    #[must_use]
    pub fn recoveries(&self) -> u64 {
        self.0.recoveries.load(Ordering::Relaxed)
    }

    /// Reports whether it is open for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.0.with.is_writable()
    }

    /// Returns the current status.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn stat(&self) -> Result<StatInfo, Error> {
        let request = |fhandle| {
            let (options, wants) = (StatOptions::NONE, StatWants::NONE);
            Encoded::new(&Request::Stat(Stat { options, wants, fhandle, path: b"" }))
        };
        let received = self.ask("stat", true, Bytes::new(), request).await?;
        StatInfo::parse(&received.body).map_err(|cause| self.error("stat", cause))
    }

    /// Writes all data to stable storage.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn sync(&self) -> Result<(), Error> {
        let request = |fhandle| Encoded::new(&Request::Sync(Sync { fhandle }));
        self.ask("sync", true, Bytes::new(), request).await.map(|_| ())
    }

    /// Sets its size.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn truncate(&self, size: u64) -> Result<(), Error> {
        let offset = i64::try_from(size).unwrap_or(i64::MAX);
        let request = |fhandle| Encoded::new(&Request::Truncate(Truncate { fhandle, offset, path: b"" }));
        self.ask("truncate", true, Bytes::new(), request).await?;
        self.0.written_to.store(size, Ordering::Release);
        Ok(())
    }

    /// Closes the file. Later operations on it, or on its clones, fail. A read-only file is closed
    /// even if the server returns an error. After writes, only success means that the server has
    /// the file.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn close(&self) -> Result<(), Error> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(self.error("close", Cause::Closed));
        }
        let request = |fhandle| Encoded::new(&Request::Close(Close { fhandle }));
        let writable = self.is_writable();
        let closed = self.ask("close", writable, Bytes::new(), request).await;
        self.0.closed.store(true, Ordering::Release);
        match closed {
            Err(error) if !writable && error.is_transient() => Ok(()),
            closed => closed.map(|_| ()),
        }
    }

    /// Sends a query by handle and returns the raw reply. Some types only accept an empty argument.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn query(&self, infotype: QueryType, argument: &[u8]) -> Result<Vec<u8>, Error> {
        let args = if argument.is_empty() { Vec::new() } else { [argument, b"\0"].concat() };
        let request = |fhandle| Encoded::new(&Request::Query(Query { infotype, fhandle, args: &args }));
        Ok(self.ask("query", true, Bytes::new(), request).await?.body)
    }

    /// Returns the visa of the file as the server sent it; few servers support it.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn visa(&self) -> Result<String, Error> {
        Ok(line(&self.query(QueryType::VISA, b"").await?))
    }

    /// Begins a checkpoint. Until the commit, [`File::roll_back`] or the loss of the connection
    /// undoes all changes. The file does not survive its connection during that time.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn begin_checkpoint(&self) -> Result<(), Error> {
        self.checkpoint(ChkpointOpcode::BEGIN).await?;
        self.0.checkpoint.store(true, Ordering::Release);
        Ok(())
    }

    /// Commits all changes since [`File::begin_checkpoint`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn commit_checkpoint(&self) -> Result<(), Error> {
        self.checkpoint(ChkpointOpcode::COMMIT).await?;
        self.0.checkpoint.store(false, Ordering::Release);
        Ok(())
    }

    /// Undoes all changes since [`File::begin_checkpoint`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn roll_back(&self) -> Result<(), Error> {
        self.checkpoint(ChkpointOpcode::ROLLBACK).await?;
        self.0.checkpoint.store(false, Ordering::Release);
        Ok(())
    }

    /// Returns the maximum and current size of the checkpoint.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn checkpoint_sizes(&self) -> Result<ChkpointSizes, Error> {
        let body = self.checkpoint(ChkpointOpcode::QUERY).await?;
        ChkpointSizes::decode(&body).map_err(|error| self.error("checkpoint", error))
    }

    async fn checkpoint(&self, opcode: ChkpointOpcode) -> Result<Vec<u8>, Error> {
        let request =
            |fhandle| Encoded::new(&Request::Chkpoint(Chkpoint { fhandle, opcode, embedded: None }));
        Ok(self.ask("checkpoint", false, Bytes::new(), request).await?.body)
    }

    /// Works as [`FileSystem::attribute_values`](crate::FileSystem::attribute_values).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn attribute_values(&self, names: &[&str]) -> Result<Vec<NamedValue>, Error> {
        AttributeOwner::File(self).values(names).await
    }

    /// Works as [`FileSystem::set_attributes`](crate::FileSystem::set_attributes).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_attributes(&self, attributes: &[(&str, &[u8])], only_new: bool) -> Result<(), Error> {
        AttributeOwner::File(self).set(attributes, only_new).await
    }

    /// Works as [`FileSystem::remove_attributes`](crate::FileSystem::remove_attributes).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove_attributes(&self, names: &[&str]) -> Result<(), Error> {
        AttributeOwner::File(self).remove(names).await
    }

    /// Works as [`FileSystem::list_attributes`](crate::FileSystem::list_attributes).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_attributes(&self) -> Result<Vec<Attribute>, Error> {
        AttributeOwner::File(self).list().await
    }

    pub(crate) fn error(&self, name: &'static str, cause: impl Into<Cause>) -> Error {
        let authority = self.opened().at.authority();
        Error::new(name, &self.0.origin, cause).at(authority, &[])
    }
}

impl Drop for RemoteFileState {
    fn drop(&mut self) {
        let posc = self.with.options.intersects(OpenOptions::POSC);
        // Closing would publish an incomplete file.
        if *self.closed.get_mut() || posc {
            return;
        }
        let opened = self.opened.get_mut().unwrap_or_else(PoisonError::into_inner);
        let close = Encoded::new(&Request::Close(Close { fhandle: opened.fhandle }));
        opened.guard.channel().post(close);
    }
}

/// Determines the fate of a new file whose open lost its reply. If the file does not exist, it is
/// created now: the server has ended the session of the lost connection, and with it the request.
async fn created(client: &Client, lost: &Route, with: &OpenWith, error: Error) -> Result<OpenHandle, Error> {
    let at = &lost.at;
    match look_at(client, at).await {
        // The connection is alive, so the server may still execute the request.
        Ok(None) if matches!(error.cause(), Cause::TimedOut(_)) => {
            return Err(error.afterwards("there is none of that name now"));
        }
        Ok(None) => {}
        Ok(Some(found)) if found.size == 0 => {
            return Err(error.afterwards("there is an empty file of that name"));
        }
        Ok(Some(found)) => {
            let text = format!("there is a file of {} bytes", found.size);
            let cause = Cause::Server { code: ErrorCode::IT_EXISTS, text };
            return Err(Error::new("open", &lost.origin, cause).at(at.authority(), &[]));
        }
        Err(why) => return Err(not_asked(error, &why)),
    }
    let mut route = Route::back_to(client, &lost.origin, at.clone(), ROUNDS_AGAIN, client.end());
    let opened = open(client, &mut route, with, with.sent_options(), 0).await;
    // The existing file may be the result of the first request.
    opened.map_err(|error| error.uncertain(true))
}

/// Opens a file along `route`.
async fn open(
    client: &Client,
    route: &mut Route,
    with: &OpenWith,
    options: OpenOptions,
    generation: u64,
) -> Result<OpenHandle, Error> {
    let request = |url: &Url, waited: bool| {
        let options = if waited { options.without(OpenOptions::REFRESH) } else { options };
        with.request(&url.target(), options)
    };
    let repeat = match options {
        options if options.intersects(OpenOptions::NEW) => Repeat::Never,
        // An open that truncates or creates must not move. Its result would remain at one server
        // while the file is written at another.
        options if options.intersects(OpenOptions::DELETE) => Repeat::AtServer,
        _ => Repeat::Anywhere,
    };
    let ask = PathRequest { name: "open", repeat, slow: false, limit: BodyLimit::ANSWER, request: &request };
    let arrived = route.ask(client, &ask).await?;
    let reply = OpenReply::decode(&arrived.received.body).map_err(|error| route.error("open", error))?;
    let stat = match &reply.detail {
        OpenDetail::Stat(stat) => Some(StatInfo::of(stat)),
        OpenDetail::None | OpenDetail::Compression => None,
    };
    let is_writable = with.is_writable();
    let identity = stat.as_ref().map(|stat| RemoteFileIdentity::new(route.at.authority(), stat, is_writable));
    Ok(OpenHandle {
        generation,
        guard: Arc::new(arrived.channel.guard()),
        fhandle: reply.fhandle,
        at: route.at.clone(),
        home: if is_writable { Home::Here } else { Home::Anywhere(route.balancer.clone().map(Box::new)) },
        stat,
        identity,
    })
}
