//! Changes of passwords during logins, between both sides of this crate.

use super::cipher::PwdCipher;
use super::file::{EntryStatus, PwdEntry, PwdFile};
use super::hash::credentials_of;
use super::messages::{self, CREDENTIALS, RequestedPassword, STATUS, STATUS_BYTES, step};
use super::recorded::{NOW, Site, peer, site};
use super::server::{PwdServer, PwdServerSettings};
use crate::SystemRng;
use crate::challenge::Challenge;
use crate::gsi::agreement::{DhGroup, KeyAgreement, PeerAgreement};
use crate::server::{ServerLogin, ServerProtocol, ServerStep};
use crate::sut::SutField;
use std::time::Duration;

/// The octet of the options that says that a client answers requests.
const ANSWERS: [u8; STATUS_BYTES] = [0, 0x80, 0, 0];

/// Returns a site whose file is on the disk.
fn site_with_file(name: &str) -> Site {
    let site = site(name);
    PwdFile::update(&site.directory.join("pwdadmin"), 0, |_| Ok((site.file.clone(), ()))).unwrap();
    site
}

fn entry_of_eve(site: &Site) -> PwdEntry {
    PwdFile::read(&site.directory.join("pwdadmin")).unwrap().find("eve_1").unwrap().clone()
}

#[test]
fn a_password_for_one_login_is_replaced_by_the_user() {
    let site = site_with_file("one-time");
    let (entity, rounds) = site.log_in("eve", &["secret12", "chosen", "chosen"]);
    assert_eq!((entity.unwrap().name.as_deref(), rounds), (Some("eve"), 5));
    let entry = entry_of_eve(&site);
    assert_eq!(entry.status, EntryStatus::OK);
    assert!(entry.password().unwrap().is_password_of(credentials_of(b"chosen").expose()));
    assert!(site.log_in("eve", &["chosen"]).0.is_ok());
    assert!(site.log_in("eve", &["secret12"; 3]).0.unwrap_err().contains("wrong password"));
    assert!(site.log_in("alice", &["secret12"]).0.is_ok(), "an entry that did not change");
}

#[test]
fn users_can_try_again_to_choose_a_password() {
    let site = site_with_file("choose");
    let refused = |passwords: &[&str]| site.log_in("eve", passwords).0.map(drop).unwrap_err();
    assert!(refused(&["secret12", "one", "other"]).contains("typed differ"));
    assert!(refused(&["secret12", "one", ""]).contains("demands a new password"));
    assert!(refused(&["secret12"; 7]).contains("the new password is the present one"));
    assert_eq!(entry_of_eve(&site).status, EntryStatus::ONE_TIME);
    let passwords = ["secret12", "secret12", "secret12", "chosen", "chosen"];
    assert!(site.log_in("eve", &passwords).0.is_ok());
    assert_eq!(entry_of_eve(&site).status, EntryStatus::OK);
}

/// The previous password stays in force.
#[test]
fn a_password_that_cannot_be_stored_does_not_log_in() {
    let site = site_with_file("store");
    std::fs::remove_file(site.directory.join("pwdadmin")).unwrap();
    let refused = site.log_in("eve", &["secret12", "chosen", "chosen"]).0.unwrap_err();
    assert!(refused.contains("the password was not changed") && refused.contains("was removed"), "{refused}");
    assert!(site.log_in("eve", &["chosen"; 3]).0.unwrap_err().contains("wrong password"));
}

#[test]
fn a_directory_in_which_nothing_can_be_stored_is_reported() {
    let file = site("report").file.clone();
    let warnings = |file: &PwdFile| {
        let path = "/nonexistent/pwdadmin".into();
        let settings = PwdServerSettings { file: path, failures_max: 1 };
        let server = PwdServer::with_file(settings, file.clone()).unwrap();
        server.warnings(NOW, Duration::ZERO).concat()
    };
    assert!(warnings(&file).contains("who must choose a password cannot log in"), "{}", warnings(&file));
    let mut none_must = file;
    assert!(none_must.remove("eve_1"));
    assert_eq!(warnings(&none_must), "");
}

