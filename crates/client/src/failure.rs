//! Why an operation failed: what was done to what, where, on which way there, and what helps.

use std::fmt;
use wire::WireError;
use wire::xroot::ErrorCode;

use crate::channel::BodyLimit;
use crate::error::{ConnectionError, UrlError};
use crate::path::{EntryName, NameError};

/// A failed operation. `Display` tells all of it in one line without secrets.
#[derive(Clone)]
pub struct Error(Box<Failure>);

/// What an [`Error`] knows. Times are whole seconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// What was to be done: `open`, `stat`, `read`, …
    pub operation: &'static str,
    /// To what: a URL without password, cgi and token.
    pub target: String,
    /// The server that failed, `host:port`, if one was reached for.
    pub server: Option<String>,
    /// The servers on the way to it, in order: each sent on to the next, or failed and was left.
    pub hops: Vec<String>,
    /// What went wrong.
    pub cause: Cause,
    /// It was sent, its reply was lost, and it is not repeated because that could do more than was asked for: it may have
    /// been carried out.
    pub uncertain: bool,
    /// For an uncertain one: what there was at the server afterwards.
    pub afterwards: Option<String>,
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The text is no URL.
    #[error("{0}")]
    Url(#[from] UrlError),
    /// It is not built, or not for this kind of URL.
    #[error("{0}")]
    Unsupported(String),
    /// An argument that no server would take.
    #[error("{0}")]
    BadArgument(String),
    /// A name or path that no request can carry. Nothing was sent.
    #[error("{name:?} cannot be named to a server and is left alone: {why}")]
    BadName {
        /// The name, as it is shown.
        name: String,
        /// Why not.
        why: NameError,
    },
    /// A directory or an entry of one that cannot be relied on, and is left alone.
    #[error("{0}")]
    NotEntered(String),
    /// The file system of this machine said no.
    #[error("{0}")]
    System(String),
    /// The name of the host has no address.
    #[error("the host has no address ({0})")]
    Unresolved(String),
    /// The filter of this client refuses every address of the host.
    #[error("no address that is allowed: {0}")]
    NotAllowed(String),
    /// No address of the host took the connection.
    #[error("no connection ({0})")]
    Unreachable(String),
    /// The server does not let us in or does not keep to the protocol.
    #[error("{0}")]
    Connection(#[from] ConnectionError),
    /// The connection was lost before the answer came.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// No answer in time.
    #[error("no answer within {0} s")]
    TimedOut(u64),
    /// The server asked to wait for longer than there was time.
    #[error("the server asked to wait {seconds} s more, which is beyond the time limit: {text}")]
    Expired {
        /// How long.
        seconds: u64,
        /// Why, in the server's words.
        text: String,
    },
    /// The server said no. The alternate form (`{:#}`) begins with the name of the code.
    #[error(fmt = server_words)]
    Server {
        /// Its code.
        code: ErrorCode,
        /// Its words.
        text: String,
    },
    /// More redirects than allowed.
    #[error("sent on {0} times without arriving")]
    RedirectLimit(u64),
    /// The servers send in a circle.
    #[error("the servers send in a circle")]
    RedirectLoop,
    /// The server sends to where this client does not go.
    #[error("sent on to `{0}`, where this client does not go")]
    BadRedirect(String),
    /// The answer is not one to this request.
    #[error("the server's answer makes no sense: {0}")]
    BadAnswer(String),
    /// The answer is larger than this client takes.
    #[error("the answer is longer than {0}, which is the limit of this client")]
    TooLarge(String),
    /// Data came with wrong checksums, and again when it was asked for once more.
    #[error("{pages} page(s) from offset {offset} on had wrong checksums, repeatedly")]
    Corrupt {
        /// The first one.
        offset: u64,
        /// How many.
        pages: usize,
    },
    /// The file is not what was opened: another size, or acknowledged writes are gone.
    #[error("the file is not what it was when it was opened: {0}")]
    Changed(String),
    /// The server redirects a request that is made at no other server.
    #[error("it would have to go on at {0}, but a file that is written stays at its server")]
    NotElsewhere(String),
    /// The file is closed.
    #[error("the file is closed")]
    Closed,
    /// The open file was lost and could not be opened again.
    #[error("the open file was lost ({lost}) and cannot be opened again: {again}")]
    NotRecovered {
        /// Why it was lost.
        lost: String,
        /// Why it cannot be opened again.
        again: String,
    },
    /// The thread that would drive the connections cannot be started.
    #[error("no thread to drive connections: {0}")]
    NoRuntime(String),
}

fn server_words(code: &ErrorCode, text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match (f.alternate(), text.trim().is_empty()) {
        (true, _) => write!(f, "{code}: {text}"),
        (false, true) => write!(f, "the server refused it ({code})"),
        (false, false) => f.write_str(text),
    }
}

impl From<WireError> for Cause {
    fn from(error: WireError) -> Self {
        Self::BadAnswer(error.to_string())
    }
}

impl Cause {
    pub(crate) fn too_large(limit: &BodyLimit) -> Self {
        let BodyLimit { bytes, memory } = limit;
        Self::TooLarge(match memory {
            Some(_) => {
                format!("{bytes} bytes with the listings that are needed beside it (XRD_LISTINGBYTES)")
            }
            None => format!("{bytes} bytes"),
        })
    }

    /// What helps against it, if anything can be said.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::BadName { .. } => "rename it where it lies",
            Self::Unresolved(_) => "check the spelling of the host and the name service",
            Self::Unreachable(_) => "check that the server runs, its port, and firewalls on the way",
            Self::Lost(_) | Self::TimedOut(_) => {
                "check the server's load and log; XRD_STREAMTIMEOUT and XRD_REQUESTTIMEOUT set how long to wait"
            }
            Self::Expired { .. } => "try again later, or allow more time with XRD_REQUESTTIMEOUT",
            Self::RedirectLimit(_) | Self::RedirectLoop => {
                "tell the administrators of the servers; XRD_REDIRECTLIMIT sets how many are followed"
            }
            Self::Connection(ConnectionError::Demands(_)) => {
                "authentication and TLS are not in this client yet; use a server that does without"
            }
            Self::Corrupt { .. } => {
                "something damages data on the way or on the disk; read from another copy"
            }
            Self::Changed(_) => "open it again",
            Self::NotRecovered { .. } => "check that the server runs, then begin again",
            Self::Server { code: ErrorCode::IT_EXISTS, text } if text.contains("not empty") => {
                "remove what is in it first, or all of it with scalla rm --recursive"
            }
            Self::Server { text, .. } if text.contains("checksum not supported") => {
                "scalla query checksums tells which the server has"
            }
            Self::Server { code, .. } => return server_remedy(*code),
            _ => return None,
        })
    }
}

