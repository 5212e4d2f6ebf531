//! What the cluster's thread does with everything that happens: feeds the pure machines and does what they say.
//!
//! ```text
//! sockets ---- frames, ends ----> engine ----> Node      (who belongs to the tree)
//! loops ------ questions -------> engine ----> Resolver  (where files are), of a node with children
//! storage ---- names, looks ----> engine ----> Holdings  (what is here), of a server
//!                                   |
//!                                   +--> outboxes, new connections, answers to clients
//! ```
//!
//! It decides nothing itself. One thread, so everything here is borrowed for a moment and never across a wait.

use super::askers::Askers;
use super::holdings::Holdings;
use super::inbox::Job;
use super::kept::Records;
use super::leases::SharedLeases;
use super::line::{Line, Stage};
use super::operations::Executor;
use super::settings::{Role, Settings};
use super::sockets::{self, Buffer};
use super::status::CachedText;
use super::troubles::Troubles;
use crate::adapters::Moving;
use base::Clock;
use cluster::tree::{
    self, Action, ChildChange, Event, LinkId, Message, Node, Notice, Peer, from_answer, from_frame,
};
use cluster::{Interface, Resolver, Slot};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use wire::cms::{EncodeError, Frame, LoginAnswer, Message as Wire, Splitter};

/// The engine as the tasks of its thread share it.
pub(super) type SharedEngine = Rc<RefCell<Engine>>;

/// What is left of the frames that arrived over a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frames {
    /// None.
    AllTaken,
    /// Some: other connections have their turn first.
    More,
    /// The connection has ended.
    Ended,
}

/// Everything the thread knows.
pub struct Engine {
    pub(super) settings: Settings,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) node: Node,
    pub(super) resolver: Option<Resolver>,
    pub(super) holdings: Option<Holdings>,
    /// Does what parents order; of a server.
    pub(super) executor: Option<Executor>,
    /// Whether clients are to move elsewhere, for those who open files.
    pub(super) moving: Arc<Moving>,
    /// Files that clients are on their way to create here; of a server.
    pub(super) leases: Arc<SharedLeases>,
    pub(super) askers: Askers,
    pub(super) lines: HashMap<LinkId, Line>,
    pub(super) troubles: Troubles,
    /// What all connections read into.
    pub(super) buffer: Rc<RefCell<Buffer>>,
    me: Weak<RefCell<Self>>,
    accepted: u64,
    /// Connections found broken while actions were done; the node hears of them afterwards.
    broken: Vec<LinkId>,
    actions: Vec<Action>,
    pub(super) file_actions: Vec<cluster::Action>,
    /// The administrator wants no clients here.
    pub(super) suspended: bool,
    /// He wants no new ones.
    pub(super) draining: bool,
    /// The clients here are to move elsewhere: he wants it, or a parent does.
    pub(super) drained: bool,
    /// What is kept for the next start.
    pub(super) records: Records,
    /// The text of the last answer to `stats`.
    pub(super) status_text: CachedText,
    pub(super) sweep_at: Duration,
    pub(super) wake_at: Option<Duration>,
    /// The time to wake up may be earlier than it was.
    pub(super) rearm: Rc<Notify>,
}

/// What an engine is made of.
pub(super) struct Machines {
    pub(super) node: Node,
    pub(super) resolver: Option<Resolver>,
    pub(super) holdings: Option<Holdings>,
    pub(super) executor: Option<Executor>,
    pub(super) moving: Arc<Moving>,
    /// Files that clients are on their way to create here; of a server.
    pub(super) leases: Arc<SharedLeases>,
}

