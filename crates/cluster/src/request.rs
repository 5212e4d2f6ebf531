//! Requests of clients to the cluster, and their answers.
//!
//! The types are independent of the wire format, because packing and stream ids belong to the
//! connections. Bits and codes are those of cms protocol 3, sections "modifiers" and "responses to
//! a redirector".

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub use wire::cms::ErrorCode;
use wire::cms::flags::{self, ClientNetwork};
use wire::cms::response::locate_text::{self, Location, NodeKind};

use crate::cell::{ClientOrigin, Net};
use crate::slots::Slot;

/// The operation for which the client needs the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Intent {
    /// Read the file or its attributes.
    #[default]
    Read,
    /// Write to an existing file.
    Update,
    /// Create the file; it must not exist.
    Create,
    /// Create the file, or truncate an existing one.
    Truncate,
}

impl Intent {
    /// Reports whether the operation may create the file.
    pub const fn creates(self) -> bool {
        matches!(self, Self::Create | Self::Truncate)
    }

    /// Reports whether the operation needs a child that allows writing to the path.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
}

/// The reason why the client returns from a node that it was redirected to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RetryReason {
    /// The file was missing, or the client gave no reason.
    #[default]
    Missing,
    /// An input or output error.
    Io,
    /// The file system failed.
    FileSystem,
    /// The server failed.
    Server,
}

impl RetryReason {
    /// Returns the reason for the last word of a client's `triedrc=` list.
    pub fn from_word(list: &str) -> Self {
        match list.rsplit(',').next().unwrap_or_default().trim() {
            "ioerr" => Self::Io,
            "fserr" => Self::FileSystem,
            "srverr" => Self::Server,
            _ => Self::Missing,
        }
    }

    /// Returns the error for a client for which no untried child remains.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Missing => ErrorCode::NO_ENTRY,
            Self::Io => ErrorCode::IO_ERROR,
            Self::FileSystem => ErrorCode::FS_ERROR,
            Self::Server => ErrorCode::SERVER_ERROR,
        }
    }
}

/// The strength of affinity: how strongly requests for equal paths go to the same child.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ClientAffinity {
    /// No affinity.
    #[default]
    None,
    /// Affinity among the children known so far.
    Weak,
    /// Affinity among all children that have the file and are fit to serve it.
    Strong,
    /// Affinity among all children that have the file, whatever their load.
    Strict,
}

/// Options of `select`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SelectOptions {
    /// The operation.
    pub intent: Intent,
    /// The operation changes only the name or the mode (remove, rename, mkdir, chmod): it needs no
    /// space, and every replica is as good.
    pub name_only: bool,
    /// Discard the known location and query again.
    pub refresh: bool,
    /// Exclude children at which the file is only being staged.
    pub online: bool,
    /// A new replica is made: choose a child without one.
    pub replica: bool,
    /// Writing to one of several replicas is acceptable.
    pub copies: bool,
    /// The client wants one more source, beside those tried.
    pub another_source: bool,
    /// The network position of the client.
    pub client: ClientOrigin,
    /// The reason for the return.
    pub reason: RetryReason,
    /// The affinity that the client asks for; it counts only if the configuration allows it.
    pub affinity: Option<ClientAffinity>,
}

/// Bits without meaning are ignored, as real managers do.
impl From<flags::SelectOptions> for SelectOptions {
    fn from(bits: flags::SelectOptions) -> Self {
        use flags::SelectOptions as Bits;
        let intent = match () {
            () if bits.contains(Bits::TRUNC) => Intent::Truncate,
            () if bits.contains(Bits::CREATE) => Intent::Create,
            () if bits.contains(Bits::WRITE) => Intent::Update,
            () => Intent::Read,
        };
        let reason = match bits.tried_reason() {
            flags::TriedReason::Missing => RetryReason::Missing,
            flags::TriedReason::IoError => RetryReason::Io,
            flags::TriedReason::FsError => RetryReason::FileSystem,
            flags::TriedReason::ServerError => RetryReason::Server,
        };
        let affinity = match bits.affinity() {
            flags::FileAffinity::Unsaid => None,
            flags::FileAffinity::None => Some(ClientAffinity::None),
            flags::FileAffinity::Weak => Some(ClientAffinity::Weak),
            flags::FileAffinity::Strong => Some(ClientAffinity::Strong),
            flags::FileAffinity::Strict => Some(ClientAffinity::Strict),
        };
        Self {
            intent,
            name_only: bits.contains(Bits::METAOP),
            refresh: bits.contains(Bits::REFRESH),
            online: bits.contains(Bits::ONLINE),
            replica: bits.contains(Bits::REPLICA),
            copies: bits.contains(Bits::MULTI_WRITE),
            another_source: bits.0 & Bits::RESELECT.0 != 0,
            client: client(bits.network(), bits.contains(Bits::NET_PRIVATE)),
            reason,
            affinity,
        }
    }
}

/// Options of `locate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocateFlags {
    /// Discard the known location and query again.
    pub refresh: bool,
    /// Return names instead of addresses.
    pub names: bool,
    /// Of children with a shared file system, return one.
    pub unique: bool,
    /// Return the first known child, without waiting for all.
    pub asap: bool,
    /// Return addresses of every family, whether the client can use them or not.
    pub all_nets: bool,
    /// The network position of the client.
    pub client: ClientOrigin,
}

impl From<flags::LocateOptions> for LocateFlags {
    fn from(bits: flags::LocateOptions) -> Self {
        use flags::LocateOptions as Bits;
        Self {
            refresh: bits.contains(Bits::REFRESH),
            names: bits.contains(Bits::NAMES),
            unique: bits.contains(Bits::UNIQUE),
            asap: bits.contains(Bits::ASAP),
            all_nets: bits.contains(Bits::ALL_NETS),
            client: client(bits.network(), bits.contains(Bits::NET_PRIVATE)),
        }
    }
}

