//! The completion of uploads in parts: the parts become an object.
//!
//! A client repeats a completion whose reply it has lost, and one during which the server has stopped. So the object has the
//! id of its upload as an attribute from the moment on in which it appears: the same step joins the parts and notes that.

use super::address::ObjectKey;
use super::buckets::RequestBucket;
use super::checksums::ObjectChecksums;
use super::error::S3Error;
use super::multipart::{PartUpload, explain, stored_parts};
use super::object::{self, NewObject, copy_range, open_to_read, open_to_write, persist};
use super::payload::ObjectBody;
use super::slow_reply;
use super::uploads::{PARTS_MAX, UploadUse};
use super::walk::ObjectStat;
use super::{UserRequest, target, xml};
use crate::S3_BODY_BYTES_MAX;
use crate::call::RequestFile;
use crate::conditions;
use crate::reply::RequestReply;
use auth::VerifiedRequest;
use hyper::StatusCode;
use hyper::body::Incoming;
use vfs::{AttributeWork, Operation, Value};

/// The attribute of an object with the id of its upload, and the tag that it had then.
const COMPLETION: &str = "scalla.s3.upload";
const OBJECT_SIZE: &str = "x-amz-mp-object-size";

impl PartUpload {
    /// Returns the tag that the object had when this upload was completed; `None` if that is not known. The object has
    /// it as an attribute from the moment on in which it appears.
    async fn completed_tag(&self, request: &UserRequest) -> Option<String> {
        let names = || AttributeWork::Get(vec![COMPLETION.as_bytes().to_vec()]);
        let found = request.context.run(|| Operation::Attributes(target(&self.object), names())).await;
        let Ok(Value::Attributes(outcomes)) = found else { return None };
        let outcome = outcomes.into_iter().find(|outcome| outcome.error.is_none())?;
        let record = String::from_utf8(outcome.value).ok()?;
        let tag = record.strip_prefix(&self.id)?.strip_prefix(' ')?;
        Some(tag.to_owned())
    }

    /// Notes in a new object that it is that of this upload.
    async fn note_completion(&self, file: &RequestFile) -> Result<(), S3Error> {
        let stat = file.stat().await?;
        let record = format!("{} {}", self.id, ObjectStat::of(&stat).tag());
        if let Err(error) = file.set_attribute(COMPLETION, record.as_bytes()).await {
            // Then a repeated completion is not recognized.
            tracing::debug!(path = %self.object.shown(), %error, "cannot note the upload of an object");
        }
        Ok(())
    }
}

/// A part that a completion names.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NamedPart {
    /// The number.
    pub number: u32,
    /// The entity tag, without its quotes.
    pub tag: String,
    /// Algorithms and values of its checksums.
    pub checksums: Vec<(String, String)>,
}

/// Parses the document of CompleteMultipartUpload: the parts, in ascending order.
///
/// Returns `None` if it is malformed, or has no or too many parts.
#[must_use]
pub fn parse_completion(document: &[u8]) -> Option<Vec<NamedPart>> {
    let (mut parts, mut number, mut tag, mut checksums) = (Vec::new(), None, None, Vec::new());
    xml::read(document, |leaf| {
        let path: Vec<&str> = leaf.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["CompleteMultipartUpload", "Part", "PartNumber"] if number.is_none() => {
                let found = leaf.text.trim().parse().ok()?;
                number = Some(found).filter(|number| (1..=PARTS_MAX).contains(number));
                number?;
            }
            ["CompleteMultipartUpload", "Part", "ETag"] if tag.is_none() => {
                tag = Some(leaf.text.trim().trim_matches('"').to_owned());
            }
            ["CompleteMultipartUpload", "Part"] => {
                let checksums = std::mem::take(&mut checksums);
                parts.push(NamedPart { number: number.take()?, tag: tag.take()?, checksums });
                if parts.len() > usize::try_from(PARTS_MAX).unwrap_or(usize::MAX) {
                    return None;
                }
            }
            ["CompleteMultipartUpload", "Part", name] if checksums.is_empty() => {
                let algorithm = name.strip_prefix("Checksum")?.to_ascii_lowercase();
                checksums.push((algorithm, leaf.text.trim().to_owned()));
            }
            ["CompleteMultipartUpload"] => {}
            _ => return None,
        }
        Some(())
    })?;
    (!parts.is_empty()).then_some(parts)
}

