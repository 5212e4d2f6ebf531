//! What is known of a path, as rules look at it: who has it, and whether anybody has yet to be heard.
//!
//! Where all servers see the same files (`cms.dfs`), the word of one is the word of all: what one has all have, and one is
//! asked instead of all. Source: cms protocol 3, section "shared file systems".

use crate::cache::Location;
use crate::cell::Cell;
use crate::paths::Rights;
use crate::selection::Policy;
use crate::slots::{Slot, SlotMask};

/// All servers see the same files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedFiles {
    /// Clients are sent on without a look whether the file is there.
    pub unchecked: bool,
    /// The node looks itself, at its own mount, instead of asking a server.
    pub central: bool,
    /// So many servers a client may have tried for one file; the next will do no better.
    pub tries_max: usize,
}

impl Default for SharedFiles {
    fn default() -> Self {
        Self { unchecked: false, central: false, tries_max: 2 }
    }
}

/// What is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Children that have it.
    pub(super) have: SlotMask,
    /// Those of them where it is only on its way.
    pub(super) pending: SlotMask,
    /// Somebody has yet to be heard.
    pub(super) open: bool,
}

pub(super) fn seen(cell: &Cell, policy: &Policy, location: &Location, rights: Rights, creates: bool) -> Seen {
    let have = location.have & rights.read;
    let open = location.querying || (location.unasked & rights.read).meets(cell.connected());
    let exact = Seen { have, pending: location.pending, open };
    match policy.shared {
        None => exact,
        // Whether it is there the server finds out.
        Some(SharedFiles { unchecked: true, .. }) => {
            let have = if creates { SlotMask::EMPTY } else { rights.read };
            Seen { have, pending: SlotMask::EMPTY, open: false }
        }
        // One that is being made is known to its maker before it is seen by all.
        Some(_) if (have - location.pending).is_empty() => exact,
        Some(_) => Seen { have: rights.read, pending: SlotMask::EMPTY, open: false },
    }
}

/// One of these slots; with each number another.
pub(super) fn turn(slots: SlotMask, number: usize) -> SlotMask {
    slots.iter().nth(number.checked_rem(slots.len()).unwrap_or(0)).map(Slot::mask).unwrap_or_default()
}
