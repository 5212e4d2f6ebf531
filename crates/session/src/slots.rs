//! A table with small stable keys for calls in flight.
//!
//! Keys are integers, so that a driver can put them into the token of an operation.

/// Capacity up to which an empty table keeps its memory.
const KEPT_MAX: usize = 8;

/// The table. Keys of removed values are reused.
pub(crate) struct StableKeyTable<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    used: usize,
}

impl<T> Default for StableKeyTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), used: 0 }
    }
}

impl<T> StableKeyTable<T> {
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.used += 1;
        if let Some(key) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(key as usize)
        {
            *slot = Some(value);
            return key;
        }
        self.slots.push(Some(value));
        // The number of calls is limited far below `u32::MAX`.
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        self.slots.get(key as usize)?.as_ref()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.slots).filter_map(|(key, slot)| Some((key, slot.as_mut()?)))
    }

    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.slots.get_mut(key as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        let value = self.slots.get_mut(key as usize)?.take()?;
        self.used -= 1;
        if self.used == 0 {
            // A small table keeps its memory from one call to the next.
            match self.slots.capacity() > KEPT_MAX {
                true => *self = Self::default(),
                false => {
                    self.slots.clear();
                    self.free.clear();
                }
            }
        } else {
            self.free.push(key);
        }
        Some(value)
    }
}
