//! The cluster on virtual time: the state machines of `cluster`, and a network that loses, delays
//! and splits.
//!
//! No real time passes, so that long histories run quickly and each one can be reproduced by its
//! seed.
//!
//! | file | responsibility |
//! |---|---|
//! | `world` | events in their order |
//! | `network` | connections and their faults |
//! | `counts`, `occurred` | counts of events, and of the faults that occurred in the worlds of many seeds |
//! | `host` | the process, the clock and the stored state of a host |
//! | `own` | a process of ours: the node and the resolver, connected as in the server |
//! | `desk` | the location service of a parent of ours |
//! | `legacy`, `hearsay` | a model of real nodes: their pauses, their ends, and their look-ups |
//! | `flood` | a hostile program |
//! | `stranger`, `orders` | redirectors and others that order changes of names: without permission no name changes |
//! | `talk`, `disk` | messages about files, and files |
//! | `client`, `service` | clients, and checks of their answers |
//! | `shape` | the resulting tree, and checks that it is one |
//! | `troubles` | faults of one host: it stalls, its disk hangs, it is separated from another one, orders |
//! | `faults`, `errands` | a bad minute, its clients, and checks that all nodes and files are found afterwards |
//! | `formation`, `location` | the time in which a tree forms and finds files, and the cost |
//! | `placement` | creators and readers of new files at several managers: no file is ever created twice |
//! | `windows` | locations that expire or are evicted while files are created and removed |
//! | `crowds` | thousands of waiting requests: no event looks at more than a fixed number of them |
//! | `queues` | work queues in front of the state machines: bounded, fair, and correct after an overflow |
//! | `lot` | random numbers that can be reproduced |

pub mod client;
pub mod counts;
pub mod crowds;
mod desk;
pub mod disk;
pub mod errands;
pub mod faults;
pub mod flood;
pub mod formation;
mod hearsay;
pub mod host;
pub mod legacy;
pub mod location;
pub mod lot;
mod network;
pub mod occurred;
pub mod orders;
pub mod own;
pub mod placement;
pub mod queues;
pub mod service;
pub mod shape;
mod stranger;
pub mod talk;
pub mod troubles;
pub mod windows;
pub mod world;
