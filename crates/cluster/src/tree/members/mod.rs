//! The parent side of the tree: logins, places, redirects and liveness of children.
//!
//! The responsibilities are split as follows, so that each file has one reason to change:
//!
//! | file | responsibility |
//! |---|---|
//! | here | the state, connections and their ends, service |
//! | `login` | a login from its arrival to its place |
//! | `seating` | the choice of a place: own cell, a cell below, or waiting |
//! | `health` | pings, timeouts, places kept for lost children |
//! | `reporter` | changes collected for reports to the own parents |
//! | `reports` | reports of children about themselves, and reports to the own parents |
//! | `resets` | the rate limit for resets by a child |
//! | `orders` | orders of the administrator: black list, drain, suspend |

mod health;
mod login;
mod orders;
mod reporter;
mod reports;
mod resets;
mod seating;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

pub use reporter::Totals;

use super::action::{ChildChange, NodeAction, Notice, RefusalReason};
use super::address::Address;
use super::blacklist::Blacklist;
use super::cell_directory::{CellDirectory, FreeSlots};
use super::connection_id::ConnectionId;
use super::limits::{DROP_UNHEARD, FIRST_START, ORPHANED, SETTLE, SETTLE_MAX, STABLE};
use super::member::ClusterMember;
use super::member_slots::MemberSlots;
use super::message::NodeMessage;
use super::parent::ParentSettings;
use super::parking::{Parked, Parking};
use super::role::AcceptorRole;
use crate::{CELL_SLOTS, Slot, SlotMask};
use reporter::Reporter;
use resets::Resets;

/// The role of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnectionRole {
    /// A child.
    Child(Slot),
    /// An alternate, which stands by for a child.
    Alternate(Slot),
    /// A login that waits for a cell.
    Parked,
    /// A login that waits until the older connection of the same node proves to be dead.
    Contest,
}

/// A login with the identity of a connected node.
#[derive(Debug)]
struct Contest {
    link: ConnectionId,
    member: Box<ClusterMember>,
    slot: Slot,
    due: Duration,
}

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
    contests: Vec<Contest>,
    links: HashMap<ConnectionId, ConnectionRole>,
    /// Children that have sent nothing since their login.
    unheard: SlotMask,
    /// Children that a cell below has accepted although their connection here appears to be up,
    /// with the time since then.
    elsewhere: HashMap<Slot, Duration>,
    blacklist: Blacklist,
    reporter: Reporter,
    resets: Resets,
    standing: RootDistance,
    suspended_by_order: bool,
    /// Ids of nodes that the administrator drains here.
    drained: BTreeSet<String>,
    serves: bool,
    began: Duration,
    /// The last arrival of a supervisor. For a while after it, places at the root are kept for
    /// further supervisors.
    last_parent: Duration,
    /// The last arrival of any node.
    last_arrival: Duration,
    /// The time since which it serves without being settled.
    unsettled: Option<Duration>,
    /// The time at which it stopped serving, and the value of `unsettled` then.
    stopped: Option<(Duration, Option<Duration>)>,
    /// The time at which reserved places are given to waiting logins.
    relax_at: Option<Duration>,
    health_at: Option<Duration>,
    warned_full: bool,
    releasing: bool,
}

/// Logins that are held back.
#[derive(Debug, Default)]
struct ParkedLogins {
    parents: Parking,
    leaves: Parking,
}

impl ParkedLogins {
    fn of(&self, parents: bool) -> &Parking {
        if parents { &self.parents } else { &self.leaves }
    }

    fn of_mut(&mut self, parents: bool) -> &mut Parking {
        if parents { &mut self.parents } else { &mut self.leaves }
    }
}

