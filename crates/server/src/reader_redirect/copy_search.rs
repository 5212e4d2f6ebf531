//! Searches another copy of a file as a client would.
//!
//! The search begins at the node where clients begin, and follows redirects up to the server that
//! has the file. Its result is therefore the one that a redirected client would get.

use base::LogicalPath;
use cluster::tree::Address;
use rawclient::{BlockingSession, Login, SessionError};
use std::io;
use std::net::ToSocketAddrs;
use std::time::Duration;
use wire::Decode;
use wire::xroot::flags::{StatFlags, StatOptions, StatWants};
use wire::xroot::reply::StatText;
use wire::xroot::request::{Request, Stat};

/// The mark of this server's own searches in their cgi. A search that returns to this server has
/// found no other copy.
pub(super) const MARK: &str = "scalla.mover";

/// The deadline of one reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of redirects that are followed, equal to that of clients.
const HOPS_MAX: usize = 16;

/// Maximum number of further cells below the first node in which a file is searched.
const CELLS_MAX: usize = 8;

/// Another copy of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FoundCopy {
    /// The size in bytes.
    pub(super) size: u64,
    /// The server that has it, as the redirect named it.
    pub(super) at: (String, u16),
    /// Set if a client that begins at the common node could be redirected back here, so clients
    /// must go to that server directly.
    pub(super) direct: bool,
}

/// The path of a search.
struct SearchPath {
    /// The targets of the redirects, as they were named.
    hops: Vec<(String, u16)>,
    /// The reply of the last target.
    answer: Result<Option<u64>, SessionError>,
}

/// Searches another copy of `path` for clients that begin at `door`. Returns `None` if there is
/// none, or if the search fails. `mark` is in the cgi of the request, for the server to which it
/// may return. Blocks.
///
/// The node at the door does not know of an inner node that has the file only here. If a redirect
/// leads back through such a node, the search asks the door for other nodes, like a client whose
/// request failed there.
pub(super) fn find(door: &Address, path: &LogicalPath, mark: &str) -> Option<FoundCopy> {
    let mut tried: Vec<String> = Vec::new();
    while tried.len() <= CELLS_MAX {
        let mut target = format!("{}?{MARK}={mark}", path.text());
        if !tried.is_empty() {
            target.push_str(&format!(
                "&tried={}&triedrc={}",
                tried.join(","),
                vec!["resel"; tried.len()].join(",")
            ));
        }
        let SearchPath { hops, answer } = follow(door, &target);
        match (answer, hops.as_slice()) {
            (Ok(Some(size)), [.., last]) => {
                return Some(FoundCopy { size, at: last.clone(), direct: !tried.is_empty() });
            }
            (Err(SessionError::Failed { .. }), [inner, _, ..]) => {
                tried.push(format!("{}:{}", inner.0, inner.1))
            }
            (answer, _) => {
                tracing::debug!("another copy of {}: {:?}, {:?}", path.shown(), hops, answer.err());
                return None;
            }
        }
    }
    None
}

/// Requests the status of a file and follows redirects.
fn follow(door: &Address, target: &str) -> SearchPath {
    let mut hops = Vec::new();
    let mut at = (door.host().to_owned(), door.port());
    loop {
        match size_at(&at, target) {
            Err(SessionError::Redirected { host, port: Some(port), .. }) if hops.len() < HOPS_MAX => {
                at = (bare(&host), port);
                hops.push((host, port));
            }
            answer => return SearchPath { hops, answer },
        }
    }
}

/// Returns a host without the brackets of an IPv6 address. A mapped IPv4 address is returned in
/// IPv4 form.
fn bare(host: &str) -> String {
    match base::written_ip(host) {
        Some(ip) => ip.to_string(),
        None => host.trim_start_matches('[').trim_end_matches(']').to_owned(),
    }
}

fn size_at(at: &(String, u16), target: &str) -> Result<Option<u64>, SessionError> {
    let addresses: Vec<_> = at.to_socket_addrs().map_err(SessionError::Io)?.collect();
    if addresses.is_empty() {
        return Err(SessionError::Io(io::ErrorKind::NotFound.into()));
    }
    let mut session = BlockingSession::connect(&addresses, &Login::of_process("scalla-mover"), PATIENCE)?;
    let stat = Stat {
        options: StatOptions::NONE,
        wants: StatWants::NONE,
        fhandle: Default::default(),
        path: target.as_bytes(),
    };
    let answer = session.call(&Request::Stat(stat))?;
    let stat = StatText::decode(&answer)?;
    let is_none = [StatFlags::IS_DIR, StatFlags::OTHER, StatFlags::OFFLINE, StatFlags::POSCPEND]
        .into_iter()
        .any(|flag| stat.flags.contains(flag));
    Ok((!is_none && stat.flags.contains(StatFlags::READABLE)).then_some(stat.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_redirects_are_parsed_as_by_clients() {
        for (host, expected) in [
            ("a.b", "a.b"),
            ("[::1]", "::1"),
            ("[::10.0.0.1]", "10.0.0.1"),
            ("[::ffff:10.0.0.1]", "10.0.0.1"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(bare(host), expected);
        }
    }
}
