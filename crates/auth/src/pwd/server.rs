//! [`PwdServer`]: the server's side of `pwd`.
//!
//! ```text
//! client                                    server
//! user (if it knows no key)              -->
//!                                       <--  key, tag 1
//! key; encrypted: answer to tag 1, tag 2 -->
//!                                       <--  encrypted: answer to tag 2, tag 3
//! encrypted: answer to tag 3, user,      -->
//! hash of the password
//!                                       <--  encrypted: request for a new password, if it must change
//! encrypted: hash of the new password   -->  (twice, see `change`)
//! ```
//!
//! A client that knows the key of the server begins with its own. The hash of a password is checked
//! only after the client has answered a challenge with the session key, so that a recorded message
//! cannot be used again. Each message counts only where it is expected. Users do not register themselves:
//! the administrator gives them a password for one login, in which they choose their own.

use super::change::{ChangeStep, PasswordChange};
use super::cipher::PwdCipher;
use super::failures::{GuessOutcome, PasswordGuess};
use super::file::{PwdEntry, PwdFile};
use super::guesses::{GuessStart, PasswordGuesses, WaitingGuess};
use super::messages::{self, CREDENTIALS, RequestedPassword, STATUS, STATUS_BYTES, VERSION, step};
use super::users::{PasswordFault, PwdUsers, VerifiedPassword, is_user_name};
use super::{MODULE_SUFFIX, PWD, unix_seconds};
use crate::challenge::Challenge;
use crate::entity::{Entity, EntityFields};
use crate::random::SystemRng;
use crate::replaced_file::directory_of;
use crate::secret::Secret;
use crate::server::{
    FileRefresh, LoginPeer, LoginWaker, RefusedLogin, ServerLogin, ServerProtocol, ServerStep, StepCost,
};
use crate::sut::{SutField, SutMessage};
use base::ClientHost;
use rustix::fs::{Access, access};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// Minimum length of credentials: id, step, end, and two fields.
const CREDENTIAL_BYTES_MIN: usize = 4 + 4 + 4 + 2 * 8;

/// Maximum time between the first and the last message. Users type their passwords meanwhile. It is
/// that of a whole login, after which sessions end.
const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(60);

/// Number of passwords that a client can send in one exchange.
const PASSWORDS_MAX: u32 = 3;

/// Interval at which the file is read again.
const REFRESH: Duration = Duration::from_secs(60);

/// The settings of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PwdServerSettings {
    /// The file with the key of the server and the hashes of passwords.
    pub file: PathBuf,
    /// Number of failed attempts from a host after which its logins are refused for a while. Those of
    /// a user are refused for all hosts after ten times as many.
    pub failures_max: u32,
}

/// `pwd` as a server offers it.
pub struct PwdServer(Arc<PwdShared>);

struct PwdShared {
    settings: PwdServerSettings,
    users: RwLock<Arc<PwdUsers>>,
    guesses: Arc<PasswordGuesses>,
    /// The reason why the present file is not in force, if it is not.
    refusal: Mutex<Option<String>>,
}

impl PwdServer {
    /// Reads the file.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn open(settings: PwdServerSettings) -> Result<Self, String> {
        let users = PwdUsers::read(&settings.file)?;
        Ok(Self::with_users(settings, users))
    }

    /// Creates a server with the content of a file, which is not read until the first refresh.
    ///
    /// # Errors
    /// The reason why the content cannot be used.
    pub fn with_file(settings: PwdServerSettings, file: PwdFile) -> Result<Self, String> {
        Ok(Self::with_users(settings, PwdUsers::of_file(file)?))
    }

    fn with_users(settings: PwdServerSettings, users: PwdUsers) -> Self {
        let guesses = PasswordGuesses::new(settings.failures_max);
        Self(Arc::new(PwdShared {
            settings,
            users: RwLock::new(Arc::new(users)),
            guesses,
            refusal: Mutex::default(),
        }))
    }

    #[cfg(test)]
    pub(super) fn failures_of(&self, host: ClientHost) -> u32 {
        self.0.guesses.failures_of(host)
    }

    #[cfg(test)]
    pub(super) fn begin_guess(&self, user: &str, host: std::net::IpAddr) -> super::guesses::GuessStart {
        let guess = PasswordGuess { user, is_user: true, host: ClientHost::from(Some(host)) };
        self.0.guesses.begin(guess, SystemTime::UNIX_EPOCH)
    }

    pub(super) fn exchange(&self, peer: &LoginPeer) -> PwdServerLogin {
        let stage = PwdServerStage::Begin;
        PwdServerLogin {
            shared: self.0.clone(),
            peer: peer.clone(),
            stage,
            user: None,
            status: [0; STATUS_BYTES],
            begun: None,
            waiting: None,
        }
    }
}

