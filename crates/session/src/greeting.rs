//! kXR_protocol and kXR_login: from the first request to the identity of the client.

use crate::authentication::SessionSecurity;
use crate::framing::RequestFront;
use crate::login_policy::HostRequirement;
use crate::replies;
use crate::reply::Replier;
use crate::settings::{HostRules, Peer, Settings};
use crate::step::DriverTask;
use crate::tls::LinkEncryption;
use auth::{Entity, HostName, address_text};
use base::{Identity, LoginNames};
use std::sync::Arc;
use vfs::{Caller, ClientConnection};
use wire::Encode;
use wire::xroot::codes::{ErrorCode, RequestCode};
use wire::xroot::flags::{Ability, ProtocolFlags, ServerFlags};
use wire::xroot::header::{Handshake, HandshakeReply, SessionId};
use wire::xroot::limits::HANDSHAKE_BYTES;
use wire::xroot::login_cgi::LoginCgi;
use wire::xroot::request::{Login, Protocol};
use wire::xroot::version;

/// The first client generation that accepts deferred answers. The capability bit for it is ignored,
/// as the real server does.
const DEFERRED_GENERATION: u8 = 2;

/// The first client generation that can sign requests.
const SIGNING_GENERATION: u8 = 4;

/// The stage of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionStage {
    /// Nothing has arrived.
    Handshake,
    /// Before login.
    Greeting,
    /// Logged in; the client must authenticate before it can use anything.
    Authenticating,
    /// Logged in and identified.
    Active,
    /// Takes no further requests; files are being released.
    Ending,
}

/// The client of a session: its identity, its login, and the encryption of its control connection.
pub(crate) struct SessionClient {
    pub(crate) id: SessionId,
    pub(crate) settings: Arc<Settings>,
    pub(crate) stage: SessionStage,
    pub(crate) caller: Arc<Caller>,
    /// `None` if the client neither has to authenticate nor to sign.
    pub(crate) security: Option<Box<SessionSecurity>>,
    /// Protocol version of the client; 0 if unknown.
    client_version: i32,
    /// Port of the client.
    pub(crate) port: u16,
    connection: Option<Arc<ClientConnection>>,
    pub(crate) encryption: LinkEncryption,
}

impl SessionClient {
    /// Returns a client that has sent nothing.
    pub(crate) fn new(id: SessionId, settings: Arc<Settings>, peer: Peer) -> Self {
        let told = LoginNames { host: &peer.host, ..LoginNames::default() };
        let identity = Identity::new(&told, 0, peer.address, auth::host::HOST);
        Self {
            id,
            settings,
            stage: SessionStage::Handshake,
            caller: Arc::new(Caller::new(identity, false, false)),
            security: None,
            client_version: 0,
            port: peer.port,
            connection: peer.connection,
            encryption: LinkEncryption::Unsupported,
        }
    }

    /// Reports whether the session is ending.
    pub(crate) fn is_ending(&self) -> bool {
        self.stage == SessionStage::Ending
    }

    /// Ends the session of the client.
    pub(crate) fn end(&mut self) {
        self.stage = SessionStage::Ending;
        self.security = None;
        self.caller.disconnect();
    }

    /// Takes the first bytes of a client.
    pub(crate) fn handshake(&mut self, input: &[u8], reply: &mut Replier<'_>) -> DriverTask {
        match input.first_chunk::<HANDSHAKE_BYTES>() {
            Some(bytes) if Handshake::is(bytes) => {
                self.stage = SessionStage::Greeting;
                let is_server = self.settings.flags.contains(ServerFlags::IS_SERVER);
                let role =
                    if is_server { HandshakeReply::DATA_SERVER } else { HandshakeReply::LOAD_BALANCER };
                HandshakeReply { protover: wire::xroot::PROTOCOL_VERSION, role }.encode(reply.control());
                DriverTask::Nothing
            }
            _ => DriverTask::Close,
        }
    }

    pub(crate) fn protocol(&mut self, m: &Protocol, reply: &mut Replier<'_>) -> DriverTask {
        let flags = if m.clientpv == 0 {
            // The role number of the oldest protocol: 1 server, 0 manager.
            u32::from(self.settings.flags.contains(ServerFlags::IS_SERVER))
        } else {
            self.settings.flags.0 | self.negotiate_tls(m).0
        };
        if self.stage == SessionStage::Greeting {
            self.client_version = m.clientpv;
        }
        let settings = self.settings.clone();
        let signing = settings.signing.of(self.caller.identity.address, &self.peer_host());
        let wanted = m.flags.contains(ProtocolFlags::SECREQS) && m.clientpv >= version::SIGNING;
        let announced = signing.filter(|signing| wanted && signing.is_in_force());
        let id = reply.id;
        replies::protocol(reply.control(), id, flags, announced.map(Arc::as_ref));
        match ServerFlags(flags).contains(ServerFlags::GOTO_TLS) {
            true => DriverTask::StartTls,
            false => DriverTask::Nothing,
        }
    }

