//! A connection on a non-blocking TCP socket.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType};
use std::io::{self, IoSlice};
use std::net::SocketAddr;

use crate::connection::Connection;

/// Most pieces handed to the kernel at once.
const SLICES: usize = 16;

/// What a read from the socket brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing has come yet.
    Nothing,
    /// The server has closed the connection.
    End,
}

/// A connection and its socket.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    connection: Connection,
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link {
    /// Begins to connect. Wait until it is writable, then [`Link::flush`]; a refusal comes as an error of
    /// [`Link::receive`].
    ///
    /// # Errors
    /// What the kernel says at once.
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

    /// The machine, to take events from.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Sends what is queued, as far as the socket takes it; `true` when all of it is sent.
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

    /// Reads what has come into the front of `buffer`, for [`Connection::next_event`].
    ///
    /// # Errors
    /// The connection is lost, or was never made.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.read(buffer, RecvFlags::empty())
    }

    /// Throws away file data that has come, at most as many bytes as `room` has: the kernel does not copy them, so the
    /// room stays as it is. Only while something is [`Connection::discardable`].
    ///
    /// # Errors
    /// The connection is lost.
    pub fn discard(&mut self, room: &mut [u8]) -> io::Result<Received> {
        let most = self.connection.discardable().map_or(0, |(_, bytes)| bytes).min(room.len());
        let received = self.read(room.get_mut(..most).unwrap_or_default(), RecvFlags::TRUNC)?;
        if let Received::Bytes(count) = received {
            self.connection.discarded(count);
        }
        Ok(received)
    }

    fn read(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Received> {
        loop {
            return match net::recv(&self.socket, &mut *buffer, flags) {
                Ok((0, _)) => Ok(Received::End),
                Ok((count, _)) => Ok(Received::Bytes(count)),
                Err(Errno::AGAIN) => Ok(Received::Nothing),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}
