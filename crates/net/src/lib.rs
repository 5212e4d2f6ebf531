//! Sockets, loops and doors: everything between the kernel's network and a protocol.
//!
//! A [`Loops`] runs one thread with a loop per core; a connection lives on one of them for life, so nothing on the way
//! of a request is locked or sent between threads. A [`Listener`] accepts and hands each connection to the least loaded
//! loop, where the first [`Door`] that knows the first bytes takes it.
//!
//! | file | what it holds |
//! |---|---|
//! | `loops` | [`Loops`], [`LoopHandle`]: the threads, and how work gets onto one of them |
//! | `crew` | [`attend`]: the tasks of connections, which sleep most of the time |
//! | `listener` | [`Listener`]: bind, accept, refuse when descriptors run out |
//! | `door` | [`Door`]: are these first bytes yours |
//! | `driver` | what a loop's thread does: connections that are ready, then waiting |
//! | `alarm` | the moment at which a loop is woken though nothing has come |
//! | `poller` | which sockets of a loop are ready |
//! | `gather` | system calls of many connections in one, by io_uring |
//! | `socket` | [`Socket`]: readiness, reads, vectored writes, `sendfile` |
//! | `polling` | looking for the next request for a moment before sleeping |
//! | `wake` | [`Wake`]: a descriptor that wakes a loop |
//! | `wakes` | wakers, kept so that nothing is borrowed while one is called |
//! | `buffers` | warm buffers of each loop, so that an idle connection owns none |

#![allow(unsafe_code)]

mod alarm;
mod buffers;
mod crew;
mod door;
mod driver;
mod gather;
mod listener;
mod loops;
mod poller;
mod polling;
mod socket;
mod wake;
mod wakes;

pub use buffers::{
    BLOCK_BYTES, MEDIUM_BYTES, POOLED_BLOCKS_MAX, POOLED_MEDIUM_MAX, POOLED_SMALL_MAX, SMALL_BYTES,
    give_block, give_medium, give_small, take_block, take_medium, take_small,
};
pub use crew::{around_rounds, attend};
pub use door::{Arrival, Claim, Door};
pub use listener::{Admission, BindError, Listener, ListenerConfig, Refusals};
pub use loops::{LOOPS_MAX, LoopHandle, Loops, Presence, spawn_essential};
pub use poller::gather_calls;
pub use polling::{POLLING_CONNECTIONS_MAX, POLLING_MOMENT};
pub use socket::{Keepalive, Socket, SocketConfig};
pub use wake::Wake;