impl PwdShared {
    fn users(&self) -> Arc<PwdUsers> {
        self.users.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_users(&self, users: PwdUsers) {
        let names: HashSet<&str> =
            users.file.entries().iter().filter_map(|e| e.name.strip_suffix(MODULE_SUFFIX)).collect();
        self.guesses.retain_users(|user| names.contains(user));
        *self.users.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(users);
    }

    /// Replaces a password by the one that the user has chosen. Blocks.
    fn store(&self, change: &PasswordChange, chosen: &Secret, now: SystemTime) -> Result<(), String> {
        let file = change.store(&self.settings.file, chosen, unix_seconds(now))?;
        self.set_users(PwdUsers::of_file(file)?);
        Ok(())
    }

    fn refresh(&self) -> Result<(), String> {
        let users = PwdUsers::read(&self.settings.file);
        let refusal =
            users.as_ref().err().map(|error| format!("the previous passwords stay in use: {error}"));
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&refusal);
        match users {
            Ok(users) => {
                self.set_users(users);
                Ok(())
            }
            Err(_) => Err(refusal.unwrap_or_default()),
        }
    }
}

impl ServerProtocol for PwdServer {
    fn id(&self) -> &'static str {
        PWD
    }

    fn parameters(&self) -> String {
        format!("v:{VERSION},id:{},c:{}", self.0.users().id, messages::CRYPTO_MODULE)
    }

    fn credential_bytes_min(&self) -> usize {
        CREDENTIAL_BYTES_MIN
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        Box::new(self.exchange(peer))
    }

    fn periodic_refreshes(&self) -> Vec<FileRefresh> {
        let shared = self.0.clone();
        vec![FileRefresh::new(REFRESH, move || shared.refresh())]
    }

    fn warnings(&self, _now: SystemTime, _soon: Duration) -> Vec<String> {
        let (users, path) = (self.0.users(), &self.0.settings.file);
        let (entries, shown) = (users.file.entries(), path.display());
        if !entries.iter().any(PwdEntry::accepts_password) {
            return vec![format!(
                "{shown} has no user with a password, so no client can authenticate by pwd"
            )];
        }
        let directory = directory_of(path);
        if entries.iter().any(PwdEntry::must_change) && access(directory, Access::WRITE_OK).is_err() {
            return vec![format!(
                "users of {shown} who must choose a password cannot log in, because the server's user \
                 cannot write to {}",
                directory.display()
            )];
        }
        Vec::new()
    }

    fn state(&self) -> String {
        let users = self.0.users();
        let count = users.file.entries().iter().filter(|entry| entry.accepts_password()).count();
        let state = format!("pwd: {count} users in {}", self.0.settings.file.display());
        match self.0.refusal.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(refusal) => format!("{state}; {refusal}"),
            None => state,
        }
    }
}

/// The next message that is expected.
enum PwdServerStage {
    /// The first one.
    Begin,
    /// The key of a client that was sent the key of the server.
    ClientKey(Challenge),
    /// The hash of the password, with the answer to a challenge.
    Credentials { cipher: PwdCipher, challenge: Challenge, passwords: u32 },
    /// The hash of a new password, with the answer to a challenge.
    NewPassword { cipher: PwdCipher, challenge: Challenge, change: PasswordChange },
    /// None.
    Over,
}

