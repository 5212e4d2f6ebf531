//! [`PwdClient`]: the client's side of `pwd`.
//!
//! The client remembers the key of each server at the first login, and refuses a server whose key has
//! changed. The hash of the password is sent only after the server has answered a challenge with the
//! session key.

use super::cipher::PwdCipher;
use super::hash::credentials_of;
use super::known_keys::{KnownKeys, KnownServer};
use super::messages::{self, CREDENTIALS, RequestedPassword, STATUS, STATUS_BYTES, TIMESTAMP, VERSION, step};
use super::netrc::password_of;
use super::{PWD, unix_seconds};
use crate::challenge::Challenge;
use crate::client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
use crate::gsi::agreement::{KeyAgreement, PRIME_BITS_MIN, PeerAgreement, WEAK_PRIME_BITS_MIN};
use crate::offers::OfferedProtocol;
use crate::random::SystemRng;
use crate::secret::Secret;
use crate::sut::{SutField, SutMessage, SutWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The variable that accepts servers with a small group.
const WEAK_GROUPS_VARIABLE: &str = "SCALLA_PWD_WEAK_DH";

/// Number of passwords that a user is asked for.
const PROMPTS_MAX: u32 = 3;

/// The status of a client. The option 0x0080 means that it answers further messages.
const OWN_STATUS: [u8; 4] = [0x00, 0x80, 0, 0];

/// Asks the user for a password at a terminal; `None` without a terminal or an answer. It blocks.
pub type PasswordPrompt = Arc<dyn Fn(&str) -> Option<Secret> + Send + Sync>;

/// The settings of a client.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PwdClientSettings {
    /// The user, unless the URL names one.
    pub user: Option<String>,
    /// The file with the keys of known servers.
    pub known_keys: Option<PathBuf>,
    /// A file with passwords.
    pub netrc: Option<PathBuf>,
    /// Servers with a key agreement in a small group are accepted. A recorded connection then reveals
    /// the hash of the password, which is sufficient for a login.
    pub accepts_weak_groups: bool,
}

impl PwdClientSettings {
    /// Takes the settings from the environment.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = || value("HOME").map(|home| Path::new(&home).join(".xrd/pwdsrvpuk"));
        Self {
            user: value("XrdSecUSER"),
            known_keys: value("XrdSecPWDSRVPUK").map(PathBuf::from).or_else(home),
            netrc: value("XrdSecNETRC").map(PathBuf::from),
            accepts_weak_groups: value(WEAK_GROUPS_VARIABLE).as_deref() == Some("1"),
        }
    }
}

/// `pwd` as a client supports it.
#[derive(Clone)]
pub struct PwdClient {
    settings: Arc<PwdClientSettings>,
    prompt: PasswordPrompt,
}

impl PwdClient {
    /// Creates the protocol of a user.
    #[must_use]
    pub fn new(settings: PwdClientSettings, prompt: PasswordPrompt) -> Self {
        Self { settings: Arc::new(settings), prompt }
    }
}

impl ClientProtocol for PwdClient {
    fn id(&self) -> &'static str {
        PWD
    }

    fn begin(
        &self,
        offer: &OfferedProtocol,
        context: &ClientContext,
    ) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
        let server_id = offered_id(&offer.parameters).ok_or(ClientAuthError::BadChallenge("offer of pwd"))?;
        let user = context.user.clone().or_else(|| self.settings.user.clone());
        let user =
            user.ok_or_else(|| no_credentials("no user is named", "name one in XrdSecUSER or the URL"))?;
        let keys = self.settings.known_keys.as_deref().map(KnownKeys::new);
        let known = match &keys {
            Some(keys) => known_key(keys, context, &server_id)?,
            None => None,
        };
        let server = format!("{}:{server_id}", context.server_host);
        Ok(Box::new(PwdClientLogin {
            settings: self.settings.clone(),
            prompt: self.prompt.clone(),
            host: context.server_host.clone(),
            server,
            user,
            keys,
            known,
            is_tls: context.is_tls,
            stage: PwdClientStage::Begin,
        }))
    }
}

/// Returns the key of a server, if it is known. Nothing proves the id that a server offers, so a new id
/// must not make a known host a new one.
fn known_key(
    keys: &KnownKeys,
    context: &ClientContext,
    server_id: &str,
) -> Result<Option<Vec<u8>>, ClientAuthError> {
    let host = &context.server_host;
    let known = keys.find(host, server_id).map_err(|reason| {
        no_credentials(reason, "repair or remove the file, or name another one in XrdSecPWDSRVPUK")
    })?;
    match known {
        KnownServer::Key(key) => Ok(Some(key)),
        KnownServer::OtherId(other) if !context.is_tls => Err(untrusted(
            format!("the id '{server_id}' of the server {host} is new; a key of {other} is known"),
            "use TLS (roots://); or ask its administrator, and remove the file ~/.xrd/pwdsrvpuk, or the one \
             that XrdSecPWDSRVPUK names",
        )),
        KnownServer::OtherId(_) | KnownServer::Nothing => Ok(None),
    }
}

