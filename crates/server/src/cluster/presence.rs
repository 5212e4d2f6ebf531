//! [`ChildPresence`]: the children that have joined and those that are away, for the log, the
//! status and clients.
//!
//! The children are recorded on disk. After a restart those that have not returned are away,
//! because a client that takes their files for missing could delete other copies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::IdMap;
use cluster::tree::{ChildChange, ClusterMember, Members};
use cluster::{CELL_SLOTS, Slot};
use session::LiveValue;

use super::state_file::{self, StateFile};

/// Maximum number of nodes whose last address is known, and of lost nodes without a slot.
const KNOWN_MAX: usize = 4 * CELL_SLOTS;

/// The time for which a lost child without a slot counts as away, and a child of an earlier run. A
/// supervisor frees the slot of a lost child at once, because the child may join elsewhere.
const AWAY_TIME: Duration = Duration::from_secs(600);

/// The report before the children that this node waits for are there.
const UNKNOWN: &str = "unknown";

/// A child in a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seated {
    node: u64,
    role: String,
    address: String,
}

impl Seated {
    /// Returns the line of the record, see [`Self::parse`].
    fn line(&self) -> String {
        format!("{:016x} {} {}\n", self.node, self.role, self.address)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let node = u64::from_str_radix(words.next()?, 16).ok()?;
        let (role, address) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(Self { node, role, address })
    }
}

/// The presence of children.
pub(super) struct ChildPresence {
    /// The last address of each node that joined, by the number of the node; the latest is last.
    addresses: Vec<(u64, String)>,
    seats: IdMap<Slot, Seated>,
    /// The number of names that each child listed when it joined.
    names: IdMap<Slot, u64>,
    /// Lost children without a slot, and the time until which they count as away.
    unseated: Vec<(Seated, Duration)>,
    /// The children that are expected and disconnected, as they are reported to clients.
    report: LiveValue,
    reported: String,
    /// Set once the children that this node waits for after its start were there.
    is_known: bool,
    /// A child has changed since the last report and record.
    has_changed: bool,
    /// The record for the next run, and its content.
    record: (StateFile, String),
}

impl ChildPresence {
    /// Reports the children that are away as `report`: their number, then their addresses, or
    /// [`UNKNOWN`]. The record lies beside the place file; without one nothing is recorded.
    pub(super) fn new(report: LiveValue, place: Option<&Path>, now: Duration) -> Self {
        let file = place.map(record_file);
        let text = file.as_deref().and_then(state_file::read).unwrap_or_default();
        let earlier = text.lines().filter_map(Seated::parse).take(KNOWN_MAX);
        report.set(UNKNOWN.to_owned());
        Self {
            addresses: Vec::new(),
            seats: IdMap::default(),
            names: IdMap::default(),
            unseated: earlier.map(|child| (child, now + AWAY_TIME)).collect(),
            report,
            reported: UNKNOWN.to_owned(),
            is_known: false,
            has_changed: true,
            record: (StateFile::new(file), text),
        }
    }

    /// Logs a change of a child. `member` is `None` if its slot is free by now.
    pub(super) fn follow(
        &mut self,
        slot: Slot,
        change: ChildChange,
        member: Option<&ClusterMember>,
        now: Duration,
    ) {
        // Loads and resets are frequent, and neither reported nor recorded.
        self.has_changed |= !matches!(change, ChildChange::Figures | ChildChange::Reset);
        match (change, member) {
            (ChildChange::Joined { fresh }, Some(member)) => {
                if fresh {
                    self.names.remove(&slot);
                }
                let node = member.identity.digest();
                let seated = Seated { node, role: member.role.to_string(), address: member.data.to_string() };
                self.join(slot, seated);
            }
            (ChildChange::Lost, member) => self.lose(slot, member.is_some(), now),
            (ChildChange::Freed, _) => {
                if let Some(Seated { role, address, .. }) = self.seats.remove(&slot) {
                    tracing::info!("cluster: {role} {address} left");
                }
            }
            _ => {}
        }
    }

    fn join(&mut self, slot: Slot, seated: Seated) {
        let Seated { node, role, address } = &seated;
        let joined = self.address_of(*node, address.clone());
        tracing::info!("cluster: {role} {address} {joined}");
        self.unseated.retain(|(lost, _)| lost.node != *node && lost.address != *address);
        self.seats.insert(slot, seated);
    }

