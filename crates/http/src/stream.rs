//! The bytes of a connection: plain or encrypted, after those that the event loop has read.
//!
//! A client that takes nothing of a reply for [`crate::STALL_TIME_MAX`] ends its connection, because it
//! holds memory. At the end of a connection, bytes of a request that nobody reads are discarded for a
//! while: otherwise the system would discard the last reply.

use crate::activity::ConnectionActivity;
use crate::counters::ConnectionBytes;
use crate::door::HttpFrontEnd;
use crate::progress::ClientProgress;
use crate::{LINGER_BYTES_MAX, LINGER_TIME_MAX};
use bytes::Bytes;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;

/// Number of bytes that are discarded at once.
const DISCARDED_BYTES: usize = 4096;

/// A part of a file that is to be sent.
pub(crate) struct SentPart<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) offset: u64,
    pub(crate) length: usize,
    /// Reports whether the part is in memory.
    pub(crate) is_in_memory: &'a (dyn Fn() -> bool + Sync),
}

/// A socket behind bytes that were read from it before.
pub(crate) struct RewoundStream {
    first: Vec<u8>,
    at: usize,
    socket: TcpStream,
    bytes: ConnectionBytes,
}

impl RewoundStream {
    pub(crate) fn new(first: Vec<u8>, socket: TcpStream, mut bytes: ConnectionBytes) -> Self {
        bytes.receive(first.len());
        Self { first, at: 0, socket, bytes }
    }

    /// Sends a part of a file, as [`ClientStream::poll_send_file`] does.
    fn poll_send_file(&mut self, context: &mut Context<'_>, part: &SentPart<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(context))?;
            // The bytes may have left the memory while the client was waited for.
            if !(part.is_in_memory)() {
                return Poll::Ready(Err(io::ErrorKind::ResourceBusy.into()));
            }
            let send = || net::send_file(self.socket.as_fd(), part.file, part.offset, part.length);
            match self.socket.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => {
                    if let Ok(bytes) = &sent {
                        self.bytes.send_file(*bytes);
                    }
                    return Poll::Ready(sent);
                }
            }
        }
    }

    fn count(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.bytes.send(*bytes);
        }
        written
    }
}

impl AsyncRead for RewoundStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = this.first.get(this.at..).unwrap_or_default();
        if left.is_empty() {
            let before = into.filled().len();
            let read = Pin::new(&mut this.socket).poll_read(context, into);
            this.bytes.receive(into.filled().len().saturating_sub(before));
            return read;
        }
        let taken = left.len().min(into.remaining());
        into.put_slice(left.get(..taken).unwrap_or_default());
        this.at += taken;
        if this.at >= this.first.len() {
            (this.first, this.at) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RewoundStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, pieces);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The end of a reply.
        self.bytes.add();
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// A connection with or without TLS.
pub(crate) enum ClientTransport {
    Plain(RewoundStream),
    Tls(Box<TlsStream<RewoundStream>>),
}

/// A connection whose writes must make progress.
pub(crate) struct ClientStream {
    transport: ClientTransport,
    /// The end of the time for a write that waits. It is allocated by the first one.
    stall: Option<Pin<Box<Sleep>>>,
    /// The begin of a write that waits.
    waits: Option<Instant>,
    progress: ClientProgress,
    shared: Arc<HttpFrontEnd>,
    activity: Arc<ConnectionActivity>,
    /// Bytes of a request that were read before.
    again: Bytes,
    /// The number of bytes that are discarded at most, and the end of the time for it, after the last reply.
    linger: Option<(usize, Pin<Box<Sleep>>)>,
}

impl ClientStream {
    pub(crate) fn new(
        transport: ClientTransport,
        shared: Arc<HttpFrontEnd>,
        activity: Arc<ConnectionActivity>,
    ) -> Self {
        Self {
            transport,
            stall: None,
            waits: None,
            progress: ClientProgress::default(),
            shared,
            activity,
            again: Bytes::new(),
            linger: None,
        }
    }

    /// Has the next reads return these bytes first. They were read before those that are still to be read again.
    pub(crate) fn read_again(&mut self, bytes: Bytes) {
        self.again = match self.again.is_empty() {
            true => bytes,
            false => [bytes, std::mem::take(&mut self.again)].concat().into(),
        };
    }

