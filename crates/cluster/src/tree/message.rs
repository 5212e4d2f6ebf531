//! The messages between nodes of a tree, in the form that the state machine uses: owned, checked
//! and small.
//! `wire` defines their encoding, and `frame` converts. Messages about files do not pass through
//! this state machine.

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
    /// A node requests a place.
    Login(Box<LoginMessage>),
    /// The node has a place, or is refused if the connection ends at once.
    Reply(ParentReply),
    /// An error in place of the reply.
    Refusal(LoginRefusal),
    /// Other parents to try, in place of the reply or later.
    Try {
        /// The addresses at which they listen; port 0 stands for the receiver's own.
        hosts: Vec<Address>,
        /// These replace all managers of the receiver.
        permanent: bool,
    },
    /// A change of the restrictions of a node.
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
        /// The used part, in percent.
        used_percent: u8,
        /// The sums over all nodes below; among our own nodes only.
        sums: Option<SpaceSums>,
    },
    /// A request for a sign of life.
    Ping,
    /// The answer to a ping.
    Pong,
    /// A request for the load.
    Usage,
    /// A request for the space.
    Space,
    /// A request for the status, from a redirector.
    Update,
    /// The sender leaves, or orders the receiver to leave.
    Disc,
    /// Places in the cells below; among our own nodes only.
    Occupancy(Vec<CellReport>),
}

/// A node's request for a place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoginMessage {
    /// Version of the protocol: 3, or 0 from a redirector.
    pub version: u16,
    /// The role and the restrictions.
    pub mode: Mode,
    /// The process id.
    pub process: u32,
    /// The space.
    pub space: SpaceReport,
    /// Port for clients.
    pub data_port: u16,
    /// Port for other nodes.
    pub cluster_port: u16,
    /// System id; empty if there is none.
    pub id: String,
    /// The exported paths: lines of flags and prefix; empty stands for `r /`.
    pub paths: String,
    /// Addresses at which clients may reach the node, beside the one of the connection.
    pub interfaces: Vec<IpAddr>,
    /// The host name that the node reports.
    pub host: Option<String>,
    /// Name of the site.
    pub site: Option<String>,
    /// Name and version of the program, for display; real nodes do not report it.
    pub software: Option<String>,
    /// Name of the instance, for display; real nodes do not report it.
    pub instance: Option<String>,
    /// The protocol extensions that it supports.
    pub extensions: Extensions,
}

/// A parent's answer to a login.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ParentReply {
    /// The parent cannot serve now.
    pub suspended: bool,
    /// The time for which the parent holds requests, in milliseconds.
    pub hold_ms: u32,
    /// The system id of the parent; empty if it sent none.
    pub id: String,
    /// Name of the site.
    pub site: Option<String>,
    /// The address at which clients enter the cluster; among our own nodes only.
    pub door: Option<Address>,
    /// The protocol extensions that both ends support.
    pub extensions: Extensions,
}

/// The refusal of a login, as an error message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginRefusal {
    /// The node is not admitted (EPERM), as opposed to any other error.
    pub banned: bool,
    /// The reason as text.
    pub text: String,
}

/// A change of the restrictions of a node. Each field is optional and independent of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatusMessage {
    /// The node serves (`Some(true)`) or does not.
    pub serves: Option<bool>,
    /// With `serves`: the port for clients from now on.
    pub data_port: Option<u16>,
    /// The node can bring files online (`Some(true)`) or cannot.
    pub stages: Option<bool>,
    /// The node is being drained (`Some(true)`): its clients are moved away, and it serves only
    /// files that no other node has. Among our own nodes only.
    pub drains: Option<bool>,
    /// The node is connected to all its managers, or has tried for long enough. Only to parents
    /// with [`Extensions::NEWCOMER`].
    pub established: bool,
    /// All knowledge about the files below the node is void. No other field is set then.
    pub reset: bool,
}

/// The report of a supervisor about one cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CellReport {
    /// Digest of the supervisor's system id.
    pub id: u64,
    /// The address at which it listens.
    pub address: Address,
    /// Levels below the sender: 0 for its own cell.
    pub depth: u8,
    /// The places; `None` if the cell no longer exists.
    pub places: Option<FreeSlots>,
    /// Digests of the system ids of nodes that joined since the last report.
    pub joined: Vec<u64>,
}
