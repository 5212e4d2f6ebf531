//! COPY: third-party copies over HTTP. The client orders a copy between a file of this server and one
//! of a remote server, and gets markers about its progress.
//!
//! | file | content |
//! |---|---|
//! | `request` | the headers of the request |
//! | `pull` | copies from a remote server |
//! | `push` | copies to a remote server |
//! | `progress` | markers, and the last line of the reply |
//! | `remote` | traits that the server implements: connections to remote servers |
//! | `slots` | the number of copies at the same time |
//! | `streams` | several connections to a source |

mod progress;
mod pull;
mod push;
mod remote;
pub(crate) mod request;
mod slots;
mod streams;

pub use remote::{
    Copies, EndedHttpCopy, HttpCopyObserver, RemoteDownload, RemoteFailure, RemoteFuture, RemoteParts,
    RemotePeer, RemoteRanges, RemoteRequest, RemoteServers, UploadSource,
};
pub(crate) use slots::HttpCopySlots;

use crate::call::{CallFailure, RequestFile};
use crate::conditions;
use crate::host_shares::{HeldShare, SharedPart};
use crate::reply::{self, ReplyBody, RequestRefusal, RequestReply};
use crate::served_connection::ServedConnection;
use crate::service::RequestContext;
use crate::{COPY_RETRY_SECONDS, COPY_WAIT_MAX};
use base::{Descriptor, ErrorKind};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use progress::CopyProgress;
use request::{CopyDirection, CopyRequest};
use slots::HttpCopySlot;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use vfs::Caller;

/// Interval of the look for disconnected clients that have no reply yet.
const DISCONNECT_LOOK: Duration = Duration::from_millis(500);

/// The receiver of the body of a reply.
type ReplySender = mpsc::Sender<io::Result<Bytes>>;

/// The reason why a copy has failed.
#[derive(Debug)]
pub(crate) struct HttpCopyFailure {
    status: StatusCode,
    text: String,
}

impl HttpCopyFailure {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Returns the failure of a client that has disconnected.
    fn gone() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the client has disconnected")
    }
}

impl From<RemoteFailure> for HttpCopyFailure {
    fn from(failure: RemoteFailure) -> Self {
        let status = match failure {
            RemoteFailure::Refused(_) => StatusCode::FORBIDDEN,
            RemoteFailure::Status { status: 401 | 403, .. } => StatusCode::FORBIDDEN,
            RemoteFailure::Status { status: 404 | 410, .. } => StatusCode::NOT_FOUND,
            RemoteFailure::Invalid(_) => StatusCode::BAD_REQUEST,
            RemoteFailure::Status { .. } | RemoteFailure::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, failure.to_string())
    }
}

impl From<base::Error> for HttpCopyFailure {
    fn from(error: base::Error) -> Self {
        Self::new(reply::status_of(&error), error.text)
    }
}

/// A copy whose request is valid.
struct CopyTask {
    copies: Copies,
    direction: CopyDirection,
    caller: Arc<Caller>,
    /// Counts as a connection until the copy ends.
    connection: Arc<ServedConnection>,
    /// The local path and the URL of the remote file without its query, for texts.
    local: String,
    remote: String,
    url: String,
    headers: hyper::HeaderMap,
    progress: Arc<CopyProgress>,
    begun: SystemTime,
    /// The result, which the observer gets at the end of the copy: 0, or a status. `None` if another server makes
    /// the copy.
    status: Mutex<Option<u16>>,
    _slot: HttpCopySlot,
    /// The descriptor of the connection to the remote server.
    _descriptor: (Descriptor, HeldShare),
}

impl CopyTask {
    /// Waits for a place among the copies of all clients.
    async fn begin(
        context: &RequestContext,
        copies: &Copies,
        request: &CopyRequest,
    ) -> Result<Self, RequestRefusal> {
        let user = context.caller.entity().and_then(|entity| entity.name.as_deref());
        let waiting = context.shared().copy_slots.take(context.connection.address(), user, COPY_WAIT_MAX);
        let slot = tokio::select! {
            slot = waiting => slot,
            () = until_disconnected(&context.caller) => return Err(refusal(HttpCopyFailure::gone())),
        };
        let Some(_slot) = slot else {
            let host = context.caller.identity.host();
            tracing::info!(
                "HTTP {} for {host} is refused, because too many are in progress",
                request.direction
            );
            return Err(CallFailure::Later(COPY_RETRY_SECONDS).into());
        };
        let _descriptor = take_descriptor(context)?;
        let url = request.url.clone();
        Ok(Self {
            copies: copies.clone(),
            direction: request.direction,
            caller: context.caller.clone(),
            connection: context.connection.clone(),
            local: base::shown(context.target.path.as_bytes()).to_string(),
            remote: request::without_query(&url).to_owned(),
            url,
            headers: request.headers.clone(),
            progress: Arc::default(),
            begun: SystemTime::now(),
            // Each way out that is not one of those below is a failure.
            status: Mutex::new(Some(StatusCode::INTERNAL_SERVER_ERROR.as_u16())),
            _slot,
            _descriptor,
        })
    }

    /// Returns the request for the remote file.
    fn remote_request(&self, wanted_digest: Option<String>) -> RemoteRequest {
        RemoteRequest {
            url: self.url.clone(),
            headers: self.headers.clone(),
            client: self.connection.address(),
            reply_time: self.copies.first_time,
            wanted_digest,
            peer: self.progress.peer(),
        }
    }

