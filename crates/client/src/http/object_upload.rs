//! [`ObjectUpload`]: a new object of a store, which appears whole or not at all.
//!
//! It is sent with one request, or in parts that become one object at the end. Parts of which none becomes an
//! object are removed by [`ObjectUpload::abort`]; the store keeps, and charges for, those of a program that was
//! killed until a rule of the bucket removes them.

use bytes::Bytes;
use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};
use std::fmt::Write;
use wire::xroot::ErrorCode;

use super::address::HttpAddress;
use super::exchange::{HttpBody, HttpExchange, HttpReply, HttpRequest};
use super::headers::text;
use super::object_files::stat_object;
use super::object_store::{code_in, is_lost, store_refusal};
use super::refusal::refusal;
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::pacing::RequestPacing;
use crate::url::Url;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of times that a request is repeated whose connection was lost.
const REPETITIONS_MAX: usize = 2;
/// Pauses in seconds before the parts are removed again of an upload of which one may arrive later.
const ABORT_PAUSES: [u64; 4] = [1, 5, 30, 120];
/// Maximum size of a reply that describes a result.
const RESULT_BYTES_MAX: usize = 64 * 1024;
/// The code of an error inside of the store, after which it may have made the change.
pub(super) const INTERNAL_ERROR: &str = "InternalError";
/// Maximum length of the id of an upload, and of the entity tag of a part.
const ID_BYTES_MAX: usize = 2048;

/// Maximum number of parts of an object.
pub const OBJECT_PARTS_MAX: u64 = 10_000;
/// Unit of the sizes of parts.
const MEBIBYTE: u64 = 1 << 20;
/// Minimum size of the parts of an object in bytes, apart from the last.
pub const OBJECT_PART_BYTES_MIN: u64 = 8 * MEBIBYTE;

/// Returns the size of the parts of an object of this size, in bytes. All but the last have the same size, because some
/// stores need it.
#[must_use]
pub const fn object_part_bytes(size: u64) -> u64 {
    let least = size.div_ceil(OBJECT_PARTS_MAX).next_multiple_of(MEBIBYTE);
    if least > OBJECT_PART_BYTES_MIN { least } else { OBJECT_PART_BYTES_MIN }
}

/// An object that is to be created. Clones create the same one.
#[derive(Clone)]
pub struct ObjectUpload {
    client: Client,
    state: Arc<ObjectUploadState>,
}

struct ObjectUploadState {
    url: Url,
    address: HttpAddress,
    /// No object of this name may be replaced.
    is_new: bool,
    /// A part whose reply did not arrive may still be on its way in the store.
    has_lost_part: AtomicBool,
}

/// A part that is being sent. If it is dropped before each of its attempts has a reply, its outcome is unknown.
struct SentPart<'a> {
    state: &'a ObjectUploadState,
    has_reply: bool,
}

impl Drop for SentPart<'_> {
    fn drop(&mut self) {
        if !self.has_reply {
            self.state.has_lost_part.store(true, Ordering::Relaxed);
        }
    }
}

/// The id of an upload in parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartsId(String);

/// A part that the store has received, by its entity tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredPart(String);

impl StoredPart {
    /// Creates a part with an entity tag.
    #[must_use]
    pub fn of(tag: &str) -> Self {
        Self(tag.to_owned())
    }
}

impl std::fmt::Debug for ObjectUpload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectUpload({})", self.state.url)
    }
}

