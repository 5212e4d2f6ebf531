//! Tests of a node of the tree from outside: events go in, actions come out.

mod child;
mod health;
mod parent;
mod real;

use std::net::IpAddr;
use std::time::Duration;

use base::Rng;
use cluster::Slot;
use cluster::tree::{
    AcceptorRole, Address, CellReport, ChildChange, ChildSettings, ClusterNode, ConnectionId, Extensions,
    FreeSlots, LoginMessage, Mode, NodeAction, NodeEvent, NodeId, NodeMessage, ParentReply, ParentSettings,
    PeerAddress,
};

/// A random generator with constant output.
struct Even;

impl Rng for Even {
    fn fill(&mut self, into: &mut [u8]) {
        into.fill(7);
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn slot(number: u8) -> Slot {
    Slot::new(number).expect("a slot")
}

fn id(kind: char, name: &str) -> NodeId {
    NodeId::compose(kind, name, None, "1213root")
}

/// Returns the login of a node of this name.
fn login(name: &str, mode: Mode, own: bool) -> LoginMessage {
    let kind = if mode.contains(Mode::MANAGER) { 'u' } else { 's' };
    LoginMessage {
        version: 3,
        mode: mode | Mode::BLREDIR,
        data_port: 1094,
        cluster_port: 1213,
        id: id(kind, name).as_str().to_owned(),
        host: Some(name.to_owned()),
        extensions: if own { Extensions::ALL } else { Extensions::NONE },
        ..LoginMessage::default()
    }
}

/// A node under test, with its time and its last actions.
struct Bench {
    node: ClusterNode,
    now: Duration,
    done: Vec<NodeAction>,
    links: u64,
}

impl Bench {
    fn new(parent: Option<ParentSettings>, children: Vec<ChildSettings>) -> Self {
        let node = ClusterNode::new(parent, children, &mut Even, Duration::ZERO);
        Self { node, now: Duration::ZERO, done: Vec::new(), links: 0 }
    }

    /// Returns a parent of this kind, called `root`.
    fn parent(acceptor: AcceptorRole, change: impl FnOnce(&mut ParentSettings)) -> Self {
        let mut settings = ParentSettings::new(acceptor, id('m', "root"), Address::new("root", 1213));
        change(&mut settings);
        let child = ChildSettings::new(
            vec![Address::new("top", 1213)],
            login("root", Mode::MANAGER | Mode::SERVER, true),
        );
        let children = if acceptor == AcceptorRole::Supervisor { vec![child] } else { Vec::new() };
        Self::new(Some(settings), children)
    }

    /// Returns a supervisor whose parent has its login and has not replied, the connection to the
    /// parent, and the actions so far.
    fn supervisor_below() -> (Self, ConnectionId, Vec<NodeAction>) {
        let mut bench = Self::parent(AcceptorRole::Supervisor, |_| {});
        let mut out = Vec::new();
        bench.node.start(bench.now, &mut out);
        let Some(NodeAction::Connect { link, .. }) = out.first().cloned() else { panic!("{out:?}") };
        let said = bench.event(NodeEvent::Connected { link });
        (bench, link, said)
    }

    /// Handles an event, and returns the actions.
    fn event(&mut self, event: NodeEvent) -> Vec<NodeAction> {
        let mut out = Vec::new();
        self.node.handle(event, self.now, &mut out);
        self.done.extend(out.iter().cloned());
        out
    }

    fn says(&mut self, link: ConnectionId, message: NodeMessage) -> Vec<NodeAction> {
        self.event(NodeEvent::Message { link, message })
    }

    /// Connects a node of this name and sends this message.
    fn comes(&mut self, name: &str, message: NodeMessage) -> (ConnectionId, Vec<NodeAction>) {
        self.comes_from([10, 0, 0, 1].into(), name, message)
    }

    fn comes_from(
        &mut self,
        ip: IpAddr,
        name: &str,
        message: NodeMessage,
    ) -> (ConnectionId, Vec<NodeAction>) {
        self.links += 1;
        let link = ConnectionId::accepted(self.links);
        let peer = PeerAddress { ip, host: name.to_owned() };
        self.event(NodeEvent::Accepted { link, peer });
        let out = self.says(link, message);
        (link, out)
    }

    fn server(&mut self, name: &str, own: bool) -> (ConnectionId, Vec<NodeAction>) {
        self.comes(name, NodeMessage::Login(Box::new(login(name, Mode::SERVER, own))))
    }

    fn supervisor(&mut self, name: &str, own: bool) -> (ConnectionId, Vec<NodeAction>) {
        self.comes(name, NodeMessage::Login(Box::new(login(name, Mode::MANAGER | Mode::SERVER, own))))
    }

    /// Reports the free places of a supervisor of our own.
    fn reports(&mut self, link: ConnectionId, name: &str, free: u8) -> Vec<NodeAction> {
        self.reports_joined(link, name, free, &[])
    }

    /// Reports the free places of a supervisor, and the servers that have joined it.
    fn reports_joined(
        &mut self,
        link: ConnectionId,
        name: &str,
        free: u8,
        joined: &[&str],
    ) -> Vec<NodeAction> {
        let places = FreeSlots { free, parents: 0, leaves: 64 - free };
        let report = CellReport {
            id: id('u', name).digest(),
            address: Address::new(name, 1213),
            depth: 0,
            places: Some(places),
            joined: joined.iter().map(|name| id('s', name).digest()).collect(),
        };
        self.says(link, NodeMessage::Occupancy(vec![report]))
    }

    /// Lets time pass with ticks at each deadline, and returns the actions.
    fn pass(&mut self, time: Duration) -> Vec<NodeAction> {
        let end = self.now + time;
        let mut all = Vec::new();
        while let Some(due) = self.node.deadline().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.node.tick(self.now, &mut all);
        }
        self.now = end;
        self.done.extend(all.iter().cloned());
        all
    }

    /// Lets time pass while these nodes answer each ping.
    fn pass_alive(&mut self, time: Duration, alive: &[ConnectionId]) -> Vec<NodeAction> {
        let (end, mut all) = (self.now + time, Vec::new());
        while self.now < end {
            let step = Duration::from_millis(500).min(end - self.now);
            all.extend(self.pass(step));
            for link in alive {
                all.extend(self.says(*link, NodeMessage::Pong));
            }
        }
        all
    }
}

/// Returns the messages sent on a connection.
fn sent(actions: &[NodeAction], to: ConnectionId) -> Vec<NodeMessage> {
    let message = |action: &NodeAction| match action {
        NodeAction::Send { link, message } if *link == to => Some(message.clone()),
        _ => None,
    };
    actions.iter().filter_map(message).collect()
}

fn closes(actions: &[NodeAction], to: ConnectionId) -> bool {
    actions.contains(&NodeAction::Close { link: to })
}

/// Reports whether a login was answered by a reply and the connection stays.
fn taken_in(actions: &[NodeAction], link: ConnectionId) -> bool {
    matches!(sent(actions, link).first(), Some(NodeMessage::Reply(_))) && !closes(actions, link)
}

/// Returns the hosts of the last `try` on a connection.
fn tried(actions: &[NodeAction], link: ConnectionId) -> Option<Vec<String>> {
    let hosts = |message: NodeMessage| match message {
        NodeMessage::Try { hosts, .. } => Some(hosts.iter().map(|host| host.host().to_owned()).collect()),
        _ => None,
    };
    sent(actions, link).into_iter().rev().find_map(hosts)
}

fn child(number: u8, change: ChildChange) -> NodeAction {
    NodeAction::Child { slot: slot(number), change }
}

fn reply(own: bool) -> NodeMessage {
    let extensions = if own { Extensions::ALL } else { Extensions::NONE };
    NodeMessage::Reply(ParentReply {
        id: id('m', "root").as_str().to_owned(),
        extensions,
        ..ParentReply::default()
    })
}
