//! Where each session lives, for connections that join or end it. Looked at by login, bind and endsess only.

use base::Identity;
use net::LoopHandle;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vfs::Caller;
use wire::xroot::header::SessionId;

/// A session and its home.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) home: LoopHandle,
    pub(crate) owner: u64,
    pub(crate) caller: Arc<Caller>,
}

/// All sessions of the door.
#[derive(Default)]
pub(crate) struct Registry {
    sessions: Mutex<HashMap<SessionId, Entry>>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Entry>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, id: SessionId, entry: Entry) {
        self.lock().insert(id, entry);
    }

    /// It is known now who it is.
    pub(crate) fn logged_in(&self, id: SessionId, caller: &Arc<Caller>) {
        if let Some(entry) = self.lock().get_mut(&id) {
            entry.caller = caller.clone();
        }
    }

    /// Was it there?
    pub(crate) fn remove(&self, id: SessionId) -> bool {
        self.lock().remove(&id).is_some()
    }

    pub(crate) fn find(&self, id: SessionId) -> Option<Entry> {
        self.lock().get(&id).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Who is logged in.
    pub(crate) fn identities(&self) -> Vec<Identity> {
        self.lock().values().map(|entry| entry.caller.identity.clone()).collect()
    }
}
