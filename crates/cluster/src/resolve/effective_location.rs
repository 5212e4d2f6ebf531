//! The effective location of a path, as input of the rules.
//!
//! With a shared file system (`cms.dfs`) the report of one server is valid for all: a file of one
//! is a file of all, and one is queried instead of all. This file applies that once, so that the
//! rules need no special case. Source: cms protocol 3, section "shared file systems".

use crate::cache::CachedLocation;
use crate::cell::Cell;
use crate::paths::Rights;
use crate::selection::Policy;
use crate::shared_file_system::SharedFilePolicy;
use crate::slots::{Slot, SlotMask};

/// The effective location.
#[derive(Clone, Copy, Debug)]
pub(super) struct EffectiveLocation {
    /// Children that have it.
    pub(super) have: SlotMask,
    /// Those of them where it is only being staged.
    pub(super) pending: SlotMask,
    /// Replies are outstanding.
    pub(super) open: bool,
}

pub(super) fn effective_location(
    cell: &Cell,
    policy: &Policy,
    location: &CachedLocation,
    rights: Rights,
    creates: bool,
) -> EffectiveLocation {
    let have = location.have & rights.read;
    let open = location.querying || (location.unasked & rights.read).meets(cell.connected());
    let exact = EffectiveLocation { have, pending: location.pending, open };
    match policy.shared {
        None => exact,
        // The server finds out whether the file exists.
        Some(SharedFilePolicy { unchecked: true, .. }) => {
            let have = if creates { SlotMask::EMPTY } else { rights.read };
            EffectiveLocation { have, pending: SlotMask::EMPTY, open: false }
        }
        // A file in creation is known to its creator before all servers see it.
        Some(_) if (have - location.pending).is_empty() => exact,
        Some(_) => EffectiveLocation { have: rights.read, pending: SlotMask::EMPTY, open: false },
    }
}

/// Returns one of these slots; consecutive numbers give different ones.
pub(super) fn turn(slots: SlotMask, number: usize) -> SlotMask {
    slots.iter().nth(number.checked_rem(slots.len()).unwrap_or(0)).map(Slot::mask).unwrap_or_default()
}
