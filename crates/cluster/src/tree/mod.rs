//! Membership in the tree: nodes find, keep and change their places, and parents assign places.
//!
//! | file | responsibility |
//! |---|---|
//! | `node` | [`ClusterNode`]: one interface for all roles, called by a driver |
//! | `membership` | [`Membership`]: the child side of a node, towards its parents |
//! | `members` | [`Members`]: the parent side of a node, towards its children |
//! | `message`, `action`, `connection_id` | input, output, and the names of connections |
//! | `member_slots`, `member`, `role`, `identity` | the children of a parent, their roles and identities |
//! | `cell_directory` | the cells below, so that a newcomer is redirected to its final cell |
//! | `connection_table` | accepted connections and their limits for each host |
//! | `parking` | logins that wait for a cell |
//! | `frame` | the encoding of messages |
//! | `blacklist` | nodes that may not join |
//! | `limits` | times and limits, by name |
//!
//! Ten thousand nodes find their places within seconds (decision 022). All log in to the root,
//! which knows every cell and names one with room. Replicated roots name the same one, because they
//! rank the cells by a hash of the node's id. While no cell has room, the login waits. Supervisors
//! get the places at the root, and servers there make way for them.

mod action;
mod address;
mod blacklist;
mod cell_directory;
mod connection_id;
mod connection_table;
mod frame;
mod identity;
pub mod inventory;
pub mod limits;
mod member;
mod member_slots;
mod members;
mod membership;
mod message;
mod node;
mod parent;
mod parking;
mod pause;
mod peer_address;
mod role;
#[cfg(test)]
pub(crate) mod testing;

pub use action::{ChildChange, NodeAction, Notice, RefusalReason};
pub use address::Address;
pub use blacklist::{Blacklist, BlacklistRule, BlacklistVerdict};
pub use cell_directory::{CellDirectory, CellRecord, FreeSlots};
pub use connection_id::ConnectionId;
pub use frame::{encode, from_answer, from_frame};
pub use identity::{NodeId, NodeIdentity, affinity};
pub use member::{ClusterMember, Condition, LoadReport, SpaceReport};
pub use member_slots::{MemberSlots, SlotOffer};
pub use members::{Members, RootDistance, Totals};
pub use membership::{ChildSettings, Membership};
pub use message::{CellReport, LoginMessage, LoginRefusal, NodeMessage, ParentReply, StatusMessage};
pub use node::{ClusterNode, NodeEvent};
pub use parent::{Minimum, ParentSettings};
pub use pause::Pauses;
pub use peer_address::PeerAddress;
pub use role::{AcceptorRole, RoleError, role};
pub use wire::cms::Extensions;
pub use wire::cms::flags::Mode;
pub use wire::cms::login::Role;
