//! The storage backend for POSIX file systems: a local root, its links and the tree below it.
//!
//! Two properties determine its structure. No path may leave the root and the configured
//! directories, and no thread of one file system may block on another one.
//!
//! | file | content |
//! |---|---|
//! | `backend` | the backend: each operation on names |
//! | `calls` | system calls that several files make in the same way |
//! | `bases` | the directories that paths and links may lead into |
//! | `transfer` | files that are copied from and to mass storage |
//! | `tree` | confinement: resolves paths to descriptors in one system call |
//! | `walk` | fallback of `tree` name by name, for links and kernels that need it |
//! | `incoming` | temporary files for files that come from elsewhere |
//! | `held_file` | files that are held open |
//! | `unused_file` | files that no process has open, for their removal |
//! | `local_file_system` | recognises file systems that only this machine uses |
//! | `opening` | opens of files that are removed meanwhile |
//! | `link` | the file system that a path leads to, without access to the target |
//! | `volume` | file systems: what each can do without waiting, and its pool |
//! | `file` | an open file |
//! | `append` | a read that appends to a buffer without zeroing it |
//! | `resident` | asks the kernel whether a range of a file is in memory |
//! | `clone` | copies ranges between files |
//! | `directory` | reads directories |
//! | `translated_directory` | reads directories whose entries have other names by name rules |
//! | `attribute` | extended attributes |
//! | `stable` | file identities, and syncs of names |
//! | `space` | spaces: data of new files on several partitions |
//! | `partition` | one partition and its free space |
//! | `accounts` | the bytes that files in spaces use, and quotas |
//! | `usage_log` | the file in which they are kept |
//! | `administration` | links, data files, lock files and usage for tools of the administrator |
//! | `relocation` | moves the data of a file to another space |

mod accounts;
mod administration;
mod append;
mod attribute;
mod backend;
mod bases;
mod calls;
mod clone;
mod directory;
mod file;
mod file_systems;
mod held_file;
mod incoming;
mod incoming_data;
mod link;
mod local_file_system;
mod opening;
mod partition;
mod relocation;
mod resident;
mod space;
mod stable;
mod transfer;
mod translated_directory;
mod tree;
mod unused_file;
mod usage_log;
mod volume;
mod walk;

pub use administration::SpaceDataFile;
pub use backend::{Config, Posix};
pub use partition::{FIGURES_WAIT, PARTITION_BYTES_MAX};
pub use space::{NAME_ATTRIBUTE, SPACE_DEFAULT, SpaceConfig};
pub use tree::DisabledFeatures;
pub use unused_file::is_open_only_here;
pub use usage_log::SpaceEntry;
pub use volume::{POOL_THREADS_MAX, VOLUMES_MAX, WRITE_COOL_DOWN, WRITE_SLOW};
