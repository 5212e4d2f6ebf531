//! The engine of the cluster thread: passes each event to the driver it concerns, and the effects
//! of one driver to the others.
//!
//! ```text
//! sockets ---- frames, ends ----> TreeDriver      (members of the tree; the connections)
//! loops ------ requests --------> LocationDriver  (where files are), of a node with children
//! storage ---- names, looks ----> ServerDriver    (files of this node), of a server
//! ```
//!
//! The drivers send over the connections of the tree driver, so they depend on it and not on each
//! other. The engine itself makes no decisions. There is one thread, so everything here is borrowed
//! briefly and never across an await point.

use super::connection::{ConnectionStage, MoreFrames, NodeConnection, WaitingFrames};
use super::forward::Forward;
use super::location_driver::{LocationDriver, refuse_request, respond_with};
use super::pending_order::OrderOrigin;
use super::pending_requests::{LocationQuery, ParentQuery, RequestOrigin};
use super::rights;
use super::server_driver::ServerDriver;
use super::settings::Settings;
use super::space_totals;
use super::status::{CachedText, StatusInputs};
use super::thread_timer::ThreadTimer;
use super::tree_driver::{TreeDriver, TreeEffect};
use super::turn_clock::ClusterTurn;
use super::{orders, parent_messages, prepares};
use crate::reader_redirect::ReaderRedirect;
use base::LogicalPath;
use cluster::tree::{Address, ClusterNode, ConnectionId, Extensions, NodeEvent, from_frame};
use cluster::{
    ErrorCode, LeaseNumber, LeaseReport, LocateFlags, LocationResolver, LoginClass, NameChange, OrderPermit,
    PeerOrder, SelectOptions,
};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use wire::cms::flags::{InventoryModifier, StateModifier, StatsModifier};
use wire::cms::message::{Lease, State};
use wire::cms::response::ResponseAnswer as WireAnswer;
use wire::cms::{CmsFrame, FrameSplitter, Message as Wire, StreamId};

/// The interval at which expired locations are removed while nothing else happens.
const SWEEP: Duration = Duration::from_secs(5);

/// The engine as shared by the tasks of its thread.
pub(super) type SharedEngine = Rc<RefCell<ClusterEngine>>;

/// The state of the frames that arrived over a connection, after one turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frames {
    /// All frames were handled.
    AllTaken,
    /// Frames are left. Other connections have their turn first.
    More,
    /// The connection has ended.
    Ended,
}

/// Operations that take time outside the work of the thread. The engine receives their outcome
/// later.
pub(super) trait BackgroundOperations {
    /// Connects to a parent.
    fn connect(&self, link: ConnectionId, address: Address);
    /// Looks up the addresses of a child.
    fn look_up(&self, link: ConnectionId, host: String);
    /// Makes credentials for a parent that has asked for them with `challenge`. `local` is the
    /// address of this end of the connection.
    fn authenticate(&self, link: ConnectionId, challenge: Vec<u8>, local: SocketAddr);
}

/// The drivers, and the effects that pass between them.
pub struct ClusterEngine {
    settings: Rc<Settings>,
    pub(super) tree: TreeDriver,
    /// Set for a node with children.
    pub(super) location: Option<LocationDriver>,
    /// Set for a server.
    pub(super) server: Option<ServerDriver>,
    background: Box<dyn BackgroundOperations>,
    /// Shared with the code that opens files: reports whether clients are redirected elsewhere.
    reader_redirect: Arc<ReaderRedirect>,
    /// Set if the administrator has suspended this node, so that it accepts no clients.
    pub(super) suspended: bool,
    /// Set if the administrator is draining this node, so that it accepts no new clients.
    pub(super) draining: bool,
    /// Set if the origin of this node, a proxy, does not answer.
    pub(super) origin_failed: bool,
    /// Set if the clients here are redirected elsewhere, because the administrator or a parent
    /// requires it.
    drained: bool,
    /// The text of the last answer to `stats`.
    status_text: CachedText,
    alarm: ThreadTimer,
    sweep_at: Duration,
    waiting_frames: WaitingFrames,
}

/// The drivers of an engine.
pub(super) struct Drivers {
    pub(super) tree: TreeDriver,
    pub(super) location: Option<LocationDriver>,
    pub(super) server: Option<ServerDriver>,
}

