//! The slots of a cell: at most 64 children of one parent, and the order in which slots are
//! assigned. Source: cms protocol 3, slot assignment.
//!
//! It holds only the state of slots, so that the rules of assignment can be tested without
//! connections; `members` sends the messages.

use std::time::Duration;

use super::connection_id::ConnectionId;
use super::identity::NodeIdentity;
use super::limits::{ALTERNATES_MAX, RETURN};
use super::member::ClusterMember;
use crate::{CELL_SLOTS, Slot, SlotMask};
use wire::cms::login::Role;

/// The children of one parent.
#[derive(Debug)]
pub struct MemberSlots {
    members: Vec<Option<Box<ClusterMember>>>,
    /// Alternates: further managers of a site that has a slot, in the order in which they take
    /// over.
    alternates: Vec<(Slot, Box<ClusterMember>)>,
    used: SlotMask,
    online: SlotMask,
    /// Children that are parents themselves.
    parents: SlotMask,
}

/// The place that the cell has for a newcomer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotOffer {
    /// The node is known and was absent: the slot is still its own.
    Return(Slot),
    /// A node with the same identity is connected.
    Contested(Slot),
    /// It becomes an alternate for the manager of its site in this slot.
    Alternate(Slot),
    /// The slot is free.
    Free(Slot),
    /// The child in the slot has to leave.
    Displace(Slot),
    /// There is no place.
    None,
}

impl Default for MemberSlots {
    fn default() -> Self {
        Self {
            members: std::iter::repeat_with(|| None).take(CELL_SLOTS).collect(),
            alternates: Vec::new(),
            used: SlotMask::EMPTY,
            online: SlotMask::EMPTY,
            parents: SlotMask::EMPTY,
        }
    }
}

impl MemberSlots {
    /// Returns the place for a newcomer. Nothing changes.
    pub fn place(&self, identity: &NodeIdentity, role: Role, now: Duration) -> SlotOffer {
        if let Some(slot) = self.find(identity) {
            return if self.online.contains(slot) {
                SlotOffer::Contested(slot)
            } else {
                SlotOffer::Return(slot)
            };
        }
        if role == Role::Manager
            && let Some(slot) = self.site(identity.id.cluster())
        {
            let count = self.alternates.iter().filter(|(of, _)| *of == slot).count();
            return if count + 1 < ALTERNATES_MAX { SlotOffer::Alternate(slot) } else { SlotOffer::None };
        }
        let servers = self.used - self.parents;
        let free = (!self.used).lowest().map(SlotOffer::Free);
        let lost = |slot: &Slot| self.get(*slot).is_none_or(|member| now >= member.since + RETURN);
        let lost: SlotMask = (servers - self.online).iter().filter(lost).collect();
        let place = free.or_else(|| lost.highest().map(SlotOffer::Displace));
        let place = if role.has_children() {
            place
                .or_else(|| servers.highest().map(SlotOffer::Displace))
                .or_else(|| (self.parents - self.online).lowest().map(SlotOffer::Displace))
        } else {
            place
        };
        place.unwrap_or(SlotOffer::None)
    }

    /// Puts a member into a slot, and returns the previous one.
    pub fn put(&mut self, slot: Slot, member: ClusterMember) -> Option<Box<ClusterMember>> {
        let before = self.take(slot);
        self.used.insert(slot);
        if member.is_online() {
            self.online.insert(slot);
        }
        if member.role.has_children() {
            self.parents.insert(slot);
        }
        if let Some(place) = self.members.get_mut(slot.index()) {
            *place = Some(Box::new(member));
        }
        before
    }

    /// Empties a slot.
    pub fn take(&mut self, slot: Slot) -> Option<Box<ClusterMember>> {
        self.used.remove(slot);
        self.online.remove(slot);
        self.parents.remove(slot);
        self.members.get_mut(slot.index())?.take()
    }

    /// Records that the connection of a member ended: its slot stays reserved. An alternate of the
    /// same site takes over, and the slot stays online.
    pub fn lose(&mut self, slot: Slot, now: Duration) {
        if let Some(next) = self.alternates.iter().position(|(of, _)| *of == slot) {
            let (_, mut member) = self.alternates.remove(next);
            member.since = now;
            self.put(slot, *member);
        } else if let Some(member) = self.get_mut(slot) {
            member.link = None;
            member.since = now;
            self.online.remove(slot);
        }
    }

    /// Adds an alternate for a slot.
    pub fn stand_by(&mut self, slot: Slot, member: ClusterMember) {
        self.alternates.push((slot, Box::new(member)));
    }

    /// Returns the alternates with their slots.
    pub fn alternates(&self) -> impl Iterator<Item = (Slot, &ClusterMember)> {
        self.alternates.iter().map(|(slot, member)| (*slot, &**member))
    }

    /// Returns an alternate by its connection.
    pub fn alternate_mut(&mut self, link: ConnectionId) -> Option<&mut ClusterMember> {
        self.alternates
            .iter_mut()
            .find(|(_, member)| member.link == Some(link))
            .map(|(_, member)| &mut **member)
    }

    /// Removes an alternate; `false` if there is none on this connection.
    pub fn dismiss(&mut self, link: ConnectionId) -> bool {
        let before = self.alternates.len();
        self.alternates.retain(|(_, member)| member.link != Some(link));
        self.alternates.len() < before
    }

    /// Returns the member in a slot.
    pub fn get(&self, slot: Slot) -> Option<&ClusterMember> {
        self.members.get(slot.index())?.as_deref()
    }

