//! [`SiteAuthority`]: an authority of a site of its own, which issues the certificates of its servers.

use super::TlsError;
use super::certificate::{CERTIFICATE_TRUST, KEY_TRUST, read_file};
use crate::grid::DistinguishedName;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName as NewName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;
use std::time::{Duration, SystemTime};
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode, Encode};
use zeroize::Zeroizing;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The time for which an authority is valid.
const AUTHORITY_VALIDITY: Duration = Duration::from_secs(3650 * DAY.as_secs());

/// The time for which the certificate of a server is valid.
const SERVER_VALIDITY: Duration = Duration::from_secs(365 * DAY.as_secs());

/// The attribute of a name.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// A certificate and its key, as PEM.
pub struct CertificateText {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: Zeroizing<String>,
}

/// An authority, by whose key certificates are issued.
pub struct SiteAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// Hash of its name, with which files of authorities begin.
    hash: String,
}

impl SiteAuthority {
    /// Creates an authority with this common name, which is valid for ten years from `begin`. Returns it
    /// with its certificate and key.
    ///
    /// # Errors
    /// The name cannot stand in a certificate.
    pub fn create(name: &str, begin: SystemTime) -> Result<(Self, CertificateText), TlsError> {
        let key = KeyPair::generate().map_err(invalid)?;
        let mut params = authority(name)?;
        set_validity(&mut params, begin, AUTHORITY_VALIDITY);
        let certificate = params.self_signed(&key).map_err(invalid)?;
        let text =
            CertificateText { certificate: certificate.pem(), key: Zeroizing::new(key.serialize_pem()) };
        let hash = subject(certificate.der())?.hash;
        Ok((Self { issuer: Issuer::new(params, key), hash }, text))
    }

    /// Reads an authority that [`Self::create`] has made. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, could have been written or read by others, or is not of such an authority.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let (text, _) = read_file(certificate, &CERTIFICATE_TRUST)?;
        let encoded = CertificateDer::from_pem_slice(&text)
            .map_err(|error| TlsError::content(certificate, format!("not a certificate: {error}")))?;
        let AuthoritySubject { common_name, hash, public_key } = subject(&encoded)?;
        let (text, _) = read_file(key, &KEY_TRUST)?;
        let text = std::str::from_utf8(&text).map_err(|_| TlsError::content(key, "not a PEM file"))?;
        let pair = KeyPair::from_pem(text)
            .map_err(|error| TlsError::content(key, format!("the key cannot be used: {error}")))?;
        if rcgen::PublicKeyData::subject_public_key_info(&pair) != public_key {
            let reason = format!("it is not the key of the authority in {}", certificate.display());
            return Err(TlsError::content(key, reason));
        }
        Ok(Self { issuer: Issuer::new(authority(&common_name)?, pair), hash })
    }

    /// Returns the hash of its name: in a directory of authorities, its file is `HASH.0`.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Issues a certificate for the names of a server, which is valid for a year from `begin`.
    ///
    /// # Errors
    /// A name is not the name of a host.
    pub fn issue(&self, hosts: &[String], begin: SystemTime) -> Result<CertificateText, TlsError> {
        let key = KeyPair::generate().map_err(invalid)?;
        let mut params = CertificateParams::new(hosts).map_err(invalid)?;
        params.distinguished_name = NewName::new();
        let name = hosts.first().map_or("localhost", String::as_str);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, begin, SERVER_VALIDITY);
        let certificate = params.signed_by(&key, &self.issuer).map_err(invalid)?.pem();
        Ok(CertificateText { certificate, key: Zeroizing::new(key.serialize_pem()) })
    }
}

/// Returns the parts of an authority that its name determines.
fn authority(name: &str) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(Vec::new()).map_err(invalid)?;
    params.distinguished_name = NewName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// An hour before `begin` counts as well, because clocks differ.
fn set_validity(params: &mut CertificateParams, begin: SystemTime, validity: Duration) {
    let begin = time::OffsetDateTime::from(begin);
    params.not_before = begin - time::Duration::hours(1);
    params.not_after = begin + validity;
}

/// The subject of an authority.
struct AuthoritySubject {
    common_name: String,
    hash: String,
    /// Its key, encoded as SubjectPublicKeyInfo.
    public_key: Vec<u8>,
}

fn subject(certificate: &CertificateDer<'_>) -> Result<AuthoritySubject, TlsError> {
    let malformed = || TlsError::Setting("the certificate of the authority is malformed".to_owned());
    let parsed = x509_cert::Certificate::from_der(certificate).map_err(|_| malformed())?;
    let tbs = parsed.tbs_certificate();
    let names = tbs.subject();
    let name = names.iter().find(|attribute| attribute.oid == COMMON_NAME).ok_or_else(malformed)?;
    let utf8 = name.value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
    let printable = || name.value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned());
    let common_name = utf8.or_else(|_| printable()).map_err(|_| malformed())?;
    let encoded = names.to_der().map_err(|_| malformed())?;
    let hash = DistinguishedName::parse(&encoded).ok_or_else(malformed)?.hash();
    let public_key = tbs.subject_public_key_info().to_der().map_err(|_| malformed())?;
    Ok(AuthoritySubject { common_name, hash, public_key })
}

fn invalid(error: rcgen::Error) -> TlsError {
    TlsError::Setting(format!("no certificate is made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{CertificateFiles, ServerCertificate, TlsServerOptions, TrustAnchors};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn put(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_authority_that_was_stored_issues_certificates() {
        let directory = std::env::temp_dir().join(format!("auth-site-authority-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let [ca, ca_key, host, host_key] =
            ["ca.pem", "ca.key", "host.pem", "host.key"].map(|name| directory.join(name));
        let now = SystemTime::now();
        let (made, text) = SiteAuthority::create("Site of h.example.org", now).unwrap();
        put(&ca, &text.certificate, 0o644);
        put(&ca_key, &text.key, 0o600);
        let read = SiteAuthority::open(&ca, &ca_key).unwrap();
        assert_eq!(read.hash(), made.hash());
        let hosts = ["h.example.org".to_owned(), "localhost".to_owned()];
        for authority in [&made, &read] {
            let issued = authority.issue(&hosts, now).unwrap();
            put(&host, &issued.certificate, 0o644);
            put(&host_key, &issued.key, 0o600);
            let files = CertificateFiles { certificate: host.clone(), key: Some(host_key.clone()) };
            let certificate = ServerCertificate::read(&files, &TlsServerOptions::default()).unwrap();
            assert_eq!((certificate.names(), certificate.is_self_signed()), (&hosts[..], false));
            assert_eq!(certificate.left(now).as_secs().div_ceil(86_400), 365);
        }
        let trusted = TrustAnchors { directory: None, file: Some(ca.clone()) };
        assert!(trusted.client_config().is_ok());
        // The key of another authority.
        put(&ca_key, &SiteAuthority::create("Other", now).unwrap().1.key, 0o600);
        let refused = SiteAuthority::open(&ca, &ca_key).err().map(|error| error.to_string());
        assert!(refused.is_some_and(|text| text.contains("is not the key of the authority in ")));
        fs::remove_dir_all(directory).unwrap();
    }
}
