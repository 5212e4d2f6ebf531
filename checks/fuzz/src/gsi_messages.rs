//! Fuzz target for the messages of `gsi`: as the first message of a client, as the second one, as the text
//! of a key agreement, and as the parameters of a server.
//!
//! Decoding must not panic, decoded messages survive encoding, and nobody is authenticated without a key.

use auth::grid::ChainRole;
use auth::gsi::{
    ChainTrust, GSI, GridIdentity, GsiClient, GsiClientSettings, GsiServer, GsiServerSettings, NameMaps,
    is_agreement_text,
};
use auth::sut::{SutField, SutMessage, SutWriter};
use auth::{
    ClientContext, ClientProtocol, LoginPeer, OfferedProtocol, ServerProtocol, ServerStep, SystemRng,
};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The recorded exchanges, with the certificate and the key of a server.
const RECORDED: &str = include_str!("../../../vectors/security/gsi.json");

/// The step of the second message of a client.
const CLIENT_CERTIFICATE: u32 = 1001;

/// Knows every authority, and verifies no chain.
struct NoTrust;

impl ChainTrust for NoTrust {
    fn has_authority(&self, _: &str) -> bool {
        true
    }

    fn authority_hashes(&self, _: &[u8]) -> Result<[String; 2], String> {
        Ok(["5cdab576".to_owned(), "606cb0fc".to_owned()])
    }

    fn verify(&self, _: &[Vec<u8>], _: ChainRole, _: SystemTime) -> Result<GridIdentity, String> {
        Err("no chain is verified".to_owned())
    }

    fn refresh(&self) -> Result<(), String> {
        Ok(())
    }

    fn state(&self) -> String {
        String::new()
    }
}

fn server() -> &'static GsiServer {
    static SERVER: OnceLock<GsiServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let recorded: serde_json::Value = serde_json::from_str(RECORDED).unwrap_or_default();
        let text = |name: &str| recorded["keys"][name].as_str().unwrap_or_default().to_owned();
        let settings = GsiServerSettings::new("/nonexistent".into(), "/nonexistent".into());
        let (certificate, key) = (text("host_cert_pem"), text("host_key_pem"));
        GsiServer::with_certificate(
            settings,
            &certificate,
            &key,
            Arc::new(NoTrust),
            NameMaps::default(),
            Box::new(SystemRng),
        )
        .unwrap_or_else(|error| panic!("{error}"))
    })
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_187_117)
}

/// A first message that the server answers.
fn first_message() -> Vec<u8> {
    let main = SutWriter::new(GSI, 1000).with(SutField::CHALLENGE, b"abcdefgh").finish();
    SutWriter::new(GSI, 1000)
        .with(SutField::CRYPTO_MODULE, b"ssl")
        .with_number(SutField::VERSION, 10_600)
        .with(SutField::ISSUER_HASH, b"5cdab576.0")
        .with(SutField::MAIN, &main)
        .finish()
}

/// Checks `data` in each role.
pub fn target(data: &[u8]) {
    let _ = is_agreement_text(data);
    as_parameters(data);
    let Ok(message) = SutMessage::decode(GSI, data) else { return };
    let writer = SutWriter::new(GSI, message.step);
    let again = message.fields().fold(writer, |out, (field, content)| out.with(field, content)).finish();
    assert_eq!(SutMessage::decode(GSI, &again), Ok(message.clone()));
    let address = ([192, 0, 2, 1], 4711).into();
    let peer =
        LoginPeer { address, host: "c.example.org".to_owned(), login_id: "me".to_owned(), is_tls: false };
    let mut exchange = server().begin(&peer);
    if message.step == CLIENT_CERTIFICATE {
        assert!(matches!(exchange.step(&first_message(), now()), ServerStep::Continue(_)));
    }
    assert!(!matches!(exchange.step(data, now()), ServerStep::Done(_)));
}

fn as_parameters(data: &[u8]) {
    let settings = GsiClientSettings::of_environment(|_| None);
    let client = GsiClient::new(settings, Arc::new(|| Ok(Arc::new(NoTrust))));
    let offer = OfferedProtocol { id: GSI.to_owned(), parameters: data.to_vec() };
    let context = ClientContext::new(([192, 0, 2, 1], 4711).into(), "c.example.org", "s.example.org");
    let _ = client.begin(&offer, &context);
}
