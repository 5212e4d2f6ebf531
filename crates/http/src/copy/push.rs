//! Copies to a remote server, by PUT.

use super::progress::{ByteCounter, Markers};
use super::request::CopyRequest;
use super::{Copies, CopyTask, HttpCopyFailure, ReplySender, UploadSource};
use crate::call::RequestFile;
use crate::reply::{RequestRefusal, RequestReply};
use crate::served_connection::ServedConnection;
use crate::service::RequestContext;
use bytes::Bytes;
use hyper::StatusCode;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use vfs::{FileKind, OpenRequest, Operation};

/// Interval at which the progress is looked at.
const PROGRESS_LOOK: Duration = Duration::from_millis(500);

/// Parts of the file that wait for the connection.
const PARTS_AHEAD: usize = 1;

/// Bytes of a part.
const PART_BYTES: usize = 128 * 1024;

/// Replies to COPY with a destination.
pub(super) async fn reply(
    context: &RequestContext,
    copies: &Copies,
    request: &CopyRequest,
) -> Result<RequestReply, RequestRefusal> {
    if request.needs_checksum {
        let text = "The checksum of the destination is not verified (RequireChecksumVerification).";
        return Err(RequestRefusal::new(StatusCode::NOT_IMPLEMENTED, text));
    }
    let open = || {
        let request = OpenRequest { read: true, stat: true, ..OpenRequest::default() };
        Operation::Open(context.target.clone(), Box::new(request))
    };
    if copies.redirects {
        let opened = context.open(open).await.map(|(file, _)| file);
        return Err(super::not_here(opened).await);
    }
    let task = CopyTask::begin(context, copies, request).await?;
    let opened = context.open(open).await;
    let (file, stat) = opened.map_err(|refusal| task.refuse_file(refusal))?;
    let stat = match stat {
        Some(stat) => stat,
        None => file.stat().await.map_err(|error| task.refuse_file(error.into()))?,
    };
    if stat.kind == FileKind::Directory {
        let text = "The path is that of a directory";
        return Err(task.refuse(HttpCopyFailure::new(StatusCode::CONFLICT, text)));
    }
    let (reply, to) = task.accept();
    let push = Push { task, file: Arc::new(file), size: stat.size, overwrites: request.overwrite };
    tokio::spawn(push.run(to));
    Ok(reply)
}

/// A copy whose reply has begun.
struct Push {
    task: CopyTask,
    file: Arc<RequestFile>,
    size: u64,
    overwrites: bool,
}

impl Push {
    async fn run(self, to: ReplySender) {
        let Self { mut task, file, size, overwrites } = self;
        if !overwrites {
            let only_new = hyper::header::HeaderValue::from_static("*");
            task.headers.insert(hyper::header::IF_NONE_MATCH, only_new);
        }
        let markers = Markers::start(task.progress.clone(), to.clone());
        let source = source(&task, &file, size);
        let store = task.copies.servers.store(task.remote_request(None), size, source);
        let result = tokio::select! {
            biased;
            () = to.closed() => Err(HttpCopyFailure::gone()),
            stored = store => stored.map_err(HttpCopyFailure::from),
            failure = stalled(&task, size) => Err(failure),
        };
        markers.stop().await;
        task.end(to, result).await;
    }
}

/// Returns what reads the file from its beginning, once for each request to a remote server.
fn source(task: &CopyTask, file: &Arc<RequestFile>, size: u64) -> UploadSource {
    let (file, progress) = (file.clone(), task.progress.clone());
    let connection = task.connection.clone();
    Arc::new(move || {
        let (to, parts) = mpsc::channel(PARTS_AHEAD);
        let (file, counter, connection) = (file.clone(), progress.restart(), connection.clone());
        // The task ends when nothing takes its parts any longer.
        tokio::spawn(read(file, size, counter, to, connection));
        parts
    })
}

/// Reads a file, one part ahead of the connection. The task counts as a connection.
async fn read(
    file: Arc<RequestFile>,
    size: u64,
    counter: ByteCounter,
    to: mpsc::Sender<io::Result<Bytes>>,
    _connection: Arc<ServedConnection>,
) {
    let mut at = 0;
    while at < size {
        // A place for the part first, so that no memory is held meanwhile.
        let Ok(place) = to.reserve().await else { return };
        let length = usize::try_from(size - at).unwrap_or(PART_BYTES).min(PART_BYTES);
        let mut bytes = Vec::with_capacity(length);
        match file.read(at, length, &mut bytes).await {
            // The receiver has fewer bytes than the file had.
            Ok(0) => return,
            Ok(read) => {
                let read = u64::try_from(read).unwrap_or(u64::MAX);
                at += read;
                counter.add(read);
                place.send(Ok(Bytes::from(bytes)));
            }
            Err(error) => {
                place.send(Err(io::Error::other(error.text)));
                return;
            }
        }
    }
}

/// Waits until progress has been missing for too long.
async fn stalled(task: &CopyTask, size: u64) -> HttpCopyFailure {
    let (mut seen, mut since) = (task.progress.bytes(), Instant::now());
    loop {
        tokio::time::sleep(PROGRESS_LOOK).await;
        let bytes = task.progress.bytes();
        if bytes != seen {
            (seen, since) = (bytes, Instant::now());
        }
        let is_waiting = bytes == 0 || bytes == size;
        let limit = if is_waiting { task.copies.first_time } else { task.copies.stall_time };
        if since.elapsed() >= limit {
            let text = format!(
                "Transfer failed because no bytes have been transmitted to the destination (push mode) in {} \
                 seconds.",
                limit.as_secs()
            );
            return HttpCopyFailure::new(StatusCode::GATEWAY_TIMEOUT, text);
        }
    }
}