    fn set_status(&self, status: Option<u16>) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// Returns the refusal of a copy whose file of this server cannot be opened.
    fn refuse_file(&self, refusal: RequestRefusal) -> RequestRefusal {
        self.set_status(refusal.status().map(|status| status.as_u16()));
        refusal
    }

    /// Returns the refusal of a copy that fails before its reply has begun.
    fn refuse(&self, failure: HttpCopyFailure) -> RequestRefusal {
        self.log(Err(&failure));
        let HttpCopyFailure { status, text } = failure;
        refusal(HttpCopyFailure { status, text: self.with_names(&text) })
    }

    fn with_names(&self, text: &str) -> String {
        format!("{text}, local={}, remote={}", self.local, self.remote)
    }

    /// Begins the reply.
    fn accept(&self) -> (RequestReply, ReplySender) {
        let (to, parts) = mpsc::channel(1);
        let mut replied = reply::with_body(StatusCode::ACCEPTED, ReplyBody::Parts { parts, left: None });
        replied.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        (replied, to)
    }

    /// Ends the reply.
    async fn end(&self, to: ReplySender, result: Result<(), HttpCopyFailure>) {
        self.log(result.as_ref().map(|&()| ()));
        let result = result.map_err(|failure| self.with_names(&failure.text));
        // The client may have disconnected.
        let _ = to.send(Ok(self.progress.end(result).into())).await;
    }

    /// Passes the end of the copy to the observer.
    fn observe(&self) {
        let status = *self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(observer), Some(status)) = (&self.copies.observer, status) else { return };
        observer.ended(&EndedHttpCopy {
            client: &self.caller.identity,
            user: self.caller.entity().and_then(|entity| entity.name.as_deref()),
            is_tls: self.connection.is_tls(),
            begun: self.begun,
            ended: SystemTime::now(),
            status,
            is_push: self.direction == CopyDirection::Push,
            local: &self.local,
            remote: &self.remote,
            bytes: self.progress.bytes(),
        });
    }

    /// Logs the end of the copy. The text of a remote server is not logged, because it could contain the
    /// credentials of the request.
    fn log(&self, result: Result<(), &HttpCopyFailure>) {
        self.set_status(Some(result.err().map_or(0, |failure| failure.status.as_u16())));
        let Self { direction, local, remote, .. } = self;
        let (bytes, host) = (self.progress.bytes(), self.caller.identity.host());
        match result {
            Ok(()) => {
                tracing::info!("HTTP {direction} of {local}, remote {remote}, for {host}: {bytes} bytes")
            }
            Err(HttpCopyFailure { status, .. }) => tracing::info!(
                "HTTP {direction} of {local}, remote {remote}, for {host} has failed after {bytes} bytes ({status})"
            ),
        }
    }
}

impl Drop for CopyTask {
    fn drop(&mut self) {
        self.observe();
    }
}

/// Replies to COPY.
pub(crate) async fn reply(context: &RequestContext, body: &Incoming) -> Result<RequestReply, RequestRefusal> {
    let Some(copies) = &context.shared().config.copies else {
        return Err(RequestRefusal::new(StatusCode::NOT_IMPLEMENTED, "Request not supported."));
    };
    if !body.is_end_stream() {
        // While a body has not been read, a client that disconnects is not noticed.
        let text = "The body of COPY must be empty.";
        return Err(RequestRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    conditions::no_condition(context.headers())?;
    let request = request::parse(context.headers());
    let request = request.map_err(|text| RequestRefusal::new(StatusCode::BAD_REQUEST, text))?;
    match request.direction {
        CopyDirection::Pull => pull::reply(context, copies, &request).await,
        CopyDirection::Push => push::reply(context, copies, &request).await,
    }
}

/// Returns the reply of a server that redirects clients: the redirect to another server, or an error.
async fn not_here(opened: Result<RequestFile, RequestRefusal>) -> RequestRefusal {
    match opened {
        Ok(file) => {
            file.discard().await;
            let text = "This server redirects copies, and has not found another server.";
            RequestRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
        Err(RequestRefusal::Call(CallFailure::Error(error))) if error.kind == ErrorKind::ItExists => {
            RequestRefusal::new(StatusCode::PRECONDITION_FAILED, error.text)
        }
        Err(refusal) => refusal,
    }
}

fn refusal(failure: HttpCopyFailure) -> RequestRefusal {
    RequestRefusal::new(failure.status, format!("failure: {}", progress::one_line(&failure.text)))
}

/// Takes a descriptor for the connection to a remote server, as for a file.
fn take_descriptor(context: &RequestContext) -> Result<(Descriptor, HeldShare), RequestRefusal> {
    let full = || {
        let text = "too many files are open; try again later";
        RequestRefusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
    };
    let shared = context.shared();
    let share = shared.shares.take(context.connection.address(), SharedPart::File).ok_or_else(full)?;
    let descriptor = shared.config.descriptors.open(share.before()).ok_or_else(full)?;
    Ok((descriptor, share))
}

/// Waits until the client has disconnected.
async fn until_disconnected(caller: &Caller) {
    while !caller.is_disconnected() {
        tokio::time::sleep(DISCONNECT_LOOK).await;
    }
}
