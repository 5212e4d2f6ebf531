//! GET and HEAD.

use crate::call::CallFailure;
use crate::conditions::{self, ConditionOutcome, TaggedVersion};
use crate::file_body::{self, FileReply};
use crate::ranges::{self, RangeOutcome};
use crate::reply::{self, RequestRefusal, RequestReply};
use crate::service::RequestContext;
use crate::{digests, handover, listing, transfer_status};
use base::ErrorKind;
use hyper::header::{ACCEPT_RANGES, CONTENT_RANGE, ETAG, LAST_MODIFIED, RANGE};
use hyper::{Method, StatusCode};
use vfs::{FileKind, OpenRequest, Operation};

/// The text of a range behind the end.
const UNSATISFIABLE: &str = "None of the range-specifier values in the Range request-header field overlap the \
                             current extent of the selected resource.";

/// Replies to GET or HEAD.
pub(crate) async fn reply(context: &RequestContext) -> Result<RequestReply, RequestRefusal> {
    match context.head.method == Method::HEAD {
        true => head(context).await,
        false => get(context).await,
    }
}

async fn head(context: &RequestContext) -> Result<RequestReply, RequestRefusal> {
    let stat = listing::shown(context.stat().await?)?;
    let version = TaggedVersion::of(&stat);
    if stat.kind == FileKind::File {
        match conditions::evaluate(context.headers(), &version) {
            ConditionOutcome::Perform { .. } => {}
            outcome => return Ok(unperformed(outcome, &version)),
        }
    }
    let mut replied = reply::head(stat.size);
    reply::set(&mut replied, ACCEPT_RANGES, "bytes");
    if stat.kind == FileKind::File {
        describe(&mut replied, &version);
        digests::add(context, &mut replied).await?;
    }
    Ok(replied)
}

async fn get(context: &RequestContext) -> Result<RequestReply, RequestRefusal> {
    if context.target.path.as_bytes().ends_with(b"/") {
        return listing::page(context).await;
    }
    let open = || {
        let request = OpenRequest { read: true, stat: true, ..OpenRequest::default() };
        Operation::Open(context.target.clone(), Box::new(request))
    };
    let (file, stat) = match context.open(open).await {
        Err(RequestRefusal::Call(CallFailure::Error(error))) if is_directory(error.kind) => {
            return listing::page(context).await;
        }
        opened => opened?,
    };
    let stat = match stat {
        Some(stat) => stat,
        None => file.stat().await?,
    };
    let version = TaggedVersion::of(&stat);
    let ranges = match conditions::evaluate(context.headers(), &version) {
        ConditionOutcome::Perform { ranges } => ranges,
        outcome => return Ok(unperformed(outcome, &version)),
    };
    let range = context.headers().get(RANGE).filter(|_| ranges).and_then(|value| value.to_str().ok());
    let outcome = range.map_or(RangeOutcome::Whole, |range| ranges::parse(range, stat.size));
    let ranges = match outcome {
        RangeOutcome::Unsatisfiable => {
            let mut refused = reply::refused(StatusCode::RANGE_NOT_SATISFIABLE, UNSATISFIABLE);
            reply::set(&mut refused, CONTENT_RANGE, &format!("bytes */{}", stat.size));
            return Ok(refused);
        }
        RangeOutcome::Whole => None,
        RangeOutcome::Ranges(ranges) => Some(ranges),
    };
    let is_whole = ranges.is_none();
    let connection = context.connection.clone();
    let has_trailer = transfer_status::is_wanted(&context.head);
    let by_sendfile = handover::is_possible(&connection, &context.head);
    let wanted = FileReply { file, size: stat.size, ranges, connection, has_trailer, by_sendfile };
    let mut replied = file_body::reply(wanted).await?;
    reply::set(&mut replied, ACCEPT_RANGES, "bytes");
    describe(&mut replied, &version);
    if is_whole {
        digests::add(context, &mut replied).await?;
    }
    Ok(replied)
}

/// Reports whether the path of an error is a directory.
pub(crate) fn is_directory(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::IsDirectory | ErrorKind::NotFile)
}

fn describe(replied: &mut RequestReply, version: &TaggedVersion) {
    reply::set(replied, ETAG, &version.tag);
    reply::set(replied, LAST_MODIFIED, &version.last_modified());
}

/// Returns the reply to a request whose conditions do not hold.
fn unperformed(outcome: ConditionOutcome, version: &TaggedVersion) -> RequestReply {
    let mut replied = match outcome {
        ConditionOutcome::NotModified => reply::empty(StatusCode::NOT_MODIFIED),
        _ => reply::refused(
            StatusCode::PRECONDITION_FAILED,
            "The file is another version than the request names.",
        ),
    };
    describe(&mut replied, version);
    replied
}
