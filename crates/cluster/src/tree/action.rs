//! What a machine wants done, and what it tells others about its children.

use super::address::Address;
use super::link::LinkId;
use super::message::Message;
use super::role::RoleError;
use crate::Slot;

/// One thing for the driver to do, in the order given.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Connect there, and say `Connected` or `Closed` of this link.
    Connect {
        /// Name of the connection.
        link: LinkId,
        /// Where to.
        address: Address,
    },
    /// Send a message.
    Send {
        /// Over this connection.
        link: LinkId,
        /// The message.
        message: Message,
    },
    /// Send what is under way and end the connection. The driver says nothing of this link any more.
    Close {
        /// The connection.
        link: LinkId,
    },
    /// Keep on disk where the node has its place (`None`: at the managers): after a restart it is asked first.
    Remember {
        /// The parent.
        cell: Option<Address>,
    },
    /// Something changed about a child: for those who keep masks of slots.
    Child {
        /// Its slot.
        slot: Slot,
        /// What.
        change: ChildChange,
    },
    /// Cells below have taken nodes in.
    JoinedBelow {
        /// The numbers of their system ids.
        nodes: Vec<u64>,
    },
    /// Service began (`true`) or ended, as redirectors are told.
    Service {
        /// Whether clients are served.
        serves: bool,
    },
    /// The node found a parent (`true`), or lost the last one.
    Attached {
        /// Whether it has a parent.
        attached: bool,
    },
    /// The clients of this node are to move elsewhere, or not any more: by order of a parent, or its own word.
    Drain {
        /// Whether.
        draining: bool,
        /// Where they begin anew, if that is known.
        door: Option<Address>,
    },
    /// For the log of the operator.
    Notice(Notice),
}

/// What happened to a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildChange {
    /// A node took the slot. `fresh`: nothing that was known about the slot holds for it.
    Joined {
        /// Whether it is another node than before, or has other paths.
        fresh: bool,
    },
    /// Its connection ended; the slot is kept.
    Lost,
    /// The slot is nobody's any more.
    Freed,
    /// It serves or does not, stages or does not, or has another port or space: look at the member.
    Condition,
    /// It has another load or other space: look at the member.
    Figures,
    /// As `Condition`; and its clients are to move elsewhere, or not any more: what parents know of the files below it changes.
    Draining,
    /// What is known about the files below it is void.
    Reset,
}

/// Something an operator may want to know.
#[derive(Clone, PartialEq, Debug)]
pub enum Notice {
    /// A login was refused.
    Refused {
        /// Who.
        host: String,
        /// Why.
        reason: RefusalReason,
    },
    /// A redirector's connection is closed, because another one came and there are no more places.
    Replaced {
        /// The connection.
        link: LinkId,
        /// The host of the other one.
        by: String,
    },
    /// A child was silent for too long.
    Silent {
        /// Its address.
        address: Address,
    },
    /// The parent was silent for too long.
    ParentSilent {
        /// Its address.
        address: Address,
    },
    /// Two nodes have one identity.
    Twins {
        /// The system id.
        id: String,
        /// The address of the one that was refused.
        host: String,
    },
    /// The managers are of different clusters.
    Clusters {
        /// What their ids say.
        ids: Vec<String>,
    },
    /// No cell has room: servers wait until supervisors are added.
    Full {
        /// How many wait.
        waiting: usize,
    },
}

/// Why a login was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalReason {
    /// For what it is.
    Role(RoleError),
    /// It has no system id.
    NoId,
    /// The administrator does not want it.
    Banned,
    /// One of the same identity is here.
    Twin,
    /// No place.
    Full,
    /// This node has no parent itself.
    Orphaned,
}
