//! Reports of a node about itself to its parents.
//!
//! The reports are separate from the search for a parent, because every role sends them after a
//! login.

use std::time::Duration;

use super::super::action::NodeAction;
use super::super::address::Address;
use super::super::connection_id::ConnectionId;
use super::super::limits::{ANSWERED, ESTABLISHED};
use super::super::member::{LoadReport, SpaceReport};
use super::super::message::{CellReport, LoginMessage, NodeMessage, StatusMessage};
use super::Membership;

use wire::cms::Extensions;
use wire::cms::flags::Mode;
use wire::cms::message::SpaceSums;

/// The maximum number of cells in one report, so that it fits a frame with the nodes that it names
/// as arrived.
const CELLS_PER_REPORT: usize = 32;

/// The maximum number of nodes named as arrived in one report.
const JOINED_PER_REPORT: usize = 512;

impl Membership {
    pub(super) fn load_message(&self) -> NodeMessage {
        let space = self.settings.login.space;
        // The usage of the disks is reported with the load, and measured with the space.
        let load = LoadReport { disk: space.used_percent, ..self.load };
        NodeMessage::Load { load, free_mb: space.free_mb }
    }

    pub(super) fn avail_message(&self) -> NodeMessage {
        let space = self.settings.login.space;
        NodeMessage::Avail { free_mb: space.free_mb, used_percent: space.used_percent, sums: self.sums }
    }

    /// Sends a new parent the state that the login did not contain.
    pub(super) fn introduce(&self, link: ConnectionId, peer: Extensions, out: &mut Vec<NodeAction>) {
        // The state may have changed between the login and its reply.
        out.push(NodeAction::Send { link, message: self.status_message(peer) });
        if self.load != LoadReport::default() {
            out.push(NodeAction::Send { link, message: self.load_message() });
        }
        if self.sums.is_some() {
            out.push(NodeAction::Send { link, message: self.avail_message() });
        }
    }

    /// Returns the status message. Real parents have no state for a draining node that still serves
    /// files which no other node has; for them such a node is suspended.
    fn status_message(&self, peer: Extensions) -> NodeMessage {
        let login = &self.settings.login;
        let serves = !login.mode.contains(Mode::SUSPEND) && (peer.is_own() || !self.draining);
        NodeMessage::Status(StatusMessage {
            serves: Some(serves),
            data_port: Some(login.data_port).filter(|port| serves && *port != 0),
            stages: Some(!login.mode.contains(Mode::NOSTAGE)),
            drains: self.drains().then_some(true),
            established: self.established,
            reset: false,
        })
    }

    fn send(&self, message: &NodeMessage, out: &mut Vec<NodeAction>) {
        for (link, _) in self.parents() {
            out.push(NodeAction::Send { link, message: message.clone() });
        }
    }

    /// Sets whether and where the node serves, and whether it can stage files. Reports changes to
    /// parents.
    pub fn set_condition(&mut self, serves: bool, stages: bool, data_port: u16, out: &mut Vec<NodeAction>) {
        let login = &mut self.settings.login;
        let before = (login.mode, login.data_port);
        login.data_port = data_port;
        for (bit, set) in [(Mode::SUSPEND, !serves), (Mode::NOSTAGE, !stages)] {
            login.mode = if set { login.mode | bit } else { login.mode.without(bit) };
        }
        if before != (login.mode, login.data_port) {
            self.send_status(None, out);
        }
    }

    /// Starts or ends draining of this node. Reports changes to parents.
    pub fn set_draining(&mut self, draining: bool, out: &mut Vec<NodeAction>) {
        if self.draining != draining {
            self.draining = draining;
            self.send_status(Some(self.drains()), out);
        }
    }

    /// Starts or ends draining of all nodes below. Reports changes to parents of our own; the
    /// protocol of others has no such state.
    pub fn set_drained_below(&mut self, drained: bool, out: &mut Vec<NodeAction>) {
        let before = self.drains();
        self.drained_below = drained;
        if before != self.drains() {
            let status = StatusMessage { drains: Some(self.drains()), ..StatusMessage::default() };
            for (link, _) in self.parents().filter(|(_, peer)| peer.is_own()) {
                out.push(NodeAction::Send { link, message: NodeMessage::Status(status) });
            }
        }
    }

    /// Notifies the parents that every manager knows this node, if that has become true. From then
    /// on they choose it for new files. The parent on `newest` receives it with the introduction.
    pub(super) fn establish(
        &mut self,
        newest: Option<ConnectionId>,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let attached = self.roots.iter().filter(|line| line.is_attached()).count();
        if attached == 0 {
            (self.established, self.established_at) = (false, None);
            return;
        }
        let due = *self.established_at.get_or_insert(now.saturating_add(ESTABLISHED));
        if !self.established && (attached == self.roots.len() || due <= now) {
            self.established = true;
            let status = StatusMessage { established: true, ..StatusMessage::default() };
            let takes = |peer: Extensions| peer.contains(Extensions::NEWCOMER);
            for (link, _) in self.parents().filter(|(link, peer)| takes(*peer) && Some(*link) != newest) {
                out.push(NodeAction::Send { link, message: NodeMessage::Status(status) });
            }
        }
    }

