//! Authentication: from a login that offers protocols to the identity of the client.
//!
//! ```text
//!  Greeting ──kXR_login──▶ Authenticating ──kXR_auth: done──▶ Active
//!      │                     │         ▲
//!      │                     └─────────┘ kXR_auth: another round, or refused
//!      └──kXR_login of a host that needs no authentication──▶ Active
//! ```
//!
//! Before `Active`, [`crate::Session`] passes nothing to a file system. A step of an exchange can
//! compute for long, so the driver executes it ([`DriverTask::Authenticate`]) and chooses the thread.
//! From the third failure on, a refusal is delayed; the driver has the clock
//! ([`DriverTask::LoginRefused`]). Meanwhile the session takes no request.

use crate::greeting::{SessionClient, SessionStage};
use crate::login_policy::{HostRequirement, LoginPolicy, ProtocolSet, RequiredProtocols};
use crate::pending_logins::PendingLoginSlot;
use crate::reply::{Replier, ReplyOutputs};
use crate::settings::{LOGIN_ATTEMPTS_MAX, PROMPT_REFUSALS_MAX, REFUSAL_SECONDS_MAX};
use crate::signing::Verifier;
use crate::step::DriverTask;
use crate::timing::{self, RequestTimer};
use auth::host::{CREDENTIALS, HOST};
use auth::{
    Entity, HostName, LoginPeer, LoginWaker, Secret, ServerLogin, ServerStep, SignatureCipher, StepCost,
};
use base::Owner;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;
use wire::xroot::codes::ErrorCode;
use wire::xroot::header::StreamId;
use wire::xroot::request::Auth;

/// Number of bytes of credentials in which the id of the protocol and its NUL must be.
const ID_FIELD_BYTES: usize = 8;

/// The login id of a client without a user name.
const NO_USER: &str = "nobody";

/// State of a session whose client must authenticate or sign. Sessions of other clients have none.
#[derive(Default)]
pub(crate) struct SessionSecurity {
    /// What the driver has found out about the name of the client's host.
    pub(crate) host: HostName,
    pub(crate) login: Option<PendingLogin>,
    pub(crate) verifier: Option<Verifier>,
}

/// A client that has logged in and is not authenticated yet.
pub(crate) struct PendingLogin {
    policy: Arc<LoginPolicy>,
    accepted: ProtocolSet,
    peer: LoginPeer,
    /// Number of failed attempts.
    failures: u32,
    /// The exchange that waits for the next round, and the index of its protocol.
    exchange: Option<(usize, Box<dyn ServerLogin>)>,
    progress: LoginProgress,
    slot: PendingLoginSlot,
}

/// The event for which an authentication waits.
enum LoginProgress {
    /// Credentials of the client.
    Credentials,
    /// The result of a step that the driver executes. The protocol has this index.
    Step { streamid: StreamId, protocol: usize, timer: RequestTimer },
    /// The end of the delay of a refusal.
    Delay { streamid: StreamId, text: String },
}

/// One step of an exchange, for the driver to execute.
pub struct AuthenticationTask {
    exchange: Box<dyn ServerLogin>,
    credentials: Secret,
    owner: Owner,
}

/// The result of an [`AuthenticationTask`].
pub struct AuthenticationResult {
    exchange: Box<dyn ServerLogin>,
    step: ServerStep,
    credentials: Secret,
    owner: Owner,
}

impl AuthenticationTask {
    /// Reports whether the step must run on a pool instead of an event loop.
    pub fn is_expensive(&self) -> bool {
        self.exchange.cost() == StepCost::Expensive
    }

    /// Returns the key under which a pool executes the step. All clients of a host have the same one,
    /// because a host with many connections must not take the threads from the others.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Executes the step.
    #[must_use]
    pub fn run(mut self, now: SystemTime) -> AuthenticationResult {
        let step = self.exchange.step(self.credentials.expose(), now);
        let Self { exchange, credentials, owner } = self;
        AuthenticationResult { exchange, step, credentials, owner }
    }

    /// Calls `waker` once when the step of [`AuthenticationResult::into_later`] can be executed. A task
    /// that is dropped calls no waker.
    pub fn wake_when_ready(&mut self, waker: LoginWaker) {
        self.exchange.wake_when_ready(waker);
    }
}

