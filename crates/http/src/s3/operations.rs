//! The operations, with all that requests for them may have.
//!
//! A parameter or header that is not known for its operation could change what the request means, so it is refused:
//! an object must not be replaced or removed by a request that asks for something else.

use super::COPY_SOURCE;
use super::address::RequestAddress;
use super::error::S3Error;
use hyper::Method;
use hyper::header::{CONTENT_RANGE, HeaderMap};

/// Parameters of each request: those of presigned URLs, and one by which SDKs name the operation.
const SIGNING_PARAMETERS: [&str; 9] = [
    "X-Amz-Algorithm",
    "X-Amz-Content-Sha256",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
    "x-id",
];

/// Headers of each request.
const COMMON_HEADERS: [&str; 6] = [
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-user-agent",
];

/// Headers with properties that are not stored.
const PROPERTIES: [&str; 5] =
    ["x-amz-acl", "x-amz-grant-*", "x-amz-meta-*", "x-amz-storage-class", "x-amz-tagging"];

/// Headers about a body.
const BODY: [&str; 8] = [
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-decoded-content-length",
    "x-amz-trailer",
];

/// Headers about the source of a copy.
const SOURCE: [&str; 5] = [
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
];

/// Parameters of a read, which set headers of the reply.
const READ: [&str; 8] = [
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "versionId",
];

/// Parameters of lists that are not supported, and have no effect without a value.
const WITHOUT_VALUE: [&str; 3] = ["delimiter", "key-marker", "upload-id-marker"];

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum S3Operation {
    ListBuckets,
    HeadBucket,
    BucketLocation,
    BucketVersioning,
    ListUploads,
    ListObjects,
    CreateBucket,
    DeleteObjects,
    GetObject,
    HeadObject,
    PutObject,
    CopyObject,
    DeleteObject,
    CreateUpload,
    UploadPart,
    UploadPartCopy,
    ListParts,
    CompleteUpload,
    AbortUpload,
}

impl S3Operation {
    /// Returns the operation of a request, if all that the request has is known for it.
    pub(super) fn of(
        address: &RequestAddress,
        method: &Method,
        query: &[(String, String)],
        headers: &HeaderMap,
    ) -> Result<Self, S3Error> {
        let has = |name: &str| query.iter().any(|(known, _)| known == name);
        let found = match address {
            RequestAddress::Service => (*method == Method::GET).then_some(Self::ListBuckets),
            RequestAddress::Bucket(_) => Self::of_bucket(method, has)?,
            RequestAddress::Object(..) => Self::of_object(method, has, headers.contains_key(COPY_SOURCE)),
        };
        let Some(operation) = found else {
            let is_known = matches!(method.as_str(), "GET" | "HEAD" | "PUT" | "POST" | "DELETE");
            // A method with a subresource that is not known here may be allowed elsewhere.
            let subresource = query.iter().find(|(name, _)| !SIGNING_PARAMETERS.contains(&name.as_str()));
            return Err(match subresource.filter(|_| is_known) {
                Some((name, _)) => unknown_parameter(name),
                None => S3Error::method(),
            });
        };
        operation.check(query, headers)?;
        Ok(operation)
    }

    fn of_bucket(method: &Method, has: impl Fn(&str) -> bool) -> Result<Option<Self>, S3Error> {
        Ok(Some(match method.as_str() {
            "HEAD" => Self::HeadBucket,
            "GET" if has("location") => Self::BucketLocation,
            "GET" if has("versioning") => Self::BucketVersioning,
            "GET" if has("uploads") => Self::ListUploads,
            "GET" => Self::ListObjects,
            "PUT" => Self::CreateBucket,
            "POST" if has("delete") => Self::DeleteObjects,
            "POST" => return Err(S3Error::unsupported("Uploads by forms are not supported.")),
            "DELETE" => {
                let text = "Buckets are directories that the administrator removes.";
                return Err(S3Error::unsupported(text));
            }
            _ => return Ok(None),
        }))
    }

