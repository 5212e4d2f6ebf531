//! kXR_protocol, kXR_login and kXR_endsess: from the first request to login, and ends of sessions.
//!
//! The driver executes kXR_bind and kXR_endsess of other sessions, because a session knows no
//! others.

use crate::call::CallKind;
use crate::ids::PathId;
use crate::replies;
use crate::state::{ReplyOutputs, Session, SessionStage};
use crate::step::DriverTask;
use base::{Identity, LoginNames};
use std::sync::Arc;
use vfs::Caller;
use wire::xroot::codes::SecurityLevel;
use wire::xroot::flags::{Ability, ProtocolFlags, ServerFlags};
use wire::xroot::header::{SessionId, StreamId};
use wire::xroot::login_cgi::LoginCgi;
use wire::xroot::request::{Login, Protocol};
use wire::xroot::version;

/// The first client generation that accepts deferred answers. The capability bit for it is ignored,
/// as the real server does.
const DEFERRED_GENERATION: u8 = 2;

impl Session {
    pub(crate) fn protocol(&mut self, id: StreamId, m: &Protocol, out: &mut dyn ReplyOutputs) -> DriverTask {
        let flags = if m.clientpv == 0 {
            // The role number of the oldest protocol: 1 server, 0 manager.
            u32::from(self.settings.flags.contains(ServerFlags::IS_SERVER))
        } else {
            self.settings.flags.0
        };
        let signing = self.settings.signing;
        let wanted = m.flags.contains(ProtocolFlags::SECREQS) && m.clientpv >= version::SIGNING;
        let security = (wanted && signing.level != SecurityLevel::NONE).then_some(signing);
        replies::protocol(out.link(PathId::CONTROL), id, flags, security);
        DriverTask::Nothing
    }

    pub(crate) fn login(&mut self, id: StreamId, m: &Login<'_>, out: &mut dyn ReplyOutputs) -> DriverTask {
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
        self.stage = SessionStage::Active;
        let body: &[u8] = if m.generation() == 0 { &[] } else { &self.id.0 };
        replies::ok(out.link(PathId::CONTROL), id, body);
        DriverTask::Nothing
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
fn printable(raw: &[u8]) -> String {
    const SHOWN_MAX: usize = 128;
    let text = String::from_utf8_lossy(raw);
    text.chars().take(SHOWN_MAX).map(|c| if c.is_control() || c == ' ' { '_' } else { c }).collect()
}
