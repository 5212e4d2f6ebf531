//! [`FileUpload`]: a file that is written to an object store or a web server.
//!
//! A write that fills a part sends it, and is answered when the store has it. So clients are slowed down to the speed
//! of the origin, and learn of failures. The file appears when it is closed. One that is not closed, or of which a
//! write has failed, leaves nothing: the parts at the store, or the temporary file at the web server, are
//! removed. Parts of an object are sent in any order, and parts of a file at a web server in ascending order.

use crate::appearing_file::{AppearingFile, AppearingRest};
use crate::limits::Requester;
use crate::origin::OriginServer;
use crate::origin_file::{OriginFile, unsupported};
use crate::place::RequestFailure;
use crate::remote_file::RemoteFile;
use crate::upload_memory::{MemoryShortage, PartMemory};
use crate::upload_parts::{FullPart, LastPart, Placed, UploadParts, WriteRefusal, sizes};
use crate::upload_stream::UploadStream;
use base::ClientHost;
use client::http::{HttpUpload, ObjectUpload, PartsId, StoredPart};
use client::xroot::ErrorCode;
use client::{Bytes, Cause, Error, Url};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Time for which a write waits for those before it, while nothing happens.
const GAP_TIME: Duration = Duration::from_secs(60);

/// A file that is written to an object store or a web server.
pub(crate) struct FileUpload {
    file: AppearingFile,
    /// The size that the client has announced.
    announced: Option<u64>,
    parts: Mutex<UploadParts>,
    /// Notifies of each change of `parts`.
    changed: Notify,
    /// The data at the origin, from the first part on.
    unfinished: tokio::sync::Mutex<Option<AppearingRest>>,
    /// The request of a web server, from the first part on.
    stream: tokio::sync::Mutex<Option<UploadStream>>,
    origin: Arc<OriginServer>,
    runtime: Handle,
    host: ClientHost,
}

/// A part that is being sent. Without a result, it has failed.
struct PartInFlight<'a> {
    upload: &'a FileUpload,
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

impl Drop for FileUpload {
    fn drop(&mut self) {
        if let Some(unfinished) = self.unfinished.get_mut().take() {
            *self.stream.get_mut() = None;
            self.origin.upload_removals().begin(self.file.clone(), unfinished);
        }
    }
}

fn server_error(operation: &'static str, url: &Url, code: ErrorCode, text: String) -> Error {
    Error::new(operation, url, Cause::Server { code, text })
}

fn refused(operation: &'static str, url: &Url, refusal: WriteRefusal) -> RequestFailure {
    let unsupported = |text: String| Cause::Unsupported(format!("{text}; a file is sent in order"));
    let cause = match refusal {
        WriteRefusal::Over => return RequestFailure::Incomplete,
        WriteRefusal::Sent(offset) => unsupported(format!(
            "the bytes at {offset} were sent and cannot be changed, also not to correct a page with a wrong checksum"
        )),
        WriteRefusal::Ahead(offset) => unsupported(format!(
            "the bytes at {offset} and behind them are missing, too many to wait for them"
        )),
        WriteRefusal::Gaps => {
            unsupported("there are too many gaps between the bytes that were written".to_owned())
        }
        WriteRefusal::TooLarge(size) => {
            let text = format!(
                "the file can have {size} bytes as it was opened; announce its size (oss.asize) at the open"
            );
            Cause::Server { code: ErrorCode::NO_SPACE, text }
        }
    };
    RequestFailure::Client(Error::new(operation, url, cause))
}

impl FileUpload {
    /// Begins to write an object. The size that the client announces, `oss.asize`, decides about memory and parts.
    pub(crate) async fn begin(
        file: AppearingFile,
        origin: &Arc<OriginServer>,
        requester: Requester,
    ) -> Result<Self, RequestFailure> {
        let refused =
            |code, text: String| RequestFailure::Client(server_error("open", file.url(), code, text));
        let size = file.url().cgi.get("oss.asize").and_then(|size| base::parse_size(size));
        let Some((part_bytes, bytes)) = sizes(size) else {
            let text = "the file is too large for an object in parts of this server".to_owned();
            return Err(refused(ErrorCode::NO_SPACE, text));
        };
        let own = origin.upload_memory().take_own(bytes, requester.host).await.map_err(|shortage| {
            let text = match shortage {
                MemoryShortage::Full => "too many files are written at once; try again later",
                MemoryShortage::Host => "clients of this host write too many files at once; try again later",
            };
            refused(ErrorCode::OVERLOADED, text.to_owned())
        })?;
        Ok(Self {
            file,
            announced: size,
            parts: Mutex::new(UploadParts::new(part_bytes, own)),
            changed: Notify::new(),
            unfinished: tokio::sync::Mutex::default(),
            stream: tokio::sync::Mutex::default(),
            origin: origin.clone(),
            runtime: Handle::current(),
            host: requester.host,
        })
    }