    fn of_object(method: &Method, has: impl Fn(&str) -> bool, is_copy: bool) -> Option<Self> {
        Some(match (method.as_str(), has("uploadId"), is_copy) {
            ("GET", true, _) => Self::ListParts,
            ("GET", false, _) => Self::GetObject,
            ("HEAD", false, _) => Self::HeadObject,
            ("PUT", true, true) => Self::UploadPartCopy,
            ("PUT", true, false) => Self::UploadPart,
            ("PUT", false, true) => Self::CopyObject,
            ("PUT", false, false) => Self::PutObject,
            ("POST", false, _) if has("uploads") => Self::CreateUpload,
            ("POST", true, _) => Self::CompleteUpload,
            ("DELETE", false, _) => Self::DeleteObject,
            ("DELETE", true, _) => Self::AbortUpload,
            _ => return None,
        })
    }

    /// Returns the parameters that a request for this operation may have.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::ListBuckets => &["max-buckets"],
            Self::HeadBucket | Self::CreateBucket | Self::PutObject | Self::CopyObject => &[],
            Self::BucketLocation => &["location"],
            Self::BucketVersioning => &["versioning"],
            Self::ListUploads => &["encoding-type", "max-uploads", "prefix", "uploads"],
            Self::ListObjects => &[
                "continuation-token",
                "delimiter",
                "encoding-type",
                "fetch-owner",
                "list-type",
                "marker",
                "max-keys",
                "prefix",
                "start-after",
            ],
            Self::DeleteObjects => &["delete"],
            Self::GetObject | Self::HeadObject => &READ,
            Self::DeleteObject => &["versionId"],
            Self::CreateUpload => &["uploads"],
            Self::UploadPart | Self::UploadPartCopy => &["partNumber", "uploadId"],
            Self::ListParts => &["encoding-type", "max-parts", "part-number-marker", "uploadId"],
            Self::CompleteUpload | Self::AbortUpload => &["uploadId"],
        }
    }

    /// Returns the headers that it may have. A star stands for any end.
    fn headers(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::GetObject | Self::HeadObject => &[&["x-amz-checksum-mode"]],
            Self::ListObjects => &[&["x-amz-optional-object-attributes"]],
            Self::CreateBucket => &[&["x-amz-acl", "x-amz-grant-*"]],
            Self::DeleteObjects | Self::UploadPart => &[&BODY],
            Self::PutObject => &[&BODY, &PROPERTIES],
            Self::CopyObject => &[
                &SOURCE,
                &PROPERTIES,
                &["x-amz-checksum-algorithm", "x-amz-metadata-directive", "x-amz-tagging-directive"],
            ],
            Self::UploadPartCopy => &[&SOURCE, &["x-amz-copy-source-range"]],
            Self::CreateUpload => &[&PROPERTIES, &["x-amz-checksum-algorithm", "x-amz-checksum-type"]],
            // Its checksums are those of the object.
            Self::CompleteUpload => &[&BODY, &["x-amz-checksum-type", "x-amz-mp-object-size"]],
            Self::ListBuckets
            | Self::HeadBucket
            | Self::BucketLocation
            | Self::BucketVersioning
            | Self::ListUploads
            | Self::DeleteObject
            | Self::ListParts
            | Self::AbortUpload => &[],
        }
    }

    fn allows_header(self, name: &str) -> bool {
        let matches = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => *pattern == name,
        };
        COMMON_HEADERS.contains(&name) || self.headers().iter().any(|list| list.iter().any(matches))
    }

    fn allows_parameter(self, name: &str, value: &str) -> bool {
        SIGNING_PARAMETERS.contains(&name)
            || self.parameters().contains(&name)
            || (value.is_empty() && self == Self::ListUploads && WITHOUT_VALUE.contains(&name))
            // A header that a presigned URL has as a parameter counts only if it has no effect.
            || (self.allows_header(name)
                && (name == "x-amz-checksum-mode"
                    || COMMON_HEADERS.contains(&name)
                    || (self.allows_header("x-amz-acl") && !is_about_content(name))))
    }

    fn check(self, query: &[(String, String)], headers: &HeaderMap) -> Result<(), S3Error> {
        let mut parameters = query.iter();
        if let Some((name, _)) = parameters.find(|(name, value)| !self.allows_parameter(name, value)) {
            return Err(unknown_parameter(name));
        }
        let mut names = headers.keys().map(|name| name.as_str());
        let unknown = names.find(|name| name.starts_with("x-amz-") && !self.allows_header(name));
        // A part of an object must not replace the whole one.
        let part = headers.contains_key(CONTENT_RANGE).then_some("content-range");
        match unknown.or(part) {
            Some(name) => Err(S3Error::unsupported(&format!("The header {name} is not supported here."))),
            None => Ok(()),
        }
    }
}

