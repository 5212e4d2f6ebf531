//! Certificate and key of a server: read from files, checked, and made into a TLS context.

use super::ciphers::restrict;
use super::client_certificates::ClientCertificates;
use super::{TlsError, provider, signing_key};
use crate::trusted_file::{FileStamp, FileTrust, NO_SHARED_WRITE, TrustedOwner, read_trusted};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use zeroize::Zeroizing;

/// Maximum size of a certificate file or key file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of certificates in the file of a server.
const CHAIN_MAX: usize = 10;

/// Maximum number of resumable sessions of clients that are asked for certificates, because each session keeps the
/// chain of its client.
const SESSIONS_WITH_CLIENTS_MAX: usize = 1024;

/// The demands on a file with a key.
pub(super) const KEY_TRUST: FileTrust = FileTrust::private(TrustedOwner::Own, "read the key", FILE_BYTES_MAX);

/// The demands on a file with certificates only.
pub(super) const CERTIFICATE_TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "replace the certificate",
    bytes_max: FILE_BYTES_MAX,
};

/// The files of a certificate and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// The certificate of the server, then those of intermediate authorities.
    pub certificate: PathBuf,
    /// The private key; `None` if it is in the same file.
    pub key: Option<PathBuf>,
}

impl CertificateFiles {
    fn key(&self) -> &Path {
        self.key.as_deref().unwrap_or(&self.certificate)
    }
}

/// Options of a server context.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TlsServerOptions {
    /// Cipher suites of TLS 1.2, by their names of OpenSSL; `None` allows all that are safe.
    pub ciphers: Option<String>,
    /// Number of sessions that clients can resume; 0 disables resumption.
    pub resumable_sessions: usize,
}

/// Certificate and key of a server.
pub struct ServerCertificate {
    config: Arc<ServerConfig>,
    context: TlsContext,
    not_before: SystemTime,
    not_after: SystemTime,
    issuers_not_after: Option<SystemTime>,
    names: Vec<String>,
    is_self_signed: bool,
    stamps: (FileStamp, FileStamp),
}

impl std::fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { not_before, not_after, names, .. } = self;
        f.debug_struct("ServerCertificate")
            .field("names", names)
            .field("not_before", not_before)
            .field("not_after", not_after)
            .finish_non_exhaustive()
    }
}

