//! Uploads in parts.
//!
//! The parts of an upload are files in a directory beside the object: `.scalla-multipart-ID/NAME/NUMBER`, where `NAME`
//! is that of the object. A record beside `NAME` shows that this is an upload. So they count in its space, need the same rights, and survive a restart of the server.
//! Listings do not show them, and no key reaches them. The completion copies them into a new file, which appears as a
//! whole. An upload is removed a day after its last part: see `uploads`.

use super::address::ObjectKey;
use super::buckets::RequestBucket;
use super::delete;
use super::error::S3Error;
use super::object::{self, NewObject, ObjectSource, copied, copy_range, open_to_write, persist};
use super::payload::ObjectBody;
use super::slow_reply;
use super::uploads::{self, HeldUpload, ID_BYTES, PARTS_MAX, PREFIX, UploadUse, is_reserved};
use super::walk::{KeyWalk, ObjectStat, SeenUpload};
use super::{UserRequest, new_target, target, xml};
use crate::call::CallFailure;
use crate::conditions;
use crate::reply::{self, RequestReply};
use auth::{SystemRng, VerifiedRequest};
use base::{ErrorKind, LogicalPath, Rng};
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{ETAG, HeaderName};
use std::collections::BTreeMap;
use std::fmt::Write;
use vfs::{FileKind, ListDetail, Operation, Value};

/// Maximum number of parts of a page.
const PAGE_PARTS_MAX: usize = 1000;
/// Permission bits of the directories of an upload.
const DIRECTORY_MODE: u32 = 0o775;
/// Seconds after which a request for an upload that is being completed may be repeated.
const BUSY_SECONDS: u32 = 5;
const SOURCE_RANGE: HeaderName = HeaderName::from_static("x-amz-copy-source-range");

/// An upload of an object.
pub(super) struct PartUpload {
    /// The directory of the upload, beside the object.
    pub(super) directory: LogicalPath,
    /// The directory with its parts.
    parts: LogicalPath,
    /// The path of the object.
    pub(super) object: LogicalPath,
    record: Vec<u8>,
    pub(super) id: String,
}

impl PartUpload {
    /// Returns the upload with an id.
    pub(super) fn of(bucket: &RequestBucket, key: &ObjectKey, id: &str) -> Result<Self, S3Error> {
        if !uploads::is_id(id) {
            return Err(no_upload());
        }
        if key.is_directory() {
            return Err(S3Error::request("The key of an object with content does not end with a slash."));
        }
        let object = key.path(&bucket.path)?;
        let too_long = |_| {
            S3Error::new(StatusCode::BAD_REQUEST, "KeyTooLongError", "The path of the parts is too long.")
        };
        let parent = object.parent().unwrap_or_else(LogicalPath::root);
        let directory = parent.join(format!("{PREFIX}{id}").as_bytes()).map_err(too_long)?;
        let parts = directory.join(object.file_name().unwrap_or_default()).map_err(too_long)?;
        let record = uploads::record(id, object.file_name().unwrap_or_default());
        Ok(Self { directory, parts, object, record, id: id.to_owned() })
    }

    /// Begins a use of the upload.
    pub(super) fn hold(&self, request: &UserRequest, held: UploadUse) -> Result<HeldUpload, S3Error> {
        // It is being completed or aborted: clients repeat what is told to be slower.
        let busy = || CallFailure::Later(BUSY_SECONDS).into();
        request.context.shared().uploads.hold(&self.directory, held).ok_or_else(busy)
    }

    /// Writes the record of the upload. The upload is as young as its record.
    pub(super) async fn write_record(&self, request: &UserRequest) -> Result<ObjectStat, S3Error> {
        let path = uploads::record_of(&self.directory).ok_or_else(no_upload)?;
        let size = u64::try_from(self.record.len()).ok();
        let destination = NewObject { path, is_exclusive: false, makes_directories: false };
        let file = open_to_write(request, &destination, size).await.map_err(explain)?;
        let written = file.write(0, &self.record).await.map_err(S3Error::from);
        persist(file, false, written).await
    }

    /// Removes the upload. What cannot be removed stays until the time of the upload is over.
    pub(super) async fn remove(&self, request: &UserRequest) -> Result<(), S3Error> {
        let context = &request.context;
        uploads::remove(&context.connection.calls, &context.caller, &self.directory, &self.parts).await?;
        context.shared().uploads.forget(&self.directory);
        Ok(())
    }

