//! Messages: the enum of all messages, with one file per message or small family.
//!
//! Decoding does not allocate: borrowed parts point into the payload. Texts are without their NUL.
//! An optional text is `None` if it is absent or if the payload ends before it.
//!
//! The streamid is not part of a message, because an answer echoes that of its request. The
//! exception is `status`, whose streamid is the data port.

pub mod inventory;
pub mod lease;
pub mod load;
pub mod mode_change;
pub mod mv;
pub mod not_here;
pub mod occupancy;
pub mod prepare;
pub mod removal;
pub mod select;
pub mod state;
pub mod statfs;
pub mod status;
pub mod trunc;
pub mod try_hosts;

pub use inventory::{Inventory, PathBatch};
pub use lease::Lease;
pub use load::{Avail, Load, SpaceSums};
pub use mode_change::ModeChange;
pub use mv::Mv;
pub use not_here::NotHere;
pub use occupancy::{CellBatch, CellPlaces, Occupancy};
pub use prepare::{Prepadd, Prepdel};
pub use removal::Removal;
pub use select::{Avoided, Locate, Select};
pub use state::{Gone, Have, State};
pub use statfs::Statfs;
pub use status::Status;
pub use trunc::Trunc;
pub use try_hosts::{Try, TryHost, TryList};

use super::codes::Code;
use super::error::EncodeError;
use super::extensions::Extensions;
use super::flags::{HaveModifier, RAW, StatsModifier};
use super::header::{Header, StreamId};
use super::limits::{LOGIN_PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX};
use super::login::NodeLogin;
use super::pup::{Arguments, Envelope, Unpacker, frame};
use crate::error::WireError;