impl AuthenticationResult {
    /// Returns the task to execute again if the step depends on other exchanges.
    ///
    /// # Errors
    /// The result of a step that has ended.
    pub fn into_later(self) -> Result<AuthenticationTask, Self> {
        match self {
            Self { step: ServerStep::Later, exchange, credentials, owner } => {
                Ok(AuthenticationTask { exchange, credentials, owner })
            }
            ended => Err(ended),
        }
    }
}

/// Shows the kind of the result only, because an entity can contain credentials of the client.
impl fmt::Debug for AuthenticationResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            ServerStep::Done(entity) => write!(f, "authenticated by {}", entity.protocol),
            ServerStep::Continue(challenge) => write!(f, "challenge of {} bytes", challenge.len()),
            ServerStep::Refused(_) => f.write_str("credentials are refused"),
            ServerStep::Later => f.write_str("the step waits for others"),
        }
    }
}

impl fmt::Debug for AuthenticationTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticationTask").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl SessionClient {
    /// Reports whether the client has logged in and is not authenticated yet.
    pub(crate) fn is_authenticating(&self) -> bool {
        self.stage == SessionStage::Authenticating
    }

    /// Reports whether an authentication waits for its driver, so that no request can be taken.
    pub(crate) fn is_login_busy(&self) -> bool {
        let login = self.security.as_ref().and_then(|security| security.login.as_ref());
        login.is_some_and(|login| !matches!(login.progress, LoginProgress::Credentials))
    }

    fn pending_login(&mut self) -> Option<&mut PendingLogin> {
        self.security.as_mut()?.login.as_mut()
    }

    /// Ends the wait for the result of a step. Returns the login, the stream of the request, the
    /// index of the protocol, and the timer, which ends with the reply.
    fn end_step(&mut self) -> Option<(&mut PendingLogin, StreamId, usize, RequestTimer)> {
        let login = self.pending_login()?;
        let LoginProgress::Step { streamid, protocol, timer } = &mut login.progress else { return None };
        let (streamid, protocol, timer) = (*streamid, *protocol, timer.take());
        login.progress = LoginProgress::Credentials;
        Some((login, streamid, protocol, timer))
    }

    pub(crate) fn verifier_mut(&mut self) -> Option<&mut Verifier> {
        self.security.as_mut()?.verifier.as_mut()
    }

    /// Logs why a request is refused for its signature.
    pub(crate) fn log_unsigned(&self, reason: &str) {
        let client = &self.caller.identity;
        tracing::warn!(%client, "a request is refused, and its connection closed, for its signature: {reason}");
    }

    /// Requires authentication of a client that has logged in, and sends it the protocols.
    pub(crate) fn offer_protocols(
        &mut self,
        policy: &Arc<LoginPolicy>,
        required: &RequiredProtocols,
        reply: &mut Replier<'_>,
    ) -> DriverTask {
        let token = policy.token(&required.offered, self.is_tls());
        if token.is_empty() {
            let text = "login requires TLS support";
            return reply.refuse_and_close(ErrorCode::TLS_REQUIRED, text);
        }
        let slot = match self.settings.pending_logins.enter(self.caller.identity.address) {
            Ok(slot) => slot,
            Err(limit) => {
                let text = format!("{limit}; try again later");
                return reply.refuse_and_close(ErrorCode::OVERLOADED, &text);
            }
        };
        let user = self.caller.identity.user();
        let unknown = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let peer = LoginPeer {
            address: SocketAddr::new(self.caller.identity.address.unwrap_or(unknown), self.port),
            host: self.peer_host().to_string(),
            login_id: if user.is_empty() { NO_USER } else { user }.to_owned(),
            is_tls: self.is_tls(),
        };
        let login = PendingLogin {
            policy: policy.clone(),
            accepted: required.accepted,
            peer,
            failures: 0,
            exchange: None,
            progress: LoginProgress::Credentials,
            slot,
        };
        self.security.get_or_insert_default().login = Some(login);
        self.stage = SessionStage::Authenticating;
        reply.succeed(&[self.id.0.as_slice(), token.as_slice()].concat())
    }

    /// Takes credentials.
    pub(crate) fn authenticate(&mut self, m: &Auth<'_>, reply: &mut Replier<'_>) -> DriverTask {
        let Some(login) = self.pending_login() else { return self.refuse_auth(m, reply) };
        match login.begin_step(reply.id, m) {
            Ok(task) => DriverTask::Authenticate(Box::new(task)),
            Err(refusal) => self.refuse_login(refusal, reply),
        }
    }

    /// Takes the result of a step.
    pub(crate) fn authenticated(
        &mut self,
        result: AuthenticationResult,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let Some((login, streamid, protocol, _timer)) = self.end_step() else { return DriverTask::Nothing };
        let reply = &mut Replier::new(streamid, out);
        match result.step {
            ServerStep::Done(entity) => {
                let cipher = result.exchange.signature_cipher();
                self.activate(Some(entity), cipher);
                reply.succeed(&[]);
                self.encrypt_session(reply)
            }
            ServerStep::Continue(challenge) if !challenge.is_empty() => {
                login.exchange = Some((protocol, result.exchange));
                wire::xroot::reply::authmore(reply.control(), streamid, &challenge);
                DriverTask::Nothing
            }
            ServerStep::Continue(_) => {
                let reason = "the protocol has no challenge for the client".to_owned();
                let text = "authentication failed; the reason is in the log of the server.".to_owned();
                self.refuse_login(LoginRefusal { text, reason }, reply)
            }
            ServerStep::Later => {
                let text = "authentication is not possible now; try again later".to_owned();
                self.refuse_login(LoginRefusal::open(text), reply)
            }
            ServerStep::Refused(refused) => {
                let refusal =
                    LoginRefusal { text: refused.text_for_peer(), reason: refused.reason().to_owned() };
                self.refuse_login(refusal, reply)
            }
        }
    }

    /// Refuses a step that the driver could not execute.
    pub(crate) fn refuse_step(&mut self, reason: &str, out: &mut dyn ReplyOutputs) -> DriverTask {
        let Some((_, streamid, _, _timer)) = self.end_step() else { return DriverTask::Nothing };
        let text = "authentication is not possible now; try again later".to_owned();
        let refusal = LoginRefusal { text, reason: reason.to_owned() };
        self.refuse_login(refusal, &mut Replier::new(streamid, out))
    }

    /// Sends a refusal whose delay has ended.
    pub(crate) fn send_delayed_refusal(&mut self, out: &mut dyn ReplyOutputs) {
        let Some(login) = self.pending_login() else { return };
        match std::mem::replace(&mut login.progress, LoginProgress::Credentials) {
            LoginProgress::Delay { streamid, text } => {
                Replier::new(streamid, out).refuse(ErrorCode::AUTH_FAILED, &text);
            }
            other => login.progress = other,
        }
    }

    /// Reports whether the last attempt of the client has failed, so that the session must end.
    pub(crate) fn has_no_attempt_left(&self) -> bool {
        let login = self.security.as_ref().and_then(|security| security.login.as_ref());
        login.is_some_and(|login| login.failures > LOGIN_ATTEMPTS_MAX)
    }

    /// Refuses an attempt: immediately, or after a delay.
    fn refuse_login(&mut self, refusal: LoginRefusal, reply: &mut Replier<'_>) -> DriverTask {
        let Some(login) = self.pending_login() else { return DriverTask::Nothing };
        login.exchange = None;
        login.failures += 1;
        let LoginRefusal { text, reason } = refusal;
        let is_last = login.failures > LOGIN_ATTEMPTS_MAX;
        let delay_seconds = login.failures.saturating_sub(PROMPT_REFUSALS_MAX).min(REFUSAL_SECONDS_MAX);
        let delay_seconds = if is_last { 0 } else { delay_seconds };
        if delay_seconds > 0 {
            login.progress = LoginProgress::Delay { streamid: reply.id, text };
        } else {
            reply.refuse(ErrorCode::AUTH_FAILED, &text);
        }
        DriverTask::LoginRefused { reason, delay_seconds }
    }

    /// Refuses credentials when none are expected. A client that is identified by its host may send
    /// the credentials of the protocol `host`, which change nothing.
    fn refuse_auth(&self, m: &Auth<'_>, reply: &mut Replier<'_>) -> DriverTask {
        let by_host = self.caller.entity().is_some_and(|entity| &*entity.protocol == HOST);
        if by_host
            && m.credentials == CREDENTIALS
            && m.credtype == type_of(HOST.as_bytes())
            && let Some(policy) = &self.settings.login
        {
            let host = self.caller.entity().map(|entity| entity.host.clone()).unwrap_or_default();
            if matches!(policy.require(&host), HostRequirement::Host) {
                return reply.succeed(&[]);
            }
        }
        reply.refuse(ErrorCode::INVALID_REQUEST, "Invalid request code")
    }

    /// Begins the session of a client that is identified.
    pub(crate) fn activate(&mut self, entity: Option<Entity>, cipher: Option<Arc<dyn SignatureCipher>>) {
        let (host, host_name) = (self.peer_host(), self.peer_host_name());
        let signing = self.settings.signing.of(self.caller.identity.address, &host).cloned();
        let verifier = signing
            .filter(|signing| {
                let has_key = cipher.is_some() || signing.is_forced();
                has_key && signing.is_in_force() && (self.can_sign() || !signing.is_relaxed)
            })
            .map(|signing| Verifier::new(signing, cipher));
        let is_protected =
            self.caller.is_protected || verifier.as_ref().is_some_and(Verifier::protects_opens);
        self.security = verifier.map(|verifier| {
            Box::new(SessionSecurity { verifier: Some(verifier), ..SessionSecurity::default() })
        });
        // Rules decide about the host of a client that need not authenticate.
        let by_host = || self.settings.host_rules.as_ref().map(|_| Entity::of_host(&host));
        if let Some(entity) = entity.or_else(by_host) {
            let entity = entity.at(host_name, &self.address_text());
            self.caller = Arc::new(self.caller.with_entity(entity).with_protection(is_protected));
        }
        self.stage = SessionStage::Active;
    }
}

