//! [`MissingKeys`]: issuers whose tokens name keys that are not in force, and the requests
//! that wait for these keys.
//!
//! Somebody outside of this crate fetches keys. It is woken when an issuer is added, and answers by
//! ending the wait for it, whether there are new keys or not.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use base::{ClientHost, Owner};

/// Maximum number of requests that wait for keys. Each keeps its token, which a client can make up.
pub const KEY_WAITERS_MAX: usize = 1024;

/// Maximum number of them that clients of one host have, so that the sessions of one client do not keep
/// requests of other hosts from waiting.
pub const HOST_KEY_WAITERS_MAX: usize = KEY_WAITERS_MAX / 4;

/// Maximum number of them that one session has, so that its tokens do not keep those of others from
/// waiting.
pub const SESSION_KEY_WAITERS_MAX: usize = HOST_KEY_WAITERS_MAX / 8;

/// A request that waits for keys. It is called on the thread that ends the wait, and must not block.
pub type KeyWaiter = Box<dyn FnOnce() + Send>;

/// The client whose request waits.
#[derive(Clone, Copy, Debug)]
pub struct KeyWaiterOwner {
    /// Its session.
    pub session: Owner,
    /// Its host.
    pub host: ClientHost,
}

/// The requests that wait, by issuer.
type WaitersOfIssuers = HashMap<String, Vec<(KeyWaiterOwner, KeyWaiter)>>;

#[derive(Default)]
pub(super) struct MissingKeys {
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    issuers: Mutex<WaitersOfIssuers>,
}

impl fmt::Debug for MissingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MissingKeys").finish_non_exhaustive()
    }
}

impl MissingKeys {
    fn issuers(&self) -> MutexGuard<'_, WaitersOfIssuers> {
        self.issuers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the function that is called when an issuer is added. The first one stays.
    pub(super) fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        drop(self.wake.set(Box::new(wake)));
    }

    /// Adds an issuer, if somebody fetches keys.
    pub(super) fn add(&self, issuer: &str) {
        let Some(wake) = self.wake.get() else { return };
        let mut issuers = self.issuers();
        if !issuers.contains_key(issuer) {
            issuers.insert(issuer.to_owned(), Vec::new());
            drop(issuers);
            wake();
        }
    }

    /// Adds an issuer and a request of `owner` that waits for its keys. Returns the request if nobody
    /// fetches keys, or if too many wait.
    pub(super) fn wait(
        &self,
        issuer: &str,
        owner: KeyWaiterOwner,
        waiter: KeyWaiter,
    ) -> Result<(), KeyWaiter> {
        let Some(wake) = self.wake.get() else { return Err(waiter) };
        let mut issuers = self.issuers();
        let owners = || issuers.values().flatten().map(|(owner, _)| owner);
        let count_of_session = owners().filter(|other| other.session == owner.session).count();
        let count_of_host = owners().filter(|other| other.host == owner.host).count();
        if owners().count() >= KEY_WAITERS_MAX
            || count_of_host >= HOST_KEY_WAITERS_MAX
            || count_of_session >= SESSION_KEY_WAITERS_MAX
        {
            return Err(waiter);
        }
        let is_new = !issuers.contains_key(issuer);
        issuers.entry(issuer.to_owned()).or_default().push((owner, waiter));
        drop(issuers);
        if is_new {
            wake();
        }
        Ok(())
    }

    /// Returns the issuers.
    pub(super) fn list(&self) -> Vec<String> {
        self.issuers().keys().cloned().collect()
    }

    /// Removes an issuer, and lets the requests that wait for its keys go on.
    pub(super) fn end(&self, issuer: &str) {
        let waiters = self.issuers().remove(issuer).unwrap_or_default();
        for (_, waiter) in waiters {
            waiter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn counter() -> (Arc<AtomicUsize>, impl Fn() + Send + Sync + Clone + 'static) {
        let count = Arc::<AtomicUsize>::default();
        let shared = count.clone();
        let count_one = move || {
            shared.fetch_add(1, Ordering::Relaxed);
        };
        (count, count_one)
    }

    fn owner(host: u8, session: u64) -> KeyWaiterOwner {
        let host = ClientHost::from(Some([192, 0, 2, host].into()));
        KeyWaiterOwner { session: Owner(session), host }
    }

    #[test]
    fn nothing_waits_where_nobody_fetches_keys() {
        let missing = MissingKeys::default();
        missing.add("a");
        assert!(missing.list().is_empty());
        assert!(missing.wait("a", owner(1, 1), Box::new(|| ())).is_err());
    }

    #[test]
    fn one_message_wakes_for_all_tokens_of_an_issuer() {
        let missing = MissingKeys::default();
        let ((woken, wake), (resumed, resume)) = (counter(), counter());
        missing.set_wake(wake);
        let wait = |issuer: &str, host, session| {
            missing.wait(issuer, owner(host, session), Box::new(resume.clone())).is_ok()
        };
        for session in 1..=32 {
            missing.add("a");
            let host = u8::try_from((session - 1) / 8).unwrap();
            assert!((0..SESSION_KEY_WAITERS_MAX).all(|_| wait("a", host, session)));
            assert!(!wait("a", host, session) && !wait("b", host, session), "the session has its share");
        }
        assert!(!wait("a", 4, 33), "too many");
        assert!(!wait("b", 4, 33), "the limit is of all issuers");
        assert_eq!((woken.load(Ordering::Relaxed), missing.list()), (1, vec!["a".to_owned()]));
        missing.end("other");
        assert_eq!(resumed.load(Ordering::Relaxed), 0);
        missing.end("a");
        assert_eq!((resumed.load(Ordering::Relaxed), missing.list()), (KEY_WAITERS_MAX, vec![]));
        assert!(wait("a", 0, 1), "its places are free again");
        assert_eq!(woken.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_client_with_many_sessions_leaves_places_to_other_hosts() {
        let missing = MissingKeys::default();
        missing.set_wake(|| ());
        let wait = |host, session| missing.wait("a", owner(host, session), Box::new(|| ())).is_ok();
        let of_one_host = (0..2 * KEY_WAITERS_MAX as u64).filter(|session| wait(1, *session)).count();
        assert_eq!(of_one_host, HOST_KEY_WAITERS_MAX);
        assert!(wait(2, 9999), "another host");
        assert!(!wait(1, 9999), "a new session of the same host");
    }
}
