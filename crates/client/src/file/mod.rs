//! [`File`]: an open file that survives the loss of its connection and server.
//!
//! | file         | contents                                             |
//! |--------------|------------------------------------------------------|
//! | `mod`        | [`File`]: the operations                             |
//! | `open_with`  | [`OpenWith`]: the options of an open                 |
//! | `open`       | opens, for the first time and again                  |
//! | `handle`     | requests by handle, and recovery of a lost handle    |
//! | `read`       | reads, plain and with page checksums                 |
//! | `vector`     | vector reads: split, merged and reassembled          |
//! | `write`      | writes, plain, with page checksums and in vectors    |
//! | `checkpoint` | checkpoints: changes that can be undone together     |

mod checkpoint;
mod handle;
mod open;
mod open_with;
mod read;
mod vector;
mod write;

use std::fmt;
use std::sync::Arc;

use base::CopyRange;
use bytes::Bytes;
use rawclient::Encoded;
use tokio::sync::watch;
use wire::xroot::codes::QueryType;
use wire::xroot::flags::{StatOptions, StatWants};
use wire::xroot::reply::ChkpointSizes;
use wire::xroot::request::{Query, Request, Stat, Sync, Truncate};

use crate::answers::{Attribute, StatInfo, line};
use crate::attributes::{AttributeOwner, NamedValue};
use crate::channel::Channel;
use crate::client::Client;
use crate::failure::Error;
use crate::identity::RemoteFileIdentity;
use crate::pacing::RequestPacing;
use crate::url::Url;

use checkpoint::Checkpoint;
use open::FileOpening;
use read::FileRead;
use vector::FileVectorRead;
use write::FileWriter;

