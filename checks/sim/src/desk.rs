//! What a parent of our own finds files with: the location machine, and a reader as the loops of connections have.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cluster::{
    Answer, Cache, CacheSettings, Cell, Chooser, ErrorCode, Intent, LocateOptions, Policy, Reader,
    ResolveSettings, Resolver, SelectOptions, Token,
};

use crate::host::Host;
use crate::lot::Lot;
use crate::talk::{Request, Told, Wish};

/// Locations that a host remembers by default: few, so that evictions occur.
pub(crate) const LOCATIONS_MAX: usize = 8192;

/// The times of day of two hosts differ by this at most.
const CLOCK_ERROR_MAX: Duration = Duration::from_secs(5);

/// What a parent finds files with.
pub(crate) struct Desk {
    pub(crate) resolver: Resolver,
    reader: Reader,
    lot: Lot,
    pub(crate) waiting: BTreeSet<Token>,
}

impl Desk {
    /// One that clients reach at `own`.
    pub(crate) fn new(has_parents: bool, own: SocketAddr, cache: &CacheSettings, lot: &mut Lot) -> Self {
        let mut lot = Lot::new(lot.draw());
        let cache = Cache::new(cache, &mut lot);
        let chooser = Chooser::new(Policy::default());
        // No clock is quite right.
        let started = lot.time(CLOCK_ERROR_MAX);
        let settings =
            ResolveSettings { has_parents, supervises: has_parents, started, ..ResolveSettings::default() };
        let dice = Box::new(Lot::new(lot.draw()));
        let resolver = Resolver::new(Cell::new(&[own]), cache, chooser, settings, dice);
        let reader = resolver.shared().reader();
        Self { resolver, reader, lot, waiting: BTreeSet::new() }
    }

    /// What the loop of the client's connection answers by itself.
    pub(crate) fn warm(&mut self, request: &Request, now: Duration) -> Option<Answer> {
        match request.wish {
            Wish::Locate => self.reader.locate(&request.path, LocateOptions::default(), now),
            _ if request.tried.is_empty() => {
                self.reader.select(&request.path, options(request), now, &mut self.lot)
            }
            _ => None,
        }
    }

    /// What the machine answers, if it does so at once.
    pub(crate) fn cold(
        &mut self,
        request: &Request,
        token: Token,
        now: Duration,
        orders: &mut Vec<cluster::Action>,
    ) -> Option<Answer> {
        let (path, tried) = (&request.path, request.tried.as_bytes());
        match request.wish {
            Wish::Locate => self.resolver.locate(token, path, LocateOptions::default(), now, orders),
            _ => self.resolver.select(token, path, options(request), tried, now, orders),
        }
    }
}

fn options(request: &Request) -> SelectOptions {
    let (intent, name_only) = match request.wish {
        Wish::Read | Wish::Locate => (Intent::Read, false),
        Wish::Create => (Intent::Create, false),
        Wish::Remove | Wish::Rename(_) => (Intent::Update, true),
    };
    SelectOptions { intent, name_only, reason: request.reason, ..SelectOptions::default() }
}

/// The machine's answer as the client gets it.
pub(crate) fn told(answer: Answer) -> Told {
    match answer {
        Answer::Redirect { host, .. } => Host::index(&host).map_or(Told::Lost, Told::Redirect),
        Answer::Wait(time) => Told::Wait(time),
        Answer::Located(list) => Told::Listed(list.iter().filter_map(|one| host_of(one.ip)).collect()),
        Answer::Error(ErrorCode::NO_ENTRY, _) => Told::Missing,
        Answer::Error(ErrorCode::RW_CONFLICT, _) => Told::Exists,
        Answer::Error(code, _) => Told::Failed(code),
    }
}

fn host_of(ip: IpAddr) -> Option<usize> {
    match ip {
        IpAddr::V4(ip) => Some(u32::from(ip) as usize & 0xff_ffff),
        IpAddr::V6(_) => None,
    }
}
