//! The recorded exchange between real peers, and exchanges between both sides of this crate.

use super::cipher::PwdCipher;
use super::client::{PasswordPrompt, PwdClient, PwdClientSettings};
use super::file::{EntryStatus, PwdEntry, PwdFile};
use super::hash::{StoredPassword, credentials_of};
use super::messages::{self, CREDENTIALS, STATUS, step};
use super::server::{PwdServer, PwdServerSettings};
use super::server_key::{SERVER_ID, ServerKey};
use super::users::is_user_name;
use crate::challenge::Challenge;
use crate::client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
use crate::gsi::agreement::{DhGroup, KeyAgreement, PeerAgreement};
use crate::gsi::vectors::{bytes, list, load, text};
use crate::offers::OfferedProtocol;
use crate::secret::Secret;
use crate::server::{LoginPeer, ServerLogin, ServerProtocol, ServerStep};
use crate::sut::{SutField, SutMessage};
use crate::{Entity, SystemRng};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const FAILURES_MAX: u32 = 10;

pub(super) const NOW: SystemTime = SystemTime::UNIX_EPOCH;

#[test]
fn the_recorded_messages() {
    let vector = load("pwd.json");
    let key = Secret::new(bytes(text(&vector["keys"], "session_key_hex")));
    let cipher = PwdCipher::new(&key).unwrap();
    let connection = &list(&vector["connections"])[0];
    let payloads: Vec<Vec<u8>> = list(&connection["frames"])
        .iter()
        .filter(|frame| text(frame, "request") == "kXR_auth" || text(frame, "status") == "kXR_authmore")
        .map(|frame| {
            let header = if text(frame, "dir") == "c2s" { 24 } else { 8 };
            bytes(text(frame, "hex"))[header..].to_vec()
        })
        .collect();
    let (mut last, mut checked) = (None::<Challenge>, 0);
    for (payload, decoded) in payloads.iter().zip(list(&connection["decoded"])) {
        let message = messages::decode(payload).unwrap();
        assert_eq!(u64::from(message.step), decoded["step"].as_u64().unwrap());
        let plain = bytes(text(decoded, "main_plain_hex"));
        let iv = bytes(text(decoded, "main_iv_hex")).try_into().unwrap();
        assert_eq!(message.field(SutField::MAIN).unwrap(), cipher.seal_with(iv, &plain));
        let main = messages::open_main(&message, &cipher).unwrap();
        assert!(main.is_equal(&plain));
        let main = messages::decode_main(main.expose(), message.step).unwrap();
        if let Some(challenge) = last {
            challenge.check_encrypted(&main, &cipher).unwrap();
        }
        last = Challenge::of_peer(&main);
        if message.step == step::CLIENT_NORMAL {
            let password = text(&vector["keys"], "password");
            assert!(credentials_of(password.as_bytes()).is_equal(main.field(CREDENTIALS).unwrap()));
        }
        checked += 1;
    }
    assert_eq!(checked, 3);
}

