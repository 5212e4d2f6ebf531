//! [`Failures`]: rate-limited log of failed requests.
//!
//! Each failed request is logged at level debug. A failure that an administrator can fix is a
//! warning: a full disk, a read-only file system, a missing permission of the server, a disk error,
//! credentials that are refused, a failed TLS handshake.
//! There is at most one warning per minute and cause, with a count. The number of causes is fixed,
//! so clients cannot increase the memory and log volume. Successful requests are not logged.

use base::{Error, ErrorKind, Identity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use vfs::Answer;

/// Minimum time between two warnings of one cause (rate limit).
const PERIOD: Duration = Duration::from_secs(60);
/// Maximum length in bytes of a stored path and reason.
const TEXT_BYTES_MAX: usize = 1024;

/// Causes of failures that an administrator can fix.
const CAUSES: [&str; 9] = [
    "no space left",
    "a quota is used up",
    "the file system is read only",
    "the server lacks the permission",
    "input or output failed",
    "the server is out of memory",
    "the file system failed",
    AUTHENTICATION,
    ENCRYPTION,
];

/// The cause of failed TLS handshakes.
const ENCRYPTION: &str = "a connection was not encrypted";

/// The cause of refused credentials.
const AUTHENTICATION: &str = "a client was not authenticated";

/// Returns the error of an answer, or an internal error if the answer has the wrong type.
pub(crate) fn unexpected_answer(answer: Answer) -> Error {
    match answer {
        Answer::Error(error) => error,
        _ => Error::new(
            ErrorKind::ServerError,
            "internal error: the storage returned an answer of the wrong type",
        ),
    }
}

/// Returns the cause of an error if an administrator can fix it.
fn cause(error: &Error) -> Option<usize> {
    // An error without a system error is a refusal by policy.
    let system = error.source.is_some();
    match error.kind {
        ErrorKind::NoSpace => Some(0),
        ErrorKind::OverQuota => Some(1),
        ErrorKind::FsReadOnly if system => Some(2),
        ErrorKind::NotAuthorized if system => Some(3),
        ErrorKind::IoError if system => Some(4),
        ErrorKind::NoMemory if system => Some(5),
        ErrorKind::FsError if error.source.as_ref().is_some_and(is_broken) => Some(6),
        ErrorKind::AuthFailed => Some(7),
        ErrorKind::TlsRequired => Some(8),
        _ => None,
    }
}

/// Reports errors caused by the file system and not by the request: ENXIO, ENODEV, ENFILE, EMFILE,
/// ENOTCONN, ESTALE, EUCLEAN.
fn is_broken(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(6 | 19 | 23 | 24 | 107 | 116 | 117))
}

/// Failures of one cause since its last log line.
#[derive(Default)]
struct PendingFailure {
    count: u64,
    last: String,
    /// Time of the last log line.
    written: Option<Instant>,
}

impl PendingFailure {
    /// Returns the log line if one is due.
    fn take(&mut self, now: Instant) -> Option<String> {
        let is_due = self.written.is_none_or(|written| now.saturating_duration_since(written) >= PERIOD);
        if self.count == 0 || !is_due {
            return None;
        }
        let (count, last) = (std::mem::take(&mut self.count), std::mem::take(&mut self.last));
        let before = self.written.replace(now);
        Some(match (count, before) {
            (1, _) => last,
            (_, None) => format!("{count} requests failed, the last: {last}"),
            (_, Some(before)) => {
                let seconds = now.saturating_duration_since(before).as_secs();
                format!("{count} requests failed in the last {seconds} s, the last: {last}")
            }
        })
    }
}

/// Failures of all sessions.
#[derive(Default)]
pub(crate) struct Failures {
    pending: Mutex<[PendingFailure; CAUSES.len()]>,
    has_pending: AtomicBool,
}

impl Failures {
    /// Records a failed request.
    pub(crate) fn note(&self, identity: &Identity, error: &Error) {
        tracing::debug!("{identity}: {}", error.text);
        let Some(cause) = cause(error) else { return };
        let now = Instant::now();
        {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(pending) = pending.get_mut(cause) else { return };
            pending.count += 1;
            pending.last = format!("{identity}: {}", shortened(&error.text));
        }
        self.has_pending.store(true, Ordering::Relaxed);
        self.write(now);
    }

    /// Writes the log lines that are due. Called once a second by each loop.
    pub(crate) fn write(&self, now: Instant) {
        if !self.has_pending.load(Ordering::Relaxed) {
            return;
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for (cause, pending) in CAUSES.iter().zip(pending.iter_mut()) {
            if let Some(line) = pending.take(now) {
                match *cause {
                    ENCRYPTION => tracing::warn!("{cause}: {line}"),
                    AUTHENTICATION => tracing::warn!(target: "auth", "{cause}: {line}"),
                    _ => tracing::warn!(target: "storage", "{cause}: {line}"),
                }
            }
        }
        self.has_pending.store(pending.iter().any(|pending| pending.count > 0), Ordering::Relaxed);
    }
}

/// Returns the text truncated to [`TEXT_BYTES_MAX`].
fn shortened(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn only_failures_an_administrator_can_fix_are_warnings() {
        let error = |kind, system: bool| Error {
            kind,
            text: "Unable to write /f; no".to_owned(),
            source: system.then(|| io::Error::from_raw_os_error(28)),
        };
        for (kind, system, expected) in [
            (ErrorKind::NoSpace, true, Some(0)),
            (ErrorKind::NoSpace, false, Some(0)),
            (ErrorKind::NotAuthorized, true, Some(3)),
            (ErrorKind::NotAuthorized, false, None),
            (ErrorKind::IoError, true, Some(4)),
            (ErrorKind::IoError, false, None),
            (ErrorKind::FsError, true, None),
            (ErrorKind::NotFound, true, None),
            (ErrorKind::ItExists, true, None),
            (ErrorKind::AuthFailed, false, Some(7)),
        ] {
            assert_eq!(cause(&error(kind, system)), expected, "{kind:?} {system}");
        }
    }

    #[test]
    fn each_cause_is_logged_once_a_minute_with_its_count() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut pending = PendingFailure::default();
        let fail = |pending: &mut PendingFailure, path: &str| {
            pending.count += 1;
            pending.last = format!("a.1@h: Unable to write {path}");
        };
        assert_eq!(pending.take(after(0)), None);
        fail(&mut pending, "/f0");
        assert_eq!(pending.take(after(0)).as_deref(), Some("a.1@h: Unable to write /f0"));
        for file in 1..=35 {
            fail(&mut pending, &format!("/f{file}"));
            assert_eq!(pending.take(after(1)), None);
        }
        assert_eq!(pending.take(after(59)), None);
        let line = "35 requests failed in the last 60 s, the last: a.1@h: Unable to write /f35";
        assert_eq!(pending.take(after(60)).as_deref(), Some(line));
        // A failure that was written is not repeated.
        assert_eq!(pending.take(after(600)), None);
    }

    #[test]
    fn long_paths_are_cut() {
        assert_eq!(shortened(&"é".repeat(1000)).len(), TEXT_BYTES_MAX);
        assert_eq!(shortened("short"), "short");
    }
}
