//! The disk cache of remote files, without I/O.
//!
//! | file | contents |
//! |---|---|
//! | `cinfo` | [`Cinfo`]: the file beside each cached file, with its blocks and accesses |
//! | `block_map` | [`BlockMap`]: the blocks of a file that are in the cache |

mod block_map;
mod cinfo;

pub use block_map::BlockMap;
pub use cinfo::{CINFO_BYTES_MAX, CacheAccess, CacheChecks, Cinfo, CinfoError, CinfoVersion};