/// The refusal of an attempt: the text for the client, and the reason for the log.
struct LoginRefusal {
    text: String,
    reason: String,
}

impl LoginRefusal {
    /// A refusal whose reason the client may know.
    fn open(text: String) -> Self {
        Self { reason: text.clone(), text }
    }
}

impl PendingLogin {
    /// Checks credentials and begins the step that they ask for. No code of a protocol runs before
    /// these checks.
    fn begin_step(&mut self, streamid: StreamId, m: &Auth<'_>) -> Result<AuthenticationTask, LoginRefusal> {
        let unsuitable = || LoginRefusal::open("No authentication credentials supplied.".to_owned());
        let field = m.credentials.get(..ID_FIELD_BYTES).unwrap_or(m.credentials);
        let id = field.iter().position(|byte| *byte == 0).and_then(|end| field.get(..end));
        let id = id.filter(|id| type_of(id) == m.credtype && !id.is_empty()).ok_or_else(unsuitable)?;
        let Some((index, protocol)) =
            self.policy.find(id).and_then(|index| Some((index, self.policy.protocol(index)?)))
        else {
            if id == HOST.as_bytes() {
                return Err(LoginRefusal::open(not_allowed(&self.peer.host, HOST)));
            }
            let id = crate::greeting::printable(id);
            return Err(LoginRefusal::open(format!("{id} security protocol is not supported.")));
        };
        let id = protocol.id();
        if !self.accepted.contains(index) {
            return Err(LoginRefusal::open(not_allowed(&self.peer.host, id)));
        }
        if self.policy.needs_tls(index) && !self.peer.is_tls {
            let text = format!("security protocol '{id}' disallowed for non-TLS connections.");
            return Err(LoginRefusal::open(text));
        }
        if m.credentials.len() < protocol.credential_bytes_min() {
            return Err(LoginRefusal::open(format!("{id} credentials are too short.")));
        }
        let exchange = match self.exchange.take() {
            Some((same, exchange)) if same == index => exchange,
            abandoned => {
                self.failures += u32::from(abandoned.is_some());
                protocol.begin(&self.peer)
            }
        };
        self.progress = LoginProgress::Step { streamid, protocol: index, timer: timing::take_arriving() };
        Ok(AuthenticationTask {
            exchange,
            credentials: Secret::from(m.credentials),
            owner: self.slot.owner(),
        })
    }
}

fn not_allowed(host: &str, id: &str) -> String {
    format!("{host} not allowed to authenticate using {id} protocol.")
}

/// Returns the credential type of a protocol id: its first four bytes, padded with NUL.
fn type_of(id: &[u8]) -> [u8; 4] {
    let mut padded = [0; 4];
    padded.iter_mut().zip(id).for_each(|(to, from)| *to = *from);
    padded
}
