//! Configuration to rooms wired together; drain, reload, shutdown.
//!
//! | file | what it holds |
//! |---|---|
//! | `daemon` | [`run`]: a server as a process, from the command line to its exit status |
//! | `stand_in` | [`stand_in`]: what stays of a `cmsd` beside our server |
//! | `running` | [`Running`]: the rooms wired together and the port open; for in-process tests too |
//! | `assembly` | from configured values to what each room is told |
//! | [`cluster`] | the node of a cluster that this process is |
//! | `control` | signals and the admin socket, drain and reload |
//! | `reload` | what can change while serving, and what needs a restart |
//! | `admin` | the admin socket and its client |
//! | `log` | lines for people and programs, off the data path |
//! | `process` | user, folders, pid file, descriptors, detaching |
//! | `adapters` | what the rooms ask for and the machine answers |
//! | `error` | [`StartError`]: why a server does not start |

mod adapters;
pub mod admin;
mod assembly;
pub mod cluster;
mod control;
mod daemon;
mod error;
pub mod log;
pub mod process;
mod reload;
mod running;
mod stand_in;

pub use adapters::{SystemClock, host_name};
pub use daemon::{Launch, LogTarget, run};
pub use error::StartError;
pub use process::default_admin_folder;
pub use running::{Refused, Running};
pub use stand_in::{APPEARANCE, stand_in};

/// The version, as `-v` prints it and `query config version` answers.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