impl ObjectUpload {
    /// Looks whether an object may be created. Nothing is created yet.
    pub(crate) async fn open(client: &Client, url: &Url, is_new: bool) -> Result<Self, Error> {
        let exchange = HttpExchange::new(client, url, "open");
        let address = exchange.address()?;
        let refused = |code, why: &str| {
            let text = format!("{address} {why}");
            exchange.refused(Cause::Server { code, text })
        };
        let Some(store) = exchange.store() else {
            return Err(exchange.refused(Cause::Unsupported("it is in no object store".to_owned())));
        };
        let is_directory = || refused(ErrorCode::IS_DIRECTORY, "is a directory");
        if address.path().ends_with('/') {
            return Err(is_directory());
        }
        match stat_object(&exchange, store, &address).await {
            Ok(found) if found.is_dir() => return Err(is_directory()),
            Ok(_) if is_new => return Err(refused(ErrorCode::IT_EXISTS, "exists already")),
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let state = Arc::new(ObjectUploadState {
            url: url.clone(),
            address,
            is_new,
            has_lost_part: AtomicBool::new(false),
        });
        Ok(Self { client: client.clone(), state })
    }

    /// Returns this upload with requests that `pacing` can hold back.
    #[must_use]
    pub fn paced(&self, pacing: Arc<dyn RequestPacing>) -> Self {
        Self { client: self.client.paced(pacing), state: self.state.clone() }
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.state.url
    }

    fn exchange(&self, operation: &'static str) -> HttpExchange<'_> {
        HttpExchange::new(&self.client, &self.state.url, operation)
    }

    /// Returns the address of a request about this object with a query.
    fn with_query(&self, query: &str) -> Result<HttpAddress, Cause> {
        HttpAddress::in_server(&self.state.address.server, &format!("{}?{query}", self.state.address.path()))
    }

    /// Returns the query of a request about an upload in parts.
    fn query_of(id: &PartsId, part: Option<usize>) -> String {
        let mut query = part.map(|part| format!("partNumber={part}&")).unwrap_or_default();
        query.push_str("uploadId=");
        base::percent_encode(&mut query, id.0.as_bytes(), b"");
        query
    }

    /// Creates the object with this content.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn put(&self, data: Bytes) -> Result<(), Error> {
        let exchange = self.exchange("write");
        let request = HttpRequest { body: data, ..self.conditional(HttpRequest::new(Method::PUT)) };
        let request = request.with("content-type", "application/octet-stream");
        let sent = match self.state.is_new {
            // The reply to a repetition could be a refusal because of the object that the first one has created.
            true => exchange.send(&request, &self.state.address).await,
            false => send_again(&exchange, &request, &self.state.address).await.0,
        };
        let reply = sent?;
        if !reply.status.is_success() {
            return Err(self.refused(&exchange, reply).await);
        }
        reply.body.discard().await;
        Ok(())
    }

    /// Returns a request that replaces nothing, if that is wanted.
    fn conditional(&self, request: HttpRequest) -> HttpRequest {
        match self.state.is_new {
            true => HttpRequest { is_once: true, ..request.with("if-none-match", "*") },
            false => request,
        }
    }

    /// Returns the error of a reply. An object that a repetition finds may be that of the first attempt.
    async fn refused(&self, exchange: &HttpExchange<'_>, reply: HttpReply) -> Error {
        let HttpReply { address, is_repeated, status, body, .. } = reply;
        let exists = matches!(status, StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT);
        if exists && self.state.is_new {
            return exchange.error(self.exists(), &address, &[]).uncertain(is_repeated);
        }
        exchange.error(store_refusal(status, body, &address).await, &address, &[])
    }

    /// Returns the cause of an object that replaces nothing and is there.
    fn exists(&self) -> Cause {
        let text = format!(
            "{} exists: another client has created it, or an attempt of this one that the store has reported as failed",
            self.state.address
        );
        Cause::Server { code: ErrorCode::IT_EXISTS, text }
    }

    /// Begins an upload in parts. That is asked for once, because nobody knows the id whose reply is lost.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn begin(&self) -> Result<PartsId, Error> {
        let exchange = self.exchange("write");
        let address = self.with_query("uploads=").map_err(|cause| exchange.refused(cause))?;
        let request = HttpRequest::new(Method::POST).with("content-type", "application/octet-stream");
        let request = HttpRequest { is_once: true, ..request };
        let HttpReply { status, body, .. } = exchange.send(&request, &address).await.map_err(invisible)?;
        let failed = |cause| exchange.error(cause, &address, &[]);
        if status != StatusCode::OK {
            return Err(failed(store_refusal(status, body, &address).await));
        }
        let result = result_text(body).await.map_err(failed)?;
        let none = || failed(Cause::BadAnswer("it names no upload".to_owned()));
        element(&result, "UploadId").map(PartsId).ok_or_else(none)
    }

