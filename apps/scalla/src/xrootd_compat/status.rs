//! Results of XRootD's client programs: a code, a text and an exit status.
//!
//! Codes are grouped in classes of one hundred. The exit status is 50 plus the class. Errors of a
//! server are reported with its code and text.

use client::xroot::ErrorCode;
use client::zip::ZipError;
use client::{Cause, ConnectionError, Demand, Error};
use std::fmt;
use std::process::ExitCode;

/// Codes of [`XrdClStatus`].
pub(crate) mod code {
    pub(crate) const UNKNOWN: u16 = 1;
    pub(crate) const INVALID_OPERATION: u16 = 3;
    pub(crate) const INTERNAL: u16 = 7;
    pub(crate) const UNKNOWN_COMMAND: u16 = 8;
    pub(crate) const INVALID_ARGUMENTS: u16 = 9;
    pub(crate) const OS_ERROR: u16 = 12;
    pub(crate) const NOT_SUPPORTED: u16 = 13;
    pub(crate) const DATA_ERROR: u16 = 14;
    pub(crate) const NO_REPLICAS: u16 = 16;
    pub(crate) const INVALID_ADDRESS: u16 = 101;
    pub(crate) const DISCONNECTED: u16 = 104;
    pub(crate) const CONNECTION_ERROR: u16 = 108;
    pub(crate) const TLS_ERROR: u16 = 110;
    pub(crate) const INVALID_MESSAGE: u16 = 201;
    pub(crate) const LOGIN_FAILED: u16 = 203;
    pub(crate) const AUTH_FAILED: u16 = 204;
    pub(crate) const OPERATION_EXPIRED: u16 = 206;
    pub(crate) const INTERRUPTED: u16 = 212;
    pub(crate) const THRESHOLD_EXCEEDED: u16 = 213;
    pub(crate) const INVALID_REDIRECT: u16 = 208;
    pub(crate) const INVALID_RESPONSE: u16 = 209;
    pub(crate) const NOT_FOUND: u16 = 304;
    pub(crate) const CHECKSUM_ERROR: u16 = 305;
    pub(crate) const REDIRECT_LIMIT: u16 = 306;
    pub(crate) const ERROR_RESPONSE: u16 = 400;
    pub(crate) const LOCAL_ERROR: u16 = 402;
    pub(crate) const RESPONSE_NEGATIVE: u16 = 500;
}

/// Invalid arguments.
pub(crate) const INVALID_ARGUMENTS: XrdClStatus = XrdClStatus::error(code::INVALID_ARGUMENTS);

/// The side of a copy that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopySide {
    Source,
    Destination,
}

/// The failure of a command. `Display` formats the line that these programs print.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct XrdClStatus {
    fatal: bool,
    code: u16,
    /// The server's code, or the system's error number; 0 if there is none.
    number: i32,
    message: String,
}

impl XrdClStatus {
    pub(crate) const fn error(code: u16) -> Self {
        Self { fatal: false, code, number: 0, message: String::new() }
    }

    const fn fatal(code: u16) -> Self {
        Self { fatal: true, code, number: 0, message: String::new() }
    }

    pub(crate) const fn invalid_address() -> Self {
        Self::fatal(code::INVALID_ADDRESS)
    }

    /// Sets the message.
    pub(crate) fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    /// Sets the system's error number.
    pub(crate) fn with_errno(self, number: i32) -> Self {
        Self { number, ..self }
    }

    /// No replica of a metalink is available. `last` is the error of the last one.
    pub(crate) fn no_replicas(last: Option<&Self>) -> Self {
        let last = last.map(|last| format!(" Last seen error: {}", last.brief())).unwrap_or_default();
        Self::response(ErrorCode::NO_REPLICAS, format!("Metalink: no more replicas to try.{last}"))
    }

