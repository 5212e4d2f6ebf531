//! Replays of the recorded logins (`krb5.json`) on both sides, and the required refusals of `krb5`.
//! The Kerberos library of the system verifies and makes the messages.

use super::library::KerberosExchange;
use super::test_realm::*;
use super::{KRB5, Krb5Server, Krb5ServerSettings, PREFIX};
use crate::client::{ClientAuthError, ClientLogin, ClientProtocol};
use crate::entity::Entity;
use crate::offers::OfferedProtocol;
use crate::server::{ServerLogin, ServerProtocol, ServerStep};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn step(login: &mut dyn ServerLogin, credentials: &[u8]) -> Result<Option<Entity>, String> {
    // The library has its own clock.
    match login.step(credentials, UNIX_EPOCH) {
        ServerStep::Done(entity) => Ok(Some(entity)),
        ServerStep::Continue(challenge) => {
            assert_eq!(challenge, b"fwdtgt\0");
            Ok(None)
        }
        ServerStep::Refused(refused) => Err(refused.reason().to_owned()),
        ServerStep::Later => panic!("nothing to wait for"),
    }
}

fn login(server: &Krb5Server, credentials: &[u8]) -> Result<Option<Entity>, String> {
    step(server.begin(&peer()).as_mut(), credentials)
}

fn connection(number: usize) -> (Value, Vec<Vec<u8>>, i32) {
    let connection = recorded()["connections"][number].clone();
    let sent = credentials(&connection);
    let time = seconds(&connection["decoded"]["authenticator_time"]);
    (connection, sent, time)
}

#[test]
fn the_recorded_login_has_the_recorded_identity() {
    let (connection, sent, time) = connection(0);
    let realm = TestRealm::at(time);
    let server = realm.server(|_| {}).unwrap();
    assert_eq!((server.id(), server.parameters().as_str()), (KRB5, SERVICE));
    let entity = login(&server, &sent[0]).unwrap().unwrap();
    let expected = &connection["expect"]["entity"];
    assert_eq!(Some(&*entity.protocol), expected["prot"].as_str());
    assert_eq!(entity.name.as_deref(), expected["name"].as_str());
    assert!(&*entity.host == "h.o" && entity.forwarded_ticket.is_none() && entity.attributes.is_empty());
    // With the skew for which a ticket is accepted after its end.
    let end = seconds(&connection["decoded"]["ticket_end"]);
    assert_eq!(entity.expires, Some(system_time(end + 300)));
}

#[test]
fn the_recorded_ticket_is_stored_privately() {
    let (_, sent, time) = connection(1);
    let realm = TestRealm::at(time);
    let template = format!("{}/krb5cc_<user>", realm.directory.display());
    let server = realm.server(|settings| settings.ticket_file = Some(template)).unwrap();
    assert_eq!(server.parameters(), format!("{SERVICE},fwd"));
    let mut exchange = server.begin(&peer());
    assert!(step(exchange.as_mut(), &sent[0]).unwrap().is_none());
    let entity = step(exchange.as_mut(), &sent[1]).unwrap().unwrap();
    assert_eq!(entity.name.as_deref(), Some("alice"));
    let path = entity.forwarded_ticket.as_ref().unwrap().path().to_owned();
    assert_eq!(path, realm.directory.join("krb5cc_alice"));
    let metadata = fs::symlink_metadata(&path).unwrap();
    assert_eq!((metadata.is_file(), metadata.mode() & 0o7777), (true, 0o600));
    let cache = format!("FILE:{}", path.display());
    let context = realm.contexts()().unwrap();
    assert_eq!(context.ticket_end(Some(&cache)).unwrap().0, ALICE);
    assert!(step(exchange.as_mut(), &sent[1]).unwrap_err().contains("is over"));
    // The end of the protocol waits for the removal.
    drop((entity, exchange, server));
    assert!(!path.exists(), "it is removed with the last session");
}

