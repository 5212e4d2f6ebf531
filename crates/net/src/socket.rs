//! One connection's socket: readiness from the loop, bytes by the calls that cost least.

use rustix::fd::{AsFd, BorrowedFd};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;

/// How accepted sockets are set up.
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// Probe idle connections; `None` leaves vanished peers to time-outs.
    pub keepalive: Option<Keepalive>,
    /// Bytes of the kernel's send and receive buffers; `None` leaves them to the kernel, which adapts them.
    pub buffer_bytes: Option<usize>,
}

/// When to probe a silent peer.
#[derive(Clone, Copy, Default, Debug)]
pub struct Keepalive {
    /// Silence before the first probe; the system's value when `None`.
    pub idle: Option<Duration>,
    /// Between probes.
    pub interval: Option<Duration>,
    /// Probes before giving up.
    pub count: Option<u32>,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self { keepalive: Some(Keepalive::default()), buffer_bytes: None }
    }
}

/// Sets up a listening socket: those it accepts inherit it all, which saves a connection some system calls.
pub(crate) fn set_up(socket: &socket2::Socket, config: &SocketConfig) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    if let Some(keepalive) = config.keepalive {
        let mut probes = socket2::TcpKeepalive::new();
        if let Some(idle) = keepalive.idle {
            probes = probes.with_time(idle);
        }
        if let Some(interval) = keepalive.interval {
            probes = probes.with_interval(interval);
        }
        if let Some(count) = keepalive.count {
            probes = probes.with_retries(count);
        }
        socket.set_tcp_keepalive(&probes)?;
    }
    if let Some(bytes) = config.buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

/// A connected socket on a loop.
pub struct Socket {
    stream: TcpStream,
}

impl Socket {
    /// Brings a connected socket that does not block onto the current loop.
    pub fn adopt(stream: std::net::TcpStream) -> io::Result<Self> {
        Ok(Self { stream: TcpStream::from_std(stream)? })
    }

    /// Takes it off its loop, to be adopted by another.
    pub fn release(self) -> io::Result<std::net::TcpStream> {
        self.stream.into_std()
    }

    /// The address at this end.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Asks to be woken when there may be room to write.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(context)
    }

    /// Asks to be woken when there may be something to read.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_read_ready(context)
    }

    /// Reads into the spare capacity of `into`, at most `most` bytes, or asks to be woken when there is something. `Ok(0)` is
    /// the peer's end (or no capacity). A read that did not fill its room is not tried again until more has come: one
    /// system call for each arrival, not two.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let spare = into.spare_capacity_mut();
        let most = most.min(spare.len());
        let Some(spare) = spare.get_mut(..most) else { return Poll::Ready(Ok(0)) };
        let mut room = ReadBuf::uninit(spare);
        match Pin::new(&mut self.stream).poll_read(context, &mut room) {
            Poll::Ready(Ok(())) => {
                let read = room.filled().len();
                // SAFETY: `read` bytes of the spare capacity just behind the present length were initialised.
                unsafe { into.set_len(into.len() + read) };
                crate::polling::arrived();
                Poll::Ready(Ok(read))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The same into an initialised place.
    pub fn poll_read_into(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(into);
        match Pin::new(&mut self.stream).poll_read(context, &mut room) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(room.filled().len())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Writes as much as fits of these pieces; `more` tells the kernel that further bytes follow at once.
    pub fn write(&self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let mut flags = rustix::net::SendFlags::NOSIGNAL;
        if more {
            flags |= rustix::net::SendFlags::MORE;
        }
        if let [piece] = pieces {
            // The kernel does less for it.
            let send = || Ok(rustix::net::send(self.stream.as_fd(), piece, flags)?);
            return self.stream.try_io(Interest::WRITABLE, send);
        }
        self.stream.try_io(Interest::WRITABLE, || {
            let mut control = rustix::net::SendAncillaryBuffer::default();
            Ok(rustix::net::sendmsg(self.stream.as_fd(), pieces, &mut control, flags)?)
        })
    }

    /// Sends a range of a file without copying it through this process. `Ok(0)` means the file ends before `offset`.
    pub fn send_file(&self, file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<usize> {
        self.stream.try_io(Interest::WRITABLE, || {
            let mut at = offset;
            Ok(rustix::fs::sendfile(self.stream.as_fd(), file, Some(&mut at), length)?)
        })
    }

    /// No more will be sent; the peer sees the end of the stream after what was sent.
    pub fn finish_sending(&self) {
        // Already gone is as good.
        let _ = rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Write);
    }
}
