//! Opens at a source: a client grants a file to a destination, and the destination collects it. The
//! rendezvous matches both; this file connects it with opens, host names and replies.

use super::grant::HeldGrant;
use super::hosts::{COME_AGAIN, deferred_answer};
use super::rendezvous::{
    AffectedDestinations, CopyDestination, CopyGrant, GrantDecision, GrantRefusal, GrantRights, KnownHost,
    WaitNumber,
};
use super::{Settings, ThirdPartyCopies, refused};
use crate::errno::{self, unable};
use crate::job;
use crate::job::done;
use crate::open::{self, OpenPlan, OpenServices};
use crate::open_file::OpenFileState;
use base::{ErrorKind, LogicalPath};
use std::net::IpAddr;
use std::sync::Arc;
use vfs::{Answer, Caller, DeferredReply, ReplyTo, Started, Value};

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
        let destination = inside.destination(&offer);
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
    let rights = opener.services.rights.user().cloned().map_or(GrantRights::Server, GrantRights::Account);
    let granted = third.grant(&plan.path, &plan.caller, offer, (destination, rights));
    let grant = match granted {
        Ok(grant) => grant,
        Err(answer) => return answer,
    };
    if let Some(open) = OpenFileState::of(opened.file.as_ref()) {
        open.set_grant(grant);
    }
    answer
}

impl ThirdPartyCopies {
    /// Returns the host of a destination. Blocks.
    pub(super) fn destination(&self, offer: &GrantOffer) -> KnownHost {
        let mut destination = KnownHost::named(&offer.destination);
        // A lookup is avoided for an address, because a name service may take seconds to reject it.
        if destination.addresses.is_empty() {
            let found = self.names.addresses(&offer.destination);
            destination.addresses.extend(found.iter().map(IpAddr::to_canonical));
        }
        destination
    }

    /// Registers the grant of a client that has the file of `path` open, and wakes the destinations that
    /// wait for it.
    pub(super) fn grant(
        self: &Arc<Self>,
        path: &LogicalPath,
        caller: &Caller,
        offer: &GrantOffer,
        (destination, rights): (KnownHost, GrantRights),
    ) -> Result<HeldGrant, Answer> {
        let who = &caller.identity;
        let now = self.clock.now();
        let grant = CopyGrant {
            key: offer.key.clone(),
            path: path.without_slash(),
            client: format!("{}.{}", who.user(), who.pid),
            client_host: KnownHost::of(who),
            destination,
            expires: now + self.settings.ttl_for(offer.ttl),
            rights,
        };
        let granted = match self.rendezvous().grant(grant, now) {
            Ok(granted) => granted,
            Err(GrantRefusal::Duplicate) => {
                let error = refused(path, ErrorKind::FsError, "duplicate tpc authorization");
                return Err(Answer::Error(self.denied(error)));
            }
            Err(GrantRefusal::Full) => return Err(job::overloaded()),
        };
        let held = self.held_grant(granted.number);
        announce(self, granted);
        Ok(held)
    }

    /// Asks for the file of `path` in the name of a destination. It waits if nobody has granted it yet.
    ///
    /// # Errors
    /// The result of the open, if the file is not granted.
    pub(super) fn request_grant(
        self: &Arc<Self>,
        path: &LogicalPath,
        caller: &Arc<Caller>,
        (key, origin): (&str, &str),
        reply: &ReplyTo,
    ) -> Result<GrantRights, Started> {
        let denied = |why| done(Err(self.denied(refused(path, ErrorKind::NotAuthorized, why))));
        if let Err(why) = Settings::check_proof(&self.settings.require_destination, caller) {
            return Err(denied(why));
        }
        match self.admits(caller) {
            Some(true) => {}
            Some(false) => return Err(denied("dest not authorized for tpc")),
            None => return Err(self.learn_name(caller, reply)),
        }
        let now = self.clock.now();
        let asker = CopyDestination::new(key, &path.without_slash(), origin, &caller.identity);
        let until = now + self.settings.ttl_max;
        let asked = self.rendezvous().request(asker, || reply.defer(), now, until);
        self.counters.granted.add(usize::from(matches!(asked, GrantDecision::Granted(_))));
        match asked {
            GrantDecision::Granted(rights) => Ok(rights),
            GrantDecision::Full => Err(Started::Done(job::overloaded())),
            GrantDecision::Waits { number, unclear } => {
                if unclear {
                    clear_up(self, number);
                }
                Err(deferred_answer(caller))
            }
        }
    }
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
    match third.request_grant(&plan.path, &plan.caller, (key, origin), reply) {
        Err(started) => started,
        Ok(GrantRights::Account(user)) => match opener.for_user(&user) {
            Some(granted) => open::proceed(&Arc::new(granted), plan, reply),
            None => done(Err(unable("open", &plan.path, errno::ACCESS))),
        },
        Ok(GrantRights::Server | GrantRights::Client(..)) => open::proceed(opener, plan, reply),
    }
}