impl Engine {
    pub(super) fn new(settings: Settings, clock: Arc<dyn Clock>, machines: Machines) -> SharedEngine {
        let sweep_at = clock.now();
        let records = Records::new(settings.place_file.as_deref());
        Rc::new_cyclic(|me| {
            RefCell::new(Self {
                settings,
                clock,
                node: machines.node,
                resolver: machines.resolver,
                holdings: machines.holdings,
                executor: machines.executor,
                moving: machines.moving,
                leases: machines.leases,
                askers: Askers::default(),
                lines: HashMap::new(),
                troubles: Troubles::default(),
                buffer: Rc::default(),
                me: me.clone(),
                accepted: 0,
                broken: Vec::new(),
                actions: Vec::new(),
                file_actions: Vec::new(),
                suspended: false,
                draining: false,
                drained: false,
                records,
                status_text: CachedText::default(),
                sweep_at,
                wake_at: None,
                rearm: Rc::default(),
            })
        })
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// The tree machine, for those who look at it.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The location machine, for those who look at it; `None` in a server.
    pub fn resolver(&self) -> Option<&Resolver> {
        self.resolver.as_ref()
    }

    /// What the node is.
    pub fn role(&self) -> Role {
        self.settings.role
    }

    /// The time on the clock of the machines.
    pub fn time(&self) -> Duration {
        self.now()
    }

    /// Begins to look for parents.
    pub(super) fn start(&mut self) {
        self.drive(|node, now, out| node.start(now, out));
    }

    /// Somebody connected.
    pub(super) fn accepted(&mut self, ip: IpAddr) -> LinkId {
        let link = LinkId::accepted(self.accepted);
        self.accepted += 1;
        self.lines.insert(link, Line::new(Stage::first(link), Some(ip)));
        let peer = Peer { ip, host: self.host_of(ip) };
        self.event(Event::Accepted { link, peer });
        link
    }

    /// How others reach a node that connected from this address.
    fn host_of(&self, ip: IpAddr) -> String {
        match &self.settings.own_name {
            Some(name) if ip.is_loopback() => name.to_string(),
            _ => ip.to_string(),
        }
    }

    /// The addresses clients are sent to: the one it came from, and one of the other kind. One that logged in over the
    /// loopback is on this host, whose addresses others can use.
    fn interfaces(&self, member: &tree::Member) -> Vec<Interface> {
        let ip = member.identity.ip;
        let host: Arc<str> = Arc::from(member.data.written_host());
        let named = ip.is_loopback() && self.settings.own_name.is_some();
        let own: Vec<IpAddr> = self.settings.own_addresses.iter().map(SocketAddr::ip).collect();
        let told = member.link.and_then(|link| Some(self.lines.get(&link)?.others.as_slice()));
        let first = own.iter().copied().find(|own| named && !own.is_loopback()).unwrap_or(ip);
        let others = if named { own.as_slice() } else { told.unwrap_or_default() };
        let other =
            others.iter().copied().find(|other| !other.is_loopback() && other.is_ipv4() != first.is_ipv4());
        let other_host = |other: IpAddr| -> Arc<str> {
            match other {
                _ if named => host.clone(),
                IpAddr::V4(ip) => ip.to_string().into(),
                IpAddr::V6(ip) => format!("[{ip}]").into(),
            }
        };
        let other = other.map(|ip| Interface { host: other_host(ip), ip, private: false });
        [Interface { host: host.clone(), ip: first, private: false }].into_iter().chain(other).collect()
    }

    /// Addresses that the name of a child stands for were found: if that is its name, they are its own.
    pub(super) fn named(&mut self, link: LinkId, found: &[IpAddr]) {
        let Some(line) = self.lines.get_mut(&link) else { return };
        if !line.ip.is_some_and(|ip| found.contains(&ip)) || !line.others.is_empty() {
            return;
        }
        line.others = found.to_vec();
        if let Some(slot) = self.node.slot(link) {
            self.follow(slot, ChildChange::Condition, self.now());
        }
    }

    pub(super) fn line(&mut self, link: LinkId) -> Option<&mut Line> {
        self.lines.get_mut(&link)
    }

    /// The connection of the child in a slot; `None` when there is none, or it is away.
    pub(super) fn link_of(&self, slot: Slot) -> Option<LinkId> {
        self.node.members()?.member(slot)?.link
    }

    /// How far a connection is; `None` when it is none any more.
    pub(super) fn stage(&self, link: LinkId) -> Option<Stage> {
        self.lines.get(&link).map(|line| line.stage)
    }

    /// A connection ended, or was not made.
    pub(super) fn ended(&mut self, link: LinkId) {
        if self.drop_line(link, true) {
            self.event(Event::Closed { link });
        }
    }

    /// Ends a connection, if it is one still. `by_peer`: it was the other end that wanted no more.
    fn drop_line(&mut self, link: LinkId, by_peer: bool) -> bool {
        let Some(mut line) = self.lines.remove(&link) else { return false };
        self.parted(&mut line, by_peer);
        line.close();
        let asked = self.askers.forget(link);
        self.abandon(asked);
        true
    }

    /// Bytes arrived: takes whole frames, a limited number at once.
    pub(super) fn arrived(&mut self, link: LinkId, splitter: &mut Splitter) -> Frames {
        let frames = self.take_frames(link, splitter);
        self.look_later();
        frames
    }

    fn take_frames(&mut self, link: LinkId, splitter: &mut Splitter) -> Frames {
        let mut taken = 0;
        loop {
            let Some(stage) = self.stage(link) else { return Frames::Ended };
            if taken >= stage.frames_at_once() {
                return Frames::More;
            }
            taken += 1;
            splitter.enter(stage.phase());
            match splitter.next_frame() {
                Ok(Some(frame)) => self.frame(link, stage, &frame),
                Ok(None) => return Frames::AllTaken,
                Err(error) if stage == Stage::Asking => {
                    self.fails(link, || format!("what it says is no answer to a login: {error}"));
                    self.ended(link);
                    return Frames::Ended;
                }
                Err(error) => {
                    tracing::warn!("{} breaks the protocol: {error}", self.name_of(link));
                    self.ended(link);
                    return Frames::Ended;
                }
            }
        }
    }

    fn frame(&mut self, link: LinkId, stage: Stage, frame: &Frame<'_>) {
        if stage == Stage::Asking {
            return match LoginAnswer::decode(&frame.header, frame.payload) {
                Ok(answer) => match from_answer(&answer) {
                    Some(message) => {
                        self.declined(link, &message);
                        self.answered(link, message);
                    }
                    None => self.event(Event::Heard { link, state: false }),
                },
                Err(error) => {
                    self.fails(link, || format!("it answers a login with nonsense: {error}"));
                    self.ended(link);
                }
            };
        }
        match Wire::decode(&frame.header, frame.payload) {
            Ok(message) => match from_frame(&message) {
                Some(message) => self.said(link, stage, message),
                None if stage == Stage::Anonymous => self.ended(link),
                None => {
                    let state = matches!(message, Wire::State(_));
                    self.event(Event::Heard { link, state });
                    self.about_files(link, stage, frame, &message);
                }
            },
            Err(error) => {
                tracing::debug!("{} sent what cannot be read: {error}", self.name_of(link));
                self.event(Event::Heard { link, state: false });
                self.unreadable(link, stage, frame);
            }
        }
    }

    /// A message about the tree, before a parent has answered our login.
    fn answered(&mut self, link: LinkId, message: Message) {
        let accepted = match &message {
            Message::Reply(reply) => Some(reply.extensions),
            _ => None,
        };
        if let (Some(extensions), Some(line)) = (accepted, self.lines.get_mut(&link)) {
            line.stage = Stage::Node;
            line.extensions = extensions;
        }
        self.event(Event::Message { link, message });
        if accepted.is_some() {
            self.move_clients();
            self.new_parent(link);
        }
    }

    /// Says to those who open and read files whether they are to do it elsewhere.
    pub(super) fn move_clients(&self) {
        self.moving.set(self.drained, self.suspended, self.node.door());
    }

    /// A message about the tree.
    fn said(&mut self, link: LinkId, stage: Stage, message: Message) {
        if let (Stage::Anonymous, Message::Login(login)) = (stage, &message)
            && let Some(line) = self.lines.get_mut(&link)
        {
            line.logged_in(login.mode);
            line.others.clone_from(&login.interfaces);
            let elsewhere = line.ip.is_some_and(|ip| !ip.is_loopback());
            if let (Some(host), Some(me)) = (&login.host, self.me.upgrade())
                && elsewhere
                && login.interfaces.is_empty()
                && line.stage == Stage::Node
            {
                tokio::task::spawn_local(sockets::look_up(me, link, host.clone()));
            }
        }
        self.event(Event::Message { link, message });
    }

    /// Feeds the tree machine.
    pub(super) fn event(&mut self, event: Event) {
        self.drive(|node, now, out| node.handle(event, now, out));
    }

    /// Lets the tree machine work, and does what it says, until nothing is left.
    pub(super) fn drive(&mut self, work: impl FnOnce(&mut Node, Duration, &mut Vec<Action>)) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        work(&mut self.node, now, &mut actions);
        loop {
            for action in actions.drain(..) {
                self.perform(action, now);
            }
            let Some(link) = self.broken.pop() else { break };
            if self.drop_line(link, false) {
                self.node.handle(Event::Closed { link }, now, &mut actions);
            }
        }
        self.actions = actions;
        self.settle();
    }