    /// Returns the member in a slot. Its `link` and `role` change only through the cell.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut ClusterMember> {
        self.members.get_mut(slot.index())?.as_deref_mut()
    }

    /// Returns all members with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &ClusterMember)> {
        self.used.iter().filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    /// Returns the slot of this identity.
    pub fn find(&self, identity: &NodeIdentity) -> Option<Slot> {
        self.iter().find(|(_, member)| member.identity.same(identity)).map(|(slot, _)| slot)
    }

    /// Returns the slot of the managers of a site.
    fn site(&self, cluster: &str) -> Option<Slot> {
        self.iter()
            .find(|(_, member)| member.role == Role::Manager && member.identity.id.cluster() == cluster)
            .map(|(slot, _)| slot)
    }

    /// Returns the time at which the next place of a lost server may be reassigned, if it is in the
    /// future.
    pub fn next_lost(&self, now: Duration) -> Option<Duration> {
        let lost = self.used - self.parents - self.online;
        let due = lost.iter().filter_map(|slot| self.get(slot)).map(|member| member.since + RETURN);
        due.filter(|due| *due > now).min()
    }

    /// Returns the slots that are in use.
    pub fn used(&self) -> SlotMask {
        self.used
    }

    /// Returns the slots of connected children.
    pub fn online(&self) -> SlotMask {
        self.online
    }

    /// Returns the slots of children that have children.
    pub fn parents(&self) -> SlotMask {
        self.parents
    }

    /// Returns the children that can serve now.
    pub fn active(&self) -> SlotMask {
        self.iter().filter(|(_, member)| member.is_active()).map(|(slot, _)| slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::member;
    use super::*;

    fn place(cell: &MemberSlots, member: &ClusterMember) -> SlotOffer {
        cell.place(&member.identity, member.role, RETURN)
    }

    fn join(cell: &mut MemberSlots, name: &str, role: Role) -> SlotOffer {
        let member = member(name, role);
        let place = place(cell, &member);
        if let SlotOffer::Free(slot) | SlotOffer::Displace(slot) | SlotOffer::Return(slot) = place {
            cell.put(slot, member);
        }
        place
    }

    fn slot(number: u8) -> Slot {
        Slot::new(number).expect("a slot")
    }

    fn full_of(role: Role) -> MemberSlots {
        let mut cell = MemberSlots::default();
        for n in 0..64 {
            assert_eq!(join(&mut cell, &format!("n{n}"), role), SlotOffer::Free(slot(n)));
        }
        cell
    }

    #[test]
    fn supervisors_take_the_places_of_servers_from_the_top() {
        let mut cell = full_of(Role::Server);
        assert_eq!(place(&cell, &member("late", Role::Server)), SlotOffer::None);
        for n in (0..64).rev() {
            assert_eq!(join(&mut cell, &format!("sup{n}"), Role::Supervisor), SlotOffer::Displace(slot(n)));
        }
        assert_eq!(join(&mut cell, "one more", Role::Supervisor), SlotOffer::None);
    }

    #[test]
    fn a_lost_server_keeps_its_place_until_it_is_needed() {
        let mut cell = full_of(Role::Server);
        cell.lose(slot(7), Duration::ZERO);
        assert_eq!(place(&cell, &member("n7", Role::Server)), SlotOffer::Return(slot(7)));
        assert_eq!(place(&cell, &member("n8", Role::Server)), SlotOffer::Contested(slot(8)));
        let late = member("late", Role::Server);
        let early = RETURN - Duration::from_millis(1);
        assert_eq!(cell.place(&late.identity, late.role, early), SlotOffer::None, "it is expected back");
        assert_eq!((cell.next_lost(early), cell.next_lost(RETURN)), (Some(RETURN), None));
        assert_eq!(join(&mut cell, "late", Role::Server), SlotOffer::Displace(slot(7)));
        assert_eq!(place(&cell, &member("n7", Role::Server)), SlotOffer::None);
    }

    #[test]
    fn lost_servers_go_before_connected_ones_and_lost_parents_last() {
        let mut cell = full_of(Role::Server);
        cell.lose(slot(3), Duration::ZERO);
        assert_eq!(join(&mut cell, "sup", Role::Supervisor), SlotOffer::Displace(slot(3)));
        let mut cell = full_of(Role::Supervisor);
        cell.lose(slot(5), Duration::ZERO);
        cell.lose(slot(9), Duration::ZERO);
        assert_eq!(place(&cell, &member("srv", Role::Server)), SlotOffer::None);
        assert_eq!(join(&mut cell, "sup", Role::Supervisor), SlotOffer::Displace(slot(5)));
    }

    #[test]
    fn managers_of_one_site_share_a_slot_and_take_over() {
        let mut cell = MemberSlots::default();
        let manager = |name: &str, link| {
            let mut member = member(name, Role::Manager);
            member.link = Some(ConnectionId(link));
            member
        };
        cell.put(slot(0), manager("a", 1));
        for n in 2..9 {
            let next = manager(&format!("b{n}"), n);
            assert_eq!(place(&cell, &next), SlotOffer::Alternate(slot(0)));
            cell.stand_by(slot(0), next);
        }
        assert_eq!(place(&cell, &manager("c", 9)), SlotOffer::None, "at most {ALTERNATES_MAX} of a site");
        assert!(cell.dismiss(ConnectionId(2)));
        cell.lose(slot(0), Duration::ZERO);
        assert_eq!(cell.get(slot(0)).and_then(|member| member.link), Some(ConnectionId(3)));
        assert!(cell.online().contains(slot(0)));
    }
}
