//! [`CopyMarkers`]: the progress of a copy between two servers of HTTP, which a client orders by COPY.
//!
//! The reply begins with the copy, has a marker with the number of bytes every few seconds, and ends with a line
//! with the result.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout;
use wire::xroot::ErrorCode;

use super::address::HttpAddress;
use super::bearer::header_value;
use super::downloaded_file::DownloadedFile;
use super::exchange::HttpExchange;
use super::object_store::{is_lost, is_unknown_outcome};
use super::transfer::TransferFailure;
use super::url_transfer::UrlTransfer;
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::url::{Scheme, Url};

/// Maximum length of a line of a reply.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of streams whose bytes are counted.
const STRIPES_MAX: usize = 1024;
/// Maximum number of characters of a reason that is shown.
const REASON_CHARS_MAX: usize = 400;

/// The side of a copy that carries it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActiveServer {
    /// The server of the target reads the source (pull).
    Target,
    /// The server of the source writes the target (push).
    Source,
}

/// The result of a step of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyEvent {
    /// The number of bytes that are copied.
    Copied(u64),
    /// The file is complete.
    Created,
}

/// A copy in progress. Dropping it before its end stops the copy.
pub struct CopyMarkers {
    reply: DownloadedFile,
    lines: MarkerLines,
    silence: Duration,
}

/// The lines of a reply.
#[derive(Default)]
struct MarkerLines {
    rest: BytesMut,
    stripe: u32,
    stripes: BTreeMap<u32, u64>,
}

impl MarkerLines {
    /// Takes the next line with a marker or a result; `None` if more data is needed.
    fn next(&mut self) -> Result<Option<CopyEvent>, Cause> {
        while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
            let line = self.rest.split_to(end);
            self.rest.advance(1);
            if let Some(event) = self.event(&line)? {
                return Ok(Some(event));
            }
        }
        match self.rest.len() > LINE_BYTES_MAX {
            true => Err(Cause::TooLarge(format!("{LINE_BYTES_MAX} bytes of a line"))),
            false => Ok(None),
        }
    }

    fn event(&mut self, line: &[u8]) -> Result<Option<CopyEvent>, Cause> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
        let number =
            || value.parse::<u64>().map_err(|_| Cause::BadAnswer("a marker in it has no number".to_owned()));
        match key.as_str() {
            "stripe index" => self.stripe = u32::try_from(number()?).unwrap_or(u32::MAX),
            "stripe bytes transferred" => {
                if self.stripes.len() < STRIPES_MAX || self.stripes.contains_key(&self.stripe) {
                    self.stripes.insert(self.stripe, number()?);
                }
                let sum = self.stripes.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
                return Ok(Some(CopyEvent::Copied(sum)));
            }
            "success" => return Ok(Some(CopyEvent::Created)),
            "failure" | "failed" | "aborted" => {
                let reason: String = value.chars().take(REASON_CHARS_MAX).collect();
                let reason = reason.replace(char::is_control, "?");
                let text = format!("the server could not copy the file: {reason}");
                return Err(Cause::Server { code: ErrorCode::SERVER_ERROR, text });
            }
            _ => {}
        }
        Ok(None)
    }
}

impl CopyMarkers {
    /// Orders the copy of a file. The active server gets the token for itself, and the one for the other server.
    ///
    /// # Errors
    /// [`Error`], with the status of the reply. It is uncertain if something may have been copied.
    pub async fn order(
        client: &Client,
        (source, target): (&Url, &Url),
        active: ActiveServer,
        overwrites: bool,
    ) -> Result<Self, (Error, Option<u16>)> {
        let (asked, other, header) = match active {
            ActiveServer::Target => (target, source, SOURCE),
            ActiveServer::Source => (source, target, "destination"),
        };
        let refused = |error| (error, None);
        let transfer = UrlTransfer::new(client, asked, "copy").await.map_err(refused)?;
        let headers = order_headers(client, (asked, other), header, overwrites).await;
        let headers = headers.map_err(|cause| refused(transfer.error_of(cause)))?;
        match transfer.transfer().order_copy(headers).await {
            Ok(reply) => {
                let silence = client.settings().silence().max(Duration::from_secs(120));
                Ok(Self { reply, lines: MarkerLines::default(), silence })
            }
            Err(failure) => {
                let status = match &failure {
                    TransferFailure::Status { status, .. } => Some(status.as_u16()),
                    TransferFailure::Cause(_) => None,
                };
                let is_uncertain = match &failure {
                    TransferFailure::Status { status, .. } => is_unknown_outcome(*status),
                    TransferFailure::Cause(Cause::BadRedirect(_)) => true,
                    TransferFailure::Cause(cause) => is_lost(cause),
                };
                Err((transfer.error(failure).uncertain(is_uncertain), status))
            }
        }
    }

    /// Waits for the next marker or the result.
    ///
    /// # Errors
    /// [`Cause::Server`] with the reason that the server names; another cause if it names no result.
    pub async fn next(&mut self) -> Result<CopyEvent, Cause> {
        loop {
            if let Some(event) = self.lines.next()? {
                return Ok(event);
            }
            let late = |_| Cause::TimedOut(self.silence.as_secs());
            match timeout(self.silence, self.reply.next()).await.map_err(late)?? {
                Some(data) => self.lines.rest.extend_from_slice(&data),
                None if self.lines.rest.is_empty() => {
                    return Err(Cause::Lost("the reply ends before the result of the copy".to_owned()));
                }
                // The last line may have no end.
                None => self.lines.rest.extend_from_slice(b"\n"),
            }
        }
    }
}

