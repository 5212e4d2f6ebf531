//! [`ListingMemory`]: the memory limit of listings, charged as their bytes arrive.
//!
//! Bytes are charged on arrival because the size of a listing is unknown until its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory limit of listings. Clones share it.
#[derive(Clone, Debug)]
pub struct ListingMemory(Arc<ListingMemoryState>);

#[derive(Debug)]
struct ListingMemoryState {
    bytes_max: usize,
    used: AtomicUsize,
    /// The limit that this one is a part of.
    whole: Option<ListingMemory>,
}

impl ListingMemoryState {
    fn add(&self, more: usize) -> bool {
        let add = |used: usize| used.checked_add(more).filter(|sum| *sum <= self.bytes_max);
        let has_room = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok();
        if has_room && self.whole.as_ref().is_some_and(|whole| !whole.0.add(more)) {
            self.used.fetch_sub(more, Ordering::AcqRel);
            return false;
        }
        has_room
    }

    fn remove(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
        if let Some(whole) = &self.whole {
            whole.0.remove(bytes);
        }
    }
}

impl PartialEq for ListingMemory {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ListingMemory {}

impl ListingMemory {
    /// Creates a limit of its own.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(ListingMemoryState { bytes_max, used: AtomicUsize::new(0), whole: None }))
    }

    /// Creates a limit within this one.
    pub(crate) fn part(&self, bytes_max: usize) -> Self {
        let (used, whole) = (AtomicUsize::new(0), Some(self.clone()));
        Self(Arc::new(ListingMemoryState { bytes_max, used, whole }))
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// Creates an empty charge.
    pub(crate) fn charge(&self) -> ListingCharge {
        ListingCharge { memory: self.clone(), bytes: 0 }
    }
}

/// A charged part of the memory, released on drop.
#[derive(Debug)]
pub(crate) struct ListingCharge {
    memory: ListingMemory,
    bytes: usize,
}

impl ListingCharge {
    /// Grows the charge to `bytes`. Returns `false` and changes nothing if there is no space.
    #[must_use]
    pub(crate) fn reach(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let has_room = self.memory.0.add(more);
        if has_room {
            self.bytes += more;
        }
        has_room
    }

    /// Moves the charge to another memory. Returns `false` and changes nothing if that has no
    /// space.
    #[must_use]
    pub(crate) fn move_to(&mut self, memory: &ListingMemory) -> bool {
        if self.memory == *memory {
            return true;
        }
        let mut moved = memory.charge();
        let has_room = moved.reach(self.bytes);
        if has_room {
            *self = moved;
        }
        has_room
    }
}

impl Drop for ListingCharge {
    fn drop(&mut self) {
        self.memory.0.remove(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_limited_and_released() {
        let (memory, other) = (ListingMemory::new(100), ListingMemory::new(50));
        let (mut one, mut two) = (memory.charge(), memory.charge());
        assert!(one.reach(60) && one.reach(10) && two.reach(40));
        assert!(!two.reach(41) && !one.reach(61));
        assert!(!one.move_to(&other) && two.move_to(&other));
        assert!(one.reach(100) && !two.reach(51));
        drop(one);
        assert!(memory.charge().reach(100));
        drop(two);
        assert!(other.charge().reach(50));
    }

    #[test]
    fn parts_share_the_whole() {
        let whole = ListingMemory::new(100);
        let (first, second) = (whole.part(70), whole.part(70));
        let (mut one, mut two) = (first.charge(), second.charge());
        assert!(one.reach(60) && !one.reach(71) && two.reach(40) && !two.reach(41));
        drop(one);
        assert!(two.reach(70));
        drop(two);
        assert!(whole.charge().reach(100));
    }
}