impl ClusterEngine {
    pub(super) fn new(
        settings: Rc<Settings>,
        drivers: Drivers,
        reader_redirect: Arc<ReaderRedirect>,
        outside: impl FnOnce(Weak<RefCell<Self>>) -> Box<dyn BackgroundOperations>,
    ) -> SharedEngine {
        let Drivers { tree, location, server } = drivers;
        let sweep_at = tree.now();
        Rc::new_cyclic(|me| {
            RefCell::new(Self {
                settings,
                tree,
                location,
                server,
                background: outside(me.clone()),
                reader_redirect,
                suspended: false,
                draining: false,
                origin_failed: false,
                drained: false,
                status_text: CachedText::default(),
                alarm: ThreadTimer::default(),
                sweep_at,
                waiting_frames: WaitingFrames::default(),
            })
        })
    }

    /// Returns the tree machine, for inspection.
    pub fn node(&self) -> &ClusterNode {
        self.tree.node()
    }

    /// Returns the location machine, for inspection; `None` in a server.
    pub fn resolver(&self) -> Option<&LocationResolver> {
        self.location.as_ref().map(LocationDriver::resolver)
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Starts to look for parents.
    pub(super) fn start(&mut self) {
        self.tree.drive(|node, now, out| node.start(now, out));
        self.route();
    }

    /// Passes the effects of the drivers to each other until none is left, and checks the timer.
    pub(super) fn route(&mut self) {
        self.exchange_effects();
        self.alarm.check(self.next_deadline());
    }

    /// Does so without the timer, which is checked at the end of the turn.
    pub(super) fn exchange_effects(&mut self) {
        loop {
            while let Some(effect) = self.tree.next_effect() {
                self.take_effect(effect);
            }
            if let Some(location) = &mut self.location
                && let Some((order, answer)) = location.next_answered_order()
            {
                orders::go_on(location, &mut self.tree, order, answer);
            } else if !self.tree.end_broken() && !self.settle() {
                break;
            }
        }
    }

    fn take_effect(&mut self, effect: TreeEffect) {
        match effect {
            TreeEffect::Connect(link, address) => self.background.connect(link, address),
            TreeEffect::Authenticate(link, challenge, local) => {
                self.background.authenticate(link, challenge, local);
            }
            TreeEffect::LookUp(link, host) => self.background.look_up(link, host),
            TreeEffect::Child(slot, change) => {
                if let Some(location) = &mut self.location {
                    location.follow(&mut self.tree, slot, change);
                }
            }
            TreeEffect::JoinedBelow(nodes) => {
                if let Some(location) = &mut self.location {
                    location.found_below(&mut self.tree, &nodes);
                }
            }
            TreeEffect::Ended(link) => {
                if let Some(location) = &mut self.location {
                    location.link_ended(link);
                }
                if let Some(server) = &self.server {
                    server.set_parents(&self.tree);
                }
            }
            TreeEffect::Placed(link) => {
                self.move_clients();
                if let Some(location) = &self.location {
                    location.report_leases(&mut self.tree, link);
                }
                if let Some(server) = &self.server {
                    server.tell_all(&mut self.tree, link);
                }
            }
            TreeEffect::Drain(draining) => {
                self.drained = draining;
                self.move_clients();
            }
        }
    }

    /// Applies the consequences after the tree machine has worked. Returns whether it has.
    fn settle(&mut self) -> bool {
        if !self.tree.settle() {
            return false;
        }
        if let (Some(location), Some(settled)) = (&mut self.location, self.tree.is_settled()) {
            location.settle(&self.tree, settled);
        }
        true
    }

    /// Returns the state from which the status is built.
    pub(super) fn view(&self) -> StatusInputs<'_> {
        StatusInputs {
            settings: &self.settings,
            tree: &self.tree,
            resolver: self.resolver(),
            presence: self.location.as_ref().map(LocationDriver::presence),
            suspended: self.suspended,
            draining: self.draining || self.origin_failed,
        }
    }

    /// Publishes to the code that opens and reads files whether clients are redirected elsewhere.
    pub(super) fn move_clients(&self) {
        let door = self.tree.node().door();
        if let Some(server) = &self.server {
            server.set_parents(&self.tree);
        }
        self.reader_redirect.set(self.drained, self.suspended, door);
    }

    fn next_deadline(&self) -> Option<Duration> {
        let location = self.location.as_ref().and_then(LocationDriver::next_deadline);
        let server = self.server.as_ref().and_then(ServerDriver::next_deadline);
        [self.tree.next_deadline(), location, server].into_iter().flatten().min()
    }

