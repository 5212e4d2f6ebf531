//! Slots: a child's place in its cell, and sets of such places as 64-bit masks.
//!
//! A cell is one parent and its at most 64 children. So each fact about children, such as the
//! holders of a file or the exporters of a path, is one machine word. Source: cms protocol 3, terms
//! *cell* and *slot*.

use std::fmt;
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not, Sub, SubAssign};

/// The maximum number of children of a cell.
pub const CELL_SLOTS: usize = 64;

/// A child's place in its cell: 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

impl Slot {
    /// Returns the slot of this number; `None` from 64 on.
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < CELL_SLOTS { Some(Self(number)) } else { None }
    }

    /// Returns the number as an index into a table of [`CELL_SLOTS`] entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the number, 0 to 63.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the set of this slot alone.
    pub const fn mask(self) -> SlotMask {
        SlotMask(1 << self.0)
    }

    /// Returns all slots, from 0 to 63.
    pub fn all() -> SlotIter {
        SlotMask::ALL.iter()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({})", self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A set of slots of one cell; bit n stands for slot n.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SlotMask(pub u64);

impl SlotMask {
    /// No slot.
    pub const EMPTY: Self = Self(0);
    /// All 64 slots.
    pub const ALL: Self = Self(u64::MAX);

    /// Reports whether `slot` is in the set.
    pub const fn contains(self, slot: Slot) -> bool {
        self.0 & slot.mask().0 != 0
    }

    /// Reports whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of slots in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Reports whether the two sets share a slot.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Reports whether every slot of this set is in `other`.
    pub const fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Adds `slot` to the set.
    pub const fn insert(&mut self, slot: Slot) {
        self.0 |= slot.mask().0;
    }

    /// Removes `slot` from the set.
    pub const fn remove(&mut self, slot: Slot) {
        self.0 &= !slot.mask().0;
    }

    /// Returns the lowest slot of the set.
    pub const fn lowest(self) -> Option<Slot> {
        // 64 for the empty set, which is not a valid slot.
        Slot::new(self.0.trailing_zeros() as u8)
    }

    /// Returns the highest slot of the set.
    pub const fn highest(self) -> Option<Slot> {
        // An empty set has 64 leading zeros: 63 - 64 wraps to an invalid slot.
        Slot::new(63u8.wrapping_sub(self.0.leading_zeros() as u8))
    }

    /// Returns the slots of the set from the lowest to the highest; `.rev()` reverses the order.
    pub const fn iter(self) -> SlotIter {
        SlotIter(self)
    }
}

impl From<Slot> for SlotMask {
    fn from(slot: Slot) -> Self {
        slot.mask()
    }
}

impl FromIterator<Slot> for SlotMask {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        slots.into_iter().fold(Self::EMPTY, |mask, slot| mask | slot.mask())
    }
}

impl IntoIterator for SlotMask {
    type Item = Slot;
    type IntoIter = SlotIter;

    fn into_iter(self) -> SlotIter {
        self.iter()
    }
}

impl fmt::Debug for SlotMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Slot::number)).finish()
    }
}

impl BitOr for SlotMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for SlotMask {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for SlotMask {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitAndAssign for SlotMask {
    fn bitand_assign(&mut self, other: Self) {
        self.0 &= other.0;
    }
}

/// Returns the slots of the left set that are not in the right one.
impl Sub for SlotMask {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl SubAssign for SlotMask {
    fn sub_assign(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

impl Not for SlotMask {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// The slots of a set in ascending order.
#[derive(Clone, Debug)]
pub struct SlotIter(SlotMask);

impl Iterator for SlotIter {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        let slot = self.0.lowest()?;
        self.0.remove(slot);
        Some(slot)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl DoubleEndedIterator for SlotIter {
    fn next_back(&mut self) -> Option<Slot> {
        let slot = self.0.highest()?;
        self.0.remove(slot);
        Some(slot)
    }
}

impl ExactSizeIterator for SlotIter {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_64_slots() {
        assert_eq!(Slot::new(63).map(Slot::index), Some(63));
        assert_eq!(Slot::new(64), None);
        assert_eq!(Slot::all().len(), CELL_SLOTS);
    }

    #[test]
    fn ends_of_a_set() {
        assert_eq!((SlotMask::EMPTY.lowest(), SlotMask::EMPTY.highest()), (None, None));
        let mask = SlotMask(1 | 1 << 63);
        assert_eq!((mask.lowest(), mask.highest()), (Slot::new(0), Slot::new(63)));
    }

    #[test]
    fn walks_both_ways() {
        let mask = SlotMask(1 << 3 | 1 << 17 | 1 << 63);
        let up: Vec<u8> = mask.iter().map(Slot::number).collect();
        let down: Vec<u8> = mask.iter().rev().map(Slot::number).collect();
        assert_eq!((up, down), (vec![3, 17, 63], vec![63, 17, 3]));
        assert_eq!(mask.iter().collect::<SlotMask>(), mask);
    }

    #[test]
    fn difference_and_subset() {
        let (a, b) = (SlotMask(0b0111), SlotMask(0b0101));
        assert_eq!(a - b, SlotMask(0b0010));
        assert!(b.within(a) && !a.within(b) && a.meets(b) && !(a - b).meets(b));
    }
}
