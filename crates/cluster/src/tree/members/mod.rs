//! The parent side of the tree: logins, places, redirects and liveness of children.
//!
//! The responsibilities are split as follows, so that each file has one reason to change:
//!
//! | file | responsibility |
//! |---|---|
//! | here | the children: the ends of their connections, liveness, service, and orders about them |
//! | `admission` | a login from its arrival to its place |
//! | `seating` | the choice of a place: own cell, a cell below, or waiting |
//! | `parked` | logins that wait for a place |
//! | `contests` | logins with the identity of a connected node |
//! | `connections` | the connections by role, and the ways in which they end |
//! | `liveness` | pings, timeouts, the time for which places are kept |
//! | `service` | the quorum, and the time at which the cell is settled |
//! | `reports` | reports of children about themselves, and reports to the own parents |
//! | `reporter` | changes collected for reports to the own parents |
//! | `resets` | the rate limit for resets by a child |
//! | `orders` | orders of the administrator: black list, drained nodes |

mod admission;
mod connections;
mod contests;
mod liveness;
mod orders;
mod parked;
mod reporter;
mod reports;
mod resets;
mod seating;
mod service;

use std::time::Duration;

use base::IdMap;
pub use reporter::Totals;

use super::action::{ChildChange, NodeAction, Notice};
use super::address::Address;
use super::blacklist::{Blacklist, BlacklistVerdict};
use super::cell_directory::{CellDirectory, FreeSlots};
use super::connection_id::ConnectionId;
use super::limits::ORPHANED;
use super::member::ClusterMember;
use super::member_slots::MemberSlots;
use super::message::{LoginRefusal, NodeMessage};
use super::parent::ParentSettings;
use crate::{CELL_SLOTS, Slot, SlotMask};
use connections::{ConnectionRole, NodeConnections};
use contests::Contests;
use liveness::Liveness;
use orders::NodeOrders;
use parked::ParkedLogins;
use reporter::Reporter;
use resets::Resets;
use service::CellService;

/// The distance of this node, a supervisor, from a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RootDistance {
    /// It is a root, or a child of one.
    Near,
    /// Its parent is a supervisor; supervisors cannot join below it.
    Far,
    /// It has been without a parent since this time.
    Alone(Duration),
}

/// The children of this node and the logins that wait for a place.
#[derive(Debug)]
pub struct Members {
    settings: ParentSettings,
    cell: MemberSlots,
    directory: CellDirectory,
    waiting: ParkedLogins,
    contests: Contests,
    links: NodeConnections,
    liveness: Liveness,
    service: CellService,
    orders: NodeOrders,
    /// Children that a cell below has accepted although their connection here appears to be up,
    /// with the time since then.
    elsewhere: IdMap<Slot, Duration>,
    reporter: Reporter,
    resets: Resets,
    standing: RootDistance,
    /// The last arrival of a supervisor.
    last_parent: Duration,
}

impl Members {
    /// Creates a parent without children.
    pub fn new(settings: ParentSettings, now: Duration) -> Self {
        let alone = settings.acceptor.is_supervisor();
        Self {
            cell: MemberSlots::default(),
            directory: CellDirectory::default(),
            waiting: ParkedLogins::default(),
            contests: Contests::default(),
            links: NodeConnections::default(),
            liveness: Liveness::new(&settings),
            service: CellService::new(&settings, now),
            orders: NodeOrders::default(),
            elsewhere: IdMap::default(),
            reporter: Reporter::new(alone),
            resets: Resets::default(),
            standing: if alone { RootDistance::Alone(now) } else { RootDistance::Near },
            last_parent: now,
            settings,
        }
    }

    /// Returns the settings of the start.
    pub fn settings(&self) -> &ParentSettings {
        &self.settings
    }

    /// Returns the child in a slot.
    pub fn member(&self, slot: Slot) -> Option<&ClusterMember> {
        self.cell.get(slot)
    }

    /// Returns all children, connected or remembered.
    pub fn members(&self) -> impl Iterator<Item = (Slot, &ClusterMember)> {
        self.cell.iter()
    }

