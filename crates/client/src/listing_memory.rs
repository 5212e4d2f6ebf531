//! [`ListingMemory`]: the memory that listings may take together, charged as their bytes arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory for listings. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ListingMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes_max: usize,
    used: AtomicUsize,
}

impl PartialEq for ListingMemory {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ListingMemory {}

impl ListingMemory {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Inner { bytes_max, used: AtomicUsize::new(0) }))
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// A charge of nothing yet.
    pub(crate) fn charge(&self) -> Charge {
        Charge { memory: self.clone(), bytes: 0 }
    }
}

/// A part of the memory, which is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: ListingMemory,
    bytes: usize,
}

impl Charge {
    /// Charges up to so many bytes; `false`, and nothing is changed, when there is no room.
    #[must_use]
    pub(crate) fn reach(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let inner = &self.memory.0;
        let add = |used: usize| used.checked_add(more).filter(|sum| *sum <= inner.bytes_max);
        let has_room = inner.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok();
        if has_room {
            self.bytes += more;
        }
        has_room
    }

    /// Moves it to another memory; `false`, and nothing is changed, when that has no room.
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

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.0.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_has_a_limit_and_is_given_back() {
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
}
