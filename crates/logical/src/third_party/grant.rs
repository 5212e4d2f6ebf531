//! The grant that an open file holds for a destination; releasing the file withdraws the grant.
//! Separate from the rendezvous so that open files depend only on this type.

use super::rendezvous::{GrantNumber, Rendezvous};
use std::sync::{Arc, Mutex, PoisonError};
use vfs::DeferredReply;

/// A grant to a destination, valid as long as its client keeps the file open.
pub(crate) struct HeldGrant {
    pub(super) rendezvous: Arc<Mutex<Rendezvous<DeferredReply>>>,
    pub(super) number: GrantNumber,
}

impl HeldGrant {
    /// Withdraws the grant, unless it was used.
    pub(crate) fn withdraw(self) {
        self.rendezvous.lock().unwrap_or_else(PoisonError::into_inner).withdraw(self.number);
    }
}
