//! Opens at a source: a client grants a file to a destination, and the destination comes for it.

use super::rendezvous::{Asked, Asker, Grant, Granted, Host, NotGranted, WaitNumber};
use super::{LATER_SECONDS, Settings, ThirdParty, refused};
use crate::handle::Handle;
use crate::job;
use crate::job::done;
use crate::open::{self, Opener, Plan};
use base::{Error, ErrorKind, Identity};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use vfs::{Answer, Caller, Reply, ReplyTo, Started, Value};

/// The answer to who is to ask once more, now.
const COME_AGAIN: Answer = Answer::Wait { seconds: 0, text: String::new() };
/// How long a name of a destination is believed.
const NAME_BELIEVED: Duration = Duration::from_secs(60);
/// Names of destinations that are remembered.
const NAMES_MAX: usize = 4096;

/// What a client grants, from the cgi.
pub(crate) struct Offer {
    pub(crate) key: String,
    pub(crate) destination: String,
    pub(crate) ttl: Option<u64>,
}

/// Opens for the client, which holds the file as long as the grant is to be, and grants it.
pub(crate) fn register(
    opener: &Arc<Opener>,
    third: &Arc<ThirdParty>,
    plan: Plan,
    offer: Offer,
    reply: &ReplyTo,
) -> Started {
    if let Err(error) = third.check_client(&plan) {
        return done(Err(error));
    }
    let (duty, owner) = (reply.defer(), reply.owner());
    let (opener, inside, client) = (opener.clone(), third.clone(), plan.caller.identity.address);
    let look_up = move || {
        let mut destination = Host::named(&offer.destination);
        // A name service asked for what is no name at all may take seconds to say so.
        if destination.addresses.is_empty() {
            let found = inside.names.addresses(&offer.destination);
            destination.addresses.extend(found.iter().map(IpAddr::to_canonical));
        }
        let (backend, path) = (opener.services.backend.clone(), plan.path.clone());
        let open = move |_| {
            let answer = open_granted(&opener, &inside, &plan, &offer, destination);
            duty.send(answer);
        };
        // A refused job is dropped, and with it the duty, which answers.
        job::at(&backend, owner, &path, None, open, || {});
    };
    third.look_up(client, look_up);
    Started::Pending
}

fn open_granted(
    opener: &Arc<Opener>,
    third: &Arc<ThirdParty>,
    plan: &Plan,
    offer: &Offer,
    destination: Host,
) -> Answer {
    let answer = open::open(opener, plan);
    let Answer::Value(Value::Opened(opened)) = &answer else { return answer };
    let who = &plan.caller.identity;
    let now = third.clock.now();
    let grant = Grant {
        key: offer.key.clone(),
        path: plan.plain.clone(),
        client: format!("{}.{}", who.user(), who.pid),
        client_host: Host::of(who),
        destination,
        expires: now + third.settings.ttl_for(offer.ttl),
    };
    let granted = match third.rendezvous().grant(grant, now) {
        Ok(granted) => granted,
        Err(NotGranted::Duplicate) => {
            return Answer::Error(refused(&plan.path, ErrorKind::FsError, "duplicate tpc authorization"));
        }
        Err(NotGranted::Full) => return job::overloaded(),
    };
    if let Some(handle) = opened.file.as_any().downcast_ref::<Handle>() {
        handle.hold(granted.number);
    }
    announce(third, granted);
    answer
}

/// Tells those who waited for a grant.
fn announce(third: &Arc<ThirdParty>, granted: Granted<Reply>) {
    for reply in granted.woken {
        reply.send(COME_AGAIN);
    }
    for number in granted.unclear {
        clear_up(third, number);
    }
}

/// Finds out more about the hosts of one who waits, and tells it if it is the one a grant means.
fn clear_up(third: &Arc<ThirdParty>, number: WaitNumber) {
    let inside = third.clone();
    let look_up = move || {
        let Some(mut asker) = inside.rendezvous().asker(number) else { return };
        for host in [&mut asker.client_host, &mut asker.host] {
            inside.find_out(host);
        }
        let woken = inside.rendezvous().clear_up(number, &asker, inside.clock.now());
        if let Some(reply) = woken {
            reply.send(COME_AGAIN);
        }
    };
    let asker = third.rendezvous().asker(number);
    // If there is no thread for it, the one who waits does so in vain, and is told.
    third.look_up(asker.and_then(|asker| asker.host.addresses.first().copied()), look_up);
}

/// Opens for a destination which says that `origin` granted it the file.
pub(crate) fn collect(
    opener: &Arc<Opener>,
    third: &Arc<ThirdParty>,
    plan: Plan,
    key: &str,
    origin: &str,
    reply: &ReplyTo,
) -> Started {
    let who = &plan.caller.identity;
    if let Err(why) = Settings::check_proof(&third.settings.require_destination, who) {
        return done(Err(refused(&plan.path, ErrorKind::NotAuthorized, why)));
    }
    match third.admits(who) {
        Some(true) => {}
        Some(false) => {
            let why = "dest not authorized for tpc";
            return done(Err(refused(&plan.path, ErrorKind::NotAuthorized, why)));
        }
        None => return third.learn_name(&plan.caller, reply),
    }
    let now = third.clock.now();
    let asker = Asker::new(key, &plan.plain, origin, who);
    let until = now + third.settings.ttl_max;
    let asked = third.rendezvous().ask(asker, || reply.defer(), now, until);
    match asked {
        Asked::Granted => open::proceed(opener, plan, reply),
        Asked::Full => Started::Done(job::overloaded()),
        Asked::Waits { number, unclear } => {
            if unclear {
                clear_up(third, number);
            }
            later(&plan.caller)
        }
    }
}

/// A client that can be told to wait for an answer is told; another waits without a word.
fn later(caller: &Caller) -> Started {
    if caller.takes_later { Started::Later { seconds: LATER_SECONDS, text: "" } } else { Started::Pending }
}

impl ThirdParty {
    /// Adds what can be found out about a host. Blocks.
    fn find_out(&self, host: &mut Host) {
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
    fn admits(&self, who: &Identity) -> Option<bool> {
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
    fn learn_name(self: &Arc<Self>, caller: &Arc<Caller>, reply: &ReplyTo) -> Started {
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
}

impl ThirdParty {
    /// Has the client that opens a destination proven what it must?
    pub(crate) fn check_client(&self, plan: &Plan) -> Result<(), Error> {
        Settings::check_proof(&self.settings.require_client, &plan.caller.identity)
            .map_err(|why| refused(&plan.path, ErrorKind::NotAuthorized, why))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<IpAddr, (Option<String>, Duration)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of an open whose path takes no part.
pub(crate) fn check_path(settings: &Settings, plan: &Plan) -> Result<(), Error> {
    if settings.admits_path(&plan.plain) {
        return Ok(());
    }
    Err(refused(&plan.path, ErrorKind::NotAuthorized, "tpc not allowed for path"))
}
