//! What went wrong: a kind that a caller may act on, and a text for a person.
//!
//! One [`ErrorKind`] per answer that a peer can tell apart. Each door maps kinds to its own codes in one `match` without a
//! catch-all, so a new kind does not compile until every door has an answer for it. "Wait" and "go elsewhere" are answers,
//! not errors, and have no place here.

use crate::LogicalPath;
use std::{fmt, io};

/// What a caller may act on. The names follow the field's error names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each name is the condition; the table of the protocol explains them")]
pub enum ErrorKind {
    ArgInvalid,
    ArgMissing,
    ArgTooLong,
    FileLocked,
    FileNotOpen,
    FsError,
    InvalidRequest,
    IoError,
    NoMemory,
    NoSpace,
    NotAuthorized,
    NotFound,
    ServerError,
    Unsupported,
    NoServer,
    NotFile,
    IsDirectory,
    Cancelled,
    ItExists,
    ChecksumError,
    InProgress,
    OverQuota,
    SignatureError,
    DecryptError,
    Overloaded,
    FsReadOnly,
    BadPayload,
    AttributeNotFound,
    TlsRequired,
    NoReplicas,
    AuthFailed,
    Impossible,
    Conflict,
    TooManyErrors,
    RequestTimedOut,
    TimerExpired,
}

impl ErrorKind {
    /// The kind an operating system's error number stands for; what is not listed is a file system error.
    pub fn from_errno(errno: i32) -> Self {
        // Linux numbers; this system runs nowhere else (openat2, io_uring, sendfile).
        match errno {
            22 => Self::ArgInvalid,            // EINVAL
            36 => Self::ArgTooLong,            // ENAMETOOLONG
            9 => Self::FileNotOpen,            // EBADF
            56 => Self::InvalidRequest,        // EBADRQC
            5 => Self::IoError,                // EIO
            12 | 105 => Self::NoMemory,        // ENOMEM ENOBUFS
            28 => Self::NoSpace,               // ENOSPC
            1 | 13 => Self::NotAuthorized,     // EPERM EACCES
            2 => Self::NotFound,               // ENOENT
            14 => Self::ServerError,           // EFAULT
            95 => Self::Unsupported,           // ENOTSUP
            101 | 113 | 111 => Self::NoServer, // ENETUNREACH EHOSTUNREACH ECONNREFUSED
            15 => Self::NotFile,               // ENOTBLK
            21 => Self::IsDirectory,           // EISDIR
            125 => Self::Cancelled,            // ECANCELED
            17 | 39 => Self::ItExists,         // EEXIST ENOTEMPTY
            33 => Self::ChecksumError,         // EDOM
            26 => Self::InProgress,            // ETXTBSY
            122 => Self::OverQuota,            // EDQUOT
            84 => Self::SignatureError,        // EILSEQ
            34 => Self::DecryptError,          // ERANGE
            87 => Self::Overloaded,            // EUSERS
            30 => Self::FsReadOnly,            // EROFS
            61 => Self::AttributeNotFound,     // ENODATA
            91 => Self::TlsRequired,           // EPROTOTYPE
            99 => Self::NoReplicas,            // EADDRNOTAVAIL
            52 => Self::AuthFailed,            // EBADE
            43 => Self::Impossible,            // EIDRM
            25 => Self::Conflict,              // ENOTTY
            109 => Self::TooManyErrors,        // ETOOMANYREFS
            110 => Self::RequestTimedOut,      // ETIMEDOUT
            62 => Self::TimerExpired,          // ETIME
            _ => Self::FsError,
        }
    }

    /// The kind of an I/O error; one without a number is an I/O error.
    pub fn from_io(error: &io::Error) -> Self {
        error.raw_os_error().map_or(Self::IoError, Self::from_errno)
    }
}

/// The operating system's words for an error, in lower case and without the number.
pub fn errno_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// A failed operation: what a caller may act on, what a person reads, and what the system said.
#[derive(Debug)]
pub struct Error {
    /// What a caller may act on.
    pub kind: ErrorKind,
    /// For the client: what failed, on what, and why. No secrets, no paths of the server's own file system.
    pub text: String,
    /// What the operating system said, for the log.
    pub source: Option<io::Error>,
}

impl Error {
    /// An error without a system's error behind it.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), source: None }
    }

    /// `Unable to VERB PATH; REASON` with the kind and the reason that the system gave.
    pub fn unable(verb: &str, path: &LogicalPath, source: io::Error) -> Self {
        Self::unable_named(verb, &path.text(), source)
    }

    /// As [`Error::unable`], for what is not a path.
    pub fn unable_named(verb: &str, name: &str, source: io::Error) -> Self {
        let text = format!("Unable to {verb} {name}; {}", errno_text(&source));
        Self { kind: ErrorKind::from_io(&source), text, source: Some(source) }
    }

    /// The same for another who has to hear of it.
    #[must_use]
    pub fn again(&self) -> Self {
        let number = self.source.as_ref().and_then(io::Error::raw_os_error);
        Self { kind: self.kind, text: self.text.clone(), source: number.map(io::Error::from_raw_os_error) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_clients_expect_them() {
        let path = LogicalPath::parse(b"/data/nope").unwrap();
        let error = Error::unable("locate", &path, io::Error::from_raw_os_error(2));
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert_eq!(error.text, "Unable to locate /data/nope; no such file or directory");
        assert_eq!(ErrorKind::from_errno(20), ErrorKind::FsError); // ENOTDIR is not in the table
        assert_eq!(ErrorKind::from_errno(39), ErrorKind::ItExists);
    }
}
