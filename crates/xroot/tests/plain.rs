//! The tests of the data path without batching: each connection makes its own system calls.
//!
//! Kernels that forbid io_uring use this path, so it needs the same tests.

#![allow(clippy::unwrap_used)]
#![allow(clippy::duplicate_mod, reason = "they are the same tests, and each brings its helpers")]

#[path = "links.rs"]
mod links;
#[path = "ordering.rs"]
mod ordering;
#[path = "reads.rs"]
mod reads;
#[path = "storm.rs"]
mod storm;
#[path = "transport.rs"]
mod transport;
#[path = "writes.rs"]
mod writes;
