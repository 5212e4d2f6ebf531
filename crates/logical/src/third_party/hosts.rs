//! Names and permissions of hosts: of clients that arrange copies, and of destinations.
//!
//! Names need a resolver that may take seconds, so lookups run on their own pool and are cached.

use super::rendezvous::KnownHost;
use super::{LATER_SECONDS, Settings, ThirdPartyCopies, refused};
use base::{Error, ErrorKind, Identity, LogicalPath};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use vfs::{Answer, Caller, ReplyTo, Started};

/// The answer that makes a client retry at once.
pub(super) const COME_AGAIN: Answer = Answer::Wait { seconds: 0, text: String::new() };
/// Time after which a cached name of a destination is stale.
const NAME_BELIEVED: Duration = Duration::from_secs(60);
/// Maximum number of cached names; when it is reached, all are evicted.
const NAMES_MAX: usize = 4096;

impl ThirdPartyCopies {
    /// Resolves the missing names and addresses of a host. Blocks.
    pub(super) fn find_out(&self, host: &mut KnownHost) {
        let names: Vec<String> =
            host.addresses.iter().filter_map(|address| self.names.name(*address)).collect();
        for name in host.names.clone() {
            if name.parse::<IpAddr>().is_err() && !name.starts_with('[') && !name.is_empty() {
                host.addresses.extend(self.names.addresses(&name).iter().map(IpAddr::to_canonical));
            }
        }
        host.names.extend(names);
    }

    /// Reports whether this destination may fetch from here; `None` if that depends on its name,
    /// which is not cached.
    pub(super) fn admits(&self, who: &Caller) -> Option<bool> {
        let entity = who.entity();
        let Some(address) = who.identity.address.map(|address| address.to_canonical()) else {
            return Some(self.settings.admits_host(&[who.identity.host()], entity));
        };
        let text = address.to_string();
        if self.settings.admits_host(&[&text], entity) {
            return Some(true);
        }
        if !self.settings.has_host_rule_for(entity) {
            return Some(false);
        }
        let known = self.known_name(address)?;
        Some(known.is_some_and(|name| self.settings.admits_host(&[&name, &text], entity)))
    }

    /// Returns the cached name of an address, if it is not stale.
    fn known_name(&self, address: IpAddr) -> Option<Option<String>> {
        let known = self.known();
        let (name, until) = known.get(&address)?;
        (*until > self.clock.now()).then(|| name.clone())
    }

    /// Looks up the name of a destination, and then makes it retry.
    pub(super) fn learn_name(self: &Arc<Self>, caller: &Arc<Caller>, reply: &ReplyTo) -> Started {
        let (inside, duty, who) = (self.clone(), reply.defer(), caller.clone());
        let look_up = move || {
            if let Some(address) = who.identity.address.map(|address| address.to_canonical()) {
                let name = inside.names.name(address);
                let mut known = inside.known();
                if known.len() >= NAMES_MAX {
                    known.clear();
                }
                known.insert(address, (name, inside.clock.now() + NAME_BELIEVED));
            }
            duty.send(COME_AGAIN);
        };
        self.look_up(caller.identity.address, look_up);
        deferred_answer(caller)
    }

    /// Returns the names by which the source may know the client of a copy, in the forms that
    /// servers write. Blocks.
    pub(crate) fn origins(&self, who: &Identity) -> Vec<String> {
        let client = format!("{}.{}", who.user(), who.pid);
        let Some(address) = who.address.map(|address| address.to_canonical()) else {
            return vec![format!("{client}@{}", who.host())];
        };
        let hosts = self.names.name(address).into_iter().chain([auth::address_text(address)]);
        hosts.map(|host| format!("{client}@{host}")).collect()
    }

    /// Checks the required authentication of the client that opens a destination.
    pub(crate) fn check_client(&self, path: &LogicalPath, who: &Caller) -> Result<(), Error> {
        Settings::check_proof(&self.settings.require_client, who)
            .map_err(|why| self.denied(refused(path, ErrorKind::NotAuthorized, why)))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<IpAddr, (Option<String>, Duration)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the deferred reply if the client accepts one; otherwise the request stays unanswered
/// until its result.
pub(super) fn deferred_answer(caller: &Caller) -> Started {
    if caller.accepts_deferred_reply {
        Started::Later { seconds: LATER_SECONDS, text: "" }
    } else {
        Started::Pending
    }
}
