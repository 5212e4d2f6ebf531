//! [`ChildPresence`]: the children that have joined and those that are away, for the log, the status
//! and clients.

use std::collections::HashMap;
use std::time::Duration;

use cluster::tree::{ChildChange, ClusterMember, Members};
use cluster::{CELL_SLOTS, Slot};
use session::LiveValue;

/// Maximum number of nodes whose last address is known, and of lost nodes without a slot.
const KNOWN_MAX: usize = 4 * CELL_SLOTS;

/// The time for which a lost child without a slot counts as away. A supervisor frees the slot of a
/// lost child at once, because the child may join elsewhere.
const AWAY_TIME: Duration = Duration::from_secs(600);

/// A child in a slot.
#[derive(Clone)]
struct Seated {
    node: u64,
    role: String,
    address: String,
}

/// The presence of children.
pub(super) struct ChildPresence {
    /// The last address of each node that joined, by the number of the node; the latest is last.
    addresses: Vec<(u64, String)>,
    seats: HashMap<Slot, Seated>,
    /// The number of names that each child listed when it joined.
    names: HashMap<Slot, u64>,
    /// Lost children without a slot, and the time until which they count as away.
    unseated: Vec<(Seated, Duration)>,
    /// The children that are expected and disconnected, as they are reported to clients.
    report: LiveValue,
    reported: String,
}

impl ChildPresence {
    /// Reports the children that are away as `report`: their number, then their addresses.
    pub(super) fn new(report: LiveValue) -> Self {
        report.set("0".to_owned());
        Self {
            addresses: Vec::new(),
            seats: HashMap::new(),
            names: HashMap::new(),
            unseated: Vec::new(),
            report,
            reported: "0".to_owned(),
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
        self.unseated.retain(|(lost, _)| lost.node != *node);
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

    /// Reports the children that are away to clients, if they have changed.
    pub(super) fn settle(&mut self, members: &Members, now: Duration) {
        self.unseated.retain(|(_, until)| now < *until);
        let seated = members.members().filter(|(_, member)| !member.is_online());
        let seated = seated.map(|(_, member)| member.data.to_string());
        let away: Vec<String> =
            seated.chain(self.unseated.iter().map(|(lost, _)| lost.address.clone())).collect();
        let mut report = away.len().to_string();
        for address in away {
            report.push(' ');
            report.push_str(&address);
        }
        if report != self.reported {
            self.report.set(report.clone());
            self.reported = report;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_returns_is_named_with_its_former_address() {
        let mut presence = ChildPresence::new(LiveValue::default());
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
        let mut presence = ChildPresence::new(LiveValue::default());
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
        let mut presence = ChildPresence::new(LiveValue::default());
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
