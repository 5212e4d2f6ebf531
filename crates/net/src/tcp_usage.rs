//! [`tcp_usage`]: the bytes that a connection has transferred, from the system (`TCP_INFO`).

use rustix::fd::{AsRawFd, BorrowedFd};
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes of the structure of the system that are read.
const INFO_BYTES: usize = 136;
/// Places of fields in it. Source: `struct tcp_info` of `linux/tcp.h`, which only grows.
const ROUND_TRIP: usize = 68;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;

/// The bytes that a connection has transferred, and its round trip.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TcpUsage {
    /// Bytes received.
    pub received: u64,
    /// Bytes sent that the peer has acknowledged.
    pub sent: u64,
    /// Time of a round trip.
    pub round_trip: Duration,
}

/// Returns the bytes and the round trip of a connection; zeros if the system does not know them.
#[must_use]
pub fn tcp_usage(socket: BorrowedFd<'_>) -> TcpUsage {
    let mut info = [0_u8; INFO_BYTES];
    let mut length = INFO_BYTES as libc::socklen_t;
    // SAFETY: the pointer and the length are those of a buffer that lives longer than the call, of which the system writes
    // at most that many bytes; all bytes are valid values.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    // An older system writes fewer bytes, and the others stay zero.
    if status != 0 {
        return TcpUsage::default();
    }
    let number = |at: usize| {
        info.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    let micros = info
        .get(ROUND_TRIP..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    TcpUsage {
        received: number(BYTES_RECEIVED),
        sent: number(BYTES_ACKED),
        round_trip: Duration::from_micros(micros.into()),
    }
}

/// Returns the own address of a connection and that of the peer.
#[must_use]
pub fn connection_addresses(socket: BorrowedFd<'_>) -> Option<(SocketAddr, SocketAddr)> {
    let socket = socket2::SockRef::from(&socket);
    Some((socket.local_addr().ok()?.as_socket()?, socket.peer_addr().ok()?.as_socket()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn bytes_of_both_directions_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[1; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        server.write_all(&[2; 70_000]).unwrap();
        client.read_exact(&mut [0; 70_000]).unwrap();
        // The reply acknowledges the bytes before it.
        client.write_all(&[3; 10]).unwrap();
        server.read_exact(&mut [0; 10]).unwrap();
        let usage = tcp_usage(server.as_fd());
        assert_eq!((usage.received, usage.sent), (1010, 70_000));
        assert!(usage.round_trip < Duration::from_secs(10));
    }

    #[test]
    fn another_socket_has_no_usage() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(tcp_usage(socket.as_fd()), TcpUsage::default());
    }
}