    /// Returns the alternates of the children.
    pub fn alternates(&self) -> impl Iterator<Item = (Slot, &ClusterMember)> {
        self.cell.alternates()
    }

    /// Returns the slots of connected children.
    pub fn online(&self) -> SlotMask {
        self.cell.online()
    }

    /// Returns the slots that are in use by connected or remembered children.
    pub fn used(&self) -> SlotMask {
        self.cell.used()
    }

    /// Returns the cells below.
    pub fn directory(&self) -> &CellDirectory {
        &self.directory
    }

    /// Returns the number of logins that wait for a cell.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of connections of children, of alternates and of waiting logins.
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    /// Sets the address at which clients enter the cluster, as a supervisor received it from its
    /// parent.
    pub fn set_door(&mut self, door: Option<Address>) {
        if self.settings.acceptor.is_supervisor() {
            self.settings.door = door;
        }
    }

    /// Returns the slot of a connection; `None` if it does not belong to a child.
    pub fn slot(&self, link: ConnectionId) -> Option<Slot> {
        self.links.slot(link)
    }

    /// Reports whether the connection belongs to a node, accepted or waiting.
    pub fn knows(&self, link: ConnectionId) -> bool {
        self.links.contains(link)
    }

    /// Reports whether clients are served: enough children are connected and no order forbids
    /// service.
    pub fn serves(&self) -> bool {
        self.service.serves()
    }

    /// Reports whether all expected nodes appear to be connected. Only then a missing reply from
    /// all children means that a file does not exist.
    pub fn is_settled(&self, now: Duration) -> bool {
        self.service.is_settled(|| self.seats().known_nodes(), now)
    }

    /// Returns the places of the own cell, for reports to parents.
    pub(super) fn places(&self) -> FreeSlots {
        let (used, parents) = (self.cell.used().len(), self.cell.parents().len());
        FreeSlots { free: (CELL_SLOTS - used) as u8, parents: parents as u8, leaves: (used - parents) as u8 }
    }

    /// Handles the end of a node's connection.
    pub fn closed(&mut self, link: ConnectionId, now: Duration, out: &mut Vec<NodeAction>) {
        match self.links.remove(link) {
            Some(ConnectionRole::Child(slot)) => self.lost(slot, now, out),
            Some(ConnectionRole::Alternate(_)) => {
                self.cell.dismiss(link);
            }
            Some(ConnectionRole::Parked) => drop(self.waiting.remove(link)),
            Some(ConnectionRole::Contest) => self.contests.forget(link),
            None => {}
        }
    }

    /// Handles the loss of a child's connection.
    fn lost(&mut self, slot: Slot, now: Duration, out: &mut Vec<NodeAction>) {
        self.cells_lost(slot, now);
        let went = self.elsewhere.remove(&slot);
        let went = went.is_some_and(|at| self.cell.get(slot).is_some_and(|member| member.heard <= at));
        self.cell.lose(slot, now);
        if let Some(link) = self.cell.get(slot).and_then(|member| member.link) {
            // The alternate takes over; it has the same files as the lost node.
            self.links.assign(link, ConnectionRole::Child(slot));
            out.push(NodeAction::Child { slot, change: ChildChange::Condition });
        } else if went {
            // The child is not lost: it has its place below, so its slot is freed at once.
            self.free_moved(slot, now, out);
        } else if self.settings.drop.is_zero() {
            out.push(NodeAction::Child { slot, change: ChildChange::Lost });
            self.free(slot, now, out);
        } else {
            out.push(NodeAction::Child { slot, change: ChildChange::Lost });
            self.liveness.wake(now + self.liveness.kept_for(slot));
        }
        self.contest_won(slot, now, out);
        self.review(now, out);
    }

    /// Empties the slot of a node that a cell below has accepted. Nodes whose slots are freed count
    /// as on their way to a cell.
    fn free_moved(&mut self, slot: Slot, now: Duration, out: &mut Vec<NodeAction>) {
        let node = self.cell.get(slot).map(|member| member.identity.id.digest());
        self.free(slot, now, out);
        out.extend(node.map(|node| NodeAction::JoinedBelow { nodes: vec![node] }));
    }