    fn lose(&mut self, slot: Slot, keeps_slot: bool, now: Duration) {
        let Some(seated) = self.seats.get(&slot).cloned() else { return };
        let names = match self.names(slot) {
            None | Some(0) => String::new(),
            Some(names) => format!("; it listed {names} names when it joined"),
        };
        let Seated { role, address, .. } = &seated;
        tracing::warn!(
            "cluster: {role} {address} was lost: its connection ended; files that only it has cannot be read until it is back{names}"
        );
        if keeps_slot {
            return;
        }
        self.seats.remove(&slot);
        if self.unseated.len() >= KNOWN_MAX {
            self.unseated.remove(0);
        }
        self.unseated.push((seated, now + AWAY_TIME));
    }

    /// Records the address of a node that joined and returns a text for the log.
    fn address_of(&mut self, node: u64, address: String) -> String {
        let before = self.addresses.iter().position(|(known, _)| *known == node);
        let before = before.map(|at| self.addresses.remove(at).1);
        let text = match before {
            None => "joined".to_owned(),
            Some(before) if before == address => "joined again".to_owned(),
            Some(before) => format!("joined again (was {before})"),
        };
        if self.addresses.len() >= KNOWN_MAX {
            self.addresses.remove(0);
        }
        self.addresses.push((node, address));
        text
    }

    /// Counts names in the list of a child. `is_first` marks the beginning of the list.
    pub(super) fn count_names(&mut self, slot: Slot, is_first: bool, count: usize) {
        let names = self.names.entry(slot).or_default();
        *names = if is_first { 0 } else { *names } + count as u64;
    }

    /// Returns the number of names that a child listed when it joined, if it lists them.
    pub(super) fn names(&self, slot: Slot) -> Option<u64> {
        self.names.get(&slot).copied()
    }

    /// Reports the children that are away to clients, if they have changed. `settled` is set if the
    /// children that this node waits for are there. It is called for each message, so it does not
    /// look at the children without a reason.
    pub(super) fn settle(&mut self, members: &Members, settled: bool, now: Duration) {
        if !self.is_due(settled, now) {
            return;
        }
        self.has_changed = false;
        self.unseated.retain(|(_, until)| now < *until);
        let seated = members.members().filter(|(_, member)| !member.is_online());
        let seated = seated.map(|(_, member)| member.data.to_string()).collect();
        self.is_known |= settled;
        self.publish(seated);
        self.write_record();
    }

    /// Reports whether the report or the record may have to change.
    fn is_due(&self, settled: bool, now: Duration) -> bool {
        // Lost children are in the order of their ends.
        let ends = self.unseated.first().is_some_and(|(_, until)| *until <= now);
        self.has_changed || ends || settled && !self.is_known
    }

    /// Reports these children with slots, and the lost ones without.
    fn publish(&mut self, mut away: Vec<String>) {
        away.extend(self.unseated.iter().map(|(lost, _)| lost.address.clone()));
        let mut report = if self.is_known { away.len().to_string() } else { UNKNOWN.to_owned() };
        for address in away.iter().filter(|_| self.is_known) {
            report.push(' ');
            report.push_str(address);
        }
        if report != self.reported {
            self.report.set(report.clone());
            self.reported = report;
        }
    }

    fn write_record(&mut self) {
        let unseated = self.unseated.iter().map(|(lost, _)| lost);
        let mut lines: Vec<String> = self.seats.values().chain(unseated).map(Seated::line).collect();
        lines.sort_unstable();
        let text = lines.concat();
        let (file, written) = &mut self.record;
        if *written != text {
            file.keep(Some(text.clone()));
            *written = text;
        }
    }
}