    fn drains(&self) -> bool {
        self.draining || self.drained_below
    }

    /// Notifies parents of our own that their knowledge about the files here is stale, whether they
    /// received it by a query or by a report.
    pub fn void(&self, out: &mut Vec<NodeAction>) {
        for (link, _) in self.parents().filter(|(_, peer)| peer.is_own()) {
            let message = NodeMessage::Status(StatusMessage { reset: true, ..StatusMessage::default() });
            out.push(NodeAction::Send { link, message });
        }
    }

    /// Reports whether the node is draining.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    fn send_status(&self, drains: Option<bool>, out: &mut Vec<NodeAction>) {
        for (link, peer) in self.parents() {
            let message = match self.status_message(peer) {
                NodeMessage::Status(status) => {
                    NodeMessage::Status(StatusMessage { drains: drains.or(status.drains), ..status })
                }
                other => other,
            };
            out.push(NodeAction::Send { link, message });
        }
    }

    /// Returns the content of the next login.
    pub fn login(&self) -> &LoginMessage {
        &self.settings.login
    }

    /// Sets the paths of the node for the next login.
    pub fn set_paths(&mut self, paths: String) {
        self.settings.login.paths = paths;
    }

    /// Returns the last reported space.
    pub fn space(&self) -> SpaceReport {
        self.settings.login.space
    }

    /// Sets the space of the node, and reports it to parents if `tell` is set.
    pub fn set_space(&mut self, space: SpaceReport, tell: bool, out: &mut Vec<NodeAction>) {
        self.settings.login.space = space;
        if tell {
            self.send(&self.avail_message(), out);
        }
    }

    /// Sets the sums of the space of all nodes below, for an inner node; the next report of the
    /// space contains them.
    pub fn set_sums(&mut self, sums: SpaceSums) {
        self.sums = Some(sums);
    }

    /// Returns the address at which clients enter the cluster, as received from the parent.
    pub fn door(&self) -> Option<&Address> {
        self.door.as_ref()
    }

    /// Reports whether this connection leads to a parent of our own.
    pub fn is_own(&self, link: ConnectionId) -> bool {
        self.parents().any(|(parent, peer)| parent == link && peer.is_own())
    }

    /// Returns the last reported sums of the space of all nodes below.
    pub fn sums(&self) -> Option<SpaceSums> {
        self.sums
    }

    /// Returns the last reported load.
    pub fn load(&self) -> LoadReport {
        self.load
    }

    /// Sets the load of the node, and reports it to parents if `tell` is set.
    pub fn set_load(&mut self, load: LoadReport, tell: bool, out: &mut Vec<NodeAction>) {
        self.load = load;
        if tell {
            self.send(&self.load_message(), out);
        }
    }

    /// Records that a parent sent a query for a file.
    pub fn note_query(&mut self, link: ConnectionId, now: Duration) {
        if let Some(which) = self.which(link)
            && let Some(line) = self.line(which)
        {
            line.queried_at = Some(now);
        }
    }

    /// Invalidates the parents' knowledge about the files here. It notifies the parents that sent
    /// queries since the last notice, and those that send none because they have a complete
    /// inventory.
    pub fn reset(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        let message = NodeMessage::Status(StatusMessage { reset: true, ..StatusMessage::default() });
        for line in self.roots.iter_mut().chain(&mut self.inner) {
            let Some(link) = line.link.filter(|_| line.is_attached()) else { continue };
            if line.queried_at.is_none() && !line.extensions.contains(Extensions::COMPLETE) {
                continue;
            }
            out.push(NodeAction::Send { link, message: message.clone() });
            line.queried_at.take_if(|queried_at| now > *queried_at + ANSWERED);
        }
    }

    /// Sends reports about cells to parents of our own: to all, or only to the one on `only`.
    pub fn report(&self, reports: &[CellReport], only: Option<ConnectionId>, out: &mut Vec<NodeAction>) {
        for (link, extensions) in self.parents() {
            if !extensions.is_own() || only.is_some_and(|only| only != link) {
                continue;
            }
            for part in parts(reports) {
                out.push(NodeAction::Send { link, message: NodeMessage::Occupancy(part.to_vec()) });
            }
        }
    }
}

/// Splits reports into batches that fit a frame.
fn parts(mut reports: &[CellReport]) -> Vec<&[CellReport]> {
    let mut parts = Vec::new();
    while !reports.is_empty() {
        let mut joined = 0;
        let fitting = reports.iter().take(CELLS_PER_REPORT).take_while(|report| {
            joined += report.joined.len();
            joined <= JOINED_PER_REPORT
        });
        let (part, rest) = reports.split_at(fitting.count().max(1));
        parts.push(part);
        reports = rest;
    }
    parts
}
