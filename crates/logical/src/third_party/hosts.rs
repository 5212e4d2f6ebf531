//! Names and rights of hosts: of clients that arrange copies, and of destinations.

use super::rendezvous::Host;
use super::{LATER_SECONDS, Settings, ThirdParty, refused};
use base::{Error, ErrorKind, Identity, LogicalPath};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use vfs::{Answer, Caller, ReplyTo, Started};

/// The answer to who is to ask once more, now.
pub(super) const COME_AGAIN: Answer = Answer::Wait { seconds: 0, text: String::new() };
/// How long a name of a destination is believed.
const NAME_BELIEVED: Duration = Duration::from_secs(60);
/// Names of destinations that are remembered.
const NAMES_MAX: usize = 4096;

impl ThirdParty {
    /// Adds what can be found out about a host. Blocks.
    pub(super) fn find_out(&self, host: &mut Host) {
        let names: Vec<String> =
            host.addresses.iter().filter_map(|address| self.names.name(*address)).collect();
        for name in host.names.clone() {
            if name.parse::<IpAddr>().is_err() && !name.starts_with('[') && !name.is_empty() {
                host.addresses.extend(self.names.addresses(&name).iter().map(IpAddr::to_canonical));
            }
        }
        host.names.extend(names);
    }

    /// May this destination fetch from here? `None` if that takes its name, which is not known yet.
    pub(super) fn admits(&self, who: &Identity) -> Option<bool> {
        let Some(address) = who.address.map(|address| address.to_canonical()) else {
            return Some(self.settings.admits_host(&[who.host()]));
        };
        let text = address.to_string();
        if self.settings.admits_host(&[&text]) {
            return Some(true);
        }
        if self.settings.allow.iter().all(|rule| rule.host.is_none()) {
            return Some(false);
        }
        let known = self.known_name(address)?;
        Some(known.is_some_and(|name| self.settings.admits_host(&[&name, &text])))
    }

    /// The name of an address, as far as it was asked for lately.
    fn known_name(&self, address: IpAddr) -> Option<Option<String>> {
        let known = self.known();
        let (name, until) = known.get(&address)?;
        (*until > self.clock.now()).then(|| name.clone())
    }

    /// Asks for the name of a destination, which then comes again.
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
        later(caller)
    }

    /// What a copy's client is called by the source: in the forms in which servers write it. Blocks.
    pub(crate) fn origins(&self, who: &Identity) -> Vec<String> {
        let client = format!("{}.{}", who.user(), who.pid);
        let Some(address) = who.address.map(|address| address.to_canonical()) else {
            return vec![format!("{client}@{}", who.host())];
        };
        let written = match address {
            IpAddr::V4(v4) => format!("[::ffff:{v4}]"),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        let hosts = self.names.name(address).into_iter().chain([written]);
        hosts.map(|host| format!("{client}@{host}")).collect()
    }

    /// Has the client that opens a destination proven what it must?
    pub(crate) fn check_client(&self, path: &LogicalPath, who: &Identity) -> Result<(), Error> {
        Settings::check_proof(&self.settings.require_client, who)
            .map_err(|why| refused(path, ErrorKind::NotAuthorized, why))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<IpAddr, (Option<String>, Duration)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that can be told to wait for an answer is told; another waits without a word.
pub(super) fn later(caller: &Caller) -> Started {
    if caller.takes_later { Started::Later { seconds: LATER_SECONDS, text: "" } } else { Started::Pending }
}