    /// Empties a slot. The node that was connected there has its notice already.
    fn free(&mut self, slot: Slot, now: Duration, out: &mut Vec<NodeAction>) {
        self.elsewhere.remove(&slot);
        self.liveness.end_first_wait(slot);
        if let Some(member) = self.cell.take(slot) {
            if let Some(link) = member.link {
                self.links.remove(link);
            }
            self.cells_lost(slot, now);
            self.reporter.changed(now);
            out.push(NodeAction::Child { slot, change: ChildChange::Freed });
        }
    }

    /// Records that the cells below a slot are unreachable.
    fn cells_lost(&mut self, slot: Slot, now: Duration) {
        for id in self.directory.remove_below(slot) {
            self.reporter.gone(id, now);
        }
    }

    /// Checks whether the last change starts or stops service, and notifies the nodes concerned.
    fn review(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        if let Some(until) = service::note_service(&mut self.cell, now) {
            self.liveness.wake(until);
        }
        if self.service.review(self.cell.active().len(), self.minimum(now), now) {
            out.push(NodeAction::Service { serves: self.service.serves() });
        }
        self.release(now, out);
    }

    /// Applies a new distance from the root: this node, a supervisor, found a parent or lost the
    /// last one.
    pub fn stand(&mut self, standing: RootDistance, now: Duration, out: &mut Vec<NodeAction>) {
        self.standing = standing;
        match standing {
            RootDistance::Near => {}
            RootDistance::Far => {
                // Supervisors below would make the tree deeper than its limit.
                for slot in self.cell.parents() {
                    self.send_away(slot, now, out);
                }
            }
            RootDistance::Alone(_) => self.liveness.wake(now + ORPHANED),
        }
    }

    /// Ends a child's membership without naming another place.
    fn send_away(&mut self, slot: Slot, now: Duration, out: &mut Vec<NodeAction>) {
        let link = self.cell.get(slot).and_then(|member| member.link);
        if let Some(link) = link {
            self.links.redirect(link, Vec::new(), out);
        }
        self.free(slot, now, out);
        self.review(now, out);
    }

    /// Records that bytes arrived on a connection.
    pub fn note_received(&mut self, link: ConnectionId, now: Duration, out: &mut Vec<NodeAction>) {
        match self.links.role(link) {
            Some(ConnectionRole::Child(slot)) => {
                self.liveness.end_first_wait(slot);
                if let Some(member) = self.cell.get_mut(slot) {
                    member.heard = now;
                }
                if !self.contests.is_empty() {
                    self.contest_lost(slot, out);
                }
            }
            Some(ConnectionRole::Alternate(_)) => {
                if let Some(member) = self.cell.alternate_mut(link) {
                    member.heard = now;
                }
            }
            Some(ConnectionRole::Parked | ConnectionRole::Contest) | None => {}
        }
    }

    /// Sends due pings, closes timed-out connections, and frees places at the end of their time.
    fn check_health(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        if !self.liveness.take_due(now) {
            return;
        }
        for slot in self.cell.used() {
            self.check_child(slot, now, out);
        }
        for link in self.liveness.silent_alternates(&self.cell, now) {
            self.cell.dismiss(link);
            self.links.close(link, out);
        }
        self.liveness.ping_alternates(&mut self.cell, now, out);
        self.review(now, out);
        if let RootDistance::Alone(since) = self.standing {
            if now < since + ORPHANED {
                self.liveness.wake(since + ORPHANED);
            } else {
                // Parents cannot find files below this node, so its children are redirected
                // elsewhere.
                for slot in self.cell.used() {
                    self.send_away(slot, now, out);
                }
            }
        }
    }

    fn check_child(&mut self, slot: Slot, now: Duration, out: &mut Vec<NodeAction>) {
        let Some(member) = self.cell.get_mut(slot) else { return };
        let Some(link) = member.link else {
            let due = member.since + self.liveness.kept_for(slot);
            if due > now {
                return self.liveness.wake(due);
            }
            self.free(slot, now, out);
            return self.review(now, out);
        };
        if self.liveness.is_silent(member, now) {
            out.push(NodeAction::Notice(Notice::Silent { address: member.address.clone() }));
            self.links.close(link, out);
            return self.lost(slot, now, out);
        }
        self.liveness.ping(link, member, now, out);
    }

