//! [`ObjectStore`]: an object store with S3, whose requests are signed.

use std::sync::Arc;
use std::time::Duration;

use auth::s3::{S3Credentials, S3Request, body_hash};
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout;
use wire::xroot::ErrorCode;

use super::address::{HttpAddress, HttpServer};
use super::exchange::{HttpBody, HttpRequest, reason};
use super::refusal::refusal;
use crate::failure::Cause;
use crate::path::RemotePath;
use crate::url::Url;

/// Maximum size of the description of an error, and the part of it that is read.
const ERROR_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of the code of an error.
const CODE_BYTES_MAX: usize = 64;
/// Maximum time for the description of an error.
const ERROR_TIME: Duration = Duration::from_secs(2);
/// Maximum pause after a refusal without a time.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Maximum number of pauses after an internal error of the store.
const ERROR_PAUSES_MAX: usize = 3;
/// The region of the bucket, in replies of stores that do not have it.
const REGION_HEADER: HeaderName = HeaderName::from_static("x-amz-bucket-region");
/// Codes of errors that are about the keys of this program.
const KEY_CODES: [&str; 9] = [
    "AccessDenied",
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidSecurity",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
];

/// A bucket of an object store, and the keys for it. The URL of an object is that of the store, followed by
/// the bucket and the key of the object (path-style).
#[derive(Clone, Debug)]
pub struct ObjectStore {
    server: HttpServer,
    bucket: String,
    region: String,
    credentials: Option<S3Credentials>,
}

impl ObjectStore {
    /// Creates a store at an endpoint. Without keys, requests are not signed.
    #[must_use]
    pub fn new(endpoint: &Url, bucket: &str, region: &str, credentials: Option<S3Credentials>) -> Arc<Self> {
        let (bucket, region) = (bucket.to_owned(), region.to_owned());
        Arc::new(Self { server: HttpServer::of(endpoint), bucket, region, credentials })
    }

    /// Reports whether requests are signed.
    pub(super) const fn has_keys(&self) -> bool {
        self.credentials.is_some()
    }

    /// Returns the key at an address: the path behind the bucket.
    ///
    /// # Errors
    /// [`Cause::BadArgument`]: the address is not in the bucket.
    pub(super) fn key(&self, address: &HttpAddress) -> Result<Vec<u8>, Cause> {
        let path = base::percent_decode(address.path().as_bytes()).unwrap_or_default();
        let key = path.strip_prefix(b"/").and_then(|path| path.strip_prefix(self.bucket.as_bytes()));
        let key = match key {
            Some(b"") => Some(&b""[..]),
            Some(key) => key.strip_prefix(b"/"),
            None => None,
        };
        let outside = || Cause::BadArgument(format!("{address} is not in the bucket {}", self.bucket));
        key.filter(|_| address.server == self.server).map(<[u8]>::to_vec).ok_or_else(outside)
    }

    /// Returns the address of the object at a path of this bucket. A slash at the beginning of the path is not part of
    /// its key.
    pub(super) fn address_of(&self, path: &RemotePath) -> Result<HttpAddress, Cause> {
        let path = base::bytes_of(path.as_str());
        let mut target = format!("/{}/", self.bucket);
        base::percent_encode(&mut target, path.strip_prefix(b"/").unwrap_or(&path), b"/");
        HttpAddress::in_server(&self.server, &target)
    }

    /// Returns the address of a request for keys.
    pub(super) fn bucket_address(&self, query: &str) -> Result<HttpAddress, Cause> {
        HttpAddress::in_server(&self.server, &format!("/{}?{query}", self.bucket))
    }

    /// Fails if a request for a change is not about an object: without a key, it would remove or replace the bucket.
    /// A server may resolve dots in a path.
    pub(super) fn check_change(&self, address: &HttpAddress) -> Result<(), Cause> {
        let key = self.key(address)?;
        if key.iter().all(|&byte| byte == b'/') {
            let text = format!("{address} is the bucket itself, which is not changed");
            return Err(Cause::Server { code: ErrorCode::FS_ERROR, text });
        }
        if key.split(|&byte| byte == b'/').any(|name| matches!(name, b"." | b"..")) {
            return Err(Cause::BadArgument(format!("{address} has dots as a name, which no object gets")));
        }
        Ok(())
    }

