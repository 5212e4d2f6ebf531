//! The login, its reply, and the frames that may replace the reply.
//!
//! Login and reply share one layout. Optional texts may be absent or omitted at the end:
//!
//! | argument | type | login of a node              | of a redirector   | reply                  |
//! |----------|------|------------------------------|-------------------|------------------------|
//! | version  | u16  | 3                            | 0                 | 3                      |
//! | mode     | u32  | [`Mode`]                     | director, blredir | suspend, debug         |
//! | holdtime | u32  | process id                   | process id        | fast queue tick in ms  |
//! | tSpace   | u32  | space in MB                  | 0                 | 0                      |
//! | fSpace   | u32  | most free MB per file system | 0                 | 0                      |
//! | mSpace   | u32  | free MB to keep              | 0                 | 0                      |
//! | fsNum    | u16  | number of file systems       | 0                 | 0                      |
//! | fsUtil   | u16  | used percent                 | 0                 | 0                      |
//! | dPort    | u16  | port for clients             | 0                 | 0                      |
//! | sPort    | u16  | port for its own children    | 0                 | 0                      |
//! | SID      | text | [`SystemId`]                 | absent            | [`SystemId`] or absent |
//! | paths    | text | [`ExportLines`]                  | absent            | absent                 |
//! | ifList   | text | its addresses, or absent     | absent            | absent                 |
//! | envCGI   | text | [`Env`]                      | [`Env`]           | [`Env`], or absent     |
//!
//! The reply to a peer below version 3 has neither SID nor envCGI. The payload of both is at most
//! 4096 bytes. A manager identifies a node by its SID. A node's login without a valid SID or with
//! invalid paths is therefore not sent, and is refused on receipt.
//!
//! Source: cms protocol version 3, section 2. Recorded: 01, 02, 09, 10, 20.

mod answer;
pub mod cluster_id;
mod env;
mod exports;
mod role;
mod system_id;

pub use answer::LoginAnswer;
pub use cluster_id::ClusterIdManager;
pub use env::Env;
pub use exports::{ExportLine, ExportLines};
pub use role::{Acceptor, Role};
pub use system_id::{SystemId, SystemIdKind};

use super::PROTOCOL_VERSION;
use super::error::EncodeError;
use super::extensions::Extensions;
use super::flags::Mode;
use super::pup::{Arguments, Packer, Unpacker};
use crate::codec::Decode;
use crate::error::WireError;
use crate::xroot::cgi::CgiText;

/// Maximum of the fields in megabytes; larger values are sent as this value.
const SPACE_MB_MAX: u32 = 0x7fff_ffff;
/// The first version whose peers use system ids and the text at the end.
const SYSTEM_ID_VERSION: u16 = 3;

/// The login of a node or redirector.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeLogin<'a> {
    /// Protocol version; redirectors of XRootD send 0.
    pub version: u16,
    /// Kind and abilities of the sender.
    pub mode: Mode,
    /// Process id of the sender.
    pub pid: u32,
    /// Total size of its file systems in megabytes; supervisors of XRootD send 1.
    pub total_mb: u32,
    /// Free megabytes on its file system with the most free space.
    pub free_mb: u32,
    /// Minimum of free megabytes for accepting new files.
    pub free_mb_min: u32,
    /// Number of its file systems.
    pub file_systems: u16,
    /// Used space in percent.
    pub used_percent: u16,
    /// Port for clients.
    pub data_port: u16,
    /// Port for its own children.
    pub node_port: u16,
    /// System id, see [`SystemId`].
    pub sid: Option<&'a [u8]>,
    /// Exported paths, see [`NodeLogin::exports`].
    pub paths: Option<&'a [u8]>,
    /// Addresses, see [`NodeLogin::interfaces`].
    pub interfaces: Option<&'a [u8]>,
    /// Name and site, see [`NodeLogin::env`].
    pub env: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for NodeLogin<'a> {
    fn unpack(_modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self {
            version: arguments.u16("version")?,
            mode: Mode(arguments.u32("mode")?),
            pid: arguments.u32("holdtime")?,
            total_mb: arguments.u32("tSpace")?,
            free_mb: arguments.u32("fSpace")?,
            free_mb_min: arguments.u32("mSpace")?,
            file_systems: arguments.u16("fsNum")?,
            used_percent: arguments.u16("fsUtil")?,
            data_port: arguments.u16("dPort")?,
            node_port: arguments.u16("sPort")?,
            sid: arguments.optional("SID")?,
            paths: arguments.optional("paths")?,
            interfaces: arguments.optional("ifList")?,
            env: arguments.optional("envCGI")?,
        })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        if !self.mode.contains(Mode::DIRECTOR) {
            self.check_node()?;
        }
        packer.u16(self.version);
        packer.u32(self.mode.0);
        packer.u32(self.pid);
        for space in [self.total_mb, self.free_mb, self.free_mb_min] {
            packer.u32(space.min(SPACE_MB_MAX));
        }
        for number in [self.file_systems, self.used_percent, self.data_port, self.node_port] {
            packer.u16(number);
        }
        packer.optional("SID", self.sid)?;
        packer.optional("paths", self.paths)?;
        packer.optional("ifList", self.interfaces)?;
        packer.optional("envCGI", self.env)
    }
}