/// Reports whether a header is about the body or the source, and is read only as a header.
fn is_about_content(name: &str) -> bool {
    BODY.contains(&name) || SOURCE.contains(&name) || name.ends_with("-directive")
}

fn unknown_parameter(name: &str) -> S3Error {
    S3Error::unsupported(&format!("The parameter '{name}' is not supported for this operation."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::address::ObjectKey;
    use hyper::header::{HeaderName, HeaderValue};

    /// Returns the operation of a request for an object, or the status of the error.
    fn of(method: &str, query: &str, headers: &[&'static str]) -> Result<S3Operation, u16> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs: Vec<_> = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
        let query: Vec<_> = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let pairs = headers.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")));
        let key = ObjectKey::parse("k").unwrap_or_else(|_| unreachable!());
        let address = RequestAddress::Object("b".to_owned(), key);
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        S3Operation::of(&address, &method, &query, &pairs.collect()).map_err(|error| error.status.as_u16())
    }

    #[test]
    fn requests_have_the_operation_that_they_ask_for() {
        for (method, query, headers, expected) in [
            (
                "GET",
                "x-id=GetObject&response-expires=1",
                &["x-amz-checksum-mode"][..],
                S3Operation::GetObject,
            ),
            ("GET", "x-amz-checksum-mode=ENABLED&X-Amz-Date=1", &[], S3Operation::GetObject),
            ("GET", "uploadId=1&max-parts=2", &[], S3Operation::ListParts),
            ("PUT", "", &["x-amz-meta-a", "x-amz-checksum-crc32"], S3Operation::PutObject),
            ("PUT", "x-amz-acl=private&x-amz-meta-a=b", &[], S3Operation::PutObject),
            ("PUT", "", &["x-amz-copy-source", "x-amz-metadata-directive"], S3Operation::CopyObject),
            ("PUT", "uploadId=1&partNumber=2", &["x-amz-checksum-sha1"], S3Operation::UploadPart),
            ("PUT", "uploadId=1&partNumber=2", &["x-amz-copy-source"], S3Operation::UploadPartCopy),
            ("POST", "uploads", &["x-amz-storage-class"], S3Operation::CreateUpload),
            ("POST", "uploadId=1", &["x-amz-mp-object-size"], S3Operation::CompleteUpload),
            ("DELETE", "versionId=null", &[], S3Operation::DeleteObject),
            ("DELETE", "uploadId=1", &[], S3Operation::AbortUpload),
        ] {
            assert_eq!(of(method, query, headers), Ok(expected), "{method} {query} {headers:?}");
        }
    }

    #[test]
    fn what_could_change_the_meaning_of_a_request_is_refused() {
        for (method, query, headers, status) in [
            ("PUT", "partNumber=3", &[][..], 501),
            ("PUT", "annotation", &[], 501),
            ("PUT", "versionId=null", &[], 501),
            ("PUT", "acl", &[], 501),
            ("PUT", "", &["x-amz-write-offset-bytes"], 501),
            ("PUT", "", &["x-amz-server-side-encryption"], 501),
            ("PUT", "", &["content-range"], 501),
            // A checksum that nobody would compare, and a source that nobody would read.
            ("PUT", "x-amz-checksum-crc32=AAAAAA", &[], 501),
            ("PUT", "x-amz-copy-source=/b/k", &[], 501),
            ("PUT", "uploadId=1&partNumber=2&uploads", &[], 501),
            ("DELETE", "", &["x-amz-if-match-size"], 501),
            ("DELETE", "", &["x-amz-if-match-last-modified-time"], 501),
            ("DELETE", "tagging", &[], 501),
            ("POST", "uploadId=1", &["x-amz-write-offset-bytes"], 501),
            ("POST", "restore", &[], 501),
            ("POST", "", &[], 405),
            ("GET", "attributes", &[], 501),
            ("PATCH", "acl", &[], 405),
        ] {
            assert_eq!(of(method, query, headers), Err(status), "{method} {query} {headers:?}");
        }
    }
}
