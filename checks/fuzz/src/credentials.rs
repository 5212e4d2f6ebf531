//! Fuzz target for credentials and lists of protocols.
//!
//! Decoding must not panic, in the server and in the client, with any key. Credentials whose
//! checksum is right are as untrusted as others, so items are also checked behind the cipher.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use auth::sss::{
    ItemKind, Keytab, PacketBody, PacketHeader, PacketItems, SssParameters, SssServer, SssServerSettings,
};
use auth::unix::UnixServer;
use auth::{LoginPeer, ServerProtocol, ServerStep, SystemRng, encode_offer, offered_protocols};

use crate::journals::FixedClock;

/// Generation time of sealed packets, seconds since 1970.
const NOW: u64 = 1_795_187_117;

/// Keys of each kind: of one user, of any user, of all users.
const KEYS: &str = "0 u:alice g:staff n:plain N:1 k:00010203\n\
    0 u:anybody g:anygroup n:any N:2 k:04050607\n\
    0 u:allusers g:usrgroup n:all+ N:3 k:08090a0b";

/// Checks `data` as credentials, as their items, and as a list of protocols.
pub fn target(data: &[u8]) {
    as_credentials(data);
    as_items(data);
    as_list(data);
}

fn server() -> &'static SssServer {
    static SERVER: OnceLock<SssServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let mut settings = SssServerSettings::new("/nonexistent".into());
        settings.forwarded_protocols = vec!["gsi".to_owned()];
        settings.wants_credentials = true;
        SssServer::with_keys(settings, keys(), None, Box::new(SystemRng), Arc::new(FixedClock))
    })
}

fn keys() -> Keytab {
    Keytab::parse(KEYS.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn peer() -> LoginPeer {
    let address = ([192, 0, 2, 1], 4711).into();
    LoginPeer { address, host: "client.example.org".to_owned(), login_id: "me".to_owned(), is_tls: false }
}

fn as_credentials(data: &[u8]) {
    let now = UNIX_EPOCH + Duration::from_secs(NOW);
    // No key of the server has made these bytes.
    assert!(!matches!(server().begin(&peer()).step(data, now), ServerStep::Done(_)));
    if let ServerStep::Done(entity) = UnixServer.begin(&peer()).step(data, now) {
        let names = entity.name.as_deref().unwrap_or("-").split(' ');
        let names = names.chain(entity.groups.as_deref().unwrap_or("-").split(' '));
        names.for_each(|name| assert!(!name.is_empty() && name.is_ascii() && !name.contains('/')));
    }
}

fn as_items(data: &[u8]) {
    for item in PacketItems::new(data).flatten() {
        let _ = item.text();
    }
    for key in keys().keys {
        let header = PacketHeader { key_id: key.id, key_name: None };
        let mut body = PacketBody::new(random(), NOW, data.first() == Some(&0xff));
        let mut rest = data;
        while let Some(([kind, length], after)) = rest.split_first_chunk() {
            let (item, after) = after.split_at(after.len().min(usize::from(*length)));
            body.bytes(ItemKind(*kind), item);
            rest = after;
        }
        let packet = body.seal(&header, &key.secret);
        let step = server().begin(&peer()).step(&packet, UNIX_EPOCH + Duration::from_secs(NOW));
        if let ServerStep::Done(entity) = step {
            assert!(key.is_for_any_user() || entity.name.as_deref() == Some(key.user.as_str()));
            assert!(key.is_for_all_users() || &*entity.protocol == "sss");
            assert!(entity.uid.is_none() && entity.gid.is_none());
            entity.attributes.iter().for_each(|(name, _)| assert!(!auth::is_reserved_attribute(name)));
        }
    }
}

fn random() -> [u8; 32] {
    let mut random = [0; 32];
    base::Rng::fill(&mut SystemRng, &mut random);
    random
}

fn as_list(data: &[u8]) {
    let offers = offered_protocols(data);
    let mut again = Vec::new();
    for offer in &offers {
        if let Some(parameters) = SssParameters::parse(&offer.parameters) {
            let text = parameters.to_string();
            assert_eq!(SssParameters::parse(text.as_bytes()), Some(parameters));
        }
        encode_offer(&offer.id, &String::from_utf8_lossy(&offer.parameters), &mut again);
    }
    let ids =
        |offers: &[auth::OfferedProtocol]| offers.iter().map(|offer| offer.id.clone()).collect::<Vec<_>>();
    if data.len() <= 512 {
        assert_eq!(ids(&offered_protocols(&again)), ids(&offers));
    }
}