/// A context of the library is kept for the next login. The key table, the replay cache and, after a reload, the
/// configuration are read all the same.
#[test]
fn contexts_are_kept_between_logins() {
    let (connection, sent, time) = connection(0);
    let (realm, made) = (TestRealm::at(time), Arc::new(AtomicUsize::new(0)));
    let (contexts, count) = (realm.contexts(), Arc::clone(&made));
    let counted = Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        contexts()
    });
    let mut settings = Krb5ServerSettings::new(SERVICE);
    settings.keytab = Some(realm.keytab());
    let server = Krb5Server::with_contexts(settings, None, counted).unwrap();
    let of_start = made.load(Ordering::Relaxed);
    let made = || made.load(Ordering::Relaxed) - of_start;
    let ticket = &sent[0][ticket_range(&sent[0])];
    let times = [time - 10, time - 10, time + 3600, 0];
    realm.write_cache(&["xrootd", "localhost"], &session_key(&connection), times, ticket);
    let request = || client_login(&realm, "", true).unwrap().step(None, system_time(time)).unwrap();
    let (first, second, third) = (request(), request(), request());
    for request in [&first, &second] {
        assert_eq!(login(&server, request).unwrap().unwrap().name.as_deref(), Some("alice"));
    }
    assert_eq!(made(), 1);
    assert!(login(&server, &first).unwrap_err().contains("replay"));
    assert!(login(&server, &third).is_ok());
    assert_eq!(made(), 2, "a context whose exchange has failed is not kept");
    let key = bytes(&recorded()["keys"]["aes256-cts-hmac-sha1-96"]);
    realm.write_keytab(&["xrootd", "localhost"], 3, &[7; 32]);
    assert!(login(&server, &request()).is_err());
    realm.write_keytab(&["xrootd", "localhost"], 2, &key);
    assert!(login(&server, &request()).is_ok());
    let before = made();
    server.refresh().unwrap();
    assert_eq!(made(), before + 1, "the check of the key table");
    assert!(login(&server, &request()).is_ok() && login(&server, &request()).is_ok());
    assert_eq!(made(), before + 2);
}

/// The keys of a file that has not changed for some time are kept in memory.
#[test]
fn kept_keys_are_those_of_the_file() {
    let (connection, sent, time) = connection(0);
    let realm = TestRealm::at(time);
    let ticket = &sent[0][ticket_range(&sent[0])];
    let times = [time - 10, time - 10, time + 3600, 0];
    realm.write_cache(&["xrootd", "localhost"], &session_key(&connection), times, ticket);
    let server = realm.server(|_| {}).unwrap();
    let now = SystemTime::now();
    let later = now + Duration::from_secs(10);
    let login_at = |now, request: &[u8]| server.begin(&peer()).step(request, now);
    let is_done = |step: ServerStep| matches!(step, ServerStep::Done(_));
    let request = || client_login(&realm, "", true).unwrap().step(None, system_time(time)).unwrap();
    assert!(server.kept_keys(now).is_none(), "the file could change again without a difference");
    let (first, kept) = (request(), server.kept_keys(later).unwrap());
    assert!(is_done(login_at(later, &first)) && is_done(login_at(later, &request())));
    assert!(Arc::ptr_eq(&kept, &server.kept_keys(later).unwrap()));
    // Both ways have one replay cache.
    for now in [later, now] {
        let ServerStep::Refused(refused) = login_at(now, &first) else { panic!("it is accepted twice") };
        assert!(refused.reason().contains("replay"), "{}", refused.reason());
    }
    // Each state of the file counts at once.
    let aside = realm.directory.join("aside");
    fs::rename(realm.keytab(), &aside).unwrap();
    assert!(!is_done(login_at(later, &request())), "it is missing");
    realm.write_keytab(&["xrootd", "localhost"], 2, &[7; 32]);
    assert!(!is_done(login_at(later, &request())), "the key is another one");
    fs::rename(&aside, realm.keytab()).unwrap();
    assert!(is_done(login_at(later, &request())));
    // A key that only the library finds in the file counts, too.
    realm.write_keytab(&["other", "localhost"], 2, &[7; 32]);
    let other = server.kept_keys(later).unwrap();
    assert!(!is_done(login_at(later, &request())));
    fs::rename(realm.keytab(), realm.directory.join("other")).unwrap();
    realm.write_keytab(&["xrootd", "localhost"], 2, &bytes(&recorded()["keys"]["aes256-cts-hmac-sha1-96"]));
    server.keep_keys_of(&realm.directory.join("other"));
    assert_ne!(server.kept_keys(later).unwrap().name(), other.name());
    assert!(is_done(login_at(later, &request())));
}

