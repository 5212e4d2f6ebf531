//! Chains of generated certificates, as the client of a handshake sees them.

use crate::tls::TrustAnchors;
use crate::tls::test_handshake::shake_hands;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConnection, Error, ServerConfig, ServerConnection};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use time::{Duration, OffsetDateTime};

const HOST: &str = "data.example.org";

/// A directory of authorities, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("auth-chain-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn put(&self, name: &str, content: &str) {
        fs::write(self.0.join(name), content).unwrap();
    }

    /// Returns the result of a handshake with a server that has this chain and key.
    fn handshake(
        &self,
        chain: &[&rcgen::Certificate],
        key: &KeyPair,
        host: &'static str,
    ) -> Result<(), Error> {
        let anchors = TrustAnchors { directory: Some(self.0.clone()), file: None };
        let client = anchors.client_config().unwrap();
        let chain: Vec<CertificateDer<'static>> = chain.iter().map(|one| one.der().clone()).collect();
        let server = ServerConfig::builder_with_provider(Arc::new(crate::tls::provider()));
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = key.serialize_der().try_into().unwrap();
        let mut server =
            ServerConnection::new(Arc::new(server.with_single_cert(chain, key).unwrap())).unwrap();
        let mut client = ClientConnection::new(client, ServerName::try_from(host).unwrap()).unwrap();
        shake_hands(&mut client, &mut server)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// Creates an authority: a self-signed one, or one of `by`.
fn authority(name: &str, serial: u64, by: Option<&Authority>) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.serial_number = Some(SerialNumber::from(serial));
    let key = KeyPair::generate().unwrap();
    let certificate = match by {
        None => params.self_signed(&key).unwrap(),
        Some(by) => params.signed_by(&key, &by.issuer).unwrap(),
    };
    Authority { certificate, issuer: Issuer::new(params, key) }
}

/// Creates the certificate of a server that is valid within these days from now.
fn leaf(serial: u64, days: (i64, i64), by: &Authority) -> (rcgen::Certificate, KeyPair) {
    let mut params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    params.serial_number = Some(SerialNumber::from(serial));
    let now = OffsetDateTime::now_utc();
    (params.not_before, params.not_after) = (now + Duration::days(days.0), now + Duration::days(days.1));
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, &by.issuer).unwrap(), key)
}

fn revocation_list(serial: u64, by: &Authority) -> String {
    let now = OffsetDateTime::now_utc();
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(serial),
        revocation_time: now - Duration::days(1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: now - Duration::days(1),
        next_update: now + Duration::days(10),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(&by.issuer).unwrap().pem().unwrap()
}

/// Returns the name of the reason for which a certificate was refused.
fn reason(result: Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "accepted",
        Err(Error::InvalidCertificate(error)) => match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired",
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "early",
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "wrong host"
            }
            CertificateError::Revoked => "revoked",
            CertificateError::UnknownIssuer => "unknown",
            _ => "another error of the certificate",
        },
        Err(_) => "another error",
    }
}

const VALID: (i64, i64) = (-1, 10);

#[test]
fn certificates_of_servers_are_checked() {
    let directory = Directory::new("leaf");
    let (root, other) = (authority("root", 1, None), authority("other", 2, None));
    directory.put("11111111.0", &root.certificate.pem());
    directory.put("11111111.r0", &revocation_list(13, &root));
    let self_signed = {
        let key = KeyPair::generate().unwrap();
        (CertificateParams::new(vec![HOST.to_owned()]).unwrap().self_signed(&key).unwrap(), key)
    };
    let cases = [
        ("accepted", leaf(10, VALID, &root), HOST),
        ("expired", leaf(11, (-10, -1), &root), HOST),
        ("early", leaf(12, (1, 10), &root), HOST),
        ("revoked", leaf(13, VALID, &root), HOST),
        ("wrong host", leaf(14, VALID, &root), "other.example.org"),
        ("wrong host", leaf(15, VALID, &root), "192.0.2.1"),
        ("unknown", leaf(16, VALID, &other), HOST),
        ("unknown", self_signed, HOST),
    ];
    for (number, (expected, (certificate, key), host)) in cases.into_iter().enumerate() {
        assert_eq!(reason(directory.handshake(&[&certificate], &key, host)), expected, "case {number}");
    }
}

#[test]
fn chains_end_at_self_signed_authorities() {
    let directory = Directory::new("intermediate");
    let root = authority("root", 1, None);
    let middle = authority("middle", 2, Some(&root));
    let (certificate, key) = leaf(10, VALID, &middle);
    let short = || reason(directory.handshake(&[&certificate], &key, HOST));
    let full = || reason(directory.handshake(&[&certificate, &middle.certificate], &key, HOST));
    directory.put("22222222.0", &authority("unrelated", 3, None).certificate.pem());
    assert_eq!((short(), full()), ("unknown", "unknown"));
    // A chain cannot end there without its root.
    directory.put("33333333.0", &middle.certificate.pem());
    assert_eq!((short(), full()), ("unknown", "unknown"));
    directory.put("11111111.0", &root.certificate.pem());
    assert_eq!((short(), full()), ("accepted", "accepted"), "it completes the chain");
    directory.put("33333333.r0", &revocation_list(11, &middle));
    directory.put("11111111.r0", &revocation_list(12, &root));
    assert_eq!((short(), full()), ("accepted", "accepted"));
    directory.put("33333333.r0", &revocation_list(10, &middle));
    assert_eq!((short(), full()), ("revoked", "revoked"), "by the list of the intermediate authority");
    directory.put("33333333.r0", &revocation_list(11, &middle));
    directory.put("11111111.r0", &revocation_list(2, &root));
    assert_eq!((short(), full()), ("revoked", "revoked"), "the intermediate authority is revoked");
    fs::remove_file(directory.0.join("33333333.0")).unwrap();
    assert_eq!((short(), full()), ("unknown", "revoked"));
}

#[test]
fn intermediate_authorities_that_name_each_other_end() {
    let directory = Directory::new("circle");
    let root = authority("root", 1, None);
    let first = authority("first", 2, Some(&root));
    let second = authority("second", 3, Some(&first));
    let back = {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "first");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.signed_by(&KeyPair::generate().unwrap(), &second.issuer).unwrap()
    };
    directory.put("11111111.0", &authority("unrelated", 4, None).certificate.pem());
    for (number, certificate) in [&first.certificate, &second.certificate, &back].into_iter().enumerate() {
        directory.put(&format!("2222222{number}.0"), &certificate.pem());
    }
    let (certificate, key) = leaf(10, VALID, &second);
    assert_eq!(reason(directory.handshake(&[&certificate], &key, HOST)), "unknown");
    directory.put("33333333.0", &root.certificate.pem());
    assert_eq!(reason(directory.handshake(&[&certificate], &key, HOST)), "accepted");
}