impl ServerCertificate {
    /// Reads certificate and key. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, could have been written or read by others, has other content, or the
    /// key is not that of the certificate.
    pub fn read(files: &CertificateFiles, options: &TlsServerOptions) -> Result<Self, TlsError> {
        let path = &files.certificate;
        let certificate_trust = if files.key.is_some() { &CERTIFICATE_TRUST } else { &KEY_TRUST };
        let (chain, chain_stamp) = read_file(path, certificate_trust)?;
        let (key, key_stamp) = read_file(files.key(), &KEY_TRUST)?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&chain)
            .collect::<Result<_, _>>()
            .map_err(|error| TlsError::content(path, format!("not a PEM file: {error}")))?;
        if chain.len() > CHAIN_MAX {
            let reason =
                format!("more than {CHAIN_MAX} certificates; only those of the server's chain belong here");
            return Err(TlsError::content(path, reason));
        }
        let Some(leaf) = chain.first() else {
            let reason = "no certificate found; name the file that begins with BEGIN CERTIFICATE";
            return Err(TlsError::content(path, reason));
        };
        let key = PrivateKeyDer::from_pem_slice(&key).map(Zeroizing::new).map_err(|error| {
            let reason = format!("no private key found: {error}; an encrypted key cannot be used");
            TlsError::content(files.key(), reason)
        })?;
        let leaf = x509_cert::Certificate::from_der(leaf)
            .map_err(|error| TlsError::content(path, format!("the certificate is malformed: {error}")))?;
        let (not_before, not_after) = validity(&leaf);
        let issuers_not_after = issuers_not_after(&chain);
        let names = names(&leaf);
        let is_self_signed = leaf.tbs_certificate().issuer() == leaf.tbs_certificate().subject();
        let mut provider = provider();
        if let Some(list) = &options.ciphers {
            provider.cipher_suites = restrict(&provider.cipher_suites, list)?;
        }
        let certified = certified(chain, &key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let reason = format!("it is not the key of the certificate in {}", path.display());
                TlsError::content(files.key(), reason)
            }
            error => TlsError::content(files.key(), format!("the key cannot be used: {error}")),
        })?;
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        let context = TlsContext {
            provider: Arc::new(provider),
            resolver,
            resumable_sessions: options.resumable_sessions,
        };
        let config = context.config(None)?;
        let stamps = (chain_stamp, key_stamp);
        Ok(Self { config, context, not_before, not_after, issuers_not_after, names, is_self_signed, stamps })
    }

    /// Returns the context for connections.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Returns a context for connections whose clients are asked for certificates. Clients without one pass.
    /// It has sessions of its own, so that no session without a certificate is resumed here.
    ///
    /// # Errors
    /// [`TlsError::Setting`].
    pub fn config_with_clients(
        &self,
        clients: &Arc<ClientCertificates>,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        self.context.config(Some(clients.clone()))
    }

    /// Returns the beginning of its validity.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Returns the end of its validity.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Returns the earliest end of the validity of the intermediate authorities in its file.
    pub fn issuers_not_after(&self) -> Option<SystemTime> {
        self.issuers_not_after
    }

    /// Returns the names of hosts that it is for.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Reports whether no authority has issued it, so that clients must trust it directly.
    pub fn is_self_signed(&self) -> bool {
        self.is_self_signed
    }

    /// Returns the time until it expires; zero if it has expired.
    pub fn left(&self, now: SystemTime) -> Duration {
        self.not_after.duration_since(now).unwrap_or_default()
    }

    /// Reports whether it is not valid yet.
    pub fn is_early(&self, now: SystemTime) -> bool {
        now < self.not_before
    }

    /// Reports whether the files have changed since they were read. A file that cannot be examined
    /// counts as changed. Blocks.
    pub fn has_changed(&self, files: &CertificateFiles) -> bool {
        let stamp = |path: &Path| std::fs::metadata(path).map(|metadata| FileStamp::of(&metadata)).ok();
        let now = (stamp(&files.certificate), stamp(files.key()));
        now != (Some(self.stamps.0), Some(self.stamps.1))
    }
}

/// Returns certificate and key for signatures.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'_>,
) -> Result<CertifiedKey, rustls::Error> {
    let certified = CertifiedKey::new(chain, signing_key(key)?);
    certified.keys_match()?;
    Ok(certified)
}

pub(super) fn read_file(path: &Path, trust: &FileTrust) -> Result<(Zeroizing<Vec<u8>>, FileStamp), TlsError> {
    read_trusted(path, trust).map_err(|error| TlsError::of_file(path, error))
}

/// The parts of the contexts of one certificate.
struct TlsContext {
    provider: Arc<CryptoProvider>,
    resolver: Arc<SingleCertAndKey>,
    resumable_sessions: usize,
}

impl TlsContext {
    /// Returns a context that asks clients for certificates if it can verify them.
    fn config(&self, clients: Option<Arc<ClientCertificates>>) -> Result<Arc<ServerConfig>, TlsError> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| TlsError::Setting(format!("these ciphers cannot be used: {error}")))?;
        let (builder, sessions_max) = match clients {
            Some(clients) => (builder.with_client_cert_verifier(clients), SESSIONS_WITH_CLIENTS_MAX),
            // The xroot protocol identifies clients by kXR_auth, inside TLS.
            None => (builder.with_no_client_auth(), usize::MAX),
        };
        let mut config = builder.with_cert_resolver(self.resolver.clone());
        // Most clients prefer AES of 256 bits, whose key schedule (SHA-384) is an eighth of the cost of a
        // resumed handshake.
        config.ignore_client_order = true;
        // Tickets would be encrypted by a key that must be rotated; sessions are kept in memory instead.
        config.session_storage = match self.resumable_sessions.min(sessions_max) {
            0 => Arc::new(NoServerSessionStorage {}),
            size => rustls::server::ServerSessionMemoryCache::new(size),
        };
        config.send_tls13_tickets = usize::from(self.resumable_sessions > 0);
        Ok(Arc::new(config))
    }
}

