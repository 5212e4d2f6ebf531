//! The connection pool: callers share a connection to one server as one user.
//!
//! While one caller connects or reconnects, the others wait for the result, and share a failure
//! too. A dead server is therefore tried once, with a backoff between rounds, not once for each
//! file.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rawclient::{Connection, Encoded, Login, TlsSupport};
use tokio::time::Instant;
use wire::xroot::SessionId;
use wire::xroot::limits::PATH_ID_MAX;
use wire::xroot::request::{Endsess, Request};

use crate::authentication::LoginRequest;
use crate::buffer_pool::DataBufferPool;
use crate::channel::{BodyLimit, Channel, Deadlines, Patience, ReplySink, ServerReply};
use crate::connect::{AddressFilter, LoggedIn, bind, connect};
use crate::connection_limits::{ConnectionLimits, ConnectionPermit};
use crate::credentials::{CredentialChoice, Credentials};
use crate::failure::Cause;
use crate::server_stream::ServerStream;
use crate::settings::Settings;
use crate::tls_trust::TlsTrust;
use crate::url::{Scheme, Url};

/// Backoff before the second round of attempts; it doubles with each further round.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Maximum backoff between rounds.
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Maximum wait of a new connection until the server has ended the lost session.
const ENDSESS_TIME: Duration = Duration::from_secs(10);

/// Number of slots above which those without a connection are removed.
const SLOTS_KEPT: usize = 256;
/// Time for which a refused login is remembered at least, because each new one costs both sides a handshake.
const REFUSAL_WINDOW: Duration = Duration::from_secs(5);
/// Timeout for binding data streams.
const BIND_TIME: Duration = Duration::from_secs(5);

/// The user and server of a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    scheme: Scheme,
    host: String,
    port: u16,
    choice: CredentialChoice,
    token: Option<String>,
}

impl Key {
    fn new(url: &Url, choice: &CredentialChoice) -> Self {
        Self {
            scheme: url.scheme,
            host: url.host.clone(),
            port: url.port,
            choice: choice.clone(),
            token: url.token.clone(),
        }
    }
}

/// A request for the connection to a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionRequest<'a> {
    /// The address of the server, with the opaque part of the request.
    pub(crate) url: &'a Url,
    /// The choice of credentials in the user's URL.
    pub(crate) choice: &'a CredentialChoice,
    pub(crate) settings: &'a Settings,
    /// Maximum number of rounds of attempts.
    pub(crate) rounds: u64,
    /// Deadline.
    pub(crate) until: Instant,
}

/// The slot of one connection.
#[derive(Default, Debug)]
struct PoolSlot {
    now: Mutex<SlotState>,
    /// Held while connecting.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default, Debug)]
struct SlotState {
    channel: Option<Arc<Channel>>,
    /// The time at which a request last took the connection.
    used: Option<Instant>,
    failed: Option<ConnectFailure>,
    /// Session of a lost connection. Its files are locked until the server detects the loss.
    lost_session: Option<SessionId>,
}

/// A failed attempt to connect.
#[derive(Debug)]
struct ConnectFailure {
    at: Instant,
    /// Number of rounds of attempts.
    rounds: u64,
    cause: Cause,
}

impl ConnectFailure {
    /// Reports whether the login was refused, so that another attempt finds the same.
    fn is_refusal(&self) -> bool {
        matches!(self.cause, Cause::NotAuthenticated(_) | Cause::Tls(_) | Cause::CertificateRefused(_))
    }
}

/// All connections of a client.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    slots: Mutex<Slots>,
    tls: TlsTrust,
    login: Login,
    credentials: Credentials,
    filter: Option<AddressFilter>,
    blocks: DataBufferPool,
    limits: OnceLock<ConnectionLimits>,
}

/// The slots, and the number of them at which unused ones are removed.
#[derive(Debug)]
struct Slots {
    of: HashMap<Key, Arc<PoolSlot>>,
    sweep_at: usize,
}

impl Default for Slots {
    fn default() -> Self {
        Self { of: HashMap::new(), sweep_at: SLOTS_KEPT }
    }
}

impl Slots {
    fn slot(&mut self, key: Key) -> Arc<PoolSlot> {
        if self.of.len() >= self.sweep_at && !self.of.contains_key(&key) {
            // Redirects with tokens make new keys without end.
            self.of.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.now().is_connected());
            self.sweep_at = (2 * self.of.len()).max(SLOTS_KEPT);
        }
        self.of.entry(key).or_default().clone()
    }
}