/// A client that chooses its messages freely.
struct RawPwdClient {
    cipher: PwdCipher,
    login: Box<dyn ServerLogin>,
    tag: Challenge,
}

impl RawPwdClient {
    fn of_eve(site: &Site) -> Self {
        let mut login: Box<dyn ServerLogin> = Box::new(site.server.exchange(&peer(1)));
        let first = site.client("eve", &[]).unwrap().step(None, NOW).unwrap();
        let ServerStep::Continue(sent) = login.step(&first, NOW) else { panic!() };
        let main = messages::decode(&sent).unwrap().field(SutField::MAIN).unwrap().to_vec();
        let main = messages::decode_main(&main, step::SERVER_KEY).unwrap();
        let key = messages::without_module(main.field(SutField::PUBLIC_KEY).unwrap()).unwrap();
        let own = KeyAgreement::generate(DhGroup::named().unwrap(), &mut SystemRng).unwrap();
        let cipher = PwdCipher::new(&own.agree(&PeerAgreement::decode(key).unwrap()).unwrap()).unwrap();
        let tag = Challenge::of_peer(&main).unwrap();
        let inner = messages::begin_main(step::CLIENT_VERIFIES_SERVER)
            .with(SutField::SIGNED_CHALLENGE, &cipher.seal(tag.as_bytes()))
            .with(SutField::CHALLENGE, b"abcdefgh")
            .finish();
        let message = messages::begin(step::CLIENT_VERIFIES_SERVER)
            .with(SutField::PUBLIC_KEY, own.text().as_bytes())
            .with(SutField::MAIN, &cipher.seal(&inner))
            .finish();
        let mut client = Self { cipher, login, tag };
        client.send(&message).unwrap();
        client
    }

    /// Sends a message, and returns the status of the answer, or the reason why it is refused.
    fn send(&mut self, message: &[u8]) -> Result<[u8; STATUS_BYTES], String> {
        let answer = match self.login.step(message, NOW) {
            ServerStep::Continue(answer) => answer,
            ServerStep::Refused(refused) => return Err(refused.reason().to_owned()),
            other => panic!("{other:?}"),
        };
        let answer = messages::decode(&answer).unwrap();
        let main = messages::open_main(&answer, &self.cipher).unwrap();
        let main = messages::decode_main(main.expose(), answer.step).unwrap();
        self.tag = Challenge::of_peer(&main).unwrap();
        Ok(messages::status_of(&main))
    }

    fn send_password(
        &mut self,
        step: u32,
        status: [u8; STATUS_BYTES],
        user: &str,
        credentials: &[u8],
    ) -> Result<[u8; STATUS_BYTES], String> {
        let main = messages::begin_main(step)
            .with(SutField::SIGNED_CHALLENGE, &self.cipher.seal(self.tag.as_bytes()))
            .with(SutField::USER, user.as_bytes())
            .with(CREDENTIALS, credentials)
            .with(STATUS, &status)
            .finish();
        let main = self.cipher.seal(&main);
        self.send(&messages::begin(step).with(SutField::MAIN, &main).finish())
    }
}

/// A status that claims a change is only that of a guess before the present password is proved.
#[test]
fn a_change_needs_the_present_password_of_the_same_user() {
    let site = site_with_file("proof");
    let new = RequestedPassword::status(ANSWERS, RequestedPassword::New);
    let (present, chosen) = (credentials_of(b"secret12"), credentials_of(b"chosen"));
    let mut client = RawPwdClient::of_eve(&site);
    for _ in 0..2 {
        let status = client.send_password(step::CLIENT_CREDENTIALS, new, "eve", chosen.expose()).unwrap();
        assert_eq!(status, new, "the status of the client itself");
    }
    let refused = client.send_password(step::CLIENT_CREDENTIALS, new, "eve", chosen.expose()).unwrap_err();
    assert!(refused.contains("wrong password"), "{refused}");

    let begin = || {
        let mut client = RawPwdClient::of_eve(&site);
        let status = client.send_password(step::CLIENT_NORMAL, ANSWERS, "eve", present.expose()).unwrap();
        assert_eq!(status, new);
        client
    };
    let refused = begin().send_password(step::CLIENT_CREDENTIALS, new, "alice", chosen.expose()).unwrap_err();
    assert!(refused.contains("the user has changed"), "{refused}");
    let refused = begin().send_password(step::CLIENT_NORMAL, new, "eve", chosen.expose()).unwrap_err();
    assert!(refused.contains("not expected"), "{refused}");
    let mut client = begin();
    client.tag = Challenge::random(&mut SystemRng);
    let refused = client.send_password(step::CLIENT_CREDENTIALS, new, "eve", chosen.expose()).unwrap_err();
    assert!(refused.contains("challenge is wrong"), "{refused}");
    assert_eq!(entry_of_eve(&site).status, EntryStatus::ONE_TIME);
}

