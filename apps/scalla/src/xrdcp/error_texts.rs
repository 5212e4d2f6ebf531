//! Errors of copies as the texts and codes of these programs.

use crate::facts;
use crate::stock::{Side, Status, code};
use client::copy::{CopyError, CopyJob, Place};
use client::metalink::MetalinkError;
use client::xroot::ErrorCode;

/// Converts the error of a metalink that cannot be read.
pub(crate) fn of_metalink(error: &CopyError) -> Status {
    let bad = Status::error(code::DATA_ERROR);
    match error {
        CopyError::Remote { error, .. } => Status::from(error.clone()),
        CopyError::Local { kind, .. } => Status::local_number(facts::errno(*kind)),
        CopyError::Metalink { error: MetalinkError::SeveralFiles(_), .. } => bad,
        CopyError::Metalink { .. } => bad.saying("Malformed or corrupted metalink file."),
        other => Status::error(code::INTERNAL).saying(other.to_string()),
    }
}

/// Converts the error of a copy to the text of these programs.
pub(crate) fn of_copy(error: &CopyError, job: &CopyJob) -> Status {
    status(error, &job.source, &job.target)
}

/// Converts the error of a job to the text of these programs. With `keeps`, an existing local file
/// is not overwritten, and this error precedes all others.
pub(super) fn of_job(error: &CopyError, source: &Place, target: &Place, keeps: bool) -> Status {
    match (error, target) {
        (CopyError::Usage(_), Place::Local(path)) if keeps && path.exists() => {
            Status::local_number(libc::EEXIST).at(Side::Destination)
        }
        _ => status(error, source, target),
    }
}

/// Converts an error to the text of these programs.
fn status(error: &CopyError, source: &Place, target: &Place) -> Status {
    let side_of = |name: &str| if name == source.to_string() { Side::Source } else { Side::Destination };
    let of_url = |code: ErrorCode, did: &str, name: &str, why: &str| {
        let place = if side_of(name) == Side::Source { source } else { target };
        let path = place.url().map_or(name, |url| url.path.as_str());
        Status::response(code, format!("Unable to {did} {path}; {why}")).at(side_of(name))
    };
    match error {
        CopyError::Remote { side, error } => {
            let side = if *side == client::copy::Side::Source { Side::Source } else { Side::Destination };
            Status::from(error.clone()).at(side)
        }
        CopyError::Exists(name) if target.url().is_some() => {
            of_url(ErrorCode::IT_EXISTS, "create", name, "file exists")
        }
        CopyError::Exists(_) => Status::local_number(libc::EEXIST).at(Side::Destination),
        CopyError::IsDirectory(name) if name.contains("://") => {
            of_url(ErrorCode::IS_DIRECTORY, "open", name, "is a directory")
        }
        CopyError::IsDirectory(name) => Status::local_number(libc::EISDIR).at(side_of(name)),
        CopyError::Local { path, kind, .. } => Status::local_number(facts::errno(*kind)).at(side_of(path)),
        CopyError::Short { .. } => Status::error(code::DATA_ERROR).saying(error.to_string()),
        CopyError::NotContinued { why, .. } => Status::error(code::INVALID_OPERATION).saying(why),
        CopyError::Checksum { .. } => Status::error(code::CHECKSUM_ERROR),
        CopyError::Usage(text) => Status::error(code::NOT_SUPPORTED).saying(text),
        CopyError::Name { .. } => Status::error(code::NOT_SUPPORTED).saying(error.to_string()),
        CopyError::Archive { place, error } => Status::archive(error).at(side_of(place)),
        CopyError::Metalink { .. } => of_metalink(error).at(Side::Source),
        CopyError::NoMirror { last, .. } => {
            Status::no_replicas(Some(&status(last, source, target))).at(Side::Source)
        }
        CopyError::Size { .. } => Status::error(code::DATA_ERROR).saying(error.to_string()).at(Side::Source),
        CopyError::Slow { .. } => Status::error(code::THRESHOLD_EXCEEDED).at(Side::Source),
        CopyError::Cancelled => Status::error(code::INTERRUPTED),
        CopyError::NoSource { .. } => Status::error(code::NO_REPLICAS),
        other => Status::error(code::INTERNAL).saying(other.to_string()),
    }
}