/// Returns the id of the server in its parameters `v:<version>,id:<id>,c:<modules>`.
fn offered_id(parameters: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(parameters).ok()?;
    let value = |key: &str| text.split(',').find_map(|part| part.strip_prefix(key)?.strip_prefix(':'));
    value("c")?.split('|').any(|module| module == messages::CRYPTO_MODULE).then_some(())?;
    let id = value("id")?;
    (!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic())).then(|| id.to_owned())
}

fn no_credentials(reason: impl Into<String>, remedy: &str) -> ClientAuthError {
    ClientAuthError::NoCredentials { reason: reason.into(), remedy: remedy.to_owned() }
}

fn untrusted(reason: impl Into<String>, remedy: &str) -> ClientAuthError {
    ClientAuthError::UntrustedServer { reason: reason.into(), remedy: remedy.to_owned() }
}

/// Returns the error for a message of the server that is not according to the protocol.
fn violation(reason: impl Into<String>) -> ClientAuthError {
    untrusted(reason, "the server, or somebody between, does not keep to the protocol; use another server")
}

/// The message of the server that is expected.
enum PwdClientStage {
    Begin,
    /// The key of a server that is not known.
    ServerKey,
    /// The answer to a challenge.
    SignedChallenge {
        cipher: PwdCipher,
        challenge: Challenge,
        /// The key, if it is new.
        new_key: Option<Vec<u8>>,
    },
    /// Another request for a password.
    NextPassword {
        cipher: PwdCipher,
        prompts: u32,
    },
    /// Another request for a new password.
    NewPassword {
        cipher: PwdCipher,
        password: Secret,
        changes: u32,
    },
    Over,
}

struct PwdClientLogin {
    settings: Arc<PwdClientSettings>,
    prompt: PasswordPrompt,
    host: String,
    /// Host and id of the server.
    server: String,
    user: String,
    keys: Option<KnownKeys>,
    /// The key of the server, if it is known.
    known: Option<Vec<u8>>,
    is_tls: bool,
    stage: PwdClientStage,
}

impl ClientLogin for PwdClientLogin {
    fn step(&mut self, challenge: Option<&[u8]>, now: SystemTime) -> Result<Vec<u8>, ClientAuthError> {
        match (std::mem::replace(&mut self.stage, PwdClientStage::Over), challenge) {
            (PwdClientStage::Begin, None) => match self.known.clone() {
                Some(key) => self.send_key(&key, None, now),
                None => Ok(self.ask_for_key(now)),
            },
            (PwdClientStage::ServerKey, Some(message)) => self.take_key(message, now),
            (PwdClientStage::SignedChallenge { cipher, challenge, new_key }, Some(message)) => {
                self.send_password(message, cipher, challenge, new_key, now)
            }
            (PwdClientStage::NextPassword { cipher, prompts }, Some(message)) => {
                self.send_next_password(message, cipher, prompts, now)
            }
            (PwdClientStage::NewPassword { cipher, password, changes }, Some(message)) => {
                self.send_new_password(message, cipher, password, changes, now)
            }
            _ => Err(ClientAuthError::TooManySteps),
        }
    }
}

impl PwdClientLogin {
    /// Asks for the key of a server that is not known.
    fn ask_for_key(&mut self, now: SystemTime) -> Vec<u8> {
        let main = messages::begin_main(step::CLIENT_KNOWS_NO_KEY)
            .with_number(SutField::VERSION, VERSION)
            .with(SutField::USER, self.user.as_bytes())
            .with(STATUS, &OWN_STATUS);
        let main = with_time(main, now).finish();
        self.stage = PwdClientStage::ServerKey;
        messages::begin(step::CLIENT_KNOWS_NO_KEY).with(SutField::MAIN, &main).finish()
    }

    /// Takes the key of a server that was not known.
    fn take_key(&mut self, message: &[u8], now: SystemTime) -> Result<Vec<u8>, ClientAuthError> {
        let message = messages::decode(message).map_err(violation)?;
        if message.step != step::SERVER_KEY {
            return Err(violation(format!("step {} is not expected", message.step)));
        }
        let main = message.field(SutField::MAIN).ok_or_else(|| violation("the key is missing"))?;
        let main = messages::decode_main(main, message.step).map_err(violation)?;
        let key = main.field(SutField::PUBLIC_KEY).and_then(messages::without_module);
        let key = key.ok_or_else(|| violation("the key of the server is missing or malformed"))?;
        let challenge = Challenge::of_peer(&main).ok_or_else(|| violation("the challenge is missing"))?;
        if !self.is_tls {
            tracing::warn!(
                "the key of the server {} is not known, so the connection does not prove the server",
                self.server
            );
        }
        self.send_key(key, Some(challenge), now)
    }

