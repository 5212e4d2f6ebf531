//! [`CacheOrigin`]: the source of a cached file, as one reader has it open.

use crate::OriginVersion;
use bytes::Bytes;
use std::fmt::Debug;
use std::future::Future;
use thiserror::Error;

/// A file that is open at its origin. Each reader has its own.
pub trait CacheOrigin: Send + Sync + 'static {
    /// The reason why a request has failed.
    type Failure: Clone + Debug + Send + Sync + 'static;

    /// Reads a range that lies within the file. Fewer bytes than requested mean that the file is shorter.
    fn read(&self, offset: u64, length: usize) -> impl Future<Output = Result<Bytes, Self::Failure>> + Send;

    /// Returns the current version of the file.
    fn version(&self) -> impl Future<Output = Result<OriginVersion, Self::Failure>> + Send;

    /// Reports whether the file is open at another server than at first. A copy has the same size and time there,
    /// and another identity.
    fn has_moved(&self) -> bool {
        false
    }

    /// Returns the server at which the file is open as `host:port`, if it is known.
    fn remote(&self) -> Option<String> {
        None
    }
}

/// The reason why a read has no result.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum CacheReadError<F> {
    /// The request at the origin has failed.
    #[error("the request at the origin has failed")]
    Origin(F),
    /// The file at the origin is another version than the reader has opened.
    #[error("the file has changed at the origin since it was opened; open it again")]
    Changed,
    /// The cache has ended.
    #[error("the cache has ended")]
    Ended,
}
