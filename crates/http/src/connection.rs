//! One connection: the handshake of TLS, then its requests by hyper. Those of HTTP/2 are in `http2`.

use crate::counters::ConnectionBytes;
use crate::door::{ConnectionEnd, HttpFrontEnd};
use crate::handover::HandedFile;
use crate::host_shares::{HeldShare, SharedPart};
use crate::http2::{self, ALPN_PROTOCOLS, HTTP2_NAME, PREFACE};
use crate::served_connection::ServedConnection;
use crate::service;
use crate::stream::{ClientStream, ClientTransport, RewoundStream};
use crate::{BUFFER_BYTES_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX, HEADERS_MAX, IDLE_LOOK, IDLE_TIME_MAX};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use net::LoopPresence;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Instant;
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, CertificateError};

/// The place of a connection in the limits of the front end. Its requests in progress keep it.
pub(crate) struct HttpPermit {
    shared: Arc<HttpFrontEnd>,
    share: Mutex<HeldShare>,
    _presence: LoopPresence,
    since: Instant,
}

impl HttpPermit {
    pub(crate) fn new(shared: Arc<HttpFrontEnd>, share: HeldShare, presence: LoopPresence) -> Self {
        Self { shared, share: Mutex::new(share), _presence: presence, since: Instant::now() }
    }

    /// Takes the place of an idle connection, or of another one. Reports whether there was one.
    pub(crate) fn count_as_idle(&self, is_idle: bool) -> bool {
        let part = if is_idle { SharedPart::Idle } else { SharedPart::Connection };
        let has_place = self.share.lock().unwrap_or_else(PoisonError::into_inner).exchange(part);
        if has_place {
            self.shared.counters.idle(is_idle);
        }
        has_place
    }

    pub(crate) fn shared(&self) -> &Arc<HttpFrontEnd> {
        &self.shared
    }
}

impl Drop for HttpPermit {
    fn drop(&mut self) {
        let share = self.share.get_mut().unwrap_or_else(PoisonError::into_inner);
        if share.part() == SharedPart::Idle {
            self.shared.counters.idle(false);
        }
        self.shared.leave(self.since.elapsed());
    }
}

/// The reply to a request on an idle connection for which there is no place. The client may repeat the request.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 5\r\n\r\n";

/// Serves a connection until its end. `first` are the bytes that were read before.
pub(crate) fn serve(
    permit: HttpPermit,
    socket: TcpStream,
    peer: SocketAddr,
    first: Vec<u8>,
) -> impl Future<Output = ()> + Send {
    // The state of the handshake and of requests is boxed: a task keeps the memory of its largest state until its end.
    let begin = Box::pin(begin(permit, socket, peer, first));
    async move {
        let Some((connection, mut stream, is_http2)) = begin.await else { return };
        if is_http2 {
            Box::pin(http2::serve(&connection, stream)).await;
            connection.disconnect();
            return;
        }
        loop {
            let paused = Box::pin(requests(&connection, stream)).await;
            let Some((paused, pause)) = paused else { break };
            stream = paused;
            let goes_on = match pause {
                ConnectionPause::Idle => keep_idle(&connection, &mut stream).await,
                ConnectionPause::Handover(file) => Box::pin(file.send(&connection, &mut stream)).await,
            };
            if !goes_on {
                break;
            }
        }
        connection.disconnect();
    }
}

/// Returns a connection after its handshake, and whether it is one of HTTP/2.
async fn begin(
    permit: HttpPermit,
    socket: TcpStream,
    peer: SocketAddr,
    first: Vec<u8>,
) -> Option<(Arc<ServedConnection>, Box<ClientStream>, bool)> {
    let socket = tokio::net::TcpStream::from_std(socket).ok()?;
    // Replies are written whole, so that waiting for more would only delay their end.
    let _ = socket.set_nodelay(true);
    let is_tls = first.first() == Some(&0x16);
    let has_preface = permit.shared().config.http2 && first.starts_with(PREFACE);
    let bytes = ConnectionBytes::new(permit.shared().counters.clone());
    let stream = RewoundStream::new(first, socket, bytes);
    let transport = transport(permit.shared(), stream, is_tls, peer).await?;
    let certificates = certificates(&transport);
    let is_http2 = has_preface || has_agreed_on_http2(&transport);
    let connection = ServedConnection::new(permit, peer, is_tls, certificates);
    let stream = ClientStream::new(transport, connection.shared().clone(), connection.activity.clone());
    Some((connection, Box::new(stream), is_http2))
}

/// Keeps an idle connection without buffers until its client sends something. Returns `false` if it is to end.
async fn keep_idle(connection: &ServedConnection, stream: &mut ClientStream) -> bool {
    if stream.has_begun_request() || !connection.count_as_idle(true) {
        connection.activity.stay();
        return true;
    }
    connection.free_request_state().await;
    stream.free_timer();
    let mut ends = connection.shared().ends.clone();
    let has_sent = tokio::select! {
        has_sent = timeout(IDLE_TIME_MAX, stream.has_sent()) => has_sent.unwrap_or(false),
        _ = ends.wait_for(|end| *end != ConnectionEnd::Open) => false,
    };
    if !has_sent {
        // The client may be gone.
        let _ = stream.shutdown().await;
        return false;
    }
    if !connection.count_as_idle(false) {
        connection.shared().refuse(connection.address());
        // Without a reply, it would not be known whether the request was carried out.
        if stream.write_all(BUSY).await.is_ok() {
            let _ = stream.shutdown().await;
        }
        return false;
    }
    true
}

