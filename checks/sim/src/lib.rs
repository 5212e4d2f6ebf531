//! The cluster on virtual time: the machines of `cluster`, a network that loses, delays and splits, and no real second.
//!
//! | file | what it holds |
//! |---|---|
//! | `world` | events in their order, connections and their faults |
//! | `host` | what runs on a host, its clock, what it remembers |
//! | `legacy` | a model of real nodes, with their pauses and what ends them |
//! | `shape` | the tree that came out, and whether it is one |
//! | `faults` | a bad minute, and whether all find back |
//! | `formation` | how fast it forms and what that costs |
//! | `lot` | chance that can be replayed |

pub mod faults;
pub mod formation;
pub mod host;
pub mod legacy;
pub mod lot;
pub mod shape;
pub mod world;
