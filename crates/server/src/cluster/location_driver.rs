//! Drives the location machine ([`LocationResolver`]) of a node with children.
//!
//! It passes the requests of clients, redirectors and parents and the replies of children to the
//! machine, and carries out the actions that the machine returns. It sends over the connections of
//! the tree driver.
//!
//! Waiting clients receive no interim reply, redirectors do: see [`cluster::late_answer`].

use super::connection::{ConnectionStage, NodeConnection};
use super::parent_messages::{self, LocalPathState};
use super::pending_order::PendingOrder;
use super::pending_requests::{LocationQuery, ParentQuery, PendingRequests, RequestOrigin};
use super::pending_stats::StatReason;
use super::presence::ChildPresence;
use super::server_files::ServerFiles;
use super::settings::Settings;
use super::tree_driver::TreeDriver;
use base::LogicalPath;
use cluster::tree::{ChildChange, ConnectionId, Extensions, inventory};
use cluster::{
    ANSWER_OVERDUE, ClusterAnswer, ErrorCode, LateAnswer, LeaseNumber, LocationResolver, LookupOutcome,
    ResolverAction, Slot, SlotMask, StateAsk, StateReply,
};
use config::NodeRole;
use logical::PathPresence;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire::cms::flags::{HaveModifier, InventoryModifier, StateModifier};
use wire::cms::message::{Lease, PathBatch, State};
use wire::cms::response::{EncodedRedirect, MessageId, Response, ResponseAnswer as WireAnswer};
use wire::cms::{CmsFrame, Message as Wire, StreamId};

/// The number of requests checked for disconnected clients at each sweep.
const CHECKED_AT_ONCE: usize = 4096;

/// The location machine, and the requests that wait for its answers.
pub(super) struct LocationDriver {
    resolver: LocationResolver,
    settings: Rc<Settings>,
    pending_requests: PendingRequests,
    /// The files that all servers share; set for a redirector that looks them up itself.
    shared_files: Option<ServerFiles>,
    /// Paths that the machine wants looked up in the shared files. The request is recorded before
    /// its look-up starts.
    wanted_looks: VecDeque<Arc<[u8]>>,
    /// Orders whose location query is answered. The engine passes them on.
    answered_orders: VecDeque<(PendingOrder, ClusterAnswer)>,
    actions: Vec<ResolverAction>,
    presence: ChildPresence,
    /// Set if the administrator has suspended this node, so that it accepts no clients.
    suspended: bool,
}

impl LocationDriver {
    pub(super) fn new(
        resolver: LocationResolver,
        shared_files: Option<ServerFiles>,
        settings: Rc<Settings>,
        presence: ChildPresence,
    ) -> Self {
        Self {
            resolver,
            presence,
            settings,
            pending_requests: PendingRequests::default(),
            shared_files,
            wanted_looks: VecDeque::new(),
            answered_orders: VecDeque::new(),
            actions: Vec::new(),
            suspended: false,
        }
    }

    /// Returns the location machine, for inspection.
    pub(super) const fn resolver(&self) -> &LocationResolver {
        &self.resolver
    }

    /// Returns the presence of the children.
    pub(super) const fn presence(&self) -> &ChildPresence {
        &self.presence
    }

    /// Returns the settings of this node.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Suspends this node, so that it accepts no clients, or resumes it.
    pub(super) const fn suspend(&mut self, suspended: bool) {
        self.suspended = suspended;
    }

