//! What a server is as a process: who it runs as, where it detaches to, the folders and files that name it.
//!
//! | file | what it holds |
//! |---|---|
//! | `detach` | into the background: the parent waits until the port is open |
//! | `user` | from root to the user of the service |
//! | `folders` | the admin folder and the lock of its one server; the home folder |
//! | `files` | pid file and environment file |
//! | `environment` | `setenv` of the configuration |
//! | `limits` | descriptors |
//! | `memory` | how much memory there is |
//! | `port_owner` | who has the port that we wanted |

mod detach;
mod environment;
mod files;
mod folders;
mod limits;
mod memory;
mod port_owner;
mod user;

pub use detach::{Detached, Outcome, detach, keep_name};
pub use environment::apply_environment;
pub use files::{EnvironmentFile, PidFile};
pub use folders::{
    AdminFolder, FolderError, control_folder, default_admin_folder, enter_home, folder_of_lock, open_admin,
    state_folder, states,
};
pub use limits::{descriptors, raise_descriptors};
pub use memory::memory_bytes;
pub use port_owner::{PortOwner, port_owner};
pub use user::{User, UserError};
