//! Implementations of the interfaces of other crates, so that those crates do not depend on the
//! system or on each other.
//!
//! | file | content |
//! |---|---|
//! | `clock` | the time, for [`base::Clock`] |
//! | `users` | names of users and groups, for [`logical::Users`] |
//! | `admission` | admission of hosts, for [`net::Listener`] |
//! | `rings` | io_uring on each loop, for [`storage::ring`] |
//! | `leased_creation` | creation of files only within the lease of a manager |
//! | `reader_redirect` | redirection of readers away from a drained server |
//! | `copy_search` | search for another copy of a file, as a client would |
//! | `redirector` | the file system of a manager, for [`vfs::FileSystem`]: redirects clients |
//! | `static_redirects` | static redirects to another server, in front of the logical file system |
//! | `fetcher` | pulls from other servers with our client, for [`logical::Fetcher`] |
//! | `copy_program` | pulls with a program of the site, for [`logical::Fetcher`] |
//! | `outbound` | the policy for outgoing connections on behalf of clients |
//! | `host_lookups` | host name look-ups on behalf of clients, with limits |
//! | `handoff` | third-party copies redirected to another server, before any file system |
//! | `hosts` | names and addresses of hosts, for [`logical::Names`] |
//! | `host` | the name of this machine |

mod admission;
mod clock;
mod copy_program;
mod copy_search;
mod fetcher;
mod handoff;
mod host;
mod host_lookups;
mod hosts;
mod leased_creation;
mod outbound;
mod reader_redirect;
mod redirector;
mod rings;
mod static_redirects;
mod users;

pub(crate) use admission::Doorkeeper;
pub use clock::SystemClock;
pub(crate) use copy_program::ProgramPuller;
pub(crate) use fetcher::Puller;
pub(crate) use handoff::Handoff;
pub use host::host_name;
pub(crate) use hosts::SystemNames;
pub(crate) use leased_creation::LeasedCreation;
pub(crate) use outbound::Outbound;
pub(crate) use reader_redirect::{ReaderRedirect, ReaderRedirectFileSystem};
pub(crate) use redirector::Redirector;
pub(crate) use rings::install_on as install_rings;
pub(crate) use static_redirects::StaticRedirects;
pub(crate) use users::SystemUsers;
