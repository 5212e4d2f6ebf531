//! The HTTP front end: HTTP/1.1 and HTTP/2 with the methods of WebDAV that data transfers use.
//!
//! ```text
//!  event loop ─▶ HttpDoor: the first bytes are HTTP or TLS
//!                   │  the connection leaves its loop with the bytes already read
//!                   ▼
//!  runtime of HTTP ─▶ connection (hyper) ─▶ service ─▶ get, upload, names, listing
//!                                             │            │
//!                                             ▼            ▼
//!                                           login        calls of vfs
//! ```
//!
//! Connections of HTTP have a runtime of their own, so that their parsing, encryption and large
//! bodies do not delay the sessions of the event loops. A request becomes the same operations of
//! `vfs` as one of the xroot protocol, with the same authorization.
//!
//! | file | content |
//! |---|---|
//! | `door` | [`HttpDoor`]: detection, the runtime, drain |
//! | `status_counters` | [`StatusCounters`]: requests by method and exact status |
//! | `counters` | [`HttpCounters`]: requests by method and status, connections, bytes |
//! | `config` | [`Config`], and the traits that the server implements |
//! | `activity` | whether a connection is idle |
//! | `connection` | one connection: TLS, limits of time, hyper |
//! | `connection_streams` | the streams of a connection of HTTP/2 |
//! | `cors` | replies that pages of other sites may read |
//! | `host_shares` | the parts of connections, handshakes and files that one host may use |
//! | `http2` | connections of HTTP/2 |
//! | `stream` | the bytes of a connection, and the limit of time without progress |
//! | `served_connection` | a connection, as its requests see it, and the login of its client |
//! | `service` | one request: token, method, errors of arguments |
//! | `call` | operations of `vfs` as asynchronous calls, and open files |
//! | `target` | paths and CGI of a request, and of the header `Destination` |
//! | `get` | GET and HEAD |
//! | `file_body` | bodies of replies that are parts of files |
//! | `ranges` | the header `Range` |
//! | `conditions` | entity tags, and the headers `If-…` |
//! | `dashboard` | `/dashboard`: the figures of the server in a browser |
//! | `digests` | the headers `Want-Digest` and `Want-Repr-Digest` |
//! | `handover` | bodies that are sent by `sendfile` |
//! | `upload` | PUT |
//! | `expected` | checksums that come with a PUT |
//! | `names` | DELETE, MKCOL, MOVE, OPTIONS |
//! | `copy` | COPY: third-party copies |
//! | `listing` | PROPFIND, and pages of directories |
//! | `macaroons` | POST: macaroons for clients |
//! | `memory` | the memory of connections and requests |
//! | `metrics_page` | `/metrics` |
//! | `progress` | the least rate of clients |
//! | `status` | `/healthz`, `/readyz` |
//! | `reply` | replies and their bodies, and the status of each error |
//! | `redirect` | redirects to other servers |
//! | `tape` | the WLCG Tape REST API |
//! | `transfer_status` | the trailer `X-Transfer-Status` |
//! | `text` | escapes of URLs and of XML, dates |
//! | `limits` | limits of memory, time and connections |

mod activity;
mod call;
mod conditions;
mod config;
mod connection;
mod connection_streams;
mod copy;
mod cors;
mod counters;
mod dashboard;
mod digests;
mod door;
mod expected;
mod file_body;
mod get;
mod handover;
mod host_shares;
mod http2;
mod limits;
mod listing;
mod macaroons;
mod memory;
mod metrics_page;
mod names;
mod progress;
mod ranges;
mod redirect;
mod reply;
mod served_connection;
mod service;
mod status;
mod status_counters;
mod stream;
mod tape;
mod target;
mod text;
mod transfer_status;
mod upload;

pub use config::{
    Config, HeaderToCgi, HttpCredentials, HttpIdentity, HttpLogin, HttpPeer, HttpRefusal, ListingPolicy,
    MacaroonEndpoints, MadeMetrics, MetricsPage, StaticHeader, StatusPages,
};
pub use copy::{
    Copies, EndedHttpCopy, HttpCopyObserver, RemoteDownload, RemoteFailure, RemoteFuture, RemoteParts,
    RemotePeer, RemoteRanges, RemoteRequest, RemoteServers, UploadSource,
};
pub use counters::{
    COUNTED_CLASSES, COUNTED_METHODS, HttpCounters, HttpFigures, HttpRequestCounts, TIMED_KINDS,
};
pub use door::HttpDoor;
pub use limits::*;
pub use status_counters::StatusCounters;
pub use tape::TapeRest;

/// Parsers of what clients send, for the fuzzer.
pub mod parsers {
    pub use crate::copy::request::{CopyDirection, CopyRequest, parse as parse_copy};
    pub use crate::macaroons::{parse_form, parse_json};
    pub use crate::ranges::{RangeOutcome, parse as parse_range};
    pub use crate::tape::{parse_tape_files, parse_tape_paths};
    pub use crate::target::{NewName, parse_destination, parse_target};
}
