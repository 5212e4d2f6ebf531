//! TLS between a non-blocking socket and the state machine of its connection.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use rustls::ClientConnection;
use std::io::{self, IoSlice, Read, Write};

use crate::connection::Connection;
use crate::polled::SocketRead;

/// Size of one receive of encrypted bytes. With a record that is complete by then, the decrypted
/// bytes fit into the buffers of all callers.
const RECEIVE_BYTES: usize = 32 * 1024;

/// Maximum number of encrypted bytes that wait for the socket.
const ENCRYPTED_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of slices that are encrypted at once.
const SLICES: usize = 16;

/// The TLS state of a connection.
#[derive(Debug)]
pub(crate) struct Encryption {
    tls: ClientConnection,
    received: Vec<u8>,
    /// Number of decrypted bytes of `received`.
    at: usize,
}

/// Sends encrypted bytes.
struct SocketWriter<'a>(&'a OwnedFd);

impl Write for SocketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match net::send(self.0, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Encryption {
    /// Creates the state before the handshake.
    pub(crate) fn new(mut tls: ClientConnection) -> Self {
        tls.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        Self { tls, received: Vec::new(), at: 0 }
    }

    /// Encrypts and sends queued bytes until the socket blocks. Returns `true` when all bytes are
    /// sent.
    pub(crate) fn flush(&mut self, socket: &OwnedFd, connection: &mut Connection) -> io::Result<bool> {
        loop {
            let mut taken = 0;
            if !self.tls.is_handshaking() && !connection.is_sent() {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let used = connection.outgoing(&mut slices);
                taken = self.tls.writer().write_vectored(slices.get(..used).unwrap_or_default())?;
                connection.sent(taken);
            }
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut SocketWriter(socket)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    sent => sent?,
                };
            }
            if taken == 0 {
                return Ok(true);
            }
        }
    }

    /// Receives and decrypts bytes into the front of `buffer`.
    pub(crate) fn receive(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<SocketRead> {
        let was_handshaking = self.tls.is_handshaking();
        let mut filled = 0;
        let mut is_over = false;
        loop {
            match self.tls.reader().read(buffer.get_mut(filled..).unwrap_or_default()) {
                Ok(0) => is_over = filled < buffer.len(),
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if is_over || filled == buffer.len() {
                break;
            }
            if self.at == self.received.len() {
                if filled > 0 || was_handshaking != self.tls.is_handshaking() {
                    break;
                }
                match self.fill(socket)? {
                    SocketRead::Bytes(_) => {}
                    nothing => return Ok(nothing),
                }
            }
            let mut bytes = self.received.get(self.at..).unwrap_or_default();
            self.at += self.tls.read_tls(&mut bytes)?;
            let processed = self.tls.process_new_packets();
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        Ok(match filled {
            0 if is_over => SocketRead::End,
            0 => SocketRead::Encrypted,
            count => SocketRead::Bytes(count),
        })
    }

    /// Reports whether the handshake is complete.
    pub(crate) fn is_established(&self) -> bool {
        !self.tls.is_handshaking()
    }

    fn fill(&mut self, socket: &OwnedFd) -> io::Result<SocketRead> {
        self.received.resize(RECEIVE_BYTES, 0);
        self.at = 0;
        loop {
            let received = net::recv(socket, &mut *self.received, RecvFlags::empty());
            self.received.truncate(received.map_or(0, |(count, _)| count));
            return match received {
                Ok((0, _)) => Ok(SocketRead::End),
                Ok((count, _)) => Ok(SocketRead::Bytes(count)),
                Err(Errno::AGAIN) => Ok(SocketRead::Nothing),
                Err(Errno::INTR) => {
                    self.received.resize(RECEIVE_BYTES, 0);
                    continue;
                }
                Err(error) => Err(error.into()),
            };
        }
    }
}
