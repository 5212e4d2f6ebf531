//! [`ProxiedFile`]: an open file of a client, which is a file at an origin.

use crate::cached_origin::{ProxyCacheChange, ProxyCacheReader};
use crate::late_answers::with_notice;
use crate::personas::Persona;
use crate::place::RequestFailure;
use crate::remote_file::RemoteFile;
use crate::status::file_stat;
use base::{Error, ErrorKind, LogicalPath, ReadPiece};
use client::Bytes;
use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;
use vfs::{Answer, Caller, FileOperation, Now, OpenFile, ReplyTo, Started, Value};

/// An open file of a client.
pub(crate) struct ProxiedFile {
    file: Arc<FileAtOrigin>,
    runtime: Handle,
    caller: Arc<Caller>,
    /// Keeps the identity for the time when the file is opened again elsewhere.
    _persona: Option<Arc<Persona>>,
    /// Set when the client has disconnected.
    interrupted: watch::Sender<bool>,
    /// Changes when the operations in progress are to end.
    given_up: watch::Sender<()>,
}

/// The file with what its operations need.
struct FileAtOrigin {
    path: LogicalPath,
    remote: Arc<RemoteFile>,
    /// The reader of the cache; `None` if the file is not cached.
    cached: Option<ProxyCacheReader>,
    /// Keeps the file out of the cache while it is open for writing.
    _changes: Vec<ProxyCacheChange>,
    is_writable: bool,
    read_only: bool,
}

/// The part of the cache in an open file.
#[derive(Default)]
pub(crate) struct CacheUse {
    pub(crate) reader: Option<ProxyCacheReader>,
    pub(crate) changes: Vec<ProxyCacheChange>,
}

impl ProxiedFile {
    /// Creates the open file of a path. `read_only` is set if the export refuses changes.
    pub(crate) fn new(
        path: LogicalPath,
        remote: Arc<RemoteFile>,
        cache: CacheUse,
        (is_writable, read_only): (bool, bool),
        (caller, _persona, runtime): (Arc<Caller>, Option<Arc<Persona>>, Handle),
    ) -> Self {
        let CacheUse { reader: cached, changes: _changes } = cache;
        let file = Arc::new(FileAtOrigin { path, remote, cached, _changes, is_writable, read_only });
        Self {
            file,
            runtime,
            caller,
            _persona,
            interrupted: watch::Sender::new(false),
            given_up: watch::Sender::new(()),
        }
    }

