//! One login session as a pure machine: bytes and answers in, replies and things to do out. No socket, no clock, no thread.
//!
//! ```text
//!                  kXR_protocol                 kXR_login
//!  Handshake ───▶ Greeting ───────▶ Greeting ────────────▶ Active ───▶ Ending ───▶ (finished)
//!      20 bytes       │ kXR_bind: the driver moves the link to its session   ▲ link lost, kXR_endsess, violation
//! ```
//!
//! [`Session::take`] looks at the front of the control link's input and takes one request off it. What it asks of the
//! driver comes back as a [`Todo`]; further ones, that became possible when something else ended, wait in
//! [`Session::next_todo`]. Replies are appended to the output of the link they belong on: no reply is made elsewhere.
//!
//! | file | what it holds |
//! |---|---|
//! | `machine` | [`Session`]: stages, framing, the life of calls and files |
//! | `greeting` | handshake, kXR_protocol, kXR_login, kXR_bind, kXR_endsess |
//! | `paths` | requests that name a path |
//! | `handles` | requests on an open file |
//! | `sequencer` | the order of operations on open files: what may start, what must wait |
//! | `ordering` | how requests, closes and the end of the session use it |
//! | `attributes` | kXR_fattr |
//! | `query` | kXR_query and kXR_set |
//! | `reads` | replies to reads: the headers around the data of the driver |
//! | `answers` | answers of the file system, as replies |
//! | `signing` | kXR_sigver |
//! | `files`, `slots`, `target`, `settings`, `step`, `error` | what their names say |

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