    /// Returns the time at which [`Self::tick`] has work. The timer is set to it.
    pub(super) fn deadline(&mut self) -> Duration {
        let sweep = self.location.as_ref().map(|_| self.sweep_at);
        let due = self.next_deadline().into_iter().chain(sweep).min();
        let due = due.unwrap_or_else(|| self.tree.now() + SWEEP);
        self.alarm.arm(due);
        due
    }

    pub(super) const fn alarm(&self) -> &ThreadTimer {
        &self.alarm
    }

    /// Does the work that is due. Returns whether more is due right after the turns of others.
    pub(super) fn tick(&mut self) -> bool {
        self.alarm.disarm();
        self.tree.tick();
        self.route();
        let now = self.tree.now();
        let sweeps = self.sweep_at <= now;
        if sweeps {
            self.sweep_at = now + SWEEP;
        }
        let mut is_due = false;
        if let Some(location) = &mut self.location {
            is_due = location.tick(&mut self.tree, sweeps);
        }
        if let Some(server) = &mut self.server {
            server.tick(&mut self.tree);
        }
        // Stable positions in the tree are logged.
        self.tree.touch();
        self.route();
        is_due
    }

    /// Handles an accepted connection.
    pub(super) fn accepted(&mut self, peer: SocketAddr) -> ConnectionId {
        let link = self.tree.accepted(peer);
        self.route();
        link
    }

    /// Handles a connection from a host that may not join.
    pub(super) fn not_allowed(&mut self, link: ConnectionId, ip: IpAddr) {
        self.tree.log_not_allowed(ip);
        self.ended(link);
    }

    /// Handles an established connection to a parent.
    pub(super) fn connected(&mut self, link: ConnectionId) {
        self.tree.event(NodeEvent::Connected { link });
        self.route();
    }

    /// Handles a failed attempt to connect to a parent.
    pub(super) fn unreached(&mut self, link: ConnectionId, error: &std::io::Error) {
        self.tree.unreached(link, error);
        self.route();
    }

    /// Handles the end of a connection.
    pub(super) fn ended(&mut self, link: ConnectionId) {
        self.tree.ended(link);
        self.route();
    }

    /// Handles the addresses found for the host name of a child.
    pub(super) fn named(&mut self, link: ConnectionId, found: &[IpAddr]) {
        self.tree.named(link, found);
        self.route();
    }

    /// Handles the credentials for a parent, or the reason why there are none.
    pub(super) fn proved(&mut self, link: ConnectionId, credentials: Result<Vec<u8>, String>) {
        self.tree.send_credentials(link, credentials);
        self.route();
    }

    pub(super) fn connection(&mut self, link: ConnectionId) -> Option<&mut NodeConnection> {
        self.tree.connection(link)
    }

    pub(super) fn stage(&self, link: ConnectionId) -> Option<ConnectionStage> {
        self.tree.stage(link)
    }

    /// Handles arrived bytes: takes whole frames, a limited number per turn.
    pub(super) fn arrived(&mut self, link: ConnectionId, splitter: &mut FrameSplitter) -> Frames {
        let _turn = self.tree.begin_turn();
        let frames = self.take_frames(link, splitter);
        self.submit_looks();
        frames
    }

    /// Returns the count of connections whose frames wait.
    pub(super) fn waiting_frames(&self) -> WaitingFrames {
        self.waiting_frames.clone()
    }

    /// Counts this connection among those whose frames wait, until the result is dropped. Frames of
    /// redirectors do not count, because they answer no client.
    pub(super) fn note_more_frames(&self, link: ConnectionId) -> Option<MoreFrames> {
        (self.stage(link) == Some(ConnectionStage::Node)).then(|| self.waiting_frames.add())
    }

    /// Begins a turn of work for other threads.
    pub(super) fn begin_turn(&self) -> ClusterTurn {
        self.tree.begin_turn()
    }

    /// Starts the disk look-ups that are due, and checks the timer.
    pub(super) fn submit_looks(&mut self) {
        if let Some(server) = &mut self.server {
            server.submit_looks();
        }
        if let Some(location) = &mut self.location {
            location.submit_looks(&mut self.tree);
        }
        self.route();
    }

