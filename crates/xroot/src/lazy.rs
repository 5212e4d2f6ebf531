//! Tables that are allocated on demand, because an idle session must cost little memory.
//!
//! An empty table occupies a pointer.

use slab::Slab;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// A table that may be empty and then needs no allocation.
pub(crate) trait LazyTable: Default + 'static {
    /// The shared empty table that represents an absent one.
    const EMPTY: &'static Self;

    /// Reports whether the table is empty.
    fn is_empty(&self) -> bool;
}

/// A table that is allocated at first use and freed by [`Lazy::shrink`].
#[derive(Default)]
pub(crate) struct Lazy<T>(Option<Box<T>>);

impl<T: LazyTable> Lazy<T> {
    /// Frees the table if it is empty.
    pub(crate) fn shrink(&mut self) {
        if self.0.as_ref().is_some_and(|table| table.is_empty()) {
            self.0 = None;
        }
    }
}

impl<T: LazyTable> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: LazyTable> DerefMut for Lazy<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T: 'static> LazyTable for Slab<T> {
    const EMPTY: &'static Self = &Self::new();

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

impl<T: 'static> LazyTable for VecDeque<T> {
    const EMPTY: &'static Self = &Self::new();

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_allocated_from_its_first_entry_until_it_shrinks() {
        let mut table = Lazy::<Slab<u8>>::default();
        assert!(table.get(0).is_none() && table.is_empty() && table.0.is_none());
        let key = table.insert(7);
        table.shrink();
        assert_eq!(table.get(key), Some(&7), "a table with entries stays");
        table.remove(key);
        assert!(table.0.is_some());
        table.shrink();
        assert!(table.0.is_none() && table.is_empty());
    }
}
