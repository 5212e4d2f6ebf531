//! The number of clients that have logged in and are not authenticated yet, or that perform a TLS
//! handshake, in total and by host.
//!
//! Without a limit, a client could occupy connections, threads, and the memory of exchanges, without
//! authenticating. A host counts by its network for IPv6, because one host can have many addresses.

use crate::settings::{PENDING_LOGINS_MAX, PENDING_LOGINS_PER_HOST_MAX};
use base::{ClientHost, Owner};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The limit that a further client would exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PendingLoginLimit {
    /// That of its host.
    Host,
    /// That of all hosts.
    Total,
}

impl fmt::Display for PendingLoginLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => write!(
                f,
                "{PENDING_LOGINS_PER_HOST_MAX} clients of this host already perform a TLS handshake or a login"
            ),
            Self::Total => {
                write!(f, "{PENDING_LOGINS_MAX} clients already perform a TLS handshake or a login")
            }
        }
    }
}

/// The clients of a front end that are not authenticated yet. Handshakes count too.
#[derive(Default, Debug)]
pub struct PendingLogins {
    counts: Mutex<LoginCounts>,
}

#[derive(Default, Debug)]
struct LoginCounts {
    total: usize,
    by_host: HashMap<ClientHost, HostLogins>,
}

/// The clients of one host.
#[derive(Debug)]
struct HostLogins {
    count: usize,
    /// The key under which threads work for this host.
    owner: Owner,
}

impl PendingLogins {
    fn counts(&self) -> MutexGuard<'_, LoginCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of clients.
    pub fn count(&self) -> usize {
        self.counts().total
    }

    /// Counts a client until the result is dropped.
    ///
    /// # Errors
    /// There are too many, of this host or in total.
    pub fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Result<PendingLoginSlot, PendingLoginLimit> {
        let host = ClientHost::from(address);
        let mut counts = self.counts();
        let of_host = counts.by_host.get(&host).map_or(0, |logins| logins.count);
        if of_host >= PENDING_LOGINS_PER_HOST_MAX {
            return Err(PendingLoginLimit::Host);
        }
        if counts.total >= PENDING_LOGINS_MAX {
            return Err(PendingLoginLimit::Total);
        }
        counts.total += 1;
        let of_host =
            counts.by_host.entry(host).or_insert_with(|| HostLogins { count: 0, owner: Owner::unique() });
        of_host.count += 1;
        let owner = of_host.owner;
        Ok(PendingLoginSlot { logins: self.clone(), host, owner })
    }
}

/// The count of one client.
#[derive(Debug)]
pub struct PendingLoginSlot {
    logins: Arc<PendingLogins>,
    host: ClientHost,
    owner: Owner,
}

impl PendingLoginSlot {
    /// Returns the key under which threads work for the host of this client. All of its clients that
    /// count at the same time have the same one.
    pub fn owner(&self) -> Owner {
        self.owner
    }
}

impl Drop for PendingLoginSlot {
    fn drop(&mut self) {
        let mut counts = self.logins.counts();
        counts.total -= 1;
        if let Some(of_host) = counts.by_host.get_mut(&self.host) {
            of_host.count -= 1;
            if of_host.count == 0 {
                counts.by_host.remove(&self.host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> Option<IpAddr> {
        Some(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn one_host_has_a_limit_of_its_own() {
        let logins = Arc::new(PendingLogins::default());
        let mut slots: Vec<_> = (0..PENDING_LOGINS_PER_HOST_MAX).map(|_| logins.enter(address(7))).collect();
        assert!(slots.iter().all(Result::is_ok));
        assert_eq!(logins.enter(address(7)).unwrap_err(), PendingLoginLimit::Host);
        let owner = |slot: &Result<PendingLoginSlot, PendingLoginLimit>| {
            slot.as_ref().ok().map(PendingLoginSlot::owner)
        };
        assert!(slots.iter().all(|slot| owner(slot) == owner(&slots[0])));
        let other = logins.enter(address(8));
        assert!(other.is_ok() && owner(&other) != owner(&slots[0]));
        drop(other);
        slots.pop();
        slots.push(logins.enter(address(7)));
        assert!(slots.iter().all(Result::is_ok));
        assert_eq!(logins.count(), PENDING_LOGINS_PER_HOST_MAX);
        drop(slots);
        assert_eq!(logins.count(), 0);
        assert!(logins.counts().by_host.is_empty());
    }

    #[test]
    fn all_hosts_together_have_a_limit() {
        let logins = Arc::new(PendingLogins::default());
        let hosts = u32::try_from(PENDING_LOGINS_MAX).unwrap();
        let slots: Vec<_> = (0..hosts).map(|host| logins.enter(address(host))).collect();
        assert!(slots.iter().all(Result::is_ok));
        assert_eq!(logins.enter(address(hosts)).unwrap_err(), PendingLoginLimit::Total);
    }
}
