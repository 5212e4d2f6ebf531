//! [`GhostTable`]: which units were removed lately.

/// A table of the units that were removed last, as bits of their hashes. It can take a unit for
/// another one (once in 2^32 look-ups) and forgets a unit whose place another one needs; both only cost
/// a wrong guess. It takes 8 bytes for each place.
#[derive(Debug)]
pub(super) struct GhostTable {
    /// Bits of the hash, and the number of the removal; 0 if none.
    places: Vec<(u32, u32)>,
    removals: u32,
}

impl GhostTable {
    /// Creates a table for about this number of units.
    pub(super) fn new(units: usize) -> Self {
        let places = units.clamp(16, 1 << 31).next_power_of_two();
        Self { places: vec![(0, 0); places], removals: 0 }
    }

    fn place(&self, hash: u64) -> usize {
        usize::try_from(hash & (self.places.len() as u64 - 1)).unwrap_or(0)
    }

    /// Adds a unit that was removed from the cache.
    pub(super) fn add(&mut self, hash: u64) {
        self.removals = self.removals.wrapping_add(1).max(1);
        let (place, removal) = (self.place(hash), self.removals);
        if let Some(place) = self.places.get_mut(place) {
            *place = (fingerprint(hash), removal);
        }
    }

    /// Removes a unit. Reports whether it was one of the last `units` that were added.
    pub(super) fn take(&mut self, hash: u64, units: usize) -> bool {
        let (at, removals) = (self.place(hash), self.removals);
        let Some(place) = self.places.get_mut(at) else { return false };
        let (bits, removal) = *place;
        if removal == 0 || bits != fingerprint(hash) {
            return false;
        }
        *place = (0, 0);
        (removals.wrapping_sub(removal) as usize) < units
    }
}

/// Returns bits of a hash that do not select its place.
fn fingerprint(hash: u64) -> u32 {
    u32::try_from(hash >> 32).unwrap_or(0)
}
