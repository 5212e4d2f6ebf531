//! Proxies that clients delegate to a server.

use super::*;
use crate::gsi::proxy;
use crate::gsi::rsa_keys::RsaSigner;

/// Returns a proxy of the recorded user with this path length.
fn user_proxy(path_length: Option<u32>) -> GridCredential {
    let keys = load("gsi.json")["keys"].clone();
    let pair = format!("{}{}", text(&keys, "user_cert_pem"), text(&keys, "user_key_pem"));
    let request = ProxyRequest { path_length, ..ProxyRequest::default() };
    GridCredential::parse(&pair).unwrap().issue_proxy(request, now()).unwrap()
}

#[test]
fn the_client_does_not_choose_the_size_of_the_key() {
    let request = ProxyRequest { bits: 3072, path_length: None, ..ProxyRequest::default() };
    let of = user_proxy(None).issue_proxy(request, now()).unwrap();
    assert_eq!(of.bits(), 3072);
    let mut asked = asked(&asking(DelegationUse::default()), &of);
    let answer = asked.client.step(Some(&asked.request), now()).unwrap();
    assert_eq!(delegated(&entity(asked.server.step(&answer, now())).unwrap()).bits(), 2048);
}

fn asking(delegation: DelegationUse) -> GsiServer {
    server_with(|settings| settings.delegation = Some(delegation), &[], false)
}

/// A login up to the request for a proxy.
struct AskedClient {
    server: server::GsiServerLogin,
    client: Box<dyn ClientLogin>,
    request: Vec<u8>,
}

fn asked(server: &GsiServer, of: &GridCredential) -> AskedClient {
    let text = of.to_text().unwrap();
    let client = client_with(&[("XrdSecCREDS", &text), ("XrdSecGSIDELEGPROXY", "1")]);
    let mut login = begin(&client, &server.parameters()).unwrap();
    let mut exchange = server.exchange(&peer());
    let second = challenge(exchange.step(&login.step(None, now()).unwrap(), now())).unwrap();
    let third = login.step(Some(&second), now()).unwrap();
    let request = challenge(exchange.step(&third, now())).unwrap();
    AskedClient { server: exchange, client: login, request }
}

impl AskedClient {
    /// Answers with an inner message of these fields, after the signed challenge.
    fn answer(mut self, of: &GridCredential, fields: &[(SutField, &[u8])]) -> Result<Entity, String> {
        let cipher = self.server.cipher.clone().unwrap();
        let message = SutMessage::decode(GSI, &self.request).unwrap();
        let main = cipher.open(message.field(SutField::MAIN).unwrap()).unwrap();
        let tag = Challenge::of_peer(&SutMessage::decode(GSI, main.expose()).unwrap()).unwrap();
        let signed = of.signer.sign_raw(tag.as_bytes()).unwrap();
        let begun = SutWriter::new(GSI, step::CLIENT_SIGNED_PROXY).with(SutField::SIGNED_CHALLENGE, &signed);
        let main = fields.iter().fold(begun, |out, (field, content)| out.with(*field, content)).finish();
        let answer = super::super::messages::begin(step::CLIENT_SIGNED_PROXY)
            .with(SutField::MAIN, &cipher.seal(&main))
            .finish();
        entity(self.server.step(&answer, now()))
    }
}

fn delegated(found: &Entity) -> GridCredential {
    let text = found.delegated_proxy.as_ref().unwrap().text().expose().to_vec();
    GridCredential::parse(std::str::from_utf8(&text).unwrap()).unwrap()
}