    /// Starts an operation. With `ends` it ends when the client disconnects.
    fn run<F>(&self, reply: &ReplyTo, verb: &'static str, ends: bool, work: F) -> Started
    where
        F: Future<Output = Result<Value, RequestFailure>> + Send + 'static,
    {
        let (later, file, mut interrupted) = (reply.defer(), self.file.clone(), self.interrupted.subscribe());
        let mut given_up = self.given_up.subscribe();
        let notices = self.notices(reply, verb);
        self.runtime.spawn(async move {
            let left = async {
                if !ends || interrupted.wait_for(|left| *left).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let result = tokio::select! {
                biased;
                result = with_notice(notices, work) => result,
                () = left => Err(RequestFailure::Cancelled),
                Ok(()) = given_up.changed() => Err(RequestFailure::Cancelled),
            };
            later.send(result.map_err(|failure| failure.to_error(verb, &file.path)).into());
        });
        Started::Pending
    }

    /// Returns the receiver of a notice that the answer comes late, as that of a store that makes an object of parts.
    fn notices(&self, reply: &ReplyTo, verb: &str) -> Option<ReplyTo> {
        let is_late = self.file.remote.is_upload() && matches!(verb, "close" | "truncate");
        (is_late && self.caller.accepts_deferred_reply).then(|| reply.clone())
    }

    fn refuse(&self, what: &str) -> Started {
        let text = format!("Unable to {what} {}; a proxy does not support it", self.file.path.text());
        Started::Done(Answer::Error(Error::new(ErrorKind::Unsupported, text)))
    }
}

impl FileAtOrigin {
    async fn read(&self, mut buffer: Vec<u8>, pieces: Vec<ReadPiece>) -> Result<Value, RequestFailure> {
        if let Some(cached) = &self.cached {
            let lengths = cached.read(&mut buffer, &pieces).await?;
            return Ok(Value::Data { buffer, lengths });
        }
        let lengths = match pieces.as_slice() {
            [piece] => vec![self.read_piece(&mut buffer, piece).await?],
            pieces => self.read_pieces(&mut buffer, pieces).await?,
        };
        Ok(Value::Data { buffer, lengths })
    }

    async fn read_piece(&self, buffer: &mut [u8], piece: &ReadPiece) -> Result<usize, RequestFailure> {
        let place = piece.place().and_then(|place| buffer.get_mut(place));
        match place {
            Some(into) => self.remote.read_range(piece.extent.offset, into).await,
            None => Ok(0),
        }
    }

    /// Reads several pieces: in few requests if all of them lie within the file, otherwise one after
    /// the other.
    async fn read_pieces(
        &self,
        buffer: &mut [u8],
        pieces: &[ReadPiece],
    ) -> Result<Vec<usize>, RequestFailure> {
        let size = self.remote.known_stat().await?.size;
        let end = |piece: &ReadPiece| piece.extent.end();
        let is_inside = pieces.iter().all(|piece| end(piece).is_some_and(|end| end <= size));
        let mut lengths = Vec::with_capacity(pieces.len());
        if !is_inside || self.is_writable {
            for piece in pieces {
                lengths.push(self.read_piece(buffer, piece).await?);
            }
            return Ok(lengths);
        }
        let ranges: Vec<_> = pieces.iter().map(|piece| (piece.extent.offset, piece.extent.length)).collect();
        let found = self.remote.read_ranges(&ranges).await?;
        for (piece, data) in pieces.iter().zip(found) {
            let place = piece.place().and_then(|place| buffer.get_mut(place));
            let count = match place.filter(|place| place.len() == data.len()) {
                Some(place) => {
                    place.copy_from_slice(&data);
                    data.len()
                }
                None => 0,
            };
            lengths.push(count);
        }
        Ok(lengths)
    }

    async fn write(&self, buffer: Vec<u8>, offset: u64) -> Result<Value, RequestFailure> {
        let data = Bytes::from(buffer);
        self.remote.write(offset, data.clone()).await?;
        // The memory is reused, unless the connection still holds a part of it.
        Ok(Value::Written { buffer: data.into() })
    }
}

impl OpenFile for ProxiedFile {
    fn path(&self) -> &LogicalPath {
        &self.file.path
    }

    fn is_writable(&self) -> bool {
        self.file.is_writable
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize> {
        let read = self.file.cached.as_ref().and_then(|cached| cached.read_now(offset, into));
        read.map_or(Now::WouldBlock, |count| Now::Done(Ok(count)))
    }

    fn start(&self, operation: FileOperation, reply: &ReplyTo) -> Started {
        let file = self.file.clone();
        // A file that is not closed does not appear, so nobody waits for a file of a client that has left.
        let ends = file.remote.is_upload();
        match operation {
            FileOperation::Read { buffer, pieces } => {
                self.run(reply, "read", true, async move { file.read(buffer, pieces).await })
            }
            FileOperation::Write { checkpoint: true, .. }
            | FileOperation::Truncate { checkpoint: true, .. } => self.refuse("use a checkpoint of"),
            FileOperation::Write { buffer, offset, .. } => {
                self.run(reply, "write", ends, async move { file.write(buffer, offset).await })
            }
            FileOperation::Sync => {
                self.run(reply, "sync", ends, async move { file.remote.sync().await.map(nothing) })
            }
            FileOperation::Truncate { size, .. } => self
                .run(reply, "truncate", ends, async move { file.remote.truncate(size).await.map(nothing) }),
            FileOperation::Stat => self.run(reply, "stat", true, async move {
                if let Some(cached) = &file.cached {
                    // That of the bytes that it reads.
                    return Ok(Value::Stat(file_stat(&cached.stat, file.read_only)));
                }
                let stat = file.remote.stat().await?;
                Ok(Value::Stat(file_stat(&stat, file.read_only)))
            }),
            FileOperation::Close { failed: false } => {
                self.run(reply, "close", false, async move { file.remote.close().await.map(nothing) })
            }
            FileOperation::Close { failed: true } => {
                self.run(reply, "close", false, async move { file.remote.abandon().await.map(nothing) })
            }
            // The client is not there to learn of a failure.
            FileOperation::Abandon => self.run(reply, "close", false, async move {
                file.remote.abandon().await.ok();
                Ok(Value::Nothing)
            }),
            FileOperation::Checkpoint(_) => self.refuse("use a checkpoint of"),
            FileOperation::CloneFrom(_) => self.refuse("clone into"),
            FileOperation::Attributes(_) => self.refuse("access attributes of"),
            FileOperation::Query { .. } => self.refuse("query"),
        }
    }

    fn interrupt(&self) {
        // A client that closes the file waits for the answers of what it has requested before.
        if self.caller.is_disconnected() {
            self.interrupted.send_replace(true);
        }
    }

    fn give_up(&self) {
        // The origin may make the changes later. Only if it discards the file as well, that does not matter.
        if self.file.remote.persists() {
            self.given_up.send_replace(());
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn nothing((): ()) -> Value {
    Value::Nothing
}
