//! The authorities that a client trusts: directories of hashed names, files, revocation lists.

use super::certificate::validity;
use super::chain::{ChainVerifier, Intermediates, names};
use super::own_certificate::OwnCertificate;
use super::{TlsError, provider};
use crate::trusted_file::{FileTrust, NO_SHARED_WRITE, TrustedOwner, read_trusted};
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use x509_cert::der::Decode;

/// Maximum size of a file of authorities or of a revocation list in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of files in a directory of authorities.
const FILES_MAX: usize = 10_000;

/// The directory of grids, if no variable names another.
const GRID_DIRECTORY: &str = "/etc/grid-security/certificates";

/// The files in which systems keep their authorities; the first that exists counts.
pub const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// The demands on files with authorities.
const TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "add an authority",
    bytes_max: FILE_BYTES_MAX,
};

/// Authorities of files.
struct Authorities {
    /// The self-signed ones.
    roots: RootCertStore,
    /// The others.
    intermediates: Intermediates,
}

impl Authorities {
    fn new() -> Self {
        Self { roots: RootCertStore::empty(), intermediates: Intermediates::default() }
    }
}

/// Places of authorities.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TrustAnchors {
    /// A directory with one authority per file (`HASH.0`), and revocation lists (`HASH.r0`).
    pub directory: Option<PathBuf>,
    /// A file with authorities.
    pub file: Option<PathBuf>,
}

impl TrustAnchors {
    /// Returns the places that the environment names (`X509_CERT_DIR`, `X509_CERT_FILE`); otherwise
    /// the directory of grids, or the file of the system.
    #[must_use]
    pub fn of_environment() -> Self {
        let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let (directory, file) = (named("X509_CERT_DIR"), named("X509_CERT_FILE"));
        if directory.is_some() || file.is_some() {
            return Self { directory, file };
        }
        let grid = PathBuf::from(GRID_DIRECTORY);
        if grid.is_dir() {
            return Self { directory: Some(grid), file: None };
        }
        let system = SYSTEM_FILES.into_iter().map(PathBuf::from).find(|path| path.is_file());
        Self { directory: None, file: system }
    }

    /// Returns the context of a client without a certificate of its own, as [`Self::client_config_with`].
    ///
    /// # Errors
    /// As for [`Self::client_config_with`].
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        self.client_config_with(None)
    }

    /// Reads the authorities and returns the context of a client, which checks the chain up to a
    /// self-signed authority, the name of the host, and the revocation lists of the directory for each
    /// certificate of the chain. Servers that ask for a certificate get that of `own`. Blocks.
    ///
    /// # Errors
    /// A place cannot be read, or there is no authority.
    pub fn client_config_with(
        &self,
        own: Option<Arc<OwnCertificate>>,
    ) -> Result<Arc<ClientConfig>, TlsError> {
        let (mut authorities, mut revoked) = (Authorities::new(), Vec::new());
        if let Some(path) = &self.file {
            add(path, &mut authorities)?;
        }
        if let Some(directory) = &self.directory {
            for path in files(directory)? {
                match kind(&path) {
                    // Without one authority fewer servers are trusted. Without a revocation list
                    // more would be, so an unusable list is an error.
                    Some(HashedFile::Authority) => {
                        if let Err(error) = add(&path, &mut authorities) {
                            tracing::warn!("an authority is not used: {error}");
                        }
                    }
                    Some(HashedFile::RevocationList) => revoked.extend(revocation_lists(&path)?),
                    None => {}
                }
            }
        }
        let Authorities { roots, intermediates } = authorities;
        if roots.is_empty() {
            return Err(TlsError::Setting(format!(
                "no certificate authority found in {}; set X509_CERT_DIR or X509_CERT_FILE",
                self.places()
            )));
        }
        let provider = Arc::new(provider());
        let library = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .with_crls(revoked)
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| TlsError::Setting(format!("the revocation lists cannot be used: {error}")))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| TlsError::Setting(error.to_string()))?;
        // The verifier only adds intermediate authorities to the chain that the library verifies.
        let verifier = Arc::new(ChainVerifier { library, intermediates });
        let config = config.dangerous().with_custom_certificate_verifier(verifier);
        Ok(Arc::new(match own {
            Some(own) => config.with_client_cert_resolver(own),
            None => config.with_no_client_auth(),
        }))
    }

    fn places(&self) -> String {
        let places: Vec<String> = [&self.directory, &self.file]
            .into_iter()
            .flatten()
            .map(|path| path.display().to_string())
            .collect();
        if places.is_empty() {
            format!("{GRID_DIRECTORY} or the files of the system")
        } else {
            places.join(" and ")
        }
    }
}

/// A file in a directory of hashed names.
enum HashedFile {
    Authority,
    RevocationList,
}

/// Returns the kind of a file by its name: `HASH.0`, `HASH.r0`.
fn kind(path: &Path) -> Option<HashedFile> {
    let (stem, extension) = (path.file_stem()?.to_str()?, path.extension()?.to_str()?);
    let is_hash = stem.len() == 8 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match extension.strip_prefix('r') {
        _ if !is_hash => None,
        Some(number) if is_number(number) => Some(HashedFile::RevocationList),
        None if is_number(extension) => Some(HashedFile::Authority),
        _ => None,
    }
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: directory.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        if found.len() >= FILES_MAX {
            return Err(TlsError::content(directory, format!("more than {FILES_MAX} files")));
        }
        found.push(entry.map_err(unreadable)?.path());
    }
    found.sort();
    Ok(found)
}

/// Adds the authorities of a file. Those that the library does not understand are left out, because
/// directories of grids have some of them.
fn add(path: &Path, authorities: &mut Authorities) -> Result<(), TlsError> {
    let (text, _) = read_trusted(path, &TRUST).map_err(|error| TlsError::of_file(path, error))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate =
            certificate.map_err(|error| TlsError::content(path, format!("not a PEM file: {error}")))?;
        if !is_valid_now(&certificate) {
            tracing::debug!("{}: an authority is not used: it is not valid now", path.display());
            continue;
        }
        let Some((issuer, subject)) = names(&certificate) else { continue };
        if issuer != subject {
            authorities.intermediates.add(subject, certificate);
            continue;
        }
        if let Err(error) = authorities.roots.add(certificate) {
            tracing::debug!("{}: an authority is not used: {error}", path.display());
        }
    }
    Ok(())
}

/// Reports whether now is within the validity of an authority. The library does not check this for
/// trusted ones.
fn is_valid_now(certificate: &CertificateDer<'_>) -> bool {
    let parsed = x509_cert::Certificate::from_der(certificate);
    let now = SystemTime::now();
    parsed.is_ok_and(|parsed| {
        let (begin, end) = validity(&parsed);
        (begin..=end).contains(&now)
    })
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let (text, _) = read_trusted(path, &TRUST).map_err(|error| TlsError::of_file(path, error))?;
    if text.starts_with(b"-----") {
        let lists = CertificateRevocationListDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        return lists.map_err(|error| TlsError::content(path, format!("not a PEM file: {error}")));
    }
    Ok(vec![CertificateRevocationListDer::from(text.to_vec())])
}
