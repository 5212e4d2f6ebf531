//! [`HttpExchange`]: one request to a server, through redirects, pauses and connections that were closed.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use auth::Secret;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use wire::xroot::ErrorCode;

use super::address::{HttpAddress, HttpServer};
use super::bearer::{header_value, token_of};
use super::headers::{self, retry_after, text};
use super::object_store::{self, ObjectStore};
use super::pool::HttpConnection;
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::pacing::PacedRequest;
use crate::url::Url;

/// Maximum number of redirects, if the settings allow more.
pub(super) const REDIRECTS_MAX: u64 = 10;
/// Maximum number of pauses that a server asks for.
const PAUSES_MAX: usize = 16;
/// Rate in bytes per second at which a body is sent at least.
const BODY_RATE_MIN: u64 = 128 * 1024;
/// Minimum pause, because a server may ask for none.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum size of a body that is read to keep the connection, and the time for it.
const DISCARDED_BYTES_MAX: usize = 64 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(2);
/// The name of this program in requests.
pub(super) const AGENT: &str = concat!("scalla/", env!("CARGO_PKG_VERSION"));

/// A request, which can be made again.
pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// It is repeated only if the server says that it has not begun, and neither on another connection nor after an
    /// internal error.
    pub(super) is_once: bool,
}

impl HttpRequest {
    pub(super) fn new(method: Method) -> Self {
        Self { method, headers: HeaderMap::new(), body: Bytes::new(), is_once: false }
    }

    /// Adds a header.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    fn build(
        &self,
        address: &HttpAddress,
        token: Option<&Secret>,
        store: Option<&ObjectStore>,
    ) -> Result<Request<Full<Bytes>>, Cause> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        let odd = |what: &str| Cause::BadArgument(format!("the {what} cannot be sent to an HTTP server"));
        *request.uri_mut() = address.target().parse().map_err(|_| odd("path"))?;
        let headers = request.headers_mut();
        let host = HeaderValue::from_str(&address.server.host_header()).map_err(|_| odd("host"))?;
        headers.insert(header::HOST, host);
        headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if self.body.is_empty() && matches!(self.method, Method::PUT | Method::POST) {
            // Without it, object stores refuse an empty body.
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        headers.extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, header_value(token).ok_or_else(|| odd("token"))?);
        }
        if let Some(store) = store {
            store.sign(self, address, headers)?;
        }
        Ok(request)
    }
}

/// A reply whose body was not read.
pub(super) struct HttpReply {
    /// The address that has replied.
    pub(super) address: HttpAddress,
    /// The servers on the way to it.
    pub(super) hops: Vec<String>,
    /// Each redirect has only added the slash of a directory.
    pub(super) is_directory: bool,
    /// The server has refused an earlier attempt for the moment.
    pub(super) is_repeated: bool,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: HttpBody,
}

/// The body of a reply. Dropping it before its end closes the connection.
pub(super) struct HttpBody {
    incoming: Incoming,
    connection: Option<HttpConnection>,
    paced: Option<PacedRequest>,
    /// Time without data after which the connection counts as lost.
    silence: Duration,
    end: Instant,
    /// Set while data is waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

impl HttpBody {
    /// Returns the next data; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Cause> {
        poll_fn(|context| self.poll_chunk(context)).await
    }

    /// Returns the next data as [`HttpBody::chunk`] does.
    pub(super) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Cause>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) else {
                let until = self.end.min(Instant::now() + self.silence);
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
                ready!(timer.as_mut().poll(context));
                return Poll::Ready(Err(Cause::TimedOut(self.silence.as_secs())));
            };
            self.timer = None;
            let Some(frame) = frame.transpose().map_err(|error| cause_of(&error))? else {
                self.finish();
                return Poll::Ready(Ok(None));
            };
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Poll::Ready(Ok(Some(data)));
            }
        }
    }

    /// Keeps the connection for other requests.
    fn finish(&mut self) {
        self.paced = None;
        if let Some(connection) = self.connection.take() {
            connection.release();
        }
    }

    /// Reads a short rest, so that the connection can be kept.
    pub(super) async fn discard(mut self) {
        if self.incoming.is_end_stream() {
            return self.finish();
        }
        if self.incoming.size_hint().lower() > DISCARDED_BYTES_MAX as u64 {
            return;
        }
        self.end = self.end.min(Instant::now() + DISCARD_TIME);
        let mut left = DISCARDED_BYTES_MAX;
        while let Ok(Some(data)) = self.chunk().await {
            match left.checked_sub(data.len()) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    }
}

