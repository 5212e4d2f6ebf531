//! DeleteObject and DeleteObjects.
//!
//! The removal of the last object of a directory also removes the directory, and those above it that have become
//! empty, up to that of the bucket: clients of S3 know no directories, and would see an empty one as an object.

use super::address::ObjectKey;
use super::buckets::RequestBucket;
use super::error::S3Error;
use super::object;
use super::payload::ObjectBody;
use super::{UserRequest, target, xml};
use crate::reply::{self, RequestReply};
use crate::{S3_BODY_BYTES_MAX, conditions};
use auth::VerifiedRequest;
use base::LogicalPath;
use hyper::StatusCode;
use hyper::body::Incoming;
use vfs::{FileKind, Operation};

/// Maximum number of keys of one request.
const KEYS_MAX: usize = 1000;

/// Replies to DeleteObject. It is no error if there is none.
pub(super) async fn one(
    request: &UserRequest,
    bucket: &RequestBucket,
    key: &ObjectKey,
) -> Result<RequestReply, S3Error> {
    conditions::no_condition(request.headers())?;
    bucket.check_exists(request).await?;
    remove(request, bucket, key).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Removes an object, if there is one.
async fn remove(request: &UserRequest, bucket: &RequestBucket, key: &ObjectKey) -> Result<(), S3Error> {
    let path = key.path(&bucket.path)?;
    let stat = match object::stat(request, &path).await.map_err(S3Error::of_read) {
        Err(error) if error.is_absent() => return Ok(()),
        stat => stat?,
    };
    // A file that is being written is no object yet, and pipes, sockets and devices are none.
    let kind = if key.is_directory() { FileKind::Directory } else { FileKind::File };
    if stat.kind != kind || stat.posc_pending {
        return Ok(());
    }
    let removed = match stat.kind {
        FileKind::Directory => {
            // A directory that is not empty is no object.
            match remove_directory(request, &path).await {
                Err(error) if is_not_empty(&error) => return Ok(()),
                removed => removed,
            }
        }
        FileKind::File | FileKind::Other => {
            request.context.run(|| Operation::Remove(target(&path))).await.map(drop).map_err(S3Error::from)
        }
    };
    match removed {
        Err(error) if error.is_absent() => {}
        removed => removed?,
    }
    prune(request, bucket, &path).await;
    Ok(())
}

fn is_not_empty(error: &S3Error) -> bool {
    error.status == StatusCode::CONFLICT
}

pub(super) async fn remove_directory(request: &UserRequest, path: &LogicalPath) -> Result<(), S3Error> {
    Ok(request.context.run(|| Operation::RemoveDirectory(target(path))).await.map(drop)?)
}

/// Removes the directories above a path that have become empty.
pub(super) async fn prune(request: &UserRequest, bucket: &RequestBucket, path: &LogicalPath) {
    let is_bucket = |path: &LogicalPath| {
        *path == bucket.path
            || request.service.buckets.iter().any(|known| known.path.without_slash() == *path)
    };
    let mut above = path.parent();
    while let Some(directory) = above.filter(|above| above.is_within(&bucket.path) && !is_bucket(above)) {
        // It is not empty, or the user may not remove it.
        if remove_directory(request, &directory).await.is_err() {
            return;
        }
        above = directory.parent();
    }
}

/// The keys that a request removes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Deletion {
    /// The keys.
    pub keys: Vec<String>,
    /// The reply has errors only.
    pub is_quiet: bool,
}

/// Parses the document of DeleteObjects. Returns `None` if it is malformed, or has no or too many keys.
#[must_use]
pub fn parse_deletion(document: &[u8]) -> Option<Deletion> {
    let mut deletion = Deletion::default();
    let mut key = None;
    xml::read(document, |leaf| {
        let path: Vec<&str> = leaf.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["Delete", "Object", "Key"] if key.is_none() => key = Some(leaf.text.to_owned()),
            ["Delete", "Object", "VersionId"] if leaf.text.trim() != "null" => return None,
            ["Delete", "Object"] => {
                deletion.keys.push(key.take()?);
                if deletion.keys.len() > KEYS_MAX {
                    return None;
                }
            }
            ["Delete", "Quiet"] => deletion.is_quiet = leaf.text.trim() == "true",
            // Conditions of single keys would have to hold.
            ["Delete", "Object", "VersionId"] | ["Delete"] => {}
            _ => return None,
        }
        Some(())
    })?;
    (!deletion.keys.is_empty()).then_some(deletion)
}

/// Replies to DeleteObjects.
pub(super) async fn several(
    request: &UserRequest,
    bucket: &RequestBucket,
    verified: VerifiedRequest,
    body: &mut Incoming,
) -> Result<RequestReply, S3Error> {
    let payload = ObjectBody::of(request.head(), verified, body)?;
    let document = payload.collect(S3_BODY_BYTES_MAX).await?;
    let deletion = parse_deletion(&document).ok_or_else(S3Error::xml)?;
    drop(document);
    bucket.check_exists(request).await?;
    let mut text = format!("{}<DeleteResult{}>", xml::HEAD, xml::NAME_SPACE);
    for name in &deletion.keys {
        let removed = match ObjectKey::parse(name) {
            Ok(key) => remove(request, bucket, &key).await,
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) if deletion.is_quiet => {}
            Ok(()) => {
                text.push_str("<Deleted>");
                xml::element(&mut text, "Key", name);
                text.push_str("</Deleted>");
            }
            Err(error) => {
                text.push_str("<Error>");
                xml::element(&mut text, "Key", name);
                xml::element(&mut text, "Code", error.code);
                xml::element(&mut text, "Message", &error.text);
                text.push_str("</Error>");
            }
        }
    }
    text.push_str("</DeleteResult>\n");
    Ok(xml::reply(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_deletion_are_bounded() {
        let object = |key: &str| format!("<Object><Key>{key}</Key></Object>");
        let document = |objects: &str| format!("<Delete xmlns=\"u\">{objects}</Delete>");
        let parsed = parse_deletion(
            document(&format!("{}{}<Quiet>true</Quiet>", object("a&amp;b"), object("c "))).as_bytes(),
        );
        assert_eq!(parsed, Some(Deletion { keys: vec!["a&b".to_owned(), "c ".to_owned()], is_quiet: true }));
        assert!(parse_deletion(document(&object("k").repeat(KEYS_MAX)).as_bytes()).is_some());
        for malformed in [
            document(&object("k").repeat(KEYS_MAX + 1)),
            document(""),
            document("<Object></Object>"),
            document("<Object><Key>a</Key><Key>b</Key></Object>"),
            document("<Object><Key>a</Key><VersionId>7</VersionId></Object>"),
            document("<Object><Key>a</Key><ETag>x</ETag></Object>"),
            document("<Object><Key><b>a</b></Key></Object>"),
            "<Remove><Object><Key>a</Key></Object></Remove>".to_owned(),
            String::new(),
        ] {
            assert_eq!(parse_deletion(malformed.as_bytes()), None, "{malformed}");
        }
    }
}