fn server_remedy(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::NOT_AUTHORIZED => "check the path and your permissions",
        ErrorCode::FILE_LOCKED => "somebody else has it open; try again later, or force it",
        ErrorCode::NO_SPACE | ErrorCode::OVER_QUOTA => "make room, or write elsewhere",
        ErrorCode::IT_EXISTS => "remove it first, or overwrite it explicitly",
        ErrorCode::IS_DIRECTORY => "name a file, or work recursively",
        ErrorCode::FS_READ_ONLY => "write elsewhere",
        ErrorCode::OVERLOADED => "try again later",
        ErrorCode::TLS_REQUIRED => "TLS is not in this client yet; use a server that does without",
        _ => return None,
    })
}

/// What helps where the path of a URL is relative.
const TWO_SLASHES: &str = "below the host, the path begins with two slashes: root://HOST//PATH";

/// Whether a target is a URL with a single slash behind its host, so that its path is relative.
fn has_one_slash(target: &str) -> bool {
    let path = target.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
    path.is_some_and(|(_, path)| !path.is_empty() && !path.starts_with('/'))
}

impl Error {
    /// Of an operation on a target, without a server yet.
    #[must_use]
    pub fn new(operation: &'static str, target: impl fmt::Display, cause: impl Into<Cause>) -> Self {
        Self(Box::new(Failure {
            operation,
            target: target.to_string(),
            server: None,
            hops: Vec::new(),
            cause: cause.into(),
            uncertain: false,
            afterwards: None,
        }))
    }

    /// Of an operation on an entry of a directory whose name no request can carry.
    #[must_use]
    pub fn bad_name(operation: &'static str, directory: impl fmt::Display, name: &EntryName) -> Self {
        let why = name.component().err().unwrap_or(NameError::Empty);
        Self::new(operation, directory, Cause::BadName { name: name.to_string(), why })
    }

    /// The same at a server, on a way there.
    #[must_use]
    pub fn at(mut self, server: impl Into<String>, hops: &[String]) -> Self {
        self.0.server = Some(server.into());
        self.0.hops = hops.to_vec();
        self
    }