    /// Returns the time at which [`Self::tick`] has work.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let looks = self.shared_files.as_ref().and_then(ServerFiles::next_deadline);
        [self.resolver.next_deadline(), looks, self.pending_requests.deadline()].into_iter().flatten().min()
    }

    /// Does the work that is due. With `sweeps`, expired locations are removed, too. Returns
    /// whether more is due immediately.
    pub(super) fn tick(&mut self, tree: &mut TreeDriver, sweeps: bool) -> bool {
        let now = tree.now();
        if sweeps {
            let gone = self.pending_requests.take_gone(CHECKED_AT_ONCE);
            self.resolver.abandon(gone);
        }
        if sweeps || self.is_due(now) {
            // A file is not placed for a client that has disconnected.
            let pending_requests = &self.pending_requests;
            self.resolver.tick_for(now, &|token| pending_requests.is_gone(token), &mut self.actions);
            self.perform(tree);
        }
        if let Some(files) = &mut self.shared_files {
            files.look_in_turn(now);
            self.take_findings(tree);
        }
        self.submit_looks(tree);
        self.pending_requests.expire(now);
        self.answer_overdue(tree);
        self.is_due(tree.now())
    }

    fn is_due(&self, now: Duration) -> bool {
        self.resolver.next_deadline().is_some_and(|due| due <= now)
    }

    /// Drops the requests of a connection that has ended.
    pub(super) fn link_ended(&mut self, link: ConnectionId) {
        let asked = self.pending_requests.forget(link);
        self.resolver.abandon(asked);
    }

    /// Applies a change of a child that the tree machine reported.
    pub(super) fn follow(&mut self, tree: &mut TreeDriver, slot: Slot, change: ChildChange) {
        let member = tree.member(slot);
        let interfaces = member.map(|member| tree.interfaces(member)).unwrap_or_default();
        let wants =
            member.filter(|member| inventory::is_wanted(member, change)).and_then(|member| member.link);
        self.resolver.follow(slot, change, member, interfaces, tree.now(), &mut self.actions);
        let lessees = (change != ChildChange::Figures).then(|| self.resolver.lessees());
        self.presence.follow(slot, change, member, tree.now());
        if let Some(lessees) = lessees {
            tree.note_lessees(lessees);
        }
        self.perform(tree);
        if let Some(link) = wants {
            request_inventory(tree, link);
        }
    }

    /// Handles the report that supervisors have accepted the nodes with these numbers.
    pub(super) fn found_below(&mut self, tree: &mut TreeDriver, nodes: &[u64]) {
        if self.resolver.found_below(nodes) {
            tree.note_lessees(self.resolver.lessees());
        }
    }

    /// Applies any change of the tree. `settled` is set if the children that this node waits for
    /// are there.
    pub(super) fn settle(&mut self, tree: &TreeDriver, settled: bool) {
        if let Some(members) = tree.node().members() {
            self.presence.settle(members, settled, tree.now());
        }
        self.resolver.set_quorum(settled);
        self.resolver.set_plain_parent(tree.has_plain_parent());
        self.resolver.set_door(tree.node().members().and_then(|members| members.settings().door.as_ref()));
    }

    /// Discards all knowledge of this path.
    pub(super) fn forget(&mut self, path: &[u8]) {
        self.resolver.forget(path);
    }

    /// Runs a step of the machine and carries out its actions.
    fn resolve<T>(
        &mut self,
        tree: &mut TreeDriver,
        work: impl FnOnce(&mut LocationResolver, Duration, &mut Vec<ResolverAction>) -> T,
    ) -> T {
        let result = work(&mut self.resolver, tree.now(), &mut self.actions);
        self.perform(tree);
        result
    }

    fn perform(&mut self, tree: &mut TreeDriver) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            self.perform_one(tree, action);
        }
        self.actions = actions;
    }

    fn perform_one(&mut self, tree: &mut TreeDriver, action: ResolverAction) {
        match action {
            ResolverAction::Ask { to, path, refresh, via_meta } => {
                ask_children(tree, to, &path, refresh, via_meta)
            }
            ResolverAction::Look { path } => {
                if self.shared_files.is_some() {
                    self.wanted_looks.push_back(path);
                }
            }
            ResolverAction::Lease { slot, path, time, number } => send_lease(tree, slot, &path, time, number),
            ResolverAction::Answer { token, answer } => {
                if let Some(origin) = self.pending_requests.take(token) {
                    self.deliver(tree, origin, answer);
                }
            }
            ResolverAction::Reply { token, reply, path: _ } => {
                if let Some(parent) = self.pending_requests.take_above(token) {
                    self.answer_parent(tree, &parent, reply);
                }
            }
            ResolverAction::Announce { path, pending } => {
                let here = self.here(&path, pending, tree.now());
                parent_messages::announce(tree, &path, here);
            }
            ResolverAction::Retract { path } => parent_messages::retract(tree, &path),
        }
    }

    /// Passes a request to the machine.
    pub(super) fn ask(
        &mut self,
        tree: &mut TreeDriver,
        path: &[u8],
        query: &LocationQuery,
        origin: RequestOrigin,
    ) {
        if self.suspended {
            let wait = self.settings.policy.waits.service;
            return self.deliver(tree, origin, ClusterAnswer::Wait(wait));
        }
        let token = self.pending_requests.token();
        let answer = self.resolve(tree, |resolver, now, out| match query {
            LocationQuery::Select { options, tried } => {
                resolver.select(token, path, *options, tried, now, out)
            }
            LocationQuery::Locate(options) => resolver.locate(token, path, *options, now, out),
            LocationQuery::Reserve(holder) => resolver.reserve(token, path, *holder, now, out),
        });
        if let Some(answer) = answer {
            return self.deliver(tree, origin, answer);
        }
        let gone = match &origin {
            RequestOrigin::Redirector { .. } => {
                self.pending_requests.wait_with_deadline(token, origin, tree.now() + ANSWER_OVERDUE)
            }
            _ => self.pending_requests.wait(token, origin),
        };
        self.resolver.abandon(gone);
    }

    /// Answers redirectors whose requests take long: each receives a promise with a number, or is
    /// asked to retry.
    fn answer_overdue(&mut self, tree: &mut TreeDriver) {
        let now = tree.now();
        while let Some((token, origin)) = self.pending_requests.next_overdue(now) {
            let RequestOrigin::Redirector { link, streamid, takes_later, .. } = origin else { continue };
            let id = match tree.connection(link) {
                Some(connection) if takes_later && !streamid.is_none() => connection.promises.one_more(),
                _ => None,
            };
            match cluster::late_answer(id, self.settings.policy.waits.lookup) {
                LateAnswer::Promise(id) => {
                    let promise = Response::now(WireAnswer::Waitresp { id: id.value() });
                    tree.put(link, |_, out| promise.encode(streamid, out));
                    let origin =
                        RequestOrigin::Redirector { link, streamid, takes_later, promised: Some(id) };
                    let gone = self.pending_requests.wait(token, origin);
                    self.resolver.abandon(gone);
                }
                LateAnswer::Wait(time) => {
                    // The answer would have no receiver, and a file would be placed for nobody.
                    self.resolver.abandon([token]);
                    let answer = WireAnswer::Wait { seconds: whole_seconds(time) };
                    respond_with(tree, link, streamid, None, answer);
                }
            }
        }
    }

    /// Delivers an answer to its requester.
    fn deliver(&mut self, tree: &mut TreeDriver, origin: RequestOrigin, answer: ClusterAnswer) {
        match origin {
            RequestOrigin::Client(_, tell) => tell(answer),
            RequestOrigin::Order(order) => self.answered_orders.push_back((*order, answer)),
            RequestOrigin::Redirector { link, streamid, promised, .. } => {
                respond(tree, link, streamid, promised, &answer);
            }
        }
    }

    /// Removes the next order whose location query is answered.
    pub(super) fn next_answered_order(&mut self) -> Option<(PendingOrder, ClusterAnswer)> {
        self.answered_orders.pop_front()
    }

    /// Handles a report of a child about files. Reports of nodes that have no slot yet are ignored.
    pub(super) fn child_message(
        &mut self,
        tree: &mut TreeDriver,
        link: ConnectionId,
        frame: &CmsFrame<'_>,
        message: &Wire<'_>,
    ) {
        let Some(slot) = tree.node().slot(link) else { return };
        match message {
            Wire::Lease(lease) => self.resolve(tree, |resolver, now, out| {
                resolver.have_leased(slot, lease.path, parent_messages::reported_lease(lease), now, out);
            }),
            Wire::Have(have) => {
                if let Some(files) = &mut self.shared_files {
                    files.appeared(have.path);
                }
                let pending = have.modifier.contains(HaveModifier::PENDING);
                let drains = tree.extensions(link).is_own() && have.modifier.contains(HaveModifier::DRAINING);
                self.resolve(tree, |resolver, now, out| match drains {
                    true => resolver.have_draining(slot, have.path, now, out),
                    false => resolver.have(slot, have.path, pending, now, out),
                });
            }
            Wire::Gone(gone) => {
                self.resolve(tree, |resolver, now, out| resolver.gone(slot, gone.path, now, out));
            }
            Wire::NotHere(not_here) => {
                self.resolve(tree, |resolver, now, out| resolver.not_here(slot, not_here.path, now, out));
            }
            Wire::Inventory(inventory) => {
                let pending = inventory.modifier.contains(InventoryModifier::PENDING);
                let is_first = inventory.modifier.contains(InventoryModifier::FIRST);
                self.presence.count_names(slot, is_first, inventory.paths().count());
                self.resolve(tree, |resolver, now, out| {
                    if is_first {
                        resolver.begin_list(slot);
                    }
                    inventory.paths().for_each(|path| resolver.inventory(slot, path, pending, now, out));
                    if inventory.modifier.contains(InventoryModifier::LAST) {
                        resolver.listed(slot);
                    }
                    if inventory.modifier.contains(InventoryModifier::LAST | InventoryModifier::COMPLETE) {
                        resolver.listed_completely(slot);
                    }
                });
                if tree.member(slot).is_some_and(inventory::is_passed_on) {
                    self.pass_on_inventory(tree, frame);
                }
            }
            _ => {}
        }
    }

    /// Handles the question of a parent about whether a path exists here.
    pub(super) fn parent_asks(
        &mut self,
        tree: &mut TreeDriver,
        parent: ParentQuery,
        modifier: StateModifier,
    ) {
        let quiet = modifier.contains(StateModifier::NO_REPLY);
        if quiet {
            renew_access_time(tree, self.resolver.cell().connected(), &parent.path);
        }
        let ask = StateAsk {
            refresh: modifier.contains(StateModifier::REFRESH),
            quiet,
            // The parents of a manager are meta managers.
            via_meta: modifier.contains(StateModifier::META) || self.settings.role == NodeRole::Manager,
        };
        let token = self.pending_requests.token();
        match self.resolve(tree, |resolver, now, out| resolver.state(token, &parent.path, ask, now, out)) {
            Some(reply) => self.answer_parent(tree, &parent, reply),
            None if quiet => {}
            None => self.pending_requests.wait_above(token, parent, tree.now()),
        }
    }

    /// Sends a parent the reply to its question.
    fn answer_parent(&mut self, tree: &mut TreeDriver, parent: &ParentQuery, reply: StateReply) {
        match reply {
            StateReply::Have { pending } => {
                let here = self.here(&parent.path, pending, tree.now());
                parent_messages::here(tree, parent, here);
            }
            StateReply::NotHere => {
                let has_ended = self.resolver.has_lease_ended(&parent.path, tree.now());
                parent_messages::not_here(tree, parent, has_ended);
            }
        }
    }

    /// Returns the state of a path in the form reported to parents.
    fn here(&mut self, path: &[u8], pending: bool, now: Duration) -> LocalPathState {
        let lease = if pending { self.resolver.lease_report(path, now) } else { None };
        if let Some(lease) = lease {
            return LocalPathState::Leased(lease);
        }
        LocalPathState::Present(match (pending, self.resolver.is_draining(path, now)) {
            (true, _) => HaveModifier::PENDING,
            (false, true) => HaveModifier::ONLINE | HaveModifier::DRAINING,
            (false, false) => HaveModifier::ONLINE,
        })
    }

    /// Handles the start or the end of a lease: a parent sends a client below this node to create a
    /// file.
    pub(super) fn leased(
        &mut self,
        tree: &mut TreeDriver,
        path: &LogicalPath,
        time: Duration,
        number: LeaseNumber,
    ) {
        let path = path.as_bytes();
        if !time.is_zero() {
            tree.note_lease();
        }
        self.resolve(tree, |resolver, now, out| resolver.lease(path, time, number, now, out));
    }

    /// Reports the leases below this node to a parent that has accepted it.
    pub(super) fn report_leases(&self, tree: &mut TreeDriver, link: ConnectionId) {
        let leases = self.resolver.running_leases(tree.now());
        parent_messages::report_leases(tree, link, &leases);
    }

    /// Requests the inventories of the children, because a parent that did not know this node wants
    /// its inventory.
    pub(super) fn inventory_wanted(&self, tree: &mut TreeDriver) {
        let sources: Vec<ConnectionId> =
            tree.node().members().into_iter().flat_map(inventory::sources).collect();
        sources.into_iter().for_each(|link| request_inventory(tree, link));
    }

    /// Forwards the inventory of a child to the parents. It only saves questions, and no request
    /// waits for it.
    fn pass_on_inventory(&self, tree: &mut TreeDriver, frame: &CmsFrame<'_>) {
        for link in tree.parents() {
            let room = |connection: &mut NodeConnection| {
                connection.extensions.contains(Extensions::INVENTORY)
                    && connection.outbox.waiting() < self.settings.outbox_bytes_max / 2
            };
            if tree.connection(link).is_some_and(room) {
                tree.put(link, |_, out| {
                    frame.relay(frame.header, out);
                    Ok(())
                });
            }
        }
    }

    /// Starts the look-ups in the shared files that the machine wants.
    pub(super) fn submit_looks(&mut self, tree: &mut TreeDriver) {
        let now = tree.now();
        while let (Some(path), Some(files)) = (self.wanted_looks.pop_front(), &mut self.shared_files) {
            match LogicalPath::parse(&path) {
                Ok(path) => files.look_at(path.without_slash(), StatReason::Machine, now),
                Err(_) => self.looked_up(tree, &path, LookupOutcome::Unknown),
            }
            self.take_findings(tree);
        }
        if let Some(files) = &mut self.shared_files {
            files.submit();
        }
    }

    /// Handles the result of a look-up in the shared files.
    pub(super) fn stat_finished(
        &mut self,
        tree: &mut TreeDriver,
        path: &LogicalPath,
        number: u64,
        presence: PathPresence,
    ) {
        if let Some(files) = &mut self.shared_files {
            files.stat_finished(path, number, presence, tree.now());
            self.take_findings(tree);
        }
    }

    fn take_findings(&mut self, tree: &mut TreeDriver) {
        while let Some(finding) = self.shared_files.as_mut().and_then(ServerFiles::next_finding) {
            let sight = match finding.presence {
                Some(PathPresence::Here { pending }) => LookupOutcome::Here { pending },
                Some(PathPresence::NotHere) => LookupOutcome::NotHere,
                Some(PathPresence::Unknown | PathPresence::Overloaded) => LookupOutcome::Unknown,
                None => LookupOutcome::Refused,
            };
            self.looked_up(tree, finding.path.as_bytes(), sight);
        }
    }

    fn looked_up(&mut self, tree: &mut TreeDriver, path: &[u8], sight: LookupOutcome) {
        self.resolve(tree, |resolver, now, out| resolver.lookup_finished(path, sight, now, out));
    }
}

