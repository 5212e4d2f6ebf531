//! [`OutputBuffer`] and [`OutputWriter`]: buffered output, written by a thread so that a reader
//! that stops (a pager) does not block the connections.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use super::content::Escaped;
use super::{OutputText, out};

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub(crate) struct OutputError(pub(crate) io::Error);

/// Output that waits to be written.
#[derive(Default, Debug)]
pub(crate) struct OutputBuffer {
    bytes: Vec<u8>,
    contents: Escaped,
}

/// Output that is ready to be written.
pub(crate) struct OutputChunk(Vec<u8>);

impl OutputBuffer {
    /// Adds a text.
    pub(crate) fn put(&mut self, text: &OutputText) {
        self.end_contents();
        self.bytes.extend_from_slice(&text.as_bytes());
    }

    /// Adds file content, which is escaped for a terminal.
    pub(crate) fn put_content(&mut self, content: &[u8]) {
        if !out().is_terminal() {
            return self.bytes.extend_from_slice(content);
        }
        let mut text = out().text();
        self.contents.add(content, &mut text);
        self.bytes.extend_from_slice(&text.as_bytes());
    }

    fn end_contents(&mut self) {
        let mut text = out().text();
        self.contents.end(&mut text);
        self.bytes.extend_from_slice(&text.as_bytes());
    }

    /// Returns the number of buffered bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the buffered output, or returns `None` if there is none.
    pub(crate) fn take(&mut self) -> Option<OutputChunk> {
        let bytes = std::mem::take(&mut self.bytes);
        (!bytes.is_empty()).then_some(OutputChunk(bytes))
    }

    /// Takes the remaining output, at the end.
    pub(crate) fn finish(mut self) -> OutputChunk {
        self.end_contents();
        OutputChunk(self.bytes)
    }
}

impl OutputChunk {
    /// Writes the output.
    ///
    /// # Errors
    /// [`OutputError`].
    pub(crate) fn write(&self) -> Result<(), OutputError> {
        // Bypasses the standard library's buffer, which would split the output into lines.
        let mut stream =
            File::from(rustix::io::dup(rustix::stdio::stdout()).map_err(|e| OutputError(e.into()))?);
        stream.write_all(&self.0).map_err(OutputError)
    }
}

/// A thread that writes pieces in order.
pub(crate) struct OutputWriter {
    pieces: mpsc::Sender<OutputChunk>,
    thread: JoinHandle<()>,
    failed: Arc<Mutex<Option<OutputError>>>,
}

impl OutputWriter {
    /// Starts the thread.
    pub(crate) fn start() -> Self {
        let (pieces, mut taken) = mpsc::channel::<OutputChunk>(1);
        let failed = Arc::new(Mutex::new(None));
        let failure = failed.clone();
        let thread = std::thread::spawn(move || {
            while let Some(piece) = taken.blocking_recv() {
                if let Err(error) = piece.write() {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return;
                }
            }
        });
        Self { pieces, thread, failed }
    }

    fn failure(&self) -> Option<OutputError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Hands over a piece. Waits while the previous one is not written yet: this back-pressure
    /// bounds the output in memory when the reader is slow.
    ///
    /// # Errors
    /// [`OutputError`] of this piece or an earlier one.
    pub(crate) async fn write(&self, piece: OutputChunk) -> Result<(), OutputError> {
        if self.pieces.send(piece).await.is_err() {
            return Err(self.failure().unwrap_or_else(|| OutputError(io::ErrorKind::BrokenPipe.into())));
        }
        Ok(())
    }

    /// Writes `rest` after all pieces handed over, and ends the thread.
    ///
    /// # Errors
    /// [`OutputError`] of any piece.
    pub(crate) fn end(self, rest: &OutputChunk) -> Result<(), OutputError> {
        let Self { pieces, thread, failed } = self;
        drop(pieces);
        thread.join().ok();
        match failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => rest.write(),
        }
    }
}
