//! A parent's side of the tree: who gets a place, who is sent where, who is alive.
//!
//! | file | what it holds |
//! |---|---|
//! | here | the state, connections and their ends, service |
//! | `login` | a login from its arrival to its place |
//! | `seating` | which place: own cell, a cell below, or waiting |
//! | `health` | pings, silence, places kept for the lost |
//! | `reports` | what children say about themselves, and what goes up to the own parents |
//! | `resets` | how often a child may say that all it said is void |
//! | `orders` | what the administrator orders: black list, drain, suspend |

mod health;
mod login;
mod orders;
mod reports;
mod resets;
mod seating;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

pub use reports::Totals;

use super::action::{Action, ChildChange, Notice, RefusalReason};
use super::address::Address;
use super::blacklist::Blacklist;
use super::cell::Cell;
use super::directory::{Directory, Places};
use super::limits::{DROP_UNHEARD, FIRST_START, ORPHANED, SETTLE, SETTLE_MAX, STABLE};
use super::link::LinkId;
use super::member::Member;
use super::message::Message;
use super::parent::ParentSettings;
use super::parking::{Parked, Parking};
use super::role::Acceptor;
use crate::{CELL_SLOTS, Slot, SlotMask};
use reports::Reporter;
use resets::Resets;

/// Where a connection comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address.
    pub ip: IpAddr,
    /// How others reach the node: a name if one is known without asking, else the address as text.
    pub host: String,
}

/// What a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Position {
    /// A child.
    Child(Slot),
    /// One that stands by for a child.
    Alternate(Slot),
    /// A login that waits for a cell.
    Parked,
    /// A login that waits for the older connection of the same node to show that it is dead.
    Contest,
}

/// A login whose identity is connected already.
#[derive(Debug)]
struct Contest {
    link: LinkId,
    member: Box<Member>,
    slot: Slot,
    due: Duration,
}

/// How far this node, being a supervisor, is from a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is a root, or child of one.
    Near,
    /// Its parent is a supervisor: no room for supervisors below it.
    Far,
    /// It has had no parent since then.
    Alone(Duration),
}

/// The children of this node and those who want to be.
#[derive(Debug)]
pub struct Members {
    settings: ParentSettings,
    cell: Cell,
    directory: Directory,
    waiting: Waiting,
    contests: Vec<Contest>,
    links: HashMap<LinkId, Position>,
    /// Children that have said nothing since their login.
    unheard: SlotMask,
    /// Children that a cell below has taken in, while their connection here seems to stand: since when.
    elsewhere: HashMap<Slot, Duration>,
    blacklist: Blacklist,
    reporter: Reporter,
    resets: Resets,
    standing: Standing,
    suspended_by_order: bool,
    /// Ids of nodes that the administrator has taken out of use here.
    drained: BTreeSet<String>,
    serves: bool,
    began: Duration,
    /// When a supervisor came last: for a while after it, places at the root are kept for more of them.
    last_parent: Duration,
    /// When anybody came last.
    last_arrival: Duration,
    /// Since when it serves, while it is not settled.
    unsettled: Option<Duration>,
    /// When it stopped to serve, and what `unsettled` was then.
    stopped: Option<(Duration, Option<Duration>)>,
    /// When places kept back are given to those who wait.
    relax_at: Option<Duration>,
    health_at: Option<Duration>,
    warned_full: bool,
    releasing: bool,
}

/// Logins held back.
#[derive(Debug, Default)]
struct Waiting {
    parents: Parking,
    leaves: Parking,
}

impl Waiting {
    fn of(&self, parents: bool) -> &Parking {
        if parents { &self.parents } else { &self.leaves }
    }

    fn of_mut(&mut self, parents: bool) -> &mut Parking {
        if parents { &mut self.parents } else { &mut self.leaves }
    }
}

