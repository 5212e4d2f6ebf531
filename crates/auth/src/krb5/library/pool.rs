//! [`ContextPool`]: contexts that are kept between exchanges.
//!
//! A new context reads the configuration of Kerberos and finds the modules that map names, which is a large
//! part of the cost of a login. The key table and the replay cache are not part of it: each exchange
//! opens them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::context::KerberosContext;
use super::error::LibraryFault;
use crate::krb5::ContextMaker;

/// Maximum number of contexts that are kept. It is that of the exchanges at the same time that find one.
const CONTEXTS_MAX: usize = 16;
/// Time after which contexts are made again, so that changes of the configuration count.
const LIFETIME: Duration = Duration::from_secs(60);

/// Contexts that no exchange uses at present.
pub(in crate::krb5) struct ContextPool {
    make: ContextMaker,
    state: Mutex<UnusedContexts>,
}

#[derive(Default)]
struct UnusedContexts {
    unused: Vec<KerberosContext>,
    /// The number of the contexts that may be kept. Others were made before the last renewal.
    generation: u64,
    /// The time of the last renewal.
    renewed: Option<SystemTime>,
}

impl UnusedContexts {
    fn renew(&mut self, now: Option<SystemTime>) -> Vec<KerberosContext> {
        self.generation += 1;
        self.renewed = now;
        std::mem::take(&mut self.unused)
    }
}

impl ContextPool {
    pub(in crate::krb5) fn new(make: ContextMaker) -> Self {
        Self { make, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, UnusedContexts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a context that is not kept. Blocks.
    pub(in crate::krb5) fn make(&self) -> Result<KerberosContext, LibraryFault> {
        (self.make)()
    }

    /// Returns a context for an exchange. Blocks if there is none.
    pub(in crate::krb5) fn take(&self, now: SystemTime) -> Result<KerberosContext, LibraryFault> {
        let (found, generation, outdated) = {
            let mut state = self.state();
            let age = state.renewed.and_then(|renewed| now.duration_since(renewed).ok());
            let outdated = match age {
                Some(age) if age < LIFETIME => Vec::new(),
                _ => state.renew(Some(now)),
            };
            (state.unused.pop(), state.generation, outdated)
        };
        drop(outdated);
        match found {
            Some(context) => Ok(context),
            None => {
                let mut context = self.make()?;
                context.generation = generation;
                Ok(context)
            }
        }
    }

    /// Keeps the context of an exchange that has succeeded.
    pub(in crate::krb5) fn give_back(&self, context: KerberosContext) {
        let mut state = self.state();
        if context.generation == state.generation && state.unused.len() < CONTEXTS_MAX {
            state.unused.push(context);
        }
    }

    /// Releases the contexts, so that the next exchanges read the configuration.
    pub(in crate::krb5) fn clear(&self) {
        let outdated = self.state().renew(None);
        drop(outdated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn contexts_are_made_again_after_their_time() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let pool = ContextPool::new(Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            KerberosContext::new()
        }));
        let made = || made.load(Ordering::Relaxed);
        let start = SystemTime::UNIX_EPOCH + LIFETIME;
        let take = |now| pool.take(now).unwrap();
        pool.give_back(take(start));
        pool.give_back(take(start + LIFETIME / 2));
        assert_eq!(made(), 1);
        let used = take(start + LIFETIME / 2);
        pool.give_back(take(start + LIFETIME));
        assert_eq!(made(), 2, "its time is over");
        pool.give_back(used);
        let kept = take(start + LIFETIME);
        drop((kept, take(start + LIFETIME)));
        assert_eq!(made(), 3, "one that was in use meanwhile is not kept");
        // The clock was set back.
        pool.give_back(take(start));
        pool.give_back(take(start - LIFETIME));
        assert_eq!(made(), 5);
    }

    #[test]
    fn a_limited_number_of_contexts_is_kept() {
        let pool = ContextPool::new(Arc::new(KerberosContext::new));
        let now = SystemTime::UNIX_EPOCH;
        let many: Vec<_> = (0..CONTEXTS_MAX + 3).map(|_| pool.take(now).unwrap()).collect();
        many.into_iter().for_each(|context| pool.give_back(context));
        assert_eq!(pool.state().unused.len(), CONTEXTS_MAX);
    }
}
