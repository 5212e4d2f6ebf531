//! The xroot front end: drives sessions over sockets and a file system.
//!
//! ```text
//!  socket ─▶ link (task) ─▶ input buffer ─▶ session::take ─▶ Todo
//!    ▲                                                        ├─▶ read in place, into the output
//!    │                                                        ├─▶ transfer: large or cold reads
//!    │                                                        ├─▶ receipt: payload to the file
//!    │                                                        └─▶ file system; late answers
//!    └────────── outbox ◀── replies ◀── session::answered ◀────── return through the mailbox
//! ```
//!
//! All state of a session belongs to one loop, in one `driver::SessionDriver`, so it needs no
//! locks. Only late answers cross threads, through the mailbox of the loop.
//!
//! | file | content |
//! |---|---|
//! | `door` | [`XrootDoor`]: accepts connections, drains, reports totals |
//! | `front_end` | [`Config`], and the state that all loops share |
//! | `hub` | state of one loop: sessions, mailbox, ticks |
//! | `registry` | home loop of each session, for bind and endsess |
//! | `driver` | one session with its connections: executes the tasks of the session; its parts are in `driver/` |
//! | `login_waits` | pending operations of a login |
//! | `failures` | rate-limited log of failed requests |
//! | `connection` | the task of one connection |
//! | `tls_handshake` | the task of a connection while it switches to TLS |
//! | `input` | received bytes that have not been consumed |
//! | `client_delay` | time for which a client keeps the server waiting |
//! | `connections` | all connections of a session and their pending work |
//! | `outbox` | replies and file ranges that wait for the socket |
//! | `transfer`, `range_read`, `vector_read` | reads that take several steps |
//! | `block` | buffers of file data in flight, with the charge for their memory |
//! | `memory` | admission of work by memory |
//! | `costs` | memory that a request may use, computed from its header |
//! | `receipt` | payload on its way to files |
//! | `lazy` | tables that are allocated only while they have entries |
//! | `limits` | limits of memory and fairness |
//! | `stats` | counters |

mod block;
mod client_delay;
mod connection;
mod connections;
mod costs;
mod door;
mod driver;
mod error_counts;
mod failures;
mod front_end;
mod hub;
mod input;
mod lazy;
mod limits;
mod login_waits;
mod memory;
mod outbox;
mod range_read;
mod receipt;
mod registry;
mod reply_ends;
mod stats;
mod tls_handshake;
mod transfer;
mod vector_read;

pub use door::XrootDoor;
pub use front_end::{Config, LoginPool, PeerNames};
pub use limits::*;
pub use stats::{FrontEndFigures, StatisticsText, Totals};
