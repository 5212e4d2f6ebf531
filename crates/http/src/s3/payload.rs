//! The body of a request: in plain form or in chunks, with the signature and the checksums that it must have.

use super::checksums::ObjectChecksums;
use super::chunks::{ChunkDecoder, ChunkFault};
use super::error::S3Error;
use crate::conditions;
use crate::reply::RequestRefusal;
use crate::upload::{self, BodySource, UploadBody};
use auth::VerifiedRequest;
use bytes::Bytes;
use digest::{Algorithm, RunningChecksum};
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use hyper::http::request::Parts;

const DECODED_LENGTH: &str = "x-amz-decoded-content-length";
const CHUNKED: &str = "aws-chunked";
/// Length of SHA-256 in hexadecimal.
const HASH_CHARS: usize = 64;

/// How the signature covers the body.
enum PayloadForm {
    /// It does not.
    Unsigned,
    /// By its hash.
    Hash(Box<RunningChecksum>, String),
    /// In chunks.
    Chunks(Box<ChunkDecoder>),
}

/// The body of a request.
pub(super) struct ObjectBody<'a> {
    body: UploadBody<'a>,
    form: PayloadForm,
    checksums: ObjectChecksums,
    /// Bytes of the body that are not decoded yet.
    pending: Bytes,
    /// The length of the decoded body, if it is announced.
    announced: Option<u64>,
    received: u64,
    /// The error of the chunks, which is more exact than that of the upload.
    fault: Option<ChunkFault>,
}

impl<'a> ObjectBody<'a> {
    /// Returns the body of an object.
    pub(super) fn of(
        head: &Parts,
        verified: VerifiedRequest,
        body: &'a mut Incoming,
    ) -> Result<Self, S3Error> {
        let headers = &head.headers;
        let has_length = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
        if !has_length {
            // A request that lost its body must not replace an object by an empty one.
            return Err(S3Error::new(
                StatusCode::LENGTH_REQUIRED,
                "MissingContentLength",
                "The request has no length.",
            ));
        }
        check_coding(headers)?;
        Self::new(head, verified, body, ObjectChecksums::of(headers)?)
    }

    /// Returns the body of a request that is about an object whose checksums the headers may have.
    pub(super) fn of_document(
        head: &Parts,
        verified: VerifiedRequest,
        body: &'a mut Incoming,
    ) -> Result<Self, S3Error> {
        Self::new(head, verified, body, ObjectChecksums::default())
    }

    fn new(
        head: &Parts,
        verified: VerifiedRequest,
        body: &'a mut Incoming,
        checksums: ObjectChecksums,
    ) -> Result<Self, S3Error> {
        let form = match verified.payload.as_str() {
            "UNSIGNED-PAYLOAD" => PayloadForm::Unsigned,
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => chunks(Some(verified), false),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => chunks(Some(verified), true),
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => chunks(None, true),
            hash if hash.len() == HASH_CHARS && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                let running = RunningChecksum::new(Algorithm::Sha256);
                PayloadForm::Hash(Box::new(running), hash.to_ascii_lowercase())
            }
            form if form.starts_with("STREAMING-") => {
                return Err(S3Error::unsupported("This form of signed bodies is not supported."));
            }
            _ => {
                return Err(S3Error::argument("x-amz-content-sha256 is neither a SHA-256 nor a known form."));
            }
        };
        let body = UploadBody::new(body, head);
        let announced = match &form {
            PayloadForm::Chunks(_) => Some(decoded_length(&head.headers)?),
            PayloadForm::Unsigned | PayloadForm::Hash(..) => body.announced,
        };
        Ok(Self { body, form, checksums, pending: Bytes::new(), announced, received: 0, fault: None })
    }

    /// Returns the length of the decoded body, if it is announced.
    pub(super) fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Waits until the first part or the end has arrived.
    pub(super) async fn wait(&mut self) -> Result<(), S3Error> {
        Ok(self.body.wait().await?)
    }

    /// Checks the whole body. `is_closed` tells that the server has closed the connection, so that its end is not
    /// that of the body.
    pub(super) fn finish(self, is_closed: bool) -> Result<(), S3Error> {
        let incomplete = |_| {
            S3Error::new(
                StatusCode::BAD_REQUEST,
                "IncompleteBody",
                "The body does not have the length of its head.",
            )
        };
        upload::check_end(self.announced, self.received, is_closed).map_err(incomplete)?;
        let trailers = match self.form {
            PayloadForm::Unsigned => Vec::new(),
            PayloadForm::Hash(running, expected) => {
                if running.finish().hex() == expected {
                    return self.checksums.check(&[]);
                }
                return Err(S3Error::new(
                    StatusCode::BAD_REQUEST,
                    "XAmzContentSHA256Mismatch",
                    "The body does not have the SHA-256 of x-amz-content-sha256.",
                ));
            }
            PayloadForm::Chunks(decoder) => decoder.finish().map_err(error_of)?,
        };
        self.checksums.check(&trailers)
    }

    /// Returns the error of a body that could not be received.
    pub(super) fn explain(&self, refusal: RequestRefusal) -> S3Error {
        self.fault.map_or_else(|| refusal.into(), error_of)
    }

    /// Returns the whole body, which has at most `limit` bytes.
    pub(super) async fn collect(mut self, limit: usize) -> Result<Vec<u8>, S3Error> {
        let mut collected = Vec::new();
        loop {
            match self.next().await {
                Ok(Some(data)) if collected.len() + data.len() <= limit => collected.extend_from_slice(&data),
                Ok(Some(_)) => {
                    let text = "The body of the request is too long.";
                    return Err(S3Error::new(StatusCode::BAD_REQUEST, "MaxMessageLengthExceeded", text));
                }
                Ok(None) => break,
                Err(refusal) => return Err(self.explain(refusal)),
            }
        }
        self.finish(false)?;
        Ok(collected)
    }
}

