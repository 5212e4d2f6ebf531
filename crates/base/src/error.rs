//! The error of a failed operation: a kind that the caller can act on and a human-readable text.
//!
//! There is one [`ErrorKind`] for each answer that a peer can distinguish. Each protocol front end
//! maps kinds to its own codes in one `match` without a catch-all. A new kind therefore does not
//! compile until every front end has a code for it. "Wait" and "redirect" are answers and not
//! errors, so they have no kind.

use crate::LogicalPath;
use std::{fmt, io};

/// The condition that a caller can act on. The names follow the error names of the XRootD protocol.
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
    /// Returns the kind for an error number of the operating system; unlisted numbers become a file
    /// system error.
    pub fn from_errno(errno: i32) -> Self {
        // These are Linux numbers, because the system uses Linux interfaces (openat2, io_uring,
        // sendfile).
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

    /// Returns the kind of an I/O error; an error without a number becomes [`ErrorKind::IoError`].
    pub fn from_io(error: &io::Error) -> Self {
        error.raw_os_error().map_or(Self::IoError, Self::from_errno)
    }
}

/// Returns the operating system's text for an error, in lower case and without the number.
pub fn errno_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// A failed operation: its kind, a text for the client and the cause for the log.
#[derive(Debug)]
pub struct Error {
    /// The condition that a caller can act on.
    pub kind: ErrorKind,
    /// Text for the client: the operation, the object and the reason. It contains no secrets and no
    /// paths of the server's own file system.
    pub text: String,
    /// The error of the operating system, for the log.
    pub source: Option<io::Error>,
}

impl Error {
    /// Creates an error without an underlying error of the operating system.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), source: None }
    }

    /// Creates the error `Unable to VERB PATH; REASON`, with the kind and reason of `source`.
    pub fn unable(verb: &str, path: &LogicalPath, source: io::Error) -> Self {
        Self::unable_named(verb, &path.text(), source)
    }

    /// Creates the error of [`Error::unable`] for an object that is not a path.
    pub fn unable_named(verb: &str, name: &str, source: io::Error) -> Self {
        let text = format!("Unable to {verb} {name}; {}", errno_text(&source));
        Self { kind: ErrorKind::from_io(&source), text, source: Some(source) }
    }

    /// Returns a copy for another caller that waits for the same result. The source is copied only
    /// if it has an error number.
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
    fn errors_have_the_texts_that_clients_expect() {
        let path = LogicalPath::parse(b"/data/nope").unwrap();
        let error = Error::unable("locate", &path, io::Error::from_raw_os_error(2));
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert_eq!(error.text, "Unable to locate /data/nope; no such file or directory");
        assert_eq!(ErrorKind::from_errno(20), ErrorKind::FsError); // ENOTDIR is not in the table
        assert_eq!(ErrorKind::from_errno(39), ErrorKind::ItExists);
    }
}
