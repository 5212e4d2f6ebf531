//! The error of an operation: the operation, its target, the servers on the way, the cause and a
//! remedy.

use rawclient::{ConnectionError, Demand};
use std::fmt;
use wire::WireError;
use wire::xroot::ErrorCode;

use crate::channel::BodyLimit;
use crate::path::{EntryName, NameError};
use crate::url_error::UrlError;

/// The error of an operation. `Display` prints all of it on one line, without secrets.
#[derive(Clone)]
pub struct Error(Box<Failure>);

/// The content of an [`Error`]. Times are whole seconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The operation: `open`, `stat`, `read`, …
    pub operation: &'static str,
    /// The target: a URL without password, cgi and token.
    pub target: String,
    /// The server that failed, `host:port`, if a server was contacted.
    pub server: Option<String>,
    /// The servers on the way to it, in order. Each redirected to the next, or failed and was left.
    pub hops: Vec<String>,
    /// The cause.
    pub cause: Cause,
    /// Set if the request may have been carried out. It was sent and its reply was lost. It is not
    /// repeated, because that could do more than requested.
    pub uncertain: bool,
    /// For an uncertain outcome, the state found at the server afterwards.
    pub afterwards: Option<String>,
}

/// The cause of an error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The text is not a URL.
    #[error("{0}")]
    Url(#[from] UrlError),
    /// The operation is not implemented, or not for this kind of URL.
    #[error("{0}")]
    Unsupported(String),
    /// An argument that no server would accept.
    #[error("{0}")]
    BadArgument(String),
    /// A name or path that no request can carry. Nothing was sent.
    #[error("{name:?} cannot be named to a server and is left alone: {why}")]
    BadName {
        /// The name as displayed.
        name: String,
        /// The reason.
        why: NameError,
    },
    /// A directory or entry that is unreliable and was left alone.
    #[error("{0}")]
    NotEntered(String),
    /// The file system of this machine reported an error.
    #[error("{0}")]
    System(String),
    /// The host name has no address.
    #[error("the host has no address ({0})")]
    Unresolved(String),
    /// The filter of this client refuses every address of the host.
    #[error("no address that is allowed: {0}")]
    NotAllowed(String),
    /// No address of the host accepted the connection.
    #[error("no connection ({0})")]
    Unreachable(String),
    /// This machine lacks descriptors, ports, memory or a network for a connection. It shows nothing about
    /// the server.
    #[error("no connection can be made here ({0})")]
    NoResources(String),
    /// The server refuses the login or violates the protocol.
    #[error("{0}")]
    Connection(#[from] ConnectionError),
    /// The server demands authentication, and no protocol succeeded. The text has the reason of each
    /// and the remedy.
    #[error("not authenticated: {0}")]
    NotAuthenticated(String),
    /// The connection cannot be encrypted: the server is not trusted, or there are no authorities.
    #[error("TLS: {0}")]
    Tls(String),
    /// The server refuses the client in the TLS handshake, for its certificate or for having none.
    #[error("TLS: {0}")]
    CertificateRefused(String),
    /// The connection was lost before the reply arrived.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// No reply within the timeout.
    #[error("no answer within {0} s")]
    TimedOut(u64),
    /// The server asked to wait for longer than the remaining time.
    #[error("the server asked to wait {seconds} s more, which is beyond the time limit: {text}")]
    Expired {
        /// The requested wait in seconds.
        seconds: u64,
        /// The reason reported by the server.
        text: String,
    },
    /// The server reported an error. The alternate form (`{:#}`) begins with the name of the code.
    #[error(fmt = server_words)]
    Server {
        /// The error code.
        code: ErrorCode,
        /// The error message.
        text: String,
    },
    /// More redirects than allowed.
    #[error("sent on {0} times without arriving")]
    RedirectLimit(u64),
    /// The servers redirect in a circle.
    #[error("the servers send in a circle")]
    RedirectLoop,
    /// The server redirects to a place that this client does not use.
    #[error("sent on to `{0}`, where this client does not go")]
    BadRedirect(String),
    /// The reply does not fit this request.
    #[error("the server's answer makes no sense: {0}")]
    BadAnswer(String),
    /// The reply is larger than this client accepts.
    #[error("the answer is longer than {0}, which is the limit of this client")]
    TooLarge(String),
    /// Data arrived with wrong checksums, also after it was requested again.
    #[error("{pages} page(s) from offset {offset} on had wrong checksums, repeatedly")]
    Corrupt {
        /// Offset of the first wrong page.
        offset: u64,
        /// Number of wrong pages.
        pages: usize,
    },
    /// The file is not the one that was opened: its size differs or acknowledged writes are
    /// missing.
    #[error("the file is not what it was when it was opened: {0}")]
    Changed(String),
    /// The server redirects a request that must not be made at another server.
    #[error("it would have to go on at {0}, but a file that is written stays at its server")]
    NotElsewhere(String),
    /// The file is closed.
    #[error("the file is closed")]
    Closed,
    /// The open file was lost and could not be reopened.
    #[error("the open file was lost ({lost}) and cannot be opened again: {again}")]
    NotRecovered {
        /// The reason for the loss.
        lost: String,
        /// The reason why it cannot be reopened.
        again: String,
    },
    /// The thread that drives the connections cannot be started.
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

    /// Returns a remedy, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::BadName { .. } => "rename it where it lies",
            Self::Unresolved(_) => "check the spelling of the host and the name service",
            Self::NoResources(_) => {
                "check the limit of open files, the network and the free ports of this machine"
            }
            Self::Unreachable(_) => "check that the server runs, its port, and firewalls on the way",
            Self::Lost(_) | Self::TimedOut(_) => {
                "check the server's load and log; XRD_STREAMTIMEOUT and XRD_REQUESTTIMEOUT set how long to wait"
            }
            Self::Expired { .. } => "try again later, or allow more time with XRD_REQUESTTIMEOUT",
            Self::RedirectLimit(_) | Self::RedirectLoop => {
                "tell the administrators of the servers; XRD_REDIRECTLIMIT sets how many are followed"
            }
            Self::Connection(ConnectionError::Demands(Demand::Tls) | ConnectionError::NoTls) => NO_TLS,
            Self::Tls(_) => {
                "name the authority of the server's certificate by X509_CERT_DIR or X509_CERT_FILE, and the \
                 host in the URL as the certificate does"
            }
            Self::CertificateRefused(_) => "name a proxy that the server accepts in X509_USER_PROXY",
            Self::Connection(ConnectionError::Demands(Demand::Authentication(_))) => {
                "this client has no credentials; use a server that does without, or allow it there by \
                 sec.protbind"
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

/// The remedy if only one side has TLS.
const NO_TLS: &str = "use roots:// where the server requires TLS, and root:// where it has none; XRD_NOTLSOK=1 goes on without";

fn server_remedy(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::NOT_AUTHORIZED => "check the path and your permissions",
        ErrorCode::FILE_LOCKED => "somebody else has it open; try again later, or force it",
        ErrorCode::NO_SPACE | ErrorCode::OVER_QUOTA => "free space, or write elsewhere",
        ErrorCode::IT_EXISTS => "remove it first, or overwrite it explicitly",
        ErrorCode::IS_DIRECTORY => "name a file, or work recursively",
        ErrorCode::FS_READ_ONLY => "write elsewhere",
        ErrorCode::OVERLOADED => "try again later",
        ErrorCode::TLS_REQUIRED => NO_TLS,
        _ => return None,
    })
}

/// The remedy for a relative path in a URL.
const TWO_SLASHES: &str = "below the host, the path begins with two slashes: root://HOST//PATH";

/// The remedy for a server of HTTP that has no checksum of the wanted type.
const READ_CHECKSUM: &str = "scalla checksum --read --type TYPE computes it from the data";

/// Reports whether a target is a URL with a single slash behind its host, so that its path is
/// relative.
fn has_one_slash(target: &str) -> bool {
    if target.starts_with("http") {
        return false;
    }
    let path = target.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
    path.is_some_and(|(_, path)| !path.is_empty() && !path.starts_with('/'))
}

impl Error {
    /// Creates the error of an operation on a target, without a server.
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

    /// Creates the error of an operation on a directory entry whose name no request can carry.
    #[must_use]
    pub fn bad_name(operation: &'static str, directory: impl fmt::Display, name: &EntryName) -> Self {
        let why = name.component().err().unwrap_or(NameError::Empty);
        Self::new(operation, directory, Cause::BadName { name: name.to_string(), why })
    }

    /// Adds the server and the servers on the way to it.
    #[must_use]
    pub fn at(mut self, server: impl Into<String>, hops: &[String]) -> Self {
        self.0.server = Some(server.into());
        self.0.hops = hops.to_vec();
        self
    }

    /// Sets whether the request may have been carried out.
    #[must_use]
    pub fn uncertain(mut self, uncertain: bool) -> Self {
        self.0.uncertain = uncertain;
        self
    }

    /// Adds the state that was found afterwards.
    pub(crate) fn afterwards(mut self, found: impl Into<String>) -> Self {
        self.0.afterwards = Some(found.into());
        self
    }

    /// Reports whether it is unknown if the request was carried out: its reply was lost, and it
    /// must not be made twice.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.0.uncertain
    }

    /// Returns the cause.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// Returns the code of the server's error.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match &self.0.cause {
            Cause::Server { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Reports whether a server replied that the target does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(ErrorCode::NOT_FOUND)
    }

    /// Reports whether the connection or a timeout is the cause, not the request. Elsewhere or
    /// later it may succeed, and it was not carried out.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        if self.0.uncertain {
            return false;
        }
        match &self.0.cause {
            Cause::Unreachable(_)
            | Cause::NoResources(_)
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

    /// Returns the content.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        &self.0
    }
}

