//! Actions for the driver of a node, with changes of children and notices for the operator.
//!
//! The node does no I/O itself, so all its effects are values of these types.

use super::address::Address;
use super::connection_id::ConnectionId;
use super::message::NodeMessage;
use super::role::RoleError;
use crate::Slot;

/// One action for the driver, which executes actions in their order.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeAction {
    /// Connect there, and report `Connected` or `Closed` for this connection.
    Connect {
        /// The name of the connection.
        link: ConnectionId,
        /// The target.
        address: Address,
    },
    /// Send a message.
    Send {
        /// Over this connection.
        link: ConnectionId,
        /// The message.
        message: NodeMessage,
    },
    /// Flush the output and end the connection. The driver reports no further event of it.
    Close {
        /// The connection.
        link: ConnectionId,
    },
    /// Store on disk the parent with the place of the node (`None`: the managers). After a restart
    /// the node tries it first.
    Remember {
        /// The parent.
        cell: Option<Address>,
    },
    /// A change of a child, for components that keep masks of slots.
    Child {
        /// Its slot.
        slot: Slot,
        /// The change.
        change: ChildChange,
    },
    /// Cells below have accepted nodes.
    JoinedBelow {
        /// The hashes of their system ids.
        nodes: Vec<u64>,
    },
    /// Service began (`true`) or ended; redirectors receive it.
    Service {
        /// Clients are served.
        serves: bool,
    },
    /// The node found a parent (`true`), or lost the last one.
    Attached {
        /// It has a parent.
        attached: bool,
    },
    /// The node starts or ends draining: its clients move elsewhere, by order of a parent or by its
    /// own.
    Drain {
        /// It drains.
        draining: bool,
        /// The address at which these clients enter the cluster again, if it is known.
        door: Option<Address>,
    },
    /// A notice for the operator's log.
    Notice(Notice),
}

/// A change of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildChange {
    /// A node took the slot. `fresh`: all knowledge about the slot is stale.
    Joined {
        /// It is another node than before, or has other paths.
        fresh: bool,
    },
    /// Its connection ended; the slot is kept.
    Lost,
    /// The slot is free.
    Freed,
    /// Its service, its ability to stage, its port or its space changed: see the member.
    Condition,
    /// Its load or space changed: see the member.
    Figures,
    /// As `Condition`; and it started or ended draining, so the state of the files below it changes
    /// for parents.
    Draining,
    /// The knowledge about the files below it is stale.
    Reset,
}

/// An event for the operator.
#[derive(Clone, PartialEq, Debug)]
pub enum Notice {
    /// A login was refused.
    Refused {
        /// The host of the node.
        host: String,
        /// The reason.
        reason: RefusalReason,
    },
    /// A redirector's connection is closed, because another one arrived at the limit (eviction).
    Replaced {
        /// The connection.
        link: ConnectionId,
        /// The host of the other one.
        by: String,
    },
    /// A child timed out.
    Silent {
        /// Its address.
        address: Address,
    },
    /// The parent timed out.
    ParentSilent {
        /// Its address.
        address: Address,
    },
    /// Two nodes have one identity (duplicate).
    Twins {
        /// The system id.
        id: String,
        /// The address of the refused node.
        host: String,
    },
    /// The managers are of different clusters.
    Clusters {
        /// The ids of the clusters.
        ids: Vec<String>,
    },
    /// All cells are full: servers wait until supervisors are added.
    Full {
        /// The number of waiting servers.
        waiting: usize,
    },
}

/// The reason why a login was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalReason {
    /// Its role does not fit.
    Role(RoleError),
    /// It has no system id.
    NoId,
    /// The black list bans it.
    Banned,
    /// A node with the same identity is connected (duplicate).
    Twin,
    /// All places are taken.
    Full,
    /// This node has no parent itself.
    Orphaned,
}
