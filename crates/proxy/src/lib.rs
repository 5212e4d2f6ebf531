//! A proxy: files of other servers (origins) behind the contract of a file system (decision 049).
//!
//! | file | contents |
//! |---|---|
//! | `settings` | [`ProxyConfig`]: the configuration, as plain values |
//! | `file_system` | [`ProxyFiles`]: operations on names, each a task that answers late |
//! | `changes` | changes of names, and their refusals |
//! | `open_file` | open files of clients |
//! | `open_options` | the options of an open at the origin |
//! | `remote_file` | a file at an origin: open, read, write, close |
//! | `origin_file` | an open file, by the protocol of its origin |
//! | `origin_names` | the names of an origin, by its protocol |
//! | `upload` | a file that is written to an object store or a web server |
//! | `appearing_file` | a file that is to appear at an origin that speaks HTTP |
//! | `upload_stream` | the request by which a web server gets one |
//! | `upload_parts` | its bytes, as parts that are sent when they are full |
//! | `upload_memory` | the memory of such parts |
//! | `upload_removals` | the removal of parts of files that do not appear |
//! | `near_ranges` | ranges that are read with one request |
//! | `cache_commands` | commands of clients about files in the disk cache |
//! | `cache_orders` | [`CacheOrders`]: orders of administrators about the disk cache |
//! | `cached_origin` | a file at an origin as the source of a cache; the cache on disk or in memory |
//! | `direct_reads` | redirects of clients on this machine to files of the disk cache |
//! | `address` | the URL of a path: origin, path and opaque text |
//! | `origins` | the origins in use |
//! | `origin` | one origin: its client, its limits, and the servers behind it |
//! | `origin_hosts` | the hosts to which the connections of one origin may lead |
//! | `origin_watch` | [`follow_origin`]: reports whether the origin answers |
//! | `personas` | requests with the identities of clients |
//! | `place` | a server with its circuit breaker |
//! | `connections` | the connections to one server |
//! | `late_answers` | notices to clients whose answer takes long, and the end of work whose client has left |
//! | `limits` | limits of one origin |
//! | `listing` | listings of directories |
//! | `names` | the addresses of the servers of one origin |
//! | `status` | the status of files of an origin |
//! | `failures` | failures of requests, as errors for clients |
//! | `threads` | the threads that drive the connections |

#![forbid(unsafe_code)]

mod address;
mod appearing_file;
mod cache_commands;
mod cache_orders;
mod cached_origin;
mod changes;
mod connections;
mod direct_reads;
mod failures;
mod file_system;
mod late_answers;
mod limits;
mod listing;
mod names;
mod near_ranges;
mod open_file;
mod open_options;
mod origin;
mod origin_file;
mod origin_hosts;
mod origin_names;
mod origin_watch;
mod origins;
mod personas;
mod place;
mod remote_file;
mod settings;
mod status;
mod threads;
mod upload;
mod upload_memory;
mod upload_parts;
mod upload_removals;
mod upload_stream;

pub use cache_orders::{CacheOrders, EvictionReply};
pub use direct_reads::{LocalClient, LocalClients};
pub use file_system::{PrepareIds, ProxyFiles};
pub use origin_watch::follow_origin;
pub use settings::{ProxyCacheConfig, ProxyConfig, ProxyExport, client_settings};
