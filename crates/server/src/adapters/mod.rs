//! What the rooms ask for and the machine answers, one small file each.
//!
//! | file | what it answers |
//! |---|---|
//! | `clock` | the time, for [`base::Clock`] |
//! | `users` | names of users and groups, for [`logical::Users`] |
//! | `admission` | may this host connect, for [`net::Listener`] |
//! | `rings` | io_uring on each loop, for [`storage::ring`] |
//! | `leased` | files that are created only within the lease of a manager |
//! | `moving` | clients of a server that is to be emptied, sent where they began |
//! | `scout` | whether somebody else has a file, asked as a client would |
//! | `redirector` | the file system of a manager, for [`vfs::FileSystem`]: sends clients to nodes |
//! | `redirects` | requests for another server, before the logical file system |
//! | `fetcher` | files pulled from other servers with our client, for [`logical::Fetcher`] |
//! | `copy_program` | the same with a program of the site |
//! | `outbound` | which hosts this server connects to because a client asked for it |
//! | `look_ups` | names of hosts looked up because a client asked for it, with limits |
//! | `handoff` | third-party copies handed to another server, before any file system |
//! | `hosts` | names and addresses of hosts, for [`logical::Names`] |
//! | `host` | what this machine is called |

mod admission;
mod clock;
mod copy_program;
mod fetcher;
mod handoff;
mod host;
mod hosts;
mod leased;
mod look_ups;
mod moving;
mod outbound;
mod redirector;
mod redirects;
mod rings;
mod scout;
mod users;

pub(crate) use admission::Doorkeeper;
pub use clock::SystemClock;
pub(crate) use copy_program::Runner;
pub(crate) use fetcher::Puller;
pub(crate) use handoff::Handoff;
pub use host::host_name;
pub(crate) use hosts::SystemNames;
pub(crate) use leased::Leased;
pub(crate) use moving::{Movable, Moving};
pub(crate) use outbound::Outbound;
pub(crate) use redirector::Redirector;
pub(crate) use redirects::Redirects;
pub(crate) use rings::install_on as install_rings;
pub(crate) use users::SystemUsers;