    /// Adds the headers by which the store knows the sender. No other server gets them.
    pub(super) fn sign(
        &self,
        request: &HttpRequest,
        address: &HttpAddress,
        headers: &mut HeaderMap,
    ) -> Result<(), Cause> {
        let Some(credentials) = self.credentials.as_ref().filter(|_| address.server == self.server) else {
            return Ok(());
        };
        let odd = || Cause::BadArgument("the request cannot be signed".to_owned());
        let mut covered = Vec::new();
        for (name, value) in &request.headers {
            covered.push((name.as_str(), value.to_str().map_err(|_| odd())?));
        }
        let hash = body_hash(&request.body);
        let signed = credentials.sign(
            &self.region,
            &S3Request {
                method: request.method.as_str(),
                target: address.target(),
                host: &address.server.host_header(),
                headers: &covered,
                body_hash: &hash,
                time: &jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string(),
            },
        );
        for (name, value) in signed {
            let mut value = HeaderValue::from_str(&value).map_err(|_| odd())?;
            // Not in the output for debugging.
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(())
    }
}

/// Returns the pause after a reply that asks for none, if the request is to be made again. One that is made once is
/// repeated only if the store has not begun with it.
pub(super) fn pause_of(status: StatusCode, pauses: usize, is_once: bool) -> Option<Duration> {
    let is_overloaded = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let is_repeated = is_overloaded
        || (status == StatusCode::INTERNAL_SERVER_ERROR && !is_once && pauses < ERROR_PAUSES_MAX);
    let doubled = || Duration::from_secs(1 << pauses.min(10)).min(PAUSE_MAX);
    is_repeated.then(doubled)
}

/// Reports whether a store that fails with a status may have made a change.
pub(super) fn is_unknown_outcome(status: StatusCode) -> bool {
    status.is_server_error() && !matches!(status.as_u16(), 501 | 503 | 505 | 507)
}

/// Reports whether the cause is that no reply, or none that can be read, has arrived.
pub(super) const fn is_lost(cause: &Cause) -> bool {
    matches!(cause, Cause::Lost(_) | Cause::TimedOut(_) | Cause::BadAnswer(_) | Cause::TooLarge(_))
}

/// Reports whether a status is an error that no caller distinguishes from others.
pub(super) fn is_refusal(status: StatusCode) -> bool {
    let is_known = matches!(status.as_u16(), 404 | 409 | 412 | 416);
    (status.is_client_error() || status.is_server_error()) && !is_known
}

/// Returns the error of a redirect, which is not followed: its target would get a signature of another server.
pub(super) fn redirected(status: StatusCode, headers: &HeaderMap, address: &HttpAddress) -> Cause {
    let region = headers.get(REGION_HEADER).and_then(|region| region.to_str().ok());
    let is_name = |region: &&str| region.len() <= CODE_BYTES_MAX && region.bytes().all(is_code_byte);
    let region =
        region.filter(is_name).map(|region| format!(" (its region is {region})")).unwrap_or_default();
    let text = format!(
        "{address} answers {}: the bucket is elsewhere{region}; set the endpoint and the region of its store",
        reason(status)
    );
    Cause::Server { code: ErrorCode::SERVER_ERROR, text }
}

/// Returns the error for a reply without success, with the code of the store.
pub(super) async fn store_refusal(status: StatusCode, body: HttpBody, address: &HttpAddress) -> Cause {
    let code = timeout(ERROR_TIME, error_code(body)).await.ok().flatten();
    let mut text = format!("{address} answers {}", reason(status));
    if let Some(code) = &code {
        text = format!("{text} ({code})");
    }
    let is_about_keys =
        code.as_ref().map_or(matches!(status.as_u16(), 401 | 403), |code| KEY_CODES.contains(&code.as_str()));
    if is_about_keys {
        let remedy = match code.as_deref() {
            Some("RequestTimeTooSkewed") => "set the clock of this machine",
            _ => "check the keys and the region of the object store, and its policy",
        };
        return Cause::Server { code: ErrorCode::NOT_AUTHORIZED, text: format!("{text}; {remedy}") };
    }
    match refusal(status, address) {
        Cause::Server { code, .. } => Cause::Server { code, text },
        Cause::NotAuthenticated(_) => Cause::Server { code: ErrorCode::NOT_AUTHORIZED, text },
        Cause::BadAnswer(_) => Cause::BadAnswer(text),
        cause => cause,
    }
}

/// Adds to a refusal of requests without a signature how users name their keys.
pub(super) fn without_keys(cause: Cause) -> Cause {
    match cause {
        Cause::Server { code: ErrorCode::NOT_AUTHORIZED, text } => {
            let text = format!(
                "{text}; no keys were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a \
                 section of ~/.aws/credentials"
            );
            Cause::Server { code: ErrorCode::NOT_AUTHORIZED, text }
        }
        cause => cause,
    }
}

/// Returns the code in the description of an error. The rest of it is not shown, because it repeats the
/// signed text.
async fn error_code(mut body: HttpBody) -> Option<String> {
    let mut text = Vec::new();
    while text.len() < ERROR_BYTES_MAX
        && let Ok(Some(data)) = body.chunk().await
    {
        text.extend_from_slice(data.get(..ERROR_BYTES_MAX.min(data.len())).unwrap_or_default());
    }
    code_in(&text)
}

/// Returns the code of an error in a description.
pub(super) fn code_in(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_code = (1..=CODE_BYTES_MAX).contains(&code.len()) && code.bytes().all(is_code_byte);
    is_code.then(|| code.to_owned())
}

const fn is_code_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Arc<ObjectStore> {
        ObjectStore::new(&Url::parse("http://h:9000").unwrap(), "b", "r", None)
    }