#[test]
fn a_client_signs_a_proxy_for_the_key_of_the_server() {
    let of = user_proxy(Some(3));
    let server = asking(DelegationUse { as_credentials: true, file: None });
    let mut asked = asked(&server, &of);
    let answer = asked.client.step(Some(&asked.request), now()).unwrap();
    let found = entity(asked.server.step(&answer, now())).unwrap();
    let hash = [7; 32];
    let signature = asked.client.signature_cipher().unwrap().encrypt(&hash);
    assert_eq!(asked.server.signature_cipher().unwrap().decrypt(&signature), Some(hash));
    let proxy = delegated(&found);
    assert_eq!((proxy.certificates().len(), proxy.path_length(), proxy.bits()), (3, Some(2), 2048));
    assert_eq!((proxy.issuer(), proxy.certificates()[1..].to_vec()), (of.subject(), of.certificates()));
    assert_ne!(proxy.signer.public_key(), of.signer.public_key());
    let credentials = found.credentials.as_ref().unwrap().expose();
    assert_eq!(credentials, found.delegated_proxy.as_ref().unwrap().text().expose());
    assert!(!format!("{found:?}").contains("PRIVATE"));
    // The server logs in elsewhere with it, and delegates nothing further.
    let client = found.delegated_proxy.as_ref().unwrap().client(false);
    let again = exchange(&asking(DelegationUse::default()), &client, |_, message| message).unwrap();
    assert!(again.delegated_proxy.is_none() && again.credentials.is_none());
    let proxy = found.delegated_proxy.as_ref().unwrap();
    assert!(!proxy.has_expired(now()) && proxy.has_expired(now() + Duration::from_secs(60)));
}

#[test]
fn only_clients_that_can_delegate_are_asked() {
    // The exchange of these ends after two rounds.
    let plain = |server: &GsiServer, text: &str, choice: &str| {
        let client = client_with(&[("XrdSecCREDS", text), ("XrdSecGSIDELEGPROXY", choice)]);
        exchange(server, &client, |_, message| message).unwrap().delegated_proxy.is_none()
    };
    let asking = asking(DelegationUse::default());
    let (of, last) = (user_proxy(None).to_text().unwrap(), user_proxy(Some(0)).to_text().unwrap());
    assert!(plain(&asking, &of, "0") && plain(&asking, &of, "2"));
    assert!(plain(&asking, &last, "1"), "its path length is 0");
    let delegation = |settings: &mut GsiServerSettings| settings.delegation = Some(DelegationUse::default());
    let trust = RecordedTrust { path_left_above: Some(0), ..RecordedTrust::default() };
    assert!(plain(&server_of(delegation, &[], trust), &of, "1"), "a proxy above the first allows none");
    assert!(plain(&server(), &of, "1"), "this server does not ask");
    // XrdSecGSIDELEGPROXY=2 of the stock client: its answer would be its private key.
    let client = client_with(&[("XrdSecCREDS", &of), ("XrdSecGSIDELEGPROXY", "1")]);
    let found = exchange(&asking, &client, |at, message| match at {
        1 => replaced(&message, SutField::CLIENT_OPTIONS, Some(&0x86_u32.to_be_bytes())),
        _ => message,
    });
    assert!(found.unwrap().delegated_proxy.is_none());
}

#[test]
fn a_client_may_refuse() {
    let of = user_proxy(Some(1));
    let server = asking(DelegationUse::default());
    let refusal: (SutField, &[u8]) = (SutField::MESSAGE, b"Not allowed to sign proxy requests");
    let found = asked(&server, &of).answer(&of, &[refusal]).unwrap();
    assert!(found.delegated_proxy.is_none() && found.name.as_deref() == Some("0a1b2c3d.0"));
    assert!(asked(&server, &of).answer(&of, &[]).unwrap_err().contains("is missing"));
    // Only the key of the client answers the challenge.
    let other = user_proxy(Some(1));
    let reason = asked(&server, &of).answer(&other, &[refusal]).unwrap_err();
    assert!(reason.contains("the signed challenge is wrong"), "{reason}");
}

