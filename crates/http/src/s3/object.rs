//! GetObject, HeadObject, PutObject and CopyObject.

use super::address::{ObjectKey, is_bucket};
use super::buckets::{self, RequestBucket};
use super::error::S3Error;
use super::payload::ObjectBody;
use super::slow_reply;
use super::walk::ObjectStat;
use super::{COPY_SOURCE, UserRequest, new_target, target, xml};
use crate::call::{CallFailure, RequestFile};
use crate::conditions::{self, ConditionOutcome, TaggedVersion};
use crate::reply::{self, RequestReply};
use crate::upload::{self, FILE_MODE};
use crate::{CHUNK_BYTES, get};
use auth::VerifiedRequest;
use base::{ErrorKind, LogicalPath};
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE,
    ETAG, EXPECT, EXPIRES, HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
};
use vfs::{FileKind, FileStat, OpenRequest, Operation, Value};

/// Permission bits of new directories.
const DIRECTORY_MODE: u32 = 0o775;
/// Number of times that a file is opened whose directory disappears meanwhile, because its last object was removed.
const OPENS_MAX: usize = 3;
/// Seconds after which a write may be repeated in whose place is a file that is not whole.
const PENDING_SECONDS: u32 = 5;
/// Number of times that a file is looked at that is changed in each tick of the clock.
const LOOKS_MAX: usize = 3;
const DIRECTORY_TYPE: &str = "application/x-directory";
const METADATA_DIRECTIVE: HeaderName = HeaderName::from_static("x-amz-metadata-directive");

/// Parameters that set headers of the reply.
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-content-type", CONTENT_TYPE),
    ("response-content-disposition", CONTENT_DISPOSITION),
    ("response-content-encoding", CONTENT_ENCODING),
    ("response-content-language", CONTENT_LANGUAGE),
    ("response-cache-control", CACHE_CONTROL),
    ("response-expires", EXPIRES),
];

/// Conditions on the source of a copy, and those of a read.
const SOURCE_CONDITIONS: [(&str, HeaderName); 4] = [
    ("x-amz-copy-source-if-match", IF_MATCH),
    ("x-amz-copy-source-if-none-match", IF_NONE_MATCH),
    ("x-amz-copy-source-if-modified-since", IF_MODIFIED_SINCE),
    ("x-amz-copy-source-if-unmodified-since", IF_UNMODIFIED_SINCE),
];