/// A message between nodes, or from a redirector to a manager. Section 1.3 of the cms protocol
/// version 3 lists the senders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Logs in; the first message. The answer is a [`LoginAnswer`](super::LoginAnswer).
    Login(NodeLogin<'a>),
    /// Changes permission bits. Redirector to manager, relayed down.
    Chmod(ModeChange<'a>),
    /// Locates a path. Redirector to manager.
    Locate(Locate<'a>),
    /// Creates a directory. Redirector to manager, relayed down.
    Mkdir(ModeChange<'a>),
    /// Creates a directory and its parents. Redirector to manager, relayed down.
    Mkpath(ModeChange<'a>),
    /// Renames a path. Redirector to manager, relayed down.
    Mv(Mv<'a>),
    /// Stages a file. Redirector to manager, relayed to one node.
    Prepadd(Prepadd<'a>),
    /// Cancels staging. Between Scalla nodes only.
    Prepdel(Prepdel<'a>),
    /// Removes a file. Redirector to manager, relayed down.
    Rm(Removal<'a>),
    /// Removes a directory. Redirector to manager, relayed down.
    Rmdir(Removal<'a>),
    /// Selects a node for a client. Redirector to manager.
    Select(Select<'a>),
    /// Requests statistics. Redirector to manager, parent to node.
    Stats(StatsModifier),
    /// Reports free space. Node to parent.
    Avail(Avail),
    /// Announces that the sender disconnects, or demands that the receiver does. Both directions.
    Disc,
    /// Reports that a path no longer exists at the sender. Node to parent, relayed up.
    Gone(Gone<'a>),
    /// Reports that a path exists at the sender. Node to parent, relayed up.
    Have(Have<'a>),
    /// Reports the load. Node to parent.
    Load(Load),
    /// Checks that the receiver is alive. Parent to node.
    Ping,
    /// Answers `ping`. Node to parent.
    Pong,
    /// Requests the free space. Parent to node; answered by `avail`. XRootD parents do not send it.
    Space,
    /// Queries a path. Parent to node, relayed down.
    State(State<'a>),
    /// Requests space totals. Redirector to manager.
    Statfs(Statfs<'a>),
    /// Reports a change of the sender's state. Node to parent, manager to redirector.
    Status(Status),
    /// Sets the size of a file. Redirector to manager, relayed down.
    Trunc(Trunc<'a>),
    /// Redirects a login to other managers. Parent to node.
    Try(Try<'a>),
    /// Requests the status. Redirector to manager; answered by `status`.
    Update,
    /// Requests the load. Parent to node; answered by `load`.
    Usage,
    /// Carries credentials or a security token, not packed. Both directions, before the login is
    /// answered.
    Xauth(&'a [u8]),
    /// Reports that a path does not exist at the sender. Scalla nodes only, node to parent.
    NotHere(NotHere<'a>),
    /// Reports free slots. Scalla nodes only, node to parent.
    Occupancy(Occupancy<'a>),
    /// Reports the paths of the sender. Scalla nodes only, node to parent.
    Inventory(Inventory<'a>),
    /// Reserves a path for a client that is about to create it. Scalla nodes only, both directions.
    Lease(Lease<'a>),
    /// A message that this version does not know, which is skipped.
    Unknown {
        /// Code of the message.
        code: Code,
        /// Modifier of the message.
        modifier: u8,
        /// Payload of the message.
        payload: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Decodes a message from its header and the `datalen` bytes behind it. Ignores the payload of
    /// messages without arguments and bytes behind the last argument.
    ///
    /// # Errors
    /// An argument that [`Unpacker`] cannot decode; [`WireError::BadValue`] if the raw bit is set
    /// in a message with more arguments than a path. The stream stays synchronised: the frame is
    /// skipped, or answered with error 4 if a redirector expects an answer.
    pub fn decode(header: &Header, payload: &'a [u8]) -> Result<Self, WireError> {
        let modifier = header.modifier & !RAW;
        let raw = header.modifier & RAW != 0;
        if raw && needs_packing(header.code) {
            return Err(WireError::BadValue { field: "modifier", value: header.modifier.into() });
        }
        let arguments = &mut Unpacker::with_raw(payload, raw);
        Ok(match header.code {
            Code::LOGIN => Self::Login(NodeLogin::unpack(modifier, arguments)?),
            Code::CHMOD => Self::Chmod(ModeChange::unpack(modifier, arguments)?),
            Code::LOCATE => Self::Locate(Locate::unpack(modifier, arguments)?),
            Code::MKDIR => Self::Mkdir(ModeChange::unpack(modifier, arguments)?),
            Code::MKPATH => Self::Mkpath(ModeChange::unpack(modifier, arguments)?),
            Code::MV => Self::Mv(Mv::unpack(modifier, arguments)?),
            Code::PREPADD => Self::Prepadd(Prepadd::unpack(modifier, arguments)?),
            Code::PREPDEL => Self::Prepdel(Prepdel::unpack(modifier, arguments)?),
            Code::RM => Self::Rm(Removal::unpack(modifier, arguments)?),
            Code::RMDIR => Self::Rmdir(Removal::unpack(modifier, arguments)?),
            Code::SELECT => Self::Select(Select::unpack(modifier, arguments)?),
            Code::STATS => Self::Stats(StatsModifier(modifier)),
            Code::AVAIL => Self::Avail(Avail::unpack(modifier, arguments)?),
            Code::DISC => Self::Disc,
            Code::GONE => Self::Gone(Gone::unpack(modifier, arguments)?),
            Code::HAVE => Self::Have(Have::unpack(modifier, arguments)?),
            Code::LOAD => Self::Load(Load::unpack(modifier, arguments)?),
            Code::PING => Self::Ping,
            Code::PONG => Self::Pong,
            Code::SPACE => Self::Space,
            Code::STATE => Self::State(State::unpack(modifier, arguments)?),
            Code::STATFS => Self::Statfs(Statfs::unpack(modifier, arguments)?),
            // It has no payload, so the raw bit is one of its own.
            Code::STATUS => Self::Status(Status::decode(header.streamid, header.modifier)),
            Code::TRUNC => Self::Trunc(Trunc::unpack(modifier, arguments)?),
            Code::TRY => Self::Try(Try::unpack(modifier, arguments)?),
            Code::UPDATE => Self::Update,
            Code::USAGE => Self::Usage,
            Code::XAUTH => Self::Xauth(payload),
            Code::NOT_HERE => Self::NotHere(NotHere::unpack(modifier, arguments)?),
            Code::OCCUPANCY => Self::Occupancy(Occupancy::unpack(modifier, arguments)?),
            Code::INVENTORY => Self::Inventory(Inventory::unpack(modifier, arguments)?),
            Code::LEASE => Self::Lease(Lease::unpack(modifier, arguments)?),
            code => Self::Unknown { code, modifier: header.modifier, payload },
        })
    }

    /// Appends the message for a peer with the extensions `peer`. `status` determines its own
    /// streamid.
    ///
    /// # Errors
    /// [`EncodeError`] for a message that this peer does not support and for invalid fields. No
    /// bytes are appended.
    pub fn encode(&self, streamid: StreamId, peer: Extensions, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check_peer(peer)?;
        let envelope = Envelope {
            streamid: if let Self::Status(status) = self { status.streamid() } else { streamid },
            code: self.code(),
            modifier: self.modifier(),
            limit: match self {
                Self::Login(_) | Self::Xauth(_) => LOGIN_PAYLOAD_BYTES_MAX,
                _ => PAYLOAD_BYTES_MAX,
            },
        };
        frame(out, envelope, |packer| match self {
            Self::Login(message) => message.pack(packer),
            Self::Chmod(message) | Self::Mkdir(message) | Self::Mkpath(message) => message.pack(packer),
            Self::Locate(message) => message.pack(packer),
            Self::Mv(message) => message.pack(packer),
            Self::Prepadd(message) => message.pack(packer),
            Self::Prepdel(message) => message.pack(packer),
            Self::Rm(message) | Self::Rmdir(message) => message.pack(packer),
            Self::Select(message) => message.pack(packer),
            Self::Avail(message) => message.pack(packer),
            Self::Gone(message) => message.pack(packer),
            Self::Have(message) => message.pack(packer),
            Self::Load(message) => message.pack(packer),
            Self::State(message) => message.pack(packer),
            Self::Statfs(message) => message.pack(packer),
            Self::Status(message) => message.check(),
            Self::Trunc(message) => message.pack(packer),
            Self::Try(message) => message.pack(packer),
            Self::Xauth(bytes) => {
                packer.bytes(bytes);
                Ok(())
            }
            Self::NotHere(message) => message.pack(packer),
            Self::Occupancy(message) => message.pack(packer),
            Self::Inventory(message) => message.pack(packer),
            Self::Lease(message) => message.pack(packer),
            Self::Stats(_)
            | Self::Disc
            | Self::Ping
            | Self::Pong
            | Self::Space
            | Self::Update
            | Self::Usage => Ok(()),
            Self::Unknown { .. } => Err(EncodeError::NotForPeer { message: "unknown" }),
        })
    }

    /// Checks that the peer supports this kind of message.
    fn check_peer(&self, peer: Extensions) -> Result<(), EncodeError> {
        let (message, fine) = match self {
            // Prepdel is only exchanged between Scalla nodes.
            Self::Prepdel(_) => ("prepdel", peer.is_own()),
            Self::NotHere(_) => ("nothere", peer.contains(Extensions::NOT_HERE)),
            Self::Occupancy(_) => ("occupancy", peer.contains(Extensions::OCCUPANCY)),
            Self::Inventory(_) => ("inventory", peer.contains(Extensions::INVENTORY)),
            Self::Lease(_) => ("lease", peer.contains(Extensions::LEASES)),
            Self::Avail(avail) => ("avail", avail.sums.is_none() || peer.is_own()),
            Self::Have(have) => {
                let drains = have.modifier.contains(HaveModifier::DRAINING);
                ("have", !drains || peer.is_own())
            }
            Self::Status(status) => ("status", status.is_for(peer)),
            _ => return Ok(()),
        };
        if fine { Ok(()) } else { Err(EncodeError::NotForPeer { message }) }
    }

    /// Returns the code of the message.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Login(_) => Code::LOGIN,
            Self::Chmod(_) => Code::CHMOD,
            Self::Locate(_) => Code::LOCATE,
            Self::Mkdir(_) => Code::MKDIR,
            Self::Mkpath(_) => Code::MKPATH,
            Self::Mv(_) => Code::MV,
            Self::Prepadd(_) => Code::PREPADD,
            Self::Prepdel(_) => Code::PREPDEL,
            Self::Rm(_) => Code::RM,
            Self::Rmdir(_) => Code::RMDIR,
            Self::Select(_) => Code::SELECT,
            Self::Stats(_) => Code::STATS,
            Self::Avail(_) => Code::AVAIL,
            Self::Disc => Code::DISC,
            Self::Gone(_) => Code::GONE,
            Self::Have(_) => Code::HAVE,
            Self::Load(_) => Code::LOAD,
            Self::Ping => Code::PING,
            Self::Pong => Code::PONG,
            Self::Space => Code::SPACE,
            Self::State(_) => Code::STATE,
            Self::Statfs(_) => Code::STATFS,
            Self::Status(_) => Code::STATUS,
            Self::Trunc(_) => Code::TRUNC,
            Self::Try(_) => Code::TRY,
            Self::Update => Code::UPDATE,
            Self::Usage => Code::USAGE,
            Self::Xauth(_) => Code::XAUTH,
            Self::NotHere(_) => Code::NOT_HERE,
            Self::Occupancy(_) => Code::OCCUPANCY,
            Self::Inventory(_) => Code::INVENTORY,
            Self::Lease(_) => Code::LEASE,
            Self::Unknown { code, .. } => *code,
        }
    }

    /// Returns the modifier of the frame.
    const fn modifier(&self) -> u8 {
        match self {
            Self::Chmod(message) | Self::Mkdir(message) | Self::Mkpath(message) => message.modifier.0,
            Self::Mv(message) => message.modifier.0,
            Self::Prepadd(message) => message.modifier.0,
            Self::Prepdel(message) => message.modifier.0,
            Self::Rm(message) | Self::Rmdir(message) => message.modifier.0,
            Self::Stats(modifier) => modifier.0,
            Self::Gone(_) | Self::NotHere(_) => RAW,
            Self::Have(message) => message.modifier.0 | RAW,
            Self::State(message) => message.modifier.0 | RAW,
            Self::Statfs(message) => message.modifier.0,
            Self::Status(message) => message.modifier.0,
            Self::Trunc(message) => message.modifier.0,
            Self::Try(message) => message.modifier().0,
            Self::Inventory(message) => message.modifier.0,
            Self::Unknown { modifier, .. } => *modifier,
            _ => 0,
        }
    }
}

/// Reports whether a message has more arguments than a path, so that its payload cannot be an
/// unpacked path.
const fn needs_packing(code: Code) -> bool {
    matches!(
        code,
        Code::LOGIN
            | Code::CHMOD
            | Code::LOCATE
            | Code::MKDIR
            | Code::MKPATH
            | Code::MV
            | Code::PREPADD
            | Code::PREPDEL
            | Code::RM
            | Code::RMDIR
            | Code::SELECT
            | Code::AVAIL
            | Code::LOAD
            | Code::TRUNC
            | Code::TRY
            | Code::OCCUPANCY
            | Code::LEASE
    )
}
