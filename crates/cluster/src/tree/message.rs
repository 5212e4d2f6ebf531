//! What nodes of a tree say to each other, as the machine deals with it: owned, checked, and small.
//!
//! The bytes are the affair of `wire`; `frame` translates. Messages about files pass through the machine unseen.

use std::net::IpAddr;

use super::address::Address;
use super::cell_directory::FreeSlots;
use super::member::{LoadReport, SpaceReport};

use wire::cms::Extensions;
use wire::cms::flags::Mode;
use wire::cms::message::SpaceSums;

/// A message about the tree.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeMessage {
    /// A node asks for a place.
    Login(Box<LoginMessage>),
    /// It has one, or it is refused when the connection ends at once.
    Reply(ParentReply),
    /// An error in the place of the reply.
    Refusal(LoginRefusal),
    /// Other parents to ask, in the place of the reply or later.
    Try {
        /// Where they listen; port 0 stands for the receiver's own.
        hosts: Vec<Address>,
        /// Forget all managers, these are the new ones.
        permanent: bool,
    },
    /// How a node feels; see [`StatusMessage`].
    Status(StatusMessage),
    /// Load and free space.
    Load {
        /// The load.
        load: LoadReport,
        /// Free space in MB.
        free_mb: u32,
    },
    /// Free space.
    Avail {
        /// Free space in MB.
        free_mb: u32,
        /// Part in use.
        used_percent: u8,
        /// All nodes below together; among our own nodes only.
        sums: Option<SpaceSums>,
    },
    /// Are you there?
    Ping,
    /// Yes.
    Pong,
    /// How much load do you have?
    Usage,
    /// How much space do you have?
    Space,
    /// Do you serve? From a redirector.
    Update,
    /// I am leaving, or: leave.
    Disc,
    /// Places in the cells below; among our own nodes only.
    Occupancy(Vec<CellReport>),
}

/// A node's request for a place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoginMessage {
    /// Version of the protocol: 3, or 0 from a redirector.
    pub version: u16,
    /// What it is, and how it feels.
    pub mode: Mode,
    /// Number of its process.
    pub process: u32,
    /// Its space.
    pub space: SpaceReport,
    /// Port for clients.
    pub data_port: u16,
    /// Port for other nodes.
    pub cluster_port: u16,
    /// System id; empty when there is none.
    pub id: String,
    /// Its paths: lines of flags and prefix; empty stands for `r /`.
    pub paths: String,
    /// Its addresses, as far as it says: those by which clients may reach it beside the one it comes from.
    pub interfaces: Vec<IpAddr>,
    /// Name of its host as it knows it.
    pub host: Option<String>,
    /// Name of its site.
    pub site: Option<String>,
    /// Name and version of its program, for people; real nodes do not say it.
    pub software: Option<String>,
    /// Name of its instance, for people; real nodes do not send it.
    pub instance: Option<String>,
    /// What it can do beyond the protocol.
    pub extensions: Extensions,
}

/// A parent's answer to a login.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ParentReply {
    /// The parent cannot serve now.
    pub suspended: bool,
    /// How long it holds requests back, in milliseconds.
    pub hold_ms: u32,
    /// Its system id; empty when it gave none.
    pub id: String,
    /// Name of its site.
    pub site: Option<String>,
    /// Where clients of the cluster begin; among our own nodes only.
    pub door: Option<Address>,
    /// What both can do beyond the protocol.
    pub extensions: Extensions,
}

/// Why a login is refused, where the wire has words for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginRefusal {
    /// The node is not wanted (EPERM), as opposed to any other error.
    pub banned: bool,
    /// The reason in words.
    pub text: String,
}

/// What changed about a node; each part is said on its own or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatusMessage {
    /// It serves (`Some(true)`) or does not.
    pub serves: Option<bool>,
    /// With `serves`: the port for clients from now on.
    pub data_port: Option<u16>,
    /// It can bring files online (`Some(true)`) or cannot.
    pub stages: Option<bool>,
    /// Its clients are to move elsewhere (`Some(true)`), while it still serves what nobody else has; among our own nodes
    /// only.
    pub drains: Option<bool>,
    /// What is known about the files below it is void. Alone.
    pub reset: bool,
}

/// What a supervisor tells about one cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CellReport {
    /// Digest of the supervisor's system id.
    pub id: u64,
    /// Where it listens.
    pub address: Address,
    /// Levels below the sender: 0 for its own cell.
    pub depth: u8,
    /// Its places; `None` when the cell is gone.
    pub places: Option<FreeSlots>,
    /// Digests of the system ids of nodes that joined since the last report.
    pub joined: Vec<u64>,
}
