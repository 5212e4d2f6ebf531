//! The socket of one connection to a server, in clear text or with TLS.
//!
//! It has the non-blocking calls of a [`TcpStream`], so that the driver of a connection does not know
//! whether it is encrypted.

use bytes::BufMut;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};
use std::future::poll_fn;
use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::net::TcpStream;
use tokio::task::coop;

/// Size of one receive of encrypted bytes.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Maximum number of bytes that are encrypted before the socket must have taken the earlier ones.
const ENCRYPTED_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of steps without data, of 4 KiB each, until other tasks run. Records may be empty
/// without end.
const STEPS_MAX: usize = 16;

/// Maximum number of bytes that a server sends in a handshake. A long chain of certificates is 20 KiB.
const HANDSHAKE_BYTES_MAX: usize = 256 * 1024;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct ServerStream {
    tcp: TcpStream,
    tls: Option<Box<TlsState>>,
}

/// The state of an encrypted connection.
#[derive(Debug)]
struct TlsState {
    connection: ClientConnection,
    /// Received bytes that are not decrypted, from `at` on.
    received: Vec<u8>,
    at: usize,
    /// Number of decrypted bytes that were not read.
    decrypted: usize,
}

impl From<TcpStream> for ServerStream {
    fn from(tcp: TcpStream) -> Self {
        Self { tcp, tls: None }
    }
}

/// Sends encrypted bytes.
struct TcpWriter<'a>(&'a TcpStream);

impl Write for TcpWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ServerStream {
    /// Announces the end, so that the server does not log a truncated connection.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            // Without room for it the server sees the end of the connection only.
            let _ = tls.send(&self.tcp);
        }
    }
}

impl ServerStream {
    /// Returns the socket.
    pub(crate) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Reports whether the connection is encrypted.
    pub(crate) const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Performs the handshake of a client. The certificate must be for `host`.
    ///
    /// # Errors
    /// The server is not trusted, or sent something else.
    pub(crate) async fn encrypt(&mut self, config: &Arc<ClientConfig>, host: &str) -> io::Result<()> {
        let mut connection =
            ClientConnection::new(config.clone(), server_name(host)?).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        let mut tls = Box::new(TlsState { connection, received: Vec::new(), at: 0, decrypted: 0 });
        let mut received = 0;
        loop {
            while tls.connection.wants_write() {
                match tls.send(&self.tcp) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.tcp.writable().await?,
                    sent => sent?,
                }
            }
            if !tls.connection.is_handshaking() {
                log_handshake(&tls.connection, host);
                self.tls = Some(tls);
                return Ok(());
            }
            match tls.receive(&self.tcp) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.tcp.readable().await?,
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) if received < HANDSHAKE_BYTES_MAX => received += bytes,
                Ok(_) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the server does not end it"));
                }
                Err(error) => {
                    // The alert that tells the server the reason. It may have disconnected already.
                    let _ = tls.send(&self.tcp);
                    return Err(error);
                }
            }
        }
    }

    /// Reads into `into` what has arrived. `Ok(0)` is the end of the connection. After
    /// [`io::ErrorKind::WouldBlock`] wait by [`Self::readable`], because encrypted bytes may be left.
    pub(crate) fn try_read_buf(&mut self, into: &mut impl BufMut) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.try_read_buf(into),
            Some(tls) => tls.read(&self.tcp, into),
        }
    }

    /// Sends as many bytes of these slices as fit.
    pub(crate) fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.try_write_vectored(slices),
            Some(tls) => {
                tls.send(&self.tcp)?;
                let taken = tls.connection.writer().write_vectored(slices)?;
                match tls.send(&self.tcp) {
                    // `flush` sends the rest.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(taken),
                    sent => sent.map(|()| taken),
                }
            }
        }
    }

    /// Sends the rest of encrypted bytes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.send(&self.tcp))
    }

    /// Reports whether encrypted bytes wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.connection.wants_write())
    }

    /// Waits for data to read.
    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.tls.as_ref().is_some_and(|tls| tls.decrypted > 0 || tls.at < tls.received.len()) {
            // It counts as progress of this task, so that others run and timeouts are noticed.
            ready!(coop::poll_proceed(context)).made_progress();
            return Poll::Ready(Ok(()));
        }
        self.tcp.poll_read_ready(context)
    }

    /// Waits for data to read.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_read_ready(context)).await
    }

    /// Waits for room to send.
    pub(crate) fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_write_ready(context)
    }

    /// Sends all bytes.
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() || self.has_unsent() {
            let sent = match bytes.is_empty() {
                true => self.flush().map(|()| 0),
                false => self.try_write_vectored(&[IoSlice::new(bytes)]),
            };
            match sent {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.tcp.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills the buffer.
    pub(crate) async fn read_exact(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while into.has_remaining_mut() {
            match self.try_read_buf(&mut into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the name that the certificate of a host must have.
///
/// # Errors
/// It cannot be the name of a host.
pub(crate) fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    ServerName::try_from(host.to_owned())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{host} is not a name of a host")))
}

/// Logs the version and the cipher of a handshake, and whether a session was resumed.
fn log_handshake(connection: &ClientConnection, host: &str) {
    let version = connection.protocol_version().and_then(|version| version.as_str());
    let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
    let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    tracing::debug!(target: "client::encryption", host, version, suite, is_resumed, "encrypted");
}

impl TlsState {
    fn send(&mut self, tcp: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut TcpWriter(tcp))?;
        }
        Ok(())
    }

    /// Receives and decrypts at most one buffer. Returns the number of encrypted bytes, 0 at the end
    /// of the connection.
    fn receive(&mut self, tcp: &TcpStream) -> io::Result<usize> {
        if self.at >= self.received.len() {
            self.received.resize(RECEIVE_BYTES, 0);
            let received = tcp.try_read(&mut self.received);
            self.received.truncate(*received.as_ref().unwrap_or(&0));
            self.at = 0;
            if received? == 0 {
                return Ok(0);
            }
        }
        let mut bytes = self.received.get(self.at..).unwrap_or_default();
        let taken = self.connection.read_tls(&mut bytes)?;
        self.at += taken;
        let state = self.connection.process_new_packets();
        let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.decrypted = state.plaintext_bytes_to_read();
        Ok(taken)
    }

    fn read(&mut self, tcp: &TcpStream, into: &mut impl BufMut) -> io::Result<usize> {
        for _ in 0..STEPS_MAX {
            let mut reader = self.connection.reader();
            match reader.fill_buf() {
                Ok(data) => {
                    let count = data.len().min(into.remaining_mut());
                    into.put_slice(data.get(..count).unwrap_or_default());
                    reader.consume(count);
                    self.decrypted = self.decrypted.saturating_sub(count);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.receive(tcp)? == 0 {
                return Ok(0);
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

#[cfg(test)]
mod tests;
