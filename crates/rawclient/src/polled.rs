//! A connection on a non-blocking TCP socket.
//!
//! It joins the state machine with its socket for programs that run their own event loop.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType};
use std::io::{self, IoSlice};
use std::net::SocketAddr;

use crate::connection::{Connection, ConnectionEvent};
use crate::encryption::Encryption;
use crate::error::ConnectionError;
use crate::security::LoginSecurity;

/// Maximum number of slices in one send.
const SLICES: usize = 16;

/// The result of a read from the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketRead {
    /// Number of received bytes, at least one.
    Bytes(usize),
    /// No bytes are available yet.
    Nothing,
    /// The TLS handshake is complete. [`PolledConnection::next_event`] may return an event.
    Encrypted,
    /// The server has closed the connection.
    End,
}

/// A connection and its socket.
#[derive(Debug)]
pub struct PolledConnection {
    socket: OwnedFd,
    connection: Connection,
    security: Option<Box<dyn LoginSecurity>>,
    encryption: Option<Box<Encryption>>,
    /// The TLS handshake was the last step of the login.
    has_become_ready: bool,
}

impl AsFd for PolledConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl PolledConnection {
    /// Begins to connect. The caller waits until it is writable and calls
    /// [`PolledConnection::flush`]; a refusal is returned as an error of
    /// [`PolledConnection::receive`].
    ///
    /// # Errors
    /// Immediate errors of the kernel.
    pub fn connect(address: SocketAddr, connection: Connection) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        net::sockopt::set_tcp_nodelay(&socket, true)?;
        match net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {
                Ok(Self { socket, connection, security: None, encryption: None, has_become_ready: false })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sets TLS and credentials of the login, for a [`Login`](crate::Login) that supports them.
    #[must_use]
    pub fn secured_by(mut self, security: Box<dyn LoginSecurity>) -> Self {
        self.security = Some(security);
        self
    }

    /// Returns the state machine, which produces the events.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Sends queued bytes until the socket blocks. Returns `true` when all bytes are sent.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn flush(&mut self) -> io::Result<bool> {
        if let Some(encryption) = &mut self.encryption {
            return encryption.flush(&self.socket, &mut self.connection);
        }
        while !self.connection.is_sent() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let used = self.connection.outgoing(&mut slices);
            let sent = match slices.get(..used) {
                Some([one]) => net::send(&self.socket, one, SendFlags::NOSIGNAL),
                Some(several) => {
                    let mut control = SendAncillaryBuffer::default();
                    net::sendmsg(&self.socket, several, &mut control, SendFlags::NOSIGNAL)
                }
                None => Ok(0),
            };
            match sent {
                Ok(count) => self.connection.sent(count),
                Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Receives bytes into the front of `buffer`, for [`PolledConnection::next_event`].
    ///
    /// # Errors
    /// The connection is lost, or could not be established. The server is not trusted.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<SocketRead> {
        let Some(encryption) = &mut self.encryption else {
            return self.read(buffer, RecvFlags::empty());
        };
        let received = encryption.receive(&self.socket, buffer)?;
        if !self.connection.is_tls() && encryption.is_established() {
            self.connection.encrypted();
            self.has_become_ready = self.connection.is_ready();
        }
        Ok(received)
    }

    /// Implements [`Connection::next_event`]. It performs the TLS handshake and the authentication of
    /// [`PolledConnection::secured_by`] itself, and returns no event for them.
    ///
    /// # Errors
    /// [`ConnectionError`]: the connection and its requests in flight are lost.
    pub fn next_event<'a, 'input: 'a>(
        &'a mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<ConnectionEvent<'a>>, ConnectionError> {
        if std::mem::take(&mut self.has_become_ready) {
            self.use_session_key();
            return Ok(Some(ConnectionEvent::Ready));
        }
        while !self.connection.is_ready() {
            match self.connection.next_event(input)? {
                None => return Ok(None),
                Some(ConnectionEvent::StartTls) => {
                    let Some(security) = &mut self.security else { return Err(ConnectionError::NoTls) };
                    let tls = security.encrypt().map_err(unable)?;
                    self.encryption = Some(Box::new(Encryption::new(tls)));
                    // The handshake begins with the next flush.
                    return Ok(None);
                }
                Some(ConnectionEvent::Authenticate(step)) => {
                    let local = net::getsockname(&self.socket).map_err(io::Error::from);
                    let local = local.and_then(|local| Ok(SocketAddr::try_from(local)?)).map_err(unable)?;
                    let is_tls = self.encryption.is_some();
                    let made = self.security.as_mut().map(|one| one.credentials(step, local, is_tls));
                    let made = made.transpose().map_err(unable)?;
                    if let Some(credentials) = made {
                        self.connection.authenticate(credentials.protocol, &credentials.payload);
                    }
                }
                Some(_) => {}
            }
            if self.connection.is_ready() {
                self.use_session_key();
                return Ok(Some(ConnectionEvent::Ready));
            }
        }
        self.connection.next_event(input)
    }

    fn use_session_key(&mut self) {
        let cipher = self.security.as_ref().and_then(|security| security.signature_cipher());
        if let Some(cipher) = cipher {
            self.connection.sign_with(cipher);
        }
    }

    /// Discards received file data, at most as many bytes as `room` holds. The kernel does not copy
    /// the bytes, so the content of `room` is unchanged. The call is valid only for
    /// [`Connection::discardable`] bytes.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn discard(&mut self, room: &mut [u8]) -> io::Result<SocketRead> {
        let most = self.connection.discardable().map_or(0, |(_, bytes)| bytes).min(room.len());
        let received = self.read(room.get_mut(..most).unwrap_or_default(), RecvFlags::TRUNC)?;
        if let SocketRead::Bytes(count) = received {
            self.connection.discarded(count);
        }
        Ok(received)
    }

    fn read(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<SocketRead> {
        loop {
            return match net::recv(&self.socket, &mut *buffer, flags) {
                Ok((0, _)) => Ok(SocketRead::End),
                Ok((count, _)) => Ok(SocketRead::Bytes(count)),
                Err(Errno::AGAIN) => Ok(SocketRead::Nothing),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

fn unable(error: io::Error) -> ConnectionError {
    ConnectionError::Insecure(error.to_string())
}