/// Sends an answer of the machine to a redirector.
pub(super) fn respond(
    tree: &mut TreeDriver,
    link: ConnectionId,
    streamid: StreamId,
    promised: Option<MessageId>,
    answer: &ClusterAnswer,
) {
    if promised.is_some()
        && let Some(connection) = tree.connection(link)
    {
        connection.promises.kept();
    }
    let text;
    let answer = match answer {
        ClusterAnswer::Redirect { host, port, .. } => {
            WireAnswer::Redirect(EncodedRedirect { port: i32::from(*port), text: host.as_bytes() })
        }
        ClusterAnswer::Wait(time) => WireAnswer::Wait { seconds: whole_seconds(*time) },
        ClusterAnswer::Located(list) => {
            text = cluster::LocatedChild::text(list);
            WireAnswer::Data { value: 0, text: Some(&text) }
        }
        ClusterAnswer::Error(code, why) => WireAnswer::Error { code: *code, text: why.as_bytes() },
    };
    respond_with(tree, link, streamid, promised, answer);
}

/// Sends a response to a redirector, unless it asked for none.
pub(super) fn respond_with(
    tree: &mut TreeDriver,
    link: ConnectionId,
    streamid: StreamId,
    promised: Option<MessageId>,
    answer: WireAnswer<'_>,
) {
    if streamid.is_none() || tree.stage(link) != Some(ConnectionStage::Redirector) {
        return;
    }
    match promised {
        Some(id) => tree.put(link, |_, out| Response::later(answer).encode(id.streamid(), out)),
        None => tree.put(link, |_, out| Response::now(answer).encode(streamid, out)),
    }
}

