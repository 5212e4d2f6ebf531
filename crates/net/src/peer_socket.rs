//! The socket of a client on this machine, from the kernel's table of sockets.
//!
//! An address does not show that a client is here: connections that are translated or forwarded come from addresses of this
//! machine too. The other end of a connection is in the table only if it is a socket of this machine, in the network name
//! space of this process. Its number shows which processes have it open.

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;
/// Bytes of a message header, of the header and request, and of the header and reply without attributes.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 72;
const REPLY_BYTES: usize = 88;
/// Place of the ends of the connection in a reply.
const REPLY_ENDS_AT: usize = 20;
/// Bytes of both ports and addresses.
const ENDS_BYTES: usize = 36;
const PORTS_BYTES: usize = 4;
/// Places of the account and the number of the socket in a reply.
const UID_AT: usize = 80;
const INODE_AT: usize = 84;

/// A socket of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerSocket {
    /// The account that has created it.
    pub account: u32,
    /// Its number, as `/proc/PID/fd` has it.
    pub inode: u32,
}

/// Returns the socket at the other end of a TCP connection. `None` if it is not a socket of this machine in the network
/// name space of this process.
///
/// # Errors
/// Errors of the operating system, for example if this process may not have netlink sockets.
pub fn peer_socket(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<PeerSocket>> {
    let Some((family, ends)) = ends(peer, own) else { return Ok(None) };
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    sendto(&socket, &request(family, &ends), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut reply = [0; 512];
    // The kernel has answered when the request is sent.
    let (received, length) = recv(&socket, reply.as_mut_slice(), RecvFlags::DONTWAIT)?;
    Ok(reply.get(..received.min(length)).and_then(|reply| decode(reply, family, &ends)))
}

/// Returns the family and the ports and addresses of a connection, the peer first, as the kernel has them.
fn ends(peer: SocketAddr, own: SocketAddr) -> Option<(u8, Vec<u8>)> {
    let mut ends = [peer.port().to_be_bytes(), own.port().to_be_bytes()].concat();
    let family = match (peer.ip().to_canonical(), own.ip().to_canonical()) {
        (IpAddr::V4(peer), IpAddr::V4(own)) => {
            for address in [peer, own] {
                ends.extend(address.octets());
                ends.extend([0; 12]);
            }
            AddressFamily::INET
        }
        (IpAddr::V6(peer), IpAddr::V6(own)) => {
            ends.extend(peer.octets());
            ends.extend(own.octets());
            AddressFamily::INET6
        }
        _ => return None,
    };
    Some((u8::try_from(family.as_raw()).ok()?, ends))
}

fn request(family: u8, ends: &[u8]) -> Vec<u8> {
    let mut request = (REQUEST_BYTES as u32).to_ne_bytes().to_vec();
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(REQUEST.to_ne_bytes());
    // Neither a number nor a sender.
    request.extend([0; 8]);
    // No further attributes.
    request.extend([family, TCP, 0, 0]);
    request.extend((1_u32 << ESTABLISHED).to_ne_bytes());
    request.extend(ends);
    // Any interface, and any identifier of a socket.
    request.extend([0; 4]);
    request.extend([0xff; 8]);
    request
}

/// Returns the socket in a reply about this connection. Without the connection, the kernel replies with a listening
/// socket or an error.
fn decode(reply: &[u8], family: u8, ends: &[u8]) -> Option<PeerSocket> {
    let kind = u16::from_ne_bytes(reply.get(4..6)?.try_into().ok()?);
    let is_it = reply.len() >= REPLY_BYTES
        && kind == BY_FAMILY
        && matches!(reply.get(HEADER_BYTES..HEADER_BYTES + 2)?, &[found, ESTABLISHED] if has_family(found, family))
        && has_ends(reply, ends);
    let number = |at: usize| Some(u32::from_ne_bytes(reply.get(at..at + 4)?.try_into().ok()?));
    // A socket that its process has closed has no number.
    let inode = number(INODE_AT).filter(|inode| is_it && *inode != 0)?;
    Some(PeerSocket { account: number(UID_AT)?, inode })
}

/// Reports whether a socket of one family can be the end of a connection of another one: one of IPv6 has also those of IPv4.
fn has_family(found: u8, family: u8) -> bool {
    found == family || u16::from(found) == AddressFamily::INET6.as_raw()
}

fn has_ends(reply: &[u8], ends: &[u8]) -> bool {
    let found = reply.get(REPLY_ENDS_AT..REPLY_ENDS_AT + ENDS_BYTES);
    // The addresses of a socket of IPv6 may be mapped ones. The kernel has looked for them, so the ports suffice.
    found.is_some_and(|found| found.get(..PORTS_BYTES) == ends.get(..PORTS_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv6Addr, TcpListener, TcpStream};

    fn check(listener: &TcpListener, to: SocketAddr) {
        let client = TcpStream::connect(to).unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        let own = accepted.local_addr().unwrap();
        let account = rustix::process::geteuid().as_raw();
        let inode = u32::try_from(rustix::fs::fstat(&client).unwrap().st_ino).unwrap();
        assert_eq!(peer_socket(peer, own).unwrap(), Some(PeerSocket { account, inode }), "{peer} {own}");
        drop(client);
        assert_eq!(peer_socket(peer, own).unwrap(), None, "it has ended");
    }

    #[test]
    fn the_socket_of_a_client_here_has_its_account_and_number() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        check(&listener, listener.local_addr().unwrap());
        // A client of IPv4 at a port of both families.
        if let Ok(listener) = TcpListener::bind("[::]:0") {
            let port = listener.local_addr().unwrap().port();
            check(&listener, SocketAddr::from(([127, 0, 0, 1], port)));
            check(&listener, SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
        }
    }

    #[test]
    fn a_listening_socket_and_other_machines_are_no_clients() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        for (peer, own) in [
            // Its own port is open here, and nobody is connected to it from there.
            (own, SocketAddr::from(([127, 0, 0, 1], 9))),
            (SocketAddr::from(([192, 0, 2, 1], 4000)), own),
            (SocketAddr::from((Ipv6Addr::LOCALHOST, 4000)), own),
        ] {
            assert_eq!(peer_socket(peer, own).unwrap(), None, "{peer} {own}");
        }
    }

    #[test]
    fn a_reply_that_is_cut_or_about_something_else_has_no_socket() {
        let (family, ends) =
            ends(SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([127, 0, 0, 1], 2))).unwrap();
        let mut reply = vec![0; REPLY_BYTES];
        reply[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        reply[16..18].copy_from_slice(&[family, ESTABLISHED]);
        reply[REPLY_ENDS_AT..REPLY_ENDS_AT + ENDS_BYTES].copy_from_slice(&ends);
        reply[UID_AT..UID_AT + 4].copy_from_slice(&7_u32.to_ne_bytes());
        reply[INODE_AT..INODE_AT + 4].copy_from_slice(&8_u32.to_ne_bytes());
        assert_eq!(decode(&reply, family, &ends), Some(PeerSocket { account: 7, inode: 8 }));
        (0..reply.len()).for_each(|length| assert_eq!(decode(&reply[..length], family, &ends), None));
        // The socket of a process that has ended.
        reply[INODE_AT..INODE_AT + 4].fill(0);
        assert_eq!(decode(&reply, family, &ends), None);
        reply[INODE_AT] = 1;
        for at in [4, 17, REPLY_ENDS_AT] {
            let mut other = reply.clone();
            other[at] ^= 0x40;
            assert_eq!(decode(&other, family, &ends), None, "{at}");
        }
    }
}
