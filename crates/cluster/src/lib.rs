//! The cluster as pure machines: who belongs to the tree, where files are, and which server is chosen.
//!
//! | file | what it holds |
//! |---|---|
//! | `slots` | [`Slot`] and [`SlotMask`]: a child's place in its cell, and a set of places |
//! | `cache` | [`Cache`]: which children have a file, as far as it is known |
//! | [`tree`] | who belongs to the tree: how nodes find their places, and how parents give places away |
//! | `paths` | [`PathTable`]: which children export which part of the name space |
//! | `meters` | [`Meters`]: how busy and full children are, and how often they were chosen |
//! | `cell` | [`Cell`]: the children as those see them who choose one |
//! | `request` | [`SelectOptions`], [`LocateOptions`], [`Answer`]: what clients ask and are told |
//! | `avoid` | [`Avoided`]: children a client was sent to before |
//! | `absent` | children that may have leases and are not here |
//! | `lease_number` | [`LeaseNumber`]: which of two leases of one path is the later one |
//! | `leases` | [`Leases`]: files that clients are on their way to create at this node |
//! | `looks` | [`Looks`]: look-ups at a file system that all servers share, paced |
//! | `selection` | [`Chooser`]: which of several children a client is sent to; [`Selection`] and its two kinds |
//! | `order_permit` | [`OrderPermit`]: which changes of names are carried out, by who orders them |
//! | [`work_queue`] | [`WorkQueue`]: work of other threads for the thread of a node, bounded and in classes |
//! | `resolve` | [`Resolver`]: a request to its answer, by what is known or by asking children; [`Reader`]: warm answers on any thread |
//!
//! No socket, no clock, no thread: what arrives and the time since the start are arguments, what should happen comes
//! out. So a test lets an hour pass in a microsecond, and ten thousand nodes form a tree in one process.

mod absent;
mod avoid;
mod cache;
mod cell;
#[cfg(test)]
mod fixtures;
mod interfaces;
mod inventories;
mod late_answer;
mod lease_number;
mod leases;
mod looks;
mod meters;
mod order_permit;
mod paths;
mod request;
mod resolve;
mod selection;
mod slots;
pub mod tree;
pub mod work_queue;

pub use avoid::{Avoided, TRIED_MAX};
pub use cache::{
    Bounces, Cache, CacheSettings, CacheStats, LOCATIONS_MAX, Location, PLACEMENT_HOLD, WINDOW, WINDOW_TICKS,
};
pub use cell::{Cell, Child, ChildKind, ChildState, Client, Interface, Net};
pub use interfaces::OwnHost;
pub use late_answer::{ANSWER_OVERDUE, LateAnswer, late_answer};
pub use lease_number::LeaseNumber;
pub use leases::{EXPECTED_FOR, LEASE, Leases, OVERTAKEN, Outcome, Permit};
pub use looks::{Look, LookRules, Looks, folder};
pub use meters::{Load, Meters, Use};
pub use order_permit::{LoginClass, NameChange, NameChanges, OrderPermit, PeerOrder};
pub use paths::{EXPORTS_MAX, Export, ExportError, PathTable, Rights};
pub use request::{Affinity, Answer, ErrorCode, Intent, LocateOptions, Located, Reason, SelectOptions};
pub use resolve::{
    Action, EXPECTED_BACK, HOLD, QUERIES_MAX, Reader, ResolveSettings, ResolveStats, Resolver, SILENCE,
    STEPS_MAX, Shared, SharedFiles, Sight, StateAsk, StateReply, Token, WAITERS_MAX,
};
pub use selection::{
    AffinityPath, ByLoad, Chooser, Elsewhere, Policy, RoundRobin, Selection, Waits, Weights,
};
pub use slots::{CELL_SLOTS, Slot, SlotMask, Slots};
pub use work_queue::{Turn, WorkQueue, WorkStats};