    /// Lets the location machine work, and does what it says.
    pub(super) fn resolve<T>(
        &mut self,
        work: impl FnOnce(&mut Resolver, Duration, &mut Vec<cluster::Action>) -> T,
    ) -> Option<T> {
        let now = self.now();
        let resolver = self.resolver.as_mut()?;
        let mut actions = std::mem::take(&mut self.file_actions);
        let result = work(resolver, now, &mut actions);
        for action in actions.drain(..) {
            self.perform_about_files(action);
        }
        self.file_actions = actions;
        self.end_broken();
        self.check_alarm();
        Some(result)
    }

    /// What follows when anything may have changed.
    pub(super) fn settle(&mut self) {
        let now = self.now();
        if let (Some(resolver), Some(members)) = (&mut self.resolver, self.node.members()) {
            let settled = members.serves() && members.is_settled(now);
            resolver.set_quorum(settled);
            resolver.set_door(members.settings().door.as_ref());
            if settled {
                self.records.note_formed();
            }
        }
        self.complain(now);
        self.end_broken();
        self.check_alarm();
    }

    /// Ends connections that were found broken.
    pub(super) fn end_broken(&mut self) {
        if !self.broken.is_empty() {
            self.drive(|_, _, _| {});
        }
    }

    /// Does a job of another thread.
    pub(super) fn run(&mut self, job: Job) {
        job(self);
        self.end_broken();
    }