/// S051
#[test]
fn a_request_is_accepted_once() {
    let (_, sent, time) = connection(0);
    let realm = TestRealm::at(time);
    let server = realm.server(|_| {}).unwrap();
    assert!(login(&server, &sent[0]).is_ok());
    let error = login(&server, &sent[0]).unwrap_err();
    assert!(error.contains("replay"), "{error}");
    // After a restart, too.
    let server = realm.server(|_| {}).unwrap();
    assert!(login(&server, &sent[0]).unwrap_err().contains("replay"));
}

/// S052
#[test]
fn the_clocks_must_agree() {
    let (_, sent, time) = connection(0);
    for (difference, is_accepted) in [(-301, false), (-300, true), (299, true), (301, false)] {
        let realm = TestRealm::at(time + difference);
        let result = login(&realm.server(|_| {}).unwrap(), &sent[0]);
        assert_eq!(result.is_ok(), is_accepted, "{difference}");
        assert!(is_accepted || result.unwrap_err().contains("skew"), "{difference}");
    }
}

/// S049, S050
#[test]
fn the_ticket_must_be_for_the_key_of_the_server() {
    let (_, sent, time) = connection(0);
    let key = bytes(&recorded()["keys"]["aes256-cts-hmac-sha1-96"]);
    let realm = TestRealm::at(time);
    // The key table has the key of the ticket, but it is that of another service.
    realm.write_keytabs(&[(&["other", "localhost"], 2, &[7; 32]), (&["xrootd", "localhost"], 2, &key)]);
    let other = realm.server(|settings| settings.principal = "other/localhost@TEST.EXAMPLE".to_owned());
    assert!(login(&other.unwrap(), &sent[0]).is_err());
    realm.write_keytab(&["xrootd", "localhost"], 3, &key);
    assert!(login(&realm.server(|_| {}).unwrap(), &sent[0]).is_err());
    realm.write_keytab(&["xrootd", "localhost"], 2, &[7; 32]);
    assert!(login(&realm.server(|_| {}).unwrap(), &sent[0]).is_err());
    // None of them was remembered as used.
    realm.write_keytab(&["xrootd", "localhost"], 2, &key);
    assert!(login(&realm.server(|_| {}).unwrap(), &sent[0]).is_ok());
}

/// S053: the client takes the end of the ticket from its cache, which claims a later one.
#[test]
fn an_expired_ticket_is_refused() {
    let (connection, sent, _) = connection(0);
    let end = seconds(&connection["decoded"]["ticket_end"]);
    let realm = TestRealm::at(end);
    let (ticket, times) = (&sent[0][ticket_range(&sent[0])], [end - 40_000, end - 40_000, end + 40_000, 0]);
    realm.write_cache(&["xrootd", "localhost"], &session_key(&connection), times, ticket);
    for (late, is_accepted) in [(300, true), (301, false)] {
        realm.set_time(end + late);
        // The clock of a context does not change.
        let server = realm.server(|_| {}).unwrap();
        let request = client_login(&realm, "", true).unwrap().step(None, system_time(end + late)).unwrap();
        let result = login(&server, &request);
        assert_eq!(result.is_ok(), is_accepted, "{late}: within the skew");
        assert!(is_accepted || result.unwrap_err().contains("expired"));
    }
}

/// S054
#[test]
fn a_client_without_a_local_name_is_refused() {
    let (_, sent, time) = connection(0);
    let realm = TestRealm::with_default_realm(time, "OTHER.EXAMPLE");
    let error = login(&realm.server(|_| {}).unwrap(), &sent[0]).unwrap_err();
    assert!(error.contains("alice@TEST.EXAMPLE has no local name; map it with auth_to_local"), "{error}");
}

/// S056, S057
#[test]
fn malformed_credentials_are_refused() {
    let (_, sent, time) = connection(1);
    let realm = TestRealm::at(time);
    let server = realm.server(|_| {}).unwrap();
    for length in 0..sent[0].len() {
        assert!(login(&server, &sent[0][..length]).is_err(), "{length}");
    }
    let longer = [&sent[0][..], b"\0"].concat();
    assert!(login(&server, &longer).unwrap_err().contains("bytes after"));
    assert!(login(&server, &sent[1]).unwrap_err().contains("not an AP-REQ"));
    for at in 0..PREFIX.len() + 4 {
        let mut changed = sent[0].clone();
        changed[at] ^= 1;
        assert!(login(&server, &changed).is_err(), "{at}");
    }
    assert!(login(&server, &sent[0]).is_ok(), "the others were not remembered");
}

