//! [`HttpStream`]: the socket of a connection, with the traits of Tokio.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::server_stream::ServerStream;

/// The socket of a connection.
pub(super) struct HttpStream(pub(super) ServerStream);

impl AsyncRead for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.0.try_read_buf(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.poll_read_ready(context))?;
                }
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl HttpStream {
    /// Sends the rest of encrypted bytes.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.0.has_unsent() {
            match self.0.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.poll_write_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
                Ok(()) => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HttpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.0.try_write_vectored(&[IoSlice::new(bytes)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.poll_write_ready(context))?;
                }
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    /// Sends what is left. Dropping the socket ends the connection.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }
}
