//! [`OwnCertificate`]: the certificate of a client, for servers that ask for one in the handshake.
//!
//! xroot servers ask for none, because clients authenticate inside TLS. Other servers that speak xroot may.
//! The file is that of the user's proxy. All certificates of the file are sent except roots, because a
//! server can verify a proxy only with the certificate above it.

use super::certificate::{CERTIFICATE_TRUST, KEY_TRUST, read_file, validity};
use super::{TlsError, signing_key};
use crate::gsi::default_proxy;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};
use x509_cert::der::{Decode, Encode};
use zeroize::Zeroizing;

/// The variable with the file of the certificate.
const FILE_VARIABLE: &str = "X509_USER_PROXY";
/// The variable with the file of the key, for a certificate file without one.
const KEY_VARIABLE: &str = "X509_USER_KEY";

/// Maximum number of certificates in the file.
const CHAIN_MAX: usize = 20;

/// Interval at which the files are read again, because proxies are renewed.
const LOOK: Duration = Duration::from_secs(60);

/// The certificate of a client, with its files. Connections share it.
#[derive(Debug)]
pub struct OwnCertificate {
    file: PathBuf,
    /// The file of the key, if the file of the certificate has none.
    key: Option<PathBuf>,
    /// The user has named the file.
    is_named: bool,
    content: RwLock<CertificateContent>,
}

/// The content of the files.
#[derive(Debug)]
struct CertificateContent {
    usable: Result<UsableCertificate, String>,
    read: Option<Instant>,
}

#[derive(Debug)]
struct UsableCertificate {
    certified: Arc<CertifiedKey>,
    /// Begin and end of the validity of all its certificates.
    valid: (SystemTime, SystemTime),
}

impl OwnCertificate {
    /// Takes the file that the environment names (`X509_USER_PROXY`, and `X509_USER_KEY` if it has no key),
    /// otherwise the default proxy of the user. Nothing is read yet.
    #[must_use]
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        match value(FILE_VARIABLE) {
            Some(file) => Self::of_files(file, value(KEY_VARIABLE), true),
            None => Self::of_files(default_proxy(), None, false),
        }
    }

    fn of_files(file: PathBuf, key: Option<PathBuf>, is_named: bool) -> Self {
        let usable = Err("it was not read".to_owned());
        Self { file, key, is_named, content: RwLock::new(CertificateContent { usable, read: None }) }
    }

    /// Reports whether the files should be read before the next handshake.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        content.read.is_none_or(|at| at.elapsed() >= LOOK)
    }

    /// Reads the files. Blocks.
    pub fn refresh(&self) {
        let usable = self.read();
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(reason) = &usable
            && content.usable.as_ref().err() != Some(reason)
        {
            tracing::debug!("servers that ask for a certificate get none: {reason}");
        }
        *content = CertificateContent { usable, read: Some(Instant::now()) };
    }

    /// Describes the certificate that a server gets if it asks for one, for error messages.
    #[must_use]
    pub fn state(&self) -> String {
        match self.usable(SystemTime::now()) {
            Ok(_) => format!("this client sends the certificate in {}", self.file.display()),
            Err(reason) => format!("this client has no certificate to send: {reason}"),
        }
    }

    /// Returns certificate and key if they are usable at this time.
    fn usable(&self, now: SystemTime) -> Result<Arc<CertifiedKey>, String> {
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        let UsableCertificate { certified, valid: (begin, end) } =
            content.usable.as_ref().map_err(Clone::clone)?;
        let shown = self.file.display();
        if now >= *end {
            return Err(format!("the certificate in {shown} has expired; make a new proxy"));
        }
        if now < *begin {
            return Err(format!("the certificate in {shown} is not valid yet; check the clock"));
        }
        Ok(certified.clone())
    }

    fn read(&self) -> Result<UsableCertificate, String> {
        match self.read_files() {
            Err(TlsError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound && !self.is_named =>
            {
                Err(format!("there is no {}; name a proxy in {FILE_VARIABLE}", self.file.display()))
            }
            read => read.map_err(|error| error.to_string()),
        }
    }

    fn read_files(&self) -> Result<UsableCertificate, TlsError> {
        // With a key of its own, the file may be readable for others.
        let trust = if self.key.is_some() { &CERTIFICATE_TRUST } else { &KEY_TRUST };
        let (text, _) = read_file(&self.file, trust)?;
        let chain = chain_of(&self.file, &text)?;
        let (key_path, key) = match (PrivateKeyDer::from_pem_slice(&text), &self.key) {
            (Ok(key), None) => (&self.file, Ok(key)),
            // The key of a proxy belongs to it, whatever the variable for the user's own certificate names.
            (Ok(key), Some(_)) => {
                read_file(&self.file, &KEY_TRUST)?;
                (&self.file, Ok(key))
            }
            (Err(_), Some(path)) => (path, PrivateKeyDer::from_pem_slice(&read_file(path, &KEY_TRUST)?.0)),
            (Err(error), None) => (&self.file, Err(error)),
        };
        let key = key.map(Zeroizing::new).map_err(|error| {
            let reason = format!("no private key found: {error}; an encrypted key cannot be used");
            TlsError::content(key_path, reason)
        })?;
        let signer = signing_key(&key)
            .map_err(|error| TlsError::content(key_path, format!("the key cannot be used: {error}")))?;
        let parsed = parsed(&self.file, &chain)?;
        if !is_key_of(&*signer, parsed.first()) {
            let reason = format!("it is not the key of the first certificate in {}", self.file.display());
            return Err(TlsError::content(key_path, reason));
        }
        let begin = parsed.iter().map(|one| validity(one).0).max();
        let end = parsed.iter().map(|one| validity(one).1).min();
        let valid = (begin.unwrap_or(SystemTime::UNIX_EPOCH), end.unwrap_or(SystemTime::UNIX_EPOCH));
        Ok(UsableCertificate { certified: Arc::new(CertifiedKey::new(chain, signer)), valid })
    }
}

