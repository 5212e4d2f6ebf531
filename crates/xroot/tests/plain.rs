//! The tests of the data path once more, each connection with system calls of its own, as where io_uring is forbidden.

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
