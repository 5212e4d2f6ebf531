//! Failures of requests to origins, as errors for clients. Errors of the origin keep their code and
//! text.

use crate::place::RequestFailure;
use base::{Error, ErrorKind, LogicalPath};
use client::Cause;
use client::xroot::ErrorCode;

/// Maximum size of the text of an origin in an error.
const TEXT_BYTES_MAX: usize = 2048;
/// End of the text for a change that was sent and not answered.
const UNKNOWN_OUTCOME: &str =
    "the outcome is unknown, and the origin may still make the change: look before you repeat it";

impl RequestFailure {
    /// Returns the error for a client that is at no file and, if `home` is set, may find a server that reaches
    /// the origin at that address through its manager. It returns there after a [`ErrorKind::ServerError`],
    /// unless the origin may have got the request. A server behind the origin is the same for all.
    pub(crate) fn to_error_of_name(&self, verb: &str, path: &LogicalPath, home: Option<&str>) -> Error {
        let error = self.to_error(verb, path);
        let is_home = |server: Option<&str>| server.is_none() || server == home;
        let is_elsewhere = match self {
            Self::NotAnswering(_) => true,
            Self::Client(failure) => {
                matches!(failure.cause(), Cause::Unreachable(_) | Cause::Unresolved(_))
                    && is_home(failure.failure().server.as_deref())
                    && !failure.is_uncertain()
            }
            _ => false,
        };
        if home.is_some() && is_elsewhere { Error::new(ErrorKind::ServerError, error.text) } else { error }
    }

    /// Returns the error for the client that wanted to `verb` a path.
    pub(crate) fn to_error(&self, verb: &str, path: &LogicalPath) -> Error {
        let unable = |kind, why: &str| Error::new(kind, format!("Unable to {verb} {}; {why}", path.text()));
        match self {
            Self::NotAnswering(reason) => unable(
                ErrorKind::NoServer,
                &format!(
                    "the origin does not answer ({reason}); it is tried again in the background, repeat the request in 5 s"
                ),
            ),
            Self::MayBeMade(reason) => unable(
                ErrorKind::NoServer,
                &format!("the origin does not answer ({reason}); {UNKNOWN_OUTCOME}"),
            ),
            Self::Busy => unable(ErrorKind::Overloaded, "too many requests wait for the origin"),
            Self::Cancelled => unable(ErrorKind::Cancelled, "the client has disconnected"),
            Self::Changed => {
                unable(ErrorKind::FsError, "it has changed at the origin since it was opened; open it again")
            }
            Self::Incomplete => {
                unable(ErrorKind::FsError, "a change has failed, and the file persists only on close")
            }
            Self::Shared(failure) => failure.to_error(verb, path),
            Self::Client(error) => match error.cause() {
                Cause::Server { code, text } => {
                    let text = shortened(text.trim());
                    let text = if error.is_uncertain() { format!("{text}; {UNKNOWN_OUTCOME}") } else { text };
                    Error::new(kind(*code), text)
                }
                cause if error.is_uncertain() => {
                    let found = error.failure().afterwards.as_deref();
                    let found = found.map(|found| format!(" ({found})")).unwrap_or_default();
                    let text = format!("{cause}{found}; {UNKNOWN_OUTCOME}");
                    unable(kind_of_cause(cause), &shortened(&text))
                }
                cause => unable(kind_of_cause(cause), &shortened(&cause.to_string())),
            },
        }
    }
}