    /// The engine, to be shared with a task.
    pub(super) fn shared(&self) -> Option<SharedEngine> {
        self.me.upgrade()
    }

    fn perform(&mut self, action: Action, now: Duration) {
        match action {
            Action::Connect { link, address } => {
                self.lines.insert(link, Line::to_parent(address.clone()));
                if let Some(me) = self.shared() {
                    // It sees by itself that the line is gone.
                    tokio::task::spawn_local(sockets::connect(me, link, address));
                }
            }
            Action::Send { link, mut message } => {
                match (&mut message, self.lines.get_mut(&link)) {
                    (Message::Reply(reply), Some(line)) => line.extensions = reply.extensions,
                    (Message::Login(login), Some(line)) => login.interfaces.clone_from(&line.others),
                    _ => {}
                }
                self.put(link, |peer, out| tree::encode(&message, peer, out));
            }
            Action::Close { link } => {
                self.drop_line(link, false);
            }
            Action::Remember { cell } => self.remember(cell.as_ref()),
            Action::Child { slot, change } => self.follow(slot, change, now),
            Action::Service { serves } => {
                let what =
                    if serves { "enough nodes are here: serving" } else { "not enough nodes are here" };
                tracing::info!("cluster: {what}");
            }
            Action::Attached { attached } => self.attached(attached, now),
            Action::Drain { draining, door } => {
                let what =
                    if draining { "its clients are to move elsewhere" } else { "it takes clients as before" };
                tracing::info!("cluster: {what}");
                self.drained = draining;
                self.moving.set(draining, self.suspended, door);
            }
            Action::Notice(Notice::Refused { host, reason }) => self.tell_refusal(&host, reason),
            Action::Notice(Notice::Replaced { link, by }) => self.log_replaced(link, &by),
            Action::Notice(Notice::Twins { id, host }) => self.tell_twins(&id, &host),
            Action::Notice(notice) => tell(&notice),
        }
    }

