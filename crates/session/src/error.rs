//! Mapping of error kinds to error codes of the protocol.
//!
//! The `match` has no catch-all arm, so that a new kind does not compile until it has a code.

use base::ErrorKind;
use wire::xroot::codes::ErrorCode;

/// Returns the error code that a client receives for this kind.
pub fn wire_code(kind: ErrorKind) -> ErrorCode {
    match kind {
        ErrorKind::ArgInvalid => ErrorCode::ARG_INVALID,
        ErrorKind::ArgMissing => ErrorCode::ARG_MISSING,
        ErrorKind::ArgTooLong => ErrorCode::ARG_TOO_LONG,
        ErrorKind::FileLocked => ErrorCode::FILE_LOCKED,
        ErrorKind::FileNotOpen => ErrorCode::FILE_NOT_OPEN,
        ErrorKind::FsError => ErrorCode::FS_ERROR,
        ErrorKind::InvalidRequest => ErrorCode::INVALID_REQUEST,
        ErrorKind::IoError => ErrorCode::IO_ERROR,
        ErrorKind::NoMemory => ErrorCode::NO_MEMORY,
        ErrorKind::NoSpace => ErrorCode::NO_SPACE,
        ErrorKind::NotAuthorized => ErrorCode::NOT_AUTHORIZED,
        ErrorKind::NotFound => ErrorCode::NOT_FOUND,
        ErrorKind::ServerError => ErrorCode::SERVER_ERROR,
        ErrorKind::Unsupported => ErrorCode::UNSUPPORTED,
        ErrorKind::NoServer => ErrorCode::NO_SERVER,
        ErrorKind::NotFile => ErrorCode::NOT_FILE,
        ErrorKind::IsDirectory => ErrorCode::IS_DIRECTORY,
        ErrorKind::Cancelled => ErrorCode::CANCELLED,
        ErrorKind::ItExists => ErrorCode::IT_EXISTS,
        ErrorKind::ChecksumError => ErrorCode::CHKSUM_ERR,
        ErrorKind::InProgress => ErrorCode::IN_PROGRESS,
        ErrorKind::OverQuota => ErrorCode::OVER_QUOTA,
        ErrorKind::SignatureError => ErrorCode::SIGVER_ERR,
        ErrorKind::DecryptError => ErrorCode::DECRYPT_ERR,
        ErrorKind::Overloaded => ErrorCode::OVERLOADED,
        ErrorKind::FsReadOnly => ErrorCode::FS_READ_ONLY,
        ErrorKind::BadPayload => ErrorCode::BAD_PAYLOAD,
        ErrorKind::AttributeNotFound => ErrorCode::ATTR_NOT_FOUND,
        ErrorKind::TlsRequired => ErrorCode::TLS_REQUIRED,
        ErrorKind::NoReplicas => ErrorCode::NO_REPLICAS,
        ErrorKind::AuthFailed => ErrorCode::AUTH_FAILED,
        ErrorKind::Impossible => ErrorCode::IMPOSSIBLE,
        ErrorKind::Conflict => ErrorCode::CONFLICT,
        ErrorKind::TooManyErrors => ErrorCode::TOO_MANY_ERRS,
        ErrorKind::RequestTimedOut => ErrorCode::REQ_TIMED_OUT,
        ErrorKind::TimerExpired => ErrorCode::TIMER_EXPIRED,
    }
}
