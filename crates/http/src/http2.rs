//! Connections of HTTP/2: their bounds, and the requests on their streams.
//!
//! The library decodes frames and keeps the windows. A request on a stream is served as one of HTTP/1.1 is, with a
//! [`ServedConnection`] of its own, so that memory, operations and logins end with the stream. This file adds what the
//! library does not limit: streams whose client takes nothing, requests that were reset, and connections without any.

use crate::connection_streams::{ConnectionStreams, StreamEnd};
use crate::door::ConnectionEnd;
use crate::memory::ChargedBody;
use crate::reply::RequestRefusal;
use crate::served_connection::ServedConnection;
use crate::service::{self, RequestPanic};
use crate::stream::ClientStream;
use crate::{
    HEAD_BYTES_MAX, HEADERS_MAX, HTTP2_BYTES, HTTP2_CONNECTION_WINDOW, HTTP2_IDLE_TIME_MAX,
    HTTP2_LOCAL_RESETS_MAX, HTTP2_PENDING_RESETS_MAX, HTTP2_PIECE_BYTES, HTTP2_SEND_BYTES,
    HTTP2_STREAM_WINDOW, HTTP2_STREAMS_MAX, IDLE_LOOK, LINGER_BYTES_MAX, LINGER_TIME_MAX,
};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The first bytes of a connection of HTTP/2.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocols of encrypted connections, the preferred one first. HTTP/2 is for clients that ask for it alone: uploads by
/// HTTP/1.1 have the window of TCP, and programs that wait for `100 Continue` get it.
pub(crate) const ALPN_PROTOCOLS: [&[u8]; 3] = [b"http/1.1", HTTP2_NAME, b"http/1.0"];

/// The name of HTTP/2 among them.
pub(crate) const HTTP2_NAME: &[u8] = b"h2";

/// The reason why a stream has no reply.
#[derive(Debug)]
enum StreamError {
    /// The task of the request has panicked.
    Panicked(RequestPanic),
    /// The request was not looked at. The library sends this reason.
    Refused(h2::Error),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(panic) => panic.fmt(f),
            Self::Refused(_) => f.write_str("too many requests of the connection are in progress"),
        }
    }
}

impl Error for StreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Panicked(_) => None,
            Self::Refused(reason) => Some(reason),
        }
    }
}

/// A reply that is being made.
type StreamReply = Pin<Box<dyn Future<Output = Result<Response<StreamBody>, StreamError>> + Send>>;

/// Serves a connection until its end.
pub(crate) async fn serve(connection: &Arc<ServedConnection>, stream: Box<ClientStream>) {
    let Some(_charge) = connection.memory.take_beside(HTTP2_BYTES) else {
        connection.shared().refuse(connection.address());
        return;
    };
    let streams = Arc::new(ConnectionStreams::default());
    let service = service_fn(|request| serve_stream(connection, &streams, request));
    let mut served = pin!(builder().serve_connection(TokioIo::new(stream), service));
    let mut ends = connection.shared().ends.clone();
    let (mut look, mut idle) = (pin!(sleep(IDLE_LOOK)), IdleTime(Instant::now()));
    loop {
        let end = *ends.borrow_and_update();
        match end {
            ConnectionEnd::Open => {}
            ConnectionEnd::AfterRequest => served.as_mut().graceful_shutdown(),
            ConnectionEnd::Now => return,
        }
        let progress = poll_fn(|context| match served.as_mut().poll(context) {
            Poll::Pending if streams.has_too_many_resets() => Poll::Ready(None),
            result => result.map(Some),
        });
        tokio::select! {
            result = progress => {
                match result {
                    Some(Ok(())) => {}
                    Some(Err(error)) => tracing::debug!("HTTP/2 connection: {error}"),
                    None => tracing::debug!("HTTP/2 connection: the client resets too many requests"),
                }
                return;
            }
            changed = ends.changed() => if changed.is_err() {
                return;
            },
            () = look.as_mut() => {
                let now = Instant::now();
                look.as_mut().reset(now + IDLE_LOOK);
                if streams.is_stalled(now) {
                    tracing::debug!("HTTP/2 connection: the client does not take a reply");
                    return;
                }
                match idle.look(now, streams.has_requests(), end) {
                    ConnectionEnd::Open => {}
                    ConnectionEnd::AfterRequest => served.as_mut().graceful_shutdown(),
                    ConnectionEnd::Now => return,
                }
            }
        }
    }
}

