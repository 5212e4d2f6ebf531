//! A model of a real node (XRootD's cmsd): its pauses, its list of parents and its slots.
//! Source: cms protocol 3, sections 3.2 to 3.6 and 7. The model has one manager, not several.

use std::time::Duration;

use cluster::tree::{
    Address, ClusterMember, Condition, ConnectionId, Extensions, LoadReport, LoginMessage, MemberSlots, Mode,
    NodeAction, NodeEvent, NodeId, NodeIdentity, NodeMessage, ParentReply, PeerAddress, Role, SlotOffer,
    SpaceReport, StatusMessage,
};

use crate::disk::HostDisk;
use crate::host_address::host_of_name;
use crate::messages::{ClientRequest, FileMessage, HostReply, Name, ProcessAction, RequestedAction};
use crate::real_locations::{RealChild, RealLocations};

/// The pause after a lost or refused membership if the list names no other parent.
const PAUSE: Duration = Duration::from_secs(9);
/// The pause after a failed connection if the list names another parent.
const NEXT: Duration = Duration::from_secs(3);
/// The pause after a failed connection to the manager.
const ROOT: Duration = Duration::from_secs(6);
/// The pause after the manager refused the node by name.
const BANNED: Duration = Duration::from_secs(60);
/// The ping interval.
const PING: Duration = Duration::from_secs(60);
/// The timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
struct ListedParent {
    source: Address,
    address: Address,
    level: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RealPhase {
    Idle,
    Connecting,
    Asking,
    Attached,
}

/// A child of a real supervisor, or a peer that has not logged in.
#[derive(Debug)]
struct RealNodeChild {
    link: ConnectionId,
    peer: PeerAddress,
    slot: Option<cluster::Slot>,
    /// Set if the child reports that it serves.
    serves: bool,
    heard: Duration,
    pinged: Duration,
}

/// A real node.
pub struct RealNode {
    /// The manager; `None` for a manager.
    root: Option<Address>,
    login: LoginMessage,
    target: Address,
    level: u32,
    list: Vec<ListedParent>,
    next: usize,
    phase: RealPhase,
    link: Option<ConnectionId>,
    links: u64,
    due: Duration,
    heard: Duration,
    dead: bool,
    parent: Option<MemberSlots>,
    guests: Vec<RealNodeChild>,
    /// Set if the parent has received that this node serves.
    said: bool,
    locations: RealLocations,
}

impl RealNode {
    /// Creates a node of this manager, or a manager. A node that is a `parent` has children.
    pub fn new(managers: Vec<Address>, login: LoginMessage, parent: bool) -> Self {
        let root = managers.into_iter().next();
        Self {
            target: root.clone().unwrap_or_else(|| Address::new("nowhere", 1)),
            root,
            login,
            level: 0,
            list: Vec::new(),
            next: 0,
            phase: RealPhase::Idle,
            link: None,
            links: 0,
            due: Duration::ZERO,
            heard: Duration::ZERO,
            dead: false,
            parent: parent.then(MemberSlots::default),
            guests: Vec::new(),
            said: false,
            locations: RealLocations::default(),
        }
    }

    /// Reports whether a message has ended the process.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Reports whether the node has a parent.
    pub fn is_attached(&self) -> bool {
        self.phase == RealPhase::Attached
    }

    /// Returns the connection to the parent.
    pub fn parent_links(&self) -> Vec<ConnectionId> {
        self.link.filter(|_| self.is_attached()).into_iter().collect()
    }

    /// Returns the connections of the children.
    pub fn child_links(&self) -> Vec<ConnectionId> {
        self.guests.iter().filter(|guest| guest.slot.is_some()).map(|guest| guest.link).collect()
    }

    /// Starts the search for a parent.
    pub fn start(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        if self.root.is_some() {
            self.connect(now, out);
        }
    }

    /// Returns the time of the next work.
    pub fn deadline(&self) -> Option<Duration> {
        let guests = self.guests.iter().map(|guest| guest.pinged.max(guest.heard) + PING).min();
        guests.into_iter().chain(self.root.as_ref().map(|_| self.due)).min()
    }

