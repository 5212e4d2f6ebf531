//! The reasons why nothing was copied, as texts and exit statuses.

use super::usage::USAGE;
use crate::printer::err;
use crate::xrootd_compat::{XrdClStatus, code, format};
use std::process::ExitCode;

/// Exit status of an invalid command line.
pub(super) const USAGE_STATUS: u8 = 22;
/// Exit status of a request that is not supported.
pub(super) const UNSUPPORTED_STATUS: u8 = 50;
/// Exit status of local files that cannot be copied.
pub(super) const FILE_STATUS: u8 = 2;

/// The reason why nothing was copied.
pub(super) enum XrdcpFailure {
    /// The command line is invalid. The usage follows.
    Usage(String),
    /// A text, and the exit status.
    Plain(String, u8),
    Status(XrdClStatus),
    /// The failure of the only job.
    Run(XrdClStatus),
    /// The failure of the preparation, before any copy.
    Prepare(XrdClStatus),
}

impl XrdcpFailure {
    /// Returns the failure of a single job for this reason.
    pub(super) fn into_status(self) -> XrdClStatus {
        match self {
            Self::Status(status) | Self::Run(status) | Self::Prepare(status) => status,
            Self::Usage(text) | Self::Plain(text, _) => {
                XrdClStatus::error(code::INTERNAL).with_message(text.trim_end())
            }
        }
    }
}

/// Returns the failure of an invalid command line.
pub(super) fn usage_failure(text: String) -> XrdcpFailure {
    XrdcpFailure::Usage(text)
}

/// Returns the failure of a local file that cannot be examined.
pub(super) fn local_failure(error: &std::io::Error, name: &str) -> XrdcpFailure {
    XrdcpFailure::Plain(format!("xrdcp: {} processing {name}\n", format::system(error)), FILE_STATUS)
}

/// Returns the failure of a request.
pub(super) fn request_failure(error: client::Error) -> XrdcpFailure {
    XrdcpFailure::Status(XrdClStatus::from(error))
}

/// Prints a failure and returns the exit status.
pub(super) fn report(refusal: &XrdcpFailure) -> ExitCode {
    let (text, exit) = match refusal {
        XrdcpFailure::Usage(text) if text.is_empty() => (USAGE.to_owned(), ExitCode::from(USAGE_STATUS)),
        XrdcpFailure::Usage(text) => (format!("xrdcp: {text}\n{}", USAGE), ExitCode::from(USAGE_STATUS)),
        XrdcpFailure::Plain(text, status) => (text.clone(), ExitCode::from(*status)),
        XrdcpFailure::Status(status) => (format!("{status}\n"), status.exit()),
        XrdcpFailure::Run(status) => (format!("Run: {status}\n"), status.exit()),
        XrdcpFailure::Prepare(status) => (format!("Prepare: {status}\n"), status.exit()),
    };
    err().lines(text);
    exit
}
