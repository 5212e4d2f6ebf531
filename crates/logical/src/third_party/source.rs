//! Opens at a source: a client grants a file to a destination, and the destination comes for it.

use super::hosts::{COME_AGAIN, later};
use super::rendezvous::{Asked, Asker, Grant, Granted, Host, NotGranted, WaitNumber};
use super::{Settings, ThirdParty, refused};
use crate::job;
use crate::job::done;
use crate::open::{self, Opener, Plan};
use crate::open_file::Open;
use base::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use vfs::{Answer, Reply, ReplyTo, Started, Value};

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
    if let Err(error) = third.check_client(&plan.path, &plan.caller.identity) {
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
    if let Some(open) = Open::of(opened.file.as_ref()) {
        open.hold(third.held_grant(granted.number));
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