    fn connect(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        self.links += 1;
        let link = ConnectionId::outward(self.links);
        self.link = Some(link);
        self.phase = RealPhase::Connecting;
        self.due = now + CONNECT;
        out.push(NodeAction::Connect { link, address: self.target.clone() });
    }

    /// Returns the entry at the pointer. At the end it returns `None` and resets the pointer to the
    /// start.
    fn advance(&mut self) -> Option<ListedParent> {
        let entry = self.list.get(self.next).cloned();
        self.next = if entry.is_some() { self.next + 1 } else { 0 };
        entry
    }

    fn leave(&mut self, now: Duration, pause: Duration, at_once: bool, out: &mut Vec<NodeAction>) {
        self.link = None;
        self.phase = RealPhase::Idle;
        if let Some(entry) = self.advance() {
            (self.target, self.level) = (entry.address, entry.level);
            self.due = if at_once { now } else { now + NEXT };
            if at_once {
                self.connect(now, out);
            }
        } else {
            self.level = 0;
            if let Some(root) = &self.root {
                self.target = root.clone();
            }
            self.due = now + pause;
        }
    }

    fn named(&mut self, hosts: Vec<Address>) {
        let source = self.target.clone();
        let before = self.list.iter().take(self.next).filter(|entry| entry.source == source).count();
        self.list.retain(|entry| entry.source != source);
        self.next -= before;
        let level = self.level + 1;
        for address in hosts {
            if self.list.iter().any(|entry| entry.address == address) {
                continue;
            }
            if !self.list.is_empty() && self.next >= self.list.len() {
                // The modelled process ends here.
                self.dead = true;
                return;
            }
            let at = self.list.iter().skip(self.next).position(|entry| entry.level > level);
            let at = at.map_or(self.list.len(), |at| at + self.next);
            self.list.insert(at, ListedParent { source: source.clone(), address, level });
        }
    }