#[test]
fn a_client_that_answers_no_requests_is_refused() {
    let site = site_with_file("silent");
    let mut client = RawPwdClient::of_eve(&site);
    let present = credentials_of(b"secret12");
    let refused = client.send_password(step::CLIENT_NORMAL, [0; 4], "eve", present.expose()).unwrap_err();
    assert!(refused.contains("must be changed"), "{refused}");
}

#[test]
fn a_new_password_is_sent_twice_and_is_another_one() {
    let site = site_with_file("twice");
    let new = RequestedPassword::status(ANSWERS, RequestedPassword::New);
    let again = RequestedPassword::status(ANSWERS, RequestedPassword::NewAgain);
    let hash = |text: &str| credentials_of(text.as_bytes()).expose().to_vec();
    let mut client = RawPwdClient::of_eve(&site);
    let mut send = |step, credentials: &[u8]| client.send_password(step, ANSWERS, "eve", credentials);
    assert_eq!(send(step::CLIENT_NORMAL, &hash("secret12")), Ok(new));
    assert_eq!(send(step::CLIENT_CREDENTIALS, &hash("chosen")), Ok(again));
    assert_eq!(send(step::CLIENT_CREDENTIALS, &hash("other")), Ok(new));
    assert_eq!(send(step::CLIENT_CREDENTIALS, &hash("")), Ok(new));
    let refused = send(step::CLIENT_CREDENTIALS, &hash("chosen")[1..]).unwrap_err();
    assert!(refused.contains("the password is empty"), "{refused}");
}

/// A password for one login logs in one client.
#[test]
fn the_second_of_two_changes_at_once_is_refused() {
    let site = site_with_file("race");
    let new = RequestedPassword::status(ANSWERS, RequestedPassword::New);
    let mut clients = [RawPwdClient::of_eve(&site), RawPwdClient::of_eve(&site)];
    for (client, chosen) in clients.iter_mut().zip(["one", "other"]) {
        let mut send = |step, text: &str| {
            client.send_password(step, new, "eve", credentials_of(text.as_bytes()).expose()).unwrap();
        };
        send(step::CLIENT_NORMAL, "secret12");
        send(step::CLIENT_CREDENTIALS, chosen);
    }
    let [one, other] = &mut clients;
    let finish = |client: &mut RawPwdClient, text: &str| {
        let main = messages::begin_main(step::CLIENT_CREDENTIALS)
            .with(SutField::SIGNED_CHALLENGE, &client.cipher.seal(client.tag.as_bytes()))
            .with(CREDENTIALS, credentials_of(text.as_bytes()).expose())
            .finish();
        let main = client.cipher.seal(&main);
        client
            .login
            .step(&messages::begin(step::CLIENT_CREDENTIALS).with(SutField::MAIN, &main).finish(), NOW)
    };
    assert!(matches!(finish(one, "one"), ServerStep::Done(_)));
    let ServerStep::Refused(refused) = finish(other, "other") else { panic!() };
    assert!(refused.reason().contains("changed meanwhile"), "{}", refused.reason());
    assert!(entry_of_eve(&site).password().unwrap().is_password_of(credentials_of(b"one").expose()));
}