    /// Converts the error of a ZIP archive.
    pub(crate) fn archive(error: &ZipError) -> Self {
        match error {
            ZipError::NoEnd => {
                Self::error(code::DATA_ERROR).with_message("End-of-central-directory signature not found.")
            }
            ZipError::Missing(_) => Self::error(code::NOT_FOUND),
            ZipError::Exists(_) => Self::error(code::INVALID_OPERATION)
                .with_errno(libc::EEXIST)
                .with_message("The file already exists in the ZIP archive."),
            ZipError::BadData(_) => Self::error(code::DATA_ERROR)
                .with_errno(libc::ENOMSG)
                .with_message("[zlib] inflate : corrupted data."),
            ZipError::Unsupported(_) => {
                Self::error(code::NOT_SUPPORTED).with_message("The compression algorithm is not supported!")
            }
            other => Self::error(code::DATA_ERROR).with_message(other.to_string()),
        }
    }

    /// Converts a system error.
    pub(crate) fn of_system(code: u16, error: &std::io::Error) -> Self {
        Self { number: error.raw_os_error().unwrap_or(0), ..Self::error(code) }
    }

    /// Converts the error of a local file.
    pub(crate) fn local(error: &std::io::Error) -> Self {
        Self::of_system(code::LOCAL_ERROR, error)
    }

    /// Converts the error number of a local file.
    pub(crate) const fn local_number(number: i32) -> Self {
        Self { fatal: false, code: code::LOCAL_ERROR, number, message: String::new() }
    }

    /// Converts an error reply of a server.
    pub(crate) fn response(number: ErrorCode, message: impl Into<String>) -> Self {
        Self { number: number.0.cast_signed(), ..Self::error(code::ERROR_RESPONSE) }.with_message(message)
    }

    /// Sets the side of a copy that failed.
    pub(crate) fn at(mut self, side: CopySide) -> Self {
        self.message.push_str(match side {
            CopySide::Source => " (source)",
            CopySide::Destination => " (destination)",
        });
        self
    }

    /// Removes the text of a server's error, for output that only has room for a code.
    pub(crate) fn without_message(mut self) -> Self {
        self.message.clear();
        self
    }

    /// Returns the exit status.
    pub(crate) fn exit(&self) -> ExitCode {
        ExitCode::from(50 + u8::try_from(self.code / 100).unwrap_or(0))
    }

    /// Formats the text without its message, as printed after the name of a file.
    pub(crate) fn brief(&self) -> String {
        let mut text = format!("{}{}", self.severity(), self.name());
        let number = if self.code == code::ERROR_RESPONSE { system_number(self.number) } else { self.number };
        if number != 0 {
            text.push_str(": ");
            text.push_str(&system_text(number));
        }
        text
    }

    const fn severity(&self) -> &'static str {
        if self.fatal { "[FATAL] " } else { "[ERROR] " }
    }

    fn name(&self) -> &'static str {
        match self.code {
            code::INVALID_OPERATION => "Invalid operation",
            code::INTERNAL => "Internal error",
            code::UNKNOWN_COMMAND => "Command not found",
            code::INVALID_ARGUMENTS => "Invalid arguments",
            code::OS_ERROR => "OS Error",
            code::NOT_SUPPORTED => "Operation not supported",
            code::DATA_ERROR => "Received corrupted data",
            code::NO_REPLICAS => "No more replicas to try",
            code::INVALID_ADDRESS => "Invalid address",
            code::DISCONNECTED => "Socket disconnected",
            code::CONNECTION_ERROR => "Connection error",
            code::TLS_ERROR => "TLS error",
            code::INVALID_MESSAGE => "Invalid message",
            code::LOGIN_FAILED => "Login failed",
            code::AUTH_FAILED => "Auth failed",
            code::OPERATION_EXPIRED => "Operation expired",
            code::INTERRUPTED => "Operation interrupted",
            code::INVALID_REDIRECT => "Invalid redirect URL",
            code::INVALID_RESPONSE => "Invalid response",
            code::THRESHOLD_EXCEEDED => "Threshold exceeded",
            code::NOT_FOUND => "Resource not found",
            code::CHECKSUM_ERROR => "CheckSum error",
            code::REDIRECT_LIMIT => "Redirect limit has been reached",
            code::ERROR_RESPONSE => "Error response",
            code::LOCAL_ERROR => "Local error",
            code::RESPONSE_NEGATIVE => "Query response negative",
            _ => "Unknown error code",
        }
    }
}

