//! The tree as a visitor sees it: from one node up to a root and down to all that have children. Blocks; for programs that
//! people start, not for servers.
//!
//! Our own nodes say at their cluster port how they are (`stats`); of real ones the list of their children is what can be
//! had (`locate *`).

use super::status::{ChildStatus, NodeStatus};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use wire::cms::flags::{LocateOptions, StatsModifier};
use wire::cms::message::Locate;
use wire::cms::response::{Answer, locate_text};
use wire::cms::{Extensions, Login, LoginAnswer, Message, Phase, Splitter, StreamId, ToRedirector};
use wire::xroot::reply::locate::NodeKind;

/// How long one node may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nodes that are asked at most: all that can have children.
const NODES_MAX: usize = 64 + 64 * 64;
/// Levels that are walked up or down at most.
const LEVELS_MAX: usize = 6;

/// A tree, and what of it could not be seen.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Survey {
    /// The root, or the highest node that answers.
    pub root: NodeStatus,
    /// Nodes that did not answer, with the reason.
    pub missing: Vec<String>,
}

/// The tree that `start` is a node of.
#[must_use]
pub fn survey(start: NodeStatus) -> Survey {
    let mut missing = Vec::new();
    let mut root = start;
    for _ in 0..LEVELS_MAX {
        let mut above = None;
        for parent in &root.parents {
            match ask(parent) {
                Ok(status) => {
                    above = Some(status);
                    break;
                }
                Err(error) => missing.push(format!("{parent}: {error}")),
            }
        }
        match above {
            Some(status) => root = status,
            None => break,
        }
    }
    let mut seen = HashSet::from([root.id.clone()]);
    descend(&mut root, LEVELS_MAX, &mut seen, &mut missing);
    Survey { root, missing }
}

/// Asks the children that have children.
fn descend(node: &mut NodeStatus, levels: usize, seen: &mut HashSet<String>, missing: &mut Vec<String>) {
    if levels == 0 {
        return;
    }
    for child in &mut node.children {
        let Some(address) = child.cluster_address.clone() else { continue };
        if child.state == "away" || seen.len() >= NODES_MAX || !seen.insert(child.id.clone()) {
            continue;
        }
        match ask(&address) {
            Ok(mut status) => {
                descend(&mut status, levels - 1, seen, missing);
                child.node = Some(Box::new(status));
            }
            Err(error) => missing.push(format!("{address}: {error}")),
        }
    }
}

/// Asks the node whose cluster port is at `address` (`host:port`).
///
/// # Errors
/// When it does not answer, or not as a node does.
pub fn ask(address: &str) -> io::Result<NodeStatus> {
    let mut visit = Visit::begin(address)?;
    let mut status = visit.login()?;
    if let Some(text) = visit.request(&Message::Stats(StatsModifier::NONE))?
        && let Ok(status) = serde_json::from_slice(&text)
    {
        return Ok(status);
    }
    // A real daemon.
    let everything = Message::Locate(Locate {
        ident: b"scalla",
        options: LocateOptions::NONE,
        path: b"*",
        opaque: None,
        avoid: None,
    });
    status.children = children(&visit.request(&everything)?.unwrap_or_default());
    status.cluster_address = Some(address.to_owned());
    Ok(status)
}

fn children(text: &[u8]) -> Vec<ChildStatus> {
    let places = locate_text::parse(text).enumerate();
    let places = places.map(|(number, place)| {
        let inner = matches!(place.node, NodeKind::Manager | NodeKind::ManagerPending);
        let serves = matches!(place.node, NodeKind::Manager | NodeKind::Server);
        ChildStatus {
            slot: u8::try_from(number).unwrap_or(u8::MAX),
            role: if inner { "supervisor" } else { "server" }.to_owned(),
            version: "cms 3".to_owned(),
            address: String::from_utf8_lossy(place.address).into_owned(),
            state: if serves { "serving" } else { "not serving" }.to_owned(),
            ..ChildStatus::default()
        }
    });
    places.collect()
}

/// A connection as a redirector's.
struct Visit {
    stream: TcpStream,
    splitter: Splitter,
    last: u32,
}

impl Visit {
    fn begin(address: &str) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name leads to no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(Self { stream, splitter: Splitter::new(Phase::Login), last: 0 });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Logs in; what the reply says of the node.
    fn login(&mut self) -> io::Result<NodeStatus> {
        let host = crate::host_name();
        let env = format!("myHN={host}");
        let login = Message::Login(Login::redirector(std::process::id(), env.as_bytes()));
        self.send(&login, StreamId::NONE)?;
        let status =
            self.next(|header, payload| match LoginAnswer::decode(header, payload).map_err(strange)? {
                LoginAnswer::Accepted(reply) => Ok(Some(NodeStatus {
                    role: "manager".to_owned(),
                    id: String::from_utf8_lossy(reply.sid.unwrap_or_default())
                        .trim_end_matches('\0')
                        .to_owned(),
                    version: "cms 3".to_owned(),
                    state: if reply.is_suspended() { "suspended" } else { "serving" }.to_owned(),
                    ..NodeStatus::default()
                })),
                LoginAnswer::Refused { text, .. } => Err(refused(text)),
                LoginAnswer::Xauth(_) => Err(refused(b"it wants its visitors to authenticate")),
                LoginAnswer::Try(_) | LoginAnswer::Other(_) => Ok(None),
            })?;
        self.splitter.enter(Phase::Redirector);
        Ok(status)
    }

    /// Asks; the text of the answer, or `None` when the node will not say.
    fn request(&mut self, message: &Message<'_>) -> io::Result<Option<Vec<u8>>> {
        self.last += 1;
        let streamid = StreamId(self.last.to_be_bytes());
        self.send(message, streamid)?;
        self.next(|header, payload| {
            let ToRedirector::Response(response) = ToRedirector::decode(header, payload).map_err(strange)?
            else {
                return Ok(None);
            };
            if header.streamid != streamid {
                return Ok(None);
            }
            Ok(Some(match response.answer {
                Answer::Data { text: Some(text), .. } => Some(text.to_vec()),
                _ => None,
            }))
        })
    }

    fn send(&mut self, message: &Message<'_>, streamid: StreamId) -> io::Result<()> {
        let mut bytes = Vec::new();
        message.encode(streamid, Extensions::NONE, &mut bytes).map_err(io::Error::other)?;
        self.stream.write_all(&bytes)
    }

    /// Reads frames until `take` finds what it looks for.
    fn next<T>(
        &mut self,
        take: impl Fn(&wire::cms::Header, &[u8]) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            while let Some(frame) = self.splitter.next_frame().map_err(strange)? {
                if let Some(found) = take(&frame.header, frame.payload)? {
                    return Ok(found);
                }
            }
            let count = self.stream.read(&mut buffer)?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            self.splitter.push(buffer.get(..count).unwrap_or_default());
        }
    }
}

fn strange(error: wire::WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("what it says makes no sense: {error}"))
}

fn refused(text: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(text);
    io::Error::new(io::ErrorKind::PermissionDenied, text.trim_end_matches('\0').to_owned())
}
