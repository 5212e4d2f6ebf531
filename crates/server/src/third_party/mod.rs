//! Third-party copies: this server pulls files from other servers on behalf of clients.
//!
//! | file | content |
//! |---|---|
//! | `fetcher` | pulls with our own client, for [`logical::Fetcher`] |
//! | `copy_program` | pulls with a program of the site (`ofs.tpc pgm`), for [`logical::Fetcher`] |
//! | `program_environment` | authorities and delegated credentials of that program |
//! | `http_servers` | remote servers of copies over HTTP, for [`http::RemoteServers`] |
//! | `outbound` | the policy for outgoing connections on behalf of clients |
//! | `handoff` | third-party copies redirected to another server, before any file system |

mod copy_program;
mod fetcher;
mod handoff;
mod http_servers;
mod outbound;
mod program_environment;

pub(crate) use copy_program::ProgramPuller;
pub(crate) use fetcher::Puller;
pub(crate) use handoff::Handoff;
pub(crate) use http_servers::copies as http_copies;
pub(crate) use outbound::{ClientOutbound, Outbound};
pub(crate) use program_environment::ProgramEnvironment;

use crate::{assembly, tls};
use config::Effective;

/// Returns what third-party copies need, if a directive allows them.
pub(crate) fn parts(effective: &Effective) -> Option<logical::ThirdPartyParts> {
    let copies = effective.logical.third_party.value.as_ref()?;
    let outbound = Outbound::new(effective.logical.copy_sources.value.clone(), &effective.host);
    Some(assembly::third_party(copies, effective, outbound, tls::trusted_servers(effective)))
}
