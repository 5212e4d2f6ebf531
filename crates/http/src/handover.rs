//! [`FileHandover`]: large parts of files that are sent by `sendfile`, without a copy through this process.
//!
//! The library sends bytes of memory only. So it sends the head of such a reply, and a body from which nothing ever comes. When
//! it asks for that body, the connection is taken from it, the file is sent, and the connection is given to it again for
//! the next request. Encrypted bodies, and those whose end somebody counts, are sent by the library.

use crate::activity::ConnectionActivity;
use crate::call::RequestFile;
use crate::door::ConnectionEnd;
use crate::file_body;
use crate::served_connection::ServedConnection;
use crate::service::NoBody;
use crate::stream::{ClientStream, SentPart};
use hyper::Version;
use hyper::header::CONNECTION;
use hyper::http::request::Parts;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::AsyncWriteExt;

/// Bytes that are looked for in memory and sent together.
const SENT_TOGETHER: u64 = 512 * 1024;

/// A file of which a part is to be sent.
pub(crate) struct HandedFile {
    file: RequestFile,
    range: Range<u64>,
}

/// The place of a file between its reply and the task of its connection.
#[derive(Default)]
pub(crate) struct FileHandover {
    file: Mutex<Option<HandedFile>>,
    /// The library wants the body, so it has the head.
    is_due: AtomicBool,
    /// Bytes that the connection had sent before the head.
    sent_before: AtomicU64,
}

impl FileHandover {
    fn put(&self, file: Option<HandedFile>) {
        let earlier = {
            let mut place = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_due.store(false, Ordering::Relaxed);
            std::mem::replace(&mut *place, file)
        };
        drop(earlier);
    }

    /// Returns the file if its head was sent.
    pub(crate) fn take(&self, activity: &ConnectionActivity) -> Option<HandedFile> {
        if !self.is_due.load(Ordering::Relaxed) {
            return None;
        }
        activity.sent().filter(|sent| *sent > self.sent_before.load(Ordering::Relaxed))?;
        self.is_due.store(false, Ordering::Relaxed);
        self.file.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The body that the library never gets. The file is closed if the library drops it, because the client has left.
pub(crate) struct HandedBody {
    handover: Arc<FileHandover>,
    pub(crate) length: u64,
}

impl HandedBody {
    pub(crate) fn new(connection: &ServedConnection, file: RequestFile, range: Range<u64>) -> Self {
        let length = range.end.saturating_sub(range.start);
        let handover = connection.handover.clone();
        handover.put(Some(HandedFile { file, range }));
        handover.sent_before.store(connection.activity.sent_so_far(), Ordering::Relaxed);
        Self { handover, length }
    }

    /// Notes that the library wants the body.
    pub(crate) fn is_wanted(&self) {
        self.handover.is_due.store(true, Ordering::Relaxed);
    }
}

impl Drop for HandedBody {
    fn drop(&mut self) {
        self.handover.put(None);
    }
}

/// Reports whether the body of a reply can be handed over: the connection must go on afterwards.
pub(crate) fn is_possible(connection: &ServedConnection, head: &Parts) -> bool {
    let shared = connection.shared();
    let keeps_alive = head
        .headers
        .get_all(CONNECTION)
        .iter()
        .all(|value| value.to_str().is_ok_and(|value| value.trim().eq_ignore_ascii_case("keep-alive")));
    shared.config.sendfile
        && shared.config.statuses.is_none()
        && !connection.is_tls()
        && !shared.is_draining()
        && head.version == Version::HTTP_11
        // Its body would be taken for the next request, because only the library knows its end.
        && head.extensions.get::<NoBody>().is_some()
        && keeps_alive
}

impl HandedFile {
    /// Sends the part. Returns `false` if the connection is to end, because not all of it was sent.
    pub(crate) async fn send(self, connection: &Arc<ServedConnection>, stream: &mut ClientStream) -> bool {
        let mut ends = connection.shared().ends.clone();
        tokio::select! {
            sent = self.send_all(connection, stream) => match sent {
                Ok(()) => true,
                Err(error) => {
                    tracing::debug!("HTTP connection: {error}");
                    false
                }
            },
            _ = ends.wait_for(|end| *end == ConnectionEnd::Now) => false,
        }
    }

    async fn send_all(self, connection: &Arc<ServedConnection>, stream: &mut ClientStream) -> io::Result<()> {
        let Self { file, range } = self;
        let mut at = range.start;
        while at < range.end {
            let length = usize::try_from((range.end - at).min(SENT_TOGETHER)).unwrap_or(usize::MAX);
            let Some(lent) = file.lend() else { break };
            let is_in_memory = || file.is_in_memory(at, length);
            let part = SentPart { file: lent, offset: at, length, is_in_memory: &is_in_memory };
            match poll_fn(|context| stream.poll_send_file(context, &part)).await {
                Ok(0) => return Err(file_body::shorter()),
                Ok(sent) => at += u64::try_from(sent).unwrap_or(u64::MAX),
                // Threads for disks read the rest, because pages that are being fetched ahead count as in memory too early.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => break,
                Err(error) => return Err(error),
            }
        }
        let mut parts = file_body::rest(file, at..range.end, connection.clone());
        while let Some(part) = parts.recv().await {
            stream.write_all(&part?).await?;
        }
        stream.flush().await
    }
}
