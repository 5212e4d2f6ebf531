//! The total space of the nodes below this one, for replies to clients and redirectors.

use super::location_driver::LocationDriver;
use super::tree_driver::TreeDriver;
use cluster::SlotMask;
use cluster::tree::{Members, Totals};
use wire::Encode;
use wire::cms::flags::StatfsModifier;
use wire::cms::response::space_text::{SpaceGroup, SpaceText, TotalsText};

/// The space for files of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceFor {
    /// Of the nodes that may write it.
    pub writable: Totals,
    /// Of those among them that can stage files.
    pub staging: Totals,
    /// Of all nodes that export the path.
    pub all: Totals,
}

/// Returns the space for files of this path, added up over the tree; `None` if no node exports it.
pub(super) fn space_for(location: &LocationDriver, tree: &TreeDriver, path: &[u8]) -> Option<SpaceFor> {
    let members = tree.node().members()?;
    let rights = location.resolver().cell().paths().rights(path)?;
    let stagers: SlotMask = rights
        .stage
        .iter()
        .filter(|slot| members.member(*slot).is_some_and(|member| !member.condition.nostage))
        .collect();
    let shares = location.settings().policy.shared.is_some();
    let of = |slots: SlotMask| total(members, slots, shares);
    Some(SpaceFor { writable: of(rights.write), staging: of(stagers), all: of(rights.read) })
}

/// Returns the sum. Servers that share their files have the same space, which counts once.
fn total(members: &Members, slots: SlotMask, shares: bool) -> Totals {
    let totals = members.totals_of(slots);
    if !shares {
        return totals;
    }
    let each = slots.iter().map(|slot| members.totals_of(slot.mask()));
    let most = each.max_by_key(|one| one.total_mb).unwrap_or_default();
    Totals { total_mb: most.total_mb, free_mb: most.free_mb, ..totals }
}

/// Encodes the reply to a redirector that requests the space.
pub(super) fn space_text(space: Option<SpaceFor>, modifier: StatfsModifier) -> Vec<u8> {
    let mut text = Vec::new();
    if modifier.contains(StatfsModifier::TOTALS) {
        let Totals { total_mb, free_mb, best_free_mb, .. } = space.unwrap_or_default().all;
        let number = |mb: u64| i64::try_from(mb).unwrap_or(i64::MAX);
        let (total_mb, free_mb) = (number(total_mb), number(free_mb));
        TotalsText { total_mb, free_mb, free_mb_max: best_free_mb.into() }.encode(&mut text);
    } else {
        let text_of =
            |space: SpaceFor| SpaceText { writable: group(space.writable), staging: group(space.staging) };
        space.map_or(SpaceText::NOBODY, text_of).encode(&mut text);
    }
    text
}

fn group(totals: Totals) -> SpaceGroup {
    SpaceGroup {
        nodes: i64::try_from(totals.children).unwrap_or(i64::MAX),
        free_mb: totals.best_free_mb.into(),
        used_percent: totals.best_used_percent.into(),
    }
}