/// Replies to GetObject.
pub(super) async fn get(
    request: &UserRequest,
    bucket: &RequestBucket,
    key: &ObjectKey,
) -> Result<RequestReply, S3Error> {
    if key.is_directory() {
        return head(request, bucket, key).await;
    }
    let opened = open_to_read(request, &key.path(&bucket.path)?).await;
    let (file, stat) = match opened {
        Ok(opened) => opened,
        Err(error) => return Err(bucket.explain(request, error).await),
    };
    let version = TaggedVersion::of_object(&stat);
    let (mut replied, _) = get::content(&request.context, file, stat.size, &version).await?;
    match replied.status() {
        StatusCode::PRECONDITION_FAILED => return Err(failed_condition()),
        StatusCode::RANGE_NOT_SATISFIABLE => {
            let text = "The range is behind the end of the object.";
            return Err(S3Error::new(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange", text));
        }
        _ => {}
    }
    override_headers(request, &mut replied);
    Ok(replied)
}

/// Opens the file of an object.
pub(super) async fn open_to_read(
    request: &UserRequest,
    path: &LogicalPath,
) -> Result<(RequestFile, FileStat), S3Error> {
    let open = || {
        let options = OpenRequest { read: true, stat: true, ..OpenRequest::default() };
        Operation::Open(target(path), Box::new(options))
    };
    let (file, found) = match request.context.open(open).await {
        Ok(opened) => opened,
        Err(refusal) => {
            let error = S3Error::from(refusal).of_read();
            // A socket cannot be opened.
            let is_other = !error.is_absent()
                && stat(request, path).await.is_ok_and(|found| found.kind == FileKind::Other);
            return Err(if is_other { S3Error::no_key() } else { error });
        }
    };
    let mut stat = match found {
        Some(stat) => stat,
        None => file.stat().await?,
    };
    for _ in 0..LOOKS_MAX {
        if is_settled_after_pause(&stat).await {
            break;
        }
        stat = file.stat().await?;
    }
    match stat.kind {
        FileKind::Directory | FileKind::Other => Err(S3Error::no_key()),
        FileKind::File => Ok((file, stat)),
    }
}

/// Reports whether each later change of a file gets another tag than this status; otherwise waits until that is so.
/// The status must then be read again, because the file may have been changed meanwhile.
async fn is_settled_after_pause(stat: &FileStat) -> bool {
    let pause = conditions::rest_of_tick(stat);
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    pause.is_zero()
}

/// Replies to HeadObject.
pub(super) async fn head(
    request: &UserRequest,
    bucket: &RequestBucket,
    key: &ObjectKey,
) -> Result<RequestReply, S3Error> {
    let stat = match settled_stat(request, &key.path(&bucket.path)?).await {
        Ok(stat) => stat,
        Err(error) => return Err(bucket.explain(request, error.of_read()).await),
    };
    let kind = if key.is_directory() { FileKind::Directory } else { FileKind::File };
    if stat.kind != kind || stat.posc_pending {
        return Err(S3Error::no_key());
    }
    let size = ObjectStat::of(&stat).size;
    let version = TaggedVersion::of_object(&FileStat { size, ..stat });
    match conditions::evaluate(request.headers(), &version) {
        ConditionOutcome::Perform { .. } => {}
        ConditionOutcome::Failed => return Err(failed_condition()),
        outcome => return Ok(get::unperformed(outcome, &version)),
    }
    let mut replied = reply::head(size);
    reply::set(&mut replied, ACCEPT_RANGES, "bytes");
    let kind = if key.is_directory() { DIRECTORY_TYPE } else { "application/octet-stream" };
    reply::set(&mut replied, CONTENT_TYPE, kind);
    get::describe(&mut replied, &version);
    override_headers(request, &mut replied);
    Ok(replied)
}

/// Returns the status of an object, whose tag each later change changes.
async fn settled_stat(request: &UserRequest, path: &LogicalPath) -> Result<FileStat, S3Error> {
    let mut found = stat(request, path).await?;
    for _ in 0..LOOKS_MAX {
        if is_settled_after_pause(&found).await {
            break;
        }
        found = stat(request, path).await?;
    }
    Ok(found)
}

pub(super) async fn stat(request: &UserRequest, path: &LogicalPath) -> Result<FileStat, S3Error> {
    match request.context.run(|| Operation::Stat(target(path))).await? {
        Value::Stat(stat) => Ok(stat),
        _ => Err(CallFailure::new(ErrorKind::ServerError, "there is no status").into()),
    }
}

fn failed_condition() -> S3Error {
    let text = "A condition of the request does not hold.";
    S3Error::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", text)
}

fn override_headers(request: &UserRequest, replied: &mut RequestReply) {
    for (parameter, name) in OVERRIDES {
        if let Some(value) = request.parameter(parameter) {
            reply::set(replied, name, value);
        }
    }
}

/// Replies to PutObject.
pub(super) async fn put(
    request: &UserRequest,
    bucket: &RequestBucket,
    key: &ObjectKey,
    verified: VerifiedRequest,
    body: &mut Incoming,
) -> Result<RequestReply, S3Error> {
    let is_exclusive = conditions::of_change(request.headers())?;
    let payload = ObjectBody::of(request.head(), verified, body)?;
    let path = key.path(&bucket.path)?;
    bucket.check_exists(request).await?;
    if key.is_directory() {
        return make_directory(request, &path, payload).await;
    }
    let destination = NewObject { path, is_exclusive, makes_directories: true };
    let stat = store(request, &destination, payload).await?;
    let mut replied = reply::empty(StatusCode::OK);
    reply::set(&mut replied, ETAG, &stat.tag());
    Ok(replied)
}

/// Creates a directory: an empty object whose key ends with a slash.
async fn make_directory(
    request: &UserRequest,
    path: &LogicalPath,
    payload: ObjectBody<'_>,
) -> Result<RequestReply, S3Error> {
    if !payload.collect(0).await?.is_empty() {
        return Err(S3Error::request("The key of an object with content does not end with a slash."));
    }
    let new = new_target(path)?;
    let made = request.context.run(|| Operation::make_directory(new.clone(), DIRECTORY_MODE, true)).await;
    match made.map_err(S3Error::from) {
        Err(error) if error.kind == Some(ErrorKind::ItExists) => {}
        made => drop(made?),
    }
    let stat = stat(request, path).await?;
    if stat.kind != FileKind::Directory {
        return Err(S3Error::new(
            StatusCode::CONFLICT,
            "Conflict",
            "There is an object in place of the directory.",
        ));
    }
    let mut replied = reply::empty(StatusCode::OK);
    reply::set(&mut replied, ETAG, &ObjectStat::of(&stat).tag());
    Ok(replied)
}

/// The place of a new file.
pub(super) struct NewObject {
    pub(super) path: LogicalPath,
    /// There must be no file.
    pub(super) is_exclusive: bool,
    /// Missing directories are created.
    pub(super) makes_directories: bool,
}

/// Stores the body of a request. The file appears when all of the body has arrived and has its signature and
/// checksums; an earlier one stays until then. Others may store the same object at the same time: the last end counts.
pub(super) async fn store(
    request: &UserRequest,
    destination: &NewObject,
    mut payload: ObjectBody<'_>,
) -> Result<ObjectStat, S3Error> {
    // A request of which only the head arrives creates nothing, unless it waits for `100 Continue`.
    if !request.headers().contains_key(EXPECT) {
        payload.wait().await?;
    }
    let file = open_to_write(request, destination, payload.announced()).await?;
    let written = upload::write_body(&file, &mut payload).await;
    let is_closed = request.context.shared().closes_connections();
    let checked = match written {
        Ok(_) => payload.finish(is_closed),
        Err(refusal) => Err(payload.explain(refusal)),
    };
    persist(file, destination.is_exclusive, checked).await
}

/// Closes a file that is complete, and discards another one.
pub(super) async fn persist(
    file: RequestFile,
    is_exclusive: bool,
    written: Result<(), S3Error>,
) -> Result<ObjectStat, S3Error> {
    let stat = match written {
        Ok(()) => file.stat().await.map_err(S3Error::from),
        Err(error) => Err(error),
    };
    match stat {
        Ok(stat) => {
            // The new object appears behind the tick of its last write, so a later object that gets its file number has
            // another time, and another tag.
            is_settled_after_pause(&stat).await;
            file.close().await.map_err(|error| explain_existing(error.into(), is_exclusive))?;
            Ok(ObjectStat::of(&stat))
        }
        Err(error) => {
            file.discard().await;
            Err(error)
        }
    }
}

/// Returns the error of a write for which an object is in the way.
fn explain_existing(error: S3Error, is_exclusive: bool) -> S3Error {
    match error.kind {
        Some(ErrorKind::ItExists) if is_exclusive => failed_condition(),
        Some(ErrorKind::ItExists) => {
            let text = "There is an object, and the user may not replace it.";
            S3Error::new(StatusCode::FORBIDDEN, "AccessDenied", text)
        }
        _ => error,
    }
}

/// Opens a new file, or the new content of one.
pub(super) async fn open_to_write(
    request: &UserRequest,
    destination: &NewObject,
    size: Option<u64>,
) -> Result<RequestFile, S3Error> {
    if !request.context.shared().config.accepts_uploads {
        let text = "This server takes no objects, because it could not remove unfinished ones.";
        return Err(S3Error::unsupported(text));
    }
    let NewObject { path, is_exclusive, makes_directories } = destination;
    let target = upload::sized(&new_target(path)?, size);
    let open = || {
        let options = OpenRequest {
            write: true,
            new: *is_exclusive,
            delete: !is_exclusive,
            replace: true,
            publish: true,
            make_path: *makes_directories,
            posc: true,
            mode: FILE_MODE,
            ..OpenRequest::default()
        };
        Operation::Open(target.clone(), Box::new(options))
    };
    let mut opens = 1;
    loop {
        match request.context.open(open).await.map_err(S3Error::from) {
            Ok((file, _)) => return Ok(file),
            Err(error) if error.kind == Some(ErrorKind::ItExists) && *is_exclusive => {
                return Err(refused_exclusive(request, path).await);
            }
            Err(error) if error.is_absent() && *makes_directories && opens < OPENS_MAX => opens += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Returns the error of an exclusive write of something that exists. A file that is not whole, or one that has
/// disappeared meanwhile, is not the object of another client, which the failed condition would tell.
async fn refused_exclusive(request: &UserRequest, path: &LogicalPath) -> S3Error {
    match stat(request, path).await {
        Ok(stat) if stat.posc_pending => CallFailure::Later(PENDING_SECONDS).into(),
        Err(error) if error.is_absent() => CallFailure::Later(PENDING_SECONDS).into(),
        _ => failed_condition(),
    }
}

/// The source of a copy.
pub(super) struct ObjectSource {
    pub(super) path: LogicalPath,
}

impl ObjectSource {
    /// Reads the header with the source: `/BUCKET/KEY`, percent-encoded.
    pub(super) fn of(request: &UserRequest) -> Result<Self, S3Error> {
        let invalid = || S3Error::argument("x-amz-copy-source is not BUCKET/KEY.");
        let value = request.header(COPY_SOURCE).unwrap_or_default();
        let (value, version) = value.split_once('?').unwrap_or((&value, "versionId=null"));
        if version != "versionId=null" {
            return Err(S3Error::new(
                StatusCode::NOT_FOUND,
                "NoSuchVersion",
                "There are no versions of objects.",
            ));
        }
        let decoded = base::percent_decode(value.as_bytes()).and_then(|text| String::from_utf8(text).ok());
        let decoded = decoded.ok_or_else(invalid)?;
        let (bucket, key) =
            decoded.strip_prefix('/').unwrap_or(&decoded).split_once('/').ok_or_else(invalid)?;
        let key = ObjectKey::parse(key)?;
        if !is_bucket(bucket) || key.is_directory() {
            return Err(invalid());
        }
        let bucket = buckets::find(&request.service, bucket)?;
        Ok(Self { path: key.path(&bucket.path)? })
    }

    /// Opens the source, if the conditions of the request hold for it.
    pub(super) async fn open(&self, request: &UserRequest) -> Result<(RequestFile, FileStat), S3Error> {
        let (file, stat) = open_to_read(request, &self.path).await?;
        let mut conditions = HeaderMap::new();
        for (name, condition) in SOURCE_CONDITIONS {
            if let Some(value) = request.headers().get(name) {
                conditions.insert(condition, value.clone());
            }
        }
        match conditions::evaluate(&conditions, &TaggedVersion::of_object(&stat)) {
            ConditionOutcome::Perform { .. } => Ok((file, stat)),
            ConditionOutcome::NotModified | ConditionOutcome::Failed => Err(failed_condition()),
        }
    }
}

/// Copies a range of a file to an offset of another one. `seen` gets all that is copied, and ends the copy with its error.
pub(super) async fn copy_range(
    from: &RequestFile,
    (begin, end): (u64, u64),
    to: &RequestFile,
    at: u64,
    mut seen: impl FnMut(&[u8]) -> Result<(), S3Error>,
) -> Result<(), S3Error> {
    let mut offset = begin;
    let mut buffer = Vec::new();
    while offset < end {
        buffer.clear();
        let length = usize::try_from(end - offset).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let read = from.read(offset, length, &mut buffer).await?;
        if read == 0 {
            let text = "The source has become shorter.";
            return Err(S3Error::new(StatusCode::CONFLICT, "OperationAborted", text));
        }
        seen(&buffer)?;
        to.write(at + (offset - begin), &buffer).await?;
        offset += u64::try_from(read).unwrap_or(u64::MAX);
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Replies to CopyObject.
pub(super) async fn copy(
    request: UserRequest,
    bucket: RequestBucket,
    key: ObjectKey,
) -> Result<RequestReply, S3Error> {
    let is_exclusive = conditions::of_change(request.headers())?;
    let source = ObjectSource::of(&request)?;
    let path = key.path(&bucket.path)?;
    if key.is_directory() {
        return Err(S3Error::request("A copy needs a key without a slash at its end."));
    }
    bucket.check_exists(&request).await?;
    let (file, stat) = source.open(&request).await?;
    if source.path == path {
        let directive = request.headers().get(METADATA_DIRECTIVE);
        // There is nothing to change, because no metadata is stored.
        return match directive.is_some_and(|value| value == "REPLACE") {
            true => Ok(xml::reply(copied("CopyObjectResult", &ObjectStat::of(&stat)))),
            false => Err(S3Error::request("An object is not copied to itself.")),
        };
    }
    let place = request.place(&request.context.shared().copy_slots).await?;
    let destination = NewObject { path, is_exclusive, makes_directories: true };
    let new = open_to_write(&request, &destination, Some(stat.size)).await?;
    slow_reply::reply(place, async move {
        let written = copy_range(&file, (0, stat.size), &new, 0, |_| request.check_client()).await;
        let stat = persist(new, is_exclusive, written).await?;
        Ok(copied("CopyObjectResult", &stat))
    })
    .await
}

/// Returns the document about a copy.
pub(super) fn copied(name: &str, stat: &ObjectStat) -> String {
    let mut text = format!("{}<{name}{}>", xml::HEAD, xml::NAME_SPACE);
    xml::element(&mut text, "LastModified", &xml::time(stat.modified));
    xml::element(&mut text, "ETag", &stat.tag());
    text.push_str(&format!("</{name}>\n"));
    text
}
