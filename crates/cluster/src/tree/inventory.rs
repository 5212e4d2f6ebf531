//! Routing of inventories: the children that are asked for one, and the inventories that go to
//! parents.
//!
//! Inventories only save queries, so an inventory that is not requested or not forwarded costs only
//! those.

use super::action::ChildChange;
use super::connection_id::ConnectionId;
use super::member::ClusterMember;
use super::members::Members;
use wire::cms::Extensions;
use wire::cms::login::Role;

/// Reports whether a change of a child requires its inventory. Servers send theirs by themselves to
/// each new parent. An inner node received those of its servers before this node became its parent.
/// Below a manager the inventories are its own.
pub fn is_wanted(member: &ClusterMember, change: ChildChange) -> bool {
    let inner = member.role.has_children() && member.role != Role::Manager;
    inner && lists_files(member) && change == ChildChange::Joined { fresh: true }
}

/// Returns the children that are asked when a parent requests the inventory of all nodes below this
/// one.
pub fn sources(members: &Members) -> impl Iterator<Item = ConnectionId> {
    members.members().filter(|(_, member)| lists_files(member)).filter_map(|(_, member)| member.link)
}

/// Reports whether the inventory of a child is forwarded to parents. For a draining child an
/// inventory cannot express that clients should go elsewhere.
pub fn is_passed_on(member: &ClusterMember) -> bool {
    !member.condition.drains()
}

fn lists_files(member: &ClusterMember) -> bool {
    member.extensions.contains(Extensions::INVENTORY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::testing::member;

    #[test]
    fn only_new_inner_nodes_are_asked() {
        let fresh = ChildChange::Joined { fresh: true };
        assert!(is_wanted(&member("u", Role::Supervisor), fresh));
        assert!(!is_wanted(&member("u", Role::Supervisor), ChildChange::Joined { fresh: false }));
        assert!(!is_wanted(&member("u", Role::Supervisor), ChildChange::Lost));
        assert!(!is_wanted(&member("s", Role::Server), fresh), "it sends the list by itself");
        assert!(!is_wanted(&member("m", Role::Manager), fresh));
        let real = ClusterMember { extensions: Extensions::NONE, ..member("u", Role::Supervisor) };
        assert!(!is_wanted(&real, fresh));
    }

    #[test]
    fn the_inventory_of_a_draining_child_is_not_forwarded() {
        let mut child = member("s", Role::Server);
        assert!(is_passed_on(&child));
        child.condition.drains_itself = true;
        assert!(!is_passed_on(&child));
    }
}