    /// Replaces the black list: banned children are disconnected at once, waiting logins too.
    pub fn set_blacklist(&mut self, list: Blacklist, now: Duration, out: &mut Vec<NodeAction>) {
        self.orders.blacklist = list;
        for slot in self.cell.used() {
            let Some(member) = self.cell.get(slot) else { continue };
            let verdict = self.orders.verdict(member);
            if verdict == BlacklistVerdict::Fine {
                continue;
            }
            if let Some(link) = member.link {
                let message = match verdict {
                    // An error would not belong to a request now: the node gets it at its next
                    // login.
                    BlacklistVerdict::Elsewhere(hosts) if member.is_own() => {
                        NodeMessage::Try { hosts, permanent: true }
                    }
                    _ => NodeMessage::Disc,
                };
                out.push(NodeAction::Send { link, message });
                self.links.close(link, out);
            }
            self.free(slot, now, out);
        }
        for parents in [true, false] {
            let banned = |member: &ClusterMember| self.orders.verdict(member) != BlacklistVerdict::Fine;
            for link in self.waiting.of(parents).links(banned) {
                self.waiting.remove(link);
                let refusal =
                    LoginRefusal { banned: true, text: "this node is on the black list".to_owned() };
                out.push(NodeAction::Send { link, message: NodeMessage::Refusal(refusal) });
                self.links.close(link, out);
            }
        }
        self.review(now, out);
    }

    /// Drains a child, or ends that: its clients move to others, and no connection is cut. `false`
    /// if there is no such child.
    pub fn drain(&mut self, slot: Slot, draining: bool, out: &mut Vec<NodeAction>) -> bool {
        self.orders.drain(&mut self.cell, slot, draining, out)
    }

    /// Reports whether there are children and all of them are draining.
    pub fn all_drain(&self) -> bool {
        let mut active = self.cell.iter().filter(|(_, member)| member.is_active()).peekable();
        active.peek().is_some() && active.all(|(_, member)| member.condition.drains())
    }

    /// Returns the ids of nodes that are drained by order, connected or not.
    pub fn drained(&self) -> impl Iterator<Item = &str> {
        self.orders.drained()
    }

    /// Sets the nodes that were drained when this one ended: they get the order again when they
    /// join.
    pub fn set_drained(&mut self, ids: impl IntoIterator<Item = String>) {
        self.orders.set_drained(ids);
    }

    /// Suspends service of all nodes below, or resumes it.
    pub fn suspend(&mut self, suspended: bool, now: Duration, out: &mut Vec<NodeAction>) {
        self.service.suspend(suspended);
        self.review(now, out);
    }

    /// Returns the quorum: the least number of active children for service.
    pub fn minimum(&self, now: Duration) -> usize {
        self.service.quorum(&self.cell, self.liveness.unheard(), now)
    }

    /// Returns the time of the next work for [`tick`](Self::tick).
    pub fn deadline(&self) -> Option<Duration> {
        [
            self.liveness.deadline(),
            self.contests.deadline(),
            self.waiting.deadline(),
            self.directory.deadline(),
            self.service.settles_at(),
            self.reporter.due(),
            self.resets.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does the work that is due.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        self.settle_contests(now, out);
        for slot in self.resets.take_due(now) {
            out.push(NodeAction::Child { slot, change: ChildChange::Reset });
        }
        self.service.settle(now);
        self.check_health(now, out);
        let relaxed = self.waiting.take_relaxed(now);
        let mut nodes = Vec::new();
        let freed = self.directory.age(now, &mut nodes);
        if !nodes.is_empty() {
            out.push(NodeAction::JoinedBelow { nodes });
        }
        if freed || relaxed {
            self.release(now, out);
        }
        self.check_waiting(now, out);
    }
}