    fn parts(&self) -> MutexGuard<'_, UploadParts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bytes up to the last one that was written.
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
            let (placed, copies) = {
                let mut parts = self.parts();
                (parts.place(at, rest, (self.origin.upload_memory(), self.host)), parts.copies())
            };
            match placed.map_err(|refusal| refused("write", self.file.url(), refusal))? {
                Placed::Copied(count) => done += count,
                Placed::Begun(count) => {
                    done += count;
                    // Others may wait for this part.
                    self.changed.notify_waiters();
                }
                Placed::Full(count, part) => {
                    done += count;
                    self.changed.notify_waiters();
                    self.send(remote, part).await?;
                }
                Placed::Memory(bytes) => match self.origin.upload_memory().take(bytes, self.host).await {
                    Ok(more) => {
                        self.parts().add_memory(at, more);
                        self.changed.notify_waiters();
                    }
                    Err(_) => return Err(self.no_memory()),
                },
                Placed::Wait => {
                    let waited = tokio::time::timeout(GAP_TIME, changed).await;
                    let parts = self.parts();
                    if waited.is_err() && parts.in_flight() == 0 && parts.copies() == copies {
                        return Err(refused("write", self.file.url(), WriteRefusal::Ahead(at)));
                    }
                }
            }
        }
        Ok(())
    }

    fn no_memory(&self) -> RequestFailure {
        let text =
            "the file is larger than announced (oss.asize), and there is no memory for its parts".to_owned();
        RequestFailure::Client(server_error("write", self.file.url(), ErrorCode::OVERLOADED, text))
    }

    /// Sends a part.
    async fn send(&self, remote: &RemoteFile, part: FullPart) -> Result<(), RequestFailure> {
        let FullPart { index, data, memory } = part;
        let mut flight = PartInFlight { upload: self, index, memory: Some(memory), stored: None };
        flight.stored = Some(match &self.file {
            AppearingFile::Object(_) => {
                let id = self.id(remote).await?;
                put_part(remote, &id, index, data).await?
            }
            AppearingFile::Web(file) => {
                self.stream_part(remote, file, index, data).await?;
                StoredPart::of("")
            }
        });
        Ok(())
    }

    /// Sends a part to a web server, after those before it.
    async fn stream_part(
        &self,
        remote: &RemoteFile,
        file: &HttpUpload,
        index: usize,
        data: Bytes,
    ) -> Result<(), RequestFailure> {
        let Some(length) = self.announced else {
            let text =
                "a file of this size can be sent to a web server only if its size is announced (oss.asize)";
            let cause = Cause::Unsupported(text.to_owned());
            return Err(RequestFailure::Client(Error::new("write", file.url(), cause)));
        };
        let offset = (index as u64).saturating_mul(data.len() as u64);
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.has_failed() {
                return Err(RequestFailure::Incomplete);
            }
            let mut stream = self.stream.lock().await;
            if stream.as_ref().map_or(0, UploadStream::next) == offset {
                *self.unfinished.lock().await = Some(AppearingRest::Temporary);
                let begin = || UploadStream::begin(file, length, &self.runtime);
                return remote.run(async |_| stream.get_or_insert_with(begin).send(data).await).await;
            }
            drop(stream);
            if tokio::time::timeout(GAP_TIME, changed).await.is_err() {
                return Err(refused("write", file.url(), WriteRefusal::Ahead(offset)));
            }
        }
    }

    /// Returns the upload at the store, and begins it if there is none.
    async fn id(&self, remote: &RemoteFile) -> Result<PartsId, RequestFailure> {
        let mut unfinished = self.unfinished.lock().await;
        if let Some(AppearingRest::Parts(id)) = &*unfinished {
            return Ok(id.clone());
        }
        let begun = remote.run(async |file| object_of(&file)?.begin().await).await?;
        *unfinished = Some(AppearingRest::Parts(begun.clone()));
        Ok(begun)
    }

    /// Sets the size to 0, after which all bytes are written again. The present size changes nothing.
    pub(crate) async fn truncate(&self, size: u64) -> Result<(), RequestFailure> {
        if size != 0 && size == self.size() {
            return Ok(());
        }
        if size != 0 {
            return Err(RequestFailure::Client(unsupported(
                "truncate",
                self.file.url(),
                "set the size of a file: write it anew",
            )));
        }
        self.wait_for_parts().await;
        if matches!(self.file, AppearingFile::Web(_)) && self.stream.lock().await.is_some() {
            // A server can still write to the temporary name.
            return Err(RequestFailure::Client(unsupported(
                "truncate",
                self.file.url(),
                "begin a file anew of which a part was sent: write it again",
            )));
        }
        self.remove_unfinished().await;
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

    /// Fails if bytes of the announced size are missing. A client whose source has failed closes the file, too.
    fn check_size(&self, size: u64) -> Result<(), RequestFailure> {
        let Some(announced) = self.announced.filter(|announced| size < *announced) else { return Ok(()) };
        let text = format!(
            "the file has {size} of the {announced} bytes that were announced (oss.asize), so it does not appear"
        );
        Err(RequestFailure::Client(server_error("close", self.file.url(), ErrorCode::FS_ERROR, text)))
    }

    async fn finish(&self, remote: &RemoteFile) -> Result<(), RequestFailure> {
        let (last, size) = {
            let mut parts = self.parts();
            if parts.is_over() {
                return Err(RequestFailure::Incomplete);
            }
            let size = parts.end();
            (parts.finish(), size)
        };
        self.changed.notify_waiters();
        let last = last.map_err(|offset| {
            let text = format!("the bytes at {offset} were not written, so there is no object");
            RequestFailure::Client(Error::new("close", self.file.url(), Cause::Unsupported(text)))
        })?;
        self.check_size(size)?;
        match &self.file {
            AppearingFile::Object(_) => self.finish_object(remote, last).await?,
            AppearingFile::Web(file) => self.finish_web(remote, file, last).await?,
        }
        *self.unfinished.lock().await = None;
        Ok(())
    }

    async fn finish_object(&self, remote: &RemoteFile, last: LastPart) -> Result<(), RequestFailure> {
        let rest = match last {
            LastPart::Whole(data) => {
                return remote.run(async |file| object_of(&file)?.put(data).await).await;
            }
            LastPart::Rest(data) => data,
        };
        let mut stored = self.parts().stored().ok_or(RequestFailure::Incomplete)?;
        let id = self.id(remote).await?;
        if !rest.is_empty() {
            stored.push(put_part(remote, &id, stored.len(), rest).await?);
        }
        remote.run(async |file| object_of(&file)?.complete(&id, &stored).await).await
    }

    async fn finish_web(
        &self,
        remote: &RemoteFile,
        file: &HttpUpload,
        last: LastPart,
    ) -> Result<(), RequestFailure> {
        let mut stream = self.stream.lock().await;
        let (rest, whole) = match last {
            LastPart::Whole(data) => (data.clone(), Some(data.len() as u64)),
            LastPart::Rest(data) => (data, None),
        };
        *self.unfinished.lock().await = Some(AppearingRest::Temporary);
        let send = async |_| {
            if let Some(length) = whole {
                *stream = Some(UploadStream::begin(file, length, &self.runtime));
            }
            let Some(stream) = stream.as_mut() else {
                return Err(Error::new("close", file.url(), Cause::Closed));
            };
            stream.send(rest).await?;
            stream.finish().await
        };
        remote.run(send).await?;
        remote.run(async |file| web_of(&file)?.publish().await).await
    }

    /// Leaves nothing at the store.
    pub(crate) async fn abandon(&self) {
        self.fail();
        self.wait_for_parts().await;
        self.remove_unfinished().await;
    }

    /// Begins to remove the data at the origin. No part is being sent.
    async fn remove_unfinished(&self) {
        *self.stream.lock().await = None;
        if let Some(unfinished) = self.unfinished.lock().await.take() {
            self.origin.upload_removals().begin(self.file.clone(), unfinished);
        }
    }
}

async fn put_part(
    remote: &RemoteFile,
    id: &PartsId,
    index: usize,
    data: Bytes,
) -> Result<StoredPart, RequestFailure> {
    remote.run(async |file| object_of(&file)?.put_part(id, index + 1, data).await).await
}

/// Returns the object that a file at an origin is to become.
fn object_of(file: &OriginFile) -> Result<&ObjectUpload, Error> {
    match file {
        OriginFile::New(AppearingFile::Object(object)) => Ok(object),
        file => Err(Error::new("write", file.url(), Cause::Closed)),
    }
}

/// Returns the file of a web server that a file at an origin is to become.
fn web_of(file: &OriginFile) -> Result<&HttpUpload, Error> {
    match file {
        OriginFile::New(AppearingFile::Web(file)) => Ok(file),
        file => Err(Error::new("write", file.url(), Cause::Closed)),
    }
}

#[cfg(test)]
mod tests;
