//! Errors of copies as the texts and codes of these programs.

use crate::json_failures;
use crate::xrootd_compat::{CopySide, XrdClStatus, code};
use client::copy::{CopyError, CopyJob, Place};
use client::metalink::MetalinkError;
use client::xroot::ErrorCode;

/// Converts the error of a metalink that cannot be read.
pub(crate) fn status_of_metalink(error: &CopyError) -> XrdClStatus {
    let bad = XrdClStatus::error(code::DATA_ERROR);
    match error {
        CopyError::Remote { error, .. } => XrdClStatus::from(error.clone()),
        CopyError::Local { kind, .. } => XrdClStatus::local_number(json_failures::errno(*kind)),
        CopyError::Metalink { error: MetalinkError::SeveralFiles(_), .. } => bad,
        CopyError::Metalink { .. } => bad.with_message("Malformed or corrupted metalink file."),
        other => XrdClStatus::error(code::INTERNAL).with_message(other.to_string()),
    }
}

/// Converts the error of a copy to the text of these programs.
pub(crate) fn status_of_copy(error: &CopyError, job: &CopyJob) -> XrdClStatus {
    status(error, &job.source, &job.target)
}

/// Converts the error of a job to the text of these programs. With `keeps`, an existing local file
/// is not overwritten, and this error precedes all others.
pub(super) fn status_of_job(error: &CopyError, source: &Place, target: &Place, keeps: bool) -> XrdClStatus {
    match (error, target) {
        (CopyError::Usage(_), Place::Local(path)) if keeps && path.exists() => {
            XrdClStatus::local_number(libc::EEXIST).at(CopySide::Destination)
        }
        _ => status(error, source, target),
    }
}

/// Converts an error to the text of these programs.
fn status(error: &CopyError, source: &Place, target: &Place) -> XrdClStatus {
    let side_of =
        |name: &str| if name == source.to_string() { CopySide::Source } else { CopySide::Destination };
    let of_url = |code: ErrorCode, did: &str, name: &str, why: &str| {
        let place = if side_of(name) == CopySide::Source { source } else { target };
        let path = place.url().map_or(name, |url| url.path.as_str());
        XrdClStatus::response(code, format!("Unable to {did} {path}; {why}")).at(side_of(name))
    };
    match error {
        CopyError::Remote { side, error } => {
            let side =
                if *side == client::copy::Side::Source { CopySide::Source } else { CopySide::Destination };
            XrdClStatus::from(error.clone()).at(side)
        }
        CopyError::Exists(name) if target.url().is_some() => {
            of_url(ErrorCode::IT_EXISTS, "create", name, "file exists")
        }
        CopyError::Exists(_) => XrdClStatus::local_number(libc::EEXIST).at(CopySide::Destination),
        CopyError::IsDirectory(name) if name.contains("://") => {
            of_url(ErrorCode::IS_DIRECTORY, "open", name, "is a directory")
        }
        CopyError::IsDirectory(name) => XrdClStatus::local_number(libc::EISDIR).at(side_of(name)),
        CopyError::Local { path, kind, .. } => {
            XrdClStatus::local_number(json_failures::errno(*kind)).at(side_of(path))
        }
        CopyError::Short { .. } => XrdClStatus::error(code::DATA_ERROR).with_message(error.to_string()),
        CopyError::NotContinued { why, .. } => XrdClStatus::error(code::INVALID_OPERATION).with_message(why),
        CopyError::Checksum { .. } => XrdClStatus::error(code::CHECKSUM_ERROR),
        CopyError::Usage(text) => XrdClStatus::error(code::NOT_SUPPORTED).with_message(text),
        CopyError::Name { .. } => XrdClStatus::error(code::NOT_SUPPORTED).with_message(error.to_string()),
        CopyError::Archive { place, error } => XrdClStatus::archive(error).at(side_of(place)),
        CopyError::Metalink { .. } => status_of_metalink(error).at(CopySide::Source),
        CopyError::NoMirror { last, .. } => {
            XrdClStatus::no_replicas(Some(&status(last, source, target))).at(CopySide::Source)
        }
        CopyError::Size { .. } => {
            XrdClStatus::error(code::DATA_ERROR).with_message(error.to_string()).at(CopySide::Source)
        }
        CopyError::Slow { .. } => XrdClStatus::error(code::THRESHOLD_EXCEEDED).at(CopySide::Source),
        CopyError::Cancelled => XrdClStatus::error(code::INTERRUPTED),
        CopyError::NoSource { .. } => XrdClStatus::error(code::NO_REPLICAS),
        other => XrdClStatus::error(code::INTERNAL).with_message(other.to_string()),
    }
}