pub(crate) use handle::RecoverableHandle;
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
pub struct File(RecoverableHandle);

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({})", self.0.origin())
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
        let opened = FileOpening { client, origin: &url, with }.first().await?;
        Ok(Self(RecoverableHandle::new(client, url, with.clone(), opened)))
    }

    /// Returns this file with requests that `pacing` can hold back. Reopens are not.
    #[must_use]
    pub fn paced(&self, pacing: Arc<dyn RequestPacing>) -> Self {
        Self(self.0.paced(pacing))
    }

    /// Returns the URL as it was opened.
    #[must_use]
    pub fn url(&self) -> &Url {
        self.0.origin()
    }

    /// Returns the URL at the current server, after all redirects.
    #[must_use]
    pub fn location(&self) -> Url {
        self.0.opened().at.clone()
    }

    /// Returns the current connection.
    #[must_use]
    pub fn channel(&self) -> Arc<Channel> {
        self.0.channel()
    }

    /// Returns whether the file is being reopened after a lost connection, now and later.
    #[must_use]
    pub fn reopens(&self) -> watch::Receiver<bool> {
        self.0.reopens()
    }

    /// Reports whether the next request moves the file to another server: the connection is lost, or
    /// the file is being reopened, and its balancer may know another server with it.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        let is_lost = *self.reopens().borrow() || self.channel().is_closed();
        is_lost && self.0.may_move()
    }

    /// Returns the status in the reply to the open; it does not show later writes.
    #[must_use]
    pub fn stat_at_open(&self) -> Option<StatInfo> {
        self.0.opened().stat.clone()
    }

    /// Returns the identity of the file at the current server, as reported by the open.
    #[must_use]
    pub fn identity(&self) -> Option<RemoteFileIdentity> {
        self.0.opened().identity.clone()
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
        self.0.recoveries()
    }

    /// Reports whether it is open for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.0.is_writable()
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
        let received = self.0.ask("stat", true, Bytes::new(), request).await?;
        StatInfo::parse(&received.body).map_err(|cause| self.0.error("stat", cause))
    }

    /// Writes all data to stable storage.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn sync(&self) -> Result<(), Error> {
        let request = |fhandle| Encoded::new(&Request::Sync(Sync { fhandle }));
        self.0.ask("sync", true, Bytes::new(), request).await.map(|_| ())
    }

    /// Sets its size.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn truncate(&self, size: u64) -> Result<(), Error> {
        let offset = i64::try_from(size).unwrap_or(i64::MAX);
        let request = |fhandle| Encoded::new(&Request::Truncate(Truncate { fhandle, offset, path: b"" }));
        self.0.ask("truncate", true, Bytes::new(), request).await?;
        self.0.acknowledge_size(size);
        Ok(())
    }

    /// Closes the file. Later operations on it, or on its clones, fail. A read-only file is closed
    /// even if the server returns an error. After writes, only success means that the server has
    /// the file.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn close(&self) -> Result<(), Error> {
        self.0.close().await
    }

    /// Sends a query by handle and returns the raw reply. Some types only accept an empty argument.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn query(&self, infotype: QueryType, argument: &[u8]) -> Result<Vec<u8>, Error> {
        let args = if argument.is_empty() { Vec::new() } else { [argument, b"\0"].concat() };
        let request = |fhandle| Encoded::new(&Request::Query(Query { infotype, fhandle, args: &args }));
        Ok(self.0.ask("query", true, Bytes::new(), request).await?.body)
    }

    /// Returns the visa of the file as the server sent it; few servers support it.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn visa(&self) -> Result<String, Error> {
        Ok(line(&self.query(QueryType::VISA, b"").await?))
    }

    /// Reads `length` bytes from `offset`, or fewer at the end of the file. The maximum is
    /// [`READ_BYTES_MAX`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn read(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        FileRead::new(&self.0, offset, length).plain().await
    }

    /// Reads like [`File::read`] into the front of `into` and returns the number of bytes.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let data = self.read(offset, into.len()).await?;
        if let Some(place) = into.get_mut(..data.len()) {
            place.copy_from_slice(&data);
        }
        Ok(data.len())
    }

    /// Reads like [`File::read`] and verifies a checksum for each page. The fallback for servers
    /// without page checksums is a plain read; see
    /// [`Channel::has_page_io`](crate::Channel::has_page_io).
    ///
    /// # Errors
    /// [`Error`]; with [`Cause::Corrupt`](crate::Cause::Corrupt) if a page is still wrong after all
    /// retries.
    pub async fn read_pages(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        FileRead::new(&self.0, offset, length).pages().await
    }

    /// Reads a range with or without page checksums. A reply that is shorter than its request is
    /// not the end of the file, so this function reads on until the range is complete or the server
    /// sends no byte.
    ///
    /// # Errors
    /// Those of [`File::read_pages`].
    pub(crate) async fn read_range(&self, pages: bool, offset: u64, length: usize) -> Result<Bytes, Error> {
        FileRead::new(&self.0, offset, length).complete(pages).await
    }

    /// Reads ranges, given as offset and length. All of them have to lie within the file. The data
    /// is returned in the order of the ranges.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn read_vector(&self, ranges: &[(u64, usize)]) -> Result<Vec<Bytes>, Error> {
        self.read_vector_with(ranges, VectorLimits::default()).await
    }

    /// Reads ranges from a server with unusual limits (`query config readv_ior_max readv_iov_max`).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn read_vector_with(
        &self,
        ranges: &[(u64, usize)],
        limits: VectorLimits,
    ) -> Result<Vec<Bytes>, Error> {
        FileVectorRead { handle: &self.0, limits }.read(ranges).await
    }

    /// Writes `data` at `offset`. The maximum is [`WRITE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn write(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        FileWriter::of(&self.0).write(offset, data.into()).await
    }

    /// Writes like [`File::write`] with a checksum for each page, which the server verifies. The
    /// fallback for servers without page checksums is a plain write.
    ///
    /// # Errors
    /// [`Error`]; with [`Cause::Corrupt`](crate::Cause::Corrupt) if pages still arrive damaged after
    /// all retries.
    pub async fn write_pages(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        FileWriter::of(&self.0).write_pages(offset, data.into()).await
    }

    /// Writes pieces, given as offset and data, in few requests. With `sync` the server writes them
    /// to stable storage.
    ///
    /// # Errors
    /// [`Error`]; some pieces may be written then.
    pub async fn write_vector(&self, pieces: &[(u64, Bytes)], sync: bool) -> Result<(), Error> {
        FileWriter::of(&self.0).write_vector(pieces, sync).await
    }

    /// Shares the blocks of ranges of `from` with this file.
    /// Both files have to be open on one connection, and the file system of the server has to
    /// support it. Otherwise the call fails, and the data has to be copied.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn clone_ranges(&self, from: &Self, ranges: &[CopyRange]) -> Result<(), Error> {
        FileWriter::of(&self.0).clone_ranges(&from.0, ranges).await
    }

    /// Begins a checkpoint. Until the commit, [`File::roll_back`] or the loss of the connection
    /// undoes all changes. The file does not survive its connection during that time.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn begin_checkpoint(&self) -> Result<(), Error> {
        Checkpoint::of(&self.0).begin().await
    }

    /// Commits all changes since [`File::begin_checkpoint`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn commit_checkpoint(&self) -> Result<(), Error> {
        Checkpoint::of(&self.0).commit().await
    }

    /// Undoes all changes since [`File::begin_checkpoint`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn roll_back(&self) -> Result<(), Error> {
        Checkpoint::of(&self.0).roll_back().await
    }

    /// Returns the maximum and current size of the checkpoint.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn checkpoint_sizes(&self) -> Result<ChkpointSizes, Error> {
        Checkpoint::of(&self.0).sizes().await
    }

    /// Writes `data` at `offset` under the checkpoint of [`File::begin_checkpoint`].
    ///
    /// # Errors
    /// [`Error`]; with 3021 (over quota) if the checkpoint is full.
    pub async fn write_checkpointed(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        Checkpoint::of(&self.0).write(offset, data.into()).await
    }

    /// Sets the size under the checkpoint of [`File::begin_checkpoint`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn truncate_checkpointed(&self, size: u64) -> Result<(), Error> {
        Checkpoint::of(&self.0).truncate(size).await
    }

    /// Works as [`FileSystem::attribute_values`](crate::FileSystem::attribute_values).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn attribute_values(&self, names: &[&str]) -> Result<Vec<NamedValue>, Error> {
        AttributeOwner::File(&self.0).values(names).await
    }

    /// Works as [`FileSystem::set_attributes`](crate::FileSystem::set_attributes).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_attributes(&self, attributes: &[(&str, &[u8])], only_new: bool) -> Result<(), Error> {
        AttributeOwner::File(&self.0).set(attributes, only_new).await
    }

    /// Works as [`FileSystem::remove_attributes`](crate::FileSystem::remove_attributes).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove_attributes(&self, names: &[&str]) -> Result<(), Error> {
        AttributeOwner::File(&self.0).remove(names).await
    }

    /// Works as [`FileSystem::list_attributes`](crate::FileSystem::list_attributes).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_attributes(&self) -> Result<Vec<Attribute>, Error> {
        AttributeOwner::File(&self.0).list().await
    }
}
