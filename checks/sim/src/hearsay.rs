//! How real nodes find files: they ask all children once, take silence for absence after a time that the client is told to
//! wait, and remember what they heard.
//!
//! Source: cms protocol 3, sections 4.2 to 4.6. Modelled is what others notice; loads and spaces are not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::StateAsk;
use cluster::tree::LinkId;

use crate::talk::{Deed, Files, Name, Request, Told, Wish};

/// How long silence is listened to, and how long clients are told to wait for it.
const LOOKUP: Duration = Duration::from_secs(5);

/// A child as files are asked for: its connection and the number of its host.
pub(crate) type Child = (LinkId, usize);

#[derive(Default, Debug)]
struct Known {
    have: BTreeSet<LinkId>,
    asked: BTreeSet<LinkId>,
    until: Duration,
}

/// What a real parent heard of files.
#[derive(Default, Debug)]
pub(crate) struct Hearsay {
    known: BTreeMap<Name, Known>,
    children: BTreeSet<LinkId>,
}

impl Hearsay {
    /// These are the children now. Whether any of them is new, so that the parents' knowledge is void.
    pub(crate) fn follow(&mut self, children: &[Child]) -> bool {
        let now: BTreeSet<LinkId> = children.iter().map(|(link, _)| *link).collect();
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

    /// What a child said is void.
    pub(crate) fn reset(&mut self, link: LinkId) {
        for known in self.known.values_mut() {
            known.have.remove(&link);
            known.asked.remove(&link);
        }
    }

    /// Asks whoever was not asked; whether anybody has it.
    fn ask(&mut self, path: &Name, ask: StateAsk, now: Duration, out: &mut Vec<Deed>) -> bool {
        let known = self.known.entry(path.clone()).or_default();
        if ask.refresh {
            *known = Known::default();
        }
        for link in &self.children {
            if known.asked.insert(*link) {
                known.until = now + LOOKUP;
                out.push(Deed::Files(*link, Files::State { path: path.clone(), ask }));
            }
        }
        !known.have.is_empty()
    }

    /// A parent asks; whether to answer that it is here.
    pub(crate) fn state(&mut self, path: &Name, ask: StateAsk, now: Duration, out: &mut Vec<Deed>) -> bool {
        self.ask(path, ask, now, out)
    }

    /// A child has it; whether that is news for parents.
    pub(crate) fn have(&mut self, link: LinkId, path: &Name) -> bool {
        let Some(known) = self.known.get_mut(path) else { return false };
        let news = known.have.is_empty();
        known.have.insert(link);
        news
    }

    /// A child has it no more; whether nobody has.
    pub(crate) fn gone(&mut self, link: LinkId, path: &Name) -> bool {
        let Some(known) = self.known.get_mut(path) else { return false };
        known.have.remove(&link);
        known.have.is_empty()
    }

    /// A client's request.
    pub(crate) fn serve(
        &mut self,
        request: &Request,
        children: &[Child],
        now: Duration,
        out: &mut Vec<Deed>,
    ) -> Told {
        let tried: BTreeSet<&str> = request.tried.split(',').collect();
        let avoided = |host: usize| tried.contains(crate::host::Host::name(host).as_str());
        let path = &request.path;
        self.ask(path, StateAsk::default(), now, out);
        let Some(known) = self.known.get_mut(path) else { return Told::Missing };
        let open = now < known.until;
        let holders = || children.iter().filter(|(link, _)| known.have.contains(link));
        match request.wish {
            Wish::Locate if holders().count() > 0 => Told::Listed(holders().map(|(_, host)| *host).collect()),
            _ if open && (known.have.is_empty() || request.wish != Wish::Read) => Told::Wait(LOOKUP),
            Wish::Create if !known.have.is_empty() => Told::Exists,
            Wish::Create => {
                let mut fit = children.iter().filter(|(_, host)| !avoided(*host));
                let Some((link, host)) = fit.next() else { return Told::Missing };
                known.have.insert(*link);
                Told::Redirect(*host)
            }
            _ => match holders().find(|(_, host)| !avoided(*host)) {
                Some((_, host)) => Told::Redirect(*host),
                None if open => Told::Wait(LOOKUP),
                None => Told::Missing,
            },
        }
    }
}
