//! Memory that is charged to the process without an [`super::Account`], for owners that are not bound to
//! an event loop.

use super::{MemoryBudget, MemoryPurpose};
use std::sync::Arc;

/// Bytes of memory that are claimed from a budget until the charge is dropped. It may move between
/// threads.
#[derive(Debug)]
#[must_use = "the bytes return on drop"]
pub struct SharedCharge {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl SharedCharge {
    /// Claims bytes; `None` if they do not fit for this purpose, or if sessions wait for memory.
    pub fn take(budget: &Arc<MemoryBudget>, purpose: MemoryPurpose, bytes: usize) -> Option<Self> {
        let is_free = !budget.is_short() && budget.try_claim(purpose, bytes, 0);
        is_free.then(|| Self { budget: budget.clone(), bytes })
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows or shrinks the charge. Reports whether it has this size now.
    pub fn resize(&mut self, purpose: MemoryPurpose, bytes: usize) -> bool {
        if let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) {
            let Some(mut rest) = Self::take(&self.budget, purpose, more) else { return false };
            rest.bytes = 0;
        } else {
            self.budget.release(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for SharedCharge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ceilings;

    #[test]
    fn bytes_are_claimed_up_to_the_limit_and_return() {
        let all = Ceilings { argument: 100, request: 200, data: 300 };
        let budget = MemoryBudget::new(all, all, 0);
        let mut first = SharedCharge::take(&budget, MemoryPurpose::Request, 150).unwrap();
        assert!(SharedCharge::take(&budget, MemoryPurpose::Request, 51).is_none());
        let data = SharedCharge::take(&budget, MemoryPurpose::Data, 100).unwrap();
        assert_eq!(budget.claimed(), 250);
        assert!(!first.resize(MemoryPurpose::Request, 151));
        assert_eq!((first.bytes(), budget.claimed()), (150, 250));
        drop(data);
        assert!(first.resize(MemoryPurpose::Request, 200) && first.resize(MemoryPurpose::Request, 10));
        assert_eq!((first.bytes(), budget.claimed()), (10, 10));
        drop(first);
        assert_eq!(budget.claimed(), 0);
    }

    #[test]
    fn sessions_that_wait_come_first() {
        let all = Ceilings { argument: 100, request: 200, data: 300 };
        let budget = MemoryBudget::new(all, all, 0);
        let _held = SharedCharge::take(&budget, MemoryPurpose::Request, 1).unwrap();
        budget.enqueue(MemoryPurpose::Data, 1, 400, std::task::Waker::noop());
        assert!(SharedCharge::take(&budget, MemoryPurpose::Request, 1).is_none());
    }
}
