//! Handshakes of clients with certificates of all kinds, as the server sees them.

use super::*;
use crate::tls::signing_key;
use crate::tls::test_handshake::shake_hands;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension, DnType, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::fs;
use time::OffsetDateTime;

/// The identifier of proxyCertInfo, and its value for a proxy with all rights of its issuer.
const PROXY_INFORMATION: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 1, 14];
const INHERITS_ALL: &[u8] = &[0x30, 0x0c, 0x30, 0x0a, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 0x15, 1];
/// The identifier of a common name.
const COMMON_NAME: [u64; 4] = [2, 5, 4, 3];

static VERSIONS: [&rustls::SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// Someone who has a certificate and may issue others.
struct Holder {
    certificate: rcgen::Certificate,
    params: CertificateParams,
    key: Vec<u8>,
}

impl Holder {
    fn issuer(&self) -> Issuer<'_, KeyPair> {
        Issuer::from_params(&self.params, KeyPair::try_from(self.key.as_slice()).unwrap())
    }

    /// Issues a certificate.
    fn issue(&self, params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self {
            certificate: params.signed_by(&key, &self.issuer()).unwrap(),
            params,
            key: key.serialize_der(),
        }
    }

    fn proxy(&self, days: (i64, i64)) -> Self {
        let mut params = params("1234", 7, days);
        params.distinguished_name = self.params.distinguished_name.clone();
        params.distinguished_name.push(DnType::CustomDnType(COMMON_NAME.to_vec()), "1234");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let mut information = CustomExtension::from_oid_content(&PROXY_INFORMATION, INHERITS_ALL.to_vec());
        information.set_criticality(true);
        params.custom_extensions.push(information);
        self.issue(params)
    }

    fn user(&self, serial: u64, days: (i64, i64)) -> Self {
        self.issue(params("Alice", serial, days))
    }

    fn authority(&self, name: &str) -> Self {
        self.issue(authority_params(name))
    }

    /// Writes a revocation list with this serial number.
    fn revoke(&self, serial: u64, site: &Site) {
        let now = OffsetDateTime::now_utc();
        let revoked_certs = vec![RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: now - time::Duration::days(1),
            reason_code: None,
            invalidity_date: None,
        }];
        let list = CertificateRevocationListParams {
            this_update: now - time::Duration::days(1),
            next_update: now + time::Duration::days(1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        site.put(self, "r0", &list.signed_by(&self.issuer()).unwrap().pem().unwrap());
    }
}

fn params(name: &str, serial: u64, days: (i64, i64)) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial));
    let now = OffsetDateTime::now_utc();
    (params.not_before, params.not_after) =
        (now + time::Duration::days(days.0), now + time::Duration::days(days.1));
    params
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = params(name, 1, (-9, 9));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn new_root(name: &str) -> Holder {
    let (params, key) = (authority_params(name), KeyPair::generate().unwrap());
    Holder { certificate: params.self_signed(&key).unwrap(), params, key: key.serialize_der() }
}

/// A directory of authorities, removed at the end.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("auth-clients-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file of an authority.
    fn put(&self, authority: &Holder, extension: &str, content: &str) {
        let parsed = x509_cert::Certificate::from_der(authority.certificate.der()).unwrap();
        let subject = parsed.tbs_certificate().subject().to_der().unwrap();
        let hash = crate::grid::DistinguishedName::parse(&subject).unwrap().hash();
        fs::write(self.0.join(format!("{hash}.{extension}")), content).unwrap();
    }

    fn add(&self, authority: &Holder) {
        self.put(authority, "0", &authority.certificate.pem());
    }

    fn settings(&self) -> ClientCertificateSettings {
        ClientCertificateSettings { directory: Some(self.0.clone()), ..Default::default() }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Performs a handshake with a client that sends these certificates, and signs by the key of the last holder
/// given. Returns the certificates that the server has accepted.
fn handshake(
    rules: &Arc<ClientCertificates>,
    version: &'static rustls::SupportedProtocolVersion,
    chain: &[&Holder],
    key: Option<&Holder>,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let provider = Arc::new(provider());
    let host = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let server =
        ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&VERSIONS).unwrap();
    let server = server.with_client_cert_verifier(rules.clone());
    let server_key = host.signing_key.serialize_der().try_into().unwrap();
    let server = server.with_single_cert(vec![host.cert.der().clone()], server_key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(host.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let client = client.with_root_certificates(roots);
    let client = match key {
        None => client.with_no_client_auth(),
        Some(holder) => {
            let certificates = chain.iter().map(|one| one.certificate.der().clone()).collect();
            let key = holder.key.clone().try_into().unwrap();
            let signer = signing_key(&key).unwrap();
            client.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(
                certificates,
                signer,
            ))))
        }
    };
    let mut client = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    shake_hands(&mut client, &mut server)?;
    Ok(server.peer_certificates().unwrap_or_default().iter().map(|one| one.clone().into_owned()).collect())
}

