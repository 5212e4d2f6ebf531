//! [`HttpTransfer`]: one file, whole, from or to a server, with the headers of the caller.
//!
//! It serves third-party copies. The caller has the URL of its client, whose query is sent as it is, and
//! a limit of time for data that does not arrive. Each transfer has a connection of its own.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::address::{HttpAddress, HttpServer};
use super::downloaded_file::DownloadedFile;
use super::exchange::{AGENT, REDIRECTS_MAX, cause_of, reason, redirect_of};
use super::headers::{ContentRange, check_encoding, content_length, text};
use super::pool::open_connection;
use crate::abort_on_drop::AbortOnDrop;
use crate::client::Client;
use crate::failure::Cause;

/// Time for which an upload waits for `100 Continue`. A server that does not know it sends nothing.
const CONTINUE_TIME: Duration = Duration::from_secs(1);

/// Maximum size of the text of an error that is read.
const REFUSAL_BYTES_MAX: usize = 1024;
/// Maximum time for it.
const REFUSAL_TIME: Duration = Duration::from_secs(2);

/// Starts to read the file of an upload from its beginning.
pub type UploadSource = Arc<dyn Fn() -> mpsc::Receiver<io::Result<Bytes>> + Send + Sync>;

/// The failure of a transfer.
#[derive(Clone, Debug)]
pub enum TransferFailure {
    /// A usable reply is missing.
    Cause(Cause),
    /// The server has replied with an error.
    Status {
        /// The status.
        status: StatusCode,
        /// The beginning of the text of the reply. It is that of a foreign server.
        text: String,
    },
}

impl From<Cause> for TransferFailure {
    fn from(cause: Cause) -> Self {
        Self::Cause(cause)
    }
}

impl fmt::Display for TransferFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cause(cause) => cause.fmt(f),
            Self::Status { status, .. } => write!(f, "it answers {}", reason(*status)),
        }
    }
}

fn odd(what: &str) -> Cause {
    Cause::BadArgument(format!("the {what} cannot be sent to an HTTP server"))
}

/// One file at a server.
pub struct HttpTransfer {
    client: Client,
    address: HttpAddress,
    headers: HeaderMap,
    reply_time: Duration,
    on_connect: Box<dyn Fn(SocketAddr) + Send + Sync>,
}

impl HttpTransfer {
    /// Creates the transfer of the file with this URL, by requests with these headers. A reply must begin
    /// within `reply_time`. `on_connect` gets the address of each server that is connected to.
    ///
    /// # Errors
    /// [`Cause`]: it is not the URL of a file of HTTP.
    pub fn new(
        client: &Client,
        url: &str,
        headers: HeaderMap,
        reply_time: Duration,
        on_connect: impl Fn(SocketAddr) + Send + Sync + 'static,
    ) -> Result<Self, Cause> {
        let (client, address) = (client.clone(), HttpAddress::parse(url)?);
        Ok(Self { client, address, headers, reply_time, on_connect: Box::new(on_connect) })
    }

    /// Creates the transfer of the file at an address, as [`HttpTransfer::new`] does.
    pub(super) fn at(
        client: &Client,
        address: HttpAddress,
        headers: HeaderMap,
        reply_time: Duration,
    ) -> Self {
        Self { client: client.clone(), address, headers, reply_time, on_connect: Box::new(|_| {}) }
    }

    /// Returns the headers of the file.
    ///
    /// # Errors
    /// [`TransferFailure`].
    pub async fn head(&self, more: HeaderMap) -> Result<HeaderMap, TransferFailure> {
        let reply = self.send(&Method::HEAD, &more, None).await?;
        Ok(reply.headers)
    }

    /// Begins to receive the file.
    ///
    /// # Errors
    /// [`TransferFailure`]: also if the end of the file could be that of a lost connection.
    pub async fn get(&self, more: HeaderMap) -> Result<DownloadedFile, TransferFailure> {
        let reply = self.send(&Method::GET, &more, None).await?;
        check_encoding(&reply.headers)?;
        let is_chunked = is_chunked(&reply.headers)?;
        let size = content_length(&reply.headers);
        if reply.status != StatusCode::OK {
            let text = format!("it answers {} to a request for the whole file", reason(reply.status));
            return Err(Cause::BadAnswer(text).into());
        }
        if size.is_none() && !is_chunked {
            let text = "the file has neither a length nor chunks, so its end would not be known";
            return Err(Cause::BadAnswer(text.to_owned()).into());
        }
        Ok(DownloadedFile {
            size,
            headers: reply.headers,
            incoming: reply.incoming,
            _connection: reply.connection,
        })
    }

