//! Survey of the whole tree, from one node up to a root and down to all nodes that have children.
//!
//! It blocks: it is for programs that people start, not for servers.
//!
//! Nodes of this program report their state at their cluster port (`stats`). XRootD nodes report
//! only the list of their children there (`locate *`). Below XRootD nodes only the client port is
//! known. It is asked for the same list through a client that the caller provides.
//!
//! Nodes of a cluster with a key (`scalla.clusterkey`) ask for credentials. Those are made with the
//! `sss` key table of the caller's environment.

use super::cluster_key::credentials;
use super::node_state::NodeState;
use super::status::{Activity, ChildStatus, NodeStatus};
use auth::sss::{SssClient, SssClientSettings};
use auth::{ClientContext, SystemRng};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use wire::cms::flags::{ClientNetwork, LocateOptions, StatsModifier};
use wire::cms::message::Locate;
use wire::cms::response::{ResponseAnswer, locate_text};
use wire::cms::{
    Extensions, FramePhase, FrameSplitter, LoginAnswer, Message, NodeLogin, StreamId, ToRedirector,
};
use wire::xroot::reply::locate::NodeKind;

/// Timeout for one node.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of nodes that are queried: all that can have children.
const NODES_MAX: usize = 64 + 64 * 64;
/// The version shown for an XRootD node that was not queried at its client port.
const REAL: &str = "cms 3";
/// Maximum number of levels walked up or down.
const LEVELS_MAX: usize = 6;

/// A tree, and the nodes that did not answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TreeSurvey {
    /// The root, or the highest node that answers.
    pub root: NodeStatus,
    /// Nodes that did not answer, with the reason.
    pub missing: Vec<String>,
}

/// The answer of a node with children at its client port.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DoorStatus {
    /// `manager`, `supervisor`, …
    pub role: String,
    /// Version of its program.
    pub version: String,
    /// The answer to `kXR_locate` of `*`.
    pub children: Vec<u8>,
}

/// A client that queries nodes at their client port (`host:port`).
pub trait AskClientPort {
    /// Queries a node with children.
    ///
    /// # Errors
    /// The node does not answer.
    fn status(&self, address: &str) -> io::Result<DoorStatus>;

    /// Queries the numbers of files and clients of a server.
    ///
    /// # Errors
    /// The node does not answer.
    fn activity(&self, address: &str) -> io::Result<Activity>;
}

/// Returns the tree to which `start` belongs.
#[must_use]
pub fn survey(start: NodeStatus, door: &dyn AskClientPort) -> TreeSurvey {
    let mut walk = TreeWalk { door, below: Vec::new(), seen: HashSet::new(), missing: Vec::new() };
    let mut root = start;
    for _ in 0..LEVELS_MAX {
        // An XRootD parent does not report its own parents, but this node may know them.
        let higher = root.managers.iter().filter(|manager| !root.parents.contains(manager));
        let above = higher.chain(&root.parents).find_map(|parent| walk.look(parent, ask(parent)));
        let Some(mut above) = above else { break };
        if above.is_real() && root.role == "manager" {
            above.role = "meta manager".to_owned();
        }
        walk.below.push(std::mem::replace(&mut root, above));
    }
    walk.seen.insert(root.id.clone());
    walk.descend(&mut root, LEVELS_MAX, false);
    walk.missing.dedup();
    TreeSurvey { root, missing: walk.missing }
}

/// The state of a walk through a tree.
struct TreeWalk<'a> {
    door: &'a dyn AskClientPort,
    /// The nodes on the path to the root. Their reports are kept even if an XRootD node is above
    /// them.
    below: Vec<NodeStatus>,
    seen: HashSet<String>,
    missing: Vec<String>,
}