    /// Does the work that is due.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        if now >= self.due && self.root.is_some() {
            match self.phase {
                RealPhase::Idle => self.connect(now, out),
                RealPhase::Connecting => {
                    self.close(out);
                    self.leave(now, ROOT, false, out);
                }
                RealPhase::Asking => {
                    self.close(out);
                    self.leave(now, PAUSE, true, out);
                }
                RealPhase::Attached if now >= self.heard + 3 * PING => {
                    self.close(out);
                    self.leave(now, PAUSE, true, out);
                }
                RealPhase::Attached => self.due = self.heard + 3 * PING,
            }
        }
        let mut silent = Vec::new();
        for guest in &mut self.guests {
            if now >= guest.heard + 3 * PING {
                silent.push(guest.link);
            } else if now >= guest.pinged.max(guest.heard) + PING {
                guest.pinged = now;
                out.push(NodeAction::Send { link: guest.link, message: NodeMessage::Ping });
            }
        }
        for link in silent {
            out.push(NodeAction::Close { link });
            self.guest_gone(link);
        }
    }

    fn close(&self, out: &mut Vec<NodeAction>) {
        out.extend(self.link.map(|link| NodeAction::Close { link }));
    }

    /// Handles an event.
    pub fn handle(&mut self, event: NodeEvent, now: Duration, out: &mut Vec<NodeAction>) {
        match event {
            NodeEvent::Accepted { link, peer } => {
                self.guests.push(RealNodeChild {
                    link,
                    peer,
                    slot: None,
                    serves: true,
                    heard: now,
                    pinged: now,
                });
            }
            NodeEvent::Connected { link } if self.link == Some(link) => {
                self.phase = RealPhase::Asking;
                self.due = now + PING;
                let mut login = self.login.clone();
                self.said = self.serves();
                if !self.said {
                    login.mode |= Mode::SUSPEND | Mode::NOSTAGE;
                }
                out.push(NodeAction::Send { link, message: NodeMessage::Login(Box::new(login)) });
            }
            NodeEvent::Message { link, message } if self.link == Some(link) => {
                self.parent_says(message, now, out)
            }
            NodeEvent::Message { link, message } => self.guest_says(link, message, now, out),
            NodeEvent::Closed { link } if self.link == Some(link) => match self.phase {
                RealPhase::Connecting => self.leave(now, ROOT, false, out),
                _ => self.leave(now, PAUSE, true, out),
            },
            NodeEvent::Closed { link } => self.guest_gone(link),
            _ => {}
        }
    }

    fn parent_says(&mut self, message: NodeMessage, now: Duration, out: &mut Vec<NodeAction>) {
        self.heard = now;
        match message {
            NodeMessage::Reply(_) => {
                self.phase = RealPhase::Attached;
                self.due = now + 3 * PING;
            }
            NodeMessage::Try { hosts, permanent } => {
                assert!(!permanent, "no black list is simulated");
                self.named(hosts);
                self.close(out);
                self.leave(now, PAUSE, true, out);
            }
            NodeMessage::Disc => {
                self.close(out);
                self.leave(now, PAUSE, true, out);
            }
            NodeMessage::Refusal(refusal) => {
                self.close(out);
                self.leave(now, if refusal.banned { BANNED } else { PAUSE }, false, out);
            }
            // A ping before the reply would end the connection.
            NodeMessage::Ping if self.phase == RealPhase::Attached => {
                out.extend(self.link.map(|link| NodeAction::Send { link, message: NodeMessage::Pong }));
            }
            NodeMessage::Ping => panic!("a real node was pinged before its login was answered"),
            NodeMessage::Occupancy(_) => panic!("a real node got a message of our own"),
            _ => {}
        }
    }

    fn guest_says(
        &mut self,
        link: ConnectionId,
        message: NodeMessage,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(guest) = self.guests.iter_mut().find(|guest| guest.link == link) else { return };
        guest.heard = now;
        match message {
            NodeMessage::Login(login) => self.admit(link, &login, now, out),
            NodeMessage::Disc => {
                out.push(NodeAction::Send { link, message: NodeMessage::Disc });
                out.push(NodeAction::Close { link });
                self.guest_gone(link);
            }
            NodeMessage::Status(status) => {
                guest.serves = status.serves.unwrap_or(guest.serves);
                if status.reset {
                    self.locations.reset(link);
                    self.reset_parents(out);
                }
            }
            NodeMessage::Occupancy(_) => panic!("a real node got a message of our own"),
            _ => {}
        }
    }

    /// Reports to the parents that their knowledge is void.
    fn reset_parents(&self, out: &mut Vec<NodeAction>) {
        for link in self.parent_links() {
            let status = StatusMessage { reset: true, ..StatusMessage::default() };
            out.push(NodeAction::Send { link, message: NodeMessage::Status(status) });
        }
    }

    /// Reports whether the node serves clients: a leaf always, an inner node with at least one
    /// child. (A real manager waits for 80 % of the largest number of children it has had; in a
    /// tree that changes, its administrator sets `cms.delay servers 1`.)
    pub(crate) fn serves(&self) -> bool {
        self.parent.is_none() || self.guests.iter().any(|guest| guest.slot.is_some() && guest.serves)
    }

    fn guest_gone(&mut self, link: ConnectionId) {
        let Some(at) = self.guests.iter().position(|guest| guest.link == link) else { return };
        let guest = self.guests.swap_remove(at);
        // A supervisor keeps no slot for a lost child.
        if let (Some(cell), Some(slot)) = (&mut self.parent, guest.slot) {
            cell.take(slot);
        }
    }

    fn admit(&mut self, link: ConnectionId, login: &LoginMessage, now: Duration, out: &mut Vec<NodeAction>) {
        let (Some(guest), Some(cell)) =
            (self.guests.iter_mut().find(|guest| guest.link == link), &mut self.parent)
        else {
            return;
        };
        guest.serves = !login.mode.contains(Mode::SUSPEND);
        let Some(id) = NodeId::new(&login.id) else {
            self.dead = true;
            return;
        };
        let role = if login.mode.contains(Mode::MANAGER) { Role::Supervisor } else { Role::Server };
        let member = member(guest, login, id, role, now);
        let reply = ParentReply { id: self.login.id.clone(), hold_ms: 178, ..ParentReply::default() };
        out.push(NodeAction::Send { link, message: NodeMessage::Reply(reply) });
        // It reassigns the slot of a lost child at once.
        match cell.place(&member.identity, role, Duration::MAX) {
            SlotOffer::Free(slot) | SlotOffer::Return(slot) => self.seat(slot, member),
            SlotOffer::Displace(slot) => {
                let before = cell.get(slot).and_then(|member| member.link);
                self.seat(slot, member);
                if let Some(before) = before {
                    self.send_on(before, out);
                }
            }
            SlotOffer::Contested(_) | SlotOffer::Alternate(_) => {
                out.push(NodeAction::Close { link });
                self.guest_gone(link);
            }
            SlotOffer::None => self.send_on(link, out),
        }
    }

    fn seat(&mut self, slot: cluster::Slot, member: ClusterMember) {
        for guest in &mut self.guests {
            if guest.slot == Some(slot) {
                guest.slot = None;
            }
            if Some(guest.link) == member.link {
                guest.slot = Some(slot);
            }
        }
        if let Some(cell) = &mut self.parent {
            cell.put(slot, member);
        }
    }

    /// Names all supervisors of the cell, as real nodes do, and ends the connection.
    fn send_on(&mut self, link: ConnectionId, out: &mut Vec<NodeAction>) {
        let Some(cell) = &self.parent else { return };
        let parents = cell.iter().filter(|(_, member)| member.role.has_children());
        let hosts = parents.map(|(_, member)| member.address.clone()).collect();
        out.push(NodeAction::Send { link, message: NodeMessage::Try { hosts, permanent: false } });
        out.push(NodeAction::Close { link });
        self.guest_gone(link);
    }

    fn children(&self) -> Vec<RealChild> {
        let seated = self.guests.iter().filter(|guest| guest.slot.is_some());
        let child = |guest: &RealNodeChild| {
            Some(RealChild { link: guest.link, host: host_of_name(&guest.peer.host)?, serves: guest.serves })
        };
        seated.filter_map(child).collect()
    }

    /// Reports a change of the tree to the parents: whether this node serves, and that their
    /// knowledge of files is void.
    pub(crate) fn follow(&mut self, out: &mut Vec<ProcessAction>) {
        if self.parent.is_none() {
            return;
        }
        let mut actions = Vec::new();
        let serves = self.serves();
        if self.is_attached() && serves != self.said {
            self.said = serves;
            let status =
                StatusMessage { serves: Some(serves), stages: Some(serves), ..StatusMessage::default() };
            let message = NodeMessage::Status(status);
            actions.extend(self.link.map(|link| NodeAction::Send { link, message }));
        }
        if self.locations.follow(&self.children()) {
            self.reset_parents(&mut actions);
        }
        out.extend(actions.into_iter().map(ProcessAction::Tree));
    }

    /// Handles a message about files.
    pub(crate) fn files(
        &mut self,
        link: ConnectionId,
        message: FileMessage,
        disk: &HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        if self.link == Some(link) {
            self.heard = now;
        } else if let Some(guest) = self.guests.iter_mut().find(|guest| guest.link == link) {
            guest.heard = now;
        }
        let parents = self.parent_links();
        let news = match message {
            FileMessage::State { path, ask } => {
                let here = if self.parent.is_some() {
                    self.locations.state(&path, ask, now, out)
                } else {
                    disk.has(&path)
                };
                if here {
                    out.push(ProcessAction::Files(
                        link,
                        FileMessage::Have { path, pending: false, draining: false, leased: None },
                    ));
                }
                return;
            }
            FileMessage::Have { path, pending, .. } => self
                .locations
                .have(link, &path)
                .then_some(FileMessage::Have { path, pending, draining: false, leased: None }),
            FileMessage::Gone { path } => {
                self.locations.gone(link, &path).then_some(FileMessage::Gone { path })
            }
            FileMessage::NotHere { .. }
            | FileMessage::InventoryWanted
            | FileMessage::Inventory { .. }
            | FileMessage::Order(_)
            | FileMessage::Lease { .. } => {
                panic!("a real node got a message of our own")
            }
        };
        if let Some(news) = news {
            out.extend(parents.into_iter().map(|link| ProcessAction::Files(link, news.clone())));
        }
    }

    /// Handles the request of a client.
    pub(crate) fn serve(
        &mut self,
        request: &ClientRequest,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let ClientRequest { operation, attempt, .. } = *request;
        let told = if self.parent.is_some() {
            self.locations.serve(request, &self.children(), now, out)
        } else {
            self.perform(request, disk, now, out)
        };
        out.push(ProcessAction::Tell { operation, attempt, told });
    }

    fn perform(
        &self,
        request: &ClientRequest,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) -> HostReply {
        let path = &request.path;
        let parents = self.parent_links();
        let tell = |message: FileMessage, out: &mut Vec<ProcessAction>| {
            out.extend(parents.iter().map(|link| ProcessAction::Files(*link, message.clone())));
        };
        let file = disk.files.get(path).copied();
        match (&request.wish, file) {
            (RequestedAction::Create, None) => {
                disk.put(path, Some(request.operation), now);
                out.push(ProcessAction::Made(path.clone()));
                tell(
                    FileMessage::Have { path: path.clone(), pending: false, draining: false, leased: None },
                    out,
                );
                HostReply::Done
            }
            (_, None) => {
                tell(FileMessage::Gone { path: path.clone() }, out);
                HostReply::Missing
            }
            (RequestedAction::Create, Some(file)) if file.maker != Some(request.operation) => {
                HostReply::Exists
            }
            (RequestedAction::Remove, Some(_)) => {
                disk.remove(path, now, false);
                tell(FileMessage::Gone { path: path.clone() }, out);
                HostReply::Done
            }
            (RequestedAction::Rename(to), Some(file)) => {
                disk.remove(path, now, false);
                disk.put(to, file.maker, now);
                tell(FileMessage::Gone { path: path.clone() }, out);
                tell(
                    FileMessage::Have { path: to.clone(), pending: false, draining: false, leased: None },
                    out,
                );
                HostReply::Done
            }
            _ => HostReply::Done,
        }
    }

    /// Reports to the parents that a file appeared or disappeared on the disk without a client.
    pub(crate) fn changed(&self, path: &Name, here: bool, out: &mut Vec<ProcessAction>) {
        let path = path.clone();
        let message = if here {
            FileMessage::Have { path, pending: false, draining: false, leased: None }
        } else {
            FileMessage::Gone { path }
        };
        out.extend(self.parent_links().into_iter().map(|link| ProcessAction::Files(link, message.clone())));
    }
}

fn member(
    guest: &RealNodeChild,
    login: &LoginMessage,
    id: NodeId,
    role: Role,
    now: Duration,
) -> ClusterMember {
    ClusterMember {
        identity: NodeIdentity { id, ip: guest.peer.ip, data_port: login.data_port },
        role,
        address: Address::new(&guest.peer.host, login.cluster_port),
        data: Address::new(&guest.peer.host, login.data_port),
        paths: login.paths.clone(),
        site: None,
        host: String::new(),
        software: None,
        instance: None,
        version: login.version,
        extensions: Extensions::default(),
        condition: Condition::default(),
        space: SpaceReport::default(),
        sums: None,
        share: 0,
        load: LoadReport::default(),
        link: Some(guest.link),
        since: now,
        heard: now,
        pinged: now,
        pings: 0,
        service: Default::default(),
    }
}
