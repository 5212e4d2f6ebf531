//! S3: objects are files of the same name space, with the same rights.
//!
//! A request belongs to S3 if it is signed for it (AWS Signature Version 4), or if the host that it names is that of
//! a bucket of the configuration. Its user is that of the key. A bucket is a directory, and the key of an object is the path below
//! it. Each operation becomes those of `vfs`, so the same authorization decides as for the other protocols.
//!
//! | file | content |
//! |---|---|
//! | `address` | bucket and key of a request, and the path of an object |
//! | `buckets` | the buckets, and operations on them |
//! | `checksums` | checksums that clients send with an object |
//! | `chunks` | bodies in signed chunks (`aws-chunked`) |
//! | `completion` | the completion of uploads in parts |
//! | `delete` | DeleteObject and DeleteObjects |
//! | `error` | errors with their codes |
//! | `slow_reply` | replies to operations that may take long |
//! | `list` | ListObjects and ListObjectsV2 |
//! | `multipart` | uploads in parts |
//! | `object` | GetObject, HeadObject, PutObject, CopyObject |
//! | `operations` | the operations, and what requests for them may have |
//! | `payload` | the body of an object, whose signature and checksums are verified |
//! | `uploads` | who uses an upload in parts, and when it is removed |
//! | `walk` | the keys of a bucket in their order, in bounded memory |
//! | `xml` | XML of replies and of requests |

mod address;
mod buckets;
mod checksums;
mod chunks;
mod completion;
mod delete;
mod error;
mod list;
mod multipart;
mod object;
mod operations;
mod payload;
mod slow_reply;
mod uploads;
mod walk;
mod xml;

pub use buckets::S3Bucket;
pub use chunks::ChunkDecoder as S3ChunkDecoder;
pub use completion::parse_completion as parse_s3_completion;
pub use delete::parse_deletion as parse_s3_deletion;
pub(crate) use uploads::UploadRegistry;

use crate::call::CallFailure;
use crate::copy::{HttpCopySlot, HttpCopySlots, until_disconnected};
use crate::memory;
use crate::reply::{self, RequestReply};
use crate::served_connection::ServedConnection;
use crate::service::RequestContext;
use crate::target::NewName;
use crate::{COPY_RETRY_SECONDS, MEMORY_RETRY_SECONDS, S3_REQUEST_BYTES, S3_WAIT_MAX};
use address::{ObjectKey, RequestAddress};
use auth::{ReceivedRequest, S3SignatureFault, S3Users, VerifiedRequest};
use base::{Cgi, LogicalPath};
use buckets::RequestBucket;
use error::S3Error;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use operations::S3Operation;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use vfs::Target;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

/// Parameters of the query that show that a request belongs to S3.
const SIGNED_QUERY: [&str; 3] = ["X-Amz-Algorithm", "X-Amz-Signature", "AWSAccessKeyId"];

/// S3 of a server.
#[derive(Clone, Debug)]
pub struct S3Service {
    /// The keys of the users.
    pub users: Arc<S3Users>,
    /// The buckets by their names.
    pub buckets: Vec<S3Bucket>,
    /// Each directory of the root is a bucket, too.
    pub has_root: bool,
    /// Names of the server behind the bucket in the host of a request: `BUCKET.NAME`.
    pub domains: Vec<String>,
}

/// A request whose user is known.
struct UserRequest {
    service: Arc<S3Service>,
    context: RequestContext,
    query: Vec<(String, String)>,
}

impl UserRequest {
    /// Returns the value of a parameter of the query; empty if it has none.
    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.parameter(name).is_some()
    }

    fn head(&self) -> &Parts {
        &self.context.head
    }

    fn headers(&self) -> &HeaderMap {
        self.context.headers()
    }

    /// Waits for a place among the operations of one kind that take long.
    async fn place(&self, slots: &HttpCopySlots) -> Result<HttpCopySlot, S3Error> {
        let user = self.context.caller.entity().and_then(|entity| entity.name.as_deref());
        let slot = tokio::select! {
            slot = slots.take(self.context.connection.address(), user, S3_WAIT_MAX) => slot,
            () = until_disconnected(&self.context.caller) => None,
        };
        slot.ok_or_else(|| CallFailure::Later(COPY_RETRY_SECONDS).into())
    }

    /// Ends an operation whose client has left.
    fn check_client(&self) -> Result<(), S3Error> {
        match self.context.caller.is_disconnected() {
            true => Err(S3Error::new(StatusCode::BAD_REQUEST, "RequestTimeout", "The client has left.")),
            false => Ok(()),
        }
    }

    fn header(&self, name: HeaderName) -> Option<String> {
        crate::conditions::text(self.headers(), name)
    }
}