/// Replies to CompleteMultipartUpload.
pub(super) async fn complete(
    request: UserRequest,
    bucket: RequestBucket,
    key: ObjectKey,
    (id, verified): (String, VerifiedRequest),
    body: &mut Incoming,
) -> Result<RequestReply, S3Error> {
    let is_exclusive = conditions::of_change(request.headers())?;
    let checksums = ObjectChecksums::of_object(request.headers())?;
    let upload = PartUpload::of(&bucket, &key, &id)?;
    let payload = ObjectBody::of_document(request.head(), verified, body)?;
    let document = payload.collect(S3_BODY_BYTES_MAX).await?;
    let named = parse_completion(&document).ok_or_else(S3Error::xml)?;
    drop(document);
    let number = |part: Option<&NamedPart>| part.map(|part| part.number);
    if !named.windows(2).all(|pair| number(pair.first()) < number(pair.last())) {
        let text = "The parts are not in ascending order.";
        return Err(S3Error::new(StatusCode::BAD_REQUEST, "InvalidPartOrder", text));
    }
    let place = request.place(&request.context.shared().copy_slots).await?;
    let held = upload.hold(&request, UploadUse::Completion)?;
    if let Some(tag) = upload.completed_tag(&request).await {
        // The reply was lost, or the server has stopped before it removed the parts.
        if object::stat(&request, &upload.directory).await.is_ok() {
            let _ = upload.remove(&request).await;
        }
        return Ok(xml::reply(completed(&bucket, &key, &tag)));
    }
    let stored = stored_parts(&request, &upload).await?;
    let mut parts = Vec::with_capacity(named.len());
    for NamedPart { number, tag, checksums } in named {
        let stat = stored.get(&number).filter(|stat| stat.tag().trim_matches('"') == tag);
        let text = "A part was not uploaded, or has another tag.";
        let stat = stat.ok_or_else(|| S3Error::new(StatusCode::BAD_REQUEST, "InvalidPart", text))?;
        let content = ObjectChecksums::of_content(&checksums)?;
        parts.push(JoinedPart { number, stat: *stat, checksums: content });
    }
    let size = parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.stat.size));
    let size = size
        .ok_or_else(|| S3Error::new(StatusCode::BAD_REQUEST, "EntityTooLarge", "The object is too large."))?;
    if request.headers().get(OBJECT_SIZE).is_some_and(|value| value != &size.to_string()) {
        return Err(S3Error::request("The parts do not have the size of x-amz-mp-object-size."));
    }
    let object = JoinedObject { parts, size, is_exclusive, checksums };
    // Other servers of this file system see that the upload is young.
    upload.write_record(&request).await?;
    slow_reply::reply(place, async move {
        let stat = join(&request, &upload, object).await?;
        // The object is there, so a part that stays is removed later.
        let _ = upload.remove(&request).await;
        drop(held);
        Ok(completed(&bucket, &key, &stat.tag()))
    })
    .await
}

/// Returns the document about a completed upload.
fn completed(bucket: &RequestBucket, key: &ObjectKey, tag: &str) -> String {
    let mut text = format!("{}<CompleteMultipartUploadResult{}>", xml::HEAD, xml::NAME_SPACE);
    xml::element(&mut text, "Location", &format!("/{}/{}", bucket.name, key.as_str()));
    xml::element(&mut text, "Bucket", &bucket.name);
    xml::element(&mut text, "Key", key.as_str());
    xml::element(&mut text, "ETag", tag);
    text.push_str("</CompleteMultipartUploadResult>\n");
    text
}

/// A part of an object, with the checksums that it must have.
struct JoinedPart {
    number: u32,
    stat: ObjectStat,
    checksums: ObjectChecksums,
}

/// An object of parts, with the checksums that it must have.
struct JoinedObject {
    parts: Vec<JoinedPart>,
    size: u64,
    is_exclusive: bool,
    checksums: ObjectChecksums,
}

/// Copies the parts into the object, which appears when it is whole.
async fn join(
    request: &UserRequest,
    upload: &PartUpload,
    JoinedObject { parts, size, is_exclusive, mut checksums }: JoinedObject,
) -> Result<ObjectStat, S3Error> {
    let destination = NewObject { path: upload.object.clone(), is_exclusive, makes_directories: true };
    let new = open_to_write(request, &destination, Some(size)).await?;
    let copy = async {
        let mut at = 0;
        for mut part in parts {
            let (file, now) = open_to_read(request, &upload.part(part.number)?).await.map_err(explain)?;
            if !ObjectStat::of(&now).is_version_of(&part.stat) {
                let text = "A part was replaced meanwhile.";
                return Err(S3Error::new(StatusCode::BAD_REQUEST, "InvalidPart", text));
            }
            let copied = |data: &[u8]| {
                checksums.update(data);
                part.checksums.update(data);
                // A client that has left repeats the completion.
                request.check_client()
            };
            copy_range(&file, (0, part.stat.size), &new, at, copied).await?;
            part.checksums.check(&[])?;
            at += part.stat.size;
        }
        checksums.check(&[])?;
        upload.note_completion(&new).await
    };
    let written = copy.await;
    persist(new, is_exclusive, written).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_completion_have_numbers_and_tags() {
        let document =
            |parts: &str| format!("<CompleteMultipartUpload xmlns=\"u\">{parts}</CompleteMultipartUpload>");
        let part = |number: &str| {
            format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>&quot;a-{number}&quot;</ETag><ChecksumCRC32>x</ChecksumCRC32></Part>"
            )
        };
        let named = |number: u32| NamedPart {
            number,
            tag: format!("a-{number}"),
            checksums: vec![("crc32".to_owned(), "x".to_owned())],
        };
        let parsed = |text: &str| parse_completion(document(text).as_bytes());
        assert_eq!(parsed(&format!("{}{}", part("1"), part("10000"))), Some(vec![named(1), named(10_000)]));
        for malformed in [
            "",
            &part("0"),
            &part("10001"),
            &part("-1"),
            &part("x"),
            "<Part><PartNumber>1</PartNumber></Part>",
            "<Part><ETag>x</ETag></Part>",
            "<Part><PartNumber>1</PartNumber><ETag>x</ETag><Other>x</Other></Part>",
            "<Other/>",
        ] {
            assert_eq!(parsed(malformed), None, "{malformed}");
        }
        assert_eq!(parse_completion(b"<Delete/>"), None);
    }
}