/// The time since which a connection has no request.
struct IdleTime(Instant);

impl IdleTime {
    /// Returns the end that the connection must come to. A client that does not reply to the announcement of the end has a
    /// short time only.
    fn look(&mut self, now: Instant, has_requests: bool, end: ConnectionEnd) -> ConnectionEnd {
        if has_requests {
            self.0 = now;
        }
        let limit = if end == ConnectionEnd::Open { HTTP2_IDLE_TIME_MAX } else { Duration::ZERO };
        let idle = now.saturating_duration_since(self.0);
        match () {
            () if idle >= limit + LINGER_TIME_MAX => ConnectionEnd::Now,
            () if idle >= limit => ConnectionEnd::AfterRequest,
            () => end,
        }
    }
}

/// Returns the settings of connections.
fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .max_send_buf_size(HTTP2_SEND_BYTES)
        .max_pending_accept_reset_streams(HTTP2_PENDING_RESETS_MAX)
        .max_local_error_reset_streams(HTTP2_LOCAL_RESETS_MAX);
    builder
}

/// Serves the request of a stream, whose operations end with it.
fn serve_stream(
    connection: &Arc<ServedConnection>,
    streams: &Arc<ConnectionStreams>,
    mut request: Request<Incoming>,
) -> StreamReply {
    let Some(stream) = streams.begin(connection) else {
        // It was not looked at, so the client may repeat it.
        let refused = h2::Error::from(h2::Reason::REFUSED_STREAM);
        return Box::pin(std::future::ready(Err(StreamError::Refused(refused))));
    };
    name_host(&mut request);
    let end = StreamEnd::new(streams.clone(), stream.clone());
    let is_head = request.method() == Method::HEAD;
    let reply = service::serve(stream, request);
    Box::pin(async move {
        let mut reply = reply.await.map_err(StreamError::Panicked)?;
        set_length(&mut reply);
        Ok(reply.map(|body| StreamBody { body, rest: Bytes::new(), end, is_head }))
    })
}

/// Discards the rest of a body for a while. A client that sends it would otherwise learn that the stream is reset, and some take
/// that for the reply.
pub(crate) async fn discard(mut body: Incoming, _stream: Arc<ServedConnection>) {
    let rest = async {
        let mut left = LINGER_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // After that the library resets the stream.
    let _ = timeout(LINGER_TIME_MAX, rest).await;
}

/// Sets the length of a reply as the library does for HTTP/1.1: also that of an empty body, and of one that HEAD leaves out.
fn set_length<B: Body>(reply: &mut Response<B>) {
    let status = reply.status();
    if status.is_informational() || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status) {
        return;
    }
    if let Some(length) = reply.body().size_hint().exact() {
        reply.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
}

/// Gives a request without a header `Host` the one that its authority is.
fn name_host<T>(request: &mut Request<T>) {
    let authority = request.uri().authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    if let Some(Ok(authority)) = authority
        && !request.headers().contains_key(HOST)
    {
        request.headers_mut().insert(HOST, authority);
    }
}

/// Checks the head of a request, if it is one of HTTP/2.
pub(crate) fn check_head(head: &Parts) -> Result<(), RequestRefusal> {
    if head.version != Version::HTTP_2 {
        return Ok(());
    }
    if head.headers.len() > HEADERS_MAX {
        let text = "The request has too many headers.";
        return Err(RequestRefusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text));
    }
    let Some(authority) = head.uri.authority() else { return Ok(()) };
    let is_host = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
    if authority.as_str().contains('@') || !head.headers.get_all(HOST).iter().all(is_host) {
        return Err(RequestRefusal::new(StatusCode::BAD_REQUEST, "The request names two hosts, or a user."));
    }
    Ok(())
}