/// Returns the target of operations on a path.
fn target(path: &LogicalPath) -> Target {
    Target { path: path.clone(), cgi: Cgi::new(b"") }
}

/// Returns the target of an operation that creates a path.
fn new_target(path: &LogicalPath) -> Result<Target, S3Error> {
    Ok(NewName::of(target(path))?.target().clone())
}

/// Reports whether a request belongs to S3.
pub(crate) fn is_for(service: &S3Service, head: &Parts) -> bool {
    let authorization = head.headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let query = head.uri.query().unwrap_or_default();
    authorization.is_some_and(|value| value.starts_with(b"AWS4-") || value.starts_with(b"AWS "))
        || [CONTENT_SHA256, AMZ_DATE].iter().any(|name| head.headers.contains_key(name))
        || query
            .split('&')
            .any(|element| SIGNED_QUERY.contains(&element.split('=').next().unwrap_or_default()))
        || address::names_known_bucket(service, &head.headers)
}

/// Replies to a request of S3.
pub(crate) async fn reply(
    connection: &Arc<ServedConnection>,
    service: &Arc<S3Service>,
    head: Parts,
    body: &mut Incoming,
) -> RequestReply {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let id = format!("{:016X}", NUMBERS.fetch_add(1, Ordering::Relaxed));
    let path = head.uri.path().to_owned();
    let mut replied = match perform(connection, service, head, body).await {
        Ok(replied) => replied,
        Err(error) => error.reply(&path, &id),
    };
    reply::set(&mut replied, REQUEST_ID, &id);
    replied
}

async fn perform(
    connection: &Arc<ServedConnection>,
    service: &Arc<S3Service>,
    head: Parts,
    body: &mut Incoming,
) -> Result<RequestReply, S3Error> {
    let verified = verify(service, &head)?;
    let address = RequestAddress::of(service, &head)?;
    let query = address::parse_query(head.uri.query().unwrap_or_default())?;
    if !connection.admit(&head, memory_of(&address, &head, &query)) {
        return Err(CallFailure::Later(MEMORY_RETRY_SECONDS).into());
    }
    let operation = S3Operation::of(&address, &head.method, &query, &head.headers)?;
    let caller = connection.caller_of_user(&verified.user(), &head.headers).await?;
    let context = RequestContext::at(connection.clone(), caller, target(&LogicalPath::root()), head);
    let request = UserRequest { service: service.clone(), context, query };
    match address {
        RequestAddress::Service => buckets::list(&request).await,
        RequestAddress::Bucket(name) => {
            let bucket = buckets::find(service, &name)?;
            on_bucket(operation, &request, bucket, verified, body).await
        }
        RequestAddress::Object(name, key) => {
            let bucket = buckets::find(service, &name)?;
            on_object(operation, request, (bucket, key), verified, body).await
        }
    }
}

/// Returns the memory that a request can hold.
fn memory_of(address: &RequestAddress, head: &Parts, query: &[(String, String)]) -> usize {
    let is_of_content = matches!(address, RequestAddress::Object(..)) && head.method != Method::POST;
    let lists_parts = head.method == Method::GET && query.iter().any(|(name, _)| name == "uploadId");
    match is_of_content && !lists_parts {
        true => memory::bytes_of(&head.method),
        false => S3_REQUEST_BYTES,
    }
}

