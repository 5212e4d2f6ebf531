//! Lists of all files below a child: which child is asked for one, and which lists go on to parents. They only save
//! questions, so a list that is not asked for or not passed on costs nothing but those.

use super::action::ChildChange;
use super::link::LinkId;
use super::member::Member;
use super::members::Members;
use wire::cms::Extensions;
use wire::cms::login::Role;

/// Reports whether a child is asked for its list because of a change. Servers send theirs by themselves to each new parent.
/// An inner node received those of its servers before this node became its parent. Below a manager the lists are its own.
pub fn is_wanted(member: &Member, change: ChildChange) -> bool {
    let inner = member.role.has_children() && member.role != Role::Manager;
    inner && lists_files(member) && change == ChildChange::Joined { fresh: true }
}

/// Returns the children that are asked when a parent wants the list of all that is below this node.
pub fn sources(members: &Members) -> impl Iterator<Item = LinkId> {
    members.members().filter(|(_, member)| lists_files(member)).filter_map(|(_, member)| member.link)
}

/// Reports whether a list that a child sends goes on to parents. For a child that is being emptied a list cannot say that
/// clients should go elsewhere.
pub fn is_passed_on(member: &Member) -> bool {
    !member.condition.drains()
}

fn lists_files(member: &Member) -> bool {
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
        let real = Member { extensions: Extensions::NONE, ..member("u", Role::Supervisor) };
        assert!(!is_wanted(&real, fresh));
    }

    #[test]
    fn the_list_of_one_that_is_being_emptied_stays_here() {
        let mut child = member("s", Role::Server);
        assert!(is_passed_on(&child));
        child.condition.drains_itself = true;
        assert!(!is_passed_on(&child));
    }
}