    /// Sends the key of this exchange. `challenge` is that of a server whose key was not known.
    fn send_key(
        &mut self,
        key: &[u8],
        challenge: Option<Challenge>,
        now: SystemTime,
    ) -> Result<Vec<u8>, ClientAuthError> {
        let peer = PeerAgreement::decode(key).map_err(|error| violation(error.to_string()))?;
        let bits_min = if self.settings.accepts_weak_groups { WEAK_PRIME_BITS_MIN } else { PRIME_BITS_MIN };
        let group = peer.safe_group(bits_min, &mut SystemRng).map_err(|error| {
            untrusted(
                format!("{}: {error}", self.host),
                "ask its administrator for a new key, or set SCALLA_PWD_WEAK_DH=1",
            )
        })?;
        let agreement = KeyAgreement::generate(group, &mut SystemRng);
        let agreement = agreement.ok_or_else(|| violation("no key pair for its group"))?;
        let secret = agreement.agree(&peer).map_err(|error| violation(error.to_string()))?;
        let cipher = PwdCipher::new(&secret).ok_or_else(|| violation("the session key is empty"))?;
        let own = Challenge::random(&mut SystemRng);
        let mut main = messages::begin_main(step::CLIENT_VERIFIES_SERVER);
        let new_key = challenge.is_some().then(|| key.to_vec());
        if let Some(challenge) = challenge {
            main = main.with(SutField::SIGNED_CHALLENGE, &cipher.seal(challenge.as_bytes()));
        }
        let main = main.with_number(SutField::VERSION, VERSION).with(STATUS, &OWN_STATUS);
        let main = with_time(main, now).with(SutField::CHALLENGE, own.as_bytes()).finish();
        let message = messages::begin(step::CLIENT_VERIFIES_SERVER)
            .with(SutField::PUBLIC_KEY, agreement.text().as_bytes())
            .with(SutField::MAIN, &cipher.seal(&main));
        self.stage = PwdClientStage::SignedChallenge { cipher, challenge: own, new_key };
        Ok(message.finish())
    }

    /// Checks the answer of the server, and sends the hash of the password.
    fn send_password(
        &mut self,
        message: &[u8],
        cipher: PwdCipher,
        challenge: Challenge,
        new_key: Option<Vec<u8>>,
        now: SystemTime,
    ) -> Result<Vec<u8>, ClientAuthError> {
        let message = messages::decode(message).map_err(violation)?;
        if message.step == step::SERVER_NEW_KEY {
            return Err(self.other_key());
        }
        if message.step != step::SERVER_SIGNED_CHALLENGE {
            return Err(violation(format!("step {} is not expected", message.step)));
        }
        let main = messages::open_main(&message, &cipher).map_err(violation)?;
        let main = messages::decode_main(main.expose(), message.step).map_err(violation)?;
        challenge.check_encrypted(&main, &cipher).map_err(violation)?;
        if let (Some(key), Some(keys)) = (&new_key, &self.keys) {
            match keys.add(&self.server, key, now) {
                Ok(true) => {}
                Ok(false) => return Err(self.other_key()),
                Err(reason) => {
                    tracing::warn!("the key of the server {} is not remembered: {reason}", self.server);
                }
            }
        }
        let of_file = match &self.settings.netrc {
            Some(netrc) => password_of(netrc, &self.host, &self.user).map_err(|reason| {
                no_credentials(reason, "repair the file that XrdSecNETRC names, or unset it")
            })?,
            None => None,
        };
        let (password, prompts) = match of_file {
            Some(password) => (password, PROMPTS_MAX),
            None => (self.ask_user()?, 1),
        };
        let message = self.credentials(step::CLIENT_NORMAL, OWN_STATUS, &main, &cipher, &password, now)?;
        self.stage = PwdClientStage::NextPassword { cipher, prompts };
        Ok(message)
    }

    /// Sends another password, after the server has refused one, or a new one in its place.
    fn send_next_password(
        &mut self,
        message: &[u8],
        cipher: PwdCipher,
        prompts: u32,
        now: SystemTime,
    ) -> Result<Vec<u8>, ClientAuthError> {
        let message = wanted_credentials(message)?;
        let main = messages::open_main(&message, &cipher).map_err(violation)?;
        let main = messages::decode_main(main.expose(), message.step).map_err(violation)?;
        let of_server = messages::status_of(&main);
        if RequestedPassword::of_status(of_server).is_some() {
            return self.change_password(&main, cipher, 1, now);
        }
        if prompts >= PROMPTS_MAX {
            return Err(no_credentials(
                format!("the server refused the password of {}", self.user),
                "correct it",
            ));
        }
        let password = self.ask_user()?;
        let message =
            self.credentials(step::CLIENT_CREDENTIALS, OWN_STATUS, &main, &cipher, &password, now)?;
        self.stage = PwdClientStage::NextPassword { cipher, prompts: prompts + 1 };
        Ok(message)
    }

