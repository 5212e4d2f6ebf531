//! What a node of XRootD with children says to clients: its role, its version, and who is below it.

use client::xroot::FileHandle;
use client::xroot::codes::QueryType;
use client::xroot::flags::LocateOptions;
use client::xroot::request::{Locate, Query, Request};
use client::{Login, Session};
use server::cluster::DoorStatus;
use std::io;
use std::net::ToSocketAddrs;
use std::time::Duration;

/// How long one answer may take. A manager that knows nobody yet lets clients wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the node at `host:port`.
///
/// # Errors
/// When it does not answer in time, or not as a redirector does.
pub(super) fn ask(address: &str) -> io::Result<DoorStatus> {
    let addresses: Vec<_> = address.to_socket_addrs()?.collect();
    let mut session =
        Session::connect(&addresses, &Login::of_process("scalla"), PATIENCE).map_err(io::Error::other)?;
    let query = Query { infotype: QueryType::CONFIG, fhandle: FileHandle::default(), args: b"role version" };
    let text = session.call(&Request::Query(query)).map_err(io::Error::other)?;
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    let (role, version) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let everybody = Locate { options: LocateOptions::FORCE, path: b"*" };
    let children = session.call(&Request::Locate(everybody)).map_err(io::Error::other)?;
    Ok(DoorStatus { role: role.to_owned(), version: version.to_owned(), children })
}