    /// Reports whether this request can only be taken after the name of the client's host is known.
    /// The driver looks it up and calls [`crate::Session::set_peer_host`].
    pub(crate) fn needs_peer_host(&self, front: &RequestFront) -> bool {
        if self.stage != SessionStage::Greeting || self.peer_host_name() != HostName::NotAsked {
            return false;
        }
        let settings = &self.settings;
        let by_login = || settings.login.as_ref().is_some_and(|policy| policy.wants_host_name());
        let by_signing =
            || !settings.selects_by_address && settings.signing.needs_host_name(self.caller.identity.address);
        let by_rules = || settings.host_rules.as_ref().is_some_and(HostRules::needs_hosts);
        match front.header().map(|header| header.code) {
            Some(RequestCode::PROTOCOL) => by_signing(),
            Some(RequestCode::LOGIN) => {
                (!settings.selects_by_address && by_login()) || by_signing() || by_rules()
            }
            _ => false,
        }
    }

    /// Stores the result of the look-up of the client's host.
    pub(crate) fn set_peer_host(&mut self, name: HostName) {
        self.security.get_or_insert_default().host = name;
    }

    /// Returns what is known about the name of the client's host. After login the entity of the
    /// caller keeps it, because most sessions then have no [`SessionSecurity`] any longer.
    ///
    /// [`SessionSecurity`]: crate::authentication::SessionSecurity
    pub(crate) fn peer_host_name(&self) -> HostName {
        match (self.caller.entity(), &self.security) {
            (Some(entity), _) => entity.host_name.clone(),
            (None, Some(security)) => security.host.clone(),
            (None, None) => HostName::NotAsked,
        }
    }

    /// Returns the name of the client's host that selects its authentication, or the text of its
    /// address.
    pub(crate) fn peer_host(&self) -> Arc<str> {
        let name = self.peer_host_name();
        let known = name.known().filter(|_| !self.settings.selects_by_address).cloned();
        known.unwrap_or_else(|| self.address_text())
    }

    pub(crate) fn address_text(&self) -> Arc<str> {
        let identity = &self.caller.identity;
        identity.address.map_or_else(|| identity.host().to_owned(), address_text).into()
    }

    /// Reports whether the client is recent enough to sign requests.
    pub(crate) fn can_sign(&self) -> bool {
        self.client_version >= version::SIGNING
    }

    pub(crate) fn login(&mut self, m: &Login<'_>, reply: &mut Replier<'_>) -> DriverTask {
        if let Some(refused) = self.refuse_clear_login(reply) {
            return refused;
        }
        let told = LoginCgi::parse(m.cgi);
        let shown = |text: Option<&[u8]>| text.map(printable).unwrap_or_default();
        let pid = u32::from_ne_bytes(m.pid.to_ne_bytes());
        let before = &self.caller.identity;
        let told = LoginNames {
            user: &printable(m.username_bytes()),
            host: before.host(),
            application: &shown(told.appname),
            named_host: &shown(told.hostname),
            release: &shown(told.release),
            info: &shown(told.info),
        };
        let identity = Identity::new(&told, pid, before.address, before.protocol());
        let takes_later = m.generation() >= DEFERRED_GENERATION;
        let moves = m.ability.contains(Ability::READRDOK);
        let both_nets = m.ability.contains(Ability::HASIPV64);
        // The path of the file is sent as a URL.
        let local_files = m.ability.contains(Ability::FULLURL) && m.ability.contains(Ability::LCLFILE);
        let caller = Caller::new(identity, takes_later, moves)
            .with_dual_stack(both_nets)
            .with_local_files(self.connection.clone().filter(|_| local_files));
        self.caller = Arc::new(caller.with_protection(self.encrypts_session()));
        if self.client_version == 0 && m.generation() >= SIGNING_GENERATION {
            self.client_version = version::SIGNING;
        }
        let policy = self.settings.login.clone();
        let is_selected_by_name = !self.settings.selects_by_address
            && policy.as_ref().is_some_and(|policy| policy.needs_host_name());
        if is_selected_by_name && self.peer_host_name() == HostName::Failed {
            // The binding of the name could ask for more than that of the address.
            let text = "the name of this client's host cannot be looked up; try again later";
            return reply.refuse_and_close(ErrorCode::OVERLOADED, text);
        }
        let required = policy.as_ref().map(|policy| (policy, policy.require(&self.peer_host())));
        let entity = match &required {
            Some((policy, HostRequirement::Protocols(required))) => {
                return match m.generation() {
                    // Without a session id the client does not receive the list of protocols either.
                    0 => {
                        let text = "this client is too old to authenticate";
                        reply.refuse_and_close(ErrorCode::AUTH_FAILED, text)
                    }
                    _ => self.offer_protocols(policy, required, reply),
                };
            }
            Some((_, HostRequirement::Nothing | HostRequirement::Host)) => {
                Some(Entity::of_host(&self.peer_host()))
            }
            None => None,
        };
        self.activate(entity, None);
        let body: &[u8] = if m.generation() == 0 { &[] } else { &self.id.0 };
        reply.succeed(body);
        self.encrypt_session(reply)
    }
}

/// Replaces control characters and blanks by `_`, because names come from untrusted peers. A name
/// with a line end could otherwise forge a log line.
pub(crate) fn printable(raw: &[u8]) -> String {
    const SHOWN_MAX: usize = 128;
    let text = String::from_utf8_lossy(raw);
    text.chars().take(SHOWN_MAX).map(|c| if c.is_control() || c == ' ' { '_' } else { c }).collect()
}
