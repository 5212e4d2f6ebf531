//! Messages: one file per message or small family, and the enum that lists them.
//!
//! Borrowed parts point into the payload: decoding takes no memory. Texts are without their NUL. An optional text
//! that was absent, or left off with all behind it, is `None`.
//!
//! The streamid is no part of a message but of `status`, where it is the data port. Those who answer echo it.

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
use super::login::Login;
use super::pup::{Envelope, frame};
use crate::error::WireError;

/// A message between nodes, or from a redirector to a manager. Who sends what: cms protocol version 3, section 1.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Who connects; the first message. Its answer is a [`LoginAnswer`](super::LoginAnswer).
    Login(Login<'a>),
    /// Changes permission bits. Redirector to manager, relayed down.
    Chmod(ModeChange<'a>),
    /// Where is a path? Redirector to manager.
    Locate(Locate<'a>),
    /// Creates a directory. Redirector to manager, relayed down.
    Mkdir(ModeChange<'a>),
    /// Creates a directory and its parents. Redirector to manager, relayed down.
    Mkpath(ModeChange<'a>),
    /// Renames. Redirector to manager, relayed down.
    Mv(Mv<'a>),
    /// Stages a file. Redirector to manager, relayed to one node.
    Prepadd(Prepadd<'a>),
    /// Cancels staging. Ends real managers: own peers only.
    Prepdel(Prepdel<'a>),
    /// Removes a file. Redirector to manager, relayed down.
    Rm(Removal<'a>),
    /// Removes a directory. Redirector to manager, relayed down.
    Rmdir(Removal<'a>),
    /// To which node should a client go? Redirector to manager.
    Select(Select<'a>),
    /// Statistics. Redirector to manager, parent to node.
    Stats(StatsModifier),
    /// Free space. Node to parent.
    Avail(Avail),
    /// The sender leaves, or wants the receiver to leave. Either way.
    Disc,
    /// A path is not at the sender any more. Node to parent, relayed up.
    Gone(Gone<'a>),
    /// A path is at the sender. Node to parent, relayed up.
    Have(Have<'a>),
    /// Load. Node to parent.
    Load(Load),
    /// Are you there? Parent to node.
    Ping,
    /// Yes. Node to parent.
    Pong,
    /// How much space is there? Parent to node; answered by `avail`. Real parents never ask.
    Space,
    /// Do you have this path? Parent to node, relayed down.
    State(State<'a>),
    /// Space totals. Redirector to manager.
    Statfs(Statfs<'a>),
    /// What the sender can do now. Node to parent, manager to redirector.
    Status(Status),
    /// Changes a size. Redirector to manager, relayed down.
    Trunc(Trunc<'a>),
    /// Where to log in instead. Parent to node.
    Try(Try<'a>),
    /// What is your status? Redirector to manager; answered by `status`.
    Update,
    /// How loaded are you? Parent to node; answered by `load`.
    Usage,
    /// Credentials or a security token, not packed. Both ways, before the login is answered.
    Xauth(&'a [u8]),
    /// A path is not at the sender. Own nodes only, node to parent.
    NotHere(NotHere<'a>),
    /// Free slots. Own nodes only, node to parent.
    Occupancy(Occupancy<'a>),
    /// Paths the sender has. Own nodes only, node to parent.
    Inventory(Inventory<'a>),
    /// A client is on its way to create a path. Own nodes only, parent to node.
    Lease(Lease<'a>),
    /// No message of this version: to be skipped.
    Unknown {
        /// Its code.
        code: Code,
        /// Its modifier.
        modifier: u8,
        /// Its payload.
        payload: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Decodes a message from its header and the `datalen` bytes behind it. Payloads of messages that have none, and
    /// what is behind the last argument, are ignored.
    ///
    /// # Errors
    /// What [`Unpacker`](super::pup::Unpacker) cannot read; [`WireError::BadValue`] when the raw bit stands on a
    /// message that is more than a path. The link stays in step: a frame that cannot be read is skipped, or answered
    /// by an error 4 when a redirector wants an answer.
    pub fn decode(header: &Header, payload: &'a [u8]) -> Result<Self, WireError> {
        let modifier = header.modifier & !RAW;
        let raw = header.modifier & RAW != 0;
        if raw && needs_packing(header.code) {
            return Err(WireError::BadValue { field: "modifier", value: header.modifier.into() });
        }
        Ok(match header.code {
            Code::LOGIN => Self::Login(Login::decode(payload)?),
            Code::CHMOD => Self::Chmod(ModeChange::decode(modifier, payload)?),
            Code::LOCATE => Self::Locate(Locate::decode(payload)?),
            Code::MKDIR => Self::Mkdir(ModeChange::decode(modifier, payload)?),
            Code::MKPATH => Self::Mkpath(ModeChange::decode(modifier, payload)?),
            Code::MV => Self::Mv(Mv::decode(modifier, payload)?),
            Code::PREPADD => Self::Prepadd(Prepadd::decode(modifier, payload)?),
            Code::PREPDEL => Self::Prepdel(Prepdel::decode(modifier, payload)?),
            Code::RM => Self::Rm(Removal::decode(modifier, payload)?),
            Code::RMDIR => Self::Rmdir(Removal::decode(modifier, payload)?),
            Code::SELECT => Self::Select(Select::decode(payload)?),
            Code::STATS => Self::Stats(StatsModifier(modifier)),
            Code::AVAIL => Self::Avail(Avail::decode(payload)?),
            Code::DISC => Self::Disc,
            Code::GONE => Self::Gone(Gone::decode(raw, payload)?),
            Code::HAVE => Self::Have(Have::decode(raw, modifier, payload)?),
            Code::LOAD => Self::Load(Load::decode(payload)?),
            Code::PING => Self::Ping,
            Code::PONG => Self::Pong,
            Code::SPACE => Self::Space,
            Code::STATE => Self::State(State::decode(raw, modifier, payload)?),
            Code::STATFS => Self::Statfs(Statfs::decode(raw, modifier, payload)?),
            Code::STATUS => Self::Status(Status::decode(header.streamid, modifier)),
            Code::TRUNC => Self::Trunc(Trunc::decode(modifier, payload)?),
            Code::TRY => Self::Try(Try::decode(modifier, payload)?),
            Code::UPDATE => Self::Update,
            Code::USAGE => Self::Usage,
            Code::XAUTH => Self::Xauth(payload),
            Code::NOT_HERE => Self::NotHere(NotHere::decode(raw, payload)?),
            Code::OCCUPANCY => Self::Occupancy(Occupancy::decode(payload)),
            Code::INVENTORY => Self::Inventory(Inventory::decode(modifier, payload)),
            Code::LEASE => Self::Lease(Lease::decode(payload)?),
            code => Self::Unknown { code, modifier: header.modifier, payload },
        })
    }

    /// Appends the message for a peer that can do `peer` beyond the protocol. `status` has a streamid of its own.
    ///
    /// # Errors
    /// What this peer does not survive or understand, and fields it cannot take: [`EncodeError`]. Nothing is appended.
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
            Self::Avail(message) => {
                message.pack(packer);
                Ok(())
            }
            Self::Gone(message) => packer.raw_path(message.path),
            Self::Have(message) => packer.raw_path(message.path),
            Self::Load(message) => {
                message.pack(packer);
                Ok(())
            }
            Self::State(message) => packer.raw_path(message.path),
            Self::Statfs(message) => packer.filled("path", message.path),
            Self::Status(message) => message.check(),
            Self::Trunc(message) => message.pack(packer),
            Self::Try(message) => message.pack(packer),
            Self::Xauth(bytes) => {
                packer.bytes(bytes);
                Ok(())
            }
            Self::NotHere(message) => packer.raw_path(message.path),
            Self::Occupancy(message) => {
                message.pack(packer);
                Ok(())
            }
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

    /// Whether the peer survives and understands this kind of message.
    fn check_peer(&self, peer: Extensions) -> Result<(), EncodeError> {
        let (message, fine) = match self {
            // A real manager with live nodes ends at it.
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
            Self::Status(status) => ("status", !status.is_extended() || peer.is_own()),
            _ => return Ok(()),
        };
        if fine { Ok(()) } else { Err(EncodeError::NotForPeer { message }) }
    }

    /// The code of the message.
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

    /// The modifier of the frame.
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

/// Whether a message has more arguments than a path, so that a bare path cannot be it.
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

/// The path of a message that is nothing else: bare with its NUL, or packed.
fn decode_path(raw: bool, payload: &[u8]) -> Result<&[u8], WireError> {
    if raw {
        return Ok(super::pup::until_nul(payload));
    }
    super::pup::Unpacker::new(payload).text("path")
}
