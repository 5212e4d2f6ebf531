//! The client side of the xroot protocol: files and file systems of servers and clusters.
//!
//! ```text
//! let client = Client::new(Credentials::of_user(), "my program"); // on a Tokio runtime
//! let url = Url::parse("root://manager//set/run7.root")?;
//! let file = client.open(&url, &OpenWith::read()).await?;
//! // Verifies the pages, and continues at another server if this one fails.
//! let data: Bytes = file.read_pages(0, 1 << 20).await?;
//! file.close().await?;
//! let with = ListWith { stat: true, ..Default::default() };
//! let entries = client.file_system(&url).list("/set", &with).await?;
//! ```
//!
//! The public interface:
//!
//! | file | content |
//! |---|---|
//! | `client` | [`Client`]: settings, connections and memory that operations share |
//! | `credentials` | [`Credentials`]: the credentials of a client, and the choice of a URL |
//! | `filesystem` | [`FileSystem`]: operations on paths |
//! | `changes` | changes of the name space of a [`FileSystem`], and their lost replies |
//! | `cluster` | operations of a [`FileSystem`] on all servers of a cluster |
//! | `cluster_listing` | [`Merged`]: directories of all servers of a cluster as one |
//! | `pattern_search` | [`Matches`]: the paths of a cluster that match a pattern |
//! | `attributes` | extended attributes of paths and files |
//! | `file` | [`File`], [`OpenWith`]: an open file, which survives its connection and its server |
//! | `identity` | [`RemoteFileIdentity`]: the identity of a file, whatever its path leads to later |
//! | `reader` | [`Reader`], [`Caching`]: a cached file: read-ahead, blocks, vectors; statistics |
//! | `whole` | [`WholeRead`]: reads to the real end of a file, despite short replies |
//! | `sums` | [`PassingSums`]: checksums of data as it passes, in any order |
//! | `answers` | replies of servers: [`StatInfo`], [`RemoteEntry`], [`ReplicaLocation`], … |
//! | `failure` | [`Error`], [`Cause`]: the failed operation, server, route and remedy |
//! | `settings` | [`Settings`]: `XRD_…` variables and `client.conf`, each value with its source |
//! | `copy` | [`copy::Copier`]: copies between this machine and servers, and between servers |
//! | `metalink` | [`metalink::Metalink`]: the places of the same file, and its checksums |
//! | `zip` | [`zip::Archive`]: members of ZIP archives at servers |
//! | `path` | [`RemotePath`], [`Name`]: paths and names that requests can carry, without cgi |
//! | [`http`] | files of HTTP servers |
//! | [`walk`] | [`walk::Walk`]: walks through directory trees; [`walk::TreeRemoval`] |
//! | `url` | [`Url`]: `root://user@host:port//path?cgi`, also with several hosts |
//! | [`blocking`] | the same interface without a runtime, from any thread, also after `fork` |
//!
//! The implementation:
//!
//! | file | content |
//! |---|---|
//! | `request_loop` | sends a request until it has a final reply: deadline, waits, retries |
//! | `route` | the route of a request: redirects, balancers, other servers |
//! | `redirect` | the target of a redirect, and what it may change |
//! | `pool` | connections shared by all operations for the same server and user |
//! | `connect` | tries addresses of both families, uses the first that answers; login |
//! | `authentication` | the login at a server, and the threads of its authentication |
//! | `credential_exchange` | chooses authentication protocols and drives their exchanges |
//! | `secured_login` | [`SecuredLogin`]: TLS and credentials for connections without Tokio |
//! | `channel` | [`Channel`]: a connection that one task drives for many callers |
//! | `listings` | requests for listings, in the wire format |
//! | `checksums` | queries for checksums that servers compute |
//! | `checksum_timeout` | the timeout of checksums |
//! | `buffer_pool` | [`DataBufferPool`]: reused memory for file data |
//! | `abort_on_drop` | `AbortOnDrop`: a task that ends with its owner |
//! | `url_error` | errors of URLs |
//!
//! The machine of a connection, without I/O, is in the crate `rawclient`, with a blocking client
//! for load generators and probes.
//!
//! Connections are encrypted where the URL (`roots`) or the server requires it; the certificate of the
//! server must be for the host of the URL.

#![forbid(unsafe_code)]

mod abort_on_drop;
mod answers;
mod attributes;
mod authentication;
mod authorities;
pub mod blocking;
mod buffer_pool;
mod changes;
mod channel;
mod checksum_timeout;
mod checksums;
mod client;
mod cluster;
mod cluster_listing;
mod connect;
mod connection_limits;
pub mod copy;
mod credential_exchange;
mod credentials;
mod delegation;
mod entries;
mod failure;
mod file;
mod filesystem;
pub mod http;
mod identity;
mod listing_memory;
mod listings;
pub mod metalink;
mod pacing;
mod path;
mod pattern_search;
mod pool;
mod reader;
mod redirect;
mod request_loop;
mod route;
mod secured_login;
mod server_stream;
mod settings;
mod shared_tickets;
mod sums;
mod tls_trust;
mod url;
mod url_error;
mod waits;
pub mod walk;
mod whole;
pub mod zip;

pub use base::CopyRange;
pub use bytes::Bytes;
/// Checksums.
pub use digest;
/// Page checksums of the data of `kXR_pgread` and `kXR_pgwrite`.
pub use digest::pages;
/// Types and values of checksums.
pub use digest::{Algorithm, Checksum as Sum};
/// The messages of the protocol: flags and codes of requests, and the bodies of replies.
pub use wire::{codec, xroot};

pub use answers::{
    Attribute, FileChecksum, RemoteEntry, ReplicaLocation, SpaceInfo, StatInfo, StatMore, VfsInfo,
};
pub use attributes::NamedValue;
pub use buffer_pool::{DataBufferPool, PooledBuffer};
pub use channel::Channel;
pub use client::Client;
pub use cluster::{AwayServers, ClusterServers};
pub use cluster_listing::{Merged, join_bounded, list_merged};
pub use connect::{AddressFilter, Resolver, Resolving};
pub use connection_limits::ConnectionLimits;
pub use credentials::Credentials;
pub use entries::Entries;
pub use failure::{Cause, Error, Failure};
pub use file::{File, OpenWith, READ_BYTES_MAX, VectorLimits, WRITE_BYTES_MAX};
pub use filesystem::{FileSystem, ListWith};
pub use identity::RemoteFileIdentity;
pub use listing_memory::ListingMemory;
pub use pacing::RequestPacing;
pub use path::{EntryName, Name, NameError, RelativePath, RemotePath, RequestTarget};
pub use pattern_search::Matches;
pub use rawclient::{ConnectionError, Demand, ServerInfo, local_zone};
pub use reader::{CacheStatistics, Caching, Reader};
pub use secured_login::SecuredLogin;
pub use settings::{SettingError, Settings, Source};
pub use sums::PassingSums;
pub use tls_trust::SharedTrust;
pub use url::{Scheme, Url};
pub use url_error::UrlError;
pub use waits::{PendingWait, WaitFor, Waits};
pub use whole::WholeRead;