/// The text for people. The alternate form (`{:#}`) contains the name of the server's error code.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { operation, target, server, hops, cause, uncertain, afterwards } = &*self.0;
        let why = match (cause, f.alternate()) {
            (Cause::Server { .. }, true) => format!("{cause:#}"),
            _ => cause.to_string(),
        };
        // More text follows the message of the server.
        write!(f, "{operation} {target}: {}", why.strip_suffix('.').unwrap_or(&why))?;
        // The server is omitted if the target contains it.
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
        let lacks_checksum =
            matches!(cause, Cause::Server { text, .. } if text.contains("checksum not supported"));
        let remedy = match () {
            () if is_refused && has_one_slash(target) => Some(TWO_SLASHES),
            () if lacks_checksum && target.starts_with("http") => Some(READ_CHECKSUM),
            () => cause.remedy(),
        };
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

// The text contains the cause, so there is no separate source.
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
    fn each_demand_has_its_remedy() {
        let remedy = |demand| Cause::Connection(ConnectionError::Demands(demand)).remedy().unwrap();
        assert!(remedy(Demand::Tls).starts_with("use roots://"));
        let authentication = remedy(Demand::Authentication("sss,unix".into()));
        assert_eq!(
            authentication,
            "this client has no credentials; use a server that does without, or allow it there by sec.protbind"
        );
    }

    #[test]
    fn two_slashes_are_a_remedy_only_where_there_is_one() {
        for (target, expected) in [
            ("root://m:1094/a", true),
            ("root://[::1]:1094/a//b", true),
            ("root://m:1094//a", false),
            ("https://m:443/a", false),
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
