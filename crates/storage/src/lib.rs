//! Physical bytes: where logical names lie on file systems, and reading, writing and describing what lies there.
//!
//! | file | what it holds |
//! |---|---|
//! | `backend` | [`Backend`] and [`StoredFile`]: what every kind of storage does |
//! | `look_limit` | [`LookLimit`]: names that wait to be looked up at one file system |
//! | `pool` | [`Pool`]: threads for work that may wait, bounded for each file system |
//! | `fair_queue` | a queue that serves the owners of its entries in turn |
//! | `work` | [`Work`]: long work, which a pool does in bounded steps |
//! | `together` | small reads that wait, several for one thread |
//! | `ring` | reads that would wait, by the loop's own io_uring |
//! | `names` | [`Names`]: users and groups by number |
//! | `faulty` | [`Faulty`]: storage that goes wrong as a test tells it |
//! | `posix` | [`Posix`]: files on POSIX file systems |
//! | `private` | [`PrivateDirectory`]: directories of the server's own state, whose owner and mode are proven |
//! | `refusal` | what the kernel refuses, told once |

#![allow(unsafe_code)]

mod backend;
mod fair_queue;
pub mod faulty;
mod look_limit;
mod names;
mod pool;
pub mod posix;
mod private;
mod refusal;
pub mod ring;
mod together;
mod work;

pub use backend::{
    Backend, CreateHow, DirectoryStream, Elsewhere, FileIdentity, FileSystemUsage, Metadata, Now, OpenHow,
    RawEntry, ReadPiece, StoredFile, Usage,
};
pub use faulty::Faulty;
pub use look_limit::{LOOK_BYTES_MAX, LOOKS_MAX, LookLimit, LookPermit};
pub use names::{NAMES_BELIEVED, NAMES_MAX, Names};
pub use pool::{Job, Pool, QUEUED_JOBS_MAX, QUEUED_JOBS_PER_OWNER_MAX};
pub use posix::Posix;
pub use private::{PrivateDirectory, SharedDirectory, Untrusted};
pub use together::READS_TOGETHER_MAX;
pub use work::{Progress, STEP_BYTES_MAX, STEP_ITEMS_MAX, Work, WorkEnd};

/// Reads that would wait and begin on this thread from now on go to the kernel, or to their pools, together, with [`release`].
pub fn hold() {
    ring::hold();
    together::hold();
}

/// Begins the reads that were held back since [`hold`].
pub fn release() {
    ring::release();
    together::release();
}
