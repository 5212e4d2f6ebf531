//! One login session as a pure state machine: bytes and answers go in, replies and tasks come out.
//!
//! The crate has no socket, no clock and no thread, so that tests and fuzzers can drive both ends
//! of a session. The `xroot` crate is its driver: it moves the bytes and runs the operations.
//!
//! ```text
//!              20 bytes          kXR_login         kXR_endsess, violation, connection lost
//!  Handshake ──────────▶ Greeting ─────────▶ Active ─────────▶ Ending ───▶ (finished)
//!                        │      ▲ │
//!                        └──────┘ └ kXR_bind: the driver moves the connection to its session
//!                      kXR_protocol
//! ```
//!
//! [`Session::take`] takes one request from the front of the control connection's input and returns
//! a [`Todo`] for the driver. Tasks that become possible when another one ends wait in
//! [`Session::next_todo`]. The session appends replies to the output of the connection they belong
//! to. No other code makes replies.
//!
//! | file | content |
//! |---|---|
//! | `machine` | [`Session`]: stages, dispatch of requests, life cycle of calls and files |
//! | `framing` | end of a request in the input, refusal because of a header |
//! | `greeting` | handshake, kXR_protocol, kXR_login, kXR_bind, kXR_endsess |
//! | `paths` | requests that name a path |
//! | `handles` | requests on an open file |
//! | `sequencer` | order of operations on open files: which may start, which must wait |
//! | `ordering` | use of the sequencer by requests, closes and the end of the session |
//! | `attributes` | kXR_fattr |
//! | `query` | kXR_query and kXR_set |
//! | `reads` | replies to reads: the headers around the data of the driver |
//! | `answers` | answers of the file system, encoded as replies |
//! | `replies` | encoders of replies from types of `vfs` |
//! | `signing` | kXR_sigver |
//! | `files` | table of open files |
//! | `slots` | table of calls in flight |
//! | `target` | parsing of paths |
//! | `settings` | settings shared by all sessions, limits of a session |
//! | `step` | interface to the driver: tasks and results |
//! | `error` | error kinds to error codes of the protocol |

mod answers;
mod attributes;
mod error;
mod files;
mod framing;
mod greeting;
mod handles;
mod machine;
mod ordering;
mod paths;
mod query;
mod reads;
mod replies;
mod sequencer;
mod settings;
mod signing;
mod slots;
mod step;
mod target;

pub use error::wire_code;
pub use framing::Front;
pub use machine::{Outlets, Session};
pub use reads::{ReadFrame, ReadReply};
pub use sequencer::SequenceId;
pub use settings::{
    BAD_PAGES_MAX, CALLS_MAX, FILES_MAX, GREETING_ARGUMENT_BYTES_MAX, Peer, Settings, Signing,
};
pub use step::{
    BadPage, CallId, Destination, Extent, FileIndex, LinkId, ReadElement, ReadTask, ReadVectorTask, Receive,
    Received, Step, Todo,
};
