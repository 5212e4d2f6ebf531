//! The WLCG Tape REST API: staging of many files under one id, and where files are.
//!
//! Each call becomes one operation of `vfs`. Lists are read and sent in parts.

mod body;
mod route;
mod text;

use crate::call::CallFailure;
use crate::limits::{TAPE_BODY_BYTES_MAX, TAPE_LOCATED_TOGETHER};
use crate::reply::{self, ReplyBody, RequestRefusal, RequestReply};
use crate::served_connection::ServedConnection;
use crate::service::RequestContext;
use crate::{MEMORY_RETRY_SECONDS, REQUEST_BYTES, STALL_TIME_MAX};
use base::{Cgi, ErrorKind, LogicalPath};
use body::RequestedPath;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, LOCATION};
pub(crate) use route::{TapeCall, discovery, is_below, route};
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;
use vfs::{Caller, LocatedFile, Operation, TapeFile, TapeRequest, TapeState, TapeWork, Value};

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// Memory of a body in multiples of its size: the text, the parsed paths, and those of the operation.
const BODY_COPIES: usize = 4;

/// The configuration of the API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapeRest {
    /// The begin of its paths, without a slash at the end.
    pub prefix: String,
    /// The name of the site.
    pub site: String,
}

/// Parses the body of a request to stage files; `None` if it is refused.
pub fn parse_tape_files(body: &[u8]) -> Option<Vec<TapeFile>> {
    body::files(body).ok()
}

/// Parses the body of a request that names paths; `None` if it, or one of them, is refused.
pub fn parse_tape_paths(body: &[u8]) -> Option<Vec<LogicalPath>> {
    body::paths(body).and_then(body::valid).ok()
}

/// Replies to a call.
pub(crate) async fn reply(
    context: &RequestContext,
    call: TapeCall,
    body: &mut Incoming,
) -> Result<RequestReply, RequestRefusal> {
    match call {
        TapeCall::Stage => stage(context, body).await,
        TapeCall::ArchiveInfo => archive_info(context, body).await,
        TapeCall::State(id) => state(context, id).await,
        TapeCall::Forget(id) => change(context, TapeWork::Forget { id }).await,
        TapeCall::Cancel(id) => {
            let paths = body::valid(body::paths(&read(context, body).await?)?)?;
            change(context, TapeWork::Cancel { id, paths }).await
        }
        TapeCall::Release(id) => {
            let paths = body::valid(body::paths(&read(context, body).await?)?)?;
            change(context, TapeWork::Release { id, paths }).await
        }
    }
}

/// Reads the body of a request, if there is memory for it.
async fn read(context: &RequestContext, body: &mut Incoming) -> Result<Bytes, RequestRefusal> {
    let too_large = || {
        let text = format!("The body has more than {TAPE_BODY_BYTES_MAX} bytes.");
        RequestRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let length = body.size_hint().upper().map_or(Ok(TAPE_BODY_BYTES_MAX), usize::try_from);
    let length = length.ok().filter(|length| *length <= TAPE_BODY_BYTES_MAX).ok_or_else(too_large)?;
    if !context.connection.memory.admit(REQUEST_BYTES + BODY_COPIES * length) {
        return Err(CallFailure::Later(MEMORY_RETRY_SECONDS).into());
    }
    let whole = Limited::new(body, TAPE_BODY_BYTES_MAX).collect();
    match tokio::time::timeout(STALL_TIME_MAX, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(RequestRefusal::new(StatusCode::BAD_REQUEST, "The body is not complete.")),
        Err(_) => Err(RequestRefusal::new(StatusCode::REQUEST_TIMEOUT, "The body does not arrive.")),
    }
}

/// Runs an operation of the caller.
async fn run(
    connection: &ServedConnection,
    caller: &Arc<Caller>,
    (cgi, work): (Cgi, TapeWork),
) -> Result<Value, CallFailure> {
    let request = TapeRequest::new(cgi, work);
    connection.calls.once(caller, Operation::Tape(Box::new(request))).await
}

async fn run_here(context: &RequestContext, work: TapeWork) -> Result<Value, CallFailure> {
    run(&context.connection, &context.caller, (context.target.cgi.clone(), work)).await
}

fn unexpected() -> CallFailure {
    CallFailure::new(ErrorKind::ServerError, "the operation has another answer than expected")
}

async fn change(context: &RequestContext, work: TapeWork) -> Result<RequestReply, RequestRefusal> {
    run_here(context, work).await?;
    Ok(reply::empty(StatusCode::OK))
}

async fn stage(context: &RequestContext, body: &mut Incoming) -> Result<RequestReply, RequestRefusal> {
    let files = body::files(&read(context, body).await?)?;
    let Value::Text(id) = run_here(context, TapeWork::Stage(files)).await? else {
        return Err(unexpected().into());
    };
    let id = String::from_utf8_lossy(&id).into_owned();
    let mut replied = json(StatusCode::CREATED, text::request_id(&id));
    if let Some(tape) = &context.shared().config.tape {
        let origin = route::origin(&context.head, context.connection.is_tls()).unwrap_or_default();
        reply::set(&mut replied, LOCATION, &format!("{origin}{}/stage/{id}", tape.prefix));
    }
    Ok(replied)
}

fn json(status: StatusCode, text: String) -> RequestReply {
    let mut replied = reply::with_body(status, ReplyBody::Whole(Bytes::from(text)));
    reply::set(&mut replied, CONTENT_TYPE, JSON);
    replied
}

/// Returns the reply to a call that is refused (RFC 9457, formerly 7807).
pub(crate) fn refuse(refusal: RequestRefusal) -> RequestReply {
    let is_full = matches!(&refusal, RequestRefusal::Call(CallFailure::Error(error))
        if matches!(error.kind, ErrorKind::OverQuota | ErrorKind::Overloaded));
    let (status, detail, retry) = refusal.explained();
    let status = if is_full { StatusCode::TOO_MANY_REQUESTS } else { status };
    let mut replied = reply::with_body(status, ReplyBody::Whole(Bytes::from(text::problem(status, &detail))));
    reply::set(&mut replied, CONTENT_TYPE, PROBLEM);
    reply::add_refusal_headers(&mut replied, retry);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        reply::set(&mut replied, ALLOW, "GET,POST,DELETE,OPTIONS");
    }
    replied
}

