//! Event loops, sockets and listeners: everything between the network of the kernel and a protocol.
//!
//! [`Loops`] runs one event loop per core, each on a thread of its own. A connection stays on one
//! loop, so nothing on the path of a request is locked or sent between threads. A [`Listener`]
//! accepts connections and passes each to the least loaded loop. There the first [`Door`] that
//! recognizes the first bytes takes it.
//!
//! An event loop consists of three parts:
//!
//! * the *executor* (`executor`) runs the tasks of connections;
//! * the *reactor* (`reactor`) waits for the readiness of sockets with epoll, and wakes their
//!   tasks;
//! * *batching* (`batch`) receives and sends for many connections with one system call, by
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
//!   executor: up to 128 ready tasks                                  (executor)    │
//!           │   8 or more ready: groups of up to 32                                │
//!           │     ├─ batch: receive for this group, send of the last (batch)       │
//!           │     └─ poll each task: read ─▶ handle ─▶ queue its send              │
//!           │   fewer: each task makes its own system calls      (socket)          │
//!           │   then one task that yielded                                         │
//!           ▼                                                                      │
//!   batch: send of the last group                                    (batch)       │
//!           │                                                                      │
//!           ▼                                                                      │
//!   reactor: epoll_wait; marks sources ready, wakes their tasks      (reactor) ────┘
//!            no wait if tasks are ready, limited by the alarm otherwise
//! ```
//!
//! | file | content |
//! |---|---|
//! | `loops` | [`Loops`], [`LoopHandle`]: the threads, and submission of work to a loop |
//! | `driver` | the event loop of a thread: executor, reactor and runtime in turn |
//! | `executor` | the executor: [`spawn_local`] spawns the task of a connection |
//! | `reactor` | the reactor: readiness of the sockets of a loop |
//! | `batch` | batching: system calls of many connections in one, by io_uring |
//! | `round_hook` | the hook at the end of each round of a loop |
//! | `alarm` | the timer that limits a wait of the reactor |
//! | `listener` | [`Listener`]: bind, accept, refuse when descriptors are exhausted |
//! | `door` | [`Door`]: detection of the protocol by the first bytes |
//! | `send_file` | `sendfile` for other sockets |
//! | `socket` | [`Socket`]: readiness, reads, vectored writes, `sendfile` |
//! | `peer_socket` | [`peer_socket`]: the socket of a client on this machine |
//! | `polling` | adaptive polling for the next request before sleeping |
//! | `loop_waker` | [`LoopWaker`]: a descriptor that wakes a loop |
//! | `source` | one watched socket: its flags and the waiting task |
//! | `task_waker` | the waker of one task |
//! | `tls` | [`TlsServer`]: TLS records in memory, and the settings of new TLS connections |
//! | `tls_socket` | encrypted reads and writes of a socket, and the handshake |
//! | `wake_list` | wakers that are called when no table is borrowed |
//! | `buffers` | buffer pools of each loop, so that an idle connection owns no buffer |

#![allow(unsafe_code)]

mod alarm;
mod batch;
mod buffers;
mod door;
mod driver;
mod executor;
mod listener;
mod loop_waker;
mod loops;
mod peer_socket;
mod polling;
mod reactor;
mod round_hook;
mod send_file;
mod socket;
mod source;
mod task_waker;
mod tcp_usage;
mod tls;
mod tls_socket;
mod wake_list;

pub use buffers::{
    BLOCK_BYTES, MEDIUM_BYTES, POOLED_BLOCKS_MAX, POOLED_MEDIUM_MAX, POOLED_SMALL_MAX, SMALL_BYTES,
    give_block, give_medium, give_small, take_block, take_medium, take_small,
};
pub use door::{Arrival, Door, ProtocolMatch};
pub use executor::rounds::set_batch_hooks;
pub use executor::spawn_local;
pub use listener::{Admission, BindError, Listener, ListenerConfig, Refusals};
pub use loop_waker::LoopWaker;
pub use loops::{LOOPS_MAX, LoopHandle, LoopPresence, Loops, spawn_essential};
pub use peer_socket::{PeerSocket, peer_socket};
pub use polling::{POLLING_CONNECTIONS_MAX, POLLING_MOMENT};
pub use reactor::enable_batching;
pub use round_hook::set_round_hook;
pub use send_file::send_file;
pub use socket::{DetachedSocket, Keepalive, Socket, SocketConfig};
pub use tcp_usage::{TcpUsage, connection_addresses, tcp_usage};
pub use tls::{ENCRYPTED_BYTES_MAX, ENCRYPTED_PIECES_MAX, HANDSHAKE_BYTES_MAX, HELD_BYTES_MAX, TlsServer};