/// An exchange with one peer.
pub(super) struct PwdServerLogin {
    shared: Arc<PwdShared>,
    peer: LoginPeer,
    stage: PwdServerStage,
    /// The user of the first message that has one. It cannot change.
    user: Option<String>,
    status: [u8; STATUS_BYTES],
    begun: Option<SystemTime>,
    /// Set while the check of the password depends on those of others.
    waiting: Option<WaitingGuess>,
}

impl ServerLogin for PwdServerLogin {
    fn cost(&self) -> StepCost {
        StepCost::Expensive
    }

    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep {
        let step = self.take(credentials, now);
        step.unwrap_or_else(|reason| ServerStep::Refused(RefusedLogin::new(PWD, reason)))
    }

    fn wake_when_ready(&mut self, waker: LoginWaker) {
        match &self.waiting {
            Some(waiting) => waiting.wake_when_decided(waker),
            None => waker(),
        }
    }
}

impl PwdServerLogin {
    fn take(&mut self, credentials: &[u8], now: SystemTime) -> Result<ServerStep, String> {
        let begun = *self.begun.get_or_insert(now);
        if now.duration_since(begun).is_ok_and(|since| since > EXCHANGE_TIME_MAX) {
            return Err("the exchange took too long".to_owned());
        }
        let message = messages::decode(credentials)?;
        match (std::mem::replace(&mut self.stage, PwdServerStage::Over), message.step) {
            (PwdServerStage::Begin, step::CLIENT_KNOWS_NO_KEY) => {
                let main = message.field(SutField::MAIN).ok_or("the inner message is missing")?;
                let main = messages::decode_main(main, message.step)?;
                self.note_client(&main)?;
                Ok(self.send_key(step::SERVER_KEY))
            }
            (PwdServerStage::Begin, step::CLIENT_VERIFIES_SERVER) => self.take_key(&message, None),
            (PwdServerStage::ClientKey(challenge), step::CLIENT_VERIFIES_SERVER) => {
                self.take_key(&message, Some(challenge))
            }
            (
                PwdServerStage::Credentials { cipher, challenge, passwords },
                step::CLIENT_NORMAL | step::CLIENT_CREDENTIALS,
            ) => self.take_password(&message, cipher, challenge, passwords, now),
            (PwdServerStage::NewPassword { cipher, challenge, change }, step::CLIENT_CREDENTIALS) => {
                self.take_new_password(&message, cipher, &challenge, change, now)
            }
            (_, step) => Err(format!("step {step} is not expected")),
        }
    }

    /// Notes the user and the status of a client, or nothing if there is a fault.
    fn note_client(&mut self, main: &SutMessage<'_>) -> Result<(), String> {
        if let Some(user) = main.text(SutField::USER) {
            if !is_user_name(user) {
                return Err("the name of the user is malformed".to_owned());
            }
            if self.user.as_ref().is_some_and(|known| known != user) {
                return Err("the user has changed".to_owned());
            }
            self.user = Some(user.to_owned());
        }
        self.status = messages::status_of(main);
        Ok(())
    }

    /// Sends the key of the server to a client that does not know it.
    fn send_key(&mut self, step: u32) -> ServerStep {
        let challenge = Challenge::random(&mut SystemRng);
        let main = messages::begin_main(step)
            .with(SutField::PUBLIC_KEY, &messages::with_module(&self.shared.users().key.text()))
            .with(STATUS, &self.status)
            .with(SutField::CHALLENGE, challenge.as_bytes())
            .finish();
        self.stage = PwdServerStage::ClientKey(challenge);
        ServerStep::Continue(messages::begin(step).with(SutField::MAIN, &main).finish())
    }

