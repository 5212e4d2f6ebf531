//! Replays of the recorded exchanges, exchanges of our own ends, and messages that must be refused.

use super::agreement::{DhGroup, KeyAgreement};
use super::certificate::GridCertificate;
use super::messages::{client_option, step};
use super::proxy::ProxyInformation;
use super::server::{SentAgreement, Stage, client_chain};
use super::vectors::{bytes, list, load, text};
use super::*;
use crate::SystemRng;
use crate::challenge::Challenge;
use crate::client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
use crate::entity::Entity;
use crate::grid::{ChainRole, VomsMembership};
use crate::offers::OfferedProtocol;
use crate::secret::Secret;
use crate::server::{LoginPeer, ServerLogin, ServerProtocol, ServerStep};
use crate::sut::{SutError, SutField, SutMessage, SutWriter};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

mod delegation;
mod memberships;
mod old_agreement;

const SUBJECT: &str = "/DC=test/O=Throwaway/CN=user";

/// Accepts every chain of the recorded authority, because the verification is tested elsewhere.
#[derive(Default)]
struct RecordedTrust {
    is_limited: bool,
    /// The path length that proxies above the first certificate leave.
    path_left_above: Option<u32>,
    memberships: Vec<VomsMembership>,
    refreshes: Arc<AtomicUsize>,
}

impl ChainTrust for RecordedTrust {
    fn has_authority(&self, hash: &str) -> bool {
        ["5cdab576", "606cb0fc"].contains(&hash)
    }

    fn authority_hashes(&self, _: &[u8]) -> Result<[String; 2], String> {
        Ok(["5cdab576".to_owned(), "606cb0fc".to_owned()])
    }

    fn verify(&self, chain: &[Vec<u8>], _: ChainRole, now: SystemTime) -> Result<GridIdentity, String> {
        let leaf = GridCertificate::decode(chain.first().unwrap()).unwrap();
        let of_leaf = ProxyInformation::of(&leaf).and_then(|proxy| proxy.path_length);
        Ok(GridIdentity {
            subject: SUBJECT.to_owned(),
            subject_hash: "0a1b2c3d".to_owned(),
            is_limited: self.is_limited,
            proxy_path_left: self.path_left_above.into_iter().chain(of_leaf).min(),
            expires: now + Duration::from_secs(60),
            memberships: self.memberships.clone(),
        })
    }

    fn refresh(&self) -> Result<(), String> {
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn state(&self) -> String {
        String::new()
    }
}

struct Names(Vec<String>);

impl NameMap for Names {
    fn names_for(&self, subject: &str) -> Vec<String> {
        assert_eq!(subject, SUBJECT);
        self.0.clone()
    }

