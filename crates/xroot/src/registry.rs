//! The registry of sessions: the home loop of each, for connections that join or end it.
//!
//! It is the only table of sessions that loops share. Only the start and end of a session, login,
//! bind and endsess use it, so its lock is not on the path of other requests.

use base::Identity;
use net::LoopHandle;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vfs::Caller;
use wire::xroot::header::SessionId;

/// A session and its home loop.
#[derive(Clone)]
pub(crate) struct SessionHome {
    pub(crate) home: LoopHandle,
    pub(crate) owner: u64,
    pub(crate) caller: Arc<Caller>,
}

/// All sessions of the front end.
#[derive(Default)]
pub(crate) struct Registry {
    sessions: Mutex<HashMap<SessionId, SessionHome>>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, SessionHome>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, id: SessionId, entry: SessionHome) {
        self.lock().insert(id, entry);
    }

    /// Stores the identity of a session after its login.
    pub(crate) fn logged_in(&self, id: SessionId, caller: &Arc<Caller>) {
        if let Some(entry) = self.lock().get_mut(&id) {
            entry.caller = caller.clone();
        }
    }

    /// Removes a session. Reports whether it was registered.
    pub(crate) fn remove(&self, id: SessionId) -> bool {
        self.lock().remove(&id).is_some()
    }

    pub(crate) fn find(&self, id: SessionId) -> Option<SessionHome> {
        self.lock().get(&id).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns the identities of all sessions.
    pub(crate) fn identities(&self) -> Vec<Identity> {
        self.lock().values().map(|entry| entry.caller.identity.clone()).collect()
    }
}