    /// Takes the key of a client, and answers its challenge. `sent` is the challenge of the server, if
    /// it has sent its key. A client that knows another key than that of the server gets the key.
    ///
    /// A recorded first message can be sent again, changed, as often as somebody likes. So all faults
    /// of its inner message have one answer, and nothing of that message is in it.
    fn take_key(&mut self, message: &SutMessage<'_>, sent: Option<Challenge>) -> Result<ServerStep, String> {
        let key = message.field(SutField::PUBLIC_KEY).ok_or("the key of the client is missing")?;
        let begun = self.begin_session(message, key, sent.as_ref());
        let (cipher, tag) = match (begun, sent) {
            (Err(_), None) => return Ok(self.send_key(step::SERVER_NEW_KEY)),
            (begun, _) => begun?,
        };
        let challenge = Challenge::random(&mut SystemRng);
        let main = messages::begin_main(step::SERVER_SIGNED_CHALLENGE)
            .with(SutField::SIGNED_CHALLENGE, &cipher.seal(tag.as_bytes()))
            .with(STATUS, &self.status)
            .with(SutField::CHALLENGE, challenge.as_bytes())
            .finish();
        let reply = messages::begin(step::SERVER_SIGNED_CHALLENGE).with(SutField::MAIN, &cipher.seal(&main));
        self.stage = PwdServerStage::Credentials { cipher, challenge, passwords: 0 };
        Ok(ServerStep::Continue(reply.finish()))
    }

    /// Returns the cipher of a session with the key of a client, and the challenge of the client. The
    /// client is noted only if there is no fault.
    fn begin_session(
        &mut self,
        message: &SutMessage<'_>,
        key: &[u8],
        sent: Option<&Challenge>,
    ) -> Result<(PwdCipher, Challenge), String> {
        let secret = self.shared.users().key.agree(key)?;
        let cipher = PwdCipher::new(&secret).ok_or("the session key is empty")?;
        let main = messages::open_main(message, &cipher)?;
        let main = messages::decode_main(main.expose(), message.step)?;
        if let Some(sent) = sent {
            sent.check_encrypted(&main, &cipher)?;
        }
        let tag = Challenge::of_peer(&main).ok_or("the challenge of the client is missing or malformed")?;
        self.note_client(&main)?;
        Ok((cipher, tag))
    }

    /// Checks that a message answers the challenge of this server, and returns the user of the login.
    fn user_of_answer(
        &mut self,
        main: &SutMessage<'_>,
        challenge: &Challenge,
        cipher: &PwdCipher,
    ) -> Result<String, String> {
        challenge.check_encrypted(main, cipher)?;
        self.note_client(main)?;
        self.user.clone().ok_or_else(|| "the user is missing".to_owned())
    }

    /// Takes the hash of a password. The client can send a few, because users mistype them.
    fn take_password(
        &mut self,
        message: &SutMessage<'_>,
        cipher: PwdCipher,
        challenge: Challenge,
        passwords: u32,
        now: SystemTime,
    ) -> Result<ServerStep, String> {
        let main = messages::open_main(message, &cipher)?;
        let main = messages::decode_main(main.expose(), message.step)?;
        let user = self.user_of_answer(&main, &challenge, &cipher)?;
        let Some(result) = self.check(&user, &main, now) else {
            self.stage = PwdServerStage::Credentials { cipher, challenge, passwords };
            return Ok(ServerStep::Later);
        };
        let reason = match result {
            Ok(VerifiedPassword::Current) => return Ok(self.done(user)),
            Ok(VerifiedPassword::MustChange(entry)) if messages::answers_requests(self.status) => {
                let status = RequestedPassword::status(self.status, RequestedPassword::New);
                let text = "the password must be changed";
                let (challenge, step) = request_password(&main, &cipher, status, text);
                let change = PasswordChange::of_entry(*entry);
                self.stage = PwdServerStage::NewPassword { cipher, challenge, change };
                return Ok(step);
            }
            Ok(VerifiedPassword::MustChange(_)) => {
                return Err(format!("{user}: {}", PasswordFault::Expired));
            }
            Err(reason) => reason,
        };
        let passwords = passwords + 1;
        if passwords >= PASSWORDS_MAX {
            return Err(format!("{user}: {reason}"));
        }
        tracing::info!("pwd: {user} from {}: {reason}; the client is asked again", self.peer.host);
        let (challenge, step) = request_password(&main, &cipher, self.status, "insufficient credentials");
        self.stage = PwdServerStage::Credentials { cipher, challenge, passwords };
        Ok(step)
    }