/// Limits a text, because an origin chose it.
fn shortened(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// Returns the kind of an error that the client has found itself.
fn kind_of_cause(cause: &Cause) -> ErrorKind {
    match cause {
        Cause::Unreachable(_) | Cause::Unresolved(_) | Cause::NoResources(_) => ErrorKind::NoServer,
        Cause::NotAllowed(_) => ErrorKind::NotAuthorized,
        Cause::NotAuthenticated(_) => ErrorKind::AuthFailed,
        Cause::TooLarge(_) => ErrorKind::NoMemory,
        Cause::TimedOut(_) | Cause::Expired { .. } => ErrorKind::TimerExpired,
        Cause::Corrupt { .. } => ErrorKind::ChecksumError,
        Cause::BadArgument(_) | Cause::BadName { .. } | Cause::Url(_) => ErrorKind::ArgInvalid,
        Cause::Unsupported(_) => ErrorKind::Unsupported,
        _ => ErrorKind::FsError,
    }
}

/// Returns the kind of an error code of an origin.
fn kind(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::ARG_INVALID => ErrorKind::ArgInvalid,
        ErrorCode::ARG_MISSING => ErrorKind::ArgMissing,
        ErrorCode::ARG_TOO_LONG => ErrorKind::ArgTooLong,
        ErrorCode::FILE_LOCKED => ErrorKind::FileLocked,
        ErrorCode::FILE_NOT_OPEN => ErrorKind::FileNotOpen,
        ErrorCode::INVALID_REQUEST => ErrorKind::InvalidRequest,
        ErrorCode::IO_ERROR => ErrorKind::IoError,
        ErrorCode::NO_MEMORY => ErrorKind::NoMemory,
        ErrorCode::NO_SPACE => ErrorKind::NoSpace,
        ErrorCode::NOT_AUTHORIZED => ErrorKind::NotAuthorized,
        ErrorCode::NOT_FOUND => ErrorKind::NotFound,
        ErrorCode::SERVER_ERROR => ErrorKind::ServerError,
        ErrorCode::UNSUPPORTED => ErrorKind::Unsupported,
        ErrorCode::NO_SERVER => ErrorKind::NoServer,
        ErrorCode::NOT_FILE => ErrorKind::NotFile,
        ErrorCode::IS_DIRECTORY => ErrorKind::IsDirectory,
        ErrorCode::CANCELLED => ErrorKind::Cancelled,
        ErrorCode::IT_EXISTS => ErrorKind::ItExists,
        ErrorCode::CHKSUM_ERR => ErrorKind::ChecksumError,
        ErrorCode::IN_PROGRESS => ErrorKind::InProgress,
        ErrorCode::OVER_QUOTA => ErrorKind::OverQuota,
        ErrorCode::SIGVER_ERR => ErrorKind::SignatureError,
        ErrorCode::DECRYPT_ERR => ErrorKind::DecryptError,
        ErrorCode::OVERLOADED => ErrorKind::Overloaded,
        ErrorCode::FS_READ_ONLY => ErrorKind::FsReadOnly,
        ErrorCode::BAD_PAYLOAD => ErrorKind::BadPayload,
        ErrorCode::ATTR_NOT_FOUND => ErrorKind::AttributeNotFound,
        ErrorCode::TLS_REQUIRED => ErrorKind::TlsRequired,
        ErrorCode::NO_REPLICAS => ErrorKind::NoReplicas,
        ErrorCode::AUTH_FAILED => ErrorKind::AuthFailed,
        ErrorCode::IMPOSSIBLE => ErrorKind::Impossible,
        ErrorCode::CONFLICT => ErrorKind::Conflict,
        ErrorCode::TOO_MANY_ERRS => ErrorKind::TooManyErrors,
        ErrorCode::REQ_TIMED_OUT => ErrorKind::RequestTimedOut,
        ErrorCode::TIMER_EXPIRED => ErrorKind::TimerExpired,
        _ => ErrorKind::FsError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(failure: RequestFailure) -> Error {
        failure.to_error("open", &LogicalPath::parse(b"/a").unwrap())
    }

    fn of(cause: Cause) -> Error {
        error(RequestFailure::Client(client::Error::new("open", "root://o//a", cause)))
    }

    #[test]
    fn errors_of_the_origin_keep_code_and_text() {
        let text = "Unable to open /a; no such file or directory".to_owned();
        let found = of(Cause::Server { code: ErrorCode::NOT_FOUND, text: text.clone() });
        assert_eq!((found.kind, found.text), (ErrorKind::NotFound, text));
        let long = of(Cause::Server { code: ErrorCode(9999), text: "ä".repeat(5000) });
        assert_eq!((long.kind, long.text.len()), (ErrorKind::FsError, TEXT_BYTES_MAX));
    }

    #[test]
    fn only_certain_refusals_leave_a_change_unmade() {
        let of = |cause| RequestFailure::Client(client::Error::new("rm", "root://o//a", cause));
        let server = |code| Cause::Server { code, text: String::new() };
        for code in [ErrorCode::NOT_AUTHORIZED, ErrorCode::FS_READ_ONLY, ErrorCode::NOT_FOUND] {
            assert!(of(server(code)).is_refusal(), "{code:?}");
            let uncertain = client::Error::new("rm", "root://o//a", server(code)).uncertain(true);
            assert!(!RequestFailure::Client(uncertain).is_refusal(), "{code:?}");
        }
        for code in [ErrorCode::IO_ERROR, ErrorCode::SERVER_ERROR, ErrorCode(9999)] {
            assert!(!of(server(code)).is_refusal(), "{code:?}: a part may have been made");
        }
        assert!(!of(Cause::Lost("closed".to_owned())).is_refusal());
        let unsent = || RequestFailure::NotAnswering("silent".into());
        assert!(RequestFailure::Busy.is_refusal() && unsent().is_refusal());
        assert!(!unsent().of_change().is_refusal() && !RequestFailure::Cancelled.is_refusal());
    }

    #[test]
    fn clients_of_a_cluster_try_another_proxy_if_nothing_was_sent() {
        let path = LogicalPath::parse(b"/a").unwrap();
        let of = |cause| RequestFailure::Client(client::Error::new("rm", "root://o//a", cause));
        let silent = || RequestFailure::NotAnswering("silent".into());
        let unreachable = || of(Cause::Unreachable("refused".to_owned()));
        let uncertain =
            client::Error::new("rm", "root://o//a", Cause::Unreachable("refused".to_owned())).uncertain(true);
        let refused = Cause::Server { code: ErrorCode::NO_SERVER, text: String::new() };
        let at = |server: &str| {
            let cause = Cause::Unreachable("refused".to_owned());
            RequestFailure::Client(client::Error::new("rm", "root://o//a", cause).at(server.to_owned(), &[]))
        };
        for (failure, expected) in [
            (silent(), ErrorKind::ServerError),
            (unreachable(), ErrorKind::ServerError),
            (of(Cause::Unresolved("no".to_owned())), ErrorKind::ServerError),
            (silent().of_change(), ErrorKind::NoServer),
            (RequestFailure::Client(uncertain), ErrorKind::NoServer),
            (of(refused), ErrorKind::NoServer),
            (RequestFailure::Busy, ErrorKind::Overloaded),
            (at("o:1094"), ErrorKind::ServerError),
            (at("behind:1095"), ErrorKind::NoServer),
        ] {
            assert_eq!(failure.to_error_of_name("rm", &path, Some("o:1094")).kind, expected, "{failure:?}");
            let alone = failure.to_error_of_name("rm", &path, None);
            assert_eq!(alone.kind, failure.to_error("rm", &path).kind, "{failure:?}");
        }
    }

    #[test]
    fn conditions_of_the_connection_have_the_codes_of_a_proxy() {
        for (cause, kind) in [
            (Cause::Unreachable("refused".to_owned()), ErrorKind::NoServer),
            (Cause::Unresolved("no".to_owned()), ErrorKind::NoServer),
            (Cause::NotAllowed("h".to_owned()), ErrorKind::NotAuthorized),
            (Cause::NotAuthenticated("no".to_owned()), ErrorKind::AuthFailed),
            (Cause::Expired { seconds: 9, text: String::new() }, ErrorKind::TimerExpired),
            (Cause::Corrupt { offset: 0, pages: 1 }, ErrorKind::ChecksumError),
            (Cause::Lost("closed".to_owned()), ErrorKind::FsError),
            (Cause::RedirectLoop, ErrorKind::FsError),
        ] {
            assert_eq!(of(cause.clone()).kind, kind, "{cause}");
        }
        assert_eq!(error(RequestFailure::NotAnswering("silent".into())).kind, ErrorKind::NoServer);
        for failure in [
            RequestFailure::MayBeMade("silent".into()),
            RequestFailure::NotAnswering("silent".into()).of_change(),
            RequestFailure::Client(
                client::Error::new("rm", "root://o//a", Cause::Lost("closed".to_owned())).uncertain(true),
            ),
            RequestFailure::Client(
                client::Error::new(
                    "close",
                    "s3://o/a",
                    Cause::Server { code: ErrorCode::SERVER_ERROR, text: "500 ".repeat(2000) },
                )
                .uncertain(true),
            ),
        ] {
            let text = error(failure).text;
            assert!(
                text.contains("the outcome is unknown") && !text.contains("repeat the request"),
                "{text}"
            );
        }
        assert_eq!(error(RequestFailure::Busy).kind, ErrorKind::Overloaded);
    }
}