/// Sends a redirector the error that no node here performs the requested operation.
pub(super) fn refuse_request(tree: &mut TreeDriver, link: ConnectionId, streamid: StreamId) {
    let text = b"badly formed or unsupported request";
    respond_with(tree, link, streamid, None, WireAnswer::Error { code: ErrorCode::INVALID, text });
}

/// Asks children to renew the access time of a file. It is a question without an answer, which
/// XRootD servers support, too.
pub(super) fn renew_access_time(tree: &mut TreeDriver, children: SlotMask, path: &[u8]) {
    for slot in children {
        let Some(link) = tree.link_of(slot) else { continue };
        let state = Wire::State(State { modifier: StateModifier::NO_REPLY, path });
        tree.put(link, |peer, out| state.encode(StreamId::NONE, peer, out));
    }
}

fn ask_children(tree: &mut TreeDriver, to: SlotMask, path: &[u8], refresh: bool, via_meta: bool) {
    let mut modifier = StateModifier::NONE;
    if refresh {
        modifier |= StateModifier::REFRESH;
    }
    if via_meta {
        modifier |= StateModifier::META;
    }
    let streamid = StreamId::of_path(path);
    for slot in to {
        let Some(link) = tree.link_of(slot) else { continue };
        tree.put(link, |peer, out| {
            let definite = peer.contains(Extensions::NOT_HERE);
            let modifier = if definite { modifier | StateModifier::DEFINITE } else { modifier };
            Wire::State(State { modifier, path }).encode(streamid, peer, out)
        });
    }
}

/// Sends a child the lease of a file.
fn send_lease(tree: &mut TreeDriver, slot: Slot, path: &[u8], time: Duration, number: LeaseNumber) {
    let Some(link) = tree.link_of(slot) else { return };
    let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let message = Wire::Lease(Lease { number: number.0, milliseconds, path });
    tree.put(link, |peer, out| message.encode(StreamId::NONE, peer, out));
}

/// Requests the inventory of the node at the other end of this connection.
fn request_inventory(tree: &mut TreeDriver, link: ConnectionId) {
    let nothing = PathBatch::default();
    let message = Wire::Inventory(nothing.message(InventoryModifier::WANTED));
    tree.put(link, |peer, out| message.encode(StreamId::NONE, peer, out));
}

/// Rounds up to at least one second, because XRootD redirectors take 0 for success.
fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX).clamp(1, i32::MAX as u32)
}
