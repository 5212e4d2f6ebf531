//! A model of the file look-ups of real nodes.
//!
//! Real nodes query all children once, treat a missing reply as absence after a time that the
//! client is asked to wait, and cache the replies. Source: cms protocol 3, sections 4.2 to 4.6. The
//! model covers only the behaviour on the wire; loads and spaces are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::StateAsk;
use cluster::tree::ConnectionId;

use crate::host_address::host_name;
use crate::messages::{ClientRequest, FileMessage, HostReply, Name, ProcessAction, RequestedAction};

/// The query timeout, and the wait of clients for it.
const LOOKUP: Duration = Duration::from_secs(5);

/// The wait of clients while there is no child in service.
const SERVICE: Duration = Duration::from_secs(15);

/// The wait of clients for children that are suspended.
const SUSPENDED: Duration = Duration::from_secs(30);

/// A child as a target of queries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealChild {
    /// Its connection.
    pub(crate) link: ConnectionId,
    /// The number of its host.
    pub(crate) host: usize,
    /// It reports that it serves; an inner node without children does not.
    pub(crate) serves: bool,
}

#[derive(Default, Debug)]
struct KnownLocation {
    have: BTreeSet<ConnectionId>,
    asked: BTreeSet<ConnectionId>,
    until: Duration,
}

/// The location cache of a real parent.
#[derive(Default, Debug)]
pub(crate) struct RealLocations {
    known: BTreeMap<Name, KnownLocation>,
    children: BTreeSet<ConnectionId>,
}

impl RealLocations {
    /// Sets the current children. Reports whether any of them is new, so that the knowledge of
    /// parents is stale.
    pub(crate) fn follow(&mut self, children: &[RealChild]) -> bool {
        let now: BTreeSet<ConnectionId> = children.iter().map(|child| child.link).collect();
        let fresh = now.iter().any(|link| !self.children.contains(link));
        if now != self.children {
            for known in self.known.values_mut() {
                known.have.retain(|link| now.contains(link));
                known.asked.retain(|link| now.contains(link));
            }
            self.children = now;
        }
        fresh
    }

    /// Discards the replies of a child.
    pub(crate) fn reset(&mut self, link: ConnectionId) {
        for known in self.known.values_mut() {
            known.have.remove(&link);
            known.asked.remove(&link);
        }
    }

    /// Queries the children without a query yet. Reports whether any child has the path.
    fn ask(&mut self, path: &Name, ask: StateAsk, now: Duration, out: &mut Vec<ProcessAction>) -> bool {
        let known = self.known.entry(path.clone()).or_default();
        if ask.refresh {
            *known = KnownLocation::default();
        }
        for link in &self.children {
            if known.asked.insert(*link) {
                known.until = now + LOOKUP;
                out.push(ProcessAction::Files(*link, FileMessage::State { path: path.clone(), ask }));
            }
        }
        !known.have.is_empty()
    }

    /// Handles a query of a parent. Reports whether to answer that the file is here.
    pub(crate) fn state(
        &mut self,
        path: &Name,
        ask: StateAsk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) -> bool {
        self.ask(path, ask, now, out)
    }

    /// Records that a child has a path. Reports whether parents need a report.
    pub(crate) fn have(&mut self, link: ConnectionId, path: &Name) -> bool {
        let Some(known) = self.known.get_mut(path) else { return false };
        let news = known.have.is_empty();
        known.have.insert(link);
        news
    }

    /// Records that a child no longer has a path. Reports whether it was the last one.
    pub(crate) fn gone(&mut self, link: ConnectionId, path: &Name) -> bool {
        let Some(known) = self.known.get_mut(path) else { return false };
        known.have.remove(&link);
        known.have.is_empty()
    }

    /// Handles a client's request.
    pub(crate) fn serve(
        &mut self,
        request: &ClientRequest,
        children: &[RealChild],
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) -> HostReply {
        if !children.iter().any(|child| child.serves) {
            return HostReply::Wait(SERVICE);
        }
        let tried: BTreeSet<&str> = request.tried.split(',').collect();
        let path = &request.path;
        self.ask(path, StateAsk::default(), now, out);
        let Some(known) = self.known.get_mut(path) else { return HostReply::Missing };
        let open = now < known.until;
        let holders: Vec<RealChild> =
            children.iter().filter(|child| known.have.contains(&child.link)).copied().collect();
        let among = match request.wish {
            RequestedAction::Locate if !holders.is_empty() => {
                return HostReply::Listed(holders.iter().map(|child| child.host).collect());
            }
            _ if open && (holders.is_empty() || request.wish != RequestedAction::Read) => {
                return HostReply::Wait(LOOKUP);
            }
            RequestedAction::Create if !holders.is_empty() => return HostReply::Exists,
            RequestedAction::Create => children,
            _ => &holders,
        };
        let fit = |child: &&RealChild| !tried.contains(host_name(child.host).as_str());
        let mut fit = among.iter().filter(fit).peekable();
        if fit.peek().is_none() {
            return if open { HostReply::Wait(LOOKUP) } else { HostReply::Missing };
        }
        let Some(child) = fit.find(|child| child.serves) else { return HostReply::Wait(SUSPENDED) };
        if request.wish == RequestedAction::Create {
            // Later clients are redirected there too, and a second creator is refused.
            known.have.insert(child.link);
        }
        HostReply::Redirect(child.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::RetryReason;

    fn create(tried: &str) -> ClientRequest {
        let path: Name = Name::from(&b"/new"[..]);
        let tried = tried.to_owned();
        ClientRequest {
            operation: 0,
            attempt: 0,
            client: 0,
            wish: RequestedAction::Create,
            path,
            tried,
            reason: RetryReason::Missing,
        }
    }

    #[test]
    fn who_does_not_serve_is_asked_but_gets_no_clients() {
        let (empty, serving) = (ConnectionId::accepted(1), ConnectionId::accepted(2));
        let idle = RealChild { link: empty, host: 1, serves: false };
        let busy = RealChild { link: serving, host: 2, serves: true };
        let mut locations = RealLocations::default();
        let mut out = Vec::new();
        let mut ask = |locations: &mut RealLocations, children: &[RealChild], tried: &str, seconds| {
            locations.follow(children);
            locations.serve(&create(tried), children, Duration::from_secs(seconds), &mut out)
        };
        assert_eq!(ask(&mut locations, &[idle], "", 0), HostReply::Wait(SERVICE));
        assert_eq!(ask(&mut locations, &[idle, busy], "", 0), HostReply::Wait(LOOKUP));
        assert_eq!(ask(&mut locations, &[idle, busy], "n2", 6), HostReply::Wait(SUSPENDED));
        assert_eq!(ask(&mut locations, &[idle, busy], "", 6), HostReply::Redirect(2));
        assert_eq!(
            ask(&mut locations, &[idle, busy], "n2", 6),
            HostReply::Exists,
            "what it was chosen for it has"
        );
        assert_eq!(out.len(), 2, "both are asked, once");
    }
}