/// Requests for one URL with one deadline.
pub(super) struct HttpExchange<'a> {
    pub(super) client: &'a Client,
    pub(super) url: &'a Url,
    pub(super) operation: &'static str,
    pub(super) end: Instant,
    /// Requests may carry a token or a signature.
    sends_token: bool,
    /// The object store, if requests are those of one; a text if it is not known.
    store: Result<Option<Arc<ObjectStore>>, String>,
}

impl<'a> HttpExchange<'a> {
    pub(super) fn new(client: &'a Client, url: &'a Url, operation: &'static str) -> Self {
        let store = client.http_pool().store_of(client, url);
        Self { client, url, operation, end: client.end(), sends_token: true, store }
    }

    /// Has requests carry no token and no signature, because the URL may be that of a server to which another
    /// one has redirected.
    pub(super) fn without_token(self) -> Self {
        Self { sends_token: false, ..self }
    }

    /// Returns the object store, if requests are those of one.
    pub(super) fn store(&self) -> Option<&ObjectStore> {
        self.shared_store().map(|store| &**store)
    }

    /// Returns the object store as [`HttpExchange::store`] does.
    pub(super) fn shared_store(&self) -> Option<&Arc<ObjectStore>> {
        self.store.as_ref().ok().and_then(Option::as_ref)
    }

    /// Fails if the data of a reply is encoded. In an object store, the encoding is a property of the object, whose bytes
    /// are sent as they are.
    pub(super) fn check_encoding(&self, headers: &HeaderMap) -> Result<(), Cause> {
        if self.store().is_some() { Ok(()) } else { headers::check_encoding(headers) }
    }

    /// Returns the address of the URL.
    pub(super) fn address(&self) -> Result<HttpAddress, Error> {
        let address = match &self.store {
            Err(why) => Err(Cause::BadArgument(why.clone())),
            Ok(Some(store)) if self.url.is_object() => store.address_of(&self.url.path),
            Ok(_) => HttpAddress::of(self.url),
        };
        let address = address.map_err(|cause| self.refused(cause))?;
        // A query would choose another request than the one that the keys are meant for.
        Ok(if self.store().is_some() { address.without_query() } else { address })
    }

    /// Creates the error of this operation.
    pub(super) fn error(&self, cause: Cause, address: &HttpAddress, hops: &[String]) -> Error {
        let is_of_url = address.server == HttpServer::of(self.url);
        let server = if is_of_url { self.url.authority() } else { address.server.authority() };
        Error::new(self.operation, self.url, cause).at(server, hops)
    }

    /// Creates the error of an operation before anything was sent.
    pub(super) fn refused(&self, cause: Cause) -> Error {
        Error::new(self.operation, self.url, cause)
    }

