//! Types that all crates share: paths, identities, errors, budgets, time and randomness.
//!
//! A type belongs here only if several crates need it; otherwise it stays in the crate that uses
//! it. The crate contains no I/O, no wire format and no policy, so that every other crate can
//! depend on it.
//!
//! | file           | contents                                                                 |
//! |----------------|--------------------------------------------------------------------------|
//! | `address_class` | [`AddressClass`]: networks whose addresses mean another host than elsewhere |
//! | `budget`       | [`MemoryBudget`], [`Account`], [`Charge`]: memory for requests in flight |
//! | `descriptors`  | [`DescriptorBudget`]: file descriptors for connections and open files    |
//! | `path`         | [`LogicalPath`]: a path sent by a client, validated and normalised       |
//! | `byte_text`    | [`text_of`], [`bytes_of`]: text for bytes that need not be UTF-8         |
//! | `cgi`          | [`Cgi`]: the opaque text behind the first `?` of a path                  |
//! | `error`        | [`Error`] and [`ErrorKind`]: failed operations                           |
//! | `extent`       | [`Extent`], [`ReadPiece`], [`CopyRange`]: ranges of files                |
//! | `fair_share_queue` | [`FairShareQueue`]: a queue that serves the owners of its entries in turn |
//! | `host`         | [`written_ip`], [`is_private`]: addresses of hosts                        |
//! | `identity`     | [`Identity`]: the client at the other end of a connection                |
//! | `client_host`  | [`ClientHost`]: the key of per-host limits                               |
//! | `id_map`       | [`IdMap`]: a map by numbers that this process counts itself              |
//! | `nearest`      | [`nearest()`]: the known name that is closest to a misspelled one        |
//! | `latency`      | [`LatencyCounters`]: histograms of times                                 |
//! | `line_limit`   | [`LineLimit`]: the number of lines that clients can cause in the log     |
//! | `now`          | [`Now`]: the result of a call that must not block                        |
//! | `owner`        | [`Owner`]: the key under which work is accounted to a session            |
//! | `clock`        | [`Clock`] and [`Rng`]: time and randomness as arguments                  |
//! | `escaped_path` | [`EscapeError`]: a reversible printable form of paths                    |
//! | `shown`        | [`shown()`]: text of peers, escaped for logs and terminals               |
//! | `random`       | [`SplitMix64`]: fast random numbers that a seed reproduces               |
//! | `size`         | [`Size`]: a number of bytes in binary units                              |
//! | `stable_hash`  | [`stable_hash()`]: a hash that is the same in every build                |
//! | `supervisor`   | [`Supervisor`]: threads and tasks whose failure must end the process     |

mod address_class;
mod budget;
mod byte_text;
mod cgi;
mod client_host;
mod clock;
mod descriptors;
mod error;
mod escaped_path;
mod extent;
mod fair_share_queue;
mod host;
mod id_map;
mod identity;
mod latency;
mod line_limit;
mod nearest;
mod now;
mod owner;
mod path;
mod percent;
mod random;
mod shown;
mod size;
mod stable_hash;
mod supervisor;

pub use address_class::AddressClass;
pub use budget::{
    Account, Ceilings, Charge, GRANULE_BYTES, MemoryBudget, MemoryPurpose, SharedCharge, Shortage, Ticket,
};
pub use byte_text::{byte_of, bytes_of, text_of};
pub use cgi::Cgi;
pub use client_host::ClientHost;
pub use clock::{Clock, Rng};
pub use descriptors::{Descriptor, DescriptorBudget, SESSION_FILES_MIN};
pub use error::{Error, ErrorKind, errno_text};
pub use escaped_path::EscapeError;
pub use extent::{CopyRange, Extent, ReadPiece};
pub use fair_share_queue::FairShareQueue;
pub use host::{is_private, meant_ip, written_ip};
pub use id_map::{IdHasher, IdMap};
pub use identity::{Identity, LoginNames, NAME_BYTES_MAX};
pub use latency::{LATENCY_BOUNDS_MICROS, Latencies, LatencyCounters};
pub use line_limit::{LeftOutLines, LineLimit};
pub use nearest::nearest;
pub use now::Now;
pub use owner::Owner;
pub use path::{LogicalPath, PATH_BYTES_MAX, PathError};
pub use percent::{percent_decode, percent_encode};
pub use random::SplitMix64;
pub use shown::{Escape, Shown, shown};
pub use size::{Size, parse_size, scaled, size_parts};
pub use stable_hash::stable_hash;
pub use supervisor::{Supervisor, ThreadFailure};
