//! The cluster as pure state machines: membership of the tree, locations of files, choice of a
//! server.
//!
//! | file | responsibility |
//! |---|---|
//! | `slots` | [`Slot`] and [`SlotMask`]: a child's place in its cell, and a set of places |
//! | `cache` | [`Cache`]: the location cache, with the children that have each file |
//! | [`tree`] | membership of the tree: nodes find their places, and parents assign places |
//! | `paths` | [`PathTable`]: the exports of the children |
//! | `meters` | [`Meters`]: load, free space and number of choices of each child |
//! | `cell` | [`Cell`]: the children as input of selection |
//! | `request` | [`SelectOptions`], [`LocateFlags`], [`ClusterAnswer`]: requests and answers |
//! | `tried_children` | [`TriedChildren`]: children that a client has tried |
//! | `absent_lessees` | absent children that may hold leases |
//! | `lease_number` | [`LeaseNumber`]: the order of the leases of one path; [`LeaseReport`] |
//! | `leases` | [`Leases`]: files that clients are about to create at this node |
//! | `lookup_limiter` | [`LookupLimiter`]: rate limit of look-ups in a shared file system |
//! | `selection` | [`Chooser`]: the choice of a child; [`Selection`] and its two kinds |
//! | `order_permit` | [`OrderPermit`]: permissions for changes of names, by peer |
//! | [`work_queue`] | [`WorkQueue`]: work for the thread of a node, bounded and in classes |
//! | `resolve` | [`LocationResolver`]: answers from the cache or by queries; [`LocationReader`] |
//!
//! There is no socket, clock or thread: inputs and the time since the start are arguments, actions
//! are results. So a test simulates an hour within a microsecond, and ten thousand nodes form a
//! tree in one process.

mod absent_lessees;
mod cache;
mod cell;
#[cfg(test)]
mod fixtures;
mod interfaces;
mod inventories;
mod late_answer;
mod lease_number;
mod leases;
mod lookup_limiter;
mod meters;
mod order_permit;
mod paths;
mod request;
mod resolve;
mod selection;
mod shared_file_system;
mod slots;
pub mod tree;
mod tried_children;
pub mod work_queue;

pub use cache::{
    Bounces, Cache, CacheSettings, CacheStats, CachedLocation, LOCATIONS_MAX, PLACEMENT_HOLD, WINDOW,
    WINDOW_TICKS,
};
pub use cell::{Cell, CellChild, ChildKind, ChildState, ClientOrigin, Interface, Net, Newness};
pub use interfaces::OwnHost;
pub use late_answer::{ANSWER_OVERDUE, LateAnswer, late_answer};
pub use lease_number::{LeaseNumber, LeaseReport};
pub use leases::{CreationOutcome, EXPECTED_FOR, LEASE, Leases, OVERTAKEN, Permit};
pub use lookup_limiter::{LookupDecision, LookupLimiter, LookupLimits, parent_directory};
pub use meters::{AccessKind, Meters};
pub use order_permit::{LoginClass, NameChange, NameChangeSet, OrderPermit, PeerOrder};
pub use paths::{ChildExport, EXPORTS_MAX, ExportError, PathTable, Rights};
pub use request::{
    ClientAffinity, ClusterAnswer, ErrorCode, Intent, LocateFlags, LocatedChild, RetryReason, SelectOptions,
};
pub use resolve::{
    EXPECTED_BACK, HOLD, LocationReader, LocationResolver, LookupOutcome, QUERIES_MAX, RequestToken,
    ResolveSettings, ResolveStats, ResolverAction, ResolverShared, SILENCE, STEPS_MAX, StateAsk, StateReply,
    WAITERS_MAX,
};
pub use selection::{
    AffinityPath, ByLoad, Chooser, ForeignTarget, Policy, RoundRobin, Selection, WaitTimes, Weights,
};
pub use shared_file_system::SharedFilePolicy;
pub use slots::{CELL_SLOTS, Slot, SlotIter, SlotMask};
pub use tried_children::{TRIED_MAX, TriedChildren};
pub use work_queue::{WorkBatch, WorkQueue, WorkStats};
