//! Failures as lines of JSON, with equal keys in all commands.
//!
//! | key | value |
//! |---|---|
//! | `kind` | `"error"` |
//! | `error` | the text |
//! | `code` | the name of the reason, without spaces: `NotFound`, `Unreachable`, `Usage` |
//! | `errno` | the system's error number for the reason, if there is one |
//! | `host` | the server that failed, `HOST:PORT`, if a server was contacted |
//! | `uncertain` | `true`: it is unknown whether the operation was done |

use std::io::ErrorKind as SystemError;

use base::ErrorKind;
use client::copy::CopyError;
use client::xroot::ErrorCode;
use client::{Cause, Error};
use serde_json::{Map, Value, json};

/// Code of an invalid command line.
pub(crate) const USAGE: &str = "Usage";

/// Returns the object for a failure with a text and an optional code.
pub(crate) fn failure(text: &str, code: Option<&str>) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("kind".to_owned(), "error".into());
    facts.insert("error".to_owned(), text.into());
    if let Some(code) = code {
        facts.insert("code".to_owned(), code.into());
    }
    facts
}

/// Returns the object for a failed request.
pub(crate) fn of_request(error: &Error) -> Map<String, Value> {
    let mut facts = failure(&format!("{error:#}"), None);
    add_request(&mut facts, error);
    facts
}

/// Returns the object for a failed copy.
pub(crate) fn of_copy(error: &CopyError) -> Map<String, Value> {
    let mut facts = failure(&format!("{error:#}"), None);
    if let Some(error) = error.remote_error() {
        add_request(&mut facts, error);
        return facts;
    }
    let (code, errno) = match error {
        CopyError::Local { kind, .. } => {
            let number = errno(*kind);
            (format!("{:?}", ErrorKind::from_errno(number)), Some(number))
        }
        CopyError::Exists(_) => ("ItExists".to_owned(), Some(libc::EEXIST)),
        CopyError::IsDirectory(_) => ("IsDirectory".to_owned(), Some(libc::EISDIR)),
        CopyError::Full { .. } => ("NoSpace".to_owned(), Some(libc::ENOSPC)),
        CopyError::Checksum { .. } => ("ChecksumError".to_owned(), None),
        CopyError::Usage(_) => (USAGE.to_owned(), None),
        // Other errors are named after their variant.
        other => (name_of(other), None),
    };
    facts.insert("code".to_owned(), code.into());
    if let Some(errno) = errno {
        facts.insert("errno".to_owned(), errno.into());
    }
    facts
}

fn add_request(facts: &mut Map<String, Value>, error: &Error) {
    let (code, errno) = match error.cause() {
        Cause::Server { code, .. } => (code_name(*code), errno_of(*code)),
        Cause::Unreachable(_) => ("Unreachable".to_owned(), Some(libc::EHOSTUNREACH)),
        Cause::TimedOut(_) | Cause::Expired { .. } => ("TimedOut".to_owned(), Some(libc::ETIMEDOUT)),
        Cause::Lost(_) => ("Lost".to_owned(), Some(libc::ECONNRESET)),
        other => (name_of(other), None),
    };
    facts.insert("code".to_owned(), code.into());
    if let Some(errno) = errno {
        facts.insert("errno".to_owned(), errno.into());
    }
    if let Some(host) = &error.failure().server {
        facts.insert("host".to_owned(), host.as_str().into());
    }
    if error.is_uncertain() {
        facts.insert("uncertain".to_owned(), true.into());
    }
}