/// Opens the authorities.
fn rules(settings: ClientCertificateSettings) -> Arc<ClientCertificates> {
    Arc::new(ClientCertificates::open(settings).unwrap())
}

/// Returns the result of handshakes with both versions, which must be the same.
fn outcome(rules: &Arc<ClientCertificates>, chain: &[&Holder]) -> Result<VerifiedChain, String> {
    let [first, second] = VERSIONS.map(|version| {
        let sent =
            handshake(rules, version, chain, chain.first().copied()).map_err(|error| reason(&error))?;
        Ok(rules.identity(&sent, SystemTime::now()).unwrap())
    });
    assert_eq!(first, second);
    first
}

/// Returns the kind of a refusal, or the rule that was violated.
fn reason(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::Other(fault)) => fault.0.to_string(),
        Error::InvalidCertificate(kind) => format!("{kind:?}"),
        other => panic!("{other}"),
    }
}

#[test]
fn clients_prove_the_identity_of_their_certificate() {
    let (site, root) = (Site::new("identity"), new_root("Authority"));
    site.add(&root);
    let user = root.user(5, (-1, 2));
    let (proxy, other) = (user.proxy((-1, 1)), user.proxy((-1, 1)));
    let found = rules(site.settings());
    let of_user = outcome(&found, &[&user]).unwrap();
    assert_eq!((of_user.end_entity(), of_user.proxies()), ("/CN=Alice", 0));
    let of_proxy = outcome(&found, &[&proxy, &user]).unwrap();
    assert_eq!((of_proxy.end_entity(), of_proxy.proxies()), ("/CN=Alice", 1));
    // The identity ends with the proxy.
    assert!(of_proxy.valid_until() < of_user.valid_until() + Duration::from_secs(1));
    assert!(
        found
            .identity(&[user.certificate.der().clone()], of_user.valid_until() + Duration::from_secs(1))
            .is_err()
    );
    for version in VERSIONS {
        // A certificate is optional.
        assert_eq!(handshake(&found, version, &[], None), Ok(Vec::new()));
        // A copy of the certificates is useless without their key.
        for (chain, key) in
            [(vec![&user], &other), (vec![&proxy, &user], &other), (vec![&proxy, &user], &user)]
        {
            let refused = handshake(&found, version, &chain, Some(key));
            assert_eq!(
                refused,
                Err(Error::InvalidCertificate(CertificateError::BadSignature)),
                "{version:?}"
            );
        }
    }
}

