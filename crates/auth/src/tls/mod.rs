//! TLS contexts: certificates and keys of files, and the rules by which peers are trusted.
//!
//! Everything here is about files and rules; the crates `net` and `client` move the bytes. Files are
//! read with the checks of `trusted_file`, because their writers decide which peers are trusted.
//!
//! | file | contents |
//! |---|---|
//! | `certificate` | [`ServerCertificate`]: certificate and key of a server |
//! | `chain` | verification of servers: chains end at self-signed authorities |
//! | `ciphers` | names of OpenSSL to cipher suites |
//! | `client_certificates` | [`ClientCertificates`]: verification of clients that send one |
//! | `own_certificate` | [`OwnCertificate`]: the certificate that a client sends if a server asks for it |
//! | `trust` | [`TrustAnchors`]: the authorities that a client trusts |
//! | `site_authority` | [`SiteAuthority`]: an authority of a site of its own |
//! | `self_signed` | [`SelfSigned`]: a certificate for trying out |

mod certificate;
mod chain;
mod ciphers;
mod client_certificates;
mod own_certificate;
mod self_signed;
mod site_authority;
mod trust;

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod test_handshake;

pub use certificate::{CertificateFiles, ServerCertificate, TlsServerOptions};
pub use ciphers::unsupported_ciphers;
pub use client_certificates::{
    ClientCertificateSettings, ClientCertificates, RevocationDemand, take_refused_chain,
};
pub use own_certificate::OwnCertificate;
pub use self_signed::SelfSigned;
pub use site_authority::{CertificateText, SiteAuthority};
pub use trust::{SYSTEM_FILES, TrustAnchors};

use crate::trusted_file::TrustedFileError;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why a TLS context cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {}", path.display(), base::errno_text(source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Others could have written or read a file.
    #[error("{} is not used: {reason}; {remedy}", path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// The property that is not safe.
        reason: String,
        /// The action that makes it safe.
        remedy: String,
    },
    /// The content of a file is invalid.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason, with the remedy.
        reason: String,
    },
    /// A setting is not usable.
    #[error("{0}")]
    Setting(String),
}

impl TlsError {
    fn of_file(path: &Path, error: TrustedFileError) -> Self {
        let path = path.to_owned();
        match error {
            TrustedFileError::Unreadable(source) => Self::Unreadable { path, source },
            TrustedFileError::Untrusted { reason, remedy } => Self::Untrusted { path, reason, remedy },
        }
    }

    fn content(path: &Path, reason: impl Into<String>) -> Self {
        Self::Content { path: path.to_owned(), reason: reason.into() }
    }
}

/// Returns the cryptography of all TLS connections (decision 051): AEAD ciphers only. Those with AES of
/// 128 bits are preferred, as at XRootD: their handshakes and records cost less, and they are not weaker in
/// practice. The key agreements are those that every peer can do with one round trip.
#[must_use]
pub fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| !ciphers::is_aes_128(suite));
    provider.kx_groups = vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    provider
}

/// Returns the signatures with a key. The key is taken by reference, so that its encoded form can be wiped.
fn signing_key(key: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
    aws_lc_rs::sign::any_supported_type(key)
}
