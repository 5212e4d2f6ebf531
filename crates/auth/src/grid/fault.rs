//! [`ChainFault`] and [`GridTrustError`]: the reasons for which chains and files are not used.

use super::der::MalformedDer;
use crate::trusted_file::TrustedFileError;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a chain is refused. It is for the log: peers get one text for all of them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the certificate of {subject:?} is refused: {reason}")]
pub struct ChainFault {
    /// Subject of the certificate; empty if it cannot be read.
    pub subject: String,
    /// The reason.
    pub reason: ChainFaultReason,
}

/// The rule that a chain does not follow.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChainFaultReason {
    /// A part of it is not DER, or not that of a certificate.
    #[error("it is malformed: {0}")]
    Malformed(&'static str),
    /// The number of certificates or their size is not within the limits.
    #[error("the chain is empty or exceeds a limit: {0}")]
    Size(&'static str),
    /// No path leads to a local authority.
    #[error("its issuer {0:?} is unknown; add the files of the authority to the directory of authorities")]
    UnknownAuthority(String),
    /// The validity has not begun.
    #[error("it is not valid yet; check the clocks")]
    NotValidYet,
    /// The validity has ended.
    #[error("it has expired")]
    Expired,
    /// The signature is not that of the issuer.
    #[error("its signature is not that of its issuer")]
    Signature,
    /// The key is too small or of an unsupported kind.
    #[error("its key is neither RSA of at least {0} bits nor P-256 nor P-384")]
    Key(u32),
    /// The signature is of MD5, SHA-1 or an unsupported kind.
    #[error("its signature is not of SHA-2 with RSA or ECDSA")]
    SignatureAlgorithm,
    /// The path from the end entity to the authority violates RFC 5280.
    #[error("the path to its authority is not valid: {0}")]
    Path(String),
    /// A key is used for something that its certificate does not allow.
    #[error("its key usage does not allow {0}")]
    KeyUsage(&'static str),
    /// A proxy violates RFC 3820 or a rule of this server.
    #[error("the proxy is not valid: {0}")]
    Proxy(&'static str),
    /// The policy of an authority does not allow it to sign for this subject.
    #[error("{0}")]
    SigningPolicy(String),
    /// The certificate was revoked.
    #[error("it was revoked by its issuer")]
    Revoked,
    /// The revocation list that must be consulted is missing, stale or unusable.
    #[error("the revocation list of its issuer {0}; run fetch-crl, or check the setting of -crl")]
    RevocationList(String),
}

impl From<MalformedDer> for ChainFaultReason {
    fn from(_: MalformedDer) -> Self {
        Self::Malformed("it is not DER as expected")
    }
}

impl ChainFaultReason {
    /// Returns the fault of the certificate of this subject.
    pub(super) fn of(self, subject: &str) -> ChainFault {
        ChainFault { subject: subject.to_owned(), reason: self }
    }
}

/// The reason why authorities or a grid map cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GridTrustError {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {}", path.display(), base::errno_text(source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Others could have written a file.
    #[error("{} is not used: {reason}; {remedy}", path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// The property that is not safe.
        reason: String,
        /// The action that makes it safe.
        remedy: String,
    },
    /// The content of a file or directory is invalid.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason, with the remedy.
        reason: String,
    },
}

impl GridTrustError {
    pub(super) fn of_file(path: &Path, error: TrustedFileError) -> Self {
        let path = path.to_owned();
        match error {
            TrustedFileError::Unreadable(source) => Self::Unreadable { path, source },
            TrustedFileError::Untrusted { reason, remedy } => Self::Untrusted { path, reason, remedy },
        }
    }

    pub(super) fn content(path: &Path, reason: impl Into<String>) -> Self {
        Self::Content { path: path.to_owned(), reason: reason.into() }
    }
}
