//! Errors of S3: a status, a code that programs understand, and a text.

use super::xml;
use crate::call::CallFailure;
use crate::reply::{self, ReplyBody, RequestRefusal, RequestReply};
use base::{Error, ErrorKind};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use std::io;

/// The number of the system for a path below a file.
const ENOTDIR: i32 = 20;
/// That for a name that is too long.
const ENAMETOOLONG: i32 = 36;
/// That for a directory that is not empty.
const ENOTEMPTY: i32 = 39;

/// The reason why a request has no reply of its operation.
#[derive(Debug)]
pub(super) struct S3Error {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) text: String,
    retry: Option<u32>,
    /// The kind of an error of the file system.
    pub(super) kind: Option<ErrorKind>,
}

impl S3Error {
    pub(super) fn new(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self { status, code, text: text.into(), retry: None, kind: None }
    }

    pub(super) fn argument(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidArgument", text)
    }

    pub(super) fn request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidRequest", text)
    }

    pub(super) fn xml() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "MalformedXML",
            "The XML of the request is not that of its operation.",
        )
    }

    pub(super) fn unsupported(text: &str) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", text)
    }

    pub(super) fn method() -> Self {
        let text = "The method is not allowed for this resource.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", text)
    }

    pub(super) fn no_key() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NoSuchKey", "There is no object with this key.")
    }

    pub(super) fn no_bucket() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NoSuchBucket", "There is no bucket with this name.")
    }

    /// Reports whether there is no object, or a directory in its place.
    pub(super) fn is_absent(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// Returns the error of a read, for which a directory, or a path below a file, is no object.
    pub(super) fn of_read(self) -> Self {
        let is_other = matches!(self.kind, Some(ErrorKind::IsDirectory | ErrorKind::NotFile))
            || self.code == "NotADirectory";
        if is_other { Self::no_key() } else { self }
    }

    /// Returns the document about the error.
    pub(super) fn document(&self, resource: &str, id: &str) -> String {
        let mut text = String::from(xml::HEAD);
        text.push_str("<Error>");
        for (name, value) in
            [("Code", self.code), ("Message", &self.text), ("Resource", resource), ("RequestId", id)]
        {
            xml::element(&mut text, name, value);
        }
        text.push_str("</Error>\n");
        text
    }

    /// Returns the reply.
    pub(super) fn reply(&self, resource: &str, id: &str) -> RequestReply {
        let text = self.document(resource, id);
        let mut replied = reply::with_body(self.status, ReplyBody::Whole(Bytes::from(text)));
        reply::set(&mut replied, CONTENT_TYPE, xml::TYPE);
        reply::add_refusal_headers(&mut replied, self.retry);
        replied
    }

    fn of_error(error: Error) -> Self {
        let number = error.source.as_ref().and_then(io::Error::raw_os_error);
        let status = reply::status_of(&error);
        let (status, code) = match (error.kind, number) {
            (_, Some(ENOTDIR)) => (StatusCode::CONFLICT, "NotADirectory"),
            (ErrorKind::ArgTooLong, _) | (_, Some(ENAMETOOLONG)) => {
                (StatusCode::BAD_REQUEST, "KeyTooLongError")
            }
            (_, Some(ENOTEMPTY)) => (StatusCode::CONFLICT, "DirectoryNotEmpty"),
            (ErrorKind::NotFound, _) => (StatusCode::NOT_FOUND, "NoSuchKey"),
            (ErrorKind::NotAuthorized | ErrorKind::AuthFailed, _) => (StatusCode::FORBIDDEN, "AccessDenied"),
            (ErrorKind::NoSpace | ErrorKind::OverQuota, _) => (status, "InsufficientStorage"),
            // Another client writes it, or one that has vanished. Clients repeat a request with this code only.
            (ErrorKind::FileLocked, _) => (StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
            _ => (status, code_of(status)),
        };
        Self { status, code, text: error.text, retry: None, kind: Some(error.kind) }
    }
}

/// Returns the code of a status for which there is no more exact one.
fn code_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => "AccessDenied",
        404 => "NoSuchKey",
        408 => "RequestTimeout",
        409 => "Conflict",
        411 => "MissingContentLength",
        412 => "PreconditionFailed",
        413 => "EntityTooLarge",
        416 => "InvalidRange",
        501 => "NotImplemented",
        503 => "SlowDown",
        507 => "InsufficientStorage",
        400..=499 => "InvalidRequest",
        _ => "InternalError",
    }
}

impl From<CallFailure> for S3Error {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Error(error) => Self::of_error(error),
            CallFailure::Later(seconds) => Self {
                retry: Some(seconds),
                ..Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "SlowDown",
                    "The server is busy; try again later.",
                )
            },
            // A signature covers the host, so a client cannot follow.
            CallFailure::Redirect(_) => Self::unsupported(
                "Another server has the object; S3 is not redirected, so address that server.",
            ),
        }
    }
}

impl From<Error> for S3Error {
    fn from(error: Error) -> Self {
        Self::of_error(error)
    }
}

impl From<RequestRefusal> for S3Error {
    fn from(refusal: RequestRefusal) -> Self {
        match refusal {
            RequestRefusal::Call(failure) => failure.into(),
            // Clients repeat a request whose body was late.
            RequestRefusal::Status(StatusCode::REQUEST_TIMEOUT, text) => {
                Self::new(StatusCode::BAD_REQUEST, "RequestTimeout", text)
            }
            RequestRefusal::Status(status, text) => Self::new(status, code_of(status), text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_codes_that_programs_know() {
        let of = |error: Error| {
            let error = S3Error::from(error);
            (error.status.as_u16(), error.code)
        };
        let system = |number| Error {
            source: Some(io::Error::from_raw_os_error(number)),
            ..Error::new(ErrorKind::FsError, "x")
        };
        assert_eq!(of(Error::new(ErrorKind::NotFound, "x")), (404, "NoSuchKey"));
        assert_eq!(of(Error::new(ErrorKind::NotAuthorized, "x")), (403, "AccessDenied"));
        assert_eq!(of(Error::new(ErrorKind::NoSpace, "x")), (507, "InsufficientStorage"));
        assert_eq!(of(Error::new(ErrorKind::FileLocked, "x")), (503, "SlowDown"));
        assert_eq!(of(system(ENAMETOOLONG)), (400, "KeyTooLongError"));
        assert_eq!(of(system(ENOTDIR)), (409, "NotADirectory"));
        assert_eq!(of(system(5)), (500, "InternalError"));
        let read = |error: Error| S3Error::from(error).of_read().status.as_u16();
        assert_eq!(read(system(ENOTDIR)), 404);
        assert_eq!(read(Error::new(ErrorKind::IsDirectory, "x")), 404);
        assert_eq!(read(Error::new(ErrorKind::NotAuthorized, "x")), 403);
        let later = S3Error::from(CallFailure::Later(7)).reply("/b/<k>", "1");
        assert_eq!((later.status().as_u16(), later.headers()["retry-after"].to_str().unwrap()), (503, "7"));
    }
}