async fn transport(
    shared: &Arc<HttpFrontEnd>,
    stream: RewoundStream,
    is_tls: bool,
    peer: SocketAddr,
) -> Option<ClientTransport> {
    if !is_tls {
        return Some(ClientTransport::Plain(stream));
    }
    let server = shared.config.tls.as_ref()?;
    let Some(_share) = shared.shares.take(peer.ip(), SharedPart::Handshake) else {
        shared.refuse(peer.ip());
        return None;
    };
    let mut config = server.config();
    if shared.config.http2 {
        Arc::make_mut(&mut config).alpn_protocols = ALPN_PROTOCOLS.map(<[u8]>::to_vec).into();
    }
    let acceptor = TlsAcceptor::from(config);
    match timeout(server.limit(), acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(ClientTransport::Tls(Box::new(stream))),
        Ok(Err(error)) => {
            note_failure(shared, peer, &error);
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake of {peer}: not complete in time");
            None
        }
    }
}

/// Maximum length of a reason in the log in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// Logs a handshake that failed. The user of a refused certificate learns the reason only from here.
fn note_failure(shared: &HttpFrontEnd, peer: SocketAddr, error: &io::Error) {
    let reason = error.get_ref().and_then(|reason| reason.downcast_ref::<rustls::Error>());
    match reason {
        Some(rustls::Error::InvalidCertificate(reason)) => {
            // The handshake has failed on this thread just now.
            let reason = auth::tls::take_refused_chain().unwrap_or_else(|| reason_of(reason));
            let Some(others) = shared.refused_certificates.admit() else { return };
            let reason = reason.get(..reason.floor_char_boundary(REASON_BYTES_MAX)).unwrap_or_default();
            tracing::info!(
                "https: {peer}: the certificate of the client is refused: {}{others}",
                base::shown(reason)
            );
        }
        _ => tracing::debug!("TLS handshake of {peer}: {error}"),
    }
}

/// Returns the reason of the verifier, which the library only shows in the form for programmers.
fn reason_of(reason: &CertificateError) -> String {
    match reason {
        CertificateError::Expired => "it has expired".to_owned(),
        CertificateError::NotValidYet => "it is not valid yet".to_owned(),
        CertificateError::Revoked => "it was revoked".to_owned(),
        CertificateError::UnknownIssuer => "it is of an unknown authority".to_owned(),
        CertificateError::BadSignature => "a signature is wrong".to_owned(),
        CertificateError::BadEncoding => "it is malformed".to_owned(),
        CertificateError::Other(other) => other.0.to_string(),
        reason => reason.to_string(),
    }
}

/// Returns the certificates that the client has shown.
fn certificates(transport: &ClientTransport) -> Option<Arc<[Vec<u8>]>> {
    let ClientTransport::Tls(stream) = transport else { return None };
    let (_, connection) = stream.get_ref();
    let chain = connection.peer_certificates().filter(|chain| !chain.is_empty())?;
    Some(chain.iter().map(|certificate| certificate.to_vec()).collect())
}

/// Reports whether the handshake has chosen HTTP/2.
fn has_agreed_on_http2(transport: &ClientTransport) -> bool {
    match transport {
        ClientTransport::Plain(_) => false,
        ClientTransport::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(HTTP2_NAME),
    }
}

/// Why a connection is taken from the library for a while.
enum ConnectionPause {
    Idle,
    Handover(HandedFile),
}

/// Serves the requests of a connection. Returns its stream when the library is not needed, and nothing at its end.
async fn requests(
    connection: &Arc<ServedConnection>,
    stream: Box<ClientStream>,
) -> Option<(Box<ClientStream>, ConnectionPause)> {
    let service = service_fn(|request| service::serve(connection.clone(), request));
    let mut served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut ends = connection.shared().ends.clone();
    let (mut look, mut seen) = (pin!(sleep(IDLE_LOOK)), 0);
    let pause = loop {
        match *ends.borrow_and_update() {
            ConnectionEnd::Open => {}
            ConnectionEnd::AfterRequest => Pin::new(&mut served).graceful_shutdown(),
            ConnectionEnd::Now => return None,
        }
        let progress = poll_fn(|context| {
            let result = Pin::new(&mut served).poll(context);
            match connection.handover.take(&connection.activity) {
                Some(file) if result.is_pending() => Poll::Ready(Err(file)),
                _ => result.map(Ok),
            }
        });
        tokio::select! {
            progress = progress => match progress {
                Ok(result) => {
                    note_end(connection, result);
                    return None;
                }
                Err(file) => break ConnectionPause::Handover(file),
            },
            changed = ends.changed() => if changed.is_err() {
                return None;
            },
            () = look.as_mut() => {
                look.as_mut().reset(tokio::time::Instant::now() + IDLE_LOOK);
                // An encrypted one keeps its state, which is larger than the buffers.
                let may_rest = !connection.is_tls() && *ends.borrow() == ConnectionEnd::Open;
                if may_rest && connection.activity.is_idle(&mut seen) {
                    break ConnectionPause::Idle;
                }
            }
        }
    };
    let parts = served.into_parts();
    let mut stream = parts.io.into_inner();
    if !parts.read_buf.is_empty() {
        // The begin of a request, which came with the one before.
        stream.read_again(parts.read_buf);
    }
    Some((stream, pause))
}

/// Counts and logs the end of a connection.
fn note_end(connection: &ServedConnection, result: hyper::Result<()>) {
    let Err(error) = result else { return };
    if error.is_parse() {
        connection.shared().counters.malformed();
    }
    tracing::debug!("HTTP connection: {error}");
}
