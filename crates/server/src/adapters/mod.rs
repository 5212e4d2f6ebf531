//! Implementations of the interfaces of other crates, so that those crates do not depend on the
//! system or on each other.
//!
//! | file | content |
//! |---|---|
//! | `accounts` | users and groups of the system, for [`auth::AccountDatabase`] |
//! | `clock` | the time, for [`base::Clock`] |
//! | `users` | names of users and groups, for [`logical::Users`] |
//! | `rings` | io_uring on each loop, for [`storage::ring`] |
//! | `leased_creation` | creation of files only within the lease of a manager |
//! | `hosts` | names and addresses of hosts, for [`logical::Names`] |
//! | `netgroups` | netgroups of the system, for [`auth::access::NetgroupDatabase`] |
//! | `host` | the name of this machine |

mod accounts;
mod clock;
mod host;
mod hosts;
mod leased_creation;
mod machine_clients;
mod netgroups;
mod rings;
mod users;

pub(crate) use accounts::SystemAccounts;
pub use clock::SystemClock;
pub use host::host_name;
pub(crate) use hosts::{SystemNames, addresses_of, confirmed_name};
pub(crate) use leased_creation::LeasedCreation;
pub(crate) use machine_clients::MachineClients;
pub use netgroups::SystemNetgroups;
pub(crate) use rings::install_on as install_rings;
pub(crate) use users::SystemUsers;
