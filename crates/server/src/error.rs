//! The errors that prevent a start of the server. Each has the object, the reason and a remedy,
//! because the operator sees only this line.

use crate::process::{DirectoryError, PortOwner, UserError};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error that prevents the start of a server.
#[derive(Debug)]
pub enum StartError {
    /// The configuration has errors, which were printed already.
    Configuration,
    /// The port cannot be opened.
    Port {
        /// The port.
        port: u16,
        /// The process that has the port, if it is known.
        owner: Option<PortOwner>,
        /// The error of the system.
        source: io::Error,
    },
    /// A directory to be served cannot be opened.
    Storage {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The remains of an earlier run could not be recovered.
    Recovery(base::Error),
    /// A directory of the process cannot be used.
    Directory(DirectoryError),
    /// A file of the process cannot be used.
    File {
        /// The purpose of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The process cannot run as the configured user.
    User(UserError),
    /// The process cannot act for users.
    MultiUser(io::Error),
    /// The authorization rules cannot be used.
    Authorization(String),
    /// The issuers of tokens cannot be used.
    TokenIssuers(String),
    /// Macaroons cannot be verified as configured.
    Macaroons(String),
    /// Files cannot be staged as configured.
    Residency(String),
    /// Events cannot be reported as configured.
    Notification(String),
    /// Flows cannot be reported as configured.
    PacketMarking(String),
    /// Clients cannot be authenticated as configured.
    Security(String),
    /// Connections cannot be encrypted as configured.
    Tls(String),
    /// The cluster configuration cannot be carried out.
    Cluster(String),
    /// There are too few descriptors.
    Limits(String),
    /// The system refused a resource that every process needs.
    System {
        /// The resource.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => f.write_str("the configuration has errors"),
            Self::Port { port, owner, source } => explain_port(f, *port, owner.as_ref(), source),
            Self::Storage { path, source } => {
                write!(f, "cannot serve {}: {}; ", path.display(), plain(source))?;
                f.write_str("name a directory that exists and that the server's user may enter")
            }
            Self::Recovery(error) => {
                write!(f, "what an earlier run left unfinished could not be put right: {error}")?;
                error.source.as_ref().map_or(Ok(()), |source| write!(f, " ({})", plain(source)))
            }
            Self::Directory(error) => error.fmt(f),
            Self::File { what, path, source } => {
                write!(f, "cannot write the {what} {}: {}", path.display(), plain(source))
            }
            Self::User(error) => error.fmt(f),
            Self::MultiUser(source) => {
                write!(f, "the process cannot act for users (libXrdMultiuser.so): {}", plain(source))
            }
            Self::Residency(text) => write!(f, "files cannot be staged: {text}"),
            Self::Notification(text) => write!(f, "events cannot be reported (ofs.notify): {text}"),
            Self::PacketMarking(text) => write!(f, "flows cannot be reported: {text}"),
            Self::Authorization(text) => {
                write!(f, "the authorization rules (acc.authdb) cannot be used: {text}")
            }
            Self::TokenIssuers(text) => {
                write!(f, "the token issuers (ofs.authlib) cannot be used: {text}")
            }
            Self::Macaroons(text) => write!(f, "macaroons (ofs.authlib) cannot be verified: {text}"),
            Self::Security(text) => write!(f, "cannot authenticate clients: {text}"),
            Self::Tls(text) => write!(f, "cannot encrypt connections (xrd.tls, http.cert): {text}"),
            Self::Limits(text) | Self::Cluster(text) => f.write_str(text),
            Self::System { what, source } => write!(f, "the system refused {what}: {}", plain(source)),
        }
    }
}

fn explain_port(
    f: &mut fmt::Formatter<'_>,
    port: u16,
    owner: Option<&PortOwner>,
    source: &io::Error,
) -> fmt::Result {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            write!(f, "port {port} is in use")?;
            match owner {
                Some(owner) => write!(f, " by {owner}")?,
                None => write!(f, " by a process of another user")?,
            }
            f.write_str("; stop it, or choose another port")
        }
        io::ErrorKind::PermissionDenied => {
            write!(
                f,
                "port {port} is for root alone; choose one from 1024 up, or start as root and name a user"
            )
        }
        _ => write!(f, "cannot listen on port {port}: {}", plain(source)),
    }
}

/// Returns the text of a system error without its number.
fn plain(error: &io::Error) -> String {
    base::errno_text(error)
}

impl std::error::Error for StartError {}

impl From<DirectoryError> for StartError {
    fn from(error: DirectoryError) -> Self {
        Self::Directory(error)
    }
}

impl From<UserError> for StartError {
    fn from(error: UserError) -> Self {
        Self::User(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_reported_with_its_owner_and_a_remedy() {
        let owner = Some(PortOwner { pid: 4711, command: "xrootd".into() });
        let error = StartError::Port { port: 1094, owner, source: io::ErrorKind::AddrInUse.into() };
        let text = error.to_string();
        assert_eq!(text, "port 1094 is in use by xrootd (pid 4711); stop it, or choose another port");
    }
}
