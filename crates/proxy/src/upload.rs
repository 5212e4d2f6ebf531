//! [`Upload`]: a file that is written to an object store.
//!
//! A write that fills a part sends it, and is answered when the store has it. So clients are slowed down to the speed
//! of the store, and learn of failures. The object appears when the file is closed. A file that is not closed, or of
//! which a write has failed, leaves nothing: the parts are removed.

use crate::limits::Requester;
use crate::origin_file::OriginFile;
use crate::place::RequestFailure;
use crate::remote_file::RemoteFile;
use crate::upload_memory::{HostCount, MemoryShortage, PartMemory, UploadMemory};
use crate::upload_parts::{FullPart, LastPart, Placed, UploadParts, WriteRefusal, sizes};
use client::http::{ObjectUpload, PartsId, StoredPart};
use client::xroot::ErrorCode;
use client::{Bytes, Cause, Error, Url};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Time for which a write waits for those before it, while nothing happens.
const GAP_TIME: Duration = Duration::from_secs(60);
/// Number of attempts to remove parts, and the pause after the first one, which doubles.
const ABORTS_MAX: u32 = 4;
const ABORT_PAUSE: Duration = Duration::from_secs(2);

/// A file that is written to an object store.
pub(crate) struct Upload {
    object: ObjectUpload,
    parts: Mutex<UploadParts>,
    /// Notifies of each change of `parts`.
    changed: Notify,
    /// The upload at the store, from the first part on.
    id: tokio::sync::Mutex<Option<PartsId>>,
    memory: Arc<UploadMemory>,
    runtime: Handle,
    _count: HostCount,
}

/// A part that is being sent. Without a result, it has failed.
struct PartInFlight<'a> {
    upload: &'a Upload,
    index: usize,
    memory: Option<PartMemory>,
    stored: Option<StoredPart>,
}

impl Drop for PartInFlight<'_> {
    fn drop(&mut self) {
        self.upload.parts().end_part(self.index, self.stored.take(), self.memory.take());
        self.upload.changed.notify_waiters();
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(id) = self.id.get_mut().take() {
            self.abort_later(id);
        }
    }
}

fn server_error(operation: &'static str, url: &Url, code: ErrorCode, text: String) -> Error {
    Error::new(operation, url, Cause::Server { code, text })
}

fn refused(operation: &'static str, url: &Url, refusal: WriteRefusal) -> RequestFailure {
    let unsupported =
        |text: String| Cause::Unsupported(format!("{text}; an object store takes a file in order"));
    let cause = match refusal {
        WriteRefusal::Over => return RequestFailure::Incomplete,
        WriteRefusal::Sent(offset) => {
            unsupported(format!("the bytes at {offset} were sent and cannot be changed"))
        }
        WriteRefusal::Ahead(offset) => unsupported(format!(
            "the bytes at {offset} and behind them are missing, too many to wait for them"
        )),
        WriteRefusal::Gaps => {
            unsupported("there are too many gaps between the bytes that were written".to_owned())
        }
        WriteRefusal::TooLarge(size) => {
            let text = format!(
                "without its size (oss.asize) at the open, an object can have {size} bytes, and no more than that size with it"
            );
            Cause::Server { code: ErrorCode::NO_SPACE, text }
        }
    };
    RequestFailure::Client(Error::new(operation, url, cause))
}

impl Upload {
    /// Begins to write an object. The size that the client announces, `oss.asize`, decides about memory and parts.
    pub(crate) async fn begin(
        object: ObjectUpload,
        memory: &Arc<UploadMemory>,
        requester: Requester,
    ) -> Result<Self, RequestFailure> {
        let refused =
            |code, text: String| RequestFailure::Client(server_error("open", object.url(), code, text));
        let size = object.url().cgi.get("oss.asize").and_then(|size| size.parse().ok());
        let Some((part_bytes, bytes)) = sizes(size) else {
            let text = "the file is too large for an object in parts of this server".to_owned();
            return Err(refused(ErrorCode::NO_SPACE, text));
        };
        let (own, count) = memory.take_own(bytes, requester.host).await.map_err(|shortage| {
            let text = match shortage {
                MemoryShortage::Full => {
                    "too many files are written to the object store at once; try again later"
                }
                MemoryShortage::Host => {
                    "clients of this host write too many files to the object store at once; try again later"
                }
            };
            refused(ErrorCode::OVERLOADED, text.to_owned())
        })?;
        Ok(Self {
            object,
            parts: Mutex::new(UploadParts::new(part_bytes, own)),
            changed: Notify::new(),
            id: tokio::sync::Mutex::default(),
            memory: memory.clone(),
            runtime: Handle::current(),
            _count: count,
        })
    }

    fn parts(&self) -> MutexGuard<'_, UploadParts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the size of what was written.
    pub(crate) fn size(&self) -> u64 {
        self.parts().end()
    }

