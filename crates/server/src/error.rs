//! Why a server does not start: what, where, and what to do about it.

use crate::process::{FolderError, PortOwner, UserError};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a server does not start.
#[derive(Debug)]
pub enum StartError {
    /// The configuration has errors; they were shown.
    Configuration,
    /// The port cannot be had.
    Port {
        /// The port.
        port: u16,
        /// Who has it, where that can be known.
        owner: Option<PortOwner>,
        /// What the system said.
        source: io::Error,
    },
    /// What is to be served cannot be.
    Storage {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What an earlier run left behind could not be put right.
    Recovery(base::Error),
    /// A folder of the process.
    Folder(FolderError),
    /// A file of the process.
    File {
        /// What it is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The user to run as.
    User(UserError),
    /// What the configuration says about the cluster cannot be done.
    Cluster(String),
    /// Too few descriptors.
    Limits(String),
    /// The system refused something every process needs.
    System {
        /// What for.
        what: &'static str,
        /// What it said.
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
                f.write_str("name a folder that exists and that the server's user may enter")
            }
            Self::Recovery(error) => {
                write!(f, "what an earlier run left unfinished could not be put right: {error}")?;
                error.source.as_ref().map_or(Ok(()), |source| write!(f, " ({source})"))
            }
            Self::Folder(error) => error.fmt(f),
            Self::File { what, path, source } => {
                write!(f, "cannot write the {what} {}: {}", path.display(), plain(source))
            }
            Self::User(error) => error.fmt(f),
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

/// The system's words without its number.
fn plain(error: &io::Error) -> String {
    base::errno_text(error)
}

impl std::error::Error for StartError {}

impl From<FolderError> for StartError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
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
    fn a_taken_port_is_named_with_its_owner_and_a_way_out() {
        let owner = Some(PortOwner { pid: 4711, command: "xrootd".into() });
        let error = StartError::Port { port: 1094, owner, source: io::ErrorKind::AddrInUse.into() };
        let text = error.to_string();
        assert_eq!(text, "port 1094 is in use by xrootd (pid 4711); stop it, or choose another port");
    }
}