#[test]
fn chains_that_must_be_refused_end_the_handshake() {
    let (site, trusted, stranger) = (Site::new("refused"), new_root("Authority"), new_root("Stranger"));
    site.add(&trusted);
    let found = rules(site.settings());
    let user = trusted.user(5, (-1, 2));
    let cases = [
        (vec![stranger.user(5, (-1, 2))], "UnknownIssuer"),
        (vec![trusted.user(5, (-3, -1))], "Expired"),
        (vec![trusted.user(5, (1, 3))], "NotValidYet"),
        (vec![user.proxy((-1, 1))], "the certificate of the end entity is missing"),
        (vec![user.proxy((-3, -1)), trusted.user(5, (-1, 2))], "Expired"),
        (vec![trusted.authority("Below")], "an authority is not an end entity"),
    ];
    for (chain, reason) in &cases {
        let chain: Vec<&Holder> = chain.iter().collect();
        let refused = outcome(&found, &chain).unwrap_err();
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
}

#[test]
fn settings_restrict_chains() {
    let (site, root) = (Site::new("settings"), new_root("Authority"));
    site.add(&root);
    let below = root.authority("Below");
    let user = below.user(5, (-1, 2));
    let proxy = user.proxy((-1, 1));
    let found = rules(site.settings());
    assert_eq!(outcome(&found, &[&user, &below]).unwrap().intermediates(), 1);
    let of_no_proxies = rules(ClientCertificateSettings { accepts_proxies: false, ..site.settings() });
    assert!(outcome(&of_no_proxies, &[&user, &below]).is_ok());
    assert!(outcome(&of_no_proxies, &[&proxy, &user, &below]).unwrap_err().contains("noproxies"));
    // Proxies do not count.
    let flat = rules(ClientCertificateSettings { intermediates_max: 0, ..site.settings() });
    let direct = root.user(6, (-1, 2));
    assert!(outcome(&flat, &[&direct.proxy((-1, 1)), &direct]).is_ok());
    assert!(outcome(&flat, &[&user, &below]).unwrap_err().contains("verdepth"));
}

#[test]
fn revocation_lists_are_used_and_demanded() {
    let (site, root) = (Site::new("lists"), new_root("Authority"));
    site.add(&root);
    let below = root.authority("Below");
    site.add(&below);
    let (user, revoked) = (below.user(5, (-1, 2)), below.user(6, (-1, 2)));
    let of = |revocation| rules(ClientCertificateSettings { revocation, ..site.settings() });
    let missing = "the revocation list of its issuer is missing";
    // Without lists.
    assert!(outcome(&of(RevocationDemand::Present), &[&user]).is_ok());
    assert!(outcome(&of(RevocationDemand::Last), &[&user]).unwrap_err().contains(missing));
    // With that of the authority of the client.
    below.revoke(6, &site);
    let present = of(RevocationDemand::Present);
    assert!(outcome(&present, &[&user]).is_ok());
    assert!(outcome(&present, &[&revoked]).unwrap_err().contains("Revoked"));
    assert!(outcome(&present, &[&revoked.proxy((-1, 1)), &revoked]).unwrap_err().contains("Revoked"));
    assert!(outcome(&of(RevocationDemand::Last), &[&user]).is_ok());
    assert!(outcome(&of(RevocationDemand::All), &[&user]).unwrap_err().contains(missing));
    // With both. What changes in the directory counts after a refresh.
    root.revoke(77, &site);
    assert!(outcome(&of(RevocationDemand::All), &[&user]).is_ok());
    below.revoke(5, &site);
    assert!(outcome(&present, &[&user]).is_ok());
    present.refresh().unwrap();
    assert!(outcome(&present, &[&user]).unwrap_err().contains("Revoked"));
}

#[test]
fn a_file_may_have_all_authorities() {
    let (site, root, other) = (Site::new("file"), new_root("Authority"), new_root("Other"));
    let user = root.user(5, (-1, 2));
    let file = site.0.join("bundle.pem");
    // Other certificates in it are left out.
    fs::write(&file, [other.certificate.pem(), user.certificate.pem(), root.certificate.pem()].concat())
        .unwrap();
    let settings = ClientCertificateSettings { file: Some(file.clone()), ..Default::default() };
    let found = rules(settings.clone());
    assert!(outcome(&found, &[&user]).is_ok());
    fs::write(&file, user.certificate.pem()).unwrap();
    let error = ClientCertificates::open(settings).unwrap_err().to_string();
    assert!(error.contains("no certificate authority that can be used"), "{error}");
    // A file that cannot be used changes nothing.
    assert!(found.refresh().is_err() && outcome(&found, &[&user]).is_ok());
}
