//! The location service of a parent of our own: the resolver, and a reader like those of connection
//! loops.
//!
//! Both are used for each request, so that the simulation covers warm and cold answers.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cluster::{
    Cache, CacheSettings, Cell, Chooser, ClusterAnswer, ErrorCode, Intent, LocateFlags, LocationReader,
    LocationResolver, Policy, RequestToken, ResolveSettings, SelectOptions,
};

use crate::host_address::host_of_name;
use crate::messages::{ClientRequest, HostReply, RequestedAction};
use crate::sim_rng::SimRng;

/// The default number of locations of a host: few, so that evictions occur.
pub(crate) const LOCATIONS_MAX: usize = 8192;

/// The maximum difference of the times of day of two hosts.
const CLOCK_ERROR_MAX: Duration = Duration::from_secs(5);

/// The location service of one parent.
pub(crate) struct LocationService {
    pub(crate) resolver: LocationResolver,
    reader: LocationReader,
    rng: SimRng,
    pub(crate) waiting: BTreeSet<RequestToken>,
}

impl LocationService {
    /// Creates the service of a parent that clients reach at `own`.
    pub(crate) fn new(has_parents: bool, own: SocketAddr, cache: &CacheSettings, rng: &mut SimRng) -> Self {
        let mut rng = SimRng::new(rng.draw());
        let cache = Cache::new(cache, &mut rng);
        let chooser = Chooser::new(Policy::default());
        // No clock is exact.
        let started = rng.time(CLOCK_ERROR_MAX);
        let settings =
            ResolveSettings { has_parents, supervises: has_parents, started, ..ResolveSettings::default() };
        let dice = Box::new(SimRng::new(rng.draw()));
        let resolver = LocationResolver::new(Cell::new(&[own]), cache, chooser, settings, dice);
        let reader = resolver.shared().reader();
        Self { resolver, reader, rng, waiting: BTreeSet::new() }
    }

    /// Returns the answer of the loop of the client's connection, if it has one.
    pub(crate) fn warm(&mut self, request: &ClientRequest, now: Duration) -> Option<ClusterAnswer> {
        match request.wish {
            RequestedAction::Locate => self.reader.locate(&request.path, LocateFlags::default(), now),
            _ if request.tried.is_empty() => {
                self.reader.select(&request.path, options(request), now, &mut self.rng)
            }
            _ => None,
        }
    }

    /// Returns the answer of the resolver, if it has one at once.
    pub(crate) fn cold(
        &mut self,
        request: &ClientRequest,
        token: RequestToken,
        now: Duration,
        orders: &mut Vec<cluster::ResolverAction>,
    ) -> Option<ClusterAnswer> {
        let (path, tried) = (&request.path, request.tried.as_bytes());
        match request.wish {
            RequestedAction::Locate => self.resolver.locate(token, path, LocateFlags::default(), now, orders),
            _ => self.resolver.select(token, path, options(request), tried, now, orders),
        }
    }
}

fn options(request: &ClientRequest) -> SelectOptions {
    let (intent, name_only) = match request.wish {
        RequestedAction::Read | RequestedAction::Locate => (Intent::Read, false),
        RequestedAction::Create => (Intent::Create, false),
        RequestedAction::Remove | RequestedAction::Rename(_) => (Intent::Update, true),
    };
    SelectOptions { intent, name_only, reason: request.reason, ..SelectOptions::default() }
}

/// Returns the resolver's answer in the form for the client.
pub(crate) fn told(answer: ClusterAnswer) -> HostReply {
    match answer {
        ClusterAnswer::Redirect { host, .. } => {
            host_of_name(&host).map_or(HostReply::Lost, HostReply::Redirect)
        }
        ClusterAnswer::Wait(time) => HostReply::Wait(time),
        ClusterAnswer::Located(list) => {
            HostReply::Listed(list.iter().filter_map(|one| host_of(one.ip)).collect())
        }
        ClusterAnswer::Error(ErrorCode::NO_ENTRY, _) => HostReply::Missing,
        ClusterAnswer::Error(ErrorCode::RW_CONFLICT, _) => HostReply::Exists,
        ClusterAnswer::Error(code, _) => HostReply::Failed(code),
    }
}

fn host_of(ip: IpAddr) -> Option<usize> {
    match ip {
        IpAddr::V4(ip) => Some(u32::from(ip) as usize & 0xff_ffff),
        IpAddr::V6(_) => None,
    }
}