    /// Begins to receive a range `(offset, length)` of a file of `size` bytes, whose strong entity tag is `tag` if it
    /// has one.
    ///
    /// # Errors
    /// [`TransferFailure`]: also if the server replies with something else than this range of this version.
    pub async fn get_range(
        &self,
        (offset, length): (u64, u64),
        size: u64,
        tag: Option<&str>,
    ) -> Result<DownloadedFile, TransferFailure> {
        let last = offset.saturating_add(length).saturating_sub(1);
        let mut more = HeaderMap::new();
        more.insert(
            header::RANGE,
            HeaderValue::from_str(&format!("bytes={offset}-{last}")).map_err(|_| odd("range"))?,
        );
        if let Some(tag) = tag {
            more.insert(header::IF_MATCH, HeaderValue::from_str(tag).map_err(|_| odd("entity tag"))?);
        }
        let reply = self.send(&Method::GET, &more, None).await?;
        check_encoding(&reply.headers)?;
        let found = text(&reply.headers, &header::CONTENT_RANGE).and_then(ContentRange::parse);
        let wanted = ContentRange { bytes: Some((offset, last)), total: Some(size) };
        let is_other = |found: &str| tag.is_some_and(|tag| tag != found);
        let has_length = match content_length(&reply.headers) {
            Some(found) => found == length,
            None => is_chunked(&reply.headers)?,
        };
        if reply.status != StatusCode::PARTIAL_CONTENT
            || found != Some(wanted)
            || text(&reply.headers, &header::ETAG).is_some_and(is_other)
            || !has_length
        {
            let text =
                format!("it answers {} to a request for a range, or another range", reason(reply.status));
            return Err(Cause::BadAnswer(text).into());
        }
        let TransferReply { headers, incoming, connection, .. } = reply;
        Ok(DownloadedFile { size: Some(length), headers, incoming, _connection: connection })
    }

    /// Orders a copy between the server and another one (COPY), which these headers name. The reply arrives while the
    /// copy is made.
    pub(super) async fn order_copy(&self, more: HeaderMap) -> Result<DownloadedFile, TransferFailure> {
        let method = Method::from_bytes(b"COPY").unwrap_or(Method::OPTIONS);
        let TransferReply { headers, incoming, connection, .. } = self.send(&method, &more, None).await?;
        Ok(DownloadedFile { size: None, headers, incoming, _connection: connection })
    }

    /// Sends a file of `length` bytes.
    ///
    /// # Errors
    /// [`TransferFailure`].
    pub async fn put(
        &self,
        more: HeaderMap,
        length: u64,
        source: &UploadSource,
    ) -> Result<(), TransferFailure> {
        let upload = Upload { length, source: source.clone(), sent: Mutex::default() };
        self.send(&Method::PUT, &more, Some(&upload)).await?;
        if upload.sent() < length {
            let text = "it reports success before it has received the file";
            return Err(Cause::BadAnswer(text.to_owned()).into());
        }
        Ok(())
    }

    /// Makes a request, and follows redirects.
    async fn send(
        &self,
        method: &Method,
        more: &HeaderMap,
        upload: Option<&Upload>,
    ) -> Result<TransferReply, TransferFailure> {
        let (mut address, mut visited) = (self.address.clone(), vec![self.address.clone()]);
        loop {
            let mut reply = self.send_once(method, more, upload, &address).await?;
            if let Some(location) = redirect_of(reply.status, &reply.headers) {
                if !matches!(*method, Method::GET | Method::HEAD) && reply.status == StatusCode::SEE_OTHER {
                    return Err(Cause::BadRedirect(format!("the result of {method}")).into());
                }
                let next = address.redirected(location?)?;
                if visited.contains(&next) {
                    return Err(Cause::RedirectLoop.into());
                }
                if visited.len() as u64 > REDIRECTS_MAX {
                    return Err(Cause::RedirectLimit(REDIRECTS_MAX).into());
                }
                visited.push(next.clone());
                address = next;
                continue;
            }
            if !reply.status.is_success() {
                let text = timeout(REFUSAL_TIME, text_of(&mut reply.incoming)).await.unwrap_or_default();
                return Err(TransferFailure::Status { status: reply.status, text });
            }
            return Ok(reply);
        }
    }