/// Reports whether requests to a server are in clear text by its URL.
fn is_clear(url: &Url) -> bool {
    url.scheme == Scheme::Http
}

/// The header of an order to receive a file.
const SOURCE: &str = "source";

/// Returns the headers of an order.
async fn order_headers(
    client: &Client,
    (asked, other): (&Url, &Url),
    header: &'static str,
    overwrites: bool,
) -> Result<HeaderMap, Cause> {
    let odd = |what: &str| Cause::BadArgument(format!("the {what} cannot be sent to an HTTP server"));
    if is_clear(asked) && !is_clear(other) && other.cgi.contains_key(auth::tokens::TOKEN_KEY) {
        let text = format!(
            "the token for {} would be sent to {} in clear text; name the latter by https://",
            other.authority(),
            asked.authority()
        );
        return Err(Cause::Unsupported(text));
    }
    let mut headers = HeaderMap::new();
    let (place, token) = match other.is_http() {
        true => {
            let exchange = HttpExchange::new(client, other, "copy");
            let address = HttpAddress::of(other)?;
            // A token for a server with TLS leaves this machine only encrypted, on both ways.
            let token = match is_clear(asked) && !is_clear(other) {
                true => None,
                false => exchange.token(&address.server).await?,
            };
            (address.url(), token)
        }
        false => (format!("{}://{}/{}", other.scheme.name(), other.authority(), other.target().text()), None),
    };
    headers.insert(HeaderName::from_static(header), HeaderValue::from_str(&place).map_err(|_| odd("URL"))?);
    headers.insert(HeaderName::from_static("credential"), HeaderValue::from_static("none"));
    headers.insert(
        HeaderName::from_static("overwrite"),
        HeaderValue::from_static(if overwrites { "T" } else { "F" }),
    );
    let streams = client.settings().sub_streams_per_channel;
    if header == SOURCE && streams > 1 {
        headers.insert(HeaderName::from_static("x-number-of-streams"), streams.into());
    }
    if let Some(token) = token {
        let value = header_value(&token).ok_or_else(|| odd("token"))?;
        headers.insert(HeaderName::from_static("transferheaderauthorization"), value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;
    use crate::settings::Settings;

    fn events(text: &str, step: usize) -> (Vec<CopyEvent>, Option<Cause>) {
        let (mut lines, mut found) = (MarkerLines::default(), Vec::new());
        for part in text.as_bytes().chunks(step) {
            lines.rest.extend_from_slice(part);
            loop {
                match lines.next() {
                    Ok(Some(event)) => found.push(event),
                    Ok(None) => break,
                    Err(cause) => return (found, Some(cause)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn markers_of_several_stripes_are_added() {
        let text = "Perf Marker\nTimestamp: 1\nStripe Index: 0\nStripe Bytes Transferred: 5\nEnd\n\
                    Perf Marker\r\n\tStripe Index: 1\r\n\tStripe Bytes Transferred: 7\r\nEnd\r\n\
                    Stripe Index: 0\nStripe Bytes Transferred: 6\nEnd\nsuccess: Created\n";
        for step in [1, 7, text.len()] {
            let expected = [5, 12, 13].map(CopyEvent::Copied).into_iter().chain([CopyEvent::Created]);
            assert_eq!(events(text, step), (expected.collect(), None));
        }
    }

    #[tokio::test]
    async fn a_token_for_a_server_with_tls_is_not_sent_in_clear_text() {
        let client = Client::with(Settings::default(), Credentials::none(), "test");
        let headers = async |asked: &str, other: &str| {
            let [asked, other] = [asked, other].map(|url| Url::parse(url).unwrap());
            order_headers(&client, (&asked, &other), "source", false).await
        };
        for other in ["https://s/f?authz=SECRET", "root://s//f?authz=SECRET", "roots://s//f?authz=SECRET"] {
            let refused = headers("http://h/f", other).await.unwrap_err();
            assert!(matches!(&refused, Cause::Unsupported(text) if !text.contains("SECRET")), "{other}");
            assert!(headers("https://h/f", other).await.is_ok(), "{other}");
        }
        assert!(!headers("http://h/f", "https://s/f").await.unwrap().contains_key("x-number-of-streams"));
        let both = headers("http://h/f", "http://s/f?authz=SECRET").await.unwrap();
        assert!(both.contains_key("transferheaderauthorization"));
    }

    #[test]
    fn failures_have_the_reason_of_the_server() {
        let failed = |text: &str| events(text, 4).1;
        for (text, reason) in [("Failure: no\u{1b} space\n", "no? space"), ("aborted: x\n", "x")] {
            let Some(Cause::Server { text, .. }) = failed(text) else { panic!("no failure") };
            assert!(text.ends_with(reason), "{text}");
        }
        assert!(matches!(failed("Stripe Bytes Transferred: many\n"), Some(Cause::BadAnswer(_))));
        assert!(matches!(failed(&"x".repeat(LINE_BYTES_MAX + 8)), Some(Cause::TooLarge(_))));
    }
}