impl Members {
    /// Creates a parent without children.
    pub fn new(settings: ParentSettings, now: Duration) -> Self {
        let alone = settings.acceptor == AcceptorRole::Supervisor;
        Self {
            settings,
            cell: MemberSlots::default(),
            directory: CellDirectory::default(),
            waiting: ParkedLogins::default(),
            contests: Vec::new(),
            links: HashMap::new(),
            unheard: SlotMask::EMPTY,
            elsewhere: HashMap::new(),
            blacklist: Blacklist::default(),
            reporter: Reporter::new(alone),
            resets: Resets::default(),
            standing: if alone { RootDistance::Alone(now) } else { RootDistance::Near },
            suspended_by_order: false,
            drained: BTreeSet::new(),
            serves: false,
            began: now,
            last_parent: now,
            last_arrival: now,
            unsettled: None,
            stopped: None,
            relax_at: None,
            health_at: None,
            warned_full: false,
            releasing: false,
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
        self.waiting.leaves.len() + self.waiting.parents.len()
    }

    /// Returns the number of connections of children, of alternates and of waiting logins.
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    /// Sets the address at which clients enter the cluster, as a supervisor received it from its
    /// parent.
    pub fn set_door(&mut self, door: Option<Address>) {
        if self.settings.acceptor == AcceptorRole::Supervisor {
            self.settings.door = door;
        }
    }

    /// Returns the slot of a connection; `None` if it does not belong to a child.
    pub fn slot(&self, link: ConnectionId) -> Option<Slot> {
        match self.links.get(&link) {
            Some(ConnectionRole::Child(slot)) => Some(*slot),
            _ => None,
        }
    }

    /// Reports whether the connection belongs to a node, accepted or waiting.
    pub fn knows(&self, link: ConnectionId) -> bool {
        self.links.contains_key(&link)
    }

    /// Reports whether clients are served: enough children are connected and no order forbids
    /// service.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// Reports whether all expected nodes appear to be connected. Only then a missing reply from
    /// all children means that a file does not exist.
    pub fn is_settled(&self, now: Duration) -> bool {
        let complete = self.settings.expected > 0 && self.known() >= self.settings.expected;
        self.serves && (complete || self.settles_at().is_none_or(|at| at <= now))
    }

    /// Returns the time at which the cell is settled if no further node arrives; `None` if it is
    /// settled or does not serve. It stays settled: a node that arrives later is queried from then
    /// on.
    fn settles_at(&self) -> Option<Duration> {
        let since = self.unsettled?;
        let settles = (self.last_arrival + SETTLE).clamp(since, since + SETTLE_MAX);
        let first_start = if self.settings.first_start { FIRST_START } else { Duration::ZERO };
        Some(settles.max(self.began + first_start))
    }

    /// Returns the number of known nodes: children, waiting logins, and the children of reported
    /// cells.
    fn known(&self) -> usize {
        let below = self
            .directory
            .entries()
            .iter()
            .map(|entry| usize::from(entry.places.leaves) + usize::from(entry.places.parents));
        self.cell.used().len() + self.waiting() + below.sum::<usize>()
    }

    /// Returns the places of the own cell, for reports to parents.
    pub(super) fn places(&self) -> FreeSlots {
        let (used, parents) = (self.cell.used().len(), self.cell.parents().len());
        FreeSlots { free: (CELL_SLOTS - used) as u8, parents: parents as u8, leaves: (used - parents) as u8 }
    }

    /// Handles the end of a node's connection.
    pub fn closed(&mut self, link: ConnectionId, now: Duration, out: &mut Vec<NodeAction>) {
        match self.links.remove(&link) {
            Some(ConnectionRole::Child(slot)) => self.lost(slot, now, out),
            Some(ConnectionRole::Alternate(_)) => {
                self.cell.dismiss(link);
            }
            Some(ConnectionRole::Parked) => drop(self.take_waiting(link)),
            Some(ConnectionRole::Contest) => self.contests.retain(|contest| contest.link != link),
            None => {}
        }
    }

    fn take_waiting(&mut self, link: ConnectionId) -> Option<Parked> {
        self.waiting.leaves.release(link).or_else(|| self.waiting.parents.release(link))
    }

    /// Ends a connection from this side.
    fn close(&mut self, link: ConnectionId, out: &mut Vec<NodeAction>) {
        self.links.remove(&link);
        out.push(NodeAction::Close { link });
    }

    /// Handles the loss of a child's connection.
    fn lost(&mut self, slot: Slot, now: Duration, out: &mut Vec<NodeAction>) {
        self.cells_lost(slot, now);
        let went = self.elsewhere.remove(&slot);
        let went = went.is_some_and(|at| self.cell.get(slot).is_some_and(|member| member.heard <= at));
        self.cell.lose(slot, now);
        if let Some(link) = self.cell.get(slot).and_then(|member| member.link) {
            // The alternate takes over; it has the same files as the lost node.
            self.links.insert(link, ConnectionRole::Child(slot));
            out.push(NodeAction::Child { slot, change: ChildChange::Condition });
        } else if went {
            // The child is not lost: it has its place below, so its slot is freed at once.
            self.free_moved(slot, now, out);
        } else if self.settings.drop.is_zero() {
            out.push(NodeAction::Child { slot, change: ChildChange::Lost });
            self.free(slot, now, out);
        } else {
            out.push(NodeAction::Child { slot, change: ChildChange::Lost });
            self.wake_health(now + self.kept_for(slot));
        }
        self.contest_won(slot, now, out);
        self.review(now, out);
    }

    /// Returns the time for which the place of a lost child is kept.
    fn kept_for(&self, slot: Slot) -> Duration {
        let longest = self.settings.drop;
        if self.unheard.contains(slot) { longest.min(DROP_UNHEARD) } else { longest }
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
        self.unheard.remove(slot);
        if let Some(member) = self.cell.take(slot) {
            if let Some(link) = member.link {
                self.links.remove(&link);
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
        self.note_service(now);
        let enough = self.cell.active().len() >= self.minimum(now);
        let serves = enough && !self.suspended_by_order;
        if serves != self.serves {
            self.serves = serves;
            if serves {
                // A short interruption of service is not a new start: children lost in it are
                // expected anyway.
                let short = self.stopped.take().filter(|(at, _)| now < *at + STABLE);
                self.unsettled = short.map_or(Some(now), |(_, unsettled)| unsettled);
            } else {
                self.stopped = Some((now, self.unsettled.take()));
            }
            out.push(NodeAction::Service { serves });
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
            RootDistance::Alone(_) => self.wake_health(now + ORPHANED),
        }
    }

    /// Ends a child's membership without naming another place.
    fn send_away(&mut self, slot: Slot, now: Duration, out: &mut Vec<NodeAction>) {
        let link = self.cell.get(slot).and_then(|member| member.link);
        if let Some(link) = link {
            out.push(NodeAction::Send {
                link,
                message: NodeMessage::Try { hosts: Vec::new(), permanent: false },
            });
            self.close(link, out);
        }
        self.free(slot, now, out);
        self.review(now, out);
    }

    fn refuse(&mut self, link: ConnectionId, host: &str, reason: RefusalReason, out: &mut Vec<NodeAction>) {
        self.links.remove(&link);
        out.push(NodeAction::Notice(Notice::Refused { host: host.to_owned(), reason }));
        out.push(NodeAction::Close { link });
    }

    /// Returns the time of the next work for [`tick`](Self::tick).
    pub fn deadline(&self) -> Option<Duration> {
        let contests = self.contests.iter().map(|contest| contest.due).min();
        [
            self.health_at,
            contests,
            self.waiting.leaves.deadline(),
            self.waiting.parents.deadline(),
            self.directory.deadline(),
            self.relax_at,
            self.settles_at(),
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
        if self.settles_at().is_some_and(|at| at <= now) {
            self.unsettled = None;
        }
        self.check_health(now, out);
        let relaxed = self.relax_at.take_if(|due| *due <= now).is_some();
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