async fn on_bucket(
    operation: S3Operation,
    request: &UserRequest,
    bucket: RequestBucket,
    verified: VerifiedRequest,
    body: &mut Incoming,
) -> Result<RequestReply, S3Error> {
    match operation {
        S3Operation::HeadBucket => buckets::head(request, &bucket).await,
        S3Operation::BucketLocation => buckets::location(request, &bucket).await,
        S3Operation::BucketVersioning => buckets::versioning(request, &bucket).await,
        S3Operation::ListUploads => multipart::list_uploads(request, &bucket).await,
        S3Operation::ListObjects => list::reply(request, &bucket).await,
        S3Operation::CreateBucket => buckets::create(request, &bucket).await,
        S3Operation::DeleteObjects => delete::several(request, &bucket, verified, body).await,
        _ => Err(S3Error::method()),
    }
}

async fn on_object(
    operation: S3Operation,
    request: UserRequest,
    (bucket, key): (RequestBucket, ObjectKey),
    verified: VerifiedRequest,
    body: &mut Incoming,
) -> Result<RequestReply, S3Error> {
    if request.parameter("versionId").is_some_and(|version| version != "null") {
        return Err(S3Error::new(
            StatusCode::NOT_FOUND,
            "NoSuchVersion",
            "There are no versions of objects.",
        ));
    }
    let upload = request.parameter("uploadId").unwrap_or_default().to_owned();
    match operation {
        S3Operation::GetObject | S3Operation::HeadObject if request.has("partNumber") => {
            Err(S3Error::unsupported("Parts of a complete object are not kept."))
        }
        S3Operation::GetObject => object::get(&request, &bucket, &key).await,
        S3Operation::HeadObject => object::head(&request, &bucket, &key).await,
        S3Operation::PutObject => object::put(&request, &bucket, &key, verified, body).await,
        S3Operation::CopyObject => object::copy(request, bucket, key).await,
        S3Operation::DeleteObject => delete::one(&request, &bucket, &key).await,
        S3Operation::CreateUpload => multipart::create(&request, &bucket, &key).await,
        S3Operation::UploadPart => {
            multipart::put_part(&request, (&bucket, &key, &upload), verified, body).await
        }
        S3Operation::UploadPartCopy => multipart::copy_part(request, bucket, key, upload).await,
        S3Operation::ListParts => multipart::list_parts(&request, &bucket, &key, &upload).await,
        S3Operation::CompleteUpload => {
            completion::complete(request, bucket, key, (upload, verified), body).await
        }
        S3Operation::AbortUpload => multipart::abort(&request, &bucket, &key, &upload).await,
        _ => Err(S3Error::method()),
    }
}

/// Verifies the signature of a request.
fn verify(service: &S3Service, head: &Parts) -> Result<VerifiedRequest, S3Error> {
    let headers: Vec<(&str, &[u8])> =
        head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let received = ReceivedRequest {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        headers: &headers,
    };
    received.verify(&service.users, SystemTime::now()).map_err(|fault| match fault {
        S3SignatureFault::MalformedHeader(text) => {
            S3Error::new(StatusCode::BAD_REQUEST, "AuthorizationHeaderMalformed", text)
        }
        S3SignatureFault::MalformedQuery(text) => {
            S3Error::new(StatusCode::BAD_REQUEST, "AuthorizationQueryParametersError", text)
        }
        S3SignatureFault::Unsupported(text) => S3Error::new(StatusCode::BAD_REQUEST, "InvalidRequest", text),
        S3SignatureFault::Denied(text) => S3Error::new(StatusCode::FORBIDDEN, "AccessDenied", text),
        S3SignatureFault::UnknownKey => {
            S3Error::new(StatusCode::FORBIDDEN, "InvalidAccessKeyId", "No user has this access key id.")
        }
        S3SignatureFault::Mismatch => S3Error::new(
            StatusCode::FORBIDDEN,
            "SignatureDoesNotMatch",
            "The signature is not that of this request; check the secret key, and proxies that change requests.",
        ),
        S3SignatureFault::Skewed => S3Error::new(
            StatusCode::FORBIDDEN,
            "RequestTimeTooSkewed",
            "The time of the request differs from that of the server by more than 15 minutes.",
        ),
        S3SignatureFault::Token => {
            S3Error::new(StatusCode::BAD_REQUEST, "InvalidToken", "This server issues no temporary keys.")
        }
    })
}
