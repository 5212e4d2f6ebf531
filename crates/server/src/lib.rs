//! The server process: builds the other crates' objects from the configuration and connects them;
//! drain, reload, shutdown.
//!
//! It alone depends on all crates of a server, so that these reach each other through traits.
//!
//! | file | content |
//! |---|---|
//! | `daemon` | [`run`]: a server as a process, from the command line to its exit status |
//! | `stand_in` | [`stand_in`]: the stand-in for a `cmsd` process beside a server |
//! | `running` | [`RunningServer`]: the connected objects, open port; also for tests |
//! | `assembly` | from the effective configuration to the configuration of each crate |
//! | [`cluster`] | the cluster node in this process |
//! | `control` | signals and the admin socket, drain and reload |
//! | `reload` | the directives that a reload applies, and those that need a restart |
//! | `admin` | the admin socket and its client |
//! | `log` | log lines as text or JSON, written off the data path |
//! | `process` | user, directories, pid file, descriptors, detaching |
//! | `proxied_files` | the files of a proxy, from its directives |
//! | `exports` | the exports as text |
//! | `redirector` | the file system of a manager: it redirects clients to nodes |
//! | `reader_redirect` | redirection of readers away from a drained or suspended server |
//! | `static_redirects` | redirects to another server by configuration |
//! | `reading_clients` | clients whose credentials only let them read |
//! | `third_party` | third-party copies: pulls from other servers |
//! | `detailed_monitoring` | records about clients, files and redirects, for collectors |
//! | `transfer_monitor` | records about transfers and purges, for collectors |
//! | `purging` | purges, and their start beside staging |
//! | `frm_admin` | the commands of XRootD's program for files with copies in mass storage |
//! | `frm_daemon` | transfers and purges as processes of their own |
//! | `notification` | events about files, for a program of the site |
//! | `line_feed` | lines for programs and named pipes that may be slow or missing |
//! | `copy_programs` | the programs that copy files from mass storage and to it |
//! | `residency` | staging of files that are not on disk: the queue and its programs |
//! | `login` | authentication of clients, refresh of keytabs |
//! | `http_certificates` | certificates of clients of HTTPS |
//! | `http_service` | HTTP: its configuration, logins of its clients |
//! | `port_acceptor` | accepts connections until the port is closed |
//! | `ports` | the ports of a server |
//! | `named_protocol` | identities that a file of rules and a program complete |
//! | `credential_check` | the files of keys and certificates, for `scalla config check` |
//! | `expiry` | warnings before certificates expire |
//! | `tls` | the certificate of the server, its renewal and expiry |
//! | `admission` | admission of hosts by address and name |
//! | `host_lookups` | host name look-ups on behalf of clients, with limits |
//! | `authorization` | the token issuers and authorization rules in force, and their renewal |
//! | `crl_downloads` | revocation lists of grid authorities, downloaded over HTTP |
//! | `issuer_keys` | keys of token issuers, fetched over HTTPS |
//! | `adapters` | small implementations of traits of the other crates |
//! | `summary` | summary reports: `query stats`, and reports to collectors |
//! | `stderr` | messages on the standard error before and beside the log |
//! | `error` | [`StartError`]: the errors that prevent a start |

mod adapters;
pub mod admin;
mod admission;
mod assembly;
mod authorization;
mod background_downloads;
pub mod cluster;
mod control;
mod copy_programs;
mod credential_check;
mod crl_downloads;
mod daemon;
mod detailed_monitoring;
mod entity_program;
mod error;
mod expiry;
mod exported_files;
mod exports;
mod frm_admin;
mod frm_daemon;
mod grid_login;
mod host_lookups;
mod http_certificates;
mod http_service;
mod issuer_keys;
mod kerberos_login;
mod line_feed;
pub mod log;
mod login;
mod multi_user;
mod name_space_events;
mod named_protocol;
mod notification;
mod password_login;
mod port_acceptor;
mod ports;
pub mod process;
mod proxied_files;
mod purging;
mod reader_redirect;
mod reading_clients;
mod redirector;
mod reload;
mod reload_reads;
mod residency;
mod running;
mod stand_in;
mod static_redirects;
mod stderr;
mod summary;
mod third_party;
mod tls;
mod transfer_monitor;

pub use adapters::{SystemClock, SystemNetgroups, host_name};
pub use authorization::{authdb_source, macaroon_settings};
pub use credential_check::check_credentials;
pub use daemon::{Launch, LogTarget, run};
pub use error::StartError;
pub use frm_admin::{FrmAdmin, FrmConsole};
pub use frm_daemon::{
    AgentOutput, FrmDaemon, PurgeFree, PurgeOptions, PurgeOrder, TransferAgent, frm_daemon,
};
pub use grid_login::{grid_identity, only_reads};
pub use issuer_keys::download_keys;
pub use login::token_login;
pub use named_protocol::{NamedEntity, named_entity};
pub use process::{User, UserError, apply_environment, default_admin_directory, environment_of_server};
pub use running::{RefusedCounts, RunningServer};
pub use stand_in::{APPEARANCE, stand_in};
pub use tls::trusted_servers;

/// The version, as `-v` and `query config version` report it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