    /// Makes a request at one address.
    async fn send_once(
        &self,
        method: &Method,
        more: &HeaderMap,
        upload: Option<&Upload>,
        address: &HttpAddress,
    ) -> Result<TransferReply, Cause> {
        let until = Instant::now() + self.reply_time;
        let (mut sender, connection) = self.connect(&address.server, until).await?;
        let (go, may_begin) = oneshot::channel();
        let body = match upload {
            Some(upload) => TransferBody::upload(upload, may_begin),
            None => TransferBody::Empty,
        };
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        self.fill(&mut request, more, upload, address)?;
        let go = Mutex::new(Some(go));
        hyper::ext::on_informational(&mut request, move |response| {
            if response.status() != StatusCode::CONTINUE {
                return;
            }
            let go = go.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(go) = go {
                // The upload may have begun without it.
                let _ = go.send(());
            }
        });
        let begun = Instant::now();
        // The owner of an upload limits its time, because its progress is that of the file.
        let sent = match upload {
            Some(_) => sender.send_request(request).await,
            None => {
                let late = |_| Cause::TimedOut(begun.elapsed().as_secs());
                timeout_at(until, sender.send_request(request)).await.map_err(late)?
            }
        };
        let (head, incoming) = sent.map_err(|error| cause_of(&error)).map(Response::into_parts)?;
        let connection = OwnConnection { _sender: sender, _driver: connection };
        Ok(TransferReply { status: head.status, headers: head.headers, incoming, connection })
    }

    /// Sets the target and the headers of a request.
    fn fill(
        &self,
        request: &mut Request<TransferBody>,
        more: &HeaderMap,
        upload: Option<&Upload>,
        address: &HttpAddress,
    ) -> Result<(), Cause> {
        *request.uri_mut() = address.target().parse().map_err(|_| odd("path"))?;
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        for (name, value) in self.headers.iter().chain(more) {
            headers.append(name.clone(), value.clone());
        }
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if address.server != self.address.server {
            // Another server must not get the credentials for the first one.
            for name in [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION] {
                headers.remove(name);
            }
        }
        let host = HeaderValue::from_str(&address.server.host_header()).map_err(|_| odd("host"))?;
        headers.insert(header::HOST, host);
        if let Some(upload) = upload {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(upload.length));
            if upload.length > 0 {
                headers.insert(header::EXPECT, HeaderValue::from_static("100-continue"));
            }
        }
        Ok(())
    }

    async fn connect(
        &self,
        server: &HttpServer,
        until: Instant,
    ) -> Result<(SendRequest<TransferBody>, AbortOnDrop<()>), Cause> {
        let window = Duration::from_secs(self.client.settings().connection_window.max(1));
        let until = until.min(Instant::now() + window);
        let opened = open_connection(&self.client, server, until, |peer| (self.on_connect)(peer));
        let (sender, connection) = opened.await?;
        // The request learns of the error.
        let driver = AbortOnDrop::spawn(async move { drop(connection.await) });
        Ok((sender, driver))
    }
}

/// Reports whether a body has chunks, or fails if it has another transfer coding. A body with another
/// one ends with the connection, and its coding would be stored as if it were the file.
fn is_chunked(headers: &HeaderMap) -> Result<bool, Cause> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(true),
        (Some(_), _) => {
            Err(Cause::BadAnswer("the file has another transfer coding than chunks, once".to_owned()))
        }
    }
}

/// Returns the beginning of the text of a reply.
async fn text_of(incoming: &mut Incoming) -> String {
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = incoming.frame().await {
        bytes.extend_from_slice(frame.data_ref().map(Bytes::as_ref).unwrap_or_default());
        if bytes.len() >= REFUSAL_BYTES_MAX {
            break;
        }
    }
    bytes.truncate(REFUSAL_BYTES_MAX);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The connection of a transfer. It ends on drop.
pub(super) struct OwnConnection {
    _sender: SendRequest<TransferBody>,
    _driver: AbortOnDrop<()>,
}

struct TransferReply {
    status: StatusCode,
    headers: HeaderMap,
    incoming: Incoming,
    connection: OwnConnection,
}

/// A file to be sent, which each request sends from its beginning.
struct Upload {
    length: u64,
    source: UploadSource,
    /// Number of bytes that the last request has sent. Each request has a counter of its own, because the
    /// connection of an earlier one may still be ending.
    sent: Mutex<Arc<AtomicU64>>,
}

impl Upload {
    /// Returns the counter of a new request.
    fn restart(&self) -> Arc<AtomicU64> {
        let new = Arc::<AtomicU64>::default();
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = new.clone();
        new
    }

    fn sent(&self) -> u64 {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).load(Ordering::Relaxed)
    }
}

/// The body of a request.
enum TransferBody {
    Empty,
    /// A file whose reading has not begun. The server may refuse or redirect the request before.
    Waiting {
        may_begin: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
        source: UploadSource,
        left: u64,
        sent: Arc<AtomicU64>,
    },
    Sending {
        parts: mpsc::Receiver<io::Result<Bytes>>,
        left: u64,
        sent: Arc<AtomicU64>,
    },
}

