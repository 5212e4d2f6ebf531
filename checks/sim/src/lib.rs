//! The cluster on virtual time: the state machines of `cluster`, and a network that loses, delays
//! and splits.
//!
//! No real time passes, so that long histories run quickly and each one can be reproduced by its
//! seed.
//!
//! | file | responsibility |
//! |---|---|
//! | `world` | all hosts, and what happens to them |
//! | `event_queue` | the events to come, in their order |
//! | `network`, `connection` | connections and their faults |
//! | `separations` | hosts that cannot reach each other |
//! | `counts`, `fault_counts` | counts of events, and of the faults in the worlds of many seeds |
//! | `host` | the process, the clock and the stored state of a host |
//! | `host_address` | names, addresses and ports of hosts |
//! | `own_process` | a process of ours: the node and the resolver, connected as in the server |
//! | `behaviour` | the behaviour of nodes, correct or wrong |
//! | `location_service` | the location service of a parent of ours |
//! | `real_node`, `real_locations` | a model of real nodes: their pauses and their look-ups |
//! | `flood` | a hostile program |
//! | `stranger`, `orders` | redirectors and others that order changes of names without permission |
//! | `messages`, `disk` | messages about files, and files |
//! | `client` | clients |
//! | `answer_checks`, `location_check` | checks of their answers |
//! | `tree_view` | the parents of each host over connections that work |
//! | `shape` | the resulting tree, and checks that it is one |
//! | `host_faults` | faults of one host: stalls, hung disks, separation from another one, orders |
//! | `faults`, `client_load` | a minute of faults, its clients, and checks of nodes and files afterwards |
//! | `formation`, `location` | the time in which a tree forms and finds files, and the cost |
//! | `placement` | creators and readers of new files at several managers |
//! | `windows` | locations that expire or are evicted while files are created and removed |
//! | `request_crowds` | thousands of waiting requests: the work of an event is limited |
//! | `queues` | work queues in front of the state machines, under overload |
//! | `sim_rng` | random numbers that can be reproduced |

mod answer_checks;
pub mod behaviour;
pub mod client;
pub mod client_load;
mod connection;
pub mod counts;
pub mod disk;
mod event_queue;
pub mod fault_counts;
pub mod faults;
pub mod flood;
pub mod formation;
pub mod host;
mod host_address;
pub mod host_faults;
pub mod location;
mod location_check;
mod location_service;
pub mod messages;
mod network;
pub mod orders;
pub mod own_process;
pub mod placement;
pub mod queues;
mod real_locations;
pub mod real_node;
pub mod request_crowds;
mod separations;
pub mod shape;
pub mod sim_rng;
mod stranger;
mod tree_view;
pub mod windows;
pub mod world;
