//! Changes of names: DELETE, MKCOL, MOVE; and OPTIONS.

use crate::reply::{self, RequestRefusal, RequestReply};
use crate::service::RequestContext;
use crate::target::{NewName, parse_destination};
use crate::{conditions, redirect};
use base::ErrorKind;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, HeaderName, HeaderValue};
use vfs::{FileKind, Operation};

const DAV: HeaderName = HeaderName::from_static("dav");
const DESTINATION: HeaderName = HeaderName::from_static("destination");
const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");

/// The methods, with and without those that write.
const METHODS: &str = "HEAD,GET,PUT,PROPFIND,DELETE,OPTIONS,MKCOL,MOVE";
const METHODS_WITHOUT_PUT: &str = "HEAD,GET,PROPFIND,DELETE,OPTIONS,MKCOL,MOVE";

/// Permission bits of new directories.
const DIRECTORY_MODE: u32 = 0o775;

/// Replies to OPTIONS.
pub(crate) fn options(accepts_uploads: bool, copies: bool) -> RequestReply {
    let mut replied = reply::empty(StatusCode::OK);
    let headers = replied.headers_mut();
    headers.append(DAV, HeaderValue::from_static("1"));
    headers.append(DAV, HeaderValue::from_static("<http://apache.org/dav/propset/fs/1>"));
    let methods = if accepts_uploads { METHODS } else { METHODS_WITHOUT_PUT };
    headers.insert(ALLOW, HeaderValue::from_static(methods));
    if copies {
        reply::set(&mut replied, ALLOW, &format!("{methods},COPY"));
    }
    replied
}

/// Removes a file or an empty directory.
pub(crate) async fn delete(context: &RequestContext) -> Result<RequestReply, RequestRefusal> {
    conditions::no_condition(context.headers())?;
    let stat = context.stat().await?;
    context
        .run(|| match stat.kind {
            FileKind::Directory => Operation::RemoveDirectory(context.target.clone()),
            FileKind::File | FileKind::Other => Operation::Remove(context.target.clone()),
        })
        .await?;
    Ok(reply::done(StatusCode::OK))
}

/// Creates a directory.
pub(crate) async fn make_collection(
    context: &RequestContext,
    body: &Incoming,
) -> Result<RequestReply, RequestRefusal> {
    conditions::no_condition(context.headers())?;
    if !body.is_end_stream() {
        return Err(RequestRefusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "The body of MKCOL must be empty.",
        ));
    }
    let new = NewName::of(context.target.clone())?;
    context.run(|| Operation::make_directory(new.target().clone(), DIRECTORY_MODE, true)).await?;
    Ok(reply::done(StatusCode::CREATED))
}

/// Renames a file or directory.
pub(crate) async fn rename(context: &RequestContext) -> Result<RequestReply, RequestRefusal> {
    conditions::no_condition(context.headers())?;
    let destination = context.headers().get(DESTINATION);
    let Some(destination) = destination else {
        return Err(RequestRefusal::new(StatusCode::BAD_REQUEST, "MOVE needs a header Destination."));
    };
    let invalid = |_| RequestRefusal::new(StatusCode::BAD_REQUEST, "The header Destination is malformed.");
    let to = parse_destination(destination.to_str().map_err(invalid)?, &hosts(context))?;
    let new = NewName::of(to)?;
    let keeps = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"F");
    let (from, to) = (&context.target, new.target());
    if context.headers().get(OVERWRITE).is_some_and(keeps) {
        let renamed = context.run(|| Operation::rename_to_new(from.clone(), to.clone())).await;
        renamed.map_err(not_overwritten)?;
    } else {
        context.run(|| Operation::rename(from.clone(), to.clone())).await?;
    }
    Ok(reply::done(StatusCode::CREATED))
}

/// Returns the refusal of a rename that must not replace anything.
fn not_overwritten(refusal: RequestRefusal) -> RequestRefusal {
    match refusal {
        RequestRefusal::Call(failure) if failure.kind() == Some(ErrorKind::ItExists) => {
            RequestRefusal::new(StatusCode::PRECONDITION_FAILED, "The destination exists (Overwrite: F).")
        }
        other => other,
    }
}

/// Returns the names by which the client may address this server in `Destination`: that of the header
/// `Host`, and that of the manager that has redirected it here.
fn hosts(context: &RequestContext) -> Vec<String> {
    let own = context.host().map(str::to_owned);
    let manager = redirect::first_host(&context.target.cgi);
    own.into_iter().chain(manager).collect()
}