fn client(network: ClientNetwork, private: bool) -> ClientOrigin {
    let net = match network {
        ClientNetwork::Ipv4 => Net::V4,
        ClientNetwork::PreferIpv4 => Net::V4First,
        ClientNetwork::Ipv6 => Net::V6,
        ClientNetwork::PreferIpv6 => Net::V6First,
    };
    ClientOrigin { net, private, alone: false }
}

/// One line of the answer to `locate`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedChild {
    /// The child.
    pub slot: Slot,
    /// The child is an inner node; the client has to ask it for the servers below.
    pub inner: bool,
    /// The file is only being staged there; in a list of all children: the child must not be used
    /// now.
    pub faint: bool,
    /// It allows writing to the path.
    pub write: bool,
    /// Its name, if names were requested.
    pub name: Option<Arc<str>>,
    /// Its address.
    pub ip: IpAddr,
    /// The port for clients.
    pub port: u16,
}

impl LocatedChild {
    /// Encodes these lines for clients, without NUL.
    pub fn text(list: &[Self]) -> Vec<u8> {
        let addresses: Vec<Vec<u8>> = list.iter().map(Self::address).collect();
        let lines = list.iter().zip(&addresses).map(|(one, address)| Location {
            node: match (one.inner, one.faint) {
                (true, false) => NodeKind::Manager,
                (true, true) => NodeKind::ManagerPending,
                (false, false) => NodeKind::Server,
                (false, true) => NodeKind::ServerPending,
            },
            writable: one.write,
            address,
        });
        let mut text = Vec::new();
        locate_text::encode(&mut text, lines);
        text
    }

    fn address(&self) -> Vec<u8> {
        match &self.name {
            Some(name) => format!("{name}:{}", self.port).into_bytes(),
            None => {
                let mut text = Vec::new();
                locate_text::address(&mut text, SocketAddr::new(self.ip, self.port));
                text
            }
        }
    }
}

/// The answer to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClusterAnswer {
    /// The client continues at this node.
    Redirect {
        /// The chosen child; `None` for a node outside the cell.
        slot: Option<Slot>,
        /// The name or address, without port.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
    /// The client retries after this time. It is at least 1 s, because real redirectors treat 0 as
    /// success.
    Wait(Duration),
    /// These children have the file.
    Located(Vec<LocatedChild>),
    /// The request failed.
    Error(ErrorCode, Cow<'static, str>),
}

impl ClusterAnswer {
    pub(crate) const fn error(code: ErrorCode, text: &'static str) -> Self {
        Self::Error(code, Cow::Borrowed(text))
    }

    /// Returns a wait of `time`, but at least 1 s.
    pub(crate) fn wait(time: Duration) -> Self {
        Self::Wait(time.max(Duration::from_secs(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_as_real_redirectors_send_them() {
        let select = |bits| SelectOptions::from(flags::SelectOptions(bits));
        assert_eq!(select(0x48).intent, Intent::Read);
        assert_eq!(select(0x08).intent, Intent::Read);
        assert_eq!(select(0x20).intent, Intent::Update);
        assert_eq!(select(0x22).intent, Intent::Create);
        assert_eq!(select(0x32).intent, Intent::Truncate, "wins over create");
        assert!(select(0xa0).name_only && select(0xa0).intent == Intent::Update);
        assert!(select(0xa2).name_only && select(0xa2).intent == Intent::Create);
        assert!(select(0x4).online && select(0x1).refresh && select(0x100).replica && select(0x200).copies);
        assert!(select(0x40000).another_source && select(0x80000).another_source);
        assert_eq!(select(0x30008).reason, RetryReason::Server);
        assert_eq!(select(0x300000).affinity, Some(ClientAffinity::Strict));
        assert_eq!(select(0x400000).affinity, Some(ClientAffinity::None));
        assert_eq!(select(0x8).client, ClientOrigin { net: Net::V4, ..ClientOrigin::default() });
        assert_eq!(select(0xb000).client, ClientOrigin { net: Net::V6First, private: true, alone: false });
        let locate = LocateFlags::from(flags::LocateOptions(0x4087));
        assert!(locate.refresh && locate.names && locate.unique && locate.asap && locate.all_nets);
    }

    #[test]
    fn the_last_reason_counts() {
        assert_eq!(RetryReason::from_word("enoent,ioerr"), RetryReason::Io);
        assert_eq!(RetryReason::from_word("srverr,fserr"), RetryReason::FileSystem);
        assert_eq!(RetryReason::from_word("ioerr,resel"), RetryReason::Missing);
        assert_eq!(RetryReason::from_word(""), RetryReason::Missing);
    }

    #[test]
    fn lines_as_clients_read_them() {
        let mut line = LocatedChild {
            slot: Slot::new(1).unwrap(),
            inner: false,
            faint: false,
            write: true,
            name: None,
            ip: IpAddr::from([127, 0, 0, 1]),
            port: 1094,
        };
        let text =
            |line: &LocatedChild| String::from_utf8(LocatedChild::text(std::slice::from_ref(line))).unwrap();
        assert_eq!(text(&line), "Sw[::127.0.0.1]:1094");
        line.name = Some(Arc::from("vm"));
        (line.inner, line.write) = (true, false);
        assert_eq!(text(&line), "Mrvm:1094");
        line.faint = true;
        (line.name, line.ip) = (None, IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(text(&line), "mr[::1]:1094");
    }
}
