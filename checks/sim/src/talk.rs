//! What hosts say to each other about files, and what clients say to hosts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cluster::tree::{Action, LinkId, Message};
use cluster::{ErrorCode, LeaseNumber, NameChange, Reason, StateAsk};

/// A path.
pub type Name = Arc<[u8]>;

/// A message between two nodes.
#[derive(Clone, Debug)]
pub enum Talk {
    /// About the tree.
    Tree(Message),
    /// About files.
    Files(Files),
}

/// A message about files.
#[derive(Clone, PartialEq)]
pub enum Files {
    /// Is it there? From a parent.
    State {
        /// What.
        path: Name,
        /// How to look.
        ask: StateAsk,
    },
    /// It is here.
    Have {
        /// What.
        path: Name,
        /// Only on its way.
        pending: bool,
        /// Below nodes alone whose clients are being moved away; among our own nodes only.
        draining: bool,
        /// A client is to create it, by the lease with this number; among our own nodes only.
        leased: Option<LeaseNumber>,
    },
    /// A client is on its way to create it; from a parent, among our own nodes only.
    Lease {
        /// What.
        path: Name,
        /// For how long; zero ends it.
        time: Duration,
        /// Its number; of an end that of the lowest lease that stays.
        number: LeaseNumber,
    },
    /// It is here no more.
    Gone {
        /// What.
        path: Name,
    },
    /// It is not here; among our own nodes only.
    NotHere {
        /// What.
        path: Name,
    },
    /// Names are to change at all servers; from a parent, or from a stranger who may not order that.
    Order(Order),
    /// All that is here is to be listed; from a parent, among our own nodes only.
    InventoryWanted,
    /// These are here; among our own nodes only.
    Inventory {
        /// Not more than a message holds.
        paths: Vec<Name>,
        /// And nothing else.
        last: bool,
    },
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State { ask, .. } => write!(f, "state{}", if ask.refresh { " (refresh)" } else { "" }),
            Self::Lease { time, number, .. } if time.is_zero() => write!(f, "end below {number:?}"),
            Self::Lease { number, .. } => write!(f, "lease {number:?}"),
            Self::Have { pending, draining, leased, .. } => {
                let how = if *draining { " (draining)" } else { "" };
                write!(f, "have{}{how}", if *pending { " (pending)" } else { "" })?;
                leased.map_or(Ok(()), |number| write!(f, " ({number:?})"))
            }
            Self::Gone { .. } => write!(f, "gone"),
            Self::NotHere { .. } => write!(f, "not here"),
            Self::Order(order) => write!(f, "order to {}", order.change.name()),
            Self::InventoryWanted => write!(f, "inventory wanted"),
            Self::Inventory { paths, .. } => write!(f, "inventory of {}", paths.len()),
        }
    }
}

impl Files {
    /// Whether it is about this path.
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
pub struct Order {
    /// The change.
    pub change: NameChange,
    /// The name that changes.
    pub path: Name,
    /// The new name, of a rename.
    pub to: Option<Name>,
    /// How often it may still be passed on; with 0 the receiver only forgets where the name was.
    pub relays_left: u8,
}

/// What a client wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Read it.
    Read,
    /// Make it; it must not be there.
    Create,
    /// Remove it.
    Remove,
    /// Give it this name.
    Rename(Name),
    /// Know who has it.
    Locate,
}

/// A client's request, as it arrives at a host.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of the operation.
    pub operation: u32,
    /// Number of the request within the operation.
    pub attempt: u32,
    /// The client.
    pub client: usize,
    /// What is wanted.
    pub wish: Wish,
    /// Of what.
    pub path: Name,
    /// Where the client was before, as `tried` says it.
    pub tried: String,
    /// Why it comes back from there.
    pub reason: Reason,
}

/// What a client is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// Go to this host.
    Redirect(usize),
    /// Come again after this time.
    Wait(Duration),
    /// The answer comes later.
    Later,
    /// It is done.
    Done,
    /// These have it.
    Listed(Vec<usize>),
    /// It is not there.
    Missing,
    /// It is there already.
    Exists,
    /// Another error.
    Failed(ErrorCode),
    /// The connection ended, or nothing came for long.
    Lost,
}

/// One thing a machine wants done, in the order given.
#[derive(Debug)]
pub enum Deed {
    /// About the tree.
    Tree(Action),
    /// A message about files over this connection.
    Files(LinkId, Files),
    /// The answer to a client's request.
    Tell {
        /// Number of the operation.
        operation: u32,
        /// Number of the request within it.
        attempt: u32,
        /// What.
        told: Told,
    },
    /// A client has made a file here.
    Made(Name),
}
