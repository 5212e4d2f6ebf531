//! The listener: accepts connections and passes each to the least loaded loop.
//!
//! When descriptors are exhausted, a spare one is released for a moment to accept and close the new
//! connection. Its client learns immediately that it is refused; otherwise it would wait in the
//! queue of the kernel.

use crate::{Arrival, Door, LoopWaker, Loops, ProtocolMatch, Socket, SocketConfig};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Maximum number of connections that the kernel queues for us.
const BACKLOG: i32 = 4096;

/// Maximum number of bytes used to detect the protocol.
const FIRST_BYTES: usize = 4096;

/// Pause after an accept that failed for lack of a resource (backoff), so that the loop does not
/// spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Configuration of a listener.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// The port; 0 lets the kernel choose one.
    pub port: u16,
    /// The address; `None` means all IPv6 and IPv4 addresses, `::` all IPv6 addresses only.
    pub address: Option<IpAddr>,
    /// Options of accepted sockets. They are set on the port and inherited.
    pub socket: SocketConfig,
    /// Deadline for the first bytes of a connection.
    pub hail: Duration,
    /// Maximum number of connections.
    pub connections_max: usize,
}

/// Numbers of refused connections by reason, since the start.
#[derive(Default, Debug)]
pub struct Refusals {
    /// Out of descriptors, or above the limit.
    pub full: AtomicU64,
    /// No door recognized the first bytes.
    pub unknown: AtomicU64,
    /// The host is not allowed.
    pub denied: AtomicU64,
}

/// An error of [`Listener::bind`].
#[derive(Debug)]
pub struct BindError {
    /// The address and port.
    pub address: SocketAddr,
    /// The error of the system.
    pub source: io::Error,
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot listen on {}: {}", self.address, self.source)
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Decides whether a peer may connect. It runs on the connection's loop, so a slow look-up delays
/// no other connection.
pub type Admission = Arc<dyn Fn(IpAddr) -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// An open port.
pub struct Listener {
    socket: std::net::TcpListener,
    config: ListenerConfig,
}

impl Listener {
    /// Opens the port. It needs no runtime, so that it can be done before the process detaches.
    pub fn bind(config: ListenerConfig) -> Result<Self, BindError> {
        let wanted = config.address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let address = SocketAddr::new(wanted, config.port);
        let outcome = open(address, config.address.is_some(), &config.socket).or_else(|error| {
            match (config.address, error.raw_os_error()) {
                // Fallback for a kernel without IPv6.
                (None, Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => open(
                    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), config.port),
                    false,
                    &config.socket,
                ),
                _ => Err(error),
            }
        });
        match outcome {
            Ok(socket) => Ok(Self { socket, config }),
            Err(source) => Err(BindError { address, source }),
        }
    }

