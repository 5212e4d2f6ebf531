//! What a client wants to be told, in the cluster's own words, and what it is told.
//!
//! The bits and codes are those of cms protocol 3, sections "modifiers" and "responses to a redirector"; everything
//! else of the wire (packing, stream ids) stays outside.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::cell::{Client, Net};
use crate::slots::Slot;

/// What the client is about to do with the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Intent {
    /// Read it or look at it.
    #[default]
    Read,
    /// Write to what is there.
    Update,
    /// Make it; it must not be there.
    Create,
    /// Make it, or empty it if it is there.
    Truncate,
}

impl Intent {
    /// Whether the file may come to exist by it.
    pub const fn creates(self) -> bool {
        matches!(self, Self::Create | Self::Truncate)
    }

    /// Whether it needs a child that lets the path be written.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
}

/// Why the client comes back from where it was sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reason {
    /// The file was not there, or nothing was said.
    #[default]
    Missing,
    /// An input or output error.
    Io,
    /// The file system failed.
    FileSystem,
    /// The server failed.
    Server,
}

impl Reason {
    /// From the words of a client's `triedrc=` list, of which the last counts.
    pub fn from_word(list: &str) -> Self {
        match list.rsplit(',').next().unwrap_or_default().trim() {
            "ioerr" => Self::Io,
            "fserr" => Self::FileSystem,
            "srverr" => Self::Server,
            _ => Self::Missing,
        }
    }

    /// The error a client gets when nobody is left to try.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Missing => ErrorCode::NotFound,
            Self::Io => ErrorCode::Io,
            Self::FileSystem => ErrorCode::FileSystem,
            Self::Server => ErrorCode::Server,
        }
    }
}

/// How strongly equal paths should go to the same child.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Affinity {
    /// Not at all.
    #[default]
    None,
    /// Among the children known so far.
    Weak,
    /// Among all children that have the file and are fit to serve it.
    Strong,
    /// Among all children that have the file, however busy.
    Strict,
}

/// Options of `select`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SelectOptions {
    /// What for.
    pub intent: Intent,
    /// Only the name is touched (remove, rename, mkdir, chmod): no space is needed and every copy is as good.
    pub name_only: bool,
    /// Forget what is known and ask.
    pub refresh: bool,
    /// Not where it is only on its way.
    pub online: bool,
    /// For a further copy: where it is not yet.
    pub replica: bool,
    /// Writing one of several copies is fine.
    pub copies: bool,
    /// One more source is wanted, beside those tried.
    pub another_source: bool,
    /// Where the client is.
    pub client: Client,
    /// Why it came back.
    pub reason: Reason,
    /// What the client wishes as to affinity; heard only where the configuration lets it.
    pub affinity: Option<Affinity>,
}

impl SelectOptions {
    /// From the bits of the wire. Bits without meaning are ignored, as real managers do.
    pub fn from_bits(bits: u32) -> Self {
        let has = |bit: u32| bits & bit != 0;
        let intent = match () {
            () if has(0x10) => Intent::Truncate,
            () if has(0x02) => Intent::Create,
            () if has(0x20) => Intent::Update,
            () => Intent::Read,
        };
        let reason = match bits >> 16 & 3 {
            1 => Reason::Io,
            2 => Reason::FileSystem,
            3 => Reason::Server,
            _ => Reason::Missing,
        };
        let affinity = match bits >> 20 & 7 {
            1 => Some(Affinity::Weak),
            2 => Some(Affinity::Strong),
            3 => Some(Affinity::Strict),
            4 => Some(Affinity::None),
            _ => None,
        };
        Self {
            intent,
            name_only: has(0x80),
            refresh: has(0x01),
            online: has(0x04),
            replica: has(0x100),
            copies: has(0x200),
            another_source: has(0xc0000),
            client: client_from_bits(bits),
            reason,
            affinity,
        }
    }
}

/// Options of `locate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocateOptions {
    /// Forget what is known and ask.
    pub refresh: bool,
    /// Names instead of addresses.
    pub names: bool,
    /// Of children that share a file system, one.
    pub unique: bool,
    /// Whoever is known first, instead of all.
    pub asap: bool,
    /// Addresses of every kind, whether the client can use them or not.
    pub all_nets: bool,
    /// Where the client is.
    pub client: Client,
}

impl LocateOptions {
    /// From the bits of the wire.
    pub fn from_bits(bits: u32) -> Self {
        let has = |bit: u32| bits & bit != 0;
        Self {
            refresh: has(0x1),
            names: has(0x2),
            unique: has(0x4),
            asap: has(0x80),
            all_nets: has(0x4000),
            client: client_from_bits(bits),
        }
    }
}

fn client_from_bits(bits: u32) -> Client {
    let net = match bits & 0x3000 {
        0x1000 => Net::V4First,
        0x2000 => Net::V6,
        0x3000 => Net::V6First,
        _ => Net::V4,
    };
    Client { net, private: bits & 0x8000 != 0 }
}

