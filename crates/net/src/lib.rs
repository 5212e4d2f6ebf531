//! Event loops, sockets and listeners: everything between the network of the kernel and a protocol.
//!
//! [`Loops`] runs one event loop per core, each on a thread of its own. A connection stays on one
//! loop, so nothing on the path of a request is locked or sent between threads. A [`Listener`]
//! accepts connections and passes each to the least loaded loop. There the first [`Door`] that
//! recognizes the first bytes takes it.
//!
//! An event loop consists of three parts:
//!
//! * the *executor* (`crew`) runs the tasks of connections;
//! * the *reactor* (`poller`) waits for the readiness of sockets with epoll, and wakes their tasks;
//! * *batching* (`gather`) receives and sends for many connections with one system call, by
//!   io_uring.
//!
//! One round of the event loop:
//!
//! ```text
//!           ┌──────────────────────────────────────────────────────────────────────┐
//!           ▼                                                                      │
//!   runtime: timers and other tasks, only when due or woken          (driver)      │
//!           │                                                                      │
//!           ▼                                                                      │
//!   executor: up to 128 ready tasks                                  (crew)        │
//!           │   8 or more ready: groups of up to 32                                │
//!           │     ├─ batch: receive for this group, send of the last (gather)      │
//!           │     └─ poll each task: read ─▶ handle ─▶ queue its send              │
//!           │   fewer: each task makes its own system calls      (socket)          │
//!           │   then one task that yielded                                         │
//!           ▼                                                                      │
//!   batch: send of the last group                                    (gather)      │
//!           │                                                                      │
//!           ▼                                                                      │
//!   reactor: epoll_wait; marks sources ready, wakes their tasks      (poller) ─────┘
//!            no wait if tasks are ready, limited by the alarm otherwise
//! ```
//!
//! | file | content |
//! |---|---|
//! | `loops` | [`Loops`], [`LoopHandle`]: the threads, and submission of work to a loop |
//! | `driver` | the event loop of a thread: executor, reactor and runtime in turn |
//! | `crew` | the executor: [`attend`] spawns the task of a connection |
//! | `poller` | the reactor: readiness of the sockets of a loop |
//! | `gather` | batching: system calls of many connections in one, by io_uring |
//! | `alarm` | the timer that limits a wait of the reactor |
//! | `listener` | [`Listener`]: bind, accept, refuse when descriptors are exhausted |
//! | `door` | [`Door`]: detection of the protocol by the first bytes |
//! | `socket` | [`Socket`]: readiness, reads, vectored writes, `sendfile` |
//! | `polling` | adaptive polling for the next request before sleeping |
//! | `wake` | [`Wake`]: a descriptor that wakes a loop |
//! | `wakes` | wakers that are called when no table is borrowed |
//! | `buffers` | buffer pools of each loop, so that an idle connection owns no buffer |

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
