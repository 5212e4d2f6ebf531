//! The reasons why nothing was copied, as texts and exit statuses.

use super::usage::USAGE;
use crate::printer::err;
use crate::stock::{Status, code, text};
use std::process::ExitCode;

/// Exit status of an invalid command line.
pub(super) const USAGE_STATUS: u8 = 22;
/// Exit status of a request that is not supported.
pub(super) const UNSUPPORTED_STATUS: u8 = 50;
/// Exit status of local files that cannot be copied.
pub(super) const FILE_STATUS: u8 = 2;

/// The reason why nothing was copied.
pub(super) enum Refusal {
    /// The command line is invalid. The usage follows.
    Usage(String),
    /// A text, and the exit status.
    Plain(String, u8),
    Status(Status),
    /// The failure of the only job.
    Run(Status),
    /// The failure of the preparation, before any copy.
    Prepare(Status),
}

impl Refusal {
    /// Returns the failure of a single job for this reason.
    pub(super) fn into_status(self) -> Status {
        match self {
            Self::Status(status) | Self::Run(status) | Self::Prepare(status) => status,
            Self::Usage(text) | Self::Plain(text, _) => Status::error(code::INTERNAL).saying(text.trim_end()),
        }
    }
}

/// Returns the failure of an invalid command line.
pub(super) fn refuse(text: String) -> Refusal {
    Refusal::Usage(text)
}

/// Returns the failure of a local file that cannot be examined.
pub(super) fn processing(error: &std::io::Error, name: &str) -> Refusal {
    Refusal::Plain(format!("xrdcp: {} processing {name}\n", text::system(error)), FILE_STATUS)
}

/// Returns the failure of a request.
pub(super) fn failed(error: client::Error) -> Refusal {
    Refusal::Status(Status::from(error))
}

/// Prints a failure and returns the exit status.
pub(super) fn told(refusal: &Refusal) -> ExitCode {
    let (text, exit) = match refusal {
        Refusal::Usage(text) if text.is_empty() => (USAGE.to_owned(), ExitCode::from(USAGE_STATUS)),
        Refusal::Usage(text) => (format!("xrdcp: {text}\n{}", USAGE), ExitCode::from(USAGE_STATUS)),
        Refusal::Plain(text, status) => (text.clone(), ExitCode::from(*status)),
        Refusal::Status(status) => (format!("{status}\n"), status.exit()),
        Refusal::Run(status) => (format!("Run: {status}\n"), status.exit()),
        Refusal::Prepare(status) => (format!("Prepare: {status}\n"), status.exit()),
    };
    err().lines(text);
    exit
}
