//! One read that several callers may wait for, so that no range is requested twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::source::SourceFile;
use crate::failure::Error;

/// A range that is read by the first caller that needs it.
#[derive(Debug)]
pub(super) struct SharedRead {
    pub(super) offset: u64,
    pub(super) length: usize,
    data: OnceCell<Result<Bytes, Error>>,
    /// Number of its bytes that were used.
    used: AtomicU64,
}

impl SharedRead {
    pub(super) fn new(offset: u64, length: usize) -> Arc<Self> {
        Arc::new(Self { offset, length, data: OnceCell::new(), used: AtomicU64::new(0) })
    }

    pub(super) const fn end(&self) -> u64 {
        self.offset + self.length as u64
    }

    /// Reports whether it failed, so that a new request is better.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.data.get(), Some(Err(_)))
    }

    /// Reports whether the data has arrived.
    pub(super) fn is_there(&self) -> bool {
        matches!(self.data.get(), Some(Ok(_)))
    }

    /// Returns the number of received bytes that were not used.
    pub(super) fn wasted(&self) -> u64 {
        match self.data.get() {
            Some(Ok(data)) => (data.len() as u64).saturating_sub(self.used.load(Ordering::Relaxed)),
            _ => 0,
        }
    }

    /// Starts the read without waiting for it.
    pub(super) fn begin(self: &Arc<Self>, source: &Arc<SourceFile>) {
        let (fetch, source) = (self.clone(), source.clone());
        tokio::spawn(async move {
            let _ = fetch.get(&source).await;
        });
    }

    /// Returns the data; shorter than requested at the end of the file.
    pub(super) async fn get(&self, source: &SourceFile) -> Result<Bytes, Error> {
        self.data.get_or_init(|| source.read(self.offset, self.length)).await.clone()
    }

    /// Returns the part of the data in `offset..end`.
    pub(super) async fn part(&self, source: &SourceFile, offset: u64, end: u64) -> Result<Bytes, Error> {
        let data = self.get(source).await?;
        let place = |at: u64| usize::try_from(at.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let (from, to) = (place(offset).min(data.len()), place(end).min(data.len()));
        self.used.fetch_add((to - from) as u64, Ordering::Relaxed);
        Ok(data.slice(from..to))
    }
}
