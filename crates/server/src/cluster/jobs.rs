//! Jobs of other threads for the engine: for clients, the storage, the administrator, and the
//! threads that measure health.

use super::administration::OrderTarget;
use super::engine::ClusterEngine;
use super::forward::Forward;
use super::health::HealthReport;
use super::orders;
use super::pending_order::OrderOrigin;
use super::pending_requests::{LocationQuery, RequestOrigin};
use super::prepares::{self, PrepareBatch};
use super::server_files::StatResult;
use super::space_totals::{self, SpaceFor};
use super::status::NodeStatus;
use base::LogicalPath;
use cluster::{ClusterAnswer, OrderPermit, Slot};
use vfs::Target;

impl ClusterEngine {
    /// Handles the query of a client for a node or for the locations of a file.
    pub(super) fn ask(&mut self, path: &[u8], query: &LocationQuery, origin: RequestOrigin) {
        if let Some(location) = &mut self.location {
            location.ask(&mut self.tree, path, query, origin);
        }
        self.exchange_effects();
    }

    /// Handles the request of a client to change names at all servers.
    pub(crate) fn client_orders(
        &mut self,
        permit: OrderPermit,
        forward: Forward,
        tell: impl FnOnce(Result<(), ClusterAnswer>) + Send + 'static,
    ) {
        if let Some(location) = &mut self.location {
            let client = OrderOrigin::Here(Box::new(tell));
            orders::change_names(location, &mut self.tree, permit, forward, client);
        }
    }

    /// Handles the request of a client to prepare files; `tell` receives whether any server does
    /// it.
    pub(crate) fn client_prepares(
        &mut self,
        whole: &PrepareBatch,
        targets: &[Target],
        tell: impl FnOnce(Result<(), ClusterAnswer>) + Send + 'static,
    ) {
        if let Some(location) = &mut self.location {
            prepares::for_client(location, &mut self.tree, whole, targets, Box::new(tell));
        }
    }

    /// Returns the space for files of this path, added up over the tree; `None` if no node exports
    /// it.
    pub fn space_for(&self, path: &[u8]) -> Option<SpaceFor> {
        space_totals::space_for(self.location.as_ref()?, &self.tree, path)
    }

    /// Applies a measurement of this node.
    pub(super) fn apply_health_report(&mut self, report: HealthReport) {
        self.tree.drive(|node, now, out| match report {
            HealthReport::Load { load, tell } => node.set_load(load, tell, out),
            HealthReport::Space { space, full: _, tell } => node.set_space(space, tell, out),
            HealthReport::List(list) => node.set_blacklist(list, now, out),
        });
    }

    /// Runs a job of another thread.
    pub(super) fn run(&mut self, job: impl FnOnce(&mut Self)) {
        job(self);
        self.route();
    }

    /// Handles the results of disk look-ups.
    pub(super) fn stats_finished(&mut self, looked: impl Iterator<Item = StatResult>) {
        for (path, number, presence) in looked {
            match (&mut self.location, &mut self.server) {
                (Some(location), _) => location.stat_finished(&mut self.tree, &path, number, presence),
                (None, Some(server)) => server.stat_finished(&mut self.tree, &path, number, presence),
                (None, None) => {}
            }
        }
        self.route();
    }

    /// Handles a name that appeared, disappeared or was looked up without success.
    pub(super) fn name_changed(&mut self, path: &LogicalPath) {
        if let Some(server) = &mut self.server {
            server.name_changed(&mut self.tree, path);
        }
        self.route();
    }

    /// Handles the loss of name changes, or the rename of a directory with its whole content.
    pub(super) fn names_lost(&mut self) {
        if let Some(server) = &mut self.server {
            server.names_lost(&mut self.tree);
        }
        self.route();
    }

    /// Handles the possible end of leases.
    pub(super) fn end_leases(&mut self) {
        if let Some(server) = &mut self.server {
            server.end_leases(&mut self.tree);
        }
    }

    /// Returns the state of this node.
    pub(crate) fn status(&self) -> NodeStatus {
        self.view().status()
    }

    /// Finds the node with the name given by the administrator; without a name, this node.
    ///
    /// # Errors
    /// The error message if no node matches, or several do.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<OrderTarget, String> {
        name.map_or(Ok(OrderTarget::Own), |name| self.status().find(name))
    }

    /// Suspends this node, so that it accepts no clients, or resumes it.
    pub(super) fn suspend(&mut self, suspended: bool) {
        self.suspended = suspended;
        if let Some(location) = &mut self.location {
            location.suspend(suspended);
            self.tree.drive(|node, now, out| node.suspend(suspended, now, out));
        } else {
            self.move_clients();
            if let Some(server) = &self.server {
                server.suspend(&mut self.tree, suspended);
            }
        }
    }

    /// Redirects the clients of this node elsewhere; files that no other node has are still served.
    pub(super) fn drain(&mut self, draining: bool) {
        self.draining = draining;
        self.tree.drive(|node, _, out| node.set_draining(draining, out));
    }

    /// Does the same while the origin of this node, a proxy, does not answer. Other proxies may reach it. If
    /// none does, the clients come here, and get an error.
    pub(super) fn set_origin_failed(&mut self, has_failed: bool) {
        self.origin_failed = has_failed;
        self.tree.drive(|node, _, out| node.set_origin_failed(has_failed, out));
    }

    /// Takes a child out of use, or into use again. Returns whether there is a child in this slot.
    pub(super) fn drain_child(&mut self, slot: u8, out_of_use: bool) -> bool {
        Slot::new(slot).is_some_and(|slot| self.tree.drain_child(slot, out_of_use))
    }

    /// Leaves the cluster.
    pub(super) fn leave(&mut self) {
        self.tree.leave();
    }
}
