//! Drives the part of a data server in its cluster.
//!
//! It answers the questions of its parents from its disks, reports names that appear and disappear,
//! keeps the leases that parents grant, and carries out their orders.

use super::leases::SharedLeases;
use super::operations::Executor;
use super::parent_messages::{self, LocalPathState};
use super::pending_requests::ParentQuery;
use super::pending_stats::StatReason;
use super::server_files::{PathState, ServerFiles};
use super::settings::Settings;
use super::tree_driver::TreeDriver;
use base::LogicalPath;
use cluster::tree::{ConnectionId, Extensions, Mode};
use cluster::{LeaseNumber, OrderPermit};
use logical::PathPresence;
use std::sync::Arc;
use std::time::Duration;
use wire::cms::Message;
use wire::cms::flags::{HaveModifier, StateModifier};

/// Pause between a reset and the next list of all names, because more resets may follow.
const LIST_PAUSE: Duration = Duration::from_secs(10);

/// The files of a server, the files that clients are expected to create, and the executor of the
/// parents' orders.
pub(super) struct ServerDriver {
    /// `None`: the node is a member that has no files.
    server_files: Option<ServerFiles>,
    executor: Option<Executor>,
    /// Files that clients are expected to create here.
    leases: Arc<SharedLeases>,
    /// Maximum number of paths reported to a new parent; 0: none.
    inventory_max: usize,
    /// Set if names appear here only through this server.
    complete: bool,
    /// The exports of a proxy: it serves whatever its origin has there, and does not know what that is.
    proxied: Option<Vec<LogicalPath>>,
    /// The time of the next full list for the parents, after a reset made their knowledge void.
    list_at: Option<Duration>,
}

impl ServerDriver {
    pub(super) fn new(
        server_files: Option<ServerFiles>,
        executor: Option<Executor>,
        leases: Arc<SharedLeases>,
        settings: &Settings,
    ) -> Self {
        let (inventory_max, complete) = (settings.inventory_max, settings.complete_inventory);
        let proxied = settings.of_proxies.then(|| settings.exports.clone());
        Self { server_files, executor, leases, inventory_max, complete, proxied, list_at: None }
    }

