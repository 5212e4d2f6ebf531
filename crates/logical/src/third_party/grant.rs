//! The grant of an open file, which it takes back when it is let go.

use super::rendezvous::{GrantNumber, Rendezvous};
use std::sync::{Arc, Mutex, PoisonError};
use vfs::Reply;

/// A grant to a destination that lasts as long as its client holds the file open.
pub(crate) struct HeldGrant {
    pub(super) rendezvous: Arc<Mutex<Rendezvous<Reply>>>,
    pub(super) number: GrantNumber,
}

impl HeldGrant {
    /// Takes the grant back, unless it was used.
    pub(crate) fn withdraw(self) {
        self.rendezvous.lock().unwrap_or_else(PoisonError::into_inner).withdraw(self.number);
    }
}