/// Returns the certificates of a file, without roots.
fn chain_of(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut chain = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(text) {
        let certificate =
            certificate.map_err(|error| TlsError::content(path, format!("not a PEM file: {error}")))?;
        if chain.len() >= CHAIN_MAX {
            return Err(TlsError::content(path, format!("more than {CHAIN_MAX} certificates")));
        }
        let is_root = super::chain::names(&certificate).is_some_and(|(issuer, subject)| issuer == subject);
        if !is_root {
            chain.push(certificate);
        }
    }
    if chain.is_empty() {
        return Err(TlsError::content(path, "no certificate of a user found; make a proxy"));
    }
    Ok(chain)
}

fn parsed(path: &Path, chain: &[CertificateDer<'_>]) -> Result<Vec<x509_cert::Certificate>, TlsError> {
    let parsed: Result<_, _> = chain.iter().map(|one| x509_cert::Certificate::from_der(one)).collect();
    parsed.map_err(|error| TlsError::content(path, format!("a certificate is malformed: {error}")))
}

/// Reports whether a key belongs to a certificate. The library does not compare the keys of proxies, because
/// it does not know their critical extension.
fn is_key_of(signer: &dyn SigningKey, certificate: Option<&x509_cert::Certificate>) -> bool {
    let public = certificate.and_then(|one| one.tbs_certificate().subject_public_key_info().to_der().ok());
    public.is_some_and(|public| signer.public_key().is_some_and(|key| key.as_ref() == public))
}

impl ResolvesClientCert for OwnCertificate {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let certified = self.usable(SystemTime::now()).ok()?;
        // Without a common signature scheme the handshake would fail, also where a certificate is optional.
        certified.key.choose_scheme(schemes).is_some().then_some(certified)
    }

    fn has_certs(&self) -> bool {
        self.usable(SystemTime::now()).is_ok()
    }
}

#[cfg(test)]
mod tests;
