//! The paths that operations name, and those of uploads in parts.

use crate::{Operation, Target};
use base::LogicalPath;

/// The begin of the names of directories of uploads in parts. Only clients of S3 reach what is in them.
pub const UPLOAD_PREFIX: &str = ".scalla-multipart-";

/// Reports whether a path is that of an upload in parts, or below one.
#[must_use]
pub fn is_in_upload(path: &LogicalPath) -> bool {
    path.as_bytes().split(|byte| *byte == b'/').any(|name| name.starts_with(UPLOAD_PREFIX.as_bytes()))
}

impl Operation {
    /// Reports whether the operation names `path` or a directory above it. Of a list only the first
    /// path is known before the operation runs, so a list may name every path.
    pub fn concerns(&self, path: &LogicalPath) -> bool {
        match self {
            Self::StatMany(_) | Self::Prepare(..) => true,
            _ => self.names_any(|target| path.is_within(&target.path)),
        }
    }

    /// Reports whether the operation names something that [`is_in_upload`]. Of a list, the first path counts.
    pub fn names_upload(&self) -> bool {
        self.names_any(|target| is_in_upload(&target.path))
    }

    /// Reports whether this holds for a path that the operation names; of a list, for the first one.
    fn names_any(&self, holds: impl Fn(&Target) -> bool) -> bool {
        match self {
            Self::Open(target, _)
            | Self::Stat(target)
            | Self::StatSpace(target)
            | Self::List(target, _)
            | Self::MakeDirectory { target, .. }
            | Self::RemoveDirectory(target)
            | Self::Remove(target)
            | Self::ChangeMode { target, .. }
            | Self::Truncate { target, .. }
            | Self::Attributes(target, _)
            | Self::Checksum(target)
            | Self::CancelChecksum(target)
            | Self::QueryAttributes(target)
            | Self::QuerySpace(target)
            | Self::Cache(target, _)
            | Self::IssueMacaroon(target, _) => holds(target),
            Self::Locate(target, _) => target.as_ref().is_some_and(holds),
            Self::Rename { from, to, .. } => holds(from) || holds(to),
            Self::StatMany(targets) | Self::Prepare(_, targets) => holds(targets.first()),
            Self::ListMore(_)
            | Self::CancelPrepare { .. }
            | Self::QueryPrepare { .. }
            | Self::QueryOpaque { .. }
            | Self::Tape(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_uploads_are_known_by_any_of_their_names() {
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap_or_else(|_| unreachable!());
        for text in ["/a/.scalla-multipart-1", "/.scalla-multipart-1/x/00001", "/.scalla-multipart-"] {
            assert!(is_in_upload(&path(text)), "{text}");
        }
        for text in ["/", "/a.scalla-multipart-1/b", "/.scalla-multipar/-", "/.scalla"] {
            assert!(!is_in_upload(&path(text)), "{text}");
        }
    }
}