impl TransferBody {
    fn upload(upload: &Upload, may_begin: oneshot::Receiver<()>) -> Self {
        let sent = upload.restart();
        if upload.length == 0 {
            return Self::Empty;
        }
        let may_begin = Box::pin(async move {
            match timeout(CONTINUE_TIME, may_begin).await {
                // Without `100 Continue`, the upload begins after this time.
                Ok(Ok(())) | Err(_) => {}
                // The reply is there, so the server does not want the file. The request ends by being dropped.
                Ok(Err(_)) => std::future::pending().await,
            }
        });
        Self::Waiting { may_begin, source: upload.source.clone(), left: upload.length, sent }
    }
}

impl Body for TransferBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Self::Waiting { may_begin, source, left, sent } = &mut *self {
            ready!(may_begin.as_mut().poll(context));
            *self = Self::Sending { parts: source(), left: *left, sent: sent.clone() };
        }
        let Self::Sending { parts, left, sent } = &mut *self else { return Poll::Ready(None) };
        if *left == 0 {
            return Poll::Ready(None);
        }
        let wrong = |what: &str| Poll::Ready(Some(Err(io::Error::other(what.to_owned()))));
        match ready!(parts.poll_recv(context)) {
            Some(Ok(data)) => {
                let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
                let Some(rest) = left.checked_sub(length) else { return wrong("the file has become longer") };
                *left = rest;
                sent.fetch_add(length, Ordering::Relaxed);
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => wrong("the file has become shorter"),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Waiting { left, .. } | Self::Sending { left, .. } => *left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Waiting { left, .. } | Self::Sending { left, .. } => SizeHint::with_exact(*left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::AddressFilter;
    use crate::credentials::Credentials;
    use crate::settings::Settings;
    use std::sync::atomic::AtomicUsize;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Time after which a test fails.
    const TEST_TIME: Duration = Duration::from_secs(60);

    fn transfer(url: &str) -> HttpTransfer {
        let filter = AddressFilter::new(|_, address| Ok(vec![address]));
        let client = Client::for_server(Settings::default(), "test", filter, None, Credentials::none());
        HttpTransfer::new(&client, url, HeaderMap::new(), TEST_TIME, |_| {}).unwrap()
    }

    /// Takes one request, sends a reply, and returns the number of bytes that follow the head.
    async fn reply_once(listener: TcpListener, reply: &'static str) -> usize {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut taken = Vec::new();
        let head = loop {
            if let Some(at) = taken.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            assert_ne!(stream.read_buf(&mut taken).await.unwrap(), 0, "no whole head");
        };
        stream.write_all(reply.as_bytes()).await.unwrap();
        // The end can be one of an aborted connection.
        let _ = stream.read_to_end(&mut taken).await;
        taken.len() - head
    }

    #[tokio::test]
    async fn nothing_is_sent_after_a_refusal() {
        let answered = async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/f", listener.local_addr().unwrap());
            let reply = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
            let server = tokio::spawn(reply_once(listener, reply));
            let started = Arc::<AtomicUsize>::default();
            let counted = started.clone();
            let source: UploadSource = Arc::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                let (to, parts) = mpsc::channel(1);
                to.try_send(Ok(Bytes::from_static(b"seven b"))).unwrap();
                parts
            });
            let put = transfer(&url).put(HeaderMap::new(), 7, &source).await;
            assert!(
                matches!(&put, Err(TransferFailure::Status { status, text }) if *status == 403 && text == "no"),
                "{put:?}"
            );
            assert_eq!(server.await.unwrap(), 0, "bytes of the file");
            assert_eq!(started.load(Ordering::Relaxed), 0, "the file is read");
        };
        timeout(TEST_TIME, answered).await.unwrap();
    }

    #[test]
    fn requests_count_their_own_bytes() {
        let source: UploadSource = Arc::new(|| mpsc::channel(1).1);
        let upload = Upload { length: 7, source, sent: Mutex::default() };
        let first = upload.restart();
        let second = upload.restart();
        first.fetch_add(7, Ordering::Relaxed);
        assert_eq!(upload.sent(), 0);
        second.fetch_add(3, Ordering::Relaxed);
        assert_eq!(upload.sent(), 3);
    }

    #[test]
    fn a_file_has_no_coding_but_chunks() {
        let found = |values: &[&'static str]| {
            let pairs =
                values.iter().map(|value| (header::TRANSFER_ENCODING, HeaderValue::from_static(value)));
            is_chunked(&pairs.collect()).ok()
        };
        assert_eq!(found(&[]), Some(false));
        assert_eq!(found(&["Chunked"]), Some(true));
        for values in [
            &["chunked", "gzip"][..],
            &["gzip", "chunked"],
            &["chunked", "chunked"],
            &["gzip, chunked"],
            &["identity"],
        ] {
            assert_eq!(found(values), None, "{values:?}");
        }
    }
}