/// A connection that nothing uses.
pub(crate) struct UnusedConnection {
    /// The time at which a request last took it.
    pub(crate) since: Instant,
    slot: Arc<PoolSlot>,
}

impl UnusedConnection {
    /// Closes the connection, unless a request has taken it meanwhile.
    pub(crate) fn close(self) {
        let mut now = self.slot.now();
        if now.unused_since() == Some(self.since) {
            now.channel = None;
        }
    }
}

impl SlotState {
    fn is_connected(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| !channel.is_closed())
    }

    /// Returns the session of a connection that is lost.
    fn lost_session(&self) -> Option<SessionId> {
        let lost = self.channel.as_ref().filter(|channel| channel.is_closed());
        lost.and_then(|channel| channel.server().session).or(self.lost_session)
    }

    /// Returns the time since which nothing uses the connection, if so.
    fn unused_since(&self) -> Option<Instant> {
        let channel = self.channel.as_ref()?;
        // Requests and open files hold it.
        (Arc::strong_count(channel) == 1 && channel.in_flight() == 0).then_some(self.used?)
    }
}

impl ConnectionPool {
    pub(crate) fn new(
        login: Login,
        credentials: Credentials,
        filter: Option<AddressFilter>,
        tls: TlsTrust,
        blocks: DataBufferPool,
    ) -> Self {
        let (slots, limits) = (Mutex::default(), OnceLock::new());
        Self { slots, tls, login, credentials, filter, blocks, limits }
    }

    pub(crate) const fn tls(&self) -> &TlsTrust {
        &self.tls
    }

    pub(crate) const fn login(&self) -> &Login {
        &self.login
    }