impl<'a> NodeLogin<'a> {
    /// Returns the login of a redirector with the text of an [`Env`].
    #[must_use]
    pub fn redirector(pid: u32, env: &'a [u8]) -> Self {
        Self { mode: Mode::DIRECTOR | Mode::BLREDIR, pid, env: Some(env), ..Self::default() }
    }

    /// Checks the fields that a node's login must have: a valid system id and valid paths.
    fn check_node(&self) -> Result<(), EncodeError> {
        let sid = self.sid.ok_or(EncodeError::Missing { field: "SID" })?;
        SystemId::decode(sid).map_err(|_| EncodeError::Malformed { field: "SID" })?;
        if self.exports().any(|export| export.is_err()) {
            return Err(EncodeError::Malformed { field: "paths" });
        }
        Ok(())
    }

    /// Returns the exported paths; `r /` if none are given. The iterator returns an error for an
    /// invalid line.
    #[must_use]
    pub fn exports(&self) -> ExportLines<'a> {
        ExportLines::parse(self.paths.unwrap_or_default())
    }

    /// Returns the addresses.
    pub fn interfaces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let tokens = self.interfaces.unwrap_or_default().split(|byte| byte.is_ascii_whitespace());
        tokens.filter(|token| !token.is_empty())
    }

    /// Returns name, site and supported extensions.
    #[must_use]
    pub fn env(&self) -> Env<'a> {
        Env::parse(CgiText::new(self.env.unwrap_or_default()))
    }

    /// Returns the role of the sender for `acceptor`; `None` if the login must be refused.
    #[must_use]
    pub const fn role(&self, acceptor: Acceptor) -> Option<Role> {
        Role::of(self.mode, acceptor)
    }
}

/// The reply to an accepted login. It is also the reply to a login that is refused without a
/// reason; the connection is closed afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeLoginReply<'a> {
    /// Protocol version, 3.
    pub version: u16,
    /// Flags for a suspended sender and for tracing.
    pub mode: Mode,
    /// Tick of the fast queue in milliseconds. A redirector waits three ticks for an answer, at
    /// least 2 s and at most 3 s.
    pub hold_ms: u32,
    /// System id of the sender.
    pub sid: Option<&'a [u8]>,
    /// Site and supported extensions of the sender: [`NodeLoginReply::env`].
    pub env: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for NodeLoginReply<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        let record = NodeLogin::unpack(modifier, arguments)?;
        Ok(Self {
            version: record.version,
            mode: record.mode,
            hold_ms: record.pid,
            sid: record.sid,
            env: record.env,
        })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        if let Some(sid) = self.sid {
            SystemId::decode(sid).map_err(|_| EncodeError::Malformed { field: "SID" })?;
        }
        packer.u16(self.version);
        packer.u32(self.mode.0);
        packer.u32(self.hold_ms);
        for _space in 0..3 {
            packer.u32(0);
        }
        for _number in 0..4 {
            packer.u16(0);
        }
        packer.optional("SID", self.sid)?;
        packer.optional("paths", None)?;
        packer.optional("ifList", None)?;
        packer.optional("envCGI", self.env)
    }
}

impl<'a> NodeLoginReply<'a> {
    /// Creates the reply to `login`. Peers below version 3 receive neither the system id nor the
    /// text.
    #[must_use]
    pub fn to(login: &NodeLogin<'_>, suspended: bool, hold_ms: u32, sid: &'a [u8], env: &'a [u8]) -> Self {
        let texts = login.version >= SYSTEM_ID_VERSION;
        Self {
            version: PROTOCOL_VERSION,
            mode: if suspended { Mode::SUSPEND } else { Mode::NONE },
            hold_ms,
            sid: texts.then_some(sid),
            env: Some(env).filter(|env| texts && !env.is_empty()),
        }
    }