    /// Makes a request at an address, and follows redirects. The error of a change at a store is uncertain if the
    /// reply is lost, or an attempt has ended with an internal error of the store.
    pub(super) async fn send(&self, request: &HttpRequest, from: &HttpAddress) -> Result<HttpReply, Error> {
        let (mut address, mut hops, mut pauses) = (from.clone(), Vec::new(), 0);
        let mut visited = vec![from.clone()];
        let (mut is_directory, mut is_unknown) = (true, false);
        let changes_store = self.store().is_some() && is_change(&request.method);
        let redirects_max = self.client.settings().redirect_limit.min(REDIRECTS_MAX);
        loop {
            let sent = self.send_once(request, &address).await;
            let (response, body) = sent.map_err(|cause| {
                let is_lost = changes_store && object_store::is_lost(&cause);
                self.error(cause, &address, &hops).uncertain(is_lost || is_unknown)
            })?;
            let (status, headers) = (response.status(), response.headers());
            is_unknown |= changes_store && object_store::is_unknown_outcome(status);
            let failed = |cause| self.error(cause, &address, &hops).uncertain(is_unknown);
            if self.store().is_some() && status.is_redirection() {
                return Err(failed(object_store::redirected(status, headers, &address)));
            }
            if let Some(location) = redirect_of(status, headers) {
                if visited.len() as u64 > redirects_max {
                    return Err(failed(Cause::RedirectLimit(redirects_max)));
                }
                let next = location.and_then(|location| address.redirected(location)).map_err(failed)?;
                if is_change(&request.method)
                    && let Some(cause) = refused_redirect(status, &address, &next)
                {
                    return Err(failed(cause).uncertain(status == StatusCode::SEE_OTHER));
                }
                if visited.contains(&next) {
                    return Err(failed(Cause::RedirectLoop));
                }
                body.discard().await;
                is_directory &= address.is_directory_of(&next);
                hops.push(address.server.authority());
                visited.push(next.clone());
                address = next;
                continue;
            }
            let of_store =
                || self.store().and_then(|_| object_store::pause_of(status, pauses, request.is_once));
            let pause = pause_of(status, headers).or_else(of_store);
            if let Some(pause) = pause.filter(|_| pauses < PAUSES_MAX) {
                if Instant::now().checked_add(pause).is_none_or(|until| until >= self.end) {
                    let text = format!("{} from {address}", reason(status));
                    return Err(failed(Cause::Expired { seconds: pause.as_secs(), text }));
                }
                body.discard().await;
                self.pause(pause).await;
                pauses += 1;
                continue;
            }
            if self.store().is_some() && object_store::is_refusal(status) {
                let cause = object_store::store_refusal(status, body, &address).await;
                let has_keys = self.store().is_none_or(ObjectStore::has_keys) || !self.url.is_object();
                return Err(failed(if has_keys { cause } else { object_store::without_keys(cause) }));
            }
            let (is_directory, is_repeated) = (is_directory && !hops.is_empty(), pauses > 0);
            let (status, headers) = (response.status(), response.into_parts().0.headers);
            return Ok(HttpReply { address, hops, is_directory, is_repeated, status, headers, body });
        }
    }

    /// Waits as the server has asked for. The turn of the request is free meanwhile.
    async fn pause(&self, pause: Duration) {
        if let Some(pacing) = self.client.pacing() {
            pacing.pause();
        }
        tokio::time::sleep(pause).await;
    }

    /// Makes a request at one address. If the server has closed a kept connection meanwhile, it is made again
    /// on a new one, because all requests of this client can be repeated.
    pub(super) async fn send_once(
        &self,
        request: &HttpRequest,
        address: &HttpAddress,
    ) -> Result<(Response<()>, HttpBody), Cause> {
        if let Some(store) = self.store().filter(|_| is_change(&request.method)) {
            store.check_change(address)?;
        }
        let begun = Instant::now();
        let late = |_: Elapsed| Cause::TimedOut(begun.elapsed().as_secs());
        let until = self.client.until(self.end).answer;
        let token = timeout_at(until, self.token(&address.server)).await.map_err(late)??;
        if let Some(pacing) = self.client.pacing() {
            timeout_at(self.end, pacing.resume()).await.map_err(late)?;
        }
        let (begun, until) = (Instant::now(), self.client.until(self.end).answer);
        let until = self.end.min(until + time_of(&request.body));
        let late = |_: Elapsed| Cause::TimedOut(begun.elapsed().as_secs());
        let mut is_new = request.is_once;
        loop {
            let pool = self.client.http_pool();
            let mut connection = pool.connection(self.client, &address.server, is_new, until).await?;
            let paced = self.client.pacing().cloned().map(PacedRequest::begin);
            let store = self.store().filter(|_| self.sends_token);
            let built = request.build(address, token.as_ref(), store)?;
            let sent = timeout_at(until, connection.sender.send_request(built)).await.map_err(late)?;
            match sent {
                Ok(response) => {
                    let (head, incoming) = response.into_parts();
                    let (silence, end) = (self.client.settings().silence(), self.end);
                    let connection = Some(connection);
                    let body = HttpBody { incoming, connection, paced, silence, end, timer: None };
                    return Ok((Response::from_parts(head, ()), body));
                }
                Err(error) if connection.is_reused && !is_new && is_closed(&error) => is_new = true,
                Err(error) => return Err(cause_of(&error)),
            }
        }
    }

