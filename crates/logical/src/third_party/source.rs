//! Opens at a source: a client grants a file to a destination, and the destination collects it. The
//! rendezvous matches both; this file connects it with opens, host names and replies.

use super::hosts::{COME_AGAIN, deferred_answer};
use super::rendezvous::{
    AffectedDestinations, CopyDestination, CopyGrant, GrantDecision, GrantRefusal, KnownHost, WaitNumber,
};
use super::{Settings, ThirdPartyCopies, refused};
use crate::errno::{self, unable};
use crate::job;
use crate::job::done;
use crate::open::{self, OpenPlan, OpenServices};
use crate::open_file::OpenFileState;
use base::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use vfs::{Answer, DeferredReply, ReplyTo, Started, Value};

/// The grant in the cgi of an open.
pub(crate) struct GrantOffer {
    pub(crate) key: String,
    pub(crate) destination: String,
    pub(crate) ttl: Option<u64>,
}

/// Opens the file for the client, which keeps it open as long as the grant is to hold, and
/// registers the grant.
pub(crate) fn register(
    opener: &Arc<OpenServices>,
    third: &Arc<ThirdPartyCopies>,
    plan: OpenPlan,
    offer: GrantOffer,
    reply: &ReplyTo,
) -> Started {
    if let Err(error) = third.check_client(&plan.path, &plan.caller) {
        return done(Err(error));
    }
    let (duty, owner) = (reply.defer(), reply.owner());
    let (opener, inside, client) = (opener.clone(), third.clone(), plan.caller.identity.address);
    let look_up = move || {
        let mut destination = KnownHost::named(&offer.destination);
        // A lookup is avoided for an address, because a name service may take seconds to reject it.
        if destination.addresses.is_empty() {
            let found = inside.names.addresses(&offer.destination);
            destination.addresses.extend(found.iter().map(IpAddr::to_canonical));
        }
        let (backend, path) = (opener.services.backend.clone(), plan.path.clone());
        let open = move |_| {
            let answer = open_granted(&opener, &inside, &plan, &offer, destination);
            duty.send(answer);
        };
        // A refused job is dropped together with the reply, which then answers.
        job::run_where_blocking(&backend, owner, &path, None, open, || {});
    };
    third.look_up(client, look_up);
    Started::Pending
}

fn open_granted(
    opener: &Arc<OpenServices>,
    third: &Arc<ThirdPartyCopies>,
    plan: &OpenPlan,
    offer: &GrantOffer,
    destination: KnownHost,
) -> Answer {
    let answer = open::open(opener, plan);
    let Answer::Value(Value::Opened(opened)) = &answer else { return answer };
    let who = &plan.caller.identity;
    let now = third.clock.now();
    let grant = CopyGrant {
        key: offer.key.clone(),
        path: plan.plain.clone(),
        client: format!("{}.{}", who.user(), who.pid),
        client_host: KnownHost::of(who),
        destination,
        expires: now + third.settings.ttl_for(offer.ttl),
        user: opener.services.rights.user().cloned(),
    };
    let granted = match third.rendezvous().grant(grant, now) {
        Ok(granted) => granted,
        Err(GrantRefusal::Duplicate) => {
            let error = refused(&plan.path, ErrorKind::FsError, "duplicate tpc authorization");
            return Answer::Error(third.denied(error));
        }
        Err(GrantRefusal::Full) => return job::overloaded(),
    };
    if let Some(open) = OpenFileState::of(opened.file.as_ref()) {
        open.set_grant(third.held_grant(granted.number));
    }
    announce(third, granted);
    answer
}

/// Wakes the destinations that wait for a grant.
fn announce(third: &Arc<ThirdPartyCopies>, granted: AffectedDestinations<DeferredReply>) {
    for reply in granted.woken {
        reply.send(COME_AGAIN);
    }
    for number in granted.unclear {
        clear_up(third, number);
    }
}

/// Resolves the hosts of a waiting destination, and wakes it if a grant matches then.
fn clear_up(third: &Arc<ThirdPartyCopies>, number: WaitNumber) {
    let inside = third.clone();
    let look_up = move || {
        let Some(mut asker) = inside.rendezvous().waiting_destination(number) else { return };
        for host in [&mut asker.client_host, &mut asker.host] {
            inside.find_out(host);
        }
        let woken = inside.rendezvous().clear_up(number, &asker, inside.clock.now());
        if let Some(reply) = woken {
            reply.send(COME_AGAIN);
        }
    };
    let asker = third.rendezvous().waiting_destination(number);
    // If no thread is available, the destination waits until its timeout.
    third.look_up(asker.and_then(|asker| asker.host.addresses.first().copied()), look_up);
}

/// Opens the file for a destination that was granted it by `origin`.
pub(crate) fn collect(
    opener: &Arc<OpenServices>,
    third: &Arc<ThirdPartyCopies>,
    plan: OpenPlan,
    key: &str,
    origin: &str,
    reply: &ReplyTo,
) -> Started {
    let who = &plan.caller.identity;
    if let Err(why) = Settings::check_proof(&third.settings.require_destination, &plan.caller) {
        return done(Err(third.denied(refused(&plan.path, ErrorKind::NotAuthorized, why))));
    }
    match third.admits(&plan.caller) {
        Some(true) => {}
        Some(false) => {
            let why = "dest not authorized for tpc";
            return done(Err(third.denied(refused(&plan.path, ErrorKind::NotAuthorized, why))));
        }
        None => return third.learn_name(&plan.caller, reply),
    }
    let now = third.clock.now();
    let asker = CopyDestination::new(key, &plan.plain, origin, who);
    let until = now + third.settings.ttl_max;
    let asked = third.rendezvous().request(asker, || reply.defer(), now, until);
    third.counters.granted.add(usize::from(matches!(asked, GrantDecision::Granted(_))));
    match asked {
        GrantDecision::Granted(None) => open::proceed(opener, plan, reply),
        GrantDecision::Granted(Some(user)) => match opener.for_user(&user) {
            Some(granted) => open::proceed(&Arc::new(granted), plan, reply),
            None => done(Err(unable("open", &plan.path, errno::ACCESS))),
        },
        GrantDecision::Full => Started::Done(job::overloaded()),
        GrantDecision::Waits { number, unclear } => {
            if unclear {
                clear_up(third, number);
            }
            deferred_answer(&plan.caller)
        }
    }
}
