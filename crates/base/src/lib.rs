//! What all rooms share, and nothing that only one of them needs.
//!
//! | file | what it holds |
//! |---|---|
//! | `path` | [`LogicalPath`]: a path as a client names it, made safe once at the edge |
//! | `cgi` | [`Cgi`]: the opaque text behind the first `?` of a path |
//! | `error` | [`Error`] and [`ErrorKind`]: what went wrong, and what a caller may act on |
//! | `host` | [`written_ip`]: addresses as hosts are written with them |
//! | `identity` | [`Identity`]: who is at the other end of a connection |
//! | `clock` | [`Clock`] and [`Rng`]: time and randomness as arguments, so machines stay pure |
//! | `random` | [`SplitMix64`]: fast random numbers that can be replayed |
//!
//! No I/O, no wire format, no policy.

mod cgi;
mod clock;
mod error;
mod host;
mod identity;
mod path;
mod random;

pub use cgi::Cgi;
pub use clock::{Clock, Rng};
pub use error::{Error, ErrorKind, errno_text};
pub use host::{meant_ip, written_ip};
pub use identity::{Identity, NAME_BYTES_MAX, Told};
pub use path::{LogicalPath, PATH_BYTES_MAX, PathError};
pub use random::SplitMix64;