/// A list that is sent part by part.
struct PartSender {
    connection: Arc<ServedConnection>,
    caller: Arc<Caller>,
    cgi: Cgi,
    to: mpsc::Sender<io::Result<Bytes>>,
}

impl PartSender {
    /// Returns the sender, and the reply that it sends.
    fn reply(context: &RequestContext) -> (Self, RequestReply) {
        let (to, parts) = mpsc::channel(1);
        let (connection, caller) = (context.connection.clone(), context.caller.clone());
        let sender = Self { connection, caller, cgi: context.target.cgi.clone(), to };
        let mut replied = reply::with_body(StatusCode::OK, ReplyBody::Parts { parts, left: None });
        reply::set(&mut replied, CONTENT_TYPE, JSON);
        (sender, replied)
    }

    async fn run(&self, work: TapeWork) -> Result<Value, CallFailure> {
        run(&self.connection, &self.caller, (self.cgi.clone(), work)).await
    }

    /// Sends a part. Reports whether the client is still there.
    async fn send(&self, text: String) -> bool {
        self.to.send(Ok(Bytes::from(text))).await.is_ok()
    }

    /// Ends the reply early, so that it does not look complete.
    async fn fail(&self) {
        // The client may have left.
        let _ = self.to.send(Err(io::Error::other("the rest of the list cannot be read"))).await;
    }
}

fn page_of(value: Value) -> Result<TapeState, CallFailure> {
    if let Value::TapeState(state) = value { Ok(*state) } else { Err(unexpected()) }
}

/// Replies with the state of a request, page by page.
async fn state(context: &RequestContext, id: String) -> Result<RequestReply, RequestRefusal> {
    let first = page_of(run_here(context, TapeWork::State { id: id.clone(), after: None }).await?)?;
    let mut begin = text::state_begin(&id, &first);
    if first.is_last {
        text::append_files(&first.files, true, &mut begin);
        begin.push_str(text::STATE_END);
        return Ok(json(StatusCode::OK, begin));
    }
    let (sender, replied) = PartSender::reply(context);
    tokio::spawn(async move {
        let (mut page, mut is_first) = (first, true);
        loop {
            let mut part = std::mem::take(&mut begin);
            text::append_files(&page.files, is_first, &mut part);
            is_first = false;
            let after = page.files.last().map(|file| file.path.clone());
            if page.is_last || after.is_none() {
                part.push_str(text::STATE_END);
                sender.send(part).await;
                return;
            }
            if !sender.send(part).await {
                return;
            }
            let next = sender.run(TapeWork::State { id: id.clone(), after }).await;
            match next.and_then(page_of) {
                Ok(next) => page = next,
                Err(_) => return sender.fail().await,
            }
        }
    });
    Ok(replied)
}

/// Replies with the places of files, some at a time.
async fn archive_info(context: &RequestContext, body: &mut Incoming) -> Result<RequestReply, RequestRefusal> {
    let paths = body::paths(&read(context, body).await?)?;
    let mut rest = paths.into_iter();
    let mut part: Vec<_> = rest.by_ref().take(TAPE_LOCATED_TOGETHER).collect();
    // Refusals of the whole request are in the answer for the first paths.
    let mut located = located(run_here(context, locate(&part)).await?)?;
    if rest.len() == 0 {
        let mut text = String::from("[");
        append_places(&part, located, true, &mut text);
        text.push(']');
        return Ok(json(StatusCode::OK, text));
    }
    let (sender, replied) = PartSender::reply(context);
    tokio::spawn(async move {
        let mut text = String::from("[");
        let mut is_first = true;
        loop {
            append_places(&part, located, is_first, &mut text);
            is_first = false;
            part = rest.by_ref().take(TAPE_LOCATED_TOGETHER).collect();
            if part.is_empty() {
                text.push(']');
                sender.send(text).await;
                return;
            }
            if !sender.send(std::mem::take(&mut text)).await {
                return;
            }
            let next = sender.run(locate(&part)).await;
            located = match next.and_then(self::located) {
                Ok(located) => located,
                Err(_) => return sender.fail().await,
            };
        }
    });
    Ok(replied)
}

fn locate(part: &[RequestedPath]) -> TapeWork {
    let valid = part.iter().filter_map(|path| path.as_ref().ok().cloned());
    TapeWork::Locate(valid.collect::<Vec<LogicalPath>>())
}

fn located(value: Value) -> Result<Vec<LocatedFile>, CallFailure> {
    if let Value::Localities(located) = value { Ok(located) } else { Err(unexpected()) }
}

fn append_places(part: &[RequestedPath], located: Vec<LocatedFile>, is_first: bool, into: &mut String) {
    let mut located = located.into_iter();
    for (number, path) in part.iter().enumerate() {
        if number > 0 || !is_first {
            into.push(',');
        }
        match path {
            // There is a place for each valid path.
            Ok(_) => {
                if let Some(file) = located.next() {
                    text::append_place(&file.path.text(), &file.locality, into);
                }
            }
            Err(invalid) => text::append_place(&invalid.text, &Err(invalid.reason.to_owned()), into),
        }
    }
}
