//! The messages of the simulation: between nodes about files, and between clients and hosts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cluster::tree::{ConnectionId, NodeAction, NodeMessage};
use cluster::{ErrorCode, LeaseNumber, LeaseReport, NameChange, RetryReason, StateAsk};

/// A path.
pub type Name = Arc<[u8]>;

/// A message between two nodes.
#[derive(Clone, Debug)]
pub enum SimMessage {
    /// About the tree.
    Tree(NodeMessage),
    /// About files.
    Files(FileMessage),
}

/// A message about files.
#[derive(Clone, PartialEq)]
pub enum FileMessage {
    /// A parent's query for a path.
    State {
        /// The path.
        path: Name,
        /// The options of the query.
        ask: StateAsk,
    },
    /// It is here.
    Have {
        /// The path.
        path: Name,
        /// It is only being staged.
        pending: bool,
        /// Only draining nodes have it; among our own nodes only.
        draining: bool,
        /// A client is about to create it, by this lease; among our own nodes only.
        leased: Option<LeaseReport>,
    },
    /// A client is on its way to create it; from a parent, among our own nodes only.
    Lease {
        /// The path.
        path: Name,
        /// The duration; zero ends the lease.
        time: Duration,
        /// Its number; for an end the number of the lowest lease that stays.
        number: LeaseNumber,
    },
    /// It is no longer here.
    Gone {
        /// The path.
        path: Name,
    },
    /// It is not here; among our own nodes only.
    NotHere {
        /// The path.
        path: Name,
    },
    /// An order to change names at all servers; from a parent, or from a stranger without
    /// permission.
    Order(ChangeOrder),
    /// A request for the inventory; from a parent, among our own nodes only.
    InventoryWanted,
    /// A part of the inventory; among our own nodes only.
    Inventory {
        /// At most as many paths as fit a message.
        paths: Vec<Name>,
        /// This is the last part.
        last: bool,
    },
}

impl fmt::Debug for FileMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State { ask, .. } => write!(f, "state{}", if ask.refresh { " (refresh)" } else { "" }),
            Self::Lease { time, number, .. } if time.is_zero() => write!(f, "end below {number:?}"),
            Self::Lease { number, .. } => write!(f, "lease {number:?}"),
            Self::Have { pending, draining, leased, .. } => {
                let how = if *draining { " (draining)" } else { "" };
                write!(f, "have{}{how}", if *pending { " (pending)" } else { "" })?;
                leased.map_or(Ok(()), |lease| write!(f, " ({:?}, left {:?})", lease.number, lease.left))
            }
            Self::Gone { .. } => write!(f, "gone"),
            Self::NotHere { .. } => write!(f, "not here"),
            Self::Order(order) => write!(f, "order to {}", order.change.name()),
            Self::InventoryWanted => write!(f, "inventory wanted"),
            Self::Inventory { paths, .. } => write!(f, "inventory of {}", paths.len()),
        }
    }
}

impl FileMessage {
    /// Reports whether it is about this path.
    pub fn concerns(&self, wanted: &str) -> bool {
        match self {
            Self::State { path, .. }
            | Self::Have { path, .. }
            | Self::Lease { path, .. }
            | Self::Gone { path }
            | Self::NotHere { path } => **path == *wanted.as_bytes(),
            Self::Order(order) => *order.path == *wanted.as_bytes(),
            Self::InventoryWanted => false,
            Self::Inventory { paths, .. } => paths.iter().any(|path| **path == *wanted.as_bytes()),
        }
    }
}

/// An order to change names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeOrder {
    /// The change.
    pub change: NameChange,
    /// The name that changes.
    pub path: Name,
    /// The new name, of a rename.
    pub to: Option<Name>,
    /// The number of times that it may still be forwarded; with 0 the receiver only forgets the
    /// location of the name.
    pub relays_left: u8,
}

/// The operation of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestedAction {
    /// Read the file.
    Read,
    /// Create the file; it must not exist.
    Create,
    /// Remove the file.
    Remove,
    /// Rename the file to this name.
    Rename(Name),
    /// List the holders of the file.
    Locate,
}

/// A client's request, as it arrives at a host.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    /// Number of the operation.
    pub operation: u32,
    /// Number of the request within the operation.
    pub attempt: u32,
    /// The client.
    pub client: usize,
    /// The operation.
    pub wish: RequestedAction,
    /// The path.
    pub path: Name,
    /// The tried hosts, in the form of `tried`.
    pub tried: String,
    /// The reason for the return from there.
    pub reason: RetryReason,
}

/// The answer to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostReply {
    /// A redirect to this host.
    Redirect(usize),
    /// A wait of this time.
    Wait(Duration),
    /// The answer is deferred.
    Later,
    /// Success.
    Done,
    /// The holders.
    Listed(Vec<usize>),
    /// The file does not exist.
    Missing,
    /// The file exists already.
    Exists,
    /// Another error.
    Failed(ErrorCode),
    /// The connection ended or timed out.
    Lost,
}

/// One action of a process; the world executes actions in their order.
#[derive(Debug)]
pub enum ProcessAction {
    /// About the tree.
    Tree(NodeAction),
    /// A message about files over this connection.
    Files(ConnectionId, FileMessage),
    /// The answer to a client's request.
    Tell {
        /// Number of the operation.
        operation: u32,
        /// Number of the request within it.
        attempt: u32,
        /// The answer.
        told: HostReply,
    },
    /// A client has created a file here.
    Made(Name),
}