    fn take_frames(&mut self, link: ConnectionId, splitter: &mut FrameSplitter) -> Frames {
        let mut taken = 0;
        loop {
            let Some(stage) = self.stage(link) else { return Frames::Ended };
            if taken >= stage.frames_at_once() {
                return Frames::More;
            }
            splitter.enter(stage.phase());
            match splitter.next_frame() {
                Ok(Some(frame)) => {
                    taken += stage.frame_cost(frame.header.code);
                    self.frame(link, stage, &frame);
                    self.exchange_effects();
                }
                Ok(None) => return Frames::AllTaken,
                Err(error) => {
                    if stage == ConnectionStage::Asking {
                        self.tree.fails(link, || format!("what it says is no answer to a login: {error}"));
                    } else {
                        self.tree.log_malformed(link, &error);
                    }
                    self.ended(link);
                    return Frames::Ended;
                }
            }
        }
    }

    fn frame(&mut self, link: ConnectionId, stage: ConnectionStage, frame: &CmsFrame<'_>) {
        if stage == ConnectionStage::Asking {
            return self.tree.login_answered(link, frame);
        }
        if self.tree.must_authenticate(link) {
            return self.tree.authenticate(link, frame);
        }
        match Wire::decode(&frame.header, frame.payload) {
            Ok(message) => match from_frame(&message) {
                Some(message) => self.tree.message(link, stage, message),
                None if stage == ConnectionStage::Anonymous => self.tree.ended(link),
                None => {
                    let state = matches!(message, Wire::State(_));
                    self.tree.event(NodeEvent::Heard { link, state });
                    self.about_files(link, stage, frame, &message);
                }
            },
            Err(error) => {
                tracing::debug!("{} sent what cannot be read: {error}", self.tree.name_of(link));
                self.tree.event(NodeEvent::Heard { link, state: false });
                match stage {
                    ConnectionStage::Anonymous => self.tree.ended(link),
                    ConnectionStage::Redirector => {
                        refuse_request(&mut self.tree, link, frame.header.streamid)
                    }
                    ConnectionStage::Asking | ConnectionStage::Node => {}
                }
            }
        }
    }

    /// Handles a message that does not concern the tree.
    fn about_files(
        &mut self,
        link: ConnectionId,
        stage: ConnectionStage,
        frame: &CmsFrame<'_>,
        message: &Wire<'_>,
    ) {
        match rights::login_class(link, stage) {
            LoginClass::Redirector => self.redirector_asks(link, frame, message),
            LoginClass::Parent => match message {
                Wire::State(state) => self.parent_asks(link, frame.header.streamid, state),
                Wire::Lease(lease) => self.leased(link, lease),
                Wire::Inventory(inventory) if inventory.modifier.contains(InventoryModifier::WANTED) => {
                    match (&self.location, &self.server) {
                        (Some(location), _) => location.inventory_wanted(&mut self.tree),
                        (None, Some(server)) => server.tell_all(&mut self.tree, link),
                        (None, None) => {}
                    }
                }
                message => self.order(link, LoginClass::Parent, frame.header.streamid, message),
            },
            LoginClass::Child | LoginClass::Visitor => {
                if let Some(location) = &mut self.location {
                    location.child_message(&mut self.tree, link, frame, message);
                }
            }
        }
    }

    /// Handles a request of a redirector.
    fn redirector_asks(&mut self, link: ConnectionId, frame: &CmsFrame<'_>, message: &Wire<'_>) {
        let streamid = frame.header.streamid;
        let (path, query) = match message {
            Wire::Select(select) => {
                let tried = select.avoid.unwrap_or_default().into();
                (select.path, LocationQuery::Select { options: SelectOptions::from(select.options), tried })
            }
            Wire::Locate(locate) => (locate.path, LocationQuery::Locate(LocateFlags::from(locate.options))),
            Wire::Stats(modifier) if !modifier.contains(StatsModifier::SIZE) => {
                let now = self.tree.now();
                let mut cached = std::mem::take(&mut self.status_text);
                let text = cached.text(now, || self.view().text());
                self.status_text = cached;
                let answer = WireAnswer::Data { value: 0, text: Some(text.as_bytes()) };
                return respond_with(&mut self.tree, link, streamid, None, answer);
            }
            Wire::Statfs(statfs) => {
                let location = self.location.as_ref();
                let space = location.and_then(|one| space_totals::space_for(one, &self.tree, statfs.path));
                let text = space_totals::space_text(space, statfs.modifier);
                let answer = WireAnswer::Data { value: 0, text: Some(&text) };
                return respond_with(&mut self.tree, link, streamid, None, answer);
            }
            message => return self.order(link, LoginClass::Redirector, streamid, message),
        };
        let takes_later = match message {
            Wire::Select(select) => select.options.contains(wire::cms::flags::SelectOptions::STAT),
            _ => true,
        };
        if let Some(location) = &mut self.location {
            let origin = RequestOrigin::Redirector { link, streamid, promised: None, takes_later };
            location.ask(&mut self.tree, path, &query, origin);
        }
    }

