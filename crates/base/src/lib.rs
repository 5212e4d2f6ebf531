//! What all rooms share, and nothing that only one of them needs.
//!
//! | file | what it holds |
//! |---|---|
//! | `budget` | [`MemoryBudget`], [`Account`], [`Charge`]: memory for requests in flight |
//! | `descriptors` | [`DescriptorBudget`]: file descriptors for connections and open files |
//! | `path` | [`LogicalPath`]: a path as a client names it, made safe once at the edge |
//! | `cgi` | [`Cgi`]: the opaque text behind the first `?` of a path |
//! | `error` | [`Error`] and [`ErrorKind`]: what went wrong, and what a caller may act on |
//! | `host` | [`written_ip`]: addresses as hosts are written with them |
//! | `identity` | [`Identity`]: who is at the other end of a connection |
//! | `client_host` | [`ClientHost`]: the key under which limits count what one host asks for |
//! | `nearest` | [`nearest()`]: the known name that a misspelled one is closest to |
//! | `owner` | [`Owner`]: the key under which work is accounted to a session |
//! | `clock` | [`Clock`] and [`Rng`]: time and randomness as arguments, so machines stay pure |
//! | `escaped_path` | [`EscapeError`]: paths as printable text that is read back |
//! | `shown` | [`shown`]: text of others, escaped for logs and terminals |
//! | `random` | [`SplitMix64`]: fast random numbers that can be replayed |
//! | `supervisor` | [`Supervisor`]: threads and tasks without which a process must not go on |
//!
//! No I/O, no wire format, no policy.

mod budget;
mod cgi;
mod client_host;
mod clock;
mod descriptors;
mod error;
mod escaped_path;
mod host;
mod identity;
mod nearest;
mod owner;
mod path;
mod random;
mod shown;
mod supervisor;

pub use budget::{Account, Ceilings, Charge, GRANULE_BYTES, MemoryBudget, Purpose, Shortage, Ticket};
pub use cgi::Cgi;
pub use client_host::ClientHost;
pub use clock::{Clock, Rng};
pub use descriptors::{Descriptor, DescriptorBudget, SESSION_FILES_MIN};
pub use error::{Error, ErrorKind, errno_text};
pub use escaped_path::EscapeError;
pub use host::{meant_ip, written_ip};
pub use identity::{Identity, NAME_BYTES_MAX, Told};
pub use nearest::nearest;
pub use owner::Owner;
pub use path::{LogicalPath, PATH_BYTES_MAX, PathError};
pub use random::SplitMix64;
pub use shown::{Escape, Shown, shown};
pub use supervisor::{Fault, Supervisor};