impl BodySource for ObjectBody<'_> {
    async fn next(&mut self) -> Result<Option<Bytes>, RequestRefusal> {
        let data = loop {
            let PayloadForm::Chunks(decoder) = &mut self.form else { break self.body.next().await? };
            match decoder.decode(&mut self.pending) {
                Ok(Some(data)) => break Some(data),
                Ok(None) => match self.body.next().await? {
                    Some(more) => self.pending = more,
                    None => break None,
                },
                Err(fault) => {
                    self.fault = Some(fault);
                    return Err(RequestRefusal::new(StatusCode::BAD_REQUEST, "The chunks are malformed."));
                }
            }
        };
        let Some(data) = data else { return Ok(None) };
        self.received = self.received.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        if self.announced.is_some_and(|announced| self.received > announced) {
            return Err(RequestRefusal::new(StatusCode::BAD_REQUEST, "The body is longer than its length."));
        }
        if let PayloadForm::Hash(running, _) = &mut self.form {
            running.update(&data);
        }
        self.checksums.update(&data);
        // Digests of fast uploads must not keep other clients from the thread.
        tokio::task::yield_now().await;
        Ok(Some(data))
    }
}

fn chunks(verified: Option<VerifiedRequest>, allows_trailers: bool) -> PayloadForm {
    let signatures = verified.map(VerifiedRequest::into_chunks);
    PayloadForm::Chunks(Box::new(ChunkDecoder::new(signatures, allows_trailers)))
}

/// Refuses codings with which the object would be stored, because replies could not name them.
fn check_coding(headers: &HeaderMap) -> Result<(), S3Error> {
    let codings = conditions::text(headers, CONTENT_ENCODING).unwrap_or_default();
    let is_plain = |coding: &str| {
        coding.is_empty() || [CHUNKED, "identity"].iter().any(|known| coding.eq_ignore_ascii_case(known))
    };
    match codings.split(',').all(|coding| is_plain(coding.trim())) {
        true => Ok(()),
        false => Err(S3Error::unsupported("Content-Encoding is not stored, so a coded body is refused.")),
    }
}

fn decoded_length(headers: &HeaderMap) -> Result<u64, S3Error> {
    let length = headers.get(DECODED_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.filter(|length| length.bytes().all(|byte| byte.is_ascii_digit()));
    length.and_then(|length| length.parse().ok()).ok_or_else(|| {
        let text = "A body in chunks needs x-amz-decoded-content-length.";
        S3Error::new(StatusCode::LENGTH_REQUIRED, "MissingContentLength", text)
    })
}

fn error_of(fault: ChunkFault) -> S3Error {
    match fault {
        ChunkFault::Malformed => S3Error::new(
            StatusCode::BAD_REQUEST,
            "IncompleteBody",
            "The chunks are malformed or not complete.",
        ),
        ChunkFault::Signature => S3Error::new(
            StatusCode::FORBIDDEN,
            "SignatureDoesNotMatch",
            "A chunk does not have its signature.",
        ),
    }
}
