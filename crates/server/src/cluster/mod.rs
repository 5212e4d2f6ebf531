//! The cluster node of this process: drives the pure machines of `cluster` over sockets
//! (decision 025).
//!
//! | file | content |
//! |---|---|
//! | `forward` | operations on names on their way down |
//! | `configured` | conversion of the configuration to settings |
//! | `identity` | the identity of the node, over restarts |
//! | `state_file`, `state_files` | state that a node keeps on disk for its next start |
//! | `health` | load, space and the list of nodes that may join, measured on another thread |
//! | `operations` | operations on names that a parent forwards, performed here |
//! | `settings` | [`Settings`] of the node |
//! | `cluster_key`, `node_login` | the key of the cluster; the authentication of a peer, step by step |
//! | `thread` | [`ClusterThread`]: the thread of the node, and its interface for other threads |
//! | `front` | `ClusterFront`: answers requests from the cache, or passes them on |
//! | `engine` | [`ClusterEngine`]: passes each event to the driver it concerns |
//! | `jobs` | jobs of other threads for the engine |
//! | `tree_driver` | drives the tree machine over the connections |
//! | `location_driver` | drives the location machine of a node with children |
//! | `server_driver` | the answers of a server to its parents, and their orders |
//! | `parent_messages` | messages to parents about files |
//! | `connection`, `sockets` | connections: their stage and output queue; ports, bytes in and out |
//! | `pending_requests` | pending requests of clients, redirectors and parents |
//! | `server_files`, `pending_stats` | look-ups on the disks of this node, and its list of files |
//! | `node_state` | [`NodeState`]: the states of a node and their words |
//! | `mounts` | reports that the names here change because a disk was mounted |
//! | `leases` | files that clients are expected to create here |
//! | `inbox` | work that other threads have for this one |
//! | `rights` | the orders that are carried out, by who gives them |
//! | `orders`, `prepares` | name changes, and files to be prepared, on their way down |
//! | `presence` | children that joined, were lost, or are away |
//! | `pending_order` | orders that wait for an answer of the location machine |
//! | `status`, `survey` | the state of the node and its children; the whole tree, for a visitor |
//! | `space_totals` | space, added up over the tree |
//! | `administration` | orders of the administrator for this node or one below it |
//! | `problem_log` | log of refusing managers and refused logins, with a rate limit |
//! | `thread_timer` | the deadline of the timer |
//!
//! Files depend on each other in one direction: `thread`, `sockets`, `inbox` > `engine` > `orders`,
//! `prepares`, `status` > `location_driver`, `server_driver` > `parent_messages` > `tree_driver` >
//! the rest.

mod administration;
mod cluster_key;
mod configured;
mod connection;
mod engine;
mod forward;
mod front;
mod health;
mod identity;
mod inbox;
mod jobs;
mod lease_record;
mod leases;
mod location_driver;
mod mounts;
mod node_login;
mod node_state;
mod operations;
mod orders;
mod parent_messages;
mod pending_order;
mod pending_requests;
mod pending_stats;
mod prepares;
mod presence;
mod problem_log;
mod rights;
mod server_driver;
mod server_files;
mod settings;
mod sockets;
mod space_totals;
mod state_file;
mod state_files;
mod status;
mod survey;
mod thread;
mod thread_timer;
mod tree_driver;
mod turn_clock;

pub(crate) use administration::OrderTarget;
pub use administration::{NodeOrder, short};
pub use cluster_key::ClusterKey;
pub use config::NodeRole;
pub(crate) use configured::configured;
pub use engine::ClusterEngine;
pub(crate) use forward::Forward;
pub(crate) use front::ClusterFront;
pub use health::{HealthSettings, ListFile, LoadSampling, SpaceLimits};
pub(crate) use leases::{CreationPermit, SharedLeases};
pub use node_state::NodeState;
pub(crate) use prepares::PrepareBatch;
pub(crate) use rights::client_permit;
pub use settings::{INVENTORY_MAX, Listen, OUTBOX_BYTES_MAX, Settings, acceptor_role};
pub use space_totals::SpaceFor;
pub use status::{Activity, ChildStatus, LoadStatus, LocationCacheStatus, NodeStatus, SpaceStatus, show_age};
pub use survey::{AskClientPort, DoorStatus, TreeSurvey, ask as ask_node, survey};
pub use thread::ClusterThread;
pub(crate) use thread::ClusterView;