/// The errors of cms protocol 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorCode {
    /// 1: nobody has it, or nobody exports its path.
    NotFound,
    /// 2: not permitted.
    Permission,
    /// 4: the request makes no sense.
    Invalid,
    /// 5: the servers that have it fail to read or write it.
    Io,
    /// 6: too much is going on.
    Memory,
    /// 7: no space left where it could be written.
    NoSpace,
    /// 8: the name is too long.
    NameTooLong,
    /// 9: those who have it cannot be reached over the client's network.
    Unreachable,
    /// 12: the file systems that have it fail.
    FileSystem,
    /// 13: the servers that have it fail.
    Server,
    /// 14: it exists already, or writing it would make copies differ.
    Conflict,
    /// 15: no place for a further copy.
    NoReplicas,
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> u32 {
        match self {
            Self::NotFound => 1,
            Self::Permission => 2,
            Self::Invalid => 4,
            Self::Io => 5,
            Self::Memory => 6,
            Self::NoSpace => 7,
            Self::NameTooLong => 8,
            Self::Unreachable => 9,
            Self::FileSystem => 12,
            Self::Server => 13,
            Self::Conflict => 14,
            Self::NoReplicas => 15,
        }
    }
}

/// One line of the answer to `locate`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    /// The child.
    pub slot: Slot,
    /// It is an inner node: ask on there.
    pub inner: bool,
    /// The file is only on its way there; when all children are listed: it is not to be used now.
    pub faint: bool,
    /// It lets the path be written.
    pub write: bool,
    /// Its name, when names are wanted.
    pub name: Option<Arc<str>>,
    /// Its address.
    pub ip: IpAddr,
    /// The port clients use.
    pub port: u16,
}

impl Located {
    /// As clients read it: `<type><access><address>`, type `M` or `S` or, when faint, `m` or `s`; access `r` or `w`.
    /// IPv4 addresses have the form `[::a.b.c.d]`.
    pub fn to_text(&self) -> String {
        let kind = match (self.inner, self.faint) {
            (true, false) => 'M',
            (true, true) => 'm',
            (false, false) => 'S',
            (false, true) => 's',
        };
        let access = if self.write { 'w' } else { 'r' };
        match (&self.name, self.ip) {
            (Some(name), _) => format!("{kind}{access}{name}:{}", self.port),
            (None, IpAddr::V4(ip)) => format!("{kind}{access}[::{ip}]:{}", self.port),
            (None, IpAddr::V6(ip)) => format!("{kind}{access}[{ip}]:{}", self.port),
        }
    }
}

/// What the client is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Go there.
    Redirect {
        /// The child that was chosen; `None` for a place outside the cell.
        slot: Option<Slot>,
        /// Name or address, without port.
        host: Arc<str>,
        /// Its port.
        port: u16,
    },
    /// Come again after this time; at least a second, because real redirectors take 0 for success.
    Wait(Duration),
    /// These have it.
    Located(Vec<Located>),
    /// That cannot be.
    Error(ErrorCode, Cow<'static, str>),
}

impl Answer {
    pub(crate) const fn error(code: ErrorCode, text: &'static str) -> Self {
        Self::Error(code, Cow::Borrowed(text))
    }

    /// Wait for `time`, never for less than a second.
    pub(crate) fn wait(time: Duration) -> Self {
        Self::Wait(time.max(Duration::from_secs(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_as_real_redirectors_send_them() {
        let select = SelectOptions::from_bits;
        assert_eq!(select(0x48).intent, Intent::Read);
        assert_eq!(select(0x08).intent, Intent::Read);
        assert_eq!(select(0x20).intent, Intent::Update);
        assert_eq!(select(0x22).intent, Intent::Create);
        assert_eq!(select(0x32).intent, Intent::Truncate, "wins over create");
        assert!(select(0xa0).name_only && select(0xa0).intent == Intent::Update);
        assert!(select(0xa2).name_only && select(0xa2).intent == Intent::Create);
        assert!(select(0x4).online && select(0x1).refresh && select(0x100).replica && select(0x200).copies);
        assert!(select(0x40000).another_source && select(0x80000).another_source);
        assert_eq!(select(0x30008).reason, Reason::Server);
        assert_eq!(select(0x300000).affinity, Some(Affinity::Strict));
        assert_eq!(select(0x400000).affinity, Some(Affinity::None));
        assert_eq!(select(0x8).client, Client { net: Net::V4, private: false });
        assert_eq!(select(0xb000).client, Client { net: Net::V6First, private: true });
        let locate = LocateOptions::from_bits(0x4087);
        assert!(locate.refresh && locate.names && locate.unique && locate.asap && locate.all_nets);
    }

    #[test]
    fn the_last_reason_counts() {
        assert_eq!(Reason::from_word("enoent,ioerr"), Reason::Io);
        assert_eq!(Reason::from_word("srverr,fserr"), Reason::FileSystem);
        assert_eq!(Reason::from_word("ioerr,resel"), Reason::Missing);
        assert_eq!(Reason::from_word(""), Reason::Missing);
    }

    #[test]
    fn lines_as_clients_read_them() {
        let mut line = Located {
            slot: Slot::new(1).unwrap(),
            inner: false,
            faint: false,
            write: true,
            name: None,
            ip: IpAddr::from([127, 0, 0, 1]),
            port: 1094,
        };
        assert_eq!(line.to_text(), "Sw[::127.0.0.1]:1094");
        line.name = Some(Arc::from("vm"));
        (line.inner, line.write) = (true, false);
        assert_eq!(line.to_text(), "Mrvm:1094");
        line.faint = true;
        (line.name, line.ip) = (None, IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(line.to_text(), "mr[::1]:1094");
    }
}