/// Returns begin and end of the validity of a certificate.
pub(super) fn validity(certificate: &x509_cert::Certificate) -> (SystemTime, SystemTime) {
    let validity = certificate.tbs_certificate().validity();
    let time = |time: &x509_cert::time::Time| UNIX_EPOCH + time.to_unix_duration();
    (time(&validity.not_before), time(&validity.not_after))
}

/// Returns the earliest end of the validity of the certificates above the first one. Clients ignore roots,
/// and those that are malformed.
fn issuers_not_after(chain: &[CertificateDer<'_>]) -> Option<SystemTime> {
    let parsed = chain.iter().skip(1).filter_map(|one| x509_cert::Certificate::from_der(one).ok());
    let is_root = |certificate: &x509_cert::Certificate| {
        certificate.tbs_certificate().issuer() == certificate.tbs_certificate().subject()
    };
    parsed.filter(|one| !is_root(one)).map(|one| validity(&one).1).min()
}

/// Returns the names of hosts in a certificate.
fn names(certificate: &x509_cert::Certificate) -> Vec<String> {
    let alternative = certificate.tbs_certificate().get_extension::<SubjectAltName>();
    let Ok(Some((_, alternative))) = alternative else { return Vec::new() };
    let dns = |name: &GeneralName| match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
        _ => None,
    };
    alternative.0.iter().filter_map(dns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::CipherSuite;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn made(days: i64) -> (String, String) {
        let mut params = CertificateParams::new(vec!["h.example.org".to_owned()]).unwrap();
        params.not_before = time::OffsetDateTime::now_utc() - time::Duration::days(10);
        params.not_after = time::OffsetDateTime::now_utc() + time::Duration::days(days);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn files_that_cannot_be_used_are_refused_with_the_remedy() {
        let directory = std::env::temp_dir().join(format!("auth-certificate-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let files = CertificateFiles {
            certificate: directory.join("cert.pem"),
            key: Some(directory.join("key.pem")),
        };
        let put = |name: &str, content: &str, mode| {
            let path = directory.join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        let (certificate, key) = made(20);
        let (_, other) = made(20);
        let options = TlsServerOptions::default();
        let cases = [
            (certificate.as_str(), key.as_str(), 0o600, "accepted"),
            (&certificate, &key, 0o640, "allow others to read the key; run chmod 600 "),
            (&certificate, &other, 0o600, "it is not the key of the certificate in "),
            (&key, &key, 0o600, "no certificate found"),
            (&certificate, &certificate, 0o600, "no private key found"),
            ("text", &key, 0o600, "no certificate found"),
        ];
        for (content, key, mode, expected) in cases {
            put("cert.pem", content, 0o644);
            put("key.pem", key, mode);
            let found = match ServerCertificate::read(&files, &options) {
                Ok(_) => "accepted".to_owned(),
                Err(error) => error.to_string(),
            };
            assert!(found.contains(expected), "{expected}: {found}");
            assert!(!found.contains("PRIVATE KEY"), "{found}");
        }
        // Key and certificate in one file.
        put("cert.pem", &format!("{certificate}{key}"), 0o600);
        let one = CertificateFiles { key: None, ..files.clone() };
        let read = ServerCertificate::read(&one, &options).unwrap();
        assert_eq!((read.names(), read.is_self_signed()), (&["h.example.org".to_owned()][..], true));
        let days = read.left(SystemTime::now()).as_secs() / 86_400;
        assert_eq!(days, 19);
        assert!(!read.has_changed(&one) && !read.is_early(SystemTime::now()));
        let (certificate, key) = made(-1);
        put("cert.pem", &format!("{certificate}{key}"), 0o600);
        assert!(read.has_changed(&one));
        let expired = ServerCertificate::read(&one, &options).unwrap();
        assert_eq!(expired.left(SystemTime::now()), Duration::ZERO);
        fs::remove_dir_all(directory).unwrap();
    }

    /// Returns the suite of a handshake with a client that offers these, in its order of preference.
    fn negotiated(
        server: &ServerCertificate,
        certificate: &str,
        offered: &[CipherSuite],
    ) -> Result<CipherSuite, rustls::Error> {
        let mut provider = provider();
        let of_name = |name: &CipherSuite| {
            provider.cipher_suites.iter().find(|suite| suite.suite() == *name).copied().unwrap()
        };
        provider.cipher_suites = offered.iter().map(of_name).collect();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "h.example.org".try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name)?;
        let mut server = rustls::ServerConnection::new(server.config().clone())?;
        crate::tls::test_handshake::shake_hands(&mut client, &mut server)?;
        Ok(server.negotiated_cipher_suite().unwrap().suite())
    }

    #[test]
    fn the_server_prefers_ciphers_of_128_bits() {
        use CipherSuite as Suite;
        let directory = std::env::temp_dir().join(format!("auth-preference-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("both.pem");
        let (certificate, key) = made(20);
        fs::write(&path, format!("{certificate}{key}")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let files = CertificateFiles { certificate: path, key: None };
        let read = |ciphers: Option<&str>| {
            let options =
                TlsServerOptions { ciphers: ciphers.map(str::to_owned), ..TlsServerOptions::default() };
            ServerCertificate::read(&files, &options).unwrap()
        };
        let of_13 = [Suite::TLS13_AES_256_GCM_SHA384, Suite::TLS13_AES_128_GCM_SHA256];
        let of_12 =
            [Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];
        let server = read(None);
        let negotiated_by = |server, offered: &[Suite]| negotiated(server, &certificate, offered).unwrap();
        for offered in [of_13, of_12] {
            assert_eq!(negotiated_by(&server, &offered), offered[1]);
            assert_eq!(negotiated_by(&server, &offered[..1]), offered[0], "the only one of the client");
        }
        assert_eq!(negotiated_by(&server, &[of_12, of_13].concat()), of_13[1], "the version counts first");
        let server = read(Some("ECDHE-ECDSA-AES256-GCM-SHA384"));
        assert_eq!(negotiated_by(&server, &of_12), of_12[0], "the only one of the configuration");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_self_signed_certificate_is_kept_until_it_must_be_renewed() {
        let directory = std::env::temp_dir().join(format!("auth-self-signed-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let made = crate::tls::SelfSigned::open(&directory, &["localhost".to_owned()]).unwrap();
        let read = ServerCertificate::read(&made.files, &TlsServerOptions::default()).unwrap();
        assert!(read.is_self_signed());
        let again = crate::tls::SelfSigned::open(&directory, &["localhost".to_owned()]).unwrap();
        assert!(again == made && !read.has_changed(&again.files), "clients that trust it continue to");
        // Before it ends it is renewed, with the same key.
        let key = fs::read(made.files.key.as_ref().unwrap()).unwrap();
        let later = |days: u64| SystemTime::now() + Duration::from_secs(days * 86_400);
        crate::tls::SelfSigned::renew_if_due(&made.files, &read, later(362)).unwrap();
        assert!(!read.has_changed(&made.files));
        crate::tls::SelfSigned::renew_if_due(&made.files, &read, later(364)).unwrap();
        let renewed = ServerCertificate::read(&made.files, &TlsServerOptions::default()).unwrap();
        assert_eq!(renewed.left(later(364)).as_secs().div_ceil(86_400), 365);
        assert_eq!((renewed.names(), fs::read(made.files.key.unwrap()).unwrap()), (read.names(), key));
        let days = |days: u64| Duration::from_secs(days * 86_400);
        for begin in [SystemTime::now() - days(400), SystemTime::now() + days(3000)] {
            let unusable =
                crate::tls::SelfSigned::create(&directory, &["localhost".to_owned()], begin).unwrap();
            crate::tls::SelfSigned::open(&directory, &["localhost".to_owned()]).unwrap();
            let renewed = ServerCertificate::read(&unusable.files, &TlsServerOptions::default()).unwrap();
            assert_eq!(renewed.left(SystemTime::now()).as_secs() / 86_400, 364, "at a start too");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
