//! Exchanges without a signature of the key agreement, as before XRootD 4.9.

use super::*;
use crate::gsi::session_cipher::SessionCipher;
use crate::patterns::PeerHostPattern;

/// The parameters of an old server.
const OLD_OFFER: &str = "v:10300,c:ssl,ca:5cdab576.0|606cb0fc.0";

fn old_server(hosts: &[&str], change: impl FnOnce(&mut GsiServerSettings)) -> GsiServer {
    let change = |settings: &mut GsiServerSettings| {
        settings.old_clients = hosts.iter().map(|host| PeerHostPattern::parse(host)).collect();
        change(settings);
    };
    server_with(change, &[], false)
}

/// An exchange with a server that announces an old version. The messages can be changed.
fn old_exchange(
    server: &GsiServer,
    client: &GsiClient,
    change: impl Fn(u32, Vec<u8>) -> Vec<u8>,
) -> Result<Entity, String> {
    let mut login = begin(client, OLD_OFFER).map_err(|error| error.to_string())?;
    let mut exchange = server.begin(&peer());
    let first = login.step(None, now()).map_err(|error| error.to_string())?;
    let second = challenge(exchange.step(&change(1, first), now()))?;
    let third = login.step(Some(&change(2, second)), now()).map_err(|error| error.to_string())?;
    let entity = entity(exchange.step(&change(3, third), now()))?;
    let hash = [7; 32];
    let signature = login.signature_cipher().unwrap().encrypt(&hash);
    assert_eq!(signature.len(), 48, "there is no initialization vector");
    assert_eq!(exchange.signature_cipher().unwrap().decrypt(&signature), Some(hash));
    Ok(entity)
}

fn old_client() -> GsiClient {
    client_with(&[("SCALLA_GSI_OLD_SERVERS", "x.o,local*")])
}

fn field_of(message: &[u8], field: SutField) -> Option<Vec<u8>> {
    SutMessage::decode(GSI, message).unwrap().field(field).map(<[u8]>::to_vec)
}

#[test]
fn old_clients_log_in_from_their_hosts_only() {
    for (hosts, is_accepted) in
        [(&["c.o"][..], true), (&["*.x", "c.*"], true), (&["::1"], true), (&["c.x"], false), (&[], false)]
    {
        let server = old_server(hosts, |_| {});
        let found = old_exchange(&server, &old_client(), |step, message| {
            if step > 1 {
                assert!(field_of(&message, SutField::CIPHER).is_none(), "nothing is signed");
                let text = field_of(&message, SutField::PUBLIC_KEY).unwrap();
                let prefix = DhGroup::fixed().unwrap().text_prefix();
                assert!(is_agreement_text(&text) && text.starts_with(prefix.as_bytes()));
            }
            message
        });
        match found {
            Ok(entity) => assert!(is_accepted && entity.name.as_deref() == Some("0a1b2c3d.0"), "{hosts:?}"),
            Err(reason) => assert!(!is_accepted && reason.contains("gsi.compat"), "{hosts:?}: {reason}"),
        }
    }
    // A new client of these hosts signs as usual.
    assert!(exchange(&old_server(&["c.o"], |_| {}), &client_with(&[]), |_, message| message).is_ok());
    assert!(
        old_server(&["*.o"], |_| {}).wants_host_name()
            && !old_server(&["*", "10.*"], |_| {}).wants_host_name()
    );
}

#[test]
fn old_servers_are_accepted_if_the_user_names_them() {
    let refused = |servers: &str| {
        let client = client_with(&[("SCALLA_GSI_OLD_SERVERS", servers)]);
        begin(&client, OLD_OFFER).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refused("").contains("SCALLA_GSI_OLD_SERVERS") && refused("other").contains("10300"));
    assert_eq!(refused("localhost"), "");
    assert_eq!(refused("other, localhost"), "");
    // A server that announces a signature must sign.
    let server = old_server(&["*"], |_| {});
    let mut login = begin(&old_client(), &server.parameters()).unwrap();
    let first = login.step(None, now()).unwrap();
    let first = replaced(&first, SutField::VERSION, Some(&10_300_u32.to_be_bytes()));
    let second = challenge(server.begin(&peer()).step(&first, now())).unwrap();
    assert!(login.step(Some(&second), now()).unwrap_err().to_string().contains("not signed by the server"));
}

#[test]
fn changed_messages_of_old_exchanges_are_refused() {
    let server = old_server(&["*"], |_| {});
    let failed = |step: u32, field: SutField, content: Option<&[u8]>| {
        let change =
            |at, message: Vec<u8>| if at == step { replaced(&message, field, content) } else { message };
        old_exchange(&server, &old_client(), change).unwrap_err()
    };
    assert!(failed(3, SutField::PUBLIC_KEY, None).contains("key agreement of the client is missing"));
    assert!(failed(3, SutField::PUBLIC_KEY, Some(b"x")).contains("malformed"));
    assert!(failed(3, SutField::CIPHER_NAMES, Some(b"aes-128-cbc#16")).contains("unsupported cipher"));
    assert!(failed(3, SutField::DIGEST_NAMES, Some(b"sha256")).contains("unsupported MD"));
    assert!(failed(3, SutField::MAIN, Some(&[0; 32])).contains("cannot be decrypted"));
    assert!(failed(2, SutField::PUBLIC_KEY, None).contains("key agreement is missing"));
}

#[test]
fn nothing_is_delegated_without_a_signed_agreement() {
    let server = old_server(&["*"], |settings| settings.delegation = Some(DelegationUse::default()));
    let client = client_with(&[("SCALLA_GSI_OLD_SERVERS", "*"), ("XrdSecGSIDELEGPROXY", "1")]);
    let options = u32::to_be_bytes(client_option::CREATE_PROXY | client_option::DELEGATES);
    let found = old_exchange(&server, &client, |step, message| match step {
        1 => {
            let sent = field_of(&message, SutField::CLIENT_OPTIONS).unwrap();
            assert_eq!(sent, client_option::CREATE_PROXY.to_be_bytes());
            replaced(&message, SutField::CLIENT_OPTIONS, Some(&options))
        }
        _ => message,
    });
    assert!(found.unwrap().delegated_proxy.is_none());
}

#[test]
fn an_old_secret_has_no_zeros_in_front() {
    let secret = [&[0; 5][..], &[9; 379]].concat();
    let old = SessionCipher::of_old_agreement(GsiCipher::Aes256, &Secret::new(secret)).unwrap();
    let same = SessionCipher::of_old_agreement(GsiCipher::Aes256, &Secret::new(vec![9; 64])).unwrap();
    let sealed = old.seal(b"text");
    assert_eq!((sealed.len(), &sealed), (16, &old.seal(b"text")));
    assert!(same.open(&sealed).unwrap().is_equal(b"text"));
    assert!(SessionCipher::of_old_agreement(GsiCipher::Aes256, &Secret::new(vec![0; 384])).is_none());
}