/// S058
#[test]
fn a_forwarded_ticket_must_be_that_of_the_client() {
    let (_, sent, time) = connection(1);
    let realm = TestRealm::at(time);
    let template = format!("{}/krb5cc_<user>", realm.directory.display());
    let server = realm.server(|settings| settings.ticket_file = Some(template)).unwrap();
    let mut exchange = server.begin(&peer());
    assert!(step(exchange.as_mut(), &sent[0]).unwrap().is_none());
    let mut changed = sent[1].clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(step(exchange.as_mut(), &changed).is_err());
    assert!(step(exchange.as_mut(), &sent[1]).unwrap_err().contains("is over"), "one attempt");
    assert!(!realm.directory.join("krb5cc_alice").exists());

    let realm = TestRealm::at(time);
    let mut exchange = KerberosExchange::new(realm.contexts()().unwrap()).unwrap();
    let keytab = realm.keytab().display().to_string();
    let accepted = exchange.accept(&sent[0][PREFIX.len()..], SERVICE, Some(&keytab)).unwrap();
    assert_eq!(accepted.client, ALICE);
    let cache = format!("FILE:{}/stolen", realm.directory.display());
    let error = exchange.store_forwarded(&sent[1][PREFIX.len()..], "bob@TEST.EXAMPLE", &cache).unwrap_err();
    assert!(error.text.contains("that of another client"), "{error:?}");
    assert!(!realm.directory.join("stolen").exists());
}

/// A ticket for another service would be stored as if it could get tickets for all.
#[test]
fn a_forwarded_ticket_must_be_one_that_grants_tickets() {
    let (connection, sent, time) = connection(0);
    let realm = TestRealm::at(time);
    let (range, times) = (ticket_range(&sent[0]), [time - 100, time - 100, time + 3600, 0]);
    realm.write_cache(&["xrootd", "localhost"], &session_key(&connection), times, &sent[0][range]);
    let cache = format!("FILE:{}", realm.cache().display());
    let exchange = || KerberosExchange::new(realm.contexts()().unwrap()).unwrap();
    let (mut client, mut server) = (exchange(), exchange());
    let request = client.request(Some(&cache), SERVICE).unwrap();
    server.accept(&request, SERVICE, Some(&realm.keytab().display().to_string())).unwrap();
    let forwarded = client.forward_service_ticket(&cache, SERVICE).unwrap();
    let stored = realm.directory.join("stored");
    let error = server.store_forwarded(&forwarded, ALICE, &format!("FILE:{}", stored.display())).unwrap_err();
    assert!(error.text.contains("not a ticket-granting ticket"), "{error:?}");
    assert!(!stored.exists());
}

#[test]
fn key_tables_that_others_can_read_stop_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let realm = TestRealm::at(0);
    let fault = |realm: &TestRealm| realm.server(|_| {}).err().unwrap_or_default();
    fs::set_permissions(realm.keytab(), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(fault(&realm).contains("0644 allow others to use the keys; run chmod 640 "), "{}", fault(&realm));
    fs::set_permissions(realm.keytab(), fs::Permissions::from_mode(0o640)).unwrap();
    let server = realm.server(|_| {}).unwrap();
    assert_eq!((server.refresh(), server.state()), (Ok(()), format!("krb5: {SERVICE}")));
    realm.write_keytab(&["other", "localhost"], 2, &[7; 32]);
    let expected = format!("has no key of {SERVICE}: ");
    assert!(fault(&realm).contains(&expected) && fault(&realm).contains("ktadd -k "), "{}", fault(&realm));
    assert!(server.refresh().unwrap_err().contains(&expected) && server.state().contains(&expected));
    fs::remove_file(realm.keytab()).unwrap();
    assert!(fault(&realm).contains("cannot be read: no such file"), "{}", fault(&realm));
    let error = realm.server(|settings| settings.principal = "a@b@c".to_owned()).err().unwrap();
    assert!(error.contains("the principal 'a@b@c' is not usable"), "{error}");
}

// The client

fn session_key(connection: &Value) -> Vec<u8> {
    bytes(&connection["decoded"]["session_key_hex"])
}