    /// Reports whether the sender accepts no requests now.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        self.mode.contains(Mode::SUSPEND)
    }

    /// Returns the sender's site and supported extensions.
    #[must_use]
    pub fn env(&self) -> Env<'a> {
        Env::parse(CgiText::new(self.env.unwrap_or_default()))
    }

    /// Returns the extensions of the connection if the login offered `offered`.
    #[must_use]
    pub fn granted(&self, offered: Extensions) -> Extensions {
        self.env().extensions.common(offered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cms::header::StreamId;
    use crate::cms::message::Message;

    fn encoded(login: NodeLogin<'_>) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        Message::Login(login).encode(StreamId::NONE, Extensions::NONE, &mut out).map(|()| out)
    }

    #[test]
    fn a_login_without_system_id_is_not_sent() {
        let node = NodeLogin { version: 3, mode: Mode::SERVER, ..NodeLogin::default() };
        assert_eq!(encoded(node), Err(EncodeError::Missing { field: "SID" }));
        for bad in [&b""[..], b"x", b"s-srv@vm", b"q-srv@vm cid"] {
            let refused = Err(EncodeError::Malformed { field: "SID" });
            assert_eq!(encoded(NodeLogin { sid: Some(bad), ..node }), refused);
        }
        assert!(encoded(NodeLogin { sid: Some(b"s-srv@vm 1213man"), ..node }).is_ok());
        // A redirector has no system id.
        assert!(encoded(NodeLogin::redirector(1, b"myHN=vm")).is_ok());
    }

    #[test]
    fn a_login_with_invalid_paths_is_not_sent() {
        let sid = Some(&b"s-srv@vm 1213man"[..]);
        let node = NodeLogin { version: 3, mode: Mode::SERVER, sid, ..NodeLogin::default() };
        for bad in [&b"q /"[..], b"w", b"w /a\n\nr /b", b"/", b"w relative"] {
            let refused = Err(EncodeError::Malformed { field: "paths" });
            assert_eq!(encoded(NodeLogin { paths: Some(bad), ..node }), refused, "{}", bad.escape_ascii());
        }
        assert!(encoded(NodeLogin { paths: Some(b"w /a\nrs /b"), ..node }).is_ok());
    }

    #[test]
    fn a_login_of_more_than_4096_bytes_is_not_sent() {
        let sid = Some(&b"s-srv@vm 1213man"[..]);
        let lines = "w /data/a\n".repeat(204) + "r /x";
        let paths = Some(lines.as_bytes());
        let node = NodeLogin { version: 3, mode: Mode::SERVER, sid, paths, ..NodeLogin::default() };
        assert!(encoded(node).is_ok());
        let interfaces = "10.0.0.1 ".repeat(226);
        let long = NodeLogin { interfaces: Some(interfaces.as_bytes()), ..node };
        assert!(matches!(encoded(long), Err(EncodeError::TooLong { field: "payload", limit: 4096, .. })));
        let lines = format!("{lines}\nr /y");
        let long = NodeLogin { paths: Some(lines.as_bytes()), ..node };
        assert!(matches!(encoded(long), Err(EncodeError::TooLong { field: "paths", limit: 2047, .. })));
    }

    #[test]
    fn a_peer_below_version_3_receives_no_system_id() {
        let login = NodeLogin { version: 2, ..NodeLogin::default() };
        let reply = NodeLoginReply::to(&login, true, 178, b"m-man@vm x", b"site=a");
        assert_eq!((reply.version, reply.sid, reply.env), (3, None, None));
        assert!(reply.is_suspended());
        let reply = NodeLoginReply::to(
            &NodeLogin { version: 4, ..login },
            false,
            178,
            b"m-man@vm x",
            b"site=a&scalla=3",
        );
        assert_eq!((reply.sid, reply.is_suspended()), (Some(&b"m-man@vm x"[..]), false));
        assert_eq!(reply.env().site, Some(&b"a"[..]));
        assert_eq!(reply.granted(Extensions::NOT_HERE), Extensions::NOT_HERE);
        assert_eq!(reply.granted(Extensions::INVENTORY), Extensions::NONE);
        let reply = NodeLoginReply::to(&NodeLogin { version: 3, ..login }, false, 178, b"m-man@vm x", b"");
        assert_eq!(reply.env, None);
    }

    #[test]
    fn addresses_are_separated_by_blanks() {
        let login = NodeLogin { interfaces: Some(b" 10.0.0.1  [::1] "), ..NodeLogin::default() };
        assert_eq!(login.interfaces().collect::<Vec<_>>(), [&b"10.0.0.1"[..], b"[::1]"]);
    }
}