    /// Sends a part. The first one is 1. All but the last need 5 MiB.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn put_part(&self, id: &PartsId, number: usize, data: Bytes) -> Result<StoredPart, Error> {
        let exchange = self.exchange("write");
        let address =
            self.with_query(&Self::query_of(id, Some(number))).map_err(|cause| exchange.refused(cause))?;
        let request = HttpRequest { body: data, ..HttpRequest::new(Method::PUT) };
        let mut part = SentPart { state: &self.state, has_reply: false };
        let (sent, lost) = send_again(&exchange, &request, &address).await;
        part.has_reply = lost == 0 && !matches!(&sent, Err(error) if is_lost(error.cause()));
        drop(part);
        let HttpReply { status, headers, body, .. } = sent.map_err(invisible)?;
        let failed = |cause| exchange.error(cause, &address, &[]);
        if !status.is_success() {
            return Err(failed(store_refusal(status, body, &address).await));
        }
        body.discard().await;
        part_of(&headers)
            .map(StoredPart)
            .ok_or_else(|| failed(Cause::BadAnswer("it has no entity tag of the part".to_owned())))
    }

    /// Makes one object of the parts, in this order.
    ///
    /// # Errors
    /// [`Error`]. If the reply is lost, the object may be there.
    pub async fn complete(&self, id: &PartsId, parts: &[StoredPart]) -> Result<(), Error> {
        let exchange = self.exchange("close");
        let address = self.with_query(&Self::query_of(id, None)).map_err(|cause| exchange.refused(cause))?;
        let body = Bytes::from(list_of(parts));
        let request =
            self.conditional(HttpRequest::new(Method::POST).with("content-type", "application/xml"));
        let request = HttpRequest { body, is_once: true, ..request };
        let reply = exchange.send(&request, &address).await?;
        let failed = |cause| exchange.error(cause, &address, &[]);
        if reply.status != StatusCode::OK {
            // An upload that is gone may be the one that an earlier attempt has completed.
            let is_gone = reply.status == StatusCode::NOT_FOUND;
            let error = self.refused(&exchange, reply).await;
            let is_uncertain = is_gone || error.is_uncertain();
            return Err(error.uncertain(is_uncertain));
        }
        // A store can begin a success and find later that it is none.
        let result = result_text(reply.body).await.map_err(|cause| failed(cause).uncertain(true))?;
        match code_in(result.as_bytes()) {
            None if result.contains("<CompleteMultipartUploadResult") => Ok(()),
            None => Err(failed(Cause::BadAnswer("it does not say that the object is complete".to_owned()))
                .uncertain(true)),
            Some(code) if code == "PreconditionFailed" && self.state.is_new => {
                Err(failed(self.exists()).uncertain(reply.is_repeated))
            }
            Some(code) => {
                let text = format!("{} could not be completed ({code})", self.state.address);
                Err(failed(Cause::Server { code: ErrorCode::SERVER_ERROR, text })
                    .uncertain(code == INTERNAL_ERROR))
            }
        }
    }

    /// Removes the parts of an upload. One that is not known is removed. If the store can still receive a part, it is
    /// removed again in the background.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn abort(&self, id: &PartsId) -> Result<(), Error> {
        let is_known = self.abort_once(id).await?;
        if is_known && self.state.has_lost_part.load(Ordering::Relaxed) {
            let (upload, id) = (self.clone(), id.clone());
            tokio::spawn(async move { upload.abort_again(&id).await });
        }
        Ok(())
    }

    /// Removes an upload until the store does not know it.
    async fn abort_again(&self, id: &PartsId) {
        for pause in ABORT_PAUSES {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            match self.abort_once(id).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let path = self.state.url.path.as_str();
                    tracing::warn!(path, %error, "a part of an object that was not completed may stay in the store");
                }
            }
        }
    }

    /// Removes the parts of an upload. Returns whether the store knew it.
    async fn abort_once(&self, id: &PartsId) -> Result<bool, Error> {
        let exchange = self.exchange("close");
        let address = self.with_query(&Self::query_of(id, None)).map_err(|cause| exchange.refused(cause))?;
        let (sent, _) = send_again(&exchange, &HttpRequest::new(Method::DELETE), &address).await;
        let HttpReply { status, body, .. } = sent.map_err(invisible)?;
        body.discard().await;
        match status {
            StatusCode::NOT_FOUND => Ok(false),
            status if status.is_success() => Ok(true),
            status => Err(exchange.error(refusal(status, &address), &address, &[])),
        }
    }
}

