//! Queries to the client port of nodes: role, version and children of an XRootD node, and the open
//! files of any server.

use client::xroot::FileHandle;
use client::xroot::codes::QueryType;
use client::xroot::flags::LocateOptions;
use client::xroot::request::{Locate, Query, Request};
use rawclient::{BlockingSession, Login};
use server::cluster::{Activity, AskClientPort, DoorStatus};
use std::io;
use std::net::ToSocketAddrs;
use std::time::Duration;

/// Timeout of one reply. A manager without servers makes clients wait.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Queries nodes at their client port.
pub(super) struct ClientPort;

impl AskClientPort for ClientPort {
    fn status(&self, address: &str) -> io::Result<DoorStatus> {
        let mut session = connect(address)?;
        let text = query(&mut session, QueryType::CONFIG, b"role version")?;
        let mut lines = text.lines();
        let (role, version) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let everybody = Locate { options: LocateOptions::FORCE, path: b"*" };
        let children = session.call(&Request::Locate(everybody)).map_err(io::Error::other)?;
        Ok(DoorStatus { role: role.to_owned(), version: version.to_owned(), children })
    }

    fn activity(&self, address: &str) -> io::Result<Activity> {
        activity(address)
    }
}

/// Counts the open files and clients of the server at `host:port`.
///
/// # Errors
/// When it does not reply in time, or its statistics lack these figures.
pub(super) fn activity(address: &str) -> io::Result<Activity> {
    let mut session = connect(address)?;
    // Requests all parts because servers group them differently.
    let text = query(&mut session, QueryType::STATS, b"a")?;
    figures(&text).ok_or_else(|| io::Error::other("its statistics do not count open files"))
}

fn figures(statistics: &str) -> Option<Activity> {
    let part = |id: &str| statistics.split_once(&format!("<stats id=\"{id}\""))?.1.split_once("</stats>");
    let figure = |id: &str, name: &str| -> Option<u64> {
        let (part, _) = part(id)?;
        part.split_once(&format!("<{name}>"))?.1.split_once('<')?.0.parse().ok()
    };
    let open_for_writing = figure("ofs", "opw")?;
    let open_files = figure("ofs", "opr")?.saturating_add(open_for_writing);
    // The connection of this query is not counted.
    Some(Activity { open_files, open_for_writing, clients: figure("link", "num")?.saturating_sub(1) })
}

fn connect(address: &str) -> io::Result<BlockingSession> {
    let addresses: Vec<_> = address.to_socket_addrs()?.collect();
    BlockingSession::connect(&addresses, &Login::of_process("scalla"), REPLY_TIMEOUT)
        .map_err(io::Error::other)
}

fn query(session: &mut BlockingSession, infotype: QueryType, args: &[u8]) -> io::Result<String> {
    let query = Query { infotype, fhandle: FileHandle::default(), args };
    let text = session.call(&Request::Query(query)).map_err(io::Error::other)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_and_clients_are_read_from_statistics() {
        let text = "<statistics ver=\"v5\"><stats id=\"link\"><num>3</num><maxn>9</maxn></stats><stats id=\"xrootd\"><num>7</num>\
                    </stats><stats id=\"ofs\"><role>server</role><opr>4</opr><opw>1</opw><opp>1</opp></stats></statistics>";
        assert_eq!(figures(text), Some(Activity { open_files: 5, open_for_writing: 1, clients: 2 }));
        assert_eq!(figures("<statistics><stats id=\"link\"><num>3</num></stats></statistics>"), None);
    }
}