fn record_file(place: &Path) -> PathBuf {
    place.with_file_name("children")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence() -> ChildPresence {
        ChildPresence::new(LiveValue::default(), None, Duration::ZERO)
    }

    #[test]
    fn after_a_restart_children_that_have_not_returned_are_away() {
        let mut earlier = presence();
        let seated = |node| Seated { node, role: "server".to_owned(), address: format!("host:{node}") };
        for number in 0..3 {
            earlier.join(Slot::new(number).unwrap(), seated(u64::from(number)));
        }
        earlier.lose(Slot::new(2).unwrap(), false, Duration::ZERO);
        earlier.write_record();
        let recorded = earlier.record.1;
        assert_eq!(recorded.lines().filter_map(Seated::parse).collect::<Vec<_>>(), [0, 1, 2].map(seated));

        let report = LiveValue::default();
        let mut later = ChildPresence::new(report.clone(), None, Duration::ZERO);
        later.unseated = recorded.lines().filter_map(Seated::parse).map(|child| (child, AWAY_TIME)).collect();
        later.join(Slot::new(0).unwrap(), seated(1));
        // The same server, with another identity.
        later.join(Slot::new(1).unwrap(), Seated { node: 9, ..seated(2) });
        later.publish(Vec::new());
        assert_eq!(report.get(), UNKNOWN, "others may be on their way");
        later.is_known = true;
        later.publish(vec!["lost:7".to_owned()]);
        assert_eq!(report.get(), "2 lost:7 host:0");
        later.join(Slot::new(2).unwrap(), seated(0));
        later.publish(Vec::new());
        assert_eq!(report.get(), "0");
        for broken in ["", "x server host:1", "0000000000000001 server"] {
            assert_eq!(Seated::parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn messages_without_a_change_of_a_child_cause_no_report() {
        let mut presence = presence();
        let (slot, now) = (Slot::new(0).unwrap(), Duration::from_secs(5));
        assert!(presence.is_due(false, now), "the first report");
        presence.has_changed = false;
        assert!(!presence.is_due(false, now));
        assert!(presence.is_due(true, now), "the expected children are there");
        presence.is_known = true;
        for (change, is_due) in
            [(ChildChange::Figures, false), (ChildChange::Reset, false), (ChildChange::Condition, true)]
        {
            presence.follow(slot, change, None, now);
            assert_eq!(presence.is_due(true, now), is_due, "{change:?}");
            presence.has_changed = false;
        }
        presence.join(slot, Seated { node: 1, role: "server".to_owned(), address: "host:1".to_owned() });
        presence.follow(slot, ChildChange::Lost, None, now);
        assert!(presence.is_due(true, now));
        presence.has_changed = false;
        assert!(!presence.is_due(true, now + AWAY_TIME / 2));
        assert!(presence.is_due(true, now + AWAY_TIME), "it no longer counts as away");
    }

    #[test]
    fn a_node_that_returns_is_named_with_its_former_address() {
        let mut presence = presence();
        let mut join = |node, address: &str| presence.address_of(node, address.to_owned());
        assert_eq!((join(1, "a:1"), join(2, "b:1")), ("joined".to_owned(), "joined".to_owned()));
        assert_eq!(join(1, "a:1"), "joined again");
        assert_eq!(join(1, "a:2"), "joined again (was a:1)");
        assert_eq!(join(1, "a:2"), "joined again");
        for node in 0..10_000 {
            join(node, "c:1");
        }
        assert_eq!(presence.addresses.len(), KNOWN_MAX);
        assert_eq!(presence.address_of(1, "a:2".to_owned()), "joined");
    }

    #[test]
    fn names_are_counted_from_the_beginning_of_a_list() {
        let mut presence = presence();
        let slot = Slot::new(63).unwrap();
        assert_eq!(presence.names(slot), None);
        presence.count_names(slot, true, 5);
        presence.count_names(slot, false, 7);
        assert_eq!(presence.names(slot), Some(12));
        presence.count_names(slot, true, 3);
        assert_eq!(presence.names(slot), Some(3));
    }

    #[test]
    fn a_lost_child_without_a_slot_is_away_until_it_joins_again() {
        let mut presence = presence();
        let (slot, now) = (Slot::new(0).unwrap(), Duration::from_secs(5));
        let seated = |node| Seated { node, role: "server".to_owned(), address: format!("host:{node}") };
        presence.join(slot, seated(1));
        presence.lose(slot, false, now);
        assert_eq!(
            presence.unseated.iter().map(|(lost, until)| (lost.node, *until)).collect::<Vec<_>>(),
            [(1, now + AWAY_TIME)]
        );
        presence.join(slot, seated(2));
        presence.lose(slot, true, now);
        assert_eq!(presence.unseated.len(), 1);
        presence.join(slot, seated(1));
        assert!(presence.unseated.is_empty());
    }
}
