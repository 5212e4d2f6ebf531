//! The client side of the xroot protocol: where a file is, and the connection to the server that has it.
//!
//! | file | what it holds |
//! |---|---|
//! | `url` | [`Url`]: `root://user@host:port//path?cgi`, taken apart |
//! | `login` | [`Login`]: what a client says about itself when it connects |
//! | `connection` | [`Connection`]: one connection as a pure machine: requests in, bytes out; bytes in, [`Event`]s out |
//! | `outgoing` | bytes on their way to the server, payloads without copying them |
//! | `link` | [`Link`]: a connection on a non-blocking socket |
//! | `poller` | [`Poller`]: waits for many links at once (epoll) |
//! | `session` | [`Session`]: one link, one request at a time, waiting for each answer |
//! | `error` | what can go wrong |
//!
//! Redirects, retries and recovery build on these and are not here yet; nor are authentication and TLS: a server that
//! insists on either is refused with [`ConnectionError::Demands`].

#![forbid(unsafe_code)]

mod connection;
mod error;
mod link;
mod login;
mod outgoing;
mod poller;
mod session;
mod url;

/// Page checksums, as the data of `kXR_pgread` and `kXR_pgwrite` carry them.
pub use digest::pages;
/// The messages of the protocol: the requests that a [`Connection`] takes, the bodies that its answers have.
pub use wire::xroot;

pub use connection::{Connection, Event, Outcome, REQUESTS_IN_FLIGHT_MAX, ServerInfo};
pub use error::{ConnectionError, Demand, SessionError, SubmitError, UrlError};
pub use link::{Link, Received};
pub use login::Login;
pub use poller::{Interest, Poller, Readiness};
pub use session::Session;
pub use url::{Scheme, Url};