/// Returns the name of a variant.
fn name_of(error: &impl std::fmt::Debug) -> String {
    let text = format!("{error:?}");
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// Returns the name of an error code: that of the protocol without its prefix, or the number.
fn code_name(code: ErrorCode) -> String {
    let name = code.to_string();
    name.strip_prefix("kXR_").map(str::to_owned).unwrap_or(name)
}

/// Returns the system's error number for a server's error code.
fn errno_of(code: ErrorCode) -> Option<i32> {
    Some(match code {
        ErrorCode::ARG_INVALID | ErrorCode::ARG_MISSING => libc::EINVAL,
        ErrorCode::ARG_TOO_LONG => libc::ENAMETOOLONG,
        ErrorCode::FILE_LOCKED => libc::EDEADLK,
        ErrorCode::FILE_NOT_OPEN => libc::EBADF,
        ErrorCode::IO_ERROR | ErrorCode::FS_ERROR => libc::EIO,
        ErrorCode::NO_MEMORY => libc::ENOMEM,
        ErrorCode::NO_SPACE => libc::ENOSPC,
        ErrorCode::NOT_AUTHORIZED | ErrorCode::AUTH_FAILED => libc::EACCES,
        ErrorCode::NOT_FOUND => libc::ENOENT,
        ErrorCode::UNSUPPORTED => libc::ENOTSUP,
        ErrorCode::NO_SERVER => libc::EHOSTUNREACH,
        ErrorCode::IS_DIRECTORY => libc::EISDIR,
        ErrorCode::CANCELLED => libc::ECANCELED,
        ErrorCode::IT_EXISTS => libc::EEXIST,
        ErrorCode::IN_PROGRESS => libc::EINPROGRESS,
        ErrorCode::OVER_QUOTA => libc::EDQUOT,
        ErrorCode::OVERLOADED => libc::EBUSY,
        ErrorCode::FS_READ_ONLY => libc::EROFS,
        ErrorCode::ATTR_NOT_FOUND => libc::ENODATA,
        ErrorCode::REQ_TIMED_OUT | ErrorCode::TIMER_EXPIRED => libc::ETIMEDOUT,
        _ => return None,
    })
}

/// Returns the system's error number for a kind of error.
pub(crate) fn errno(kind: SystemError) -> i32 {
    match kind {
        SystemError::NotFound => libc::ENOENT,
        SystemError::PermissionDenied => libc::EACCES,
        SystemError::AlreadyExists => libc::EEXIST,
        SystemError::IsADirectory => libc::EISDIR,
        SystemError::NotADirectory => libc::ENOTDIR,
        SystemError::StorageFull => libc::ENOSPC,
        SystemError::QuotaExceeded => libc::EDQUOT,
        SystemError::ReadOnlyFilesystem => libc::EROFS,
        SystemError::FileTooLarge => libc::EFBIG,
        SystemError::BrokenPipe => libc::EPIPE,
        _ => libc::EIO,
    }
}

/// Parses the values in a reply to a configuration query: `0:adler32,1:md5` has two, and so does
/// `248 65536`. Numbers become JSON numbers.
pub(crate) fn values(key: &str, value: &str) -> Value {
    let words = value.split([' ', ',']).filter(|word| !word.is_empty()).map(|word| {
        // Checksum types are numbered.
        let word = match (key, word.split_once(':')) {
            ("chksum", Some((number, kind))) if number.parse::<u32>().is_ok() => kind,
            _ => word,
        };
        word.parse::<i64>().map_or_else(|_| json!(word), |number| json!(number))
    });
    Value::Array(words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_a_code_a_number_and_a_host() {
        let cause = Cause::Server { code: ErrorCode::NOT_FOUND, text: "no".to_owned() };
        let facts = of_request(&Error::new("stat", "root://h//a", cause).at("h:1094", &[]));
        assert_eq!(
            (&facts["kind"], &facts["code"], &facts["errno"]),
            (&json!("error"), &json!("NotFound"), &json!(2))
        );
        assert_eq!(facts["host"], "h:1094");
        let facts = of_request(&Error::new("stat", "root://h//a", Cause::Unresolved("x".to_owned())));
        assert_eq!(facts["code"], "Unresolved");
        let facts = of_copy(&CopyError::Exists("x".to_owned()));
        assert_eq!((&facts["code"], &facts["errno"]), (&json!("ItExists"), &json!(17)));
        let facts = of_copy(&CopyError::OtherKind("x".to_owned()));
        assert_eq!((&facts["code"], facts.get("errno")), (&json!("OtherKind"), None));
        let local = CopyError::Local {
            operation: "open",
            path: "/x".to_owned(),
            kind: SystemError::PermissionDenied,
            text: "permission denied".to_owned(),
        };
        assert_eq!(
            (&of_copy(&local)["code"], &of_copy(&local)["errno"]),
            (&json!("NotAuthorized"), &json!(13))
        );
    }

    #[test]
    fn values_of_a_configuration_are_taken_apart() {
        for (key, value, expected) in [
            ("chksum", "0:adler32,1:crc32c", json!(["adler32", "crc32c"])),
            ("fattr", "248 65536", json!([248, 65536])),
            ("bind_max", "15", json!([15])),
            ("version", "v5.5.3", json!(["v5.5.3"])),
            ("cms", "localhost:24001/c ", json!(["localhost:24001/c"])),
            ("sitename", "", json!([])),
        ] {
            assert_eq!(values(key, value), expected, "{key} {value}");
        }
    }
}
