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
//! | `state` | [`Session`]: composes the objects below, and is the interface to the driver |
//! | `machine` | takes requests and passes each to its family; kXR_ping, kXR_bind, kXR_endsess, refusals |
//! | `greeting` | `SessionClient`: stage and identity of the client; handshake, kXR_protocol, kXR_login |
//! | `authentication` | kXR_auth: from a login to the identity of the client |
//! | `tls` | operations that must be encrypted, and the switch of a connection to TLS |
//! | `login_policy` | which protocols are offered to a host, and which are accepted |
//! | `pending_logins` | number of clients that are not authenticated yet, or that perform a TLS handshake |
//! | `signing` | `Verifier`: kXR_sigver and the check of the next request |
//! | `work` | `SessionWork`: open files, calls, tasks that have become possible |
//! | `ordering` | use of the sequencer by requests, closes and the end of the session |
//! | `sequencer` | order of operations on open files: which may start, which must wait |
//! | `paths` | `NamespaceRequest`: requests that name a path |
//! | `handles` | `FileRequest`: requests on an open file |
//! | `attributes` | kXR_fattr |
//! | `query` | `QueryRequest`: kXR_query and kXR_set |
//! | `answers` | `Answers`: answers of the file system, encoded as replies |
//! | `write_replies` | `WriteReplies`: replies after the data of a request has arrived |
//! | `reads` | replies to reads: the headers around the data of the driver |
//! | `reply` | `Replier`: immediate replies, errors and successes |
//! | `replies` | encoders of replies from types of `vfs` |
//! | `framing` | end of a request in the input, refusal because of a header |
//! | `call` | a request without an answer |
//! | `files` | table of open files |
//! | `slots` | table of calls in flight |
//! | `links` | the set of bound connections |
//! | `ids` | identifiers of calls, files, connections and operations |
//! | `cache_commands` | commands about files in a disk cache |
//! | `target` | parsing of paths |
//! | `settings` | settings shared by all sessions, limits of a session |
//! | `timing` | time from a request to its reply |
//! | `step` | interface to the driver: tasks and results |
//! | `error` | error kinds to error codes of the protocol |

mod answers;
mod attributes;
mod authentication;
mod cache_commands;
mod call;
mod error;
mod files;
mod framing;
mod greeting;
mod handles;
mod ids;
mod links;
mod login_policy;
mod machine;
mod ordering;
mod paths;
mod pending_logins;
mod query;
mod reads;
mod replies;
mod reply;
mod sequencer;
mod settings;
mod signing;
mod slots;
mod state;
mod step;
mod target;
mod timing;
mod tls;
mod work;
mod write_replies;

pub use auth::HostName;
pub use authentication::{AuthenticationResult, AuthenticationTask};
pub use error::wire_code;
pub use framing::RequestFront;
pub use handles::page_layout;
pub use ids::{CallId, FileIndex, PathId, SequenceId};
pub use login_policy::{BearerLogin, LoginPolicy};
pub use pending_logins::{PendingLoginLimit, PendingLoginSlot, PendingLogins};
pub use reads::{ReadFrame, ReadReply};
pub use reply::{CountedEvent, ReplyOutputs};
pub use settings::{
    BAD_PAGES_MAX, CALLS_MAX, CREDENTIAL_BYTES_MAX, HostRules, LOGIN_ATTEMPTS_MAX, LOGIN_TIME_MAX, LiveValue,
    PENDING_LOGINS_PER_HOST_MAX, Peer, REFUSAL_SECONDS_MAX, Settings, Signing, SigningByDistance,
};
pub use signing::PayloadSignature;
pub use state::Session;
pub use step::{
    BadPage, Destination, DriverTask, MonitorCommand, PayloadAnnouncement, ReadElement, ReadTask,
    ReadVectorTask, ReceiveResult, TakeResult, WriteExtent,
};
pub use timing::{
    RefusedTime, RequestTimer, TIMED_OPERATIONS, TimedRequests, begin_request, end_round, take_arriving,
};