    /// Repeats a new password, or sends another one after the server has refused it.
    fn send_new_password(
        &mut self,
        message: &[u8],
        cipher: PwdCipher,
        password: Secret,
        changes: u32,
        now: SystemTime,
    ) -> Result<Vec<u8>, ClientAuthError> {
        let message = wanted_credentials(message)?;
        let main = messages::open_main(&message, &cipher).map_err(violation)?;
        let main = messages::decode_main(main.expose(), message.step).map_err(violation)?;
        match RequestedPassword::of_status(messages::status_of(&main)) {
            Some(RequestedPassword::NewAgain) => {
                let status = RequestedPassword::status(OWN_STATUS, RequestedPassword::NewAgain);
                let message =
                    self.credentials(step::CLIENT_CREDENTIALS, status, &main, &cipher, &password, now)?;
                self.stage = PwdClientStage::NewPassword { cipher, password, changes };
                Ok(message)
            }
            Some(RequestedPassword::New) if changes < PROMPTS_MAX => {
                self.change_password(&main, cipher, changes + 1, now)
            }
            _ => Err(no_credentials(
                format!("the server refused the new password of {}", self.user),
                "choose another one",
            )),
        }
    }

    /// Asks the user for a new password, and sends it. The user types it twice.
    fn change_password(
        &mut self,
        of_server: &SutMessage<'_>,
        cipher: PwdCipher,
        changes: u32,
        now: SystemTime,
    ) -> Result<Vec<u8>, ClientAuthError> {
        let demand = format!("the server demands a new password of {}", self.user);
        let ask = |question: &str| {
            let password = (self.prompt)(question).filter(|password| !password.expose().is_empty());
            password.ok_or_else(|| no_credentials(demand.as_str(), "log in at a terminal and choose one"))
        };
        let password = ask(&format!("New password for {}@{}: ", self.user, self.server))?;
        if !password.is_equal(ask("New password again: ")?.expose()) {
            return Err(no_credentials(
                format!("{demand}, and those that were typed differ"),
                "log in again",
            ));
        }
        let status = RequestedPassword::status(OWN_STATUS, RequestedPassword::New);
        let message =
            self.credentials(step::CLIENT_CREDENTIALS, status, of_server, &cipher, &password, now)?;
        self.stage = PwdClientStage::NewPassword { cipher, password, changes };
        Ok(message)
    }

    fn other_key(&self) -> ClientAuthError {
        untrusted(
            format!("the key of the server {} is not the one of earlier logins", self.server),
            "ask its administrator; if the key was changed, remove the old one from ~/.xrd/pwdsrvpuk",
        )
    }

    fn ask_user(&self) -> Result<Secret, ClientAuthError> {
        let password = (self.prompt)(&format!("Password for {}@{}: ", self.user, self.server));
        password.filter(|password| !password.expose().is_empty()).ok_or_else(|| {
            no_credentials(
                format!("there is no password of {} for {}", self.user, self.host),
                "name a netrc file in XrdSecNETRC, or use a terminal",
            )
        })
    }

    /// Returns the message with the hash of a password, as the answer to a message of the server.
    fn credentials(
        &self,
        step: u32,
        status: [u8; STATUS_BYTES],
        of_server: &SutMessage<'_>,
        cipher: &PwdCipher,
        password: &Secret,
        now: SystemTime,
    ) -> Result<Vec<u8>, ClientAuthError> {
        let tag = Challenge::of_peer(of_server).ok_or_else(|| violation("the challenge is missing"))?;
        let main = messages::begin_main(step)
            .with(SutField::SIGNED_CHALLENGE, &cipher.seal(tag.as_bytes()))
            .with(SutField::USER, self.user.as_bytes())
            .with(CREDENTIALS, credentials_of(password.expose()).expose())
            .with(STATUS, &status);
        let main = with_time(main, now)
            .with(SutField::CHALLENGE, Challenge::random(&mut SystemRng).as_bytes())
            .finish();
        Ok(messages::begin(step).with(SutField::MAIN, &cipher.seal(&main)).finish())
    }
}

/// Decodes a message that must be a request for a password.
fn wanted_credentials(message: &[u8]) -> Result<SutMessage<'_>, ClientAuthError> {
    let message = messages::decode(message).map_err(violation)?;
    match message.step {
        step::SERVER_WANTS_CREDENTIALS => Ok(message),
        step => Err(violation(format!("step {step} is not expected"))),
    }
}

fn with_time(message: SutWriter, now: SystemTime) -> SutWriter {
    message.with_number(TIMESTAMP, unix_seconds(now))
}