    fn refresh(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A time at which the recorded certificates are valid.
fn now() -> SystemTime {
    let proxy = GridCredential::parse(text(&load("gsi.json")["keys"], "user_proxy_pem")).unwrap();
    proxy.expires() - Duration::from_secs(3600)
}

fn peer() -> LoginPeer {
    let address = "[::1]:1".parse().unwrap();
    LoginPeer { address, host: "c.o".to_owned(), login_id: "u".to_owned(), is_tls: false }
}

fn server_with(change: impl FnOnce(&mut GsiServerSettings), names: &[&str], is_limited: bool) -> GsiServer {
    server_of(change, names, RecordedTrust { is_limited, ..RecordedTrust::default() })
}

fn server_of(change: impl FnOnce(&mut GsiServerSettings), names: &[&str], trust: RecordedTrust) -> GsiServer {
    let keys = load("gsi.json")["keys"].clone();
    let mut settings = GsiServerSettings::new("/nonexistent".into(), "/nonexistent".into());
    change(&mut settings);
    let names: Arc<dyn NameMap> = Arc::new(Names(names.iter().map(|name| (*name).to_owned()).collect()));
    let (certificate, key) = (text(&keys, "host_cert_pem"), text(&keys, "host_key_pem"));
    let names = NameMaps { subjects: Some(names), ..NameMaps::default() };
    GsiServer::with_certificate(settings, certificate, key, Arc::new(trust), names, Box::new(SystemRng))
        .unwrap()
}

fn server() -> GsiServer {
    server_with(|_| {}, &[], false)
}

fn context() -> ClientContext {
    ClientContext::new("[::1]:1".parse().unwrap(), "c.o", "localhost")
}

fn client_with(variables: &[(&str, &str)]) -> GsiClient {
    let keys = load("gsi.json")["keys"].clone();
    let find =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let settings = GsiClientSettings::of_environment(|name| {
        find(name).or_else(|| (name == "XrdSecCREDS").then(|| text(&keys, "user_proxy_pem").to_owned()))
    });
    GsiClient::new(settings, Arc::new(|| Ok(Arc::new(RecordedTrust::default()))))
}

fn begin(client: &GsiClient, parameters: &str) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
    let offer = OfferedProtocol { id: GSI.to_owned(), parameters: parameters.as_bytes().to_vec() };
    client.begin(&offer, &context())
}

/// Returns the challenge of a step, or the reason of a refusal.
fn challenge(step: ServerStep) -> Result<Vec<u8>, String> {
    match step {
        ServerStep::Continue(challenge) => Ok(challenge),
        ServerStep::Refused(refused) => Err(refused.reason().to_owned()),
        other => panic!("{other:?}"),
    }
}

fn entity(step: ServerStep) -> Result<Entity, String> {
    match step {
        ServerStep::Done(entity) => Ok(entity),
        ServerStep::Refused(refused) => Err(refused.reason().to_owned()),
        other => panic!("{other:?}"),
    }
}

/// Returns a message with another content of a field, or without it.
fn replaced(message: &[u8], field: SutField, content: Option<&[u8]>) -> Vec<u8> {
    let decoded = SutMessage::decode(GSI, message).unwrap();
    let mut out = SutWriter::new(GSI, decoded.step);
    for (known, old) in decoded.fields() {
        match content {
            Some(content) if known == field => out = out.with(known, content),
            None if known == field => {}
            _ => out = out.with(known, old),
        }
    }
    out.finish()
}

/// A whole exchange of a server and a client, whose messages can be changed.
fn exchange(
    server: &GsiServer,
    client: &GsiClient,
    change: impl Fn(u32, Vec<u8>) -> Vec<u8>,
) -> Result<Entity, String> {
    let mut login = begin(client, &server.parameters()).map_err(|error| error.to_string())?;
    let mut exchange = server.begin(&peer());
    let first = login.step(None, now()).map_err(|error| error.to_string())?;
    let second = challenge(exchange.step(&change(1, first), now()))?;
    let third = login.step(Some(&change(2, second)), now()).map_err(|error| error.to_string())?;
    let entity = entity(exchange.step(&change(3, third), now()))?;
    let hash = [7; 32];
    let signature = login.signature_cipher().unwrap().encrypt(&hash);
    assert_eq!(exchange.signature_cipher().unwrap().decrypt(&signature), Some(hash));
    Ok(entity)
}

fn payloads(connection: &Value) -> Vec<Vec<u8>> {
    let frames = list(&connection["frames"]).iter();
    let of = |frame: &Value| {
        let bytes = bytes(text(frame, "hex"));
        match (text(frame, "request"), text(frame, "status")) {
            ("kXR_auth", _) => Some(bytes[24..].to_vec()),
            (_, "kXR_authmore") => Some(bytes[8..].to_vec()),
            _ => None,
        }
    };
    frames.filter_map(of).collect()
}

#[test]
fn recorded_messages_survive_decoding() {
    let again = |message: &[u8]| {
        let decoded = SutMessage::decode(GSI, message).unwrap();
        let writer = SutWriter::new(GSI, decoded.step);
        decoded.fields().fold(writer, |out, (field, content)| out.with(field, content)).finish()
    };
    let mut count = 0;
    for connection in list(&load("gsi.json")["connections"]) {
        let decoded = list(&connection["decoded"]);
        assert_eq!(decoded.len(), payloads(connection).len());
        for (payload, expected) in payloads(connection).iter().zip(decoded) {
            assert_eq!(&again(payload), payload);
            let message = SutMessage::decode(GSI, payload).unwrap();
            assert_eq!(u64::from(message.step), expected["step"].as_u64().unwrap());
            for ((field, content), bucket) in message.fields().zip(list(&expected["buckets"])) {
                assert_eq!(u64::from(field.0), bucket["code"].as_u64().unwrap());
                assert_eq!(content.len() as u64, bucket["len"].as_u64().unwrap());
            }
            if let Some(main) = expected["main_plain_hex"].as_str() {
                assert_eq!(again(&bytes(main)), bytes(main));
            }
            count += 1;
        }
    }
    assert_eq!(count, 22);
}

/// The stock client at our server, with the values of the recorded one.
#[test]
fn the_recorded_client_logs_in() {
    let vector = load("gsi.json");
    for index in [4, 5] {
        let connection = &vector["connections"][index];
        let secrets = &connection["secrets"];
        let server = server_with(|settings| settings.ciphers = vec![GsiCipher::Aes128], &[], false);
        let mut exchange = server.exchange(&peer());
        let payloads = payloads(connection);
        let reply = challenge(exchange.step(&payloads[0], now())).unwrap();
        let decoded = SutMessage::decode(GSI, &reply).unwrap();
        let recorded = SutMessage::decode(GSI, &payloads[1]).unwrap();
        let fields =
            |message: &SutMessage<'_>| message.fields().map(|(field, _)| field.0).collect::<Vec<_>>();
        assert_eq!(fields(&decoded), fields(&recorded));
        assert_eq!(decoded.field(SutField::X509), recorded.field(SutField::X509));
        let exponent = Secret::new(bytes(&format!(
            "{:0>768}",
            text(secrets, "server_dh_priv").trim_start_matches("0x")
        )));
        let challenge = Challenge(text(secrets, "server_rtag").as_bytes().try_into().unwrap());
        exchange.stage = Stage::Certificate(Box::new(SentAgreement {
            agreement: KeyAgreement::with_exponent(DhGroup::fixed().unwrap(), exponent).unwrap(),
            challenge,
            options: client_option::CREATE_PROXY,
            is_signed: true,
            begun: now(),
        }));
        let entity = entity(exchange.step(&payloads[2], now())).unwrap();
        assert_eq!((&*entity.protocol, entity.name.as_deref()), ("gsi", Some("0a1b2c3d.0")));
        for signature in list(&connection["signatures"]) {
            let hash = bytes(text(signature, "hash_hex")).try_into().unwrap();
            let found = exchange.signature_cipher().unwrap().decrypt(&bytes(text(signature, "sig_hex")));
            assert_eq!(found, Some(hash));
        }
    }
}

#[test]
fn our_client_logs_in_at_our_server() {
    let found = exchange(&server(), &client_with(&[]), |_, message| message).unwrap();
    assert_eq!((&*found.protocol, found.name.as_deref(), &*found.host), ("gsi", Some("0a1b2c3d.0"), "c.o"));
    assert!(found.credentials.is_none() && found.monitor_info.is_none() && found.expires.is_some());
    let other = server_with(
        |settings| {
            settings.names_by_subject = true;
            settings.monitors_subject = true;
            settings.forwarded_chain = Some(ForwardedChain { as_endorsements: false, is_full: true });
            settings.digests = vec!["sha512".to_owned(), "sha256".to_owned()];
        },
        &[],
        false,
    );
    let found = exchange(&other, &client_with(&[]), |_, message| message).unwrap();
    assert_eq!((found.name.as_deref(), found.monitor_info.as_deref()), (Some(SUBJECT), Some(SUBJECT)));
    let credentials = found.credentials.as_ref().unwrap().expose();
    assert_eq!(std::str::from_utf8(credentials).unwrap().matches("BEGIN CERTIFICATE").count(), 2);
}

#[test]
fn names_come_from_the_grid_map() {
    let of = |names: &[&str], user: Option<&str>, mapping| {
        let server = server_with(|settings| settings.mapping = mapping, names, false);
        let variables: Vec<_> = user.map(|user| ("XrdSecUSER", user)).into_iter().collect();
        let entity = exchange(&server, &client_with(&variables), |_, message| message)?;
        let is_mapped = entity.attribute("gridmap.name") == Some("1");
        Ok::<_, String>((entity.name.as_deref().unwrap_or_default().to_owned(), is_mapped))
    };
    let named = |name: &str| Ok((name.to_owned(), name != "0a1b2c3d.0"));
    assert_eq!(of(&["alice", "bob"], None, NameMapping::Try), named("alice"));
    assert_eq!(of(&["alice", "bob"], Some("bob"), NameMapping::Required), named("bob"));
    assert_eq!(of(&["alice", "bob"], Some("root"), NameMapping::Try), named("alice"));
    assert_eq!(of(&["-x"], None, NameMapping::Try), named("0a1b2c3d.0"));
    assert_eq!(of(&["alice"], None, NameMapping::Off), named("0a1b2c3d.0"));
    // S083.
    assert!(of(&[], None, NameMapping::Required).unwrap_err().contains("not in the grid map"));
}

#[test]
fn limited_proxies_only_read_unless_configured() {
    let only_reads = |limited: Option<LimitedProxies>, is_limited| {
        let change = |settings: &mut GsiServerSettings| {
            settings.limited = limited.unwrap_or(settings.limited);
        };
        let server = server_with(change, &[], is_limited);
        exchange(&server, &client_with(&[]), |_, message| message).map(|entity| entity.only_reads)
    };
    assert_eq!(only_reads(None, true), Ok(true));
    assert_eq!(only_reads(Some(LimitedProxies::Full), true), Ok(false));
    assert!(only_reads(Some(LimitedProxies::Refuse), true).unwrap_err().contains("gsi.limited"));
    for limited in [LimitedProxies::Refuse, LimitedProxies::Read, LimitedProxies::Full] {
        assert_eq!(only_reads(Some(limited), false), Ok(false));
    }
}

/// S059 to S069, as far as their bytes are given.
#[test]
fn first_messages_that_must_be_refused() {
    let mut count = 0;
    for case in list(&load("requirements.json")["cases"]) {
        let Some(sent) = case["send_hex"].as_str().filter(|_| case["area"] == "gsi") else { continue };
        let refused = challenge(server().begin(&peer()).step(&bytes(sent)[24..], now()));
        assert!(refused.is_err(), "{case}");
        count += 1;
    }
    assert_eq!(count, 10);
}

/// S006, S059: a part of a message is not accepted, nor one with a changed byte at its beginning.
#[test]
fn parts_of_messages_are_refused() {
    let first = payloads(&load("gsi.json")["connections"][0])[0].clone();
    assert!(challenge(server().begin(&peer()).step(&first, now())).is_ok());
    let server = server();
    for length in 0..first.len() {
        assert!(challenge(server.begin(&peer()).step(&first[..length], now())).is_err(), "{length}");
    }
    for at in 0..8 {
        let mut changed = first.clone();
        changed[at] ^= 1;
        assert!(challenge(server.begin(&peer()).step(&changed, now())).is_err(), "{at}");
    }
}

#[test]
fn changed_messages_of_clients_are_refused() {
    let (server, client) = (server(), client_with(&[]));
    let refused = |number: u32, field: SutField, content: Option<&[u8]>, expected: &str| {
        let found = exchange(&server, &client, |at, message| {
            if at == number { replaced(&message, field, content) } else { message }
        });
        let reason = found.map(drop).unwrap_err();
        assert!(reason.contains(expected), "{field:?}: {reason}");
    };
    refused(1, SutField::CRYPTO_MODULE, Some(b"sslnopad"), "does not pad secrets");
    refused(1, SutField::CRYPTO_MODULE, None, "the crypto module is missing");
    refused(1, SutField::MAIN, None, "the inner message is missing");
    refused(1, SutField::ISSUER_HASH, Some(b"00000000.0"), "unknown CA");
    // S077: a foreign key, and none.
    let host = rsa_keys::RsaSigner::from_pem(text(&load("gsi.json")["keys"], "host_key_pem")).unwrap();
    let foreign = pem::encode(pem::PUBLIC_KEY, &host.public_key().unwrap());
    refused(3, SutField::PUBLIC_KEY, Some(foreign.as_bytes()), "not signed by the key of the client");
    refused(3, SutField::PUBLIC_KEY, None, "missing");
    refused(3, SutField::CIPHER, Some(&[1; 256]), "not signed by the key of the client");
    // S079: choices that were not offered.
    for choice in ["bf-cbc#16", "aes-256-cbc", "aes-256-cbc#8", "", "#16"] {
        refused(3, SutField::CIPHER_NAMES, Some(choice.as_bytes()), "cipher");
    }
    refused(3, SutField::CIPHER_NAMES, None, "the choice of a cipher is missing");
    refused(3, SutField::DIGEST_NAMES, Some(b"md5"), "unsupported MD");
    refused(3, SutField::DIGEST_NAMES, None, "the choice of a digest is missing");
    // S080: an inner message that is not that of this session.
    refused(3, SutField::MAIN, Some(&[1; 64]), "");
    refused(3, SutField::MAIN, Some(&[1; 63]), "cannot be decrypted");
    refused(3, SutField::MAIN, None, "the inner message is missing");
    // The other cipher of the offer does not decrypt it either.
    refused(3, SutField::CIPHER_NAMES, Some(b"aes-128-cbc#16"), "");
    // A certificate for the key of a proxy is not that of the user.
    let keys = load("gsi.json")["keys"].clone();
    let pair = format!("{}{}", text(&keys, "user_cert_pem"), text(&keys, "user_key_pem"));
    let small = server_with(|settings| settings.key_bits_min = 4096, &[], false);
    let found = exchange(&small, &client, |_, message| message);
    assert!(found.map(drop).unwrap_err().contains("the key has 2048 bits, 4096 are needed"));
    assert!(GridCredential::parse(&pair).is_ok_and(|pair| !pair.is_proxy()));
}

/// S076, S081: messages of another exchange, and late ones.
#[test]
fn messages_belong_to_one_exchange_and_its_time() {
    let (server, client) = (server(), client_with(&[]));
    let mut logins = Vec::new();
    for _ in 0..3 {
        let mut login = begin(&client, &server.parameters()).unwrap();
        let mut exchange = server.begin(&peer());
        let second = challenge(exchange.step(&login.step(None, now()).unwrap(), now())).unwrap();
        let third = login.step(Some(&second), now()).unwrap();
        logins.push((exchange, third));
    }
    let (mut last, late) = logins.pop().unwrap();
    let reason = entity(last.step(&late, now() + Duration::from_secs(301))).unwrap_err();
    assert!(reason.contains("301 s"), "{reason}");
    let [(first, own), (second, other)] = logins.as_mut_slice() else { panic!("two exchanges") };
    assert!(entity(first.step(other, now())).is_err());
    assert!(entity(first.step(own, now())).unwrap_err().contains("the exchange is over"));
    assert!(entity(second.step(other, now() + Duration::from_secs(300))).is_ok());
}

/// S062, S063, S013: steps that are not expected.
#[test]
fn steps_have_an_order() {
    let (server, client) = (server(), client_with(&[]));
    let mut login = begin(&client, &server.parameters()).unwrap();
    let first = login.step(None, now()).unwrap();
    let mut exchange = server.begin(&peer());
    challenge(exchange.step(&first, now())).unwrap();
    let reason = entity(exchange.step(&first, now())).unwrap_err();
    assert_eq!(reason, format!("step {} is not expected", step::CLIENT_REQUEST));
    assert!(login.step(None, now()).is_err(), "the client expects an answer");
}

/// S082, S086.
#[test]
fn certificates_are_those_that_the_client_announced() {
    let keys = load("gsi.json")["keys"].clone();
    let directory = std::env::temp_dir().join(format!("auth-gsi-pair-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let put = |name: &str, content: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = directory.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let certificate = put("cert", text(&keys, "user_cert_pem"));
    let key = put("key", text(&keys, "user_key_pem"));
    let variables = [
        ("XrdSecCREDS", ""),
        ("XrdSecGSICREATEPROXY", "0"),
        ("X509_USER_PROXY", "/nonexistent"),
        ("X509_USER_CERT", certificate.as_str()),
        ("X509_USER_KEY", key.as_str()),
    ];
    let server = server();
    assert!(exchange(&server, &client_with(&variables), |_, message| message).is_ok());
    let announced = exchange(&server, &client_with(&variables), |at, message| match at {
        1 => replaced(&message, SutField::CLIENT_OPTIONS, Some(&0x80_u32.to_be_bytes())),
        _ => message,
    });
    assert!(announced.map(drop).unwrap_err().contains("sends 1 certificates, 2 are needed"));
    // A proxy that the client makes itself.
    let made = [variables[0], ("XrdSecGSICREATEPROXY", "1"), variables[2], variables[3], variables[4]];
    assert!(exchange(&server, &client_with(&made), |_, message| message).is_ok());
    // A key is not accepted, whoever it belongs to.
    let bytes = SutWriter::new(GSI, step::CLIENT_CERTIFICATE)
        .with(SutField::X509, text(&keys, "user_proxy_pem").as_bytes())
        .finish();
    let refused = client_chain(&SutMessage::decode(GSI, &bytes).unwrap(), client_option::CREATE_PROXY);
    assert!(refused.map(drop).unwrap_err().contains("such as a private key"));
    // A proxy that has expired is not sent.
    let old = put("proxy", text(&keys, "user_proxy_pem"));
    let client = client_with(&[("XrdSecCREDS", ""), ("X509_USER_PROXY", &old), ("HOME", "/nonexistent")]);
    let mut login = begin(&client, &server.parameters()).unwrap();
    let error = login.step(None, now() + Duration::from_secs(7200)).unwrap_err().to_string();
    assert!(error.contains("the proxy expired 1 h 0 min ago"), "{error}");
    assert!(
        error.ends_with(
            "make a proxy by voms-proxy-init or scalla auth proxy init, or name one in X509_USER_PROXY"
        ),
        "{error}"
    );
    std::fs::remove_dir_all(directory).unwrap();
}

/// A client cannot make the server decode as many certificates as it sends.
#[test]
fn ten_thousand_certificates_are_refused_unread() {
    let keys = load("gsi.json")["keys"].clone();
    let certificate = text(&keys, "user_cert_pem");
    let chain = |count: usize, rest: &str| {
        let sent = certificate.repeat(count) + rest;
        let message =
            SutWriter::new(GSI, step::CLIENT_CERTIFICATE).with(SutField::X509, sent.as_bytes()).finish();
        let decoded = SutMessage::decode(GSI, &message).map_err(|error| error.to_string())?;
        client_chain(&decoded, 0).map(|chain| chain.len())
    };
    assert_eq!(chain(16, ""), Ok(16));
    assert_eq!(chain(17, ""), Err("there are more than 16 certificates".to_owned()));
    // Certificates beyond the limit are not decoded, otherwise the error would be about their content.
    let malformed = "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
    let short = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".repeat(500) + malformed;
    assert_eq!(chain(0, &short), Err("there are more than 64 sections".to_owned()));
    assert_eq!(chain(10_000, ""), Err(SutError::TooLong.to_string()));
    assert!(chain(1, malformed).is_err_and(|error| error.contains("is not base64")));
}

/// S088 to S091, and endless or malformed answers.
#[test]
fn a_client_leaves_servers_that_cannot_prove_who_they_are() {
    let (server, client) = (server(), client_with(&[]));
    for (parameters, expected) in [
        ("v:10300,c:ssl,ca:5cdab576.0", "version 10300"),
        ("c:ssl,ca:5cdab576.0", "version 0"),
        ("v:10600,c:sslnopad,ca:5cdab576.0", "does not protect"),
        ("v:10600,c:ssl,ca:00000000.0", "unknown CA"),
        ("v:10600,c:ssl", "unknown CA"),
        ("v:x", "malformed"),
    ] {
        let error = begin(&client, parameters).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{parameters}: {error}");
    }
    let refused =
        |field: SutField, content: Option<&[u8]>, expected: &str| {
            let found = exchange(&server, &client, |at, message| {
                if at == 2 { replaced(&message, field, content) } else { message }
            });
            let reason = found.map(drop).unwrap_err();
            assert!(reason.contains(expected), "{field:?}: {reason}");
        };
    let main = |signed: &[u8], tag: &[u8]| {
        SutWriter::new(GSI, step::SERVER_CERTIFICATE)
            .with(SutField::SIGNED_CHALLENGE, signed)
            .with(SutField::CHALLENGE, tag)
            .finish()
    };
    refused(SutField::MAIN, Some(&main(&[1; 256], b"abcdefgh")), "the signed challenge is wrong");
    let unsigned =
        SutWriter::new(GSI, step::SERVER_CERTIFICATE).with(SutField::CHALLENGE, b"abcdefgh").finish();
    refused(SutField::MAIN, Some(&unsigned), "random tag missing");
    refused(SutField::CIPHER, Some(&[1; 1536]), "key agreement");
    refused(SutField::CIPHER, None, "key agreement");
    refused(SutField::CIPHER_NAMES, Some(b"bf-cbc:des-ede3-cbc"), "only the ciphers bf-cbc");
    refused(SutField::DIGEST_NAMES, Some(b"md2"), "only the digests md2");
    refused(SutField::X509, Some(b""), "exactly one certificate");
    refused(SutField::X509, None, "the certificate is missing");
    let user = load("gsi.json")["keys"]["user_cert_pem"].as_str().unwrap().to_owned();
    refused(SutField::X509, Some(user.as_bytes()), "not for localhost");
    // A server that sends its first message again.
    let mut login = begin(&client, &server.parameters()).unwrap();
    let mut exchange = server.begin(&peer());
    let second = challenge(exchange.step(&login.step(None, now()).unwrap(), now())).unwrap();
    login.step(Some(&second), now()).unwrap();
    assert!(login.step(Some(&second), now()).unwrap_err().to_string().contains("step 2001 is not expected"));
    assert_eq!(login.step(Some(&second), now()), Err(ClientAuthError::TooManySteps));
}

/// S092: a server that asks for a proxy gets none, and never a key.
#[test]
fn proxies_are_not_delegated() {
    let (server, client) = (server(), client_with(&[]));
    let mut login = begin(&client, &server.parameters()).unwrap();
    let mut exchange = server.exchange(&peer());
    let second = challenge(exchange.step(&login.step(None, now()).unwrap(), now())).unwrap();
    let third = login.step(Some(&second), now()).unwrap();
    entity(exchange.step(&third, now())).unwrap();
    let cipher = exchange.cipher.clone().unwrap();
    let opened = |message: &[u8]| {
        let message = SutMessage::decode(GSI, message).unwrap();
        cipher.open(message.field(SutField::MAIN).unwrap()).unwrap()
    };
    let main = opened(&third);
    let tag = Challenge::of_peer(&SutMessage::decode(GSI, main.expose()).unwrap()).unwrap();
    let host = rsa_keys::RsaSigner::from_pem(text(&load("gsi.json")["keys"], "host_key_pem")).unwrap();
    let request = |signed: &[u8]| {
        let main = SutWriter::new(GSI, step::SERVER_PROXY_REQUEST)
            .with(SutField::SIGNED_CHALLENGE, signed)
            .with(SutField::X509_REQUEST, b"-----BEGIN CERTIFICATE REQUEST-----")
            .with(SutField::CHALLENGE, b"abcdefgh")
            .finish();
        super::messages::begin(step::SERVER_PROXY_REQUEST).with(SutField::MAIN, &cipher.seal(&main)).finish()
    };
    let answer = login.step(Some(&request(&host.sign_raw(tag.as_bytes()).unwrap())), now()).unwrap();
    let main = opened(&answer);
    let main = SutMessage::decode(GSI, main.expose()).unwrap();
    assert_eq!(main.text(SutField::MESSAGE), Some("Not allowed to sign proxy requests"));
    assert!(main.field(SutField::X509).is_none());
    assert!(login.step(Some(&request(b"")), now()).is_err(), "only once");
}