fn client_login(
    realm: &TestRealm,
    parameters: &str,
    is_tls: bool,
) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
    let parameters = format!("{SERVICE}{parameters}").into_bytes();
    realm.client().begin(&OfferedProtocol { id: KRB5.to_owned(), parameters }, &client_context(is_tls))
}

/// Bytes of the id, and of the two tags and lengths around the whole message.
const OUTER_BYTES: usize = PREFIX.len() + 8;

/// The confounder and the microseconds differ; everything else is recorded.
#[test]
fn the_client_sends_the_message_of_the_stock_client() {
    let (connection, sent, time) = connection(0);
    let realm = TestRealm::at(time);
    let range = ticket_range(&sent[0]);
    let times = [time - 100, time - 100, time + 3600, 0];
    realm.write_cache(&["xrootd", "localhost"], &session_key(&connection), times, &sent[0][range.clone()]);
    let mut exchange = client_login(&realm, "", true).unwrap();
    let made = exchange.step(None, system_time(time)).unwrap();
    assert_eq!(made[..7], sent[0][..7]);
    assert_eq!(made[OUTER_BYTES..range.end], sent[0][OUTER_BYTES..range.end], "options and ticket");
    // The authenticator has neither checksum nor subkey nor sequence number, so only the octets of
    // the microseconds change its length.
    assert!(made.len().abs_diff(sent[0].len()) <= 3, "{} {}", made.len(), sent[0].len());
    assert_eq!(exchange.step(Some(b"fwdtgt\0"), system_time(time)), Err(ClientAuthError::TooManySteps));
    let server = realm.server(|_| {}).unwrap();
    assert_eq!(login(&server, &made).unwrap().unwrap().name.as_deref(), Some("alice"));
}

#[test]
fn a_ticket_is_not_forwarded_in_clear_unless_told() {
    let (_, sent, time) = connection(0);
    let realm = TestRealm::at(time);
    let error = client_login(&realm, ",fwd", false).err().unwrap().to_string();
    assert!(
        error.contains("not forwarded without encryption; use roots://, or set SCALLA_KRB5_FORWARD=1"),
        "{error}"
    );
    assert!(client_login(&realm, "", false).is_ok() && client_login(&realm, ",fwd", true).is_ok());
    let settings = super::Krb5ClientSettings { forwards_in_clear: true, ..Default::default() };
    let told = super::Krb5Client::with_contexts(settings, realm.contexts());
    let parameters = format!("{SERVICE},fwd").into_bytes();
    let offer = OfferedProtocol { id: KRB5.to_owned(), parameters };
    assert!(told.begin(&offer, &client_context(false)).is_ok());
    // A ticket that no KDC can forward, and a challenge that is none.
    let (connection, ..) = connection(0);
    let (range, times) = (ticket_range(&sent[0]), [time - 100, time - 100, time + 3600, 0]);
    realm.write_cache(&["xrootd", "localhost"], &session_key(&connection), times, &sent[0][range]);
    for (challenge, expected) in
        [(&b"fwdtgt\0"[..], "cannot be forwarded"), (b"other\0", "challenge of krb5 is malformed")]
    {
        let mut exchange = client_login(&realm, ",fwd", true).unwrap();
        exchange.step(None, system_time(time)).unwrap();
        let error = exchange.step(Some(challenge), system_time(time)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_client_without_a_valid_ticket_says_what_to_do() {
    let (connection, sent, time) = connection(0);
    let realm = TestRealm::at(time);
    let fault =
        || client_login(&realm, "", true).unwrap().step(None, system_time(time)).unwrap_err().to_string();
    let cache = format!("FILE:{}", realm.cache().display());
    assert_eq!(fault(), format!("there is no ticket in {cache}; run kinit"));
    let times = [time - 50_000, time - 50_000, time - 3 * 3600, 0];
    let ticket = &sent[0][ticket_range(&sent[0])];
    realm.write_cache(&["krbtgt", "TEST.EXAMPLE"], &session_key(&connection), times, ticket);
    assert_eq!(fault(), format!("the ticket of {ALICE} in {cache} expired 3 h ago; run kinit"));
    // The KDC of the realm does not answer.
    let times = [time - 100, time - 100, time + 3600, 0];
    realm.write_cache(&["krbtgt", "TEST.EXAMPLE"], &session_key(&connection), times, ticket);
    assert!(fault().starts_with(&format!("no KDC gives a ticket for {SERVICE}: ")), "{}", fault());
}