/// The body of a reply, in pieces. Each of them is known to be taken or not.
pub(crate) struct StreamBody {
    body: ChargedBody,
    /// The rest of the last part.
    rest: Bytes,
    end: StreamEnd,
    /// The request was HEAD, whose reply has no body.
    is_head: bool,
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        if self.is_end_stream() {
            self.end.is_whole();
        }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if this.is_head {
            return Poll::Ready(None);
        }
        while this.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(context)).transpose()? else {
                this.end.is_whole();
                return Poll::Ready(None);
            };
            match frame.into_data() {
                Ok(bytes) => this.rest = bytes,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(HTTP2_PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(this.end.hand_out(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_head || (self.rest.is_empty() && self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        match self.body.size_hint().exact() {
            Some(length) => SizeHint::with_exact(length.saturating_add(rest)),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(uri: &str, hosts: &[&str]) -> Result<Option<String>, StatusCode> {
        let mut request = Request::get(uri).version(Version::HTTP_2);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let mut request = request.body(()).unwrap();
        name_host(&mut request);
        let (head, ()) = request.into_parts();
        check_head(&head).map_err(|refusal| refusal.status().unwrap())?;
        Ok(head.headers.get(HOST).map(|host| host.to_str().unwrap().to_owned()))
    }

    #[test]
    fn the_authority_is_the_host() {
        let some = |host: &str| Ok(Some(host.to_owned()));
        assert_eq!(checked("http://h:1094/f", &[]), some("h:1094"));
        assert_eq!(checked("http://h:1094/f", &["H:1094"]), some("H:1094"));
        assert_eq!(checked("/f", &["h"]), some("h"));
        assert_eq!(checked("/f", &[]), Ok(None), "refused as in HTTP/1.1");
        for (uri, hosts) in [
            ("http://h/f", &["other"][..]),
            ("http://h/f", &["h:80"]),
            ("http://h/f", &["h", "other"]),
            ("http://user@h/f", &[]),
            ("http://user@h/f", &["user@h"]),
        ] {
            assert_eq!(checked(uri, hosts), Err(StatusCode::BAD_REQUEST), "{uri} {hosts:?}");
        }
    }

    #[test]
    fn a_connection_without_requests_ends() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let (open, after, now) = (ConnectionEnd::Open, ConnectionEnd::AfterRequest, ConnectionEnd::Now);
        let mut idle = IdleTime(begin);
        let busy_until = begin + 10 * HTTP2_IDLE_TIME_MAX;
        assert_eq!(idle.look(busy_until, true, open), open);
        assert_eq!(idle.look(busy_until + HTTP2_IDLE_TIME_MAX - second, false, open), open);
        assert_eq!(idle.look(busy_until + HTTP2_IDLE_TIME_MAX, false, open), after);
        assert_eq!(idle.look(busy_until + HTTP2_IDLE_TIME_MAX + LINGER_TIME_MAX, false, open), now);
        // A server that ends waits for requests only.
        let mut idle = IdleTime(begin);
        assert_eq!(idle.look(busy_until, true, after), after);
        assert_eq!(idle.look(busy_until + LINGER_TIME_MAX - second, false, after), after);
        assert_eq!(idle.look(busy_until + LINGER_TIME_MAX, false, after), now);
    }

    #[test]
    fn headers_are_counted() {
        let status = |number: usize| {
            let names = (0..number).map(|at| format!("x-{at}"));
            let request = names
                .fold(Request::get("/").version(Version::HTTP_2), |request, name| request.header(name, "1"));
            let (head, ()) = request.body(()).unwrap().into_parts();
            check_head(&head).err().and_then(|refusal| refusal.status())
        };
        assert_eq!(status(HEADERS_MAX), None);
        assert_eq!(status(HEADERS_MAX + 1), Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    }
}
