//! The error type of copies.

use std::io;

use crate::failure::Error;
use crate::metalink::MetalinkError;
use crate::path::{NameError, shown_path};
use crate::zip::ZipError;

/// One end of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The end that is read.
    Source,
    /// The end that is written.
    Target,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::Source { "source" } else { "target" })
    }
}

/// The error of a copy. The texts name the file and a remedy. Places have the form in which they
/// are displayed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A server reported an error, or could not be reached. The alternate form (`{:#}`) contains
    /// the name of the error code.
    #[error(fmt = remote)]
    Remote {
        /// The end of the copy at which it failed.
        side: Side,
        /// The error of the request.
        error: Error,
    },
    /// The file system of this machine reported an error.
    #[error("{operation} {path}: {text}")]
    Local {
        /// The operation that failed.
        operation: &'static str,
        /// The file.
        path: String,
        /// The kind of the error.
        kind: io::ErrorKind,
        /// The text of the operating system, and a remedy.
        text: String,
    },
    /// The target exists already.
    #[error("{0} exists; --force overwrites it, --continue completes it")]
    Exists(String),
    /// One side has a file and the other a directory. Both are kept.
    #[error("{0} is a directory on one side and a file on the other; remove or rename one of them")]
    OtherKind(String),
    /// A directory exists where a file is needed.
    #[error("{0} is a directory; --recursive copies those")]
    IsDirectory(String),
    /// The source has fewer bytes than it reported.
    #[error("{place} ended at byte {at} of {size}: it has changed or is damaged; copy it again")]
    Short {
        /// The source.
        place: String,
        /// The offset at which it ended.
        at: u64,
        /// The reported size.
        size: u64,
    },
    /// The part left by an earlier copy does not belong to this source.
    #[error("{target} cannot be continued: {why}; --force copies it anew")]
    NotContinued {
        /// The target to be completed.
        target: String,
        /// The reason why the part does not match.
        why: String,
    },
    /// The target has the name of the part or the note of another target.
    #[error("{0} has the name of a partial copy, which --continue may use: copy it without --continue")]
    PartName(String),
    /// Another process writes the target.
    #[error("{0} is being copied by another process; wait until that has ended")]
    InUse(String),
    /// A checksum is not the expected one.
    #[error(
        "{kind} of {place} is {found}, but should be {expected}: the data was damaged on its way or on a disk; copy it again"
    )]
    Checksum {
        /// The file that was checked.
        place: String,
        /// Name of the algorithm.
        kind: String,
        /// The checksum that was found.
        found: String,
        /// The expected checksum.
        expected: String,
    },
    /// A name that no request can carry, or that no local path can contain. The entry was left
    /// alone.
    #[error("{name:?} in {place} is left out: {why}; rename it")]
    Name {
        /// The directory, or the archive.
        place: String,
        /// The name as displayed.
        name: String,
        /// The reason.
        why: NameError,
    },
    /// Contradictory options.
    #[error("{0}")]
    Usage(String),
    /// The file is not an archive, or not one that can be used.
    #[error("{place}: {error}")]
    Archive {
        /// The archive.
        place: String,
        /// The problem.
        error: ZipError,
    },
    /// The file is not a metalink.
    #[error("{place}: {error}")]
    Metalink {
        /// The place.
        place: String,
        /// The problem.
        error: MetalinkError,
    },
    /// No place named by a metalink has the file.
    #[error("no place that {place} names has the file; of the last: {last}")]
    NoMirror {
        /// The metalink.
        place: String,
        /// The error of the last place.
        last: Box<CopyError>,
    },
    /// The size of a file differs from the size in its metalink.
    #[error("{place} has {size} bytes, but should have {expected}")]
    Size {
        /// The place.
        place: String,
        /// The size in bytes.
        size: u64,
        /// The size in the metalink.
        expected: u64,
    },
    /// The copy is slower than the required rate.
    #[error("{place} comes with {rate} bytes a second, less than the {least} that were asked for")]
    Slow {
        /// The source.
        place: String,
        /// The rate in bytes per second.
        rate: u64,
        /// The required rate.
        least: u64,
    },
    /// The copy was not started, because the server had no space for an earlier file of at most
    /// that size.
    #[error("{target} is not begun: {server} has no space left; free space, or copy elsewhere")]
    Full {
        /// The target.
        target: String,
        /// The server, `host:port`.
        server: String,
    },
    /// The copy was cancelled.
    #[error("interrupted")]
    Cancelled,
    /// No source is left.
    #[error("no source of {place} is left: {}", .reasons.join("; "))]
    NoSource {
        /// The file.
        place: String,
        /// The reason for each source that was given up.
        reasons: Vec<String>,
    },
}

fn remote(side: &Side, error: &Error, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    if f.alternate() { write!(f, "{error:#} ({side})") } else { write!(f, "{error} ({side})") }
}

/// Reports whether too many files are open, in this process or on this machine.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(number, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

impl CopyError {
    pub(super) fn local(
        operation: &'static str,
        path: impl AsRef<std::path::Path>,
        error: &io::Error,
    ) -> Self {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => "; check your permissions there",
            io::ErrorKind::StorageFull => "; free space, or copy elsewhere",
            io::ErrorKind::QuotaExceeded => "; your quota is used up: remove something, or copy elsewhere",
            io::ErrorKind::ReadOnlyFilesystem => "; copy elsewhere",
            _ if is_out_of_descriptors(error) => "; copy fewer at once, or raise the limit (ulimit -n)",
            _ => "",
        };
        Self::Local {
            operation,
            path: shown_path(path.as_ref()).into_owned(),
            kind: error.kind(),
            text: format!("{}{remedy}", base::errno_text(error)),
        }
    }

    pub(super) fn name(place: impl std::fmt::Display, name: impl Into<String>, why: NameError) -> Self {
        Self::Name { place: place.to_string(), name: name.into(), why }
    }

    pub(super) fn on(side: Side, error: Error) -> Self {
        Self::Remote { side, error }
    }

    pub(super) fn source(error: Error) -> Self {
        Self::Remote { side: Side::Source, error }
    }

    pub(super) fn target(error: Error) -> Self {
        Self::Remote { side: Side::Target, error }
    }

    /// Returns the error of the server, if one is the reason.
    #[must_use]
    pub fn remote_error(&self) -> Option<&Error> {
        match self {
            Self::Remote { error, .. } => Some(error),
            Self::NoMirror { last, .. } => last.remote_error(),
            _ => None,
        }
    }

    /// Reports whether it is unknown if a request was carried out; see [`Error::is_uncertain`].
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Remote { error, .. } => error.is_uncertain(),
            Self::NoMirror { last, .. } => last.is_uncertain(),
            _ => false,
        }
    }

    /// Reports whether a retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Remote { error, .. } => error.is_transient(),
            Self::NoMirror { last, .. } => last.is_transient(),
            Self::Short { .. } | Self::Checksum { .. } | Self::NoSource { .. } | Self::Slow { .. } => true,
            _ => false,
        }
    }
}
