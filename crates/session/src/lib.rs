//! One login session as a pure state machine: bytes and answers go in, replies and tasks come out
//! (decision 010).
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
//! a [`DriverTask`] for the driver. Tasks that become possible when another one ends wait in
//! [`Session::next_todo`]. The session appends replies to the output of the connection they belong
//! to. No other code makes replies.
//!
//! | file | content |
//! |---|---|
//! | `machine` | takes requests and dispatches them |
//! | `state` | [`Session`]: stage, life cycle of calls and files, connections |
//! | `call` | a request without an answer |
//! | `ids` | identifiers of calls, files, connections and operations |
//! | `framing` | end of a request in the input, refusal because of a header |
//! | `authentication` | kXR_auth: from a login to the identity of the client |
//! | `login_policy` | which protocols are offered to a host, and which are accepted |
//! | `pending_logins` | number of clients that are not authenticated yet, or that perform a TLS handshake |
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
//! | `verifier` | the state of signature verification |
//! | `files` | table of open files |
//! | `slots` | table of calls in flight |
//! | `tls` | operations that must be encrypted, and the switch of a connection to TLS |
//! | `target` | parsing of paths |
//! | `settings` | settings shared by all sessions, limits of a session |
//! | `step` | interface to the driver: tasks and results |
//! | `error` | error kinds to error codes of the protocol |

mod answers;
mod attributes;
mod authentication;
mod call;
mod error;
mod files;
mod framing;
mod greeting;
mod handles;
mod ids;
mod login_policy;
mod machine;
mod ordering;
mod paths;
mod pending_logins;
mod query;
mod reads;
mod replies;
mod sequencer;
mod settings;
mod signing;
mod slots;
mod state;
mod step;
mod target;
mod tls;
mod verifier;

pub use auth::HostName;
pub use authentication::{AuthenticationResult, AuthenticationTask};
pub use error::wire_code;
pub use framing::RequestFront;
pub use ids::{CallId, FileIndex, PathId, SequenceId};
pub use login_policy::LoginPolicy;
pub use pending_logins::{PendingLoginSlot, PendingLogins};
pub use reads::{ReadFrame, ReadReply};
pub use settings::{
    BAD_PAGES_MAX, CALLS_MAX, CREDENTIAL_BYTES_MAX, HostRules, LOGIN_ATTEMPTS_MAX, LOGIN_TIME_MAX, LiveValue,
    PENDING_LOGINS_PER_HOST_MAX, Peer, REFUSAL_SECONDS_MAX, Settings, Signing, SigningByDistance,
};
pub use state::{ReplyOutputs, Session};
pub use step::{
    BadPage, Destination, DriverTask, PayloadAnnouncement, ReadElement, ReadTask, ReadVectorTask,
    ReceiveResult, TakeResult, WriteExtent,
};