    /// Returns the time at which [`Self::tick`] has work.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let looks = self.server_files.as_ref().and_then(ServerFiles::next_deadline);
        [looks, self.leases.next_deadline(), self.list_at].into_iter().flatten().min()
    }

    /// Does the work that is due.
    pub(super) fn tick(&mut self, tree: &mut TreeDriver) {
        let now = tree.now();
        if self.leases.next_deadline().is_some_and(|due| due <= now) {
            self.end_leases(tree);
        }
        if let Some(server_files) = &mut self.server_files {
            server_files.look_in_turn(now);
            self.take_findings(tree);
        }
        if self.list_at.take_if(|at| *at <= now).is_some() {
            tree.parents().into_iter().for_each(|link| self.tell_all(tree, link));
        }
        self.submit_looks();
    }

    /// Starts the disk look-ups that are due.
    pub(super) fn submit_looks(&mut self) {
        if let Some(server_files) = &mut self.server_files {
            server_files.submit();
        }
    }

    /// Handles the question of a parent about whether a path exists here.
    pub(super) fn parent_asks(
        &mut self,
        tree: &mut TreeDriver,
        parent: ParentQuery,
        modifier: StateModifier,
    ) {
        let parsed = LogicalPath::parse(&parent.path);
        // A question that asks for no reply gets none.
        if modifier.contains(StateModifier::NO_REPLY) {
            if let (Some(server_files), Ok(path)) = (&self.server_files, &parsed) {
                server_files.renew(path);
            }
            return;
        }
        if let Some(exports) = &self.proxied {
            return match parsed {
                Ok(path) if exports.iter().any(|export| path.is_within(export)) => {
                    self.answer_here(tree, &parent, false);
                }
                _ => self.answer_not_here(tree, &parent),
            };
        }
        if self.leases.is_running(&parent.path) {
            return self.answer_here(tree, &parent, true);
        }
        match parsed {
            Ok(path) => self.look_at(tree, path.without_slash(), StatReason::Answer(parent)),
            Err(_) => self.answer_not_here(tree, &parent),
        }
    }

    /// Records what the connected parents mean for creations: the address at which clients enter
    /// the cluster, and whether all parents grant leases.
    pub(super) fn set_parents(&self, tree: &TreeDriver) {
        self.leases.set_parents(tree.node().door(), tree.has_plain_parent());
    }

    fn look_at(&mut self, tree: &mut TreeDriver, path: LogicalPath, wanted: StatReason) {
        if let Some(server_files) = &mut self.server_files {
            server_files.look_at(path, wanted, tree.now());
            self.take_findings(tree);
        }
    }

    /// Handles the result of a disk look-up.
    pub(super) fn stat_finished(
        &mut self,
        tree: &mut TreeDriver,
        path: &LogicalPath,
        number: u64,
        presence: PathPresence,
    ) {
        if let Some(server_files) = &mut self.server_files {
            server_files.stat_finished(path, number, presence, tree.now());
            self.take_findings(tree);
        }
    }

    fn take_findings(&mut self, tree: &mut TreeDriver) {
        while let Some(finding) = self.server_files.as_mut().and_then(ServerFiles::next_finding) {
            self.report(tree, &finding);
        }
    }

    fn report(&mut self, tree: &mut TreeDriver, finding: &PathState) {
        let path = finding.path.as_bytes();
        match (&finding.wanted, finding.presence) {
            (StatReason::Answer(parent), Some(PathPresence::Here { pending })) => {
                self.leases.exists(path);
                self.answer_here(tree, parent, pending);
            }
            // A lease arrived during the look-up.
            (StatReason::Answer(parent), Some(PathPresence::NotHere)) if self.leases.is_running(path) => {
                self.answer_here(tree, parent, true);
            }
            (StatReason::Answer(parent), Some(PathPresence::NotHere)) => self.answer_not_here(tree, parent),
            (StatReason::News, Some(PathPresence::Here { pending })) => {
                self.leases.exists(path);
                if let Some(server_files) = &mut self.server_files {
                    server_files.appeared(path);
                }
                let here = self.here(path, pending);
                parent_messages::announce(tree, path, here);
            }
            // The client that is expected to create the file may be on its way.
            (StatReason::News, Some(PathPresence::NotHere)) if self.leases.is_running(path) => {}
            (StatReason::News, Some(PathPresence::NotHere)) => parent_messages::retract(tree, path),
            // The look-up queue is full because a disk hangs, so the parents' knowledge of changed
            // names is void.
            (StatReason::News, None) => self.reset(tree),
            // Parents rely on a report of each new name, unless a full list follows soon.
            (StatReason::News, Some(PathPresence::Unknown)) if self.complete && self.list_at.is_none() => {
                self.reset(tree);
            }
            // A parent does not take a missing reply for an absence. It asks again.
            (
                StatReason::Answer(_) | StatReason::News,
                Some(PathPresence::Unknown | PathPresence::Overloaded),
            )
            | (StatReason::Answer(_), None) => {}
            (StatReason::Machine | StatReason::Directory, _) => {}
        }
    }

    fn answer_here(&self, tree: &mut TreeDriver, parent: &ParentQuery, pending: bool) {
        parent_messages::here(tree, parent, self.here(&parent.path, pending));
    }

    fn answer_not_here(&self, tree: &mut TreeDriver, parent: &ParentQuery) {
        parent_messages::not_here(tree, parent, self.leases.has_ended(&parent.path));
    }

    /// Returns the state of a path in the form reported to parents.
    fn here(&self, path: &[u8], pending: bool) -> LocalPathState {
        let lease = if pending { self.leases.report(path) } else { None };
        let modifier = if pending { HaveModifier::PENDING } else { HaveModifier::ONLINE };
        lease.map_or(LocalPathState::Present(modifier), LocalPathState::Leased)
    }

    /// Handles the start or the end of a lease: a parent sends a client here to create a file.
    pub(super) fn leased(
        &self,
        tree: &mut TreeDriver,
        link: ConnectionId,
        path: &LogicalPath,
        time: Duration,
        number: LeaseNumber,
    ) {
        let stays = self.leases.order(path.as_bytes(), time, number, tree.node().door());
        if let Some(lease) = stays {
            parent_messages::report_lease(tree, link, path.as_bytes(), lease);
        }
    }

    /// Reports to the parents the state of the paths whose leases have ended.
    pub(super) fn end_leases(&mut self, tree: &mut TreeDriver) {
        for path in self.leases.take_ended() {
            if let Ok(path) = LogicalPath::parse(&path) {
                self.name_changed(tree, &path);
            }
        }
    }

    /// Handles a name that appeared, disappeared or was looked up without success.
    pub(super) fn name_changed(&mut self, tree: &mut TreeDriver, path: &LogicalPath) {
        let Some(server_files) = &mut self.server_files else { return };
        let path = path.without_slash();
        if tree.parents().is_empty() {
            return server_files.forget(&path);
        }
        server_files.changed(&path, tree.now());
        self.take_findings(tree);
    }

    /// Handles the loss of name changes, or the rename of a directory with its whole content. The
    /// parents' knowledge of this server is void, and look-ups in progress may predate the change.
    pub(super) fn names_lost(&mut self, tree: &mut TreeDriver) {
        self.reset(tree);
        if let Some(server_files) = &mut self.server_files {
            server_files.begin_anew(tree.now());
            self.take_findings(tree);
        }
    }

    /// Declares the parents' knowledge of this server void.
    fn reset(&mut self, tree: &mut TreeDriver) {
        tree.drive(|node, now, out| node.reset(now, out));
        if let (Some(server_files), true) = (&self.server_files, self.complete) {
            server_files.void_lists();
            self.list_at.get_or_insert(tree.now() + LIST_PAUSE);
        }
    }

    /// Sends the inventory to a parent that has accepted this node or requests it, if the parent
    /// supports that.
    pub(super) fn tell_all(&self, tree: &mut TreeDriver, link: ConnectionId) {
        parent_messages::report_leases(tree, link, &self.leases.running());
        let (Some(server_files), true) = (&self.server_files, self.inventory_max > 0) else { return };
        if let Some(connection) = tree.connection(link)
            && connection.extensions.contains(Extensions::INVENTORY)
        {
            // Until the next list, names that could not be looked up may be unreported.
            let complete = self.complete && self.list_at.is_none();
            server_files.tell_all(
                connection.outbox.clone(),
                connection.extensions,
                self.inventory_max,
                complete,
            );
        }
    }

    /// Carries out an order of a parent. Returns whether servers perform such an order.
    pub(super) fn execute(&self, permit: OrderPermit, message: &Message<'_>) -> bool {
        self.executor.as_ref().is_some_and(|executor| executor.run(permit, message))
    }

    /// Suspends this node, so that it accepts no clients, or resumes it.
    pub(super) fn suspend(&self, tree: &mut TreeDriver, suspended: bool) {
        let login = tree.node().memberships().first().map(|membership| membership.login());
        let Some((stages, port)) = login.map(|login| (!login.mode.contains(Mode::NOSTAGE), login.data_port))
        else {
            return;
        };
        tree.drive(|node, _, out| node.set_condition(!suspended, stages, port, out));
    }
}
