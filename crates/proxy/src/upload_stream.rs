//! [`UploadStream`]: the body of a request by which a web server gets a file, fed by the writes of a client.

use client::http::{HttpUpload, UploadSource};
use client::{Bytes, Cause, Error};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Size of the pieces of a part. Two of them are on their way.
const PIECE_BYTES: usize = 256 << 10;

/// A request that sends a file. Dropping it ends the connection.
pub(crate) struct UploadStream {
    pieces: Option<mpsc::Sender<std::io::Result<Bytes>>>,
    /// `None` after its end.
    request: Option<JoinHandle<Result<(), Error>>>,
    /// Offset of the next byte.
    next: u64,
    file: HttpUpload,
}

impl Drop for UploadStream {
    fn drop(&mut self) {
        if let Some(request) = &self.request {
            request.abort();
        }
    }
}

impl UploadStream {
    /// Begins the request for a file of `length` bytes.
    pub(crate) fn begin(file: &HttpUpload, length: u64, runtime: &Handle) -> Self {
        let (pieces, body) = mpsc::channel(1);
        let body = Mutex::new(Some(body));
        // A second request would not have the beginning: it ends at once.
        let source: UploadSource = Arc::new(move || {
            let body = body.lock().unwrap_or_else(PoisonError::into_inner).take();
            body.unwrap_or_else(|| mpsc::channel(1).1)
        });
        let sent = file.clone();
        let request = Some(runtime.spawn(async move { sent.put(length, &source).await }));
        Self { pieces: Some(pieces), request, next: 0, file: file.clone() }
    }

    /// Returns the offset of the byte that is to be sent next.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Sends the next bytes. Fails when the request has ended.
    pub(crate) async fn send(&mut self, data: Bytes) -> Result<(), Error> {
        let mut rest = data;
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            self.next += piece.len() as u64;
            let sent = match &self.pieces {
                Some(pieces) => pieces.send(Ok(piece)).await.is_ok(),
                None => false,
            };
            if !sent {
                self.finish().await?;
                let text = "it has ended the request before it had the file".to_owned();
                return Err(Error::new("write", self.file.url(), Cause::BadAnswer(text)));
            }
        }
        Ok(())
    }

    /// Ends the request, and returns its result.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        self.pieces = None;
        let ended = match self.request.as_mut() {
            Some(request) => request.await.ok(),
            None => None,
        };
        self.request = None;
        ended.unwrap_or_else(|| Err(Error::new("write", self.file.url(), Cause::Closed)))
    }
}