    /// Reports whether a write has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.parts().is_over()
    }

    /// Has all later writes fail.
    fn fail(&self) {
        self.parts().end_all();
        self.changed.notify_waiters();
    }

    /// Writes `data` at `offset`.
    pub(crate) async fn write(
        &self,
        remote: &RemoteFile,
        offset: u64,
        data: Bytes,
    ) -> Result<(), RequestFailure> {
        let written = self.write_pieces(remote, offset, data).await;
        if written.is_err() {
            self.fail();
        }
        written
    }

    async fn write_pieces(
        &self,
        remote: &RemoteFile,
        offset: u64,
        data: Bytes,
    ) -> Result<(), RequestFailure> {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let placed = self.parts().place(at, rest, &self.memory);
            match placed.map_err(|refusal| refused("write", self.object.url(), refusal))? {
                Placed::Copied(count) => {
                    done += count;
                    self.changed.notify_waiters();
                }
                Placed::Full(count, part) => {
                    done += count;
                    self.changed.notify_waiters();
                    self.send(remote, part).await?;
                }
                Placed::Memory(bytes) => match self.memory.wait(bytes).await {
                    Ok(more) => self.parts().add_memory(at, more),
                    Err(_) => return Err(self.no_memory()),
                },
                Placed::Wait => {
                    let waited = tokio::time::timeout(GAP_TIME, changed).await;
                    if waited.is_err() && self.parts().in_flight() == 0 {
                        return Err(refused("write", self.object.url(), WriteRefusal::Ahead(at)));
                    }
                }
            }
        }
        Ok(())
    }

    fn no_memory(&self) -> RequestFailure {
        let text =
            "the file is larger than announced (oss.asize), and there is no memory for its parts".to_owned();
        RequestFailure::Client(server_error("write", self.object.url(), ErrorCode::OVERLOADED, text))
    }

    /// Sends a part.
    async fn send(&self, remote: &RemoteFile, part: FullPart) -> Result<(), RequestFailure> {
        let FullPart { index, data, memory } = part;
        let mut flight = PartInFlight { upload: self, index, memory: Some(memory), stored: None };
        let id = self.id(remote).await?;
        flight.stored = Some(put_part(remote, &id, index, data).await?);
        Ok(())
    }

    /// Returns the upload at the store, and begins it if there is none.
    async fn id(&self, remote: &RemoteFile) -> Result<PartsId, RequestFailure> {
        let mut id = self.id.lock().await;
        if let Some(id) = &*id {
            return Ok(id.clone());
        }
        let begun = remote.run(async |file| upload_of(&file)?.begin().await).await?;
        *id = Some(begun.clone());
        Ok(begun)
    }

    /// Sets the size: to 0, after which all is written anew, or to what it is.
    pub(crate) async fn truncate(&self, size: u64) -> Result<(), RequestFailure> {
        if size != 0 && size == self.size() {
            return Ok(());
        }
        if size != 0 {
            let text = "an object store cannot set the size of a file: write it anew".to_owned();
            return Err(RequestFailure::Client(Error::new(
                "truncate",
                self.object.url(),
                Cause::Unsupported(text),
            )));
        }
        self.wait_for_parts().await;
        let is_unsent = self.parts().is_unsent();
        if !is_unsent && let Some(id) = self.id.lock().await.take() {
            self.abort(id).await;
        }
        self.parts().restart();
        self.changed.notify_waiters();
        Ok(())
    }

    /// Waits until no part is being sent.
    async fn wait_for_parts(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.parts().in_flight() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Has the object appear.
    pub(crate) async fn close(&self, remote: &RemoteFile) -> Result<(), RequestFailure> {
        self.wait_for_parts().await;
        let closed = self.finish(remote).await;
        if closed.is_err() {
            self.abandon().await;
        }
        closed
    }

    async fn finish(&self, remote: &RemoteFile) -> Result<(), RequestFailure> {
        let last = {
            let mut parts = self.parts();
            if parts.is_over() {
                return Err(RequestFailure::Incomplete);
            }
            parts.finish()
        };
        self.changed.notify_waiters();
        let last = last.map_err(|offset| {
            let text = format!("the bytes at {offset} were not written, so there is no object");
            RequestFailure::Client(Error::new("close", self.object.url(), Cause::Unsupported(text)))
        })?;
        let rest = match last {
            LastPart::Whole(data) => {
                return remote.run(async |file| upload_of(&file)?.put(data).await).await;
            }
            LastPart::Rest(data) => data,
        };
        let mut stored = self.parts().stored().ok_or(RequestFailure::Incomplete)?;
        let id = self.id(remote).await?;
        if !rest.is_empty() {
            stored.push(put_part(remote, &id, stored.len(), rest).await?);
        }
        remote.run(async |file| upload_of(&file)?.complete(&id, &stored).await).await?;
        *self.id.lock().await = None;
        Ok(())
    }

    /// Leaves nothing at the store.
    pub(crate) async fn abandon(&self) {
        self.fail();
        self.wait_for_parts().await;
        if let Some(id) = self.id.lock().await.take() {
            self.abort(id).await;
        }
    }

    /// Removes the parts at the store, also if the caller leaves.
    async fn abort(&self, id: PartsId) {
        self.abort_later(id).await.ok();
    }

    fn abort_later(&self, id: PartsId) -> tokio::task::JoinHandle<()> {
        let object = self.object.clone();
        self.runtime.spawn(async move {
            let mut pause = ABORT_PAUSE;
            for attempt in 1..=ABORTS_MAX {
                let Err(error) = object.abort(&id).await else { return };
                if attempt == ABORTS_MAX {
                    let path = object.url().path.as_str();
                    tracing::warn!(path, %error, "parts of an object that was not completed stay in the store");
                    return;
                }
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        })
    }
}

async fn put_part(
    remote: &RemoteFile,
    id: &PartsId,
    index: usize,
    data: Bytes,
) -> Result<StoredPart, RequestFailure> {
    remote.run(async |file| upload_of(&file)?.put_part(id, index + 1, data).await).await
}

/// Returns the object that a file at an origin is to become.
fn upload_of(file: &OriginFile) -> Result<&ObjectUpload, Error> {
    match file {
        OriginFile::Object(object) => Ok(object),
        file => Err(Error::new("write", file.url(), Cause::Closed)),
    }
}
