//! Encryption of connections: which operations require it, and when a connection switches to TLS.
//!
//! A connection switches after the reply to kXR_protocol if the client or the next step asks for it,
//! or after the login if the rest of the session must be encrypted. The session decides; its driver
//! performs the handshake ([`DriverTask::StartTls`]). Source: xroot protocol 5.2.0, section 1.8.

use crate::greeting::{SessionClient, SessionStage};
use crate::reply::Replier;
use crate::step::DriverTask;
use config::{TlsOperations, TlsRequirements};
use wire::xroot::codes::{ErrorCode, Expect};
use wire::xroot::flags::{ProtocolFlags, ServerFlags};
use wire::xroot::request::Protocol;

/// Returns the flags that announce requirements. Clients that do not support TLS receive the same.
fn flags(requirements: &TlsRequirements) -> ServerFlags {
    let all = requirements.all.union(requirements.capable);
    let flag = |on: bool, flag| if on { flag } else { ServerFlags::NONE };
    ServerFlags::HAVE_TLS
        | flag(all.login, ServerFlags::TLS_LOGIN)
        | flag(all.includes_session(), ServerFlags::TLS_SESS)
        | flag(all.data, ServerFlags::TLS_DATA)
        | flag(all.gpfile, ServerFlags::TLS_GPF)
        | flag(all.third_party, ServerFlags::TLS_TPC)
}

/// The encryption of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkEncryption {
    /// None, and the client does not support any.
    Unsupported,
    /// None yet.
    Supported,
    /// TLS. It never returns to clear text.
    Tls,
}

impl SessionClient {
    /// Reports whether the control connection is encrypted, or switches after its output.
    pub(crate) fn is_tls(&self) -> bool {
        self.encryption == LinkEncryption::Tls
    }

    /// Returns the operations that this client must encrypt.
    fn tls_operations(&self) -> TlsOperations {
        let Some(tls) = &self.settings.tls else { return TlsOperations::default() };
        match self.encryption {
            LinkEncryption::Unsupported => tls.all,
            LinkEncryption::Supported | LinkEncryption::Tls => tls.all.union(tls.capable),
        }
    }

    /// Processes the flags about TLS of kXR_protocol. Returns the flags to add to the reply.
    pub(crate) fn negotiate_tls(&mut self, m: &Protocol) -> ServerFlags {
        let Some(tls) = &self.settings.tls else { return ServerFlags::NONE };
        let flags = flags(tls);
        // The flags of the oldest clients are a role number.
        if m.clientpv == 0 {
            return ServerFlags::NONE;
        }
        // Later switches would mix replies that are under way with the handshake.
        if self.stage != SessionStage::Greeting || self.is_tls() {
            return flags;
        }
        let wants = m.flags.contains(ProtocolFlags::WANT_TLS);
        let is_capable = wants || m.flags.contains(ProtocolFlags::ABLE_TLS);
        self.encryption = if is_capable { LinkEncryption::Supported } else { LinkEncryption::Unsupported };
        let operations = self.tls_operations();
        let needs = match Expect(m.expect) {
            Expect::BIND => operations.data,
            Expect::LOGIN => operations.login,
            Expect::TPC => operations.login || operations.third_party,
            _ => false,
        };
        if wants || (is_capable && needs) {
            self.encryption = LinkEncryption::Tls;
            return flags | ServerFlags::GOTO_TLS;
        }
        flags
    }

    /// Refuses a login in clear text if it must be encrypted.
    pub(crate) fn refuse_clear_login(&self, reply: &mut Replier<'_>) -> Option<DriverTask> {
        if self.is_tls() || !self.tls_operations().login {
            return None;
        }
        let text = match self.encryption {
            LinkEncryption::Unsupported => "login requires TLS support",
            _ => "login requires TLS be enabled",
        };
        Some(reply.refuse_and_close(ErrorCode::TLS_REQUIRED, text))
    }

    /// Reports whether all requests after the login are encrypted.
    pub(crate) fn encrypts_session(&self) -> bool {
        self.is_tls() || self.tls_operations().includes_session()
    }

    /// Returns the task after the reply that ends a login: to switch to TLS if the session must be
    /// encrypted. A client that cannot is refused.
    pub(crate) fn encrypt_session(&mut self, reply: &mut Replier<'_>) -> DriverTask {
        if self.is_tls() || !self.tls_operations().includes_session() {
            return DriverTask::Nothing;
        }
        if self.encryption == LinkEncryption::Supported {
            self.encryption = LinkEncryption::Tls;
            return DriverTask::StartTls;
        }
        reply.refuse_and_close(ErrorCode::TLS_REQUIRED, "session requires TLS support")
    }

    /// Reports whether a connection in clear text must not join this session.
    pub(crate) fn needs_tls_on_links(&self) -> bool {
        self.tls_operations().data
    }

    /// Reports whether kXR_gpfile must be refused because it must be encrypted.
    pub(crate) fn gpfile_needs_tls(&self) -> bool {
        !self.is_tls() && self.tls_operations().gpfile
    }

    /// Reports whether an open must be refused because it is part of a third-party copy that must be
    /// encrypted.
    pub(crate) fn copy_needs_tls(&self, target: &[u8]) -> bool {
        let mut words = target.split(|byte| b"?&".contains(byte));
        let mut is_copy = || words.any(|word| word.starts_with(b"tpc."));
        !self.is_tls() && self.tls_operations().third_party && is_copy()
    }
}
