//! One connection: the handshake of TLS, then its requests by hyper.

use crate::counters::ConnectionBytes;
use crate::door::{ConnectionEnd, HttpFrontEnd};
use crate::host_shares::{HeldShare, SharedPart};
use crate::service::{self, ServedConnection};
use crate::stream::{ClientStream, ClientTransport, RewoundStream};
use crate::{BUFFER_BYTES_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX, HEADERS_MAX};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use net::LoopPresence;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, CertificateError};

/// The place of a connection in the limits of the front end. Its requests in progress keep it.
pub(crate) struct HttpPermit {
    shared: Arc<HttpFrontEnd>,
    _share: HeldShare,
    _presence: LoopPresence,
    since: Instant,
}

impl HttpPermit {
    pub(crate) fn new(shared: Arc<HttpFrontEnd>, share: HeldShare, presence: LoopPresence) -> Self {
        Self { shared, _share: share, _presence: presence, since: Instant::now() }
    }

    pub(crate) fn shared(&self) -> &Arc<HttpFrontEnd> {
        &self.shared
    }
}

impl Drop for HttpPermit {
    fn drop(&mut self) {
        self.shared.leave(self.since.elapsed());
    }
}

/// Serves a connection until its end. `first` are the bytes that were read before.
pub(crate) async fn serve(permit: HttpPermit, socket: TcpStream, peer: SocketAddr, first: Vec<u8>) {
    let Ok(socket) = tokio::net::TcpStream::from_std(socket) else { return };
    // Replies are written whole, so that waiting for more would only delay their end.
    let _ = socket.set_nodelay(true);
    let is_tls = first.first() == Some(&0x16);
    let bytes = ConnectionBytes::new(permit.shared().counters.clone());
    let stream = RewoundStream::new(first, socket, bytes);
    let Some(transport) = transport(permit.shared(), stream, is_tls, peer).await else { return };
    let certificates = certificates(&transport);
    let connection = ServedConnection::new(permit, peer, is_tls, certificates);
    requests(&connection, ClientStream::new(transport, connection.shared().clone())).await;
    connection.disconnect();
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
    let acceptor = TlsAcceptor::from(server.config());
    match tokio::time::timeout(server.limit(), acceptor.accept(stream)).await {
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

/// Serves the requests of a connection.
async fn requests(connection: &Arc<ServedConnection>, stream: ClientStream) {
    let service = service_fn(|request| service::serve(connection.clone(), request));
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            .title_case_headers(true)
            .serve_connection(TokioIo::new(stream), service)
    );
    let mut ends = connection.shared().ends.clone();
    loop {
        match *ends.borrow_and_update() {
            ConnectionEnd::Open => {}
            ConnectionEnd::AfterRequest => served.as_mut().graceful_shutdown(),
            ConnectionEnd::Now => return,
        }
        tokio::select! {
            result = served.as_mut() => {
                if let Err(error) = result {
                    if error.is_parse() {
                        connection.shared().counters.malformed();
                    }
                    tracing::debug!("HTTP connection: {error}");
                }
                return;
            }
            changed = ends.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}
