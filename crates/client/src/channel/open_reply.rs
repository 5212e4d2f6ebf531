//! [`UnclaimedHandle`]: the handle in the reply to an open, until somebody takes it.
//!
//! A caller can give up at any time before its open is answered, or between the answer and the use of
//! the handle. The server keeps the file open then until the connection ends, which others share. So
//! the reply owns the handle, and closes the file unless it is claimed.

use rawclient::Encoded;
use tokio::sync::mpsc::WeakUnboundedSender;
use wire::xroot::FileHandle;
use wire::xroot::request::{Close, Request};

use super::exchange::ChannelRequest;

/// The handle of a file that was opened and that nobody has taken yet. Dropping it closes the file.
#[derive(Debug)]
pub(crate) struct UnclaimedHandle {
    fhandle: FileHandle,
    /// The requests of the connection; `None` after the handle was claimed.
    commands: Option<WeakUnboundedSender<ChannelRequest>>,
}

impl UnclaimedHandle {
    /// Takes the handle from the body of the reply to an open, unless that has none.
    pub(super) fn of(body: &[u8], commands: &WeakUnboundedSender<ChannelRequest>) -> Option<Self> {
        let fhandle = FileHandle(*body.first_chunk()?);
        Some(Self { fhandle, commands: Some(commands.clone()) })
    }

    /// Leaves the file to the caller, which closes it from now on.
    pub(crate) fn claim(mut self) {
        self.commands = None;
    }
}

impl Drop for UnclaimedHandle {
    fn drop(&mut self) {
        // Without callers the connection ends, and its files with it.
        if let Some(commands) = self.commands.take().and_then(|commands| commands.upgrade()) {
            let close = Encoded::new(&Request::Close(Close { fhandle: self.fhandle }));
            let _ = commands.send(ChannelRequest::posted(close));
        }
    }
}