pub(super) struct Site {
    pub(super) server: PwdServer,
    pub(super) directory: PathBuf,
    /// The content of the file, which is not on the disk.
    pub(super) file: PwdFile,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn entry(name: &str, status: EntryStatus, buffers: [&[u8]; 2]) -> PwdEntry {
    let [one, two] = buffers.map(Secret::from);
    let buffers = [one, two, Secret::default(), Secret::default()];
    PwdEntry { name: name.to_owned(), status, count: 0, changed: 0, buffers }
}

fn file_of(key: &ServerKey) -> PwdFile {
    let mut file = PwdFile::default();
    file.set(entry(SERVER_ID, EntryStatus::SPECIAL, [b"lab\0", b""]));
    file.set(key.entry(0));
    for (user, status) in
        [("alice", EntryStatus::OK), ("bob", EntryStatus::DISABLED), ("eve", EntryStatus::ONE_TIME)]
    {
        let stored = StoredPassword::of_password(&Secret::from(&b"secret12"[..]), &mut SystemRng);
        file.set(entry(&format!("{user}_1"), status, stored.buffers()));
    }
    file
}

pub(super) fn site(name: &str) -> Site {
    site_with(name, FAILURES_MAX)
}

fn site_with(name: &str, failures_max: u32) -> Site {
    let directory = std::env::temp_dir().join(format!("scalla-pwd-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let settings = PwdServerSettings { file: directory.join("pwdadmin"), failures_max };
    let key = ServerKey::generate(&mut SystemRng).unwrap();
    let file = file_of(&key);
    Site { server: PwdServer::with_file(settings, file.clone()).unwrap(), directory, file }
}

pub(super) fn peer(last: u8) -> LoginPeer {
    LoginPeer {
        address: SocketAddr::from(([192, 0, 2, last], 4711)),
        host: "h".to_owned(),
        login_id: "x".to_owned(),
        is_tls: false,
    }
}

fn prompt(passwords: &[&str]) -> PasswordPrompt {
    let left =
        std::sync::Mutex::new(passwords.iter().map(|text| Secret::from(text.as_bytes())).collect::<Vec<_>>());
    Arc::new(move |_| {
        let mut left = left.lock().unwrap();
        (!left.is_empty()).then(|| left.remove(0))
    })
}

impl Site {
    pub(super) fn client(
        &self,
        user: &str,
        passwords: &[&str],
    ) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
        let known_keys = Some(self.directory.join("known/pwdsrvpuk"));
        let settings =
            PwdClientSettings { user: Some(user.to_owned()), known_keys, ..PwdClientSettings::default() };
        let offer =
            OfferedProtocol { id: "pwd".to_owned(), parameters: self.server.parameters().into_bytes() };
        let context = ClientContext::new("192.0.2.9:1".parse().unwrap(), "c", "server.example.org");
        PwdClient::new(settings, prompt(passwords)).begin(&offer, &context)
    }

    /// Returns the identity, or the reason why it is refused, and the number of requests.
    pub(super) fn log_in(&self, user: &str, passwords: &[&str]) -> (Result<Entity, String>, usize) {
        self.log_in_from(1, user, passwords)
    }

    fn log_in_from(&self, host: u8, user: &str, passwords: &[&str]) -> (Result<Entity, String>, usize) {
        let mut client = self.client(user, passwords).unwrap();
        let mut server = self.server.exchange(&peer(host));
        let mut challenge: Option<Vec<u8>> = None;
        for round in 1..10 {
            let credentials = match client.step(challenge.as_deref(), NOW) {
                Ok(credentials) => credentials,
                Err(error) => return (Err(error.to_string()), round),
            };
            let step = loop {
                match server.step(&credentials, NOW) {
                    ServerStep::Later => {
                        let (wake, woken) = std::sync::mpsc::channel();
                        server.wake_when_ready(Box::new(move || wake.send(()).unwrap()));
                        woken.recv().unwrap();
                    }
                    step => break step,
                }
            };
            match step {
                ServerStep::Done(entity) => return (Ok(entity), round),
                ServerStep::Continue(more) => challenge = Some(more),
                ServerStep::Refused(refused) => return (Err(refused.reason().to_owned()), round),
                ServerStep::Later => unreachable!(),
            }
        }
        panic!("it does not end");
    }
}

#[test]
fn a_client_remembers_the_key_of_the_server() {
    let mut site = site("remember");
    let (first, rounds) = site.log_in("alice", &["secret12"]);
    let entity = first.unwrap();
    assert_eq!((&*entity.protocol, entity.name.as_deref(), rounds), ("pwd", Some("alice"), 3));
    let (again, rounds) = site.log_in("alice", &["secret12"]);
    assert!(again.is_ok() && rounds == 2, "the key is known");
    // Another server of that name and id.
    let settings = PwdServerSettings { file: site.directory.join("pwdadmin"), failures_max: FAILURES_MAX };
    let key = ServerKey::generate(&mut SystemRng).unwrap();
    site.server = PwdServer::with_file(settings, file_of(&key)).unwrap();
    let (changed, _) = site.log_in("alice", &["secret12"]);
    let reason = changed.unwrap_err();
    assert!(reason.contains("is not the one of earlier logins"), "{reason}");
}

/// Whoever is between the peers could offer another id, for which no key is known.
#[test]
fn a_known_host_with_another_id_is_refused() {
    let site = site("second-id");
    assert!(site.log_in("alice", &["secret12"]).0.is_ok());
    let known_keys = Some(site.directory.join("known/pwdsrvpuk"));
    let settings =
        PwdClientSettings { user: Some("alice".to_owned()), known_keys, ..PwdClientSettings::default() };
    let client = PwdClient::new(settings, prompt(&[]));
    let begin = |id: &str, host: &str, is_tls| {
        let parameters = format!("v:10100,id:{id},c:ssl").into_bytes();
        let offer = OfferedProtocol { id: "pwd".to_owned(), parameters };
        let mut context = ClientContext::new("192.0.2.9:1".parse().unwrap(), "c", host);
        context.is_tls = is_tls;
        client.begin(&offer, &context).map(drop)
    };
    begin("lab", "server.example.org", false).unwrap();
    for id in ["other", "la", "lab_1", "LAB"] {
        let refused = begin(id, "server.example.org", false).unwrap_err();
        assert!(matches!(refused, ClientAuthError::UntrustedServer { .. }), "{id} {refused}");
        assert!(refused.to_string().contains("server.example.org:lab"), "{refused}");
        begin(id, "server.example.org", true).unwrap();
    }
    begin("other", "server.example.or", false).unwrap();
    begin("other", "other.example.org", false).unwrap();
}

#[test]
fn wrong_passwords_are_refused() {
    let site = site("wrong");
    assert!(site.log_in("alice", &["wrong", "secret12"]).0.is_ok(), "a mistyped password");
    // The address is locked after ten of them.
    let site = site_with("refused", 100);
    let refused = |user: &str, passwords: &[&str]| site.log_in(user, passwords).0.map(drop).unwrap_err();
    assert!(refused("alice", &["wrong", "wrong", "wrong"]).contains("wrong password"));
    assert!(refused("bob", &["secret12"; 3]).contains("the user is disabled"));
    assert!(refused("eve", &["wrong"; 3]).contains("wrong password"), "a password for one login");
    assert!(refused("nobody", &["secret12"; 3]).contains("unknown user"));
    assert!(refused("alice", &[]).contains("no password"));
}

#[test]
fn hosts_that_fail_too_often_are_locked() {
    let site = site("locked");
    for _ in 0..4 {
        assert!(site.log_in("alice", &["wrong"; 3]).0.is_err());
    }
    let (locked, _) = site.log_in("alice", &["secret12"; 3]);
    assert!(locked.unwrap_err().contains("too many failed attempts"));
    assert!(site.log_in_from(3, "alice", &["secret12"]).0.is_ok(), "another host");
    let mut later = site.server.exchange(&peer(2));
    let mut client = site.client("alice", &["secret12"]).unwrap();
    let after = NOW + Duration::from_secs(16 * 60);
    let ServerStep::Continue(more) = later.step(&client.step(None, after).unwrap(), after) else { panic!() };
    assert!(matches!(later.step(&client.step(Some(&more), after).unwrap(), after), ServerStep::Done(_)));
}

/// A check takes milliseconds, in which others could guess as well.
#[test]
fn guesses_at_the_same_time_are_as_many_as_one_after_the_other() {
    let site = site_with("parallel", 3);
    let site = &site;
    let reasons = |passwords: &'static [&'static str], count| {
        let log_in = |_| move || site.log_in("alice", passwords).0.err().unwrap_or_default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|number| scope.spawn(log_in(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        })
    };
    // Correct guesses wait for each other, and lock no user.
    assert_eq!(reasons(&["secret12"], 8), [""; 8]);
    let reasons = reasons(&["wrong"; 3], 8);
    assert!(reasons.iter().all(|reason| !reason.is_empty()), "{reasons:?}");
    let host = base::ClientHost::from(Some(peer(1).address.ip()));
    assert_eq!(site.server.failures_of(host), 3, "of 24 guesses");
}

/// Guesses of a host wait for the result of one, on no thread, and a login from elsewhere
/// does not.
#[test]
fn guesses_that_wait_need_no_thread() {
    // `guesses` has a test with more of them; here each one costs a key agreement.
    const WAITING: usize = 20;
    let site = site_with("waiting", 1);
    let guess = |host| {
        let (mut client, mut server) =
            (site.client("alice", &["wrong"]).unwrap(), site.server.exchange(&peer(host)));
        let mut credentials = client.step(None, NOW).unwrap();
        while let ServerStep::Continue(more) = server.step(&credentials, NOW) {
            credentials = client.step(Some(&more), NOW).unwrap();
        }
        (server, credentials)
    };
    assert!(site.log_in("alice", &["secret12"]).0.is_ok(), "the client knows the key");
    let running = site.server.begin_guess("alice", peer(1).address.ip());
    let mut guesses: Vec<_> = (0..WAITING).map(|_| guess(1)).collect();
    let (wake, woken) = std::sync::mpsc::channel();
    for (server, credentials) in &mut guesses {
        assert!(matches!(server.step(credentials, NOW), ServerStep::Later));
        let wake = wake.clone();
        server.wake_when_ready(Box::new(move || wake.send(()).unwrap()));
    }
    assert!(site.log_in_from(2, "alice", &["secret12"]).0.is_ok());
    assert!(woken.try_recv().is_err());
    drop(running);
    assert_eq!(woken.try_iter().count(), WAITING, "the guess has failed");
    for (mut server, credentials) in guesses {
        // The client is asked for another password, without a check of this one.
        assert!(matches!(server.step(&credentials, NOW), ServerStep::Continue(_)));
    }
    let host = base::ClientHost::from(Some(peer(1).address.ip()));
    assert_eq!(site.server.failures_of(host), 1);
}

/// Failures of many hosts lock a user, but not those of a host that can be stopped alone.
#[test]
fn users_that_fail_too_often_are_locked() {
    let site = site_with("locked-user", 1);
    for (count, user) in [(10, "alice"), (0, "eve")] {
        for host in 1..=count {
            assert!(site.log_in_from(host, user, &["wrong"]).0.is_err());
        }
        let (locked, _) = site.log_in_from(200, user, &["secret12"; 3]);
        let locked = locked.unwrap_err();
        assert_eq!(locked.contains("too many failed attempts"), count > 0, "{user}: {locked}");
    }
    // The right password, which must be changed, was no failure of the host.
    for _ in 0..3 {
        assert!(
            site.log_in_from(200, "eve", &["secret12"]).0.unwrap_err().contains("demands a new password")
        );
    }
}

/// Each step counts only where it is expected.
#[test]
fn steps_out_of_order_are_refused() {
    let site = site("order");
    let refused = |server: &mut dyn ServerLogin, message: &[u8]| match server.step(message, NOW) {
        ServerStep::Refused(refused) => refused.reason().to_owned(),
        other => panic!("{other:?}"),
    };
    // A recorded login is of no use, because the challenge is another one.
    let (mut client, mut first) =
        (site.client("alice", &["secret12"]).unwrap(), site.server.exchange(&peer(1)));
    let mut sent = vec![client.step(None, NOW).unwrap()];
    let ServerStep::Continue(key) = first.step(&sent[0], NOW) else { panic!() };
    sent.push(client.step(Some(&key), NOW).unwrap());
    let ServerStep::Continue(signed) = first.step(&sent[1], NOW) else { panic!() };
    sent.push(client.step(Some(&signed), NOW).unwrap());
    for message in &sent[1..] {
        let mut server = site.server.exchange(&peer(1));
        if message == &sent[1] {
            // The key of the client without an answer to a challenge is a beginning as well.
            assert!(matches!(server.step(message, NOW), ServerStep::Continue(_)));
            assert!(refused(&mut server, &sent[2]).contains("challenge is wrong"));
        } else {
            assert!(refused(&mut server, message).contains("not expected"));
        }
    }
    let mut server = site.server.exchange(&peer(1));
    assert!(matches!(server.step(&sent[0], NOW), ServerStep::Continue(_)));
    assert!(refused(&mut server, &sent[1]).contains("challenge is wrong"));
    assert!(matches!(first.step(&sent[2], NOW), ServerStep::Done(_)));
    assert!(refused(&mut first, &sent[2]).contains("not expected"));
    for step in [1002, 1005, 2001, 0, u32::MAX] {
        let mut server = site.server.exchange(&peer(1));
        let message = messages::begin(step).with(SutField::MAIN, b"").finish();
        assert!(refused(&mut server, &message).contains("not expected"), "{step}");
    }
}

/// Answers that differ would tell, byte by byte, what a recorded message contains.
#[test]
fn all_faults_of_a_first_message_have_the_same_answer() {
    let site = site("oracle");
    let mut server = site.server.exchange(&peer(1));
    let first = site.client("alice", &[]).unwrap().step(None, NOW).unwrap();
    let ServerStep::Continue(sent) = server.step(&first, NOW) else { panic!() };
    let main = messages::decode(&sent).unwrap().field(SutField::MAIN).unwrap().to_vec();
    let main = messages::decode_main(&main, step::SERVER_KEY).unwrap();
    let key = messages::without_module(main.field(SutField::PUBLIC_KEY).unwrap()).unwrap();
    let own = KeyAgreement::generate(DhGroup::named().unwrap(), &mut SystemRng).unwrap();
    let cipher = PwdCipher::new(&own.agree(&PeerAgreement::decode(key).unwrap()).unwrap()).unwrap();

    let main = || messages::begin_main(step::CLIENT_VERIFIES_SERVER).with(STATUS, &[1, 2, 3, 4]);
    let valid = main().with(SutField::CHALLENGE, b"abcdefgh").finish();
    let mut bad_padding = cipher.seal(&valid);
    bad_padding.truncate(bad_padding.len() - 8);
    assert!(cipher.open(&bad_padding).is_none());
    let of_step = |step| messages::begin_main(step).with(SutField::CHALLENGE, b"abcdefgh").finish();
    let faults = [
        ("padding", bad_padding),
        ("length", cipher.seal(&valid)[1..].to_vec()),
        ("content", cipher.seal(b"other")),
        ("empty", cipher.seal(b"")),
        ("step", cipher.seal(&of_step(step::CLIENT_NORMAL))),
        ("no challenge", cipher.seal(&main().finish())),
        ("challenge", cipher.seal(&main().with(SutField::CHALLENGE, b"abc\0defg").finish())),
        (
            "user",
            cipher.seal(&main().with(SutField::CHALLENGE, b"abcdefgh").with(SutField::USER, b"/").finish()),
        ),
    ];
    let answer = |main: &[u8]| {
        let message = messages::begin(step::CLIENT_VERIFIES_SERVER)
            .with(SutField::PUBLIC_KEY, own.text().as_bytes())
            .with(SutField::MAIN, main)
            .finish();
        match site.server.exchange(&peer(1)).step(&message, NOW) {
            ServerStep::Continue(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
    for (fault, main) in faults {
        let answer = answer(&main);
        let answer = messages::decode(&answer).unwrap();
        assert_eq!(answer.step, step::SERVER_NEW_KEY, "{fault}");
        let main = messages::decode_main(answer.field(SutField::MAIN).unwrap(), answer.step).unwrap();
        assert!(Challenge::of_peer(&main).is_some(), "{fault}");
        let fields: Vec<_> = main.fields().filter(|(field, _)| *field != SutField::CHALLENGE).collect();
        let sent = messages::with_module(std::str::from_utf8(key).unwrap());
        assert_eq!(fields, [(SutField::PUBLIC_KEY, &sent[..]), (STATUS, &[0; 4][..])], "{fault}");
    }
    let right = answer(&cipher.seal(&valid));
    assert_eq!(messages::decode(&right).unwrap().step, step::SERVER_SIGNED_CHALLENGE);
}

#[test]
fn changed_and_shortened_messages_log_nobody_in() {
    let site = site("changed");
    let mut client = site.client("alice", &["secret12"]).unwrap();
    let first = client.step(None, NOW).unwrap();
    for length in 0..first.len() {
        let mut server = site.server.exchange(&peer(1));
        assert!(matches!(server.step(&first[..length], NOW), ServerStep::Refused(_)), "{length}");
    }
    let mut server = site.server.exchange(&peer(1));
    let ServerStep::Continue(key) = server.step(&first, NOW) else { panic!() };
    let second = client.step(Some(&key), NOW).unwrap();
    let ServerStep::Continue(signed) = server.step(&second, NOW) else { panic!() };
    let mut third = client.step(Some(&signed), NOW).unwrap();
    let last = third.len() - 5;
    third[last] ^= 1;
    assert!(!matches!(server.step(&third, NOW), ServerStep::Done(_)));
}

#[test]
fn a_malformed_server_is_left() {
    let site = site("malformed");
    let mut client = site.client("alice", &["secret12"]).unwrap();
    client.step(None, NOW).unwrap();
    assert!(client.step(Some(b"pwd\0"), NOW).is_err());
    for parameters in ["", "v:10100,c:ssl", "v:10100,id:x", "v:10100,id:x,c:other", "id:,c:ssl"] {
        let offer = OfferedProtocol { id: "pwd".to_owned(), parameters: parameters.as_bytes().to_vec() };
        let context = ClientContext::new("192.0.2.9:1".parse().unwrap(), "c", "s");
        let settings = PwdClientSettings { user: Some("alice".to_owned()), ..PwdClientSettings::default() };
        assert!(PwdClient::new(settings, prompt(&[])).begin(&offer, &context).is_err(), "{parameters}");
    }
}

#[test]
fn names_of_users() {
    for name in ["alice", "_x", "a.b@c-d$", "0"] {
        assert!(is_user_name(name), "{name}");
    }
    for name in ["", "-x", "+++SrvID", "a b", "a/b", "a\0", "é", &"a".repeat(65)] {
        assert!(!is_user_name(name), "{name}");
    }
    assert!(SutMessage::decode("gsi", b"pwd\0").is_err());
}