/// S085, S086.
#[test]
fn proxies_that_were_not_requested_are_refused() {
    let of = user_proxy(Some(1));
    let server = asking(DelegationUse::default());
    let refused = |text: &str, expected: &str| {
        let found = asked(&server, &of).answer(&of, &[(SutField::X509, text.as_bytes())]);
        let reason = found.map(drop).unwrap_err();
        assert!(reason.contains(expected), "{expected}: {reason}");
    };
    let pem = |der: &[u8]| pem::encode(pem::CERTIFICATE, der);
    // Another key, also in the message that the stock client has sent to a recorded server.
    refused(&pem(&of.issue_proxy(ProxyRequest::default(), now()).unwrap().certificates()[0]), "the key");
    let recorded = load("gsi.json")["connections"][5]["decoded"].as_array().unwrap().clone();
    let recorded = recorded.iter().find(|decoded| decoded["step"] == 1002).unwrap();
    refused(text(&recorded["main_buckets"][1], "pem"), "the key of the signed proxy");
    refused(&of.to_text().unwrap(), "something else than one certificate");
    let key = of.to_text().unwrap();
    let key = &key[key.find("-----BEGIN PRIVATE KEY").unwrap()..];
    refused(&key[..key.find("-----BEGIN CERT").unwrap()], "something else than one certificate");
    // The key of the request with another subject, and with another issuer.
    let keys = load("gsi.json")["keys"].clone();
    let user = GridCertificate::chain_of_pem(text(&keys, "user_cert_pem")).unwrap().remove(0);
    let user_key = RsaSigner::from_pem(text(&keys, "user_key_pem")).unwrap();
    let leaf = GridCertificate::decode(&of.certificates()[0]).unwrap();
    for (issuer, signer) in [(&leaf, &of.signer), (&user, &user_key)] {
        let asked = asked(&server, &of);
        let cipher = asked.server.cipher.clone().unwrap();
        let message = SutMessage::decode(GSI, &asked.request).unwrap();
        let main = cipher.open(message.field(SutField::MAIN).unwrap()).unwrap();
        let main = SutMessage::decode(GSI, main.expose()).unwrap();
        let request = pem::single(main.text(SutField::X509_REQUEST).unwrap(), pem::CERTIFICATE_REQUEST);
        let key = proxy::requested_key(&request.unwrap()).unwrap();
        let properties = ProxyRequest { path_length: None, ..ProxyRequest::default() };
        let proxy = proxy::issue(issuer, signer, &key, properties, now()).unwrap();
        let reason = asked.answer(&of, &[(SutField::X509, pem(&proxy.der).as_bytes())]).unwrap_err();
        assert!(reason.contains("the subject of the signed proxy"), "{reason}");
    }
}

#[test]
fn a_file_has_the_proxy_as_long_as_the_session() {
    use std::os::unix::fs::MetadataExt;
    let directory = std::env::temp_dir().join(format!("auth-gsi-export-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = Some(directory.join("proxy-<user>").display().to_string());
    let server = asking(DelegationUse { as_credentials: false, file });
    let of = user_proxy(None);
    let login = || {
        let mut asked = asked(&server, &of);
        let answer = asked.client.step(Some(&asked.request), now()).unwrap();
        entity(asked.server.step(&answer, now())).unwrap()
    };
    let (first, second) = (login(), login());
    assert!(first.credentials.is_none());
    let path = directory.join("proxy-0a1b2c3d");
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(GridCredential::read_proxy(&path).unwrap().certificates(), delegated(&second).certificates());
    drop(second);
    assert!(path.exists(), "the other session of the user uses it");
    // The end of the protocol waits for the removal.
    drop((first, server));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    std::fs::remove_dir_all(directory).unwrap();
}

/// The request has the form of the recorded one, which the stock client has signed.
#[test]
fn a_client_signs_the_recorded_form_of_a_request() {
    use x509_cert::der::{Decode, Encode};
    use x509_cert::request::CertReq;
    let recorded = load("gsi.json")["connections"][5]["decoded"].as_array().unwrap().clone();
    let recorded = recorded.iter().find(|decoded| decoded["step"] == 2002).unwrap();
    let recorded = text(&recorded["main_buckets"][1], "pem").to_owned();
    let recorded = pem::single(&recorded, pem::CERTIFICATE_REQUEST).unwrap();
    let recorded = CertReq::from_der(&recorded).unwrap();
    let leaf = GridCertificate::decode(&user_proxy(Some(1)).certificates()[0]).unwrap();
    let ours = proxy::RequestedProxy::new(&leaf, RsaSigner::generate(2048).unwrap()).unwrap();
    let ours = CertReq::from_der(&ours.request).unwrap();
    assert_eq!((ours.info.version, &ours.algorithm), (recorded.info.version, &recorded.algorithm));
    let identifiers =
        |request: &CertReq| request.info.attributes.iter().map(|one| one.oid).collect::<Vec<_>>();
    assert_eq!(identifiers(&ours), identifiers(&recorded));
    let key = ours.info.public_key.to_der().unwrap();
    let verifier = rsa_keys::RsaVerifier::from_public_key(&key).unwrap();
    let digest = verifier.recover(ours.signature.as_bytes().unwrap()).unwrap();
    use sha2::Digest;
    assert!(digest.ends_with(&sha2::Sha256::digest(ours.info.to_der().unwrap())));
}
