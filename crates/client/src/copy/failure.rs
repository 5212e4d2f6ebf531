//! Why a copy failed.

use std::io;

use crate::failure::Error;
use crate::metalink::MetalinkError;
use crate::path::{NameError, shown_path};
use crate::zip::ZipError;

/// Which end of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Where the bytes come from.
    Source,
    /// Where they go.
    Target,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::Source { "source" } else { "target" })
    }
}

/// A copy that failed. The texts name the file and what helps; places are as they print.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A server said no, or could not be asked. The alternate form (`{:#}`) has the name of its error code.
    #[error(fmt = remote)]
    Remote {
        /// Which end.
        side: Side,
        /// What it said.
        error: Error,
    },
    /// The machine's own file system said no.
    #[error("{operation} {path}: {text}")]
    Local {
        /// What was to be done.
        operation: &'static str,
        /// To which file.
        path: String,
        /// What kind of error it is.
        kind: io::ErrorKind,
        /// What the system said, and what helps.
        text: String,
    },
    /// There is a file already where the copy should go.
    #[error("{0} exists; --force overwrites it, --continue completes it")]
    Exists(String),
    /// A file on one side and a directory on the other; both stay.
    #[error("{0} is a directory on one side and a file on the other; remove or rename one of them")]
    OtherKind(String),
    /// A folder, where a file is needed.
    #[error("{0} is a directory; --recursive copies those")]
    IsDirectory(String),
    /// The source has fewer bytes than it said.
    #[error("{place} ended at byte {at} of {size}: it has changed or is damaged; copy it again")]
    Short {
        /// The source.
        place: String,
        /// Where it ended.
        at: u64,
        /// What it had said.
        size: u64,
    },
    /// The part of an earlier copy is none of this source.
    #[error("{target} cannot be continued: {why}; --force copies it anew")]
    NotContinued {
        /// What was to be completed.
        target: String,
        /// Why it is none.
        why: String,
    },
    /// Another process writes there.
    #[error("{0} is being copied by another process; wait until that has ended")]
    InUse(String),
    /// The copy is not what it should be.
    #[error(
        "{kind} of {place} is {found}, but should be {expected}: the data was damaged on its way or on a disk; copy it again"
    )]
    Checksum {
        /// What was checked.
        place: String,
        /// Name of the algorithm.
        kind: String,
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// A name that no request can carry, or that no path here can hold. Nothing was done with it.
    #[error("{name:?} in {place} is left out: {why}; rename it")]
    Name {
        /// The directory, or the archive.
        place: String,
        /// The name, as it is shown.
        name: String,
        /// Why not.
        why: NameError,
    },
    /// What was asked for does not go together.
    #[error("{0}")]
    Usage(String),
    /// An archive is none, or not what is wanted.
    #[error("{place}: {error}")]
    Archive {
        /// The archive.
        place: String,
        /// What is wrong.
        error: ZipError,
    },
    /// A metalink is none.
    #[error("{place}: {error}")]
    Metalink {
        /// Where it is.
        place: String,
        /// What is wrong.
        error: MetalinkError,
    },
    /// No place that a metalink names has the file.
    #[error("no place that {place} names has the file; of the last: {last}")]
    NoMirror {
        /// The metalink.
        place: String,
        /// Why the last one did not do.
        last: Box<CopyError>,
    },
    /// A place has a file of another size than its metalink says.
    #[error("{place} has {size} bytes, but should have {expected}")]
    Size {
        /// The place.
        place: String,
        /// Its bytes.
        size: u64,
        /// What the metalink says.
        expected: u64,
    },
    /// It is slower than it may be.
    #[error("{place} comes with {rate} bytes a second, less than the {least} that were asked for")]
    Slow {
        /// The source.
        place: String,
        /// Its rate, bytes a second.
        rate: u64,
        /// What was asked for.
        least: u64,
    },
    /// It was not begun: the server had no space for a file of that size before.
    #[error("{target} is not begun: {server} has no space left; make room, or copy elsewhere")]
    Full {
        /// The target.
        target: String,
        /// The server, `host:port`.
        server: String,
    },
    /// Somebody stopped it.
    #[error("interrupted")]
    Cancelled,
    /// No source is left.
    #[error("no source of {place} is left: {}", .reasons.join("; "))]
    NoSource {
        /// The file.
        place: String,
        /// Why each of them was given up.
        reasons: Vec<String>,
    },
}

fn remote(side: &Side, error: &Error, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    if f.alternate() { write!(f, "{error:#} ({side})") } else { write!(f, "{error} ({side})") }
}

/// Whether too many files are open, in this process or on this machine.
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
            io::ErrorKind::StorageFull => "; make room, or copy elsewhere",
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

    /// A server's error, where one is the reason.
    #[must_use]
    pub fn remote_error(&self) -> Option<&Error> {
        match self {
            Self::Remote { error, .. } => Some(error),
            Self::NoMirror { last, .. } => last.remote_error(),
            _ => None,
        }
    }

    /// Whether it is unknown if a request was carried out; see [`Error::is_uncertain`].
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Remote { error, .. } => error.is_uncertain(),
            Self::NoMirror { last, .. } => last.is_uncertain(),
            _ => false,
        }
    }

    /// Whether it may go well when it is tried again.
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
