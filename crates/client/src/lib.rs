//! The client side of the xroot protocol: files and file systems of servers and clusters.
//!
//! ```text
//! let client = Client::new("my program");              // on a Tokio runtime of either kind
//! let url = Url::parse("root://manager//set/run7.root")?;
//! let file = client.open(&url, &OpenWith::read()).await?;
//! let data: Bytes = file.read_pages(0, 1 << 20).await?; // verified; goes on elsewhere if the server dies
//! file.close().await?;
//! let entries = client.file_system(&url).list("/set", &ListWith { stat: true, ..Default::default() }).await?;
//! ```
//!
//! What users of the library see:
//!
//! | file | what it holds |
//! |---|---|
//! | `client` | [`Client`]: settings, connections and memory that operations share |
//! | `filesystem` | [`FileSystem`]: everything that can be done with paths |
//! | `changes` | what changes the name space of a [`FileSystem`]; lost replies of it |
//! | `everywhere` | [`Merged`]: directories of all servers of a cluster as one; wildcards |
//! | `attributes` | extended attributes of paths and files |
//! | `file` | [`File`], [`OpenWith`]: an open file; it outlives its connection and its server |
//! | `identity` | [`FileIdentity`]: which file something is, whatever its path leads to later |
//! | `reader` | [`Reader`], [`Caching`]: a file with memory: read-ahead, blocks, whole vectors; with statistics |
//! | `whole` | [`WholeRead`]: where the end of a file is, which no short answer is taken for |
//! | `sums` | [`PassingSums`]: checksums of data while it passes, in whatever order |
//! | `answers` | what servers answer: [`StatInfo`], [`Entry`], [`Location`], … |
//! | `failure` | [`Error`], [`Cause`]: what failed where, on which way there, and what helps |
//! | `settings` | [`Settings`]: `XRD_…` variables and `client.conf`, each value with its source |
//! | `copy` | [`copy::Copier`]: copies files between this machine and servers, and between servers |
//! | `metalink` | [`metalink::Metalink`]: where the same file is, what it adds up to |
//! | `zip` | [`zip::Archive`]: members of ZIP archives at servers |
//! | `path` | [`RemotePath`], [`Name`]: paths and names that requests can carry, apart from cgi |
//! | [`walk`] | [`walk::Walk`]: the one way through directory trees, here and at servers; [`walk::Removal`] |
//! | `url` | [`Url`]: `root://user@host:port//path?cgi`, several hosts too |
//! | [`blocking`] | the same without a runtime, from any thread, also after `fork` |
//!
//! What they stand on:
//!
//! | file | what it holds |
//! |---|---|
//! | `route` | the way of a request: redirects, waits, retries elsewhere |
//! | `pool` | connections shared by all who talk to the same server as the same user |
//! | `connect` | addresses of both families in turn, the first that answers; login |
//! | `channel` | [`Channel`]: a connection that one task drives for many callers |
//! | `summing` | how long a checksum is waited for |
//! | `blocks` | [`Blocks`]: memory for file data, used again and again |
//! | `connection` | [`Connection`]: one connection as a pure machine: requests in, bytes out; bytes in, [`Event`]s out |
//! | `encoded`, `outgoing` | requests in their bytes, payloads without copying them |
//! | `login` | [`Login`]: what a client says about itself when it connects |
//! | `abort_on_drop` | `AbortOnDrop`: a task that ends with its owner |
//! | `zone` | the time zone of this machine |
//! | `error` | what can go wrong on a connection |
//!
//! And a small blocking client without redirects, for measurements and tests: `link` ([`Link`]: a connection on a
//! non-blocking socket), `poller` ([`Poller`]: waits for many of them), `session` ([`Session`]: one request at a time).
//!
//! Authentication and TLS are not here yet: a server that insists on either is refused with [`ConnectionError::Demands`].

#![forbid(unsafe_code)]

mod abort_on_drop;
mod answers;
mod attributes;
pub mod blocking;
mod blocks;
mod changes;
mod channel;
mod client;
mod connect;
mod connection;
pub mod copy;
mod encoded;
mod entries;
mod error;
mod everywhere;
mod failure;
mod file;
mod filesystem;
mod identity;
mod link;
mod listing_memory;
mod listings;
mod login;
pub mod metalink;
mod outgoing;
mod path;
mod poller;
mod pool;
mod reader;
mod route;
mod session;
mod settings;
mod summing;
mod sums;
mod url;
mod waits;
pub mod walk;
mod whole;
pub mod zip;
mod zone;

pub use bytes::Bytes;
/// Checksums.
pub use digest;
/// Page checksums, as the data of `kXR_pgread` and `kXR_pgwrite` carry them.
pub use digest::pages;
/// Types and values of checksums.
pub use digest::{Algorithm, Checksum as Sum};
/// The messages of the protocol: the requests that a [`Connection`] takes, the bodies that its answers have.
pub use wire::xroot;

pub use answers::{Attribute, Checksum, Entry, Location, SpaceInfo, StatInfo, StatMore, VfsInfo};
pub use attributes::NamedValue;
pub use blocks::{Block, Blocks};
pub use channel::Channel;
pub use client::Client;
pub use connect::{AddressFilter, Resolver, Resolving};
pub use connection::{Connection, Event, Outcome, REQUESTS_IN_FLIGHT_MAX, ServerInfo};
pub use encoded::Encoded;
pub use entries::Entries;
pub use error::{ConnectionError, Demand, SessionError, SubmitError, UrlError};
pub use everywhere::{Matches, Merged, list_merged, together};
pub use failure::{Cause, Error, Failure};
pub use file::{File, OpenWith, READ_BYTES_MAX, VectorLimits, WRITE_BYTES_MAX};
pub use filesystem::{FileSystem, ListWith};
pub use identity::FileIdentity;
pub use link::{Link, Received};
pub use login::Login;
pub use path::{EntryName, Name, NameError, RelativePath, RemotePath, RequestTarget};
pub use poller::{Interest, Poller, Readiness};
pub use reader::{CacheStatistics, Caching, Reader};
pub use session::Session;
pub use settings::{SettingError, Settings, Source};
pub use sums::PassingSums;
pub use url::{Scheme, Url};
pub use waits::{Wait, WaitFor, Waits};
pub use whole::WholeRead;
pub use zone::local_zone;
