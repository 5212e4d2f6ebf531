//! The operating system process of a server: its user, directories, files, limits, and detaching
//! (decision 018).
//!
//! It is separate from the other modules, because the stand-in for `cmsd` uses it too.
//!
//! | file | content |
//! |---|---|
//! | `detach` | detaching into the background: the parent waits until the port is open |
//! | `user` | the switch from root to the user of the service |
//! | `inherited` | descriptors that the start has left open |
//! | `privileges` | what a server keeps of the privileges of its start |
//! | `directories` | the admin directory and the lock of its one server; the home directory |
//! | `files` | pid file and environment file |
//! | `environment` | `setenv` of the configuration |
//! | `limits` | the limit of descriptors |
//! | `memory` | the size of the memory |
//! | `port_owner` | the process that occupies a port |
//! | `port_wait` | ports that another process is about to give up |

mod detach;
mod directories;
mod environment;
mod files;
mod inherited;
mod limits;
mod memory;
mod port_owner;
mod port_wait;
mod privileges;
mod user;

pub use detach::{DetachOutcome, Detached, detach, keep_name};
pub use directories::{
    AdminDirectory, DirectoryError, control_directory, default_admin_directory, directory_of_lock,
    enter_home, open_admin, state_directory, states,
};
pub use environment::{apply_environment, environment_of_server};
pub use files::{EnvironmentFile, PidFile};
pub use inherited::close_inherited;
pub use limits::{descriptors, raise_descriptors};
pub use memory::memory_bytes;
pub use port_owner::{PortOwner, port_owner};
pub(crate) use port_wait::open_when_free;
pub use privileges::{PrivilegeState, RetainedPrivileges, give_up_privileges};
pub use user::{User, UserError};
