//! The node of a cluster that this process is: the pure machines of `cluster`, driven over sockets.
//!
//! | file | what it holds |
//! |---|---|
//! | `figures` | load and space: what is measured here, and what is added up over the tree |
//! | `forward` | operations on names on their way down |
//! | `configured` | from the configuration to what it is told |
//! | `identity` | who it is, over restarts |
//! | `kept` | what a node keeps on disk while it runs |
//! | `health` | load, space and the list of who may join, measured beside all this |
//! | `operations` | operations on names that a parent passes on, done here |
//! | `settings` | [`Settings`]: what it is told |
//! | `thread` | [`Cluster`]: the thread it runs on, and how others reach it |
//! | `front` | `Front`: where the loops of connections ask; what is plainly known is answered there |
//! | `engine` | [`Engine`]: feeds the machines with what happens, and does what they say |
//! | `line`, `sockets` | connections: how far one is, what waits to be sent; ports, bytes in and out |
//! | `files` | messages about files: questions going down, answers going up |
//! | `questions`, `askers` | questions of clients and redirectors, and who waits for which answer |
//! | `holdings` | a server's answers: what is on its disks, what comes and goes |
//! | `leases` | files that clients are on their way to create here |
//! | `status`, `survey` | its state and that of its children; the whole tree, for a visitor |
//! | `administration` | what the administrator orders for this node or one below it |
//! | `troubles` | managers that do not take this node in, and logins that are refused: what is said of them, and how often |
//! | `prepares` | files that are to be prepared: each path to its server |
//! | `orders` | what redirectors, parents and the administrator order |

mod administration;
mod askers;
mod configured;
mod due;
mod engine;
mod fair_queue;
mod figures;
mod files;
mod forward;
mod front;
mod health;
mod holdings;
mod identity;
mod inbox;
mod kept;
mod leases;
mod line;
mod looking;
mod news;
mod operations;
mod orders;
mod prepares;
mod questions;
mod rights;
mod settings;
mod sockets;
mod status;
mod survey;
mod thread;
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
pub use operations::OperationProgram;
pub(crate) use prepares::PrepareBatch;
pub(crate) use rights::Permit;
pub use settings::{INVENTORY_MAX, Listen, OUTBOX_BYTES_MAX, Role, Settings};
pub use status::{CacheStatus, ChildStatus, LoadStatus, NodeStatus, SpaceStatus, show_age};
pub use survey::{AskDoor, DoorStatus, Survey, ask as ask_node, survey};
pub use thread::Cluster;
