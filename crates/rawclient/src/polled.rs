//! A connection on a non-blocking TCP socket.
//!
//! It joins the state machine with its socket for programs that run their own event loop.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType};
use std::io::{self, IoSlice};
use std::net::SocketAddr;

use crate::connection::Connection;

/// Maximum number of slices in one send.
const SLICES: usize = 16;

/// The result of a read from the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketRead {
    /// Number of received bytes, at least one.
    Bytes(usize),
    /// No bytes are available yet.
    Nothing,
    /// The server has closed the connection.
    End,
}

/// A connection and its socket.
#[derive(Debug)]
pub struct PolledConnection {
    socket: OwnedFd,
    connection: Connection,
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
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Self { socket, connection }),
            Err(error) => Err(error.into()),
        }
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

    /// Receives bytes into the front of `buffer`, for [`Connection::next_event`].
    ///
    /// # Errors
    /// The connection is lost, or could not be established.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<SocketRead> {
        self.read(buffer, RecvFlags::empty())
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
