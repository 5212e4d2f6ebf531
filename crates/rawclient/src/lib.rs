//! One connection of a client to an xroot server, without redirects, retries and files.
//!
//! The machine without I/O ([`Connection`]) is shared by the client library, which drives it with
//! Tokio, and by programs that need no more than requests and replies: load generators, probes and
//! tests. These have sockets of two kinds:
//!
//! | file | content |
//! |---|---|
//! | `connection` | [`Connection`]: a pure machine that turns requests and bytes into [`ConnectionEvent`]s |
//! | `encoded`, `outgoing` | encoded requests, with payloads that are not copied |
//! | `login` | [`Login`]: the description that a client sends when it connects |
//! | `session` | [`BlockingSession`]: one request at a time |
//! | `security`, `encryption` | [`LoginSecurity`]: TLS and credentials of a polled connection |
//! | `polled` | [`PolledConnection`]: a connection on a non-blocking socket |
//! | `poller` | [`SocketPoller`]: waits for many sockets |
//! | `zone` | the time zone of this machine |
//! | `error` | errors of a connection |

#![forbid(unsafe_code)]

mod connection;
mod encoded;
mod encryption;
mod error;
mod login;
mod outgoing;
mod polled;
mod poller;
mod security;
mod session;
mod zone;

pub use connection::{
    AuthenticationStep, Connection, ConnectionEvent, REQUESTS_IN_FLIGHT_MAX, RequestOutcome, ServerInfo,
};
pub use encoded::Encoded;
pub use error::{ConnectionError, Demand, SessionError, SubmitError};
pub use login::{Login, TlsSupport};
pub use polled::{PolledConnection, SocketRead};
pub use poller::{Interest, SocketPoller, SocketReadiness};
pub use security::{LoginCredentials, LoginSecurity};
pub use session::BlockingSession;
pub use zone::local_zone;
