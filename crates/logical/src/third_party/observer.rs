//! [`CopyObserver`]: a port that gets the ends of third-party copies.
//!
//! It is a trait, because this crate sends nothing to collectors; the `server` crate implements it.

use base::{ErrorKind, Identity, LogicalPath};
use std::time::SystemTime;

/// A copy to this server that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedPull<'a> {
    /// The client that arranged it.
    pub client: &'a Identity,
    /// When the transfer began.
    pub begun: SystemTime,
    /// When the copy ended.
    pub ended: SystemTime,
    /// The reason for a failure.
    pub failure: Option<ErrorKind>,
    /// Number of streams, at least 1, in the form in which the client requests them.
    pub streams: u32,
    /// Host and port of the source.
    pub source: &'a str,
    /// Path at the source.
    pub source_path: &'a str,
    /// Path of the destination.
    pub path: &'a LogicalPath,
    /// Bytes of the file; those that arrived, if the copy failed.
    pub bytes: u64,
}

/// Gets the ends of copies.
pub trait CopyObserver: Send + Sync {
    /// Takes the end of a copy; never blocks.
    fn ended(&self, copy: &EndedPull<'_>);
}