    pub(crate) const fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    pub(crate) const fn filter(&self) -> Option<&AddressFilter> {
        self.filter.as_ref()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits the connections from now on. Only the first limits count.
    pub(crate) fn limit(&self, limits: ConnectionLimits) {
        self.limits.set(limits).ok();
    }

    /// Returns the connection that is unused for longest, to any server or to one.
    pub(crate) fn longest_unused(&self, server: Option<(&str, u16)>) -> Option<UnusedConnection> {
        let slots = self.slots();
        let is_wanted = |key: &Key| server.is_none_or(|(host, port)| key.host == host && key.port == port);
        let wanted = slots.of.iter().filter(|(key, _)| is_wanted(key)).map(|(_, slot)| slot);
        let unused = wanted.filter_map(|slot| Some((slot.now().unused_since()?, slot)));
        let (since, slot) = unused.min_by_key(|(since, _)| *since)?;
        Some(UnusedConnection { since, slot: slot.clone() })
    }

    /// Connects again for later requests, also where there are connections or attempts at one.
    pub(crate) fn forget_connections(&self) {
        for slot in self.slots().of.values_mut() {
            let lost_session = slot.now().lost_session();
            let now = Mutex::new(SlotState { lost_session, ..SlotState::default() });
            *slot = Arc::new(PoolSlot { now, ..PoolSlot::default() });
        }
    }

    /// Reports whether there is a connection to a server.
    pub(crate) fn is_connected(&self, host: &str, port: u16) -> bool {
        let slots = self.slots();
        let mut at_server = slots.of.iter().filter(|(key, _)| key.host == host && key.port == port);
        at_server.any(|(_, slot)| slot.now().is_connected())
    }

    /// Returns the connection to a server, and connects if there is none.
    pub(crate) async fn channel(&self, wanted: ConnectionRequest<'_>) -> Result<Arc<Channel>, Cause> {
        let channel = self.present_or_new(wanted).await?;
        let url = wanted.url;
        // Another request, without a secret, may have connected in clear text.
        if url.scheme == Scheme::Roots && url.carries_secret() && !channel.is_tls() {
            return Err(Cause::Tls(SECRET_IN_CLEAR_TEXT.to_owned()));
        }
        Ok(channel)
    }

    /// Returns the connection to a server, without regard to what the request carries.
    async fn present_or_new(&self, wanted: ConnectionRequest<'_>) -> Result<Arc<Channel>, Cause> {
        let ConnectionRequest { url, choice, settings, rounds, until } = wanted;
        check(url)?;
        let slot = self.slots().slot(Key::new(url, choice));
        let asked = Instant::now();
        if let Some(found) = slot.look(asked, rounds, settings) {
            return found;
        }
        let Ok(_connecting) = tokio::time::timeout_at(until, slot.connecting.lock()).await else {
            return Err(Cause::TimedOut(Instant::now().duration_since(asked).as_secs()));
        };
        if let Some(found) = slot.look(asked, rounds, settings) {
            return found;
        }
        let mut login = LoginRequest::new(&self.login, &self.credentials, choice, url, &self.tls);
        if settings.no_tls_ok != 0 && !url.carries_secret() {
            let Ok(config) = tokio::time::timeout_at(until, self.tls.config()).await else {
                return Err(Cause::TimedOut(Instant::now().duration_since(asked).as_secs()));
            };
            let is_usable = config.is_ok();
            login.login.tls = match login.login.tls {
                _ if !is_usable => TlsSupport::None,
                TlsSupport::Required => TlsSupport::Preferred,
                other => other,
            };
        }
        // Boxed because this rare case would enlarge the future of each request.
        let made = Box::pin(self.connect(wanted, &login, &slot)).await;
        let mut now = slot.now();
        match &made {
            Ok(channel) => {
                let used = Some(Instant::now());
                *now = SlotState { channel: Some(channel.clone()), used, ..SlotState::default() };
            }
            Err(cause) => {
                now.failed = Some(ConnectFailure { at: Instant::now(), rounds, cause: cause.clone() })
            }
        }
        made
    }

    async fn connect(
        &self,
        wanted: ConnectionRequest<'_>,
        login: &LoginRequest,
        slot: &PoolSlot,
    ) -> Result<Arc<Channel>, Cause> {
        let ConnectionRequest { url, settings, rounds, until, .. } = wanted;
        let window = Duration::from_secs(settings.connection_window.max(1));
        let permit = match self.limits.get() {
            Some(limits) => {
                Some(limits.permit((&url.host, url.port), until.min(Instant::now() + window)).await?)
            }
            None => None,
        };
        let mut pause = FIRST_PAUSE;
        let mut round = 1;
        loop {
            let begun = Instant::now();
            let (filter, end) = (self.filter.as_ref(), until.min(begun + window));
            let error = match connect(&url.host, url.port, login, settings, filter, end).await {
                Ok(made) => return Ok(self.start(wanted, slot, (made, permit)).await),
                Err(error) => error,
            };
            // If the user has set the window, each round takes that time.
            let wait = if settings.is_set("ConnectionWindow") {
                (begun + window).duration_since(Instant::now())
            } else {
                pause
            };
            let fatal = matches!(
                error,
                Cause::Connection(_)
                    | Cause::NotAuthenticated(_)
                    | Cause::Unresolved(_)
                    | Cause::NotAllowed(_)
                    | Cause::Tls(_)
                    | Cause::CertificateRefused(_)
            );
            if fatal || round >= rounds.max(1) || Instant::now() + wait >= until {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
            round += 1;
        }
    }

    async fn start(
        &self,
        wanted: ConnectionRequest<'_>,
        slot: &PoolSlot,
        (made, permit): (LoggedIn, Option<ConnectionPermit>),
    ) -> Arc<Channel> {
        let ConnectionRequest { url, settings, until, .. } = wanted;
        let manager = made.machine.server().flags.intersects(wire::xroot::flags::ServerFlags::IS_MANAGER);
        let idle = if manager { settings.load_balancer_ttl } else { settings.data_server_ttl };
        let patience = Patience { silence: settings.silence(), idle: Duration::from_secs(idle.max(1)) };
        let LoggedIn { stream, peer, mut machine } = made;
        let must_encrypt = machine.server().flags.intersects(wire::xroot::flags::ServerFlags::TLS_DATA);
        let encrypts = stream.is_tls() && (must_encrypt || settings.tls_no_data == 0);
        let tls = encrypts.then_some((&self.tls, url.host.as_str()));
        let mut streams = vec![stream];
        if !manager {
            bind_streams(&mut machine, &mut streams, peer, settings, tls, until).await;
        }
        let channel =
            Channel::start(url.authority(), streams, peer, machine, patience, self.blocks.clone(), permit);
        let lost = slot.now().lost_session;
        if let Some(session) = lost {
            end_session(&channel, session, until).await;
        }
        channel
    }
}

impl PoolSlot {
    fn now(&self) -> std::sync::MutexGuard<'_, SlotState> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection or a recent failure. A failure counts if another caller found it
    /// since `asked`, or just before, with at least as many rounds.
    fn look(&self, asked: Instant, rounds: u64, settings: &Settings) -> Option<Result<Arc<Channel>, Cause>> {
        let mut now = self.now();
        if let Some(channel) = &now.channel {
            if !channel.is_closed() && !channel.is_worn() {
                let channel = channel.clone();
                now.used = Some(asked);
                return Some(Ok(channel));
            }
            now.lost_session = now.lost_session();
            now.channel = None;
        }
        let window = Duration::from_secs(settings.stream_error_window);
        let known = now.failed.as_ref().filter(|failure| failure.rounds >= rounds);
        let recent = known.filter(|failure| {
            let window = if failure.is_refusal() { window.max(REFUSAL_WINDOW) } else { window };
            failure.at >= asked || asked.duration_since(failure.at) < window
        });
        recent.map(|failure| Err(failure.cause.clone()))
    }
}

/// Binds the data streams that the settings request, as many as the server accepts.
async fn bind_streams(
    machine: &mut Connection,
    streams: &mut Vec<ServerStream>,
    peer: SocketAddr,
    settings: &Settings,
    tls: Option<(&TlsTrust, &str)>,
    until: Instant,
) {
    let wanted = settings.sub_streams_per_channel.min(u64::from(PATH_ID_MAX) + 1);
    let Some(session) = machine.server().session else { return };
    let until = until.min(Instant::now() + BIND_TIME);
    for _ in 1..wanted {
        // A session with fewer streams is slower but works.
        let Ok((stream, path)) = bind(peer, session, settings, tls, until).await else { return };
        machine.bind(path);
        streams.push(stream);
    }
}

/// Requests the end of a lost session, so that its locks are released. A failure is ignored.
async fn end_session(channel: &Channel, sessid: SessionId, until: Instant) {
    let end = until.min(Instant::now() + ENDSESS_TIME);
    loop {
        let request = Encoded::new(&Request::Endsess(Endsess { sessid }));
        let answer = channel
            .call(
                request,
                Bytes::new(),
                ReplySink::Body(BodyLimit::ANSWER),
                Deadlines { answer: end, end },
                None,
            )
            .await;
        match answer {
            Ok(ServerReply::Wait { pause, .. }) if Instant::now() + pause < end => {
                // "Session still active": it will end soon.
                tokio::time::sleep(pause.min(Duration::from_secs(1)).max(Duration::from_millis(50))).await;
            }
            _ => return,
        }
    }
}

/// The reason why a request is not sent.
const SECRET_IN_CLEAR_TEXT: &str =
    "the server has no TLS, and NoTlsOK does not send a token or password in clear text";

/// Checks that this client supports the server of a URL.
fn check(url: &Url) -> Result<(), Cause> {
    let unsupported = |text: &str| Err(Cause::Unsupported(text.to_owned()));
    match url.scheme {
        Scheme::Root | Scheme::Roots => Ok(()),
        Scheme::S3 => unsupported("this operation is not possible at an object store"),
        Scheme::Http | Scheme::Https => {
            unsupported("this operation is not possible over HTTP; use root:// at a server that speaks both")
        }
        Scheme::File | Scheme::Stdio => unsupported("it is a local file, not one of a server"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        let url = Url::parse(&format!("root://h//a?x=1?token{number}")).unwrap();
        Key { token: Some(number.to_string()), ..Key::new(&url, &CredentialChoice::of(&url)) }
    }

    #[test]
    fn slots_without_a_connection_are_removed() {
        let mut slots = Slots::default();
        // A request still uses this one.
        let used = slots.slot(key(0));
        for number in 1..10 * SLOTS_KEPT {
            slots.slot(key(number));
        }
        assert!(slots.of.len() <= SLOTS_KEPT, "{}", slots.of.len());
        assert!(Arc::ptr_eq(&used, &slots.slot(key(0))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_login_is_remembered() {
        let mut settings = Settings::default();
        settings.stream_error_window = 0;
        for (cause, is_remembered) in [
            (Cause::NotAuthenticated("expired".to_owned()), true),
            (Cause::Unreachable("refused".to_owned()), false),
        ] {
            let slot = PoolSlot::default();
            slot.now().failed = Some(ConnectFailure { at: Instant::now(), rounds: 1, cause });
            tokio::time::advance(REFUSAL_WINDOW / 2).await;
            assert_eq!(slot.look(Instant::now(), 1, &settings).is_some(), is_remembered);
            tokio::time::advance(REFUSAL_WINDOW).await;
            assert!(slot.look(Instant::now(), 1, &settings).is_none());
        }
    }
}