/// Makes a request that can be repeated, also if its connection is lost. Returns how often that was so, too.
async fn send_again(
    exchange: &HttpExchange<'_>,
    request: &HttpRequest,
    address: &HttpAddress,
) -> (Result<HttpReply, Error>, usize) {
    let mut lost = 0;
    loop {
        match exchange.send(request, address).await {
            Err(error) if lost < REPETITIONS_MAX && matches!(error.cause(), Cause::Lost(_)) => lost += 1,
            sent => return (sent, lost),
        }
    }
}

/// Returns the error of a request after which no object is another one, whatever the store has done.
fn invisible(error: Error) -> Error {
    error.uncertain(false)
}

fn part_of(headers: &HeaderMap) -> Option<String> {
    text(headers, &header::ETAG).filter(|tag| (1..=ID_BYTES_MAX).contains(&tag.len())).map(str::to_owned)
}

/// Returns the list of the parts of an object.
fn list_of(parts: &[StoredPart]) -> String {
    let mut list = String::from("<CompleteMultipartUpload>");
    for (number, StoredPart(tag)) in (1..).zip(parts) {
        let tag = tag.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        write!(list, "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>").ok();
    }
    list.push_str("</CompleteMultipartUpload>");
    list
}

/// Reads the description of a result.
pub(super) async fn result_text(mut body: HttpBody) -> Result<String, Cause> {
    let mut text = Vec::new();
    while let Some(data) = body.chunk().await? {
        if text.len() + data.len() > RESULT_BYTES_MAX {
            return Err(Cause::TooLarge(format!("{RESULT_BYTES_MAX} bytes")));
        }
        text.extend_from_slice(&data);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the text of an element without others in it.
fn element(document: &str, name: &str) -> Option<String> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    let value = quick_xml::escape::unescape(value.trim()).ok()?;
    let is_id =
        (1..=ID_BYTES_MAX).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic());
    is_id.then(|| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_words() {
        let id = |text: &str| element(text, "UploadId");
        assert_eq!(id("<R><UploadId> a&amp;b/+= </UploadId></R>").as_deref(), Some("a&b/+="));
        for text in [
            "",
            "<UploadId>",
            "<UploadId></UploadId>",
            "<UploadId>a\u{1}</UploadId>",
            "<UploadId>a b</UploadId>",
        ] {
            assert_eq!(id(text), None, "{text}");
        }
        assert_eq!(id(&format!("<UploadId>{}</UploadId>", "x".repeat(ID_BYTES_MAX + 1))), None);
        let query = ObjectUpload::query_of(&PartsId("a&b/+=".to_owned()), Some(3));
        assert_eq!(query, "partNumber=3&uploadId=a%26b%2F%2B%3D");
    }

    #[test]
    fn the_list_of_parts_is_in_order() {
        let parts = [StoredPart("\"a\"".to_owned()), StoredPart("<&".to_owned())];
        let expected = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag></Part>\
            <Part><PartNumber>2</PartNumber><ETag>&lt;&amp;</ETag></Part></CompleteMultipartUpload>";
        assert_eq!(list_of(&parts), expected);
    }
}
