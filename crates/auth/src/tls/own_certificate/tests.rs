//! Certificate files that clients name, and the certificates in them that a server gets.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use time::OffsetDateTime;

/// The identifier of proxyCertInfo, and its value for a proxy with all rights of its issuer.
const PROXY_INFORMATION: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 1, 14];
const INHERITS_ALL: &[u8] = &[0x30, 0x0c, 0x30, 0x0a, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 0x15, 1];

const SCHEMES: [SignatureScheme; 1] = [SignatureScheme::ECDSA_NISTP256_SHA256];

/// A directory with files of the user, removed at the end.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("auth-own-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn put(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        let _ = fs::remove_file(&path);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The texts of the certificates of a user, and their DER.
struct UserChain {
    root: rcgen::Certificate,
    user: rcgen::Certificate,
    user_key: String,
    proxy: rcgen::Certificate,
    proxy_key: String,
}

impl UserChain {
    /// Issues a proxy that is valid within these days from now.
    fn new(days: (i64, i64)) -> Self {
        let (root_key, user_key, proxy_key) =
            (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut root = params("Authority");
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root_certificate = root.self_signed(&root_key).unwrap();
        let root = Issuer::new(root, root_key);
        let user = params("Alice");
        let user_certificate = user.signed_by(&user_key, &root).unwrap();
        let mut proxy = params("1234");
        let mut information = CustomExtension::from_oid_content(&PROXY_INFORMATION, INHERITS_ALL.to_vec());
        information.set_criticality(true);
        proxy.custom_extensions.push(information);
        let now = OffsetDateTime::now_utc();
        (proxy.not_before, proxy.not_after) =
            (now + time::Duration::days(days.0), now + time::Duration::days(days.1));
        let user_text = user_key.serialize_pem();
        let proxy_certificate = proxy.signed_by(&proxy_key, &Issuer::new(user, user_key)).unwrap();
        Self {
            root: root_certificate,
            user: user_certificate,
            user_key: user_text,
            proxy: proxy_certificate,
            proxy_key: proxy_key.serialize_pem(),
        }
    }

    /// Returns the text of a proxy file, with the root at its end.
    fn proxy_file(&self) -> String {
        [self.proxy.pem(), self.proxy_key.clone(), self.user.pem(), self.root.pem()].concat()
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Returns the certificate that the environment names, after the files were read.
fn named(file: &Path, key: Option<&Path>) -> OwnCertificate {
    let own = OwnCertificate::of_environment(|name| {
        let path = if name == FILE_VARIABLE { Some(file) } else { key.filter(|_| name == KEY_VARIABLE) };
        path.map(|path| path.to_str().unwrap().to_owned())
    });
    assert!(own.is_due(), "nothing was read");
    own.refresh();
    assert!(!own.is_due());
    own
}

/// Returns the certificates that a server which asks is sent; empty for none.
fn sent(own: &OwnCertificate) -> Vec<CertificateDer<'static>> {
    own.resolve(&[], &SCHEMES).map(|certified| certified.cert.clone()).unwrap_or_default()
}

#[test]
fn a_proxy_is_sent_with_the_certificates_above_it() {
    let (home, chain) = (Home::new("proxy"), UserChain::new((-1, 1)));
    let file = home.put("proxy", &chain.proxy_file(), 0o600);
    let own = named(&file, None);
    assert_eq!(sent(&own), [chain.proxy.der().clone(), chain.user.der().clone()], "{}", own.state());
    assert!(own.has_certs() && own.state().contains("sends the certificate in"));
    // Its key counts, also where a variable names that of the certificate.
    let key = home.put("key", &chain.user_key, 0o600);
    assert_eq!(sent(&named(&file, Some(&key))).len(), 2);
    // A server that cannot verify this kind of key gets none, instead of a failure.
    assert!(own.resolve(&[], &[SignatureScheme::RSA_PSS_SHA256]).is_none());
}

#[test]
fn certificate_and_key_may_be_two_files() {
    let (home, chain) = (Home::new("pair"), UserChain::new((-1, 1)));
    let certificate = home.put("cert", &chain.user.pem(), 0o644);
    let key = home.put("key", &chain.user_key, 0o600);
    assert_eq!(sent(&named(&certificate, Some(&key))), [chain.user.der().clone()]);
    let other = named(&certificate, Some(&home.put("other", &chain.proxy_key, 0o600)));
    assert!(sent(&other).is_empty() && other.state().contains("not the key of the first certificate"));
    let shared = named(&certificate, Some(&home.put("shared", &chain.user_key, 0o644)));
    assert!(sent(&shared).is_empty() && shared.state().contains("chmod"), "{}", shared.state());
}

#[test]
fn unusable_files_send_nothing_and_name_the_reason() {
    let (home, chain) = (Home::new("unusable"), UserChain::new((-1, 1)));
    let text = chain.proxy_file();
    let expired = UserChain::new((-3, -1)).proxy_file();
    let early = UserChain::new((1, 3)).proxy_file();
    let root = [chain.root.pem(), chain.proxy_key.clone()].concat();
    let cases = [
        (&text, 0o644, "chmod"),
        (&expired, 0o600, "has expired; make a new proxy"),
        (&early, 0o600, "is not valid yet"),
        (&chain.user.pem(), 0o600, "no private key found"),
        (&chain.proxy_key, 0o600, "no certificate of a user found"),
        (&root, 0o600, "no certificate of a user found"),
        (&"nothing".to_owned(), 0o600, "no certificate of a user found"),
    ];
    for (content, mode, reason) in cases {
        let own = named(&home.put("file", content, mode), None);
        assert!(sent(&own).is_empty() && !own.has_certs(), "{reason}");
        assert!(own.state().contains(reason), "{reason}: {}", own.state());
    }
    let missing = named(&home.0.join("missing"), None);
    assert!(missing.state().contains("cannot read"), "{}", missing.state());
}

#[test]
fn a_renewed_proxy_is_sent_once_it_was_read() {
    let (home, first, second) = (Home::new("renewed"), UserChain::new((-1, 1)), UserChain::new((-1, 1)));
    let own = named(&home.put("proxy", &first.proxy_file(), 0o600), None);
    home.put("proxy", &second.proxy_file(), 0o600);
    assert_eq!(sent(&own)[0], *first.proxy.der());
    own.refresh();
    assert_eq!(sent(&own)[0], *second.proxy.der());
}
