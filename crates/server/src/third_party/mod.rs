//! Third-party copies: this server pulls files from other servers on behalf of clients.
//!
//! | file | content |
//! |---|---|
//! | `fetcher` | pulls with our own client, for [`logical::Fetcher`] |
//! | `copy_program` | pulls with a program of the site (`ofs.tpc pgm`), for [`logical::Fetcher`] |
//! | `program_environment` | authorities and delegated credentials of that program |
//! | `http_servers` | remote servers of copies over HTTP, for [`http::RemoteServers`] |
//! | `outbound` | the policy for outgoing connections on behalf of clients |
//! | `copy_records` | records about copies that have ended, for collectors |
//! | `handoff` | third-party copies redirected to another server, before any file system |

mod copy_program;
mod copy_records;
mod fetcher;
mod handoff;
mod http_servers;
mod outbound;
mod program_environment;

pub(crate) use copy_program::ProgramPuller;
pub(crate) use copy_records::CopyRecords;
pub(crate) use fetcher::Puller;
pub(crate) use handoff::Handoff;
pub(crate) use http_servers::copies as http_copies;
pub(crate) use outbound::{ClientOutbound, Outbound};
pub(crate) use program_environment::ProgramEnvironment;

use crate::detailed_monitoring::DetailedMonitors;
use crate::{assembly, tls};
use config::Effective;
use std::sync::Arc;

/// Returns what third-party copies need, if a directive allows them.
pub(crate) fn parts(effective: &Effective, monitors: &DetailedMonitors) -> Option<logical::ThirdPartyParts> {
    let copies = effective.logical.third_party.value.as_ref()?;
    let outbound = Outbound::new(effective.logical.copy_sources.value.clone(), &effective.host);
    let observer = monitors.copies.clone().map(|records| records as Arc<dyn logical::CopyObserver>);
    Some(assembly::third_party(copies, effective, outbound, tls::trusted_servers(effective), observer))
}