impl TreeWalk<'_> {
    fn look<T>(&mut self, address: &str, found: io::Result<T>) -> Option<T> {
        found.map_err(|error| self.missing.push(format!("{address}: {error}"))).ok()
    }

    /// Queries the children that have children, and servers that are being drained. `is_emptied` is
    /// set if all nodes below this one are being drained.
    fn descend(&mut self, node: &mut NodeStatus, levels: usize, is_emptied: bool) {
        if levels == 0 {
            return;
        }
        let real = node.is_real();
        for child in &mut node.children {
            if real && child.role == "server" {
                self.recognise(child);
                self.count_left(child, is_emptied);
                continue;
            }
            let inner = child.cluster_address.is_some() || real;
            if !inner {
                self.count_left(child, is_emptied);
                continue;
            }
            let key = if real { &child.address } else { &child.id };
            if NodeState::Away.is(&child.state)
                || self.seen.len() >= NODES_MAX
                || !self.seen.insert(key.clone())
            {
                continue;
            }
            if let Some(mut status) = self.inner(child, &node.role) {
                self.descend(&mut status, levels - 1, is_emptied || NodeState::Draining.is(&child.state));
                if NodeState::Draining.is(&child.state) && status.is_drained() {
                    child.state = NodeState::Drained.into();
                }
                child.node = Some(Box::new(status));
            }
        }
    }

    /// Queries the remaining files and clients of a server that is being drained, or is below such
    /// a node.
    fn count_left(&mut self, child: &mut ChildStatus, is_emptied: bool) {
        if !NodeState::Draining.is(&child.state) && (!is_emptied || NodeState::Away.is(&child.state)) {
            return;
        }
        child.left = self.look(&child.address, self.door.activity(&child.address));
        if NodeState::Draining.is(&child.state) && child.left.is_some_and(|left| left.open_files == 0) {
            child.state = NodeState::Drained.into();
        }
    }

    /// Completes the entry of a server below an XRootD parent from the status that the server
    /// itself has reported.
    fn recognise(&self, child: &mut ChildStatus) {
        let same = |status: &&NodeStatus| status.role == "server" && status.is_at(&child.address);
        if let Some(status) = self.below.iter().find(same) {
            (child.id, child.host, child.version) =
                (status.id.clone(), status.host.clone(), status.version.clone());
            (child.space, child.state, child.site) =
                (status.space, status.state.clone(), status.site.clone());
        }
    }

    /// Queries a child that has children.
    fn inner(&mut self, child: &mut ChildStatus, parent: &str) -> Option<NodeStatus> {
        let known = match child.cluster_address.clone() {
            Some(address) => self.look(&address, ask(&address)).filter(|status| !status.is_real()),
            None => {
                let same = |status: &NodeStatus| status.is_at(&child.address);
                self.below.iter().position(same).map(|at| self.below.swap_remove(at))
            }
        };
        if let Some(status) = known {
            (child.role, child.version) = (status.role.clone(), status.version.clone());
            return Some(status);
        }
        let told = self.look(&child.address, self.door.status(&child.address))?;
        child.version = told.version;
        // The role is relative to the parent: a manager below a meta manager.
        child.role = if parent == "meta manager" { "manager".to_owned() } else { told.role };
        let children = children(&told.children, &child.role);
        Some(NodeStatus {
            role: child.role.clone(),
            version: child.version.clone(),
            state: child.state.clone(),
            children,
            ..NodeStatus::default()
        })
    }
}

impl NodeStatus {
    /// Reports whether no file is open at any node below, as far as known.
    fn is_drained(&self) -> bool {
        let is_drained = |child: &ChildStatus| match (&child.node, child.left) {
            (Some(node), _) => node.is_drained(),
            (None, Some(left)) => left.open_files == 0,
            (None, None) => NodeState::Away.is(&child.state),
        };
        self.children.iter().all(is_drained)
    }

    /// Reports whether this is the reduced status of an XRootD node.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.uptime_seconds.is_none()
    }

    /// Reports whether the clients of the node are served at an address.
    fn is_at(&self, address: &str) -> bool {
        let Some((_, port)) = address.rsplit_once(':') else { return false };
        let places = |(host, port): (&str, u16)| -> Vec<SocketAddr> {
            (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
        };
        let there: Vec<_> = address.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
        let own = places((&self.host, self.data_port));
        // A parent knows a node on its own host by the loopback address.
        port.parse() == Ok(self.data_port)
            && there.iter().any(|there| there.ip().is_loopback() || own.contains(there))
    }
}

/// Queries the node whose cluster port is at `address` (`host:port`).
///
/// # Errors
/// The node does not answer, or its answer is not that of a cluster node.
pub fn ask(address: &str) -> io::Result<NodeStatus> {
    let mut visit = RedirectorConnection::begin(address)?;
    let mut status = visit.login()?;
    if let Some(text) = visit.request(&Message::Stats(StatsModifier::NONE))?
        && let Ok(status) = serde_json::from_slice(&text)
    {
        return Ok(status);
    }
    // The node runs XRootD.
    let everything = Message::Locate(Locate {
        ident: b"scalla",
        options: LocateOptions::ALL_NETS.with_network(ClientNetwork::PreferIpv6),
        path: b"*",
        opaque: None,
        avoid: None,
    });
    status.children = children(&visit.request(&everything)?.unwrap_or_default(), &status.role);
    status.cluster_address = Some(address.to_owned());
    Ok(status)
}

