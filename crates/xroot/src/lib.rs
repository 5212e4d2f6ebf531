//! The xroot door: drives sessions over sockets and a file system.
//!
//! ```text
//!  socket ─▶ link (task) ─▶ input buffer ─▶ session::take ─▶ Todo ─┬─▶ read on the spot, behind its header in the output
//!    ▲                                                             ├─▶ transfer: large or cold reads, a piece a turn
//!    │                                                             ├─▶ receipt: payload streams to the file in pieces
//!    └───────────── outbox ◀───── replies ◀── session::answered ◀──┴─▶ file system; late answers come by the mailbox
//! ```
//!
//! Everything of a session lives on one loop, in one [`driver::SessionDriver`]; nothing in it is
//! locked or sent. Only late answers cross threads, through the mailbox of the loop.
//!
//! | file | what it holds |
//! |---|---|
//! | `door` | [`Door`]: accepts connections, drains, tells what it does |
//! | `hub` | what a loop keeps: its sessions, its mailbox, its ticks |
//! | `registry` | where each session lives, for bind and endsess |
//! | `driver` | one session with its links: runs what the session machine asks for |
//! | `failures` | failed requests in the log |
//! | `link` | the task of one connection |
//! | `lag` | how long a connection keeps the server waiting |
//! | `links` | all connections of a session: what waits on each, and who is to be woken |
//! | `outbox` | replies and file ranges waiting for the socket |
//! | `reads`, `vectors` | reads that take more than one step |
//! | `block` | buffers of file data in flight, with the charge for their memory |
//! | `memory` | what a session does about memory: what may begin now, and what waits |
//! | `costs` | memory that a request may take, known from its header |
//! | `receipts` | payload on its way to files |
//! | `lazy` | tables that are there only while something is in them |
//! | `limits` | the named constants that bound memory and fairness |
//! | `stats` | counters, and the text of `query stats` |

mod block;
mod costs;
mod door;
mod driver;
mod failures;
mod hub;
mod lag;
mod lazy;
mod limits;
mod link;
mod links;
mod memory;
mod outbox;
mod reads;
mod receipts;
mod registry;
mod stats;
mod vectors;

pub use door::{Config, Door};
pub use limits::*;
pub use stats::{Identification, Totals};
