//! Who belongs to the tree: how a node finds its place, keeps it and finds another one, and how a parent gives places away.
//!
//! | file | what it holds |
//! |---|---|
//! | `node` | [`Node`]: one face for all roles, which a driver feeds |
//! | `membership` | [`Membership`]: a node's side, towards its parents |
//! | `members` | [`Members`]: a parent's side, towards its children |
//! | `message`, `action`, `link` | what comes in, what goes out, over which connection |
//! | `cell`, `member`, `role`, `identity` | the children of one parent, what they are and who they are |
//! | `directory` | the cells below, so that a newcomer is sent to the one where it stays |
//! | `connection_table` | accepted connections and their limits for each host |
//! | `parking` | logins that wait for a cell |
//! | `frame` | messages as bytes |
//! | `blacklist` | who may not join |
//! | `limits` | every time and count, by name |
//!
//! How ten thousand nodes find their places in seconds: all ask the root, which knows every cell and names one that has room;
//! replicated roots name the same one, because they rank the cells by a hash of the node's id. Where no cell has room
//! yet, the login waits. Supervisors get the places at the root, and servers there make way for them.

mod action;
mod address;
mod blacklist;
mod cell;
mod connection_table;
mod directory;
mod frame;
mod identity;
pub mod inventory;
pub mod limits;
mod link;
mod member;
mod members;
mod membership;
mod message;
mod node;
mod parent;
mod parking;
mod pause;
mod role;
#[cfg(test)]
pub(crate) mod testing;

pub use action::{Action, ChildChange, Notice, RefusalReason};
pub use address::Address;
pub use blacklist::{Blacklist, Rule, Verdict};
pub use cell::{Cell, Place};
pub use directory::{Directory, Entry, Places};
pub use frame::{encode, from_answer, from_frame};
pub use identity::{Identity, SystemId, affinity};
pub use link::LinkId;
pub use member::{Condition, Load, Member, Space};
pub use members::{Members, Peer, Standing, Totals};
pub use membership::{ChildSettings, Membership};
pub use message::{CellReport, Login, Message, Refusal, Reply, Status};
pub use node::{Event, Node};
pub use parent::{Minimum, ParentSettings};
pub use pause::Pauses;
pub use role::{Acceptor, RoleError, role};
pub use wire::cms::Extensions;
pub use wire::cms::flags::Mode;
pub use wire::cms::login::Role;