    /// Returns the token for a server. No server but that of the URL gets one, and the token of the user of
    /// this process is never sent in clear text.
    pub(super) async fn token(&self, server: &HttpServer) -> Result<Option<Secret>, Cause> {
        if !self.sends_token || self.store().is_some() || *server != HttpServer::of(self.url) {
            return Ok(None);
        }
        if let Some(token) = token_of(self.url)? {
            return Ok(Some(token));
        }
        let user = self.client.pool().credentials().user().filter(|_| server.tls);
        let Some((user, places)) = user.and_then(|user| Some((user, user.tokens.as_ref()?))) else {
            return Ok(None);
        };
        user.keep_out_of_core_dumps();
        Ok(self.client.http_pool().bearer.token(places).await)
    }
}

/// Returns the time in which a body is sent at a low rate. The reply follows it.
const fn time_of(body: &Bytes) -> Duration {
    Duration::from_secs(body.len() as u64 / BODY_RATE_MIN)
}

/// Returns where a reply redirects to, if it does.
pub(super) fn redirect_of(status: StatusCode, headers: &HeaderMap) -> Option<Result<&str, Cause>> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let bad = || Cause::BadRedirect(format!("nowhere ({})", reason(status)));
    Some(text(headers, &header::LOCATION).ok_or_else(bad))
}

/// Reports whether requests of a method change something.
fn is_change(method: &Method) -> bool {
    !matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PROPFIND")
}

/// Returns the cause for which a change does not follow a redirect. It stays with its path, because the removal of
/// another one would remove what was not looked at, and with redirects that keep the method.
fn refused_redirect(status: StatusCode, from: &HttpAddress, to: &HttpAddress) -> Option<Cause> {
    if to.path().strip_suffix('/') == Some(from.path()) {
        let text = format!("{from} answers {} to the path with a slash: it is a directory", reason(status));
        return Some(Cause::Server { code: ErrorCode::IS_DIRECTORY, text });
    }
    let keeps_method = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let why = match status {
        _ if keeps_method && from.is_same_path(to) => return None,
        _ if keeps_method => "a change is not made at another path",
        StatusCode::SEE_OTHER => "the change may have been carried out",
        _ => "a change is made at the named server only; name this one",
    };
    Some(Cause::BadRedirect(format!("{to} ({}); {why}", reason(status))))
}

/// Returns the pause that a server asks for before the request is made again.
fn pause_of(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let asks = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    retry_after(headers).filter(|_| asks).map(|pause| pause.max(PAUSE_MIN))
}

/// Returns a status as text: `404 Not Found`.
pub(super) fn reason(status: StatusCode) -> String {
    format!("{} {}", status.as_str(), status.canonical_reason().unwrap_or_default()).trim().to_owned()
}

/// Reports whether the server has closed the connection before it has replied.
fn is_closed(error: &hyper::Error) -> bool {
    error.is_canceled() || error.is_closed() || error.is_incomplete_message() || io_error(error).is_some()
}

fn io_error(error: &hyper::Error) -> Option<&std::io::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// Returns the cause of a failed exchange.
pub(super) fn cause_of(error: &hyper::Error) -> Cause {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    match error {
        error if error.is_parse() && text.contains("too large") => {
            Cause::TooLarge("64 KiB of headers".to_owned())
        }
        error if error.is_parse() => Cause::BadAnswer(format!("it is not HTTP ({text})")),
        _ => Cause::Lost(text),
    }
}
