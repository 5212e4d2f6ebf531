//! Asks, as a client would, whether somebody else has a file: from the node where clients begin, along its redirects, to the
//! server that says so itself. What the asker finds is what a client finds that is sent the same way.

use super::moving::MARK;
use base::LogicalPath;
use client::xroot::flags::{StatFlags, StatOptions, StatWants};
use client::xroot::reply::StatText;
use client::xroot::request::{Request, Stat};
use client::{Login, Session, SessionError};
use cluster::tree::Address;
use std::io;
use std::net::ToSocketAddrs;
use std::time::Duration;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Redirects that are followed, as many as clients follow.
const HOPS_MAX: usize = 16;

/// Cells below the one clients begin at in which a file is sought, beside the first.
const CELLS_MAX: usize = 8;

/// Another copy of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// Its size in bytes.
    pub(super) size: u64,
    /// The server that has it, as a redirect named it.
    pub(super) at: (String, u16),
    /// Whoever begins where all do may be led back: clients are to go to that server itself.
    pub(super) direct: bool,
}

/// Whom a question led to.
struct Way {
    /// The redirects, as they named their targets.
    hops: Vec<(String, u16)>,
    /// What the last of them said.
    answer: Result<Option<u64>, SessionError>,
}

/// Another copy of `path` for clients who begin at `door`; `None` if there is none, or if that cannot be found out. `mark` is
/// in the cgi of the question, for the server it may come back to. Blocks.
///
/// The node at the door does not know of an inner node that has the file only here. Where it leads back through one, it is
/// asked for others, as a client would ask who had failed there.
pub(super) fn find(door: &Address, path: &LogicalPath, mark: &str) -> Option<Found> {
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
        let Way { hops, answer } = follow(door, &target);
        match (answer, hops.as_slice()) {
            (Ok(Some(size)), [.., last]) => {
                return Some(Found { size, at: last.clone(), direct: !tried.is_empty() });
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

/// Asks for the status of a file and goes where it is led.
fn follow(door: &Address, target: &str) -> Way {
    let mut hops = Vec::new();
    let mut at = (door.host().to_owned(), door.port());
    loop {
        match size_at(&at, target) {
            Err(SessionError::Redirected { host, port: Some(port), .. }) if hops.len() < HOPS_MAX => {
                at = (bare(&host), port);
                hops.push((host, port));
            }
            answer => return Way { hops, answer },
        }
    }
}

/// A host without the brackets of an address of version 6; one of version 4 in its form is that.
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
    let mut session = Session::connect(&addresses, &Login::of_process("scalla-mover"), PATIENCE)?;
    let stat = Stat {
        options: StatOptions::NONE,
        wants: StatWants::NONE,
        fhandle: Default::default(),
        path: target.as_bytes(),
    };
    let answer = session.call(&Request::Stat(stat))?;
    let stat = StatText::parse(&answer)?;
    let is_none = [StatFlags::IS_DIR, StatFlags::OTHER, StatFlags::OFFLINE, StatFlags::POSCPEND]
        .into_iter()
        .any(|flag| stat.flags.contains(flag));
    Ok((!is_none && stat.flags.contains(StatFlags::READABLE)).then_some(stat.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_redirects_are_taken_as_clients_take_them() {
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