    #[test]
    fn keys_are_in_the_bucket() {
        let key = |url: &str| {
            let address = HttpAddress::of(&Url::parse(url).unwrap()).unwrap();
            store().key(&address).map(|key| String::from_utf8(key).unwrap())
        };
        for (url, expected) in [
            ("http://h:9000//b/a b/c", "a b/c"),
            ("http://H:9000//b/", ""),
            ("http://h:9000//b", ""),
            ("http://h:9000//b//x", "/x"),
        ] {
            assert_eq!(key(url).as_deref(), Ok(expected), "{url}");
        }
        for url in ["http://h:9000//bb/x", "http://h:9001//b/x", "https://h:9000//b/x", "http://h:9000//x"] {
            assert!(key(url).is_err(), "{url}");
        }
    }

    #[test]
    fn only_objects_are_changed() {
        let change = |url: &str| store().check_change(&HttpAddress::of(&Url::parse(url).unwrap()).unwrap());
        for url in
            ["http://h:9000//b/x", "http://h:9000//b/x/", "http://h:9000//b//x", "http://h:9000//b/..x"]
        {
            assert_eq!(change(url), Ok(()), "{url}");
        }
        for url in ["http://h:9000//b", "http://h:9000//b/", "http://h:9000//b//"] {
            assert!(matches!(change(url), Err(Cause::Server { code: ErrorCode::FS_ERROR, .. })), "{url}");
        }
        let of = |target| store().check_change(&HttpAddress::in_server(&store().server, target).unwrap());
        for target in ["/b/.", "/b/x/..", "/b/%2e%2E", "/b/./x", "/c/x", "/b/../c/x", "/b?uploads="] {
            assert!(of(target).is_err(), "{target}");
        }
    }

    #[test]
    fn codes_of_errors_are_short_words() {
        let code = |text: &str| code_in(text.as_bytes());
        assert_eq!(code("<Error><Code>SlowDown</Code></Error>").as_deref(), Some("SlowDown"));
        for text in ["", "<Code>", "<Code></Code>", "<Code>a b</Code>", "<Code>a\n</Code>"] {
            assert_eq!(code(text), None, "{text}");
        }
        assert_eq!(code(&format!("<Code>{}</Code>", "x".repeat(65))), None);
    }

    #[test]
    fn pauses_grow_and_errors_are_repeated_few_times() {
        let seconds = |status, pauses| pause_of(status, pauses, false).map(|pause| pause.as_secs());
        assert_eq!(seconds(StatusCode::SERVICE_UNAVAILABLE, 0), Some(1));
        assert_eq!(seconds(StatusCode::SERVICE_UNAVAILABLE, 2), Some(4));
        assert_eq!(seconds(StatusCode::TOO_MANY_REQUESTS, 15), Some(30));
        assert_eq!(seconds(StatusCode::INTERNAL_SERVER_ERROR, 2), Some(4));
        assert_eq!(seconds(StatusCode::INTERNAL_SERVER_ERROR, 3), None);
        assert_eq!(seconds(StatusCode::FORBIDDEN, 0), None);
        assert_eq!(pause_of(StatusCode::INTERNAL_SERVER_ERROR, 0, true), None);
        assert_eq!(pause_of(StatusCode::SERVICE_UNAVAILABLE, 0, true), Some(Duration::from_secs(1)));
    }
}