impl fmt::Display for XrdClStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code == code::ERROR_RESPONSE {
            // These programs print an empty line after it.
            return writeln!(f, "[ERROR] Server responded with an error: [{}] {}", self.number, self.message);
        }
        f.write_str(&self.brief())?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

impl From<Error> for XrdClStatus {
    fn from(error: Error) -> Self {
        let status = Self::of_cause(error.cause());
        if error.is_uncertain() && status.code != code::ERROR_RESPONSE {
            let why = if status.message.is_empty() { String::new() } else { format!("{}; ", status.message) };
            return status.with_message(format!("{why}it may have been carried out"));
        }
        status
    }
}

impl XrdClStatus {
    fn of_cause(cause: &Cause) -> Self {
        match cause {
            Cause::Url(_) | Cause::Unresolved(_) | Cause::NotAllowed(_) => Self::invalid_address(),
            Cause::Unsupported(_) => Self::error(code::NOT_SUPPORTED),
            Cause::BadArgument(_) => INVALID_ARGUMENTS,
            cause @ (Cause::BadName { .. } | Cause::NotEntered(_) | Cause::System(_)) => {
                Self::error(code::NOT_SUPPORTED).with_message(cause.to_string())
            }
            Cause::Unreachable(_) | Cause::NoResources(_) => Self::fatal(code::CONNECTION_ERROR),
            Cause::Connection(why) => of_connection(why),
            Cause::Tls(_) | Cause::CertificateRefused(_) => {
                Self::fatal(code::TLS_ERROR).with_message(cause.to_string())
            }
            Cause::NotAuthenticated(why) => Self::fatal(code::AUTH_FAILED).with_message(why),
            Cause::Lost(why) => Self::error(code::DISCONNECTED).with_message(why),
            Cause::TimedOut(_) | Cause::Expired { .. } => Self::error(code::OPERATION_EXPIRED),
            Cause::Server { code, text } => Self::response(*code, text),
            Cause::RedirectLimit(_) | Cause::RedirectLoop => Self::fatal(code::REDIRECT_LIMIT),
            Cause::BadRedirect(to) => Self::fatal(code::INVALID_REDIRECT).with_message(to),
            Cause::BadAnswer(why) => Self::error(code::INVALID_RESPONSE).with_message(why),
            cause @ (Cause::Corrupt { .. } | Cause::Changed(_)) => {
                Self::error(code::DATA_ERROR).with_message(cause.to_string())
            }
            Cause::Closed => Self::error(code::INVALID_OPERATION),
            Cause::NotRecovered { again, .. } => Self::error(code::DISCONNECTED).with_message(again),
            cause => Self::error(code::INTERNAL).with_message(cause.to_string()),
        }
    }
}

fn of_connection(error: &ConnectionError) -> XrdClStatus {
    match error {
        ConnectionError::NoTls | ConnectionError::UnannouncedTls | ConnectionError::Demands(Demand::Tls) => {
            XrdClStatus::fatal(code::TLS_ERROR).with_message(error.to_string())
        }
        ConnectionError::Demands(_) => XrdClStatus::fatal(code::AUTH_FAILED).with_message(error.to_string()),
        ConnectionError::Refused { text, .. } => XrdClStatus::fatal(code::LOGIN_FAILED).with_message(text),
        _ => XrdClStatus::fatal(code::INVALID_MESSAGE).with_message(error.to_string()),
    }
}