    /// Puts frames into the outbox of a connection. One that does not take them, and one that cannot be told what it has
    /// to hear, is ended.
    pub(super) fn put(
        &mut self,
        link: LinkId,
        write: impl FnOnce(tree::Extensions, &mut Vec<u8>) -> Result<(), EncodeError>,
    ) {
        let Some(line) = self.lines.get(&link) else { return };
        let extensions = line.extensions;
        match line.outbox.put(|out| write(extensions, out)) {
            Ok(waiting) if waiting > self.settings.outbox_bytes_max => {
                tracing::warn!("{} does not take what it is sent: closed", self.name_of(link));
                self.broken.push(link);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!("a message for {} is not sent: {error}", self.name_of(link)),
        }
    }

    /// A peer's name for the log.
    pub(super) fn name_of(&self, link: LinkId) -> String {
        let child = self.node.slot(link).and_then(|slot| self.node.members()?.member(slot));
        let line = self.lines.get(&link);
        match (child, line.and_then(|line| line.ip), line.and_then(|line| line.goal.as_ref())) {
            (Some(child), ..) => format!("{} {}", child.role, child.data),
            (None, Some(ip), _) => ip.to_string(),
            (None, None, Some(parent)) => format!("the parent {parent}"),
            (None, None, None) => "a parent".to_owned(),
        }
    }

    /// Keeps on disk where this node has its place.
    fn remember(&self, cell: Option<&tree::Address>) {
        self.records.place.keep(cell.map(|address| format!("{} {}\n", address.host(), address.port())));
    }

    fn follow(&mut self, slot: Slot, change: ChildChange, now: Duration) {
        let member = self.node.members().and_then(|members| members.member(slot));
        let interfaces: Vec<Interface> = member.map(|member| self.interfaces(member)).unwrap_or_default();
        // What is below an inner node is told to it, not to parents that come later.
        let unknown = member.filter(|member| {
            let inner = member.role.has_children() && member.role != wire::cms::login::Role::Manager;
            inner && member.extensions.contains(tree::Extensions::INVENTORY)
        });
        let wants = unknown.and_then(|member| member.link);
        let wants = wants.filter(|_| matches!(change, ChildChange::Joined { fresh: true }));
        let Some(resolver) = &mut self.resolver else { return };
        let mut actions = std::mem::take(&mut self.file_actions);
        resolver.follow(slot, change, member, interfaces, now, &mut actions);
        if let (Some(member), ChildChange::Joined { .. } | ChildChange::Lost | ChildChange::Freed) =
            (member, change)
        {
            let what = match change {
                ChildChange::Joined { .. } => "joined",
                ChildChange::Lost => "was lost",
                _ => "left",
            };
            tracing::info!("cluster: {} {} {what}", member.role, member.data);
        }
        for action in actions.drain(..) {
            self.perform_about_files(action);
        }
        self.file_actions = actions;
        if let Some(link) = wants {
            self.want_inventory(link);
        }
    }
}

/// Runs what waits for a disk on a thread of its own: it happens seldom.
pub(super) fn aside(name: &str, work: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(work) {
        tracing::warn!("no thread for {name}: {error}");
    }
}

/// Says in the log what an operator may want to know.
fn tell(notice: &Notice) {
    match notice {
        // Said more seldom than it happens: see `troubles`.
        Notice::Refused { .. } | Notice::Replaced { .. } | Notice::Twins { .. } => {}
        Notice::Silent { address } => tracing::warn!("cluster: {address} was silent for too long: closed"),
        Notice::ParentSilent { address } => {
            tracing::warn!("cluster: the parent {address} was silent for too long: closed");
        }
        Notice::Clusters { ids } => {
            tracing::warn!("cluster: the managers belong to different clusters: {ids:?}")
        }
        Notice::Full { waiting } => {
            tracing::warn!("cluster: no cell has room and {waiting} nodes wait: add supervisors")
        }
    }
}
