//! The number of copies at the same time. Further ones wait, in the order of their arrival.

use crate::{COPIES_MAX, COPIES_PER_HOST_MAX, COPIES_PER_USER_MAX};
use base::ClientHost;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The places for copies. A host has a part of them, and each of its users a part of these, so that the
/// copies of one do not hold up those of others.
pub(crate) struct HttpCopySlots {
    all: Arc<Semaphore>,
    parts: Mutex<HashMap<SlotOwner, Weak<Semaphore>>>,
}

/// The owner of a part of the places.
#[derive(Clone, PartialEq, Eq, Hash)]
enum SlotOwner {
    Host(ClientHost),
    /// A user of a host; `None` for all clients without a name.
    User(ClientHost, Option<Box<str>>),
}

/// A place. It is free again on drop.
#[must_use = "the place is free on drop"]
pub(super) struct HttpCopySlot {
    _held: Vec<HeldPart>,
}

/// A place of one part, and the part, which is forgotten when nobody has it.
type HeldPart = (OwnedSemaphorePermit, Arc<Semaphore>);

impl HttpCopySlots {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(COPIES_MAX)), parts: Mutex::default() }
    }

    fn part(&self, owner: SlotOwner, size: usize) -> Arc<Semaphore> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|_, known| known.strong_count() > 0);
        if let Some(known) = parts.get(&owner).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Semaphore::new(size));
        parts.insert(owner, Arc::downgrade(&new));
        new
    }

    /// Waits for a place for a copy of a user of a host; `None` if there is none within this time.
    pub(super) async fn take(
        &self,
        address: IpAddr,
        user: Option<&str>,
        time: Duration,
    ) -> Option<HttpCopySlot> {
        let host = ClientHost::from(Some(address));
        let parts = [
            self.part(SlotOwner::User(host, user.map(Box::from)), COPIES_PER_USER_MAX),
            self.part(SlotOwner::Host(host), COPIES_PER_HOST_MAX),
            self.all.clone(),
        ];
        let places = async {
            let mut held = Vec::with_capacity(parts.len());
            for part in parts {
                // It is never closed.
                held.push((part.clone().acquire_owned().await.ok()?, part));
            }
            Some(HttpCopySlot { _held: held })
        };
        timeout(time, places).await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the place that is free at once.
    async fn now(slots: &HttpCopySlots, host: u8, user: Option<&str>) -> Option<HttpCopySlot> {
        slots.take(IpAddr::from([192, 0, 2, host]), user, Duration::ZERO).await
    }

    #[tokio::test]
    async fn a_host_and_its_users_leave_places_to_others() {
        let slots = HttpCopySlots::new();
        let mut held = Vec::new();
        for (host, user) in [(1, None), (1, Some("a")), (2, Some("a")), (2, Some("b"))] {
            for _ in 0..COPIES_PER_USER_MAX {
                held.push(now(&slots, host, user).await.expect("a place"));
            }
            // A copy does not wait for ever.
            assert!(now(&slots, host, user).await.is_none(), "{host} {user:?}");
        }
        assert!(now(&slots, 1, Some("c")).await.is_none(), "the places of the host are taken");
        assert!(now(&slots, 99, None).await.is_none(), "all places are taken");
        drop(held.remove(0));
        assert!(now(&slots, 1, Some("c")).await.is_some());
        assert!(now(&slots, 99, None).await.is_some());
        drop(held);
        let _last = now(&slots, 1, None).await.expect("a place");
        assert_eq!(slots.parts.lock().unwrap().len(), 2, "hosts and users without copies are forgotten");
    }
}