/// Parses the list of children returned by a node of this role.
fn children(text: &[u8], parent: &str) -> Vec<ChildStatus> {
    let below = if parent == "meta manager" { "manager" } else { "supervisor" };
    let places = locate_text::parse(text).enumerate();
    let places = places.map(|(number, place)| {
        let inner = matches!(place.node, NodeKind::Manager | NodeKind::ManagerPending);
        let serves = matches!(place.node, NodeKind::Manager | NodeKind::Server);
        ChildStatus {
            slot: u8::try_from(number).unwrap_or(u8::MAX),
            role: if inner { below } else { "server" }.to_owned(),
            version: REAL.to_owned(),
            address: plain(&String::from_utf8_lossy(place.address)),
            state: if serves { NodeState::Serving } else { NodeState::NotServing }.into(),
            ..ChildStatus::default()
        }
    });
    places.collect()
}

/// Converts the form `[::127.0.0.1]:1094` of these lists to `127.0.0.1:1094`.
fn plain(address: &str) -> String {
    let old = address.strip_prefix("[::").and_then(|rest| rest.split_once(']'));
    match old {
        Some((ip, port)) if ip.parse::<Ipv4Addr>().is_ok() => format!("{ip}{port}"),
        _ => address.to_owned(),
    }
}

/// The answer of a node to the login of this program.
enum VisitAnswer {
    /// It is accepted; the status is the one in the reply.
    Accepted(Box<NodeStatus>),
    /// Credentials are needed.
    Challenge(Vec<u8>),
}

/// A connection that is logged in as a redirector.
struct RedirectorConnection {
    stream: TcpStream,
    splitter: FrameSplitter,
    last: u32,
}

impl RedirectorConnection {
    fn begin(address: &str) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name leads to no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(Self { stream, splitter: FrameSplitter::new(FramePhase::Login), last: 0 });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Logs in. Returns the status contained in the reply.
    fn login(&mut self) -> io::Result<NodeStatus> {
        let host = crate::host_name();
        let env = format!("myHN={host}");
        let login = Message::Login(NodeLogin::redirector(std::process::id(), env.as_bytes()));
        self.send(&login, StreamId::NONE)?;
        let mut answer = self.login_answer()?;
        if let VisitAnswer::Challenge(challenge) = answer {
            let credentials = self.credentials(&challenge, &host)?;
            self.send(&Message::Xauth(&credentials), StreamId::NONE)?;
            answer = self.login_answer()?;
        }
        let VisitAnswer::Accepted(status) = answer else {
            return Err(refused(b"it asks for credentials again"));
        };
        self.splitter.enter(FramePhase::Redirector);
        Ok(*status)
    }

    /// Reads the answer to the login.
    fn login_answer(&mut self) -> io::Result<VisitAnswer> {
        self.next(|header, payload| match LoginAnswer::decode(header, payload).map_err(strange)? {
            LoginAnswer::Accepted(reply) => {
                let id = String::from_utf8_lossy(reply.sid.unwrap_or_default());
                let id = id.trim_end_matches('\0');
                Ok(Some(VisitAnswer::Accepted(Box::new(NodeStatus {
                    // The login reply to a redirector does not contain the exact role.
                    role: "manager".to_owned(),
                    id: id.to_owned(),
                    version: REAL.to_owned(),
                    state: if reply.is_suspended() { NodeState::Suspended } else { NodeState::Serving }
                        .into(),
                    ..NodeStatus::default()
                }))))
            }
            LoginAnswer::Refused { text, .. } => Err(refused(text)),
            LoginAnswer::Xauth(challenge) => Ok(Some(VisitAnswer::Challenge(challenge.to_vec()))),
            LoginAnswer::Try(_) | LoginAnswer::Other(_) => Ok(None),
        })
    }

    /// Makes credentials with the key table of the environment.
    fn credentials(&self, challenge: &[u8], host: &str) -> io::Result<Vec<u8>> {
        let settings = SssClientSettings::of_environment(|name| std::env::var(name).ok());
        let client = SssClient::new(settings, Arc::new(Mutex::new(SystemRng)));
        let context = ClientContext::new(self.stream.local_addr()?, host, "");
        let made = credentials(&client, challenge, &context, SystemTime::now());
        made.map_err(|why| {
            let remedy = "it must be a copy of the file of scalla.clusterkey that belongs to this user";
            io::Error::new(io::ErrorKind::PermissionDenied, format!("{why}; {remedy}"))
        })
    }

    /// Sends a request. Returns the text of the answer, or `None` if the node refuses.
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
                ResponseAnswer::Data { text: Some(text), .. } => Some(text.to_vec()),
                _ => None,
            }))
        })
    }

    fn send(&mut self, message: &Message<'_>, streamid: StreamId) -> io::Result<()> {
        let mut bytes = Vec::new();
        message.encode(streamid, Extensions::NONE, &mut bytes).map_err(io::Error::other)?;
        self.stream.write_all(&bytes)
    }

    /// Reads frames until `take` accepts one.
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