    /// Reports whether there are such bytes.
    pub(crate) fn has_begun_request(&self) -> bool {
        !self.again.is_empty()
    }

    /// Waits until the client of an idle connection has sent something. Returns `false` if it has ended the connection instead.
    pub(crate) async fn has_sent(&self) -> bool {
        match &self.transport {
            ClientTransport::Plain(stream) => stream.socket.peek(&mut [0]).await.is_ok_and(|bytes| bytes > 0),
            // These are never idle.
            ClientTransport::Tls(_) => true,
        }
    }

    /// Sends a part of a file on a connection without TLS. `Ok(0)` means that the file ends before it, and
    /// [`io::ErrorKind::ResourceBusy`] that it is not in memory.
    pub(crate) fn poll_send_file(
        &mut self,
        context: &mut Context<'_>,
        part: &SentPart<'_>,
    ) -> Poll<io::Result<usize>> {
        let sent = match &mut self.transport {
            ClientTransport::Plain(stream) => stream.poll_send_file(context, part),
            ClientTransport::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        };
        self.limit(context, sent, |bytes| *bytes)
    }

    /// Frees the timer of writes. The next write that waits has a new one.
    pub(crate) fn free_timer(&mut self) {
        self.stall = None;
    }

    /// Discards what the client sends, until it ends or the limits are reached.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (left, until) =
            self.linger.get_or_insert_with(|| (LINGER_BYTES_MAX, Box::pin(sleep(LINGER_TIME_MAX))));
        let mut place = [0; DISCARDED_BYTES];
        while *left > 0 && until.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut place);
            let read = match &mut self.transport {
                ClientTransport::Plain(stream) => Pin::new(stream).poll_read(context, &mut buffer),
                ClientTransport::Tls(stream) => Pin::new(stream).poll_read(context, &mut buffer),
            };
            match ready!(read) {
                Ok(()) if !buffer.filled().is_empty() => *left = left.saturating_sub(buffer.filled().len()),
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }

    /// Limits the time of a write that waits.
    fn limit<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
        bytes: impl Fn(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        let slow =
            || io::Error::new(io::ErrorKind::TimedOut, "the client does not take the reply, or too slowly");
        let moved = match &outcome {
            Poll::Ready(Ok(done)) => bytes(done),
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        self.activity.write(moved, outcome.is_pending());
        if let Poll::Ready(done) = outcome {
            let waited = self.waits.take().map(|since| since.elapsed()).unwrap_or_default();
            let may_go_on = self.progress.count(waited, done.as_ref().map_or(0, bytes));
            return Poll::Ready(if may_go_on { done } else { done.and(Err(slow())) });
        }
        let left = self.progress.left();
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(left)));
        if self.waits.is_none() {
            let now = Instant::now();
            self.waits = Some(now);
            stall.as_mut().reset(now + left);
        }
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(slow()))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.again.is_empty() {
            let length = self.again.len().min(into.remaining());
            into.put_slice(&self.again.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        let read = match &mut self.transport {
            ClientTransport::Plain(stream) => Pin::new(stream).poll_read(context, into),
            ClientTransport::Tls(stream) => Pin::new(stream).poll_read(context, into),
        };
        if into.filled().len() > before {
            self.activity.read();
        }
        read
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.transport {
            ClientTransport::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            ClientTransport::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.limit(context, written, |bytes| *bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.transport {
            ClientTransport::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            ClientTransport::Tls(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        };
        self.limit(context, written, |bytes| *bytes)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            ClientTransport::Plain(stream) => stream.is_write_vectored(),
            ClientTransport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = match &mut self.transport {
            ClientTransport::Plain(stream) => Pin::new(stream).poll_flush(context),
            ClientTransport::Tls(stream) => Pin::new(stream).poll_flush(context),
        };
        self.limit(context, flushed, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            let ended = match &mut self.transport {
                ClientTransport::Plain(stream) => Pin::new(stream).poll_shutdown(context),
                ClientTransport::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            };
            ready!(self.limit(context, ended, |()| 0))?;
            // Clients of a server that ends have no request in progress any longer.
            if self.shared.is_draining() {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_discard(context).map(Ok)
    }
}