    /// Returns the address and the actual port.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts connections until the future is dropped, which closes the port. It runs on any
    /// runtime. On one of the loops it saves two thread switches per connection.
    pub async fn serve(
        self,
        loops: Arc<Loops>,
        doors: Arc<[Arc<dyn Door>]>,
        admission: Admission,
        refusals: Arc<Refusals>,
    ) -> io::Result<()> {
        let paced: Option<Arc<[u8]>> = crate::socket::stop_pacing(self.socket.as_fd()).map(Into::into);
        let listener = ListeningSocket::new(self.socket.into())?;
        let mut spare = spare_descriptor();
        loop {
            let (stream, peer) = match accept(&listener).await {
                Ok(pair) => pair,
                Err(error) if is_exhausted(&error) => {
                    refusals.full.fetch_add(1, Ordering::Relaxed);
                    drop(spare.take());
                    if let Ok(Ok((newcomer, _))) = tokio::time::timeout(ACCEPT_PAUSE, accept(&listener)).await
                    {
                        drop(newcomer);
                    }
                    spare = spare_descriptor();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                // The peer has disconnected already, or a signal interrupted the call.
                Err(_) => continue,
            };
            if loops.connections() >= self.config.connections_max {
                refusals.full.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let Some(home) = loops.least_loaded().cloned() else { return Ok(()) };
            let (doors, config, refusals) = (doors.clone(), self.config.clone(), refusals.clone());
            let admission = admission(peer.ip().to_canonical());
            let presence = home.enter();
            let (target, paced) = (home.clone(), paced.clone());
            home.spawn(move || async move {
                if !tokio::time::timeout(config.hail, admission).await.unwrap_or(false) {
                    refusals.denied.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                crate::socket::set_up_accepted(&stream, peer, &config.socket, paced.as_deref());
                let Ok(socket) = Socket::adopt(stream) else { return };
                let mut arrival = Arrival { socket, peer, received: Vec::new(), home: target };
                let found = tokio::time::timeout(config.hail, find_door(&doors, &mut arrival)).await;
                match found {
                    Ok(Some(door)) => door.serve(arrival, presence),
                    _ => {
                        refusals.unknown.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    }
}

/// The socket of the port, watched by the loop it is on, or by another runtime.
enum ListeningSocket {
    Loop(LoopWaker),
    Runtime(AsyncFd<OwnedFd>),
}

impl ListeningSocket {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        if LoopWaker::is_possible() {
            return Ok(Self::Loop(LoopWaker::new(socket)?));
        }
        // SAFETY: an owned descriptor is open, stays so, and is the same one until it is dropped,
        // which the registration does.
        let watched = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        Ok(Self::Runtime(watched.map_err(io::Error::from)?))
    }

    fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Loop(wake) => wake.as_fd(),
            Self::Runtime(watched) => watched.get_ref().as_fd(),
        }
    }

    /// Waits until a connection may have arrived since the last call.
    async fn arrived(&self) -> io::Result<()> {
        match self {
            Self::Loop(wake) if wake.arrived().await => Ok(()),
            Self::Loop(_) => Err(io::ErrorKind::BrokenPipe.into()),
            Self::Runtime(watched) => {
                watched.readable().await?.clear_ready();
                Ok(())
            }
        }
    }
}

/// Accepts the next connection. Its socket is non-blocking and not registered with any loop.
async fn accept(listener: &ListeningSocket) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        // A flood of connections must not starve the present ones.
        tokio::task::coop::consume_budget().await;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::acceptfrom_with(listener.socket(), flags) {
            Ok((stream, Some(peer))) => {
                let peer = SocketAddr::try_from(peer).map_err(|_| Errno::AFNOSUPPORT)?;
                return Ok((TcpStream::from(stream), peer));
            }
            // A connection without a peer address is dropped.
            Ok((_, None)) => {}
            Err(Errno::AGAIN) => listener.arrived().await?,
            Err(error) => return Err(error.into()),
        }
    }
}

fn open(address: SocketAddr, only_v6: bool, config: &SocketConfig) -> io::Result<std::net::TcpListener> {
    use socket2::{Domain, Protocol, Socket as Raw, Type};
    let socket = Raw::new(Domain::for_address(address), Type::STREAM.cloexec(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    crate::socket::set_up(&socket, config)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Returns a descriptor that can be released when descriptors are exhausted, or `None` on failure.
fn spare_descriptor() -> Option<rustix::fd::OwnedFd> {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()
}

fn is_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Reads until a door claims the first bytes, or no door can.
async fn find_door(doors: &[Arc<dyn Door>], arrival: &mut Arrival) -> Option<Arc<dyn Door>> {
    loop {
        let Arrival { socket, received, .. } = &mut *arrival;
        if received.capacity() == 0 {
            // A connection without data owns no buffer.
            poll_fn(|context| socket.poll_readable(context)).await.ok()?;
            *received = crate::take_small();
        }
        match poll_fn(|context| socket.poll_read(context, received, FIRST_BYTES)).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        let mut undecided = false;
        for door in doors {
            match door.claims(&arrival.received) {
                ProtocolMatch::Mine => return Some(door.clone()),
                ProtocolMatch::NeedMore => undecided = true,
                ProtocolMatch::NotMine => {}
            }
        }
        if !undecided || arrival.received.len() >= FIRST_BYTES {
            return None;
        }
    }
}
