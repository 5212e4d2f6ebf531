//! The number of copies at the same time. Further ones wait, in the order of their arrival.

use crate::{COPIES_MAX, COPIES_PER_HOST_MAX};
use base::ClientHost;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places for copies. A host has a part of them, so that its copies do not hold up those of others.
pub(crate) struct HttpCopySlots {
    all: Arc<Semaphore>,
    hosts: Mutex<HashMap<ClientHost, Weak<Semaphore>>>,
}

/// A place. It is free again on drop.
#[must_use = "the place is free on drop"]
pub(super) struct HttpCopySlot {
    _of_all: Option<OwnedSemaphorePermit>,
    _of_host: Option<OwnedSemaphorePermit>,
    _host: Arc<Semaphore>,
}

impl HttpCopySlots {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(COPIES_MAX)), hosts: Mutex::default() }
    }

    fn host(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|_, known| known.strong_count() > 0);
        let host = ClientHost::from(Some(address));
        if let Some(known) = hosts.get(&host).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Semaphore::new(COPIES_PER_HOST_MAX));
        hosts.insert(host, Arc::downgrade(&new));
        new
    }

    /// Waits for a place for a copy of a host. The semaphores are never closed.
    pub(super) async fn take(&self, address: IpAddr) -> HttpCopySlot {
        let host = self.host(address);
        let of_host = host.clone().acquire_owned().await.ok();
        let of_all = self.all.clone().acquire_owned().await.ok();
        HttpCopySlot { _of_all: of_all, _of_host: of_host, _host: host }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_host_leaves_places_to_others() {
        let slots = HttpCopySlots::new();
        let address = |last: usize| IpAddr::from([192, 0, 2, u8::try_from(last).unwrap()]);
        let mut held: Vec<_> =
            (0..COPIES_PER_HOST_MAX).map(|_| now(slots.take(address(1))).expect("a place")).collect();
        assert!(now(slots.take(address(1))).is_none());
        for host in 2..=COPIES_MAX / COPIES_PER_HOST_MAX {
            held.extend((0..COPIES_PER_HOST_MAX).map(|_| now(slots.take(address(host))).expect("a place")));
        }
        assert!(now(slots.take(address(99))).is_none(), "all places are taken");
        drop(held.remove(0));
        assert!(now(slots.take(address(99))).is_some());
        drop(held);
        assert!(now(slots.take(address(1))).is_some());
        assert_eq!(slots.hosts.lock().unwrap().len(), 1, "hosts without copies are forgotten");
    }
}
