//! The buckets, which are directories, and operations on them.

use super::address::is_bucket;
use super::error::S3Error;
use super::{S3Service, UserRequest, target, xml};
use crate::call::CallFailure;
use crate::reply::{self, RequestReply};
use base::{ErrorKind, LogicalPath};
use hyper::StatusCode;
use vfs::{FileKind, FileStat, ListDetail, Operation, Value};

/// Maximum number of buckets of one reply. More directories of the root are not shown.
const BUCKETS_MAX: usize = 1000;

/// A bucket with a name of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct S3Bucket {
    /// The name.
    pub name: String,
    /// Its directory.
    pub path: LogicalPath,
}

/// The bucket of a request.
#[derive(Clone, Debug)]
pub(super) struct RequestBucket {
    pub(super) name: String,
    /// The directory, without a slash at its end.
    pub(super) path: LogicalPath,
    /// The directory exists by the configuration. Another one may be missing.
    is_configured: bool,
}

/// Returns the bucket with a name.
pub(super) fn find(service: &S3Service, name: &str) -> Result<RequestBucket, S3Error> {
    if let Some(found) = service.buckets.iter().find(|bucket| bucket.name == name) {
        let path = found.path.without_slash();
        return Ok(RequestBucket { name: name.to_owned(), path, is_configured: true });
    }
    let path = LogicalPath::root().join(name.as_bytes()).ok().filter(|_| service.has_root);
    let path = path.ok_or_else(S3Error::no_bucket)?;
    Ok(RequestBucket { name: name.to_owned(), path, is_configured: false })
}

impl RequestBucket {
    /// Checks that the bucket exists, so that an object does not create it. Users who may not see it may have rights
    /// below it; they can only create it if they may make this directory.
    pub(super) async fn check_exists(&self, request: &UserRequest) -> Result<(), S3Error> {
        if self.is_configured {
            return Ok(());
        }
        match self.stat(request).await {
            Err(error) if error.kind == Some(ErrorKind::NotAuthorized) => Ok(()),
            found => found.map(drop),
        }
    }

    /// Returns the error of an operation on an object: without the bucket, it is another one.
    pub(super) async fn explain(&self, request: &UserRequest, error: S3Error) -> S3Error {
        if !error.is_absent() || self.is_configured {
            return error;
        }
        match self.stat(request).await {
            Err(missing) if missing.code == "NoSuchBucket" => missing,
            _ => error,
        }
    }

    async fn stat(&self, request: &UserRequest) -> Result<FileStat, S3Error> {
        match request.context.run(|| Operation::Stat(target(&self.path))).await.map_err(S3Error::from) {
            Ok(Value::Stat(stat)) if stat.kind == FileKind::Directory => Ok(stat),
            Ok(_) => Err(S3Error::no_bucket()),
            Err(error) if error.is_absent() => Err(S3Error::no_bucket()),
            Err(error) => Err(error),
        }
    }
}

/// Replies to ListBuckets: those whose status the user may see.
pub(super) async fn list(request: &UserRequest) -> Result<RequestReply, S3Error> {
    let mut found = Vec::new();
    for bucket in &request.service.buckets {
        match find(&request.service, &bucket.name)?.stat(request).await {
            Ok(stat) => found.push((bucket.name.clone(), stat.modified)),
            Err(error) if error.status.is_client_error() => {}
            Err(error) => return Err(error),
        }
    }
    if request.service.has_root {
        add_directories(request, &mut found).await?;
    }
    found.sort_unstable();
    found.dedup_by(|a, b| a.0 == b.0);
    let user = request.context.caller.entity().and_then(|entity| entity.name.clone()).unwrap_or_default();
    let mut text = format!("{}<ListAllMyBucketsResult{}><Owner>", xml::HEAD, xml::NAME_SPACE);
    xml::element(&mut text, "ID", &user);
    xml::element(&mut text, "DisplayName", &user);
    text.push_str("</Owner><Buckets>");
    for (name, modified) in found {
        text.push_str("<Bucket>");
        xml::element(&mut text, "Name", &name);
        xml::element(&mut text, "CreationDate", &xml::time(modified));
        text.push_str("</Bucket>");
    }
    text.push_str("</Buckets></ListAllMyBucketsResult>\n");
    Ok(xml::reply(text))
}

/// Adds the directories of the root, if the user may list it.
async fn add_directories(request: &UserRequest, found: &mut Vec<(String, i64)>) -> Result<(), S3Error> {
    let detail = ListDetail { stat: true, ..ListDetail::default() };
    let root = LogicalPath::root();
    let first = request.context.run(|| Operation::List(target(&root), detail)).await.map_err(S3Error::from);
    let mut page = match first {
        Err(error) if error.kind == Some(ErrorKind::NotAuthorized) => return Ok(()),
        page => page?,
    };
    loop {
        let Value::Listing { entries, rest } = page else {
            return Err(CallFailure::new(ErrorKind::ServerError, "there is no listing").into());
        };
        for entry in entries.iter() {
            let Some(stat) = entry.stat.as_ref().filter(|stat| stat.kind == FileKind::Directory) else {
                continue;
            };
            let name = std::str::from_utf8(&entry.name).ok().filter(|name| is_bucket(name));
            if let Some(name) = name.filter(|_| found.len() < BUCKETS_MAX) {
                found.push((name.to_owned(), stat.modified));
            }
        }
        let Some(rest) = rest else { return Ok(()) };
        let context = &request.context;
        page = context.connection.calls.once(&context.caller, Operation::ListMore(rest)).await?;
    }
}

/// Replies to HeadBucket.
pub(super) async fn head(request: &UserRequest, bucket: &RequestBucket) -> Result<RequestReply, S3Error> {
    bucket.stat(request).await?;
    Ok(reply::empty(StatusCode::OK))
}

/// Replies to GetBucketLocation. Each region is accepted; the name for the first one is empty.
pub(super) async fn location(request: &UserRequest, bucket: &RequestBucket) -> Result<RequestReply, S3Error> {
    bucket.stat(request).await?;
    Ok(xml::reply(format!("{}<LocationConstraint{}></LocationConstraint>\n", xml::HEAD, xml::NAME_SPACE)))
}

/// Replies to GetBucketVersioning: versioning was never turned on.
pub(super) async fn versioning(
    request: &UserRequest,
    bucket: &RequestBucket,
) -> Result<RequestReply, S3Error> {
    bucket.stat(request).await?;
    Ok(xml::reply(format!("{}<VersioningConfiguration{}/>\n", xml::HEAD, xml::NAME_SPACE)))
}

/// Replies to CreateBucket. Programs create the bucket of an upload without knowing whether it exists.
pub(super) async fn create(request: &UserRequest, bucket: &RequestBucket) -> Result<RequestReply, S3Error> {
    match bucket.stat(request).await {
        Ok(_) => Err(S3Error::new(StatusCode::CONFLICT, "BucketAlreadyOwnedByYou", "The bucket exists.")),
        Err(error) if error.code == "NoSuchBucket" => {
            Err(S3Error::unsupported("Buckets are directories that the administrator creates."))
        }
        Err(error) => Err(error),
    }
}
