//! kXR_protocol, kXR_login and kXR_endsess: from the first request to login, and ends of sessions.
//!
//! The driver executes kXR_bind and kXR_endsess of other sessions, because a session knows no
//! others.

use crate::call::CallKind;
use crate::framing::RequestFront;
use crate::ids::PathId;
use crate::login_policy::HostRequirement;
use crate::replies;
use crate::settings::HostRules;
use crate::state::{ReplyOutputs, Session, SessionStage};
use crate::step::DriverTask;
use auth::{Entity, HostName, address_text};
use base::{Identity, LoginNames};
use std::sync::Arc;
use vfs::Caller;
use wire::xroot::codes::{ErrorCode, RequestCode};
use wire::xroot::flags::{Ability, ProtocolFlags, ServerFlags};
use wire::xroot::header::{SessionId, StreamId};
use wire::xroot::login_cgi::LoginCgi;
use wire::xroot::request::{Login, Protocol};
use wire::xroot::version;

/// The first client generation that accepts deferred answers. The capability bit for it is ignored,
/// as the real server does.
const DEFERRED_GENERATION: u8 = 2;

/// The first client generation that can sign requests.
const SIGNING_GENERATION: u8 = 4;

impl Session {
    pub(crate) fn protocol(&mut self, id: StreamId, m: &Protocol, out: &mut dyn ReplyOutputs) -> DriverTask {
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
        replies::protocol(out.link(PathId::CONTROL), id, flags, announced.map(Arc::as_ref));
        match ServerFlags(flags).contains(ServerFlags::GOTO_TLS) {
            true => DriverTask::StartTls,
            false => DriverTask::Nothing,
        }
    }

    /// Reports whether this request can only be taken after the name of the client's host is known.
    /// The driver looks it up and calls [`Session::set_peer_host`].
    pub fn needs_peer_host(&self, front: &RequestFront) -> bool {
        if self.stage != SessionStage::Greeting || self.peer_host_name() != HostName::NotAsked {
            return false;
        }
        let settings = &self.settings;
        let by_login = || settings.login.as_ref().is_some_and(|policy| policy.needs_host_name());
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
    pub fn set_peer_host(&mut self, name: HostName) {
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

    pub(crate) fn login(&mut self, id: StreamId, m: &Login<'_>, out: &mut dyn ReplyOutputs) -> DriverTask {
        if let Some(refused) = self.refuse_clear_login(id, out) {
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
        };
        let identity = Identity::new(&told, pid, before.address, before.protocol());
        let takes_later = m.generation() >= DEFERRED_GENERATION;
        let moves = m.ability.contains(Ability::READRDOK);
        let both_nets = m.ability.contains(Ability::HASIPV64);
        self.caller = Arc::new(Caller::new(identity, takes_later, moves).with_dual_stack(both_nets));
        if self.client_version == 0 && m.generation() >= SIGNING_GENERATION {
            self.client_version = version::SIGNING;
        }
        let policy = self.settings.login.clone();
        let is_selected_by_name = !self.settings.selects_by_address
            && policy.as_ref().is_some_and(|policy| policy.needs_host_name());
        if is_selected_by_name && self.peer_host_name() == HostName::Failed {
            // The binding of the name could ask for more than that of the address.
            let text = "the name of this client's host cannot be looked up; try again later";
            self.refuse(id, PathId::CONTROL, ErrorCode::OVERLOADED, text, out);
            return self.violated();
        }
        let required = policy.as_ref().map(|policy| (policy, policy.require(&self.peer_host())));
        let entity = match &required {
            Some((policy, HostRequirement::Protocols(required))) => {
                return match m.generation() {
                    0 => self.refuse_without_session_id(id, out),
                    _ => self.offer_protocols(id, policy, required, out),
                };
            }
            Some((_, HostRequirement::Nothing | HostRequirement::Host)) => {
                Some(Entity::of_host(&self.peer_host()))
            }
            None => None,
        };
        self.activate(entity, None);
        let body: &[u8] = if m.generation() == 0 { &[] } else { &self.id.0 };
        replies::ok(out.link(PathId::CONTROL), id, body);
        self.encrypt_session(id, out)
    }

    /// Refuses a client that is too old to receive a session id, and with it the list of protocols.
    fn refuse_without_session_id(&mut self, id: StreamId, out: &mut dyn ReplyOutputs) -> DriverTask {
        let text = "this client is too old to authenticate";
        self.refuse(id, PathId::CONTROL, ErrorCode::AUTH_FAILED, text, out);
        self.violated()
    }

    pub(crate) fn end_session(
        &mut self,
        id: StreamId,
        session: SessionId,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        if session == self.id {
            // The client expects the connection to close, not a reply.
            return self.violated();
        }
        if self.is_authenticating() && session != SessionId::default() {
            return self.end_unauthenticated(id, out);
        }
        if session == SessionId::default() {
            // No session has this id. Version 5.5.3 replies and keeps the session.
            self.done(id, out);
            return DriverTask::Nothing;
        }
        let call = self.call(id, PathId::CONTROL, CallKind::Plain);
        DriverTask::EndSession { call, session }
    }
}

/// Replaces control characters and blanks by `_`, because names come from untrusted peers. A name
/// with a line end could otherwise forge a log line.
pub(crate) fn printable(raw: &[u8]) -> String {
    const SHOWN_MAX: usize = 128;
    let text = String::from_utf8_lossy(raw);
    text.chars().take(SHOWN_MAX).map(|c| if c.is_control() || c == ' ' { '_' } else { c }).collect()
}
