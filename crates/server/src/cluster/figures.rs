//! How this node and those below it feel: what is measured here goes into the tree, what the tree knows is added up.

use super::engine::Engine;
use super::health::Report;
use cluster::SlotMask;
use cluster::tree::{LinkId, Members, Totals};
use wire::cms::StreamId;
use wire::cms::flags::StatfsModifier;
use wire::cms::message::Statfs;
use wire::cms::response::Answer as WireAnswer;
use wire::cms::response::space_text::{SpaceGroup, SpaceText, TotalsText};

/// Space for files of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceFor {
    /// Of nodes that may write it.
    pub writable: Totals,
    /// Of those among them that can bring files in.
    pub staging: Totals,
    /// Of all nodes that have such files.
    pub all: Totals,
}

impl Engine {
    /// Something about this node was measured.
    pub(super) fn feels(&mut self, report: Report) {
        match report {
            Report::Load { load, tell } => self.drive(|node, _, out| node.set_load(load, tell, out)),
            Report::Space { space, full: _, tell } => {
                self.drive(|node, _, out| node.set_space(space, tell, out));
            }
            Report::List(list) => self.drive(|node, now, out| node.set_blacklist(list, now, out)),
        }
    }

    /// Space for files of this path, added up over the tree; `None` when nobody exports it.
    pub fn space_for(&self, path: &[u8]) -> Option<SpaceFor> {
        let members = self.node.members()?;
        let rights = self.resolver.as_ref()?.cell().paths().rights(path)?;
        let stagers: SlotMask = rights
            .stage
            .iter()
            .filter(|slot| members.member(*slot).is_some_and(|member| !member.condition.nostage))
            .collect();
        let of = |slots: SlotMask| self.once(members, slots);
        Some(SpaceFor { writable: of(rights.write), staging: of(stagers), all: of(rights.read) })
    }

    /// Servers that share their files have the same space, which counts once.
    fn once(&self, members: &Members, slots: SlotMask) -> Totals {
        let totals = members.totals_of(slots);
        if self.settings.policy.shared.is_none() {
            return totals;
        }
        let each = slots.iter().map(|slot| members.totals_of(slot.mask()));
        let most = each.max_by_key(|one| one.total_mb).unwrap_or_default();
        Totals { total_mb: most.total_mb, free_mb: most.free_mb, ..totals }
    }

    /// Tells a redirector how much space there is.
    pub(super) fn tell_space(&mut self, link: LinkId, streamid: StreamId, statfs: &Statfs<'_>) {
        let space = self.space_for(statfs.path);
        let mut text = Vec::new();
        if statfs.modifier.contains(StatfsModifier::TOTALS) {
            let Totals { total_mb, free_mb, best_free_mb, .. } = space.unwrap_or_default().all;
            let number = |mb: u64| i64::try_from(mb).unwrap_or(i64::MAX);
            let (total_mb, free_mb) = (number(total_mb), number(free_mb));
            TotalsText { total_mb, free_mb, free_mb_max: best_free_mb.into() }.encode(&mut text);
        } else {
            let text_of = |space: SpaceFor| SpaceText {
                writable: group(space.writable),
                staging: group(space.staging),
            };
            space.map_or(SpaceText::NOBODY, text_of).encode(&mut text);
        }
        self.respond_with(link, streamid, None, WireAnswer::Data { value: 0, text: Some(&text) });
    }
}

fn group(totals: Totals) -> SpaceGroup {
    SpaceGroup {
        nodes: i64::try_from(totals.children).unwrap_or(i64::MAX),
        free_mb: totals.best_free_mb.into(),
        used_percent: totals.best_used_percent.into(),
    }
}
