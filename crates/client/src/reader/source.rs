//! The file behind a reader.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::failure::Error;
use crate::file::File;

/// The file that data is read from, and the number of bytes received.
pub(super) struct SourceFile {
    pub(super) file: File,
    /// Set to read with page checksums.
    verified: bool,
    pub(super) fetched: AtomicU64,
}

impl fmt::Debug for SourceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.file, f)
    }
}

impl SourceFile {
    /// `verified` requests a checksum for each page, where the server supports them.
    pub(super) fn new(file: File, verified: bool) -> Arc<Self> {
        Arc::new(Self { file, verified, fetched: AtomicU64::new(0) })
    }

    pub(super) async fn read(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        let data = if self.verified {
            self.file.read_pages(offset, length).await?
        } else {
            self.file.read(offset, length).await?
        };
        self.fetched.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(data)
    }
}