    /// Handles the question of a parent about whether a path exists here.
    fn parent_asks(&mut self, link: ConnectionId, streamid: StreamId, state: &State<'_>) {
        let definite = state.modifier.contains(StateModifier::DEFINITE)
            && self.tree.extensions(link).contains(Extensions::NOT_HERE);
        let parent = ParentQuery { link, streamid, path: state.path.into(), definite };
        match (&mut self.location, &mut self.server) {
            (Some(location), _) => location.parent_asks(&mut self.tree, parent, state.modifier),
            (None, Some(server)) => server.parent_asks(&mut self.tree, parent, state.modifier),
            (None, None) => {}
        }
    }

    /// Handles the order of a parent about a lease: the parent sends a client here to create a
    /// file.
    fn leased(&mut self, link: ConnectionId, lease: &Lease<'_>) {
        let Ok(path) = LogicalPath::parse(lease.path) else { return };
        let path = path.without_slash();
        let time = Duration::from_millis(lease.milliseconds.into());
        let number = LeaseNumber(lease.number);
        match (&mut self.location, &self.server) {
            (Some(location), _) => location.leased(&mut self.tree, &path, time, number),
            (None, Some(server)) => server.leased(&mut self.tree, link, &path, time, number),
            (None, None) => {}
        }
        if !time.is_zero() {
            let lease = LeaseReport { number, left: Some(time) };
            parent_messages::announce_lease(&mut self.tree, path.as_bytes(), lease);
        }
    }

    /// Handles an order of a redirector or of a parent.
    fn order(&mut self, link: ConnectionId, class: LoginClass, streamid: StreamId, message: &Wire<'_>) {
        let redirector = class == LoginClass::Redirector;
        let Some(order) = PeerOrder::of(message) else {
            if redirector {
                return refuse_request(&mut self.tree, link, streamid);
            }
            let name = self.tree.name_of(link);
            return tracing::debug!("{name} orders what nobody here does: {}", message.code());
        };
        let forwarded = rights::forwarded(&self.settings.forwarding);
        let own = self.settings.acceptor();
        let Some(permit) = OrderPermit::for_peer(class, own, forwarded, &order) else {
            return self.refuse_order(link, class, streamid, &order);
        };
        // Name changes that this node forwards or executes are logged.
        if let Some(change) = order.change.filter(|_| order.is_relayed || self.server.is_some()) {
            let (path, ident) = (base::shown(order.path), base::shown(order.ident));
            tracing::info!(
                "cluster: {} orders {} {path} for {ident}",
                self.tree.name_of(link),
                change.name()
            );
        }
        match (&mut self.location, &self.server, message) {
            (Some(location), _, Wire::Prepadd(prepare)) => {
                prepares::prepare(location, &mut self.tree, prepare, None);
            }
            (Some(location), _, message) => {
                let client =
                    if redirector { OrderOrigin::Redirector(link, streamid) } else { OrderOrigin::Nobody };
                if let Some(forward) = Forward::of_message(message) {
                    orders::change_names(location, &mut self.tree, permit, forward, client);
                }
            }
            (None, Some(server), message) => {
                if !server.execute(permit, message) {
                    tracing::debug!("{} is not executed by servers", message.code());
                }
            }
            (None, None, _) => {}
        }
    }

    /// Refuses an order that the peer may not give. Only redirectors wait for an answer.
    fn refuse_order(
        &mut self,
        link: ConnectionId,
        class: LoginClass,
        streamid: StreamId,
        order: &PeerOrder<'_>,
    ) {
        let name = order.change.map_or("prepare", NameChange::name);
        if class == LoginClass::Redirector {
            self.tree.log_refused_order(link, name, order.path, order.ident);
            let text = b"this node does not pass such changes of names on (ofs.forward)";
            let answer = WireAnswer::Error { code: ErrorCode::NOT_PERMITTED, text };
            respond_with(&mut self.tree, link, streamid, None, answer);
        } else {
            tracing::debug!("{} orders {name}, which is not done here", self.tree.name_of(link));
        }
    }
}