    /// The same of a request that may have been carried out.
    #[must_use]
    pub fn uncertain(mut self, uncertain: bool) -> Self {
        self.0.uncertain = uncertain;
        self
    }

    /// The same with what there was afterwards.
    pub(crate) fn afterwards(mut self, found: impl Into<String>) -> Self {
        self.0.afterwards = Some(found.into());
        self
    }

    /// Whether it is unknown if the request was carried out: its reply was lost, and it must not be made twice.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.0.uncertain
    }

    /// What went wrong.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// The code of a server's error.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match &self.0.cause {
            Cause::Server { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether a server said that there is no such thing.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(ErrorCode::NOT_FOUND)
    }

    /// Whether it is about the connection or the time rather than about the request: elsewhere or later it may succeed, and it
    /// was not carried out.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        if self.0.uncertain {
            return false;
        }
        match &self.0.cause {
            Cause::Unreachable(_)
            | Cause::Lost(_)
            | Cause::TimedOut(_)
            | Cause::Expired { .. }
            | Cause::NotRecovered { .. } => true,
            Cause::Server { code, .. } => {
                matches!(*code, ErrorCode::OVERLOADED | ErrorCode::NO_SERVER | ErrorCode::IN_PROGRESS)
            }
            _ => false,
        }
    }

    /// All of it.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        &self.0
    }
}

/// In words for people. The alternate form (`{:#}`) also has the name of the server's error code.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { operation, target, server, hops, cause, uncertain, afterwards } = &*self.0;
        let why = match (cause, f.alternate()) {
            (Cause::Server { .. }, true) => format!("{cause:#}"),
            _ => cause.to_string(),
        };
        // More follows a server's sentence.
        write!(f, "{operation} {target}: {}", why.strip_suffix('.').unwrap_or(&why))?;
        // A target that shows its server needs it no second time.
        match server {
            Some(server) if !hops.is_empty() || !target.contains(server.as_str()) => {
                write!(f, " (at {server}")?;
                if !hops.is_empty() {
                    write!(f, ", via {}", hops.join(", "))?;
                }
                f.write_str(")")?;
            }
            _ => {}
        }
        if *uncertain {
            f.write_str("; it may have been carried out")?;
            if let Some(afterwards) = afterwards {
                write!(f, ": {afterwards}")?;
            }
            return f.write_str("; look before you repeat it");
        }
        let is_refused = matches!(self.code(), Some(ErrorCode::NOT_FOUND | ErrorCode::NOT_AUTHORIZED));
        let remedy = if is_refused && has_one_slash(target) { Some(TWO_SLASHES) } else { cause.remedy() };
        if let Some(remedy) = remedy {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

// Its text tells the cause, so there is no source beside it.
impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_operation_target_server_way_and_remedy() {
        let cause = Cause::Server { code: ErrorCode::NOT_FOUND, text: "no such file".into() };
        let error = Error::new("stat", "root://m:1094//a", cause).at("s:1095", &["m:1094".into()]);
        assert_eq!(error.to_string(), "stat root://m:1094//a: no such file (at s:1095, via m:1094)");
        let detailed = "stat root://m:1094//a: kXR_NotFound: no such file (at s:1095, via m:1094)";
        assert_eq!(format!("{error:#}"), detailed);
        assert!(error.is_not_found() && !error.is_transient());
        let error = Error::new("rm", "root://m:1094//a", Cause::Lost("reset".into())).at("m:1094", &[]);
        assert!(error.to_string().starts_with("rm root://m:1094//a: the connection was lost: reset; "));
        assert!(error.is_transient());
    }

    #[test]
    fn two_slashes_are_a_remedy_only_where_there_is_one() {
        for (target, expected) in [
            ("root://m:1094/a", true),
            ("root://[::1]:1094/a//b", true),
            ("root://m:1094//a", false),
            ("root://m:1094", false),
            ("root://m:1094/", false),
            ("/a", false),
        ] {
            let cause = Cause::Server { code: ErrorCode::NOT_FOUND, text: "no such file".into() };
            let text = Error::new("stat", target, cause).to_string();
            assert_eq!(text.contains("two slashes"), expected, "{text}");
        }
        let silent = Cause::Server { code: ErrorCode::IO_ERROR, text: " ".into() };
        assert_eq!(silent.to_string(), "the server refused it (kXR_IOError)");
    }
}