    /// Takes the hash of a new password from a user who has proved the present one.
    fn take_new_password(
        &mut self,
        message: &SutMessage<'_>,
        cipher: PwdCipher,
        challenge: &Challenge,
        mut change: PasswordChange,
        now: SystemTime,
    ) -> Result<ServerStep, String> {
        let main = messages::open_main(message, &cipher)?;
        let main = messages::decode_main(main.expose(), message.step)?;
        let user = self.user_of_answer(&main, challenge, &cipher)?;
        let failed = |reason: &str| format!("{user}: the password was not changed: {reason}");
        let credentials = main.field(CREDENTIALS).unwrap_or_default();
        match change.take(credentials).map_err(failed)? {
            ChangeStep::Ask(kind, text) => {
                let status = RequestedPassword::status(self.status, kind);
                let (challenge, step) = request_password(&main, &cipher, status, text);
                self.stage = PwdServerStage::NewPassword { cipher, challenge, change };
                Ok(step)
            }
            ChangeStep::Chosen(chosen) => {
                self.shared.store(&change, &chosen, now).map_err(|reason| failed(&reason))?;
                tracing::info!("pwd: {user} from {} has a new password", self.peer.host);
                Ok(self.done(user))
            }
        }
    }

    fn done(&self, user: String) -> ServerStep {
        let (name, host) = (Some(user.into_boxed_str()), self.peer.host.as_str().into());
        let fields = EntityFields { protocol: PWD.into(), name, host, ..EntityFields::default() };
        ServerStep::Done(Entity::new(fields))
    }

    /// Checks the hash in a message, unless the user or the host has failed too often. Returns `None` if
    /// this depends on guesses that are being checked.
    fn check(
        &mut self,
        user: &str,
        main: &SutMessage<'_>,
        now: SystemTime,
    ) -> Option<Result<VerifiedPassword, PasswordFault>> {
        let host = ClientHost::from(Some(self.peer.address.ip()));
        // Hashing takes milliseconds, so it is not done with the lock.
        let users = self.shared.users();
        let start = match self.waiting.take().filter(|waiting| waiting.user() == user) {
            Some(waiting) => waiting.resume(now),
            None => {
                let guess = PasswordGuess { user, is_user: users.entry_of(user).is_some(), host };
                self.shared.guesses.begin(guess, now)
            }
        };
        let mut running = match start {
            GuessStart::Begun(running) => running,
            GuessStart::Waits(waiting) => {
                self.waiting = Some(waiting);
                return None;
            }
            GuessStart::Locked => return Some(Err(PasswordFault::Locked)),
        };
        let credentials = main.field(CREDENTIALS).ok_or(PasswordFault::Missing);
        let result = credentials.and_then(|credentials| users.check(user, credentials));
        running.set_outcome(match &result {
            Ok(VerifiedPassword::Current) => GuessOutcome::LoggedIn,
            // The user knows the password, or there is none, so nobody guesses.
            Ok(VerifiedPassword::MustChange(_)) | Err(PasswordFault::Missing) => GuessOutcome::NotCounted,
            Err(_) => GuessOutcome::Failed,
        });
        Some(result)
    }
}

/// Returns the message that asks a client for a password, and its challenge. `of_client` is the message
/// of the client that it answers.
fn request_password(
    of_client: &SutMessage<'_>,
    cipher: &PwdCipher,
    status: [u8; STATUS_BYTES],
    text: &str,
) -> (Challenge, ServerStep) {
    let challenge = Challenge::random(&mut SystemRng);
    let mut main = messages::begin_main(step::SERVER_WANTS_CREDENTIALS);
    if let Some(tag) = Challenge::of_peer(of_client) {
        main = main.with(SutField::SIGNED_CHALLENGE, &cipher.seal(tag.as_bytes()));
    }
    let main = main
        .with(STATUS, &status)
        .with(SutField::CHALLENGE, challenge.as_bytes())
        .with(SutField::MESSAGE, format!("{text}\0").as_bytes())
        .finish();
    let message = messages::begin(step::SERVER_WANTS_CREDENTIALS).with(SutField::MAIN, &cipher.seal(&main));
    (challenge, ServerStep::Continue(message.finish()))
}
