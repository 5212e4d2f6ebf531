//! The node of a cluster that this process is: the pure machines of `cluster`, driven over sockets.
//!
//! | file | what it holds |
//! |---|---|
//! | `forward` | operations on names on their way down |
//! | `configured` | from the configuration to what it is told |
//! | `identity` | who it is, over restarts |
//! | `kept` | what a node keeps on disk while it runs |
//! | `health` | load, space and the list of who may join, measured beside all this |
//! | `operations` | operations on names that a parent passes on, done here |
//! | `settings` | [`Settings`]: what it is told |
//! | `thread` | [`Cluster`]: the thread it runs on, and how others reach it |
//! | `front` | `Front`: where the loops of connections ask; what is plainly known is answered there |
//! | `engine` | [`Engine`]: hands everything that happens to the driver it concerns |
//! | `jobs` | what other threads have the engine do |
//! | `tree_driver` | drives the tree machine over the connections |
//! | `location_driver` | drives the location machine of a node with children: requests going down, answers going up |
//! | `server_driver` | a server's answers to its parents, and what it does for them |
//! | `parent_messages` | what parents are told of files |
//! | `line`, `sockets` | connections: how far one is, what waits to be sent; ports, bytes in and out |
//! | `askers` | requests of clients, redirectors and parents, and who waits for which answer |
//! | `holdings`, `looking` | looks at the disks of this node, and the list of all files |
//! | `mounts` | tells when the names here change because a disk was mounted |
//! | `leases` | files that clients are on their way to create here |
//! | `inbox` | work that other threads have for this one |
//! | `rights` | which orders are carried out, by who gives them |
//! | `orders`, `prepares` | changes of names, and files that are to be prepared, on their way down |
//! | `pending_order` | orders that wait for an answer of the location machine |
//! | `status`, `survey` | its state and that of its children; the whole tree, for a visitor |
//! | `figures` | space, added up over the tree |
//! | `administration` | what the administrator orders for this node or one below it |
//! | `troubles` | managers that do not take this node in, and logins that are refused: what is said of them, and how often |
//! | `alarm` | when the timer rings |
//!
//! Files depend on each other in one direction: `thread`, `sockets`, `inbox` > `engine` > `orders`, `prepares`, `status` >
//! `location_driver`, `server_driver` > `parent_messages` > `tree_driver` > the rest.

mod administration;
mod alarm;
mod askers;
mod configured;
mod engine;
mod figures;
mod forward;
mod front;
mod health;
mod holdings;
mod identity;
mod inbox;
mod jobs;
mod kept;
mod lease_record;
mod leases;
mod line;
mod location_driver;
mod looking;
mod mounts;
mod operations;
mod orders;
mod parent_messages;
mod pending_order;
mod prepares;
mod rights;
mod server_driver;
mod settings;
mod sockets;
mod status;
mod survey;
mod thread;
mod tree_driver;
mod troubles;

pub(crate) use administration::Whom;
pub use administration::{Order, short};
pub(crate) use configured::configured;
pub use engine::Engine;
pub use figures::SpaceFor;
pub(crate) use forward::Forward;
pub(crate) use front::{Front, SystemLot};
pub use health::{HealthSettings, ListFile, LoadSource, SpaceRules};
pub(crate) use leases::{Creation, CreationPermit, SharedLeases};
pub(crate) use prepares::PrepareBatch;
pub(crate) use rights::client_permit;
pub use settings::{INVENTORY_MAX, Listen, OUTBOX_BYTES_MAX, OperationProgram, Role, Settings};
pub use status::{Activity, CacheStatus, ChildStatus, LoadStatus, NodeStatus, SpaceStatus, show_age};
pub use survey::{AskClientPort, DoorStatus, Survey, ask as ask_node, survey};
pub use thread::Cluster;