/// Returns the system's error number that these programs show for a protocol code.
fn system_number(number: i32) -> i32 {
    match ErrorCode(number.cast_unsigned()) {
        ErrorCode::FILE_LOCKED => libc::EDEADLK,
        ErrorCode::FILE_NOT_OPEN => libc::EBADF,
        ErrorCode::ARG_TOO_LONG => libc::ENAMETOOLONG,
        ErrorCode::FS_ERROR => libc::ENODEV,
        ErrorCode::INVALID_REQUEST => libc::EBADRQC,
        ErrorCode::IO_ERROR => libc::EIO,
        ErrorCode::NO_MEMORY => libc::ENOMEM,
        ErrorCode::NO_SPACE => libc::ENOSPC,
        ErrorCode::NOT_AUTHORIZED => libc::EACCES,
        ErrorCode::NOT_FOUND => libc::ENOENT,
        ErrorCode::SERVER_ERROR => libc::EFAULT,
        ErrorCode::UNSUPPORTED => libc::ENOTSUP,
        ErrorCode::NO_SERVER => libc::EHOSTUNREACH,
        ErrorCode::NOT_FILE => libc::ENOTBLK,
        ErrorCode::IS_DIRECTORY => libc::EISDIR,
        ErrorCode::CANCELLED => libc::ECANCELED,
        ErrorCode::IT_EXISTS => libc::EEXIST,
        ErrorCode::CHKSUM_ERR => libc::EDOM,
        ErrorCode::IN_PROGRESS => libc::EINPROGRESS,
        ErrorCode::OVER_QUOTA => libc::EDQUOT,
        ErrorCode::SIGVER_ERR => libc::EILSEQ,
        ErrorCode::DECRYPT_ERR => libc::ERANGE,
        ErrorCode::OVERLOADED => libc::EUSERS,
        ErrorCode::FS_READ_ONLY => libc::EROFS,
        ErrorCode::ATTR_NOT_FOUND => libc::ENODATA,
        ErrorCode::TLS_REQUIRED => libc::EPROTOTYPE,
        ErrorCode::NO_REPLICAS => libc::EADDRNOTAVAIL,
        ErrorCode::AUTH_FAILED => libc::EBADE,
        ErrorCode::IMPOSSIBLE => libc::EIDRM,
        ErrorCode::CONFLICT => libc::ENOTTY,
        ErrorCode::TOO_MANY_ERRS => libc::ETOOMANYREFS,
        ErrorCode::REQ_TIMED_OUT => libc::ETIMEDOUT,
        ErrorCode::TIMER_EXPIRED => libc::ETIME,
        _ => libc::EINVAL,
    }
}

/// Returns the system's text for an error number, beginning in lower case.
pub(super) fn system_text(number: i32) -> String {
    let text = std::io::Error::from_raw_os_error(number).to_string();
    let words = text.split(" (os error").next().unwrap_or_default();
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_lowercase(), letters.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_exit_statuses() {
        let refused =
            XrdClStatus::response(ErrorCode::NOT_FOUND, "Unable to open /a; no such file or directory");
        let table = [
            (INVALID_ARGUMENTS, "[ERROR] Invalid arguments", "[ERROR] Invalid arguments", 50),
            (XrdClStatus::invalid_address(), "[FATAL] Invalid address", "[FATAL] Invalid address", 51),
            (
                XrdClStatus::fatal(code::CONNECTION_ERROR).at(CopySide::Source),
                "[FATAL] Connection error:  (source)",
                "[FATAL] Connection error",
                51,
            ),
            (
                refused.at(CopySide::Source),
                "[ERROR] Server responded with an error: [3011] Unable to open /a; no such file or directory (source)\n",
                "[ERROR] Error response: no such file or directory",
                54,
            ),
            (
                XrdClStatus::local(&std::io::Error::from_raw_os_error(libc::EEXIST))
                    .at(CopySide::Destination),
                "[ERROR] Local error: file exists:  (destination)",
                "[ERROR] Local error: file exists",
                54,
            ),
        ];
        for (status, full, brief, exit) in table {
            assert_eq!((status.to_string().as_str(), status.brief().as_str()), (full, brief));
            assert_eq!(format!("{:?}", status.exit()), format!("{:?}", ExitCode::from(exit)), "{full}");
        }
    }
}