impl Members {
    /// A parent without children.
    pub fn new(settings: ParentSettings, now: Duration) -> Self {
        let alone = settings.acceptor == Acceptor::Supervisor;
        Self {
            settings,
            cell: Cell::default(),
            directory: Directory::default(),
            waiting: Waiting::default(),
            contests: Vec::new(),
            links: HashMap::new(),
            unheard: SlotMask::EMPTY,
            elsewhere: HashMap::new(),
            blacklist: Blacklist::default(),
            reporter: Reporter::new(alone),
            resets: Resets::default(),
            standing: if alone { Standing::Alone(now) } else { Standing::Near },
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

    /// What it was told at its start.
    pub fn settings(&self) -> &ParentSettings {
        &self.settings
    }

    /// The child in a slot.
    pub fn member(&self, slot: Slot) -> Option<&Member> {
        self.cell.get(slot)
    }

    /// All children, connected or remembered.
    pub fn members(&self) -> impl Iterator<Item = (Slot, &Member)> {
        self.cell.iter()
    }

    /// Those that stand by for the children.
    pub fn alternates(&self) -> impl Iterator<Item = (Slot, &Member)> {
        self.cell.alternates()
    }

    /// Slots of connected children.
    pub fn online(&self) -> SlotMask {
        self.cell.online()
    }

    /// Slots that belong to somebody, connected or not.
    pub fn used(&self) -> SlotMask {
        self.cell.used()
    }

    /// The cells below.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Logins that wait for a cell.
    pub fn waiting(&self) -> usize {
        self.waiting.leaves.len() + self.waiting.parents.len()
    }

    /// Connections of children, of those that stand by for them, and of those that wait.
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    /// A supervisor learned from its parent where clients begin.
    pub fn set_door(&mut self, door: Option<Address>) {
        if self.settings.acceptor == Acceptor::Supervisor {
            self.settings.door = door;
        }
    }

    /// The slot of a connection; `None` when it is no child (any more).
    pub fn slot(&self, link: LinkId) -> Option<Slot> {
        match self.links.get(&link) {
            Some(Position::Child(slot)) => Some(*slot),
            _ => None,
        }
    }

    /// Whether the connection is one of a node, child or not yet.
    pub fn knows(&self, link: LinkId) -> bool {
        self.links.contains_key(&link)
    }

    /// Whether clients are served: enough children are there and nobody ordered otherwise.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// Whether everybody who is to come seems to be here: only then silence of all means that a file does not exist.
    pub fn is_settled(&self, now: Duration) -> bool {
        let complete = self.settings.expected > 0 && self.known() >= self.settings.expected;
        self.serves && (complete || self.settles_at().is_none_or(|at| at <= now))
    }

    /// When it is settled if nobody comes any more; `None` when it is, or when it does not serve. Once settled it stays so:
    /// whoever comes later is asked when it is there.
    fn settles_at(&self) -> Option<Duration> {
        let since = self.unsettled?;
        let settles = (self.last_arrival + SETTLE).clamp(since, since + SETTLE_MAX);
        let first_start = if self.settings.first_start { FIRST_START } else { Duration::ZERO };
        Some(settles.max(self.began + first_start))
    }

    /// Nodes of which this one knows: children, those who wait, and the children of reported cells.
    fn known(&self) -> usize {
        let below = self
            .directory
            .entries()
            .iter()
            .map(|entry| usize::from(entry.places.leaves) + usize::from(entry.places.parents));
        self.cell.used().len() + self.waiting() + below.sum::<usize>()
    }

    /// The places of the own cell, as reported upward.
    pub(super) fn places(&self) -> Places {
        let (used, parents) = (self.cell.used().len(), self.cell.parents().len());
        Places { free: (CELL_SLOTS - used) as u8, parents: parents as u8, leaves: (used - parents) as u8 }
    }

    /// A connection of a node ended.
    pub fn closed(&mut self, link: LinkId, now: Duration, out: &mut Vec<Action>) {
        match self.links.remove(&link) {
            Some(Position::Child(slot)) => self.lost(slot, now, out),
            Some(Position::Alternate(_)) => {
                self.cell.dismiss(link);
            }
            Some(Position::Parked) => drop(self.take_waiting(link)),
            Some(Position::Contest) => self.contests.retain(|contest| contest.link != link),
            None => {}
        }
    }

    fn take_waiting(&mut self, link: LinkId) -> Option<Parked> {
        self.waiting.leaves.release(link).or_else(|| self.waiting.parents.release(link))
    }

    /// Ends a connection from this side.
    fn close(&mut self, link: LinkId, out: &mut Vec<Action>) {
        self.links.remove(&link);
        out.push(Action::Close { link });
    }

    /// A child's connection is no more.
    fn lost(&mut self, slot: Slot, now: Duration, out: &mut Vec<Action>) {
        self.cells_lost(slot, now);
        let went = self.elsewhere.remove(&slot);
        let went = went.is_some_and(|at| self.cell.get(slot).is_some_and(|member| member.heard <= at));
        self.cell.lose(slot, now);
        if let Some(link) = self.cell.get(slot).and_then(|member| member.link) {
            // One that stood by took over; its files are those of the one before.
            self.links.insert(link, Position::Child(slot));
            out.push(Action::Child { slot, change: ChildChange::Condition });
        } else if went {
            // Not lost: it has its place below, and nobody has to wait for it here.
            self.free_moved(slot, now, out);
        } else if self.settings.drop.is_zero() {
            out.push(Action::Child { slot, change: ChildChange::Lost });
            self.free(slot, now, out);
        } else {
            out.push(Action::Child { slot, change: ChildChange::Lost });
            self.wake_health(now + self.kept_for(slot));
        }
        self.contest_won(slot, now, out);
        self.review(now, out);
    }

    /// How long the place of a child is kept after it was lost.
    fn kept_for(&self, slot: Slot) -> Duration {
        let longest = self.settings.drop;
        if self.unheard.contains(slot) { longest.min(DROP_UNHEARD) } else { longest }
    }

    /// Empties the slot of a node that a cell below has taken in. Nodes whose slots are freed count as on their way to a cell.
    fn free_moved(&mut self, slot: Slot, now: Duration, out: &mut Vec<Action>) {
        let node = self.cell.get(slot).map(|member| member.identity.id.digest());
        self.free(slot, now, out);
        out.extend(node.map(|node| Action::JoinedBelow { nodes: vec![node] }));
    }

    /// Empties a slot; whoever was connected there was told already.
    fn free(&mut self, slot: Slot, now: Duration, out: &mut Vec<Action>) {
        self.elsewhere.remove(&slot);
        self.unheard.remove(slot);
        if let Some(member) = self.cell.take(slot) {
            if let Some(link) = member.link {
                self.links.remove(&link);
            }
            self.cells_lost(slot, now);
            self.reporter.changed(now);
            out.push(Action::Child { slot, change: ChildChange::Freed });
        }
    }

    /// The cells below a slot are out of reach.
    fn cells_lost(&mut self, slot: Slot, now: Duration) {
        for id in self.directory.remove_below(slot) {
            self.reporter.gone(id, now);
        }
    }

    /// Looks whether service begins or ends with what has just changed, and whom that concerns.
    fn review(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.note_service(now);
        let enough = self.cell.active().len() >= self.minimum(now);
        let serves = enough && !self.suspended_by_order;
        if serves != self.serves {
            self.serves = serves;
            if serves {
                // A moment without service is no new beginning: who was lost in it is missed anyway.
                let short = self.stopped.take().filter(|(at, _)| now < *at + STABLE);
                self.unsettled = short.map_or(Some(now), |(_, unsettled)| unsettled);
            } else {
                self.stopped = Some((now, self.unsettled.take()));
            }
            out.push(Action::Service { serves });
        }
        self.release(now, out);
    }

    /// This node, being a supervisor, found a parent or lost the last one.
    pub fn stand(&mut self, standing: Standing, now: Duration, out: &mut Vec<Action>) {
        self.standing = standing;
        match standing {
            Standing::Near => {}
            Standing::Far => {
                // Supervisors below would make the tree deeper than it may be.
                for slot in self.cell.parents() {
                    self.send_away(slot, now, out);
                }
            }
            Standing::Alone(_) => self.wake_health(now + ORPHANED),
        }
    }

    /// Ends a child's membership without naming another place.
    fn send_away(&mut self, slot: Slot, now: Duration, out: &mut Vec<Action>) {
        let link = self.cell.get(slot).and_then(|member| member.link);
        if let Some(link) = link {
            out.push(Action::Send { link, message: Message::Try { hosts: Vec::new(), permanent: false } });
            self.close(link, out);
        }
        self.free(slot, now, out);
        self.review(now, out);
    }

    fn refuse(&mut self, link: LinkId, host: &str, reason: RefusalReason, out: &mut Vec<Action>) {
        self.links.remove(&link);
        out.push(Action::Notice(Notice::Refused { host: host.to_owned(), reason }));
        out.push(Action::Close { link });
    }

    /// When [`tick`](Self::tick) has something to do next.
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

    /// Does what is due.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.settle_contests(now, out);
        for slot in self.resets.take_due(now) {
            out.push(Action::Child { slot, change: ChildChange::Reset });
        }
        if self.settles_at().is_some_and(|at| at <= now) {
            self.unsettled = None;
        }
        self.check_health(now, out);
        let relaxed = self.relax_at.take_if(|due| *due <= now).is_some();
        let mut nodes = Vec::new();
        let freed = self.directory.age(now, &mut nodes);
        if !nodes.is_empty() {
            out.push(Action::JoinedBelow { nodes });
        }
        if freed || relaxed {
            self.release(now, out);
        }
        self.check_waiting(now, out);
    }
}