    /// Refuses an upload whose parts its user could not remove: they would stay.
    async fn check_rights(&self, request: &UserRequest) -> Result<(), S3Error> {
        let part = self.part(1)?;
        let removed = request.context.run(|| Operation::Remove(target(&part))).await.map_err(S3Error::from);
        match removed {
            Err(error) if error.kind == Some(ErrorKind::NotAuthorized) => {
                let text = "An upload in parts needs the right to delete, because its parts are removed.";
                Err(S3Error::new(error.status, error.code, text))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn part(&self, number: u32) -> Result<LogicalPath, S3Error> {
        let path = self.parts.join(format!("{number:05}").as_bytes());
        path.map_err(|_| {
            S3Error::new(StatusCode::BAD_REQUEST, "KeyTooLongError", "The path of the part is too long.")
        })
    }
}

fn no_upload() -> S3Error {
    S3Error::new(
        StatusCode::NOT_FOUND,
        "NoSuchUpload",
        "There is no upload with this id; it may have been completed or aborted.",
    )
}

/// Returns the error of an operation on the parts of an upload: what is missing is the upload.
pub(super) fn explain(error: S3Error) -> S3Error {
    if error.is_absent() || error.code == "NotADirectory" { no_upload() } else { error }
}

/// Replies to CreateMultipartUpload.
pub(super) async fn create(
    request: &UserRequest,
    bucket: &RequestBucket,
    key: &ObjectKey,
) -> Result<RequestReply, S3Error> {
    if !request.context.shared().config.accepts_uploads {
        return Err(S3Error::unsupported(
            "This server takes no objects, because it could not remove unfinished ones.",
        ));
    }
    bucket.check_exists(request).await?;
    let mut random = [0; ID_BYTES];
    SystemRng.fill(&mut random);
    let id = random.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    let upload = PartUpload::of(bucket, key, &id)?;
    // The name of the object must be one that can be created.
    new_target(&upload.object)?;
    upload.check_rights(request).await?;
    let context = &request.context;
    context.run(|| Operation::make_directory(target(&upload.directory), DIRECTORY_MODE, true)).await?;
    context.shared().uploads.await_end(upload.directory.clone(), &context.connection.calls, &context.caller);
    if !upload.write_record(request).await?.has_exact_time() {
        upload.remove(request).await?;
        let text = "Uploads in parts need a file system whose times have nanoseconds, because tags identify the parts.";
        return Err(S3Error::unsupported(text));
    }
    context.run(|| Operation::make_directory(target(&upload.parts), DIRECTORY_MODE, false)).await?;
    let mut text = format!("{}<InitiateMultipartUploadResult{}>", xml::HEAD, xml::NAME_SPACE);
    xml::element(&mut text, "Bucket", &bucket.name);
    xml::element(&mut text, "Key", key.as_str());
    xml::element(&mut text, "UploadId", &id);
    text.push_str("</InitiateMultipartUploadResult>\n");
    Ok(xml::reply(text))
}

/// Removes uploads that a listing has seen and whose time is over, in the name of the client of the listing.
pub(super) fn remove_old(request: &UserRequest, bucket: &RequestBucket, seen: &[SeenUpload]) {
    let path = |seen: &SeenUpload| {
        LogicalPath::parse(
            &[bucket.path.as_bytes(), b"/", seen.prefix.as_bytes(), seen.name.as_bytes()].concat(),
        )
    };
    let old = seen.iter().filter(|seen| uploads::is_old(seen.begun));
    let old: Vec<LogicalPath> = old.filter_map(|seen| path(seen).ok()).collect();
    if !old.is_empty() {
        let context = &request.context;
        context.shared().uploads.remove_seen(old, &context.connection.calls, &context.caller);
    }
}

fn part_number(request: &UserRequest) -> Result<u32, S3Error> {
    let number = request.parameter("partNumber").and_then(|number| number.parse().ok());
    number
        .filter(|number| (1..=PARTS_MAX).contains(number))
        .ok_or_else(|| S3Error::argument("partNumber is not a number from 1 to 10000."))
}

/// Replies to UploadPart.
pub(super) async fn put_part(
    request: &UserRequest,
    (bucket, key, id): (&RequestBucket, &ObjectKey, &str),
    verified: VerifiedRequest,
    body: &mut Incoming,
) -> Result<RequestReply, S3Error> {
    conditions::no_condition(request.headers())?;
    let upload = PartUpload::of(bucket, key, id)?;
    let path = upload.part(part_number(request)?)?;
    let _held = upload.hold(request, UploadUse::Part).map_err(|_| no_upload())?;
    let payload = ObjectBody::of(request.head(), verified, body)?;
    let destination = NewObject { path, is_exclusive: false, makes_directories: false };
    let stat = object::store(request, &destination, payload).await.map_err(explain)?;
    let mut replied = reply::empty(StatusCode::OK);
    reply::set(&mut replied, ETAG, &stat.tag());
    Ok(replied)
}

/// Replies to UploadPartCopy.
pub(super) async fn copy_part(
    request: UserRequest,
    bucket: RequestBucket,
    key: ObjectKey,
    id: String,
) -> Result<RequestReply, S3Error> {
    let upload = PartUpload::of(&bucket, &key, &id)?;
    let path = upload.part(part_number(&request)?)?;
    let held = upload.hold(&request, UploadUse::Part).map_err(|_| no_upload())?;
    let (file, stat) = ObjectSource::of(&request)?.open(&request).await?;
    let range = match request.headers().get(SOURCE_RANGE) {
        None => (0, stat.size),
        Some(value) => source_range(value.to_str().unwrap_or_default(), stat.size)?,
    };
    let place = request.place(&request.context.shared().copy_slots).await?;
    let destination = NewObject { path, is_exclusive: false, makes_directories: false };
    let new = open_to_write(&request, &destination, Some(range.1 - range.0)).await.map_err(explain)?;
    slow_reply::reply(place, async move {
        let _held = held;
        let written = copy_range(&file, range, &new, 0, |_| request.check_client()).await;
        Ok(copied("CopyPartResult", &persist(new, false, written).await?))
    })
    .await
}

/// Returns begin and end of a range `bytes=FIRST-LAST` of the source.
fn source_range(text: &str, size: u64) -> Result<(u64, u64), S3Error> {
    let range = text.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let range = range.and_then(|(first, last)| number(first).zip(number(last)?.checked_add(1)));
    match range {
        Some((begin, end)) if begin < end && end <= size => Ok((begin, end)),
        _ => Err(S3Error::argument("x-amz-copy-source-range is not bytes=FIRST-LAST within the source.")),
    }
}

/// Replies to AbortMultipartUpload.
pub(super) async fn abort(
    request: &UserRequest,
    bucket: &RequestBucket,
    key: &ObjectKey,
    id: &str,
) -> Result<RequestReply, S3Error> {
    let upload = PartUpload::of(bucket, key, id)?;
    object::stat(request, &upload.parts).await.map_err(explain)?;
    let held = upload.hold(request, UploadUse::Abort)?;
    match upload.remove(request).await {
        // A part is still being uploaded, perhaps by a client that has vanished. It is removed with the upload later.
        Err(error) if error.code == "DirectoryNotEmpty" => {}
        removed => removed?,
    }
    drop(held);
    delete::prune(request, bucket, &upload.directory).await;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Returns the parts of an upload by their numbers.
pub(super) async fn stored_parts(
    request: &UserRequest,
    upload: &PartUpload,
) -> Result<BTreeMap<u32, ObjectStat>, S3Error> {
    let detail = ListDetail { stat: true, ..ListDetail::default() };
    let context = &request.context;
    let first = context.run(|| Operation::List(target(&upload.parts), detail)).await.map_err(S3Error::from);
    let (mut page, mut found) = (first.map_err(explain)?, BTreeMap::new());
    loop {
        let Value::Listing { entries, rest } = page else {
            return Err(CallFailure::new(ErrorKind::ServerError, "there is no listing").into());
        };
        for entry in entries.iter() {
            let number = std::str::from_utf8(&entry.name).ok().and_then(|name| name.parse::<u32>().ok());
            let stat = entry.stat.as_ref().filter(|stat| stat.kind == FileKind::File && !stat.posc_pending);
            if let Some((number, stat)) = number.filter(|number| (1..=PARTS_MAX).contains(number)).zip(stat) {
                found.insert(number, ObjectStat::of(stat));
            }
        }
        let Some(rest) = rest else { return Ok(found) };
        page = context.connection.calls.once(&context.caller, Operation::ListMore(rest)).await?;
    }
}

/// Replies to ListParts.
pub(super) async fn list_parts(
    request: &UserRequest,
    bucket: &RequestBucket,
    key: &ObjectKey,
    id: &str,
) -> Result<RequestReply, S3Error> {
    let upload = PartUpload::of(bucket, key, id)?;
    let number = |name: &'static str, default: u32| match request.parameter(name) {
        None | Some("") => Ok(default),
        Some(number) => {
            number.parse::<u32>().map_err(|_| S3Error::argument(format!("{name} is not a number.")))
        }
    };
    let marker = number("part-number-marker", 0)?;
    let limit =
        usize::try_from(number("max-parts", PARTS_MAX)?).unwrap_or(PAGE_PARTS_MAX).min(PAGE_PARTS_MAX);
    let parts = stored_parts(request, &upload).await?;
    let mut rest = parts.range(marker.saturating_add(1)..);
    let page: Vec<_> = rest.by_ref().take(limit).collect();
    let is_truncated = limit > 0 && rest.next().is_some();
    let mut text = format!("{}<ListPartsResult{}>", xml::HEAD, xml::NAME_SPACE);
    xml::element(&mut text, "Bucket", &bucket.name);
    xml::element(&mut text, "Key", key.as_str());
    xml::element(&mut text, "UploadId", id);
    xml::element(&mut text, "StorageClass", "STANDARD");
    xml::element(&mut text, "PartNumberMarker", &marker.to_string());
    if let Some((last, _)) = page.last() {
        xml::element(&mut text, "NextPartNumberMarker", &last.to_string());
    }
    xml::element(&mut text, "MaxParts", &limit.to_string());
    xml::element(&mut text, "IsTruncated", if is_truncated { "true" } else { "false" });
    for (number, stat) in page {
        text.push_str("<Part>");
        xml::element(&mut text, "PartNumber", &number.to_string());
        xml::element(&mut text, "LastModified", &xml::time(stat.modified));
        xml::element(&mut text, "ETag", &stat.tag());
        xml::element(&mut text, "Size", &stat.size.to_string());
        text.push_str("</Part>");
    }
    text.push_str("</ListPartsResult>\n");
    Ok(xml::reply(text))
}

/// Replies to ListMultipartUploads: those that one request finds in the directories of the bucket.
pub(super) async fn list_uploads(
    request: &UserRequest,
    bucket: &RequestBucket,
) -> Result<RequestReply, S3Error> {
    let _place = request.place(&request.context.shared().listing_slots).await?;
    bucket.check_exists(request).await?;
    let prefix = request.parameter("prefix").unwrap_or_default();
    let directory = prefix.rsplit_once('/').map_or(String::new(), |(directory, _)| format!("{directory}/"));
    let mut walk = KeyWalk::begin(request, &bucket.path, &directory, false, Vec::new()).await?;
    while walk.next().await?.is_some() {}
    let is_truncated = walk.is_stopped();
    let mut text = format!("{}<ListMultipartUploadsResult{}>", xml::HEAD, xml::NAME_SPACE);
    xml::element(&mut text, "Bucket", &bucket.name);
    xml::element(&mut text, "Prefix", prefix);
    xml::element(&mut text, "IsTruncated", if is_truncated { "true" } else { "false" });
    let mut found = Vec::new();
    for seen in &walk.uploads {
        request.check_client()?;
        let path = [bucket.path.as_bytes(), b"/", seen.prefix.as_bytes(), seen.name.as_bytes()].concat();
        let Ok(path) = LogicalPath::parse(&path) else { continue };
        let listed = request.context.run(|| Operation::List(target(&path), ListDetail::default())).await;
        let Ok(Value::Listing { entries, .. }) = listed else { continue };
        let names = entries.iter().filter_map(|entry| String::from_utf8(entry.name.clone()).ok());
        let name = names.into_iter().find(|name| !is_reserved(name));
        let Some(key) = name.map(|name| format!("{}{name}", seen.prefix)) else { continue };
        let id = seen.name.strip_prefix(PREFIX).unwrap_or_default();
        if key.starts_with(prefix) {
            found.push((key, id, seen.begun));
        }
    }
    found.sort_unstable();
    for (key, id, begun) in found {
        text.push_str("<Upload>");
        xml::element(&mut text, "Key", &key);
        xml::element(&mut text, "UploadId", id);
        xml::element(&mut text, "StorageClass", "STANDARD");
        xml::element(&mut text, "Initiated", &xml::time(begun));
        text.push_str("</Upload>");
    }
    text.push_str("</ListMultipartUploadsResult>\n");
    remove_old(request, bucket, &walk.uploads);
    Ok(xml::reply(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_sources_are_within_them() {
        let range = |text: &str| source_range(text, 10).ok();
        assert_eq!(range("bytes=0-9"), Some((0, 10)));
        assert_eq!(range("bytes=3-3"), Some((3, 4)));
        for other in [
            "bytes=0-10",
            "bytes=5-4",
            "bytes=-3",
            "bytes=3-",
            "0-9",
            "bytes=0-18446744073709551615",
            "bytes=+0-9",
        ] {
            assert_eq!(range(other), None, "{other}");
        }
    }
}
