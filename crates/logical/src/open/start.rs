//! Starts an open. An open that belongs to a third-party copy goes through the rendezvous of
//! [`third_party`] first.

use super::plan::{OpenServices, plan};
use super::proceed;
use crate::job::done;
use crate::third_party::{self, CopyRole, GrantOffer};
use std::sync::Arc;
use vfs::{Caller, OpenRequest, ReplyTo, Started, Target};

/// Starts the open of a file.
pub(crate) fn start(
    opener: &Arc<OpenServices>,
    caller: &Arc<Caller>,
    target: Target,
    request: OpenRequest,
    reply: &ReplyTo,
) -> Started {
    let (plan, role) = match plan(opener, caller, &target, request, reply.owner()) {
        Ok(plan) => plan,
        Err(error) => return done(Err(error)),
    };
    match (role, opener.third_party.get()) {
        (CopyRole::Register { key, destination, ttl }, Some(third)) => {
            let offer = GrantOffer { key, destination, ttl };
            third_party::register(opener, third, plan, offer, reply)
        }
        (CopyRole::Collect { key, origin }, Some(third)) => {
            third_party::collect(opener, third, plan, &key, &origin, reply)
        }
        _ => proceed(opener, plan, reply),
    }
}
