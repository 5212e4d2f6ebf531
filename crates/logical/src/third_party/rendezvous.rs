//! Grants, and destinations that wait for one. Time is an argument, and the caller resolves host
//! names, so that the table itself never waits.
//!
//! A grant is for one key, one path, one client and one destination. The client is identified by
//! `user.pid@host` as both servers see it, and the destination by the name that the client sent.
//! Two hosts match if they have a name or an address in common.

use base::{Identity, LogicalPath, written_ip};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use storage::StorageUser;
use vfs::{Caller, Target};

/// Maximum number of active grants.
pub(crate) const GRANTS_MAX: usize = 10_000;
/// Maximum number of waiting destinations.
pub(crate) const WAITING_MAX: usize = 10_000;

/// A host with its known names and addresses.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct KnownHost {
    /// Names, and addresses in the form in which they were written.
    pub(crate) names: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
}

impl KnownHost {
    /// Returns a host from its name or written address.
    pub(crate) fn named(text: &str) -> Self {
        Self { names: vec![text.to_owned()], addresses: written_ip(text).into_iter().collect() }
    }

    /// Returns the host of a connection.
    pub(crate) fn of(who: &Identity) -> Self {
        let address = who.address.map(|address| address.to_canonical());
        Self { names: vec![who.host().to_owned()], addresses: address.into_iter().collect() }
    }

    /// Reports whether both may be the same host.
    fn is(&self, other: &Self) -> bool {
        let same_name = |a: &String| other.names.iter().any(|b| a.eq_ignore_ascii_case(b));
        // A host that is reached through its loopback interface has several addresses there.
        let same_address =
            |a: &IpAddr| other.addresses.iter().any(|b| a == b || (a.is_loopback() && b.is_loopback()));
        self.names.iter().any(same_name) || self.addresses.iter().any(same_address)
    }
}

/// A grant by a client.
#[derive(Clone, Debug)]
pub(crate) struct CopyGrant {
    pub(crate) key: String,
    pub(crate) path: LogicalPath,
    /// `user.pid` of the client.
    pub(crate) client: String,
    pub(crate) client_host: KnownHost,
    pub(crate) destination: KnownHost,
    pub(crate) expires: Duration,
    /// The rights with which the file is opened for the destination.
    pub(crate) rights: GrantRights,
}

/// The rights with which a granted file is opened for its destination.
#[derive(Clone, Default, Debug)]
pub(crate) enum GrantRights {
    /// Those of the server.
    #[default]
    Server,
    /// Those of the account of the client.
    Account(Arc<StorageUser>),
    /// Those of the client at the servers behind a proxy: the client, and its open of the file.
    Client(Arc<Caller>, Target),
}

/// A destination that requests a file under a grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CopyDestination {
    pub(crate) key: String,
    pub(crate) path: LogicalPath,
    /// `user.pid` of the client that arranged the copy.
    pub(crate) client: String,
    pub(crate) client_host: KnownHost,
    /// The destination host as this server sees it.
    pub(crate) host: KnownHost,
}

impl CopyDestination {
    /// Returns a request from `origin`, which is `user.pid@host` as the destination sees the
    /// client.
    pub(crate) fn new(key: &str, path: &LogicalPath, origin: &str, who: &Identity) -> Self {
        let (client, host) = origin.rsplit_once('@').unwrap_or((origin, ""));
        Self {
            key: key.to_owned(),
            path: path.clone(),
            client: client.to_owned(),
            client_host: KnownHost::named(host),
            host: KnownHost::of(who),
        }
    }

    /// Reports whether both are the same request.
    fn is(&self, other: &Self) -> bool {
        let first = |host: &KnownHost| host.names.first().cloned();
        (&self.key, &self.path, &self.client) == (&other.key, &other.path, &other.client)
            && first(&self.client_host) == first(&other.client_host)
            && first(&self.host) == first(&other.host)
    }
}

impl CopyGrant {
    fn is_for(&self, asker: &CopyDestination) -> bool {
        self.concerns(asker) && self.client_host.is(&asker.client_host) && self.destination.is(&asker.host)
    }

    /// Reports whether everything except the hosts matches.
    fn concerns(&self, asker: &CopyDestination) -> bool {
        self.key == asker.key && self.path == asker.path && self.client == asker.client
    }
}

/// Identifies a grant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct GrantNumber(u64);

/// Identifies a waiting destination.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct WaitNumber(u64);

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum GrantDecision {
    /// The destination gets the file with these rights, and the grant is used up.
    Granted(GrantRights),
    /// The destination waits. With `unclear`, there is a grant that differs only in the known names
    /// and addresses of hosts, which should be resolved.
    Waits { number: WaitNumber, unclear: bool },
    /// Too many destinations wait.
    Full,
}

/// The reason for refusing a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GrantRefusal {
    /// There is a grant with the same key, path, client and destination.
    Duplicate,
    /// There are too many grants.
    Full,
}

/// The destinations affected by a new grant.
pub(crate) struct AffectedDestinations<W> {
    pub(crate) number: GrantNumber,
    /// Destinations that match, and should retry now.
    pub(crate) woken: Vec<W>,
    /// Destinations that differ only in the known names and addresses of hosts.
    pub(crate) unclear: Vec<WaitNumber>,
}

/// Timed-out entries.
pub(crate) struct TimedOut<W> {
    /// Paths of unused grants.
    pub(crate) grants: Vec<LogicalPath>,
    /// Destinations whose wait has timed out.
    pub(crate) waiting: Vec<W>,
}

struct StoredGrant {
    grant: CopyGrant,
    /// A request that matches although the known hosts differ, because resolving them showed it.
    admits: Option<CopyDestination>,
}

struct WaitingDestination<W> {
    asker: CopyDestination,
    expires: Duration,
    who: W,
}

/// All grants, and all destinations that wait for one.
pub(crate) struct Rendezvous<W> {
    grants: HashMap<GrantNumber, StoredGrant>,
    grants_by_key: HashMap<String, Vec<GrantNumber>>,
    waiting: HashMap<WaitNumber, WaitingDestination<W>>,
    waiting_by_key: HashMap<String, Vec<WaitNumber>>,
    next_number: u64,
}

impl<W> Default for Rendezvous<W> {
    fn default() -> Self {
        Self {
            grants: HashMap::new(),
            grants_by_key: HashMap::new(),
            waiting: HashMap::new(),
            waiting_by_key: HashMap::new(),
            next_number: 0,
        }
    }
}

/// Removes a number from those of a key.
fn forget<N: PartialEq>(index: &mut HashMap<String, Vec<N>>, key: &str, number: &N) {
    let Some(numbers) = index.get_mut(key) else { return };
    numbers.retain(|other| other != number);
    if numbers.is_empty() {
        index.remove(key);
    }
}

impl<W> Rendezvous<W> {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Returns the valid grant of this key that `fits` accepts.
    fn find(&self, key: &str, now: Duration, fits: impl Fn(&StoredGrant) -> bool) -> Option<GrantNumber> {
        let held = |number: &&GrantNumber| {
            self.grants.get(number).is_some_and(|held| held.grant.expires > now && fits(held))
        };
        self.grants_by_key.get(key)?.iter().find(held).copied()
    }

    fn take_grant(&mut self, number: GrantNumber) -> Option<StoredGrant> {
        let held = self.grants.remove(&number)?;
        forget(&mut self.grants_by_key, &held.grant.key, &number);
        Some(held)
    }

    fn take_waiting(&mut self, number: WaitNumber) -> Option<WaitingDestination<W>> {
        let waiting = self.waiting.remove(&number)?;
        forget(&mut self.waiting_by_key, &waiting.asker.key, &number);
        Some(waiting)
    }

    /// Adds a grant.
    pub(crate) fn grant(
        &mut self,
        grant: CopyGrant,
        now: Duration,
    ) -> Result<AffectedDestinations<W>, GrantRefusal> {
        let same = |held: &StoredGrant| {
            let other = &held.grant;
            (&other.path, &other.client) == (&grant.path, &grant.client)
                && other.client_host.is(&grant.client_host)
                && other.destination.names == grant.destination.names
        };
        if self.find(&grant.key, now, same).is_some() {
            return Err(GrantRefusal::Duplicate);
        }
        if self.grants.len() >= GRANTS_MAX {
            return Err(GrantRefusal::Full);
        }
        let number = GrantNumber(self.number());
        let fits = self.those_who(&grant.key, |asker| grant.is_for(asker));
        let woken: Vec<W> = fits.into_iter().filter_map(|n| self.take_waiting(n)).map(|w| w.who).collect();
        let unclear = match woken.is_empty() {
            true => self.those_who(&grant.key, |asker| grant.concerns(asker)),
            false => Vec::new(),
        };
        self.grants_by_key.entry(grant.key.clone()).or_default().push(number);
        self.grants.insert(number, StoredGrant { grant, admits: None });
        Ok(AffectedDestinations { number, woken, unclear })
    }

    fn those_who(&self, key: &str, fits: impl Fn(&CopyDestination) -> bool) -> Vec<WaitNumber> {
        let waits =
            |number: &&WaitNumber| self.waiting.get(number).is_some_and(|waiting| fits(&waiting.asker));
        self.waiting_by_key
            .get(key)
            .map(|numbers| numbers.iter().filter(waits).copied().collect())
            .unwrap_or_default()
    }

    /// Handles the request of a destination. If it has to wait, its wait times out at `expires`.
    pub(crate) fn request(
        &mut self,
        asker: CopyDestination,
        who: impl FnOnce() -> W,
        now: Duration,
        expires: Duration,
    ) -> GrantDecision {
        let is_for = |held: &StoredGrant| {
            held.grant.is_for(&asker) || held.admits.as_ref().is_some_and(|admitted| admitted.is(&asker))
        };
        if let Some(number) = self.find(&asker.key, now, is_for) {
            let taken = self.take_grant(number);
            return GrantDecision::Granted(taken.map(|held| held.grant.rights).unwrap_or_default());
        }
        if self.waiting.len() >= WAITING_MAX {
            return GrantDecision::Full;
        }
        let unclear = self.find(&asker.key, now, |held| held.grant.concerns(&asker)).is_some();
        let number = WaitNumber(self.number());
        self.waiting_by_key.entry(asker.key.clone()).or_default().push(number);
        self.waiting.insert(number, WaitingDestination { asker, expires, who: who() });
        GrantDecision::Waits { number, unclear }
    }

    /// Returns the request of a destination, if it still waits.
    pub(crate) fn waiting_destination(&self, number: WaitNumber) -> Option<CopyDestination> {
        self.waiting.get(&number).map(|waiting| waiting.asker.clone())
    }

    /// Retries a waiting request with resolved hosts in `asker`. If a grant matches now, the
    /// destination is removed and returned; it should retry.
    pub(crate) fn clear_up(
        &mut self,
        number: WaitNumber,
        asker: &CopyDestination,
        now: Duration,
    ) -> Option<W> {
        let grant = self.find(&asker.key, now, |held| held.grant.is_for(asker))?;
        let waiting = self.take_waiting(number)?;
        self.grants.get_mut(&grant)?.admits = Some(waiting.asker);
        Some(waiting.who)
    }

    /// Withdraws a grant, unless it was used.
    pub(crate) fn withdraw(&mut self, number: GrantNumber) {
        self.take_grant(number);
    }

    /// Removes and returns timed-out entries.
    pub(crate) fn expire(&mut self, now: Duration) -> TimedOut<W> {
        let old: Vec<_> =
            self.grants.iter().filter(|(_, held)| held.grant.expires <= now).map(|(n, _)| *n).collect();
        let grants = old.into_iter().filter_map(|n| self.take_grant(n)).map(|held| held.grant.path).collect();
        let vain: Vec<_> = self.waiting.iter().filter(|(_, w)| w.expires <= now).map(|(n, _)| *n).collect();
        let waiting = vain.into_iter().filter_map(|n| self.take_waiting(n)).map(|w| w.who).collect();
        TimedOut { grants, waiting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::LoginNames;

    const T: fn(u64) -> Duration = Duration::from_secs;

    fn path() -> LogicalPath {
        LogicalPath::parse(b"/data/f").unwrap()
    }

    fn grant(destination: &str) -> CopyGrant {
        CopyGrant {
            key: "k".to_owned(),
            path: path(),
            client: "u.7".to_owned(),
            client_host: KnownHost {
                names: vec!["10.0.0.1".to_owned()],
                addresses: vec!["10.0.0.1".parse().unwrap()],
            },
            destination: KnownHost::named(destination),
            expires: T(10),
            rights: GrantRights::default(),
        }
    }

    fn asker(origin: &str, address: &str) -> CopyDestination {
        let who = Identity::new(
            &LoginNames { host: address, ..LoginNames::default() },
            1,
            address.parse().ok(),
            "host",
        );
        CopyDestination::new("k", &path(), origin, &who)
    }

    fn ask(table: &mut Rendezvous<u32>, asker: CopyDestination) -> GrantDecision {
        table.request(asker, || 1, T(1), T(8))
    }

    #[test]
    fn a_grant_is_used_once() {
        let mut table = Rendezvous::default();
        assert!(table.grant(grant("10.0.0.2"), T(0)).is_ok());
        assert!(matches!(ask(&mut table, asker("u.7@10.0.0.1", "10.0.0.2")), GrantDecision::Granted(_)));
        assert!(matches!(
            ask(&mut table, asker("u.7@10.0.0.1", "10.0.0.2")),
            GrantDecision::Waits { unclear: false, .. }
        ));
    }

    #[test]
    fn every_part_of_a_grant_must_match() {
        for (origin, address) in [
            ("u.8@10.0.0.1", "10.0.0.2"),
            ("x.7@10.0.0.1", "10.0.0.2"),
            ("u.7@10.0.0.9", "10.0.0.2"),
            ("u.7@10.0.0.1", "10.0.0.3"),
            ("u.7", "10.0.0.2"),
        ] {
            let mut table = Rendezvous::default();
            assert!(table.grant(grant("10.0.0.2"), T(0)).is_ok());
            assert!(
                matches!(ask(&mut table, asker(origin, address)), GrantDecision::Waits { .. }),
                "{origin} {address}"
            );
        }
        let mut table = Rendezvous::default();
        assert!(table.grant(grant("10.0.0.2"), T(0)).is_ok());
        let other = CopyDestination { key: "z".to_owned(), ..asker("u.7@10.0.0.1", "10.0.0.2") };
        assert!(matches!(ask(&mut table, other), GrantDecision::Waits { unclear: false, .. }));
    }

    #[test]
    fn hosts_match_by_any_form_of_their_address() {
        for origin in ["u.7@10.0.0.1", "u.7@[::ffff:10.0.0.1]", "u.7@[::10.0.0.1]"] {
            let mut table = Rendezvous::default();
            assert!(table.grant(grant("[::ffff:10.0.0.2]"), T(0)).is_ok());
            assert!(
                matches!(ask(&mut table, asker(origin, "10.0.0.2")), GrantDecision::Granted(_)),
                "{origin}"
            );
        }
        assert_eq!(written_ip("[::1]"), Some("::1".parse().unwrap()));
        assert_eq!(written_ip("localhost"), None);
    }

    #[test]
    fn loopback_is_one_host() {
        let mut local = grant("::1");
        local.client_host = KnownHost::named("127.0.0.1");
        let mut table = Rendezvous::default();
        assert!(table.grant(local, T(0)).is_ok());
        assert!(matches!(ask(&mut table, asker("u.7@[::1]", "127.0.0.1")), GrantDecision::Granted(_)));
    }

    #[test]
    fn a_waiting_destination_is_woken_and_retries() {
        let mut table = Rendezvous::default();
        assert!(matches!(
            ask(&mut table, asker("u.7@10.0.0.1", "10.0.0.2")),
            GrantDecision::Waits { unclear: false, .. }
        ));
        let granted = table.grant(grant("10.0.0.2"), T(2)).ok().unwrap();
        assert_eq!(granted.woken, [1]);
        assert!(matches!(ask(&mut table, asker("u.7@10.0.0.1", "10.0.0.2")), GrantDecision::Granted(_)));
    }

    #[test]
    fn hosts_are_resolved_when_only_they_differ() {
        let mut table = Rendezvous::default();
        assert!(table.grant(grant("d.example.org"), T(0)).is_ok());
        let first = asker("u.7@c.example.org", "10.0.0.2");
        let GrantDecision::Waits { number, unclear: true } = ask(&mut table, first.clone()) else { panic!() };
        let mut resolved = table.waiting_destination(number).unwrap();
        assert_eq!(table.clear_up(number, &resolved, T(2)), None);
        resolved.client_host.addresses.push("10.0.0.1".parse().unwrap());
        resolved.host.names.push("D.example.org".to_owned());
        assert_eq!(table.clear_up(number, &resolved, T(2)), Some(1));
        assert!(matches!(ask(&mut table, first), GrantDecision::Granted(_)));
    }

    #[test]
    fn a_later_grant_returns_destinations_with_unclear_hosts() {
        let mut table = Rendezvous::default();
        let GrantDecision::Waits { number, .. } = ask(&mut table, asker("u.7@c.example.org", "10.0.0.2"))
        else {
            panic!()
        };
        let granted = table.grant(grant("d.example.org"), T(2)).ok().unwrap();
        assert!(granted.woken.is_empty());
        assert_eq!(granted.unclear, [number]);
    }

    #[test]
    fn duplicate_grants_are_refused_until_the_first_ends() {
        let mut table = Rendezvous::<u32>::default();
        let first = table.grant(grant("d"), T(0)).ok().unwrap();
        assert_eq!(table.grant(grant("d"), T(1)).err(), Some(GrantRefusal::Duplicate));
        assert!(table.grant(grant("e"), T(1)).is_ok());
        table.withdraw(first.number);
        assert!(table.grant(grant("d"), T(1)).is_ok());
        assert!(table.grant(grant("d"), T(11)).is_ok(), "an expired grant does not count");
    }

    #[test]
    fn grants_and_waits_time_out() {
        let mut table = Rendezvous::default();
        assert!(matches!(ask(&mut table, asker("u.7@10.0.0.1", "10.0.0.2")), GrantDecision::Waits { .. }));
        assert!(table.grant(grant("d"), T(0)).is_ok());
        let over = table.expire(T(7));
        assert!(over.grants.is_empty() && over.waiting.is_empty());
        assert_eq!(table.expire(T(8)).waiting, [1]);
        assert_eq!(table.expire(T(10)).grants, [path()]);
        assert!(table.grants.is_empty() && table.waiting.is_empty());
        assert!(table.grants_by_key.is_empty() && table.waiting_by_key.is_empty());
    }

    #[test]
    fn an_expired_grant_does_not_match() {
        let mut table = Rendezvous::default();
        assert!(table.grant(grant("10.0.0.2"), T(0)).is_ok());
        let late = table.request(asker("u.7@10.0.0.1", "10.0.0.2"), || 1, T(10), T(20));
        assert!(matches!(late, GrantDecision::Waits { unclear: false, .. }));
    }

    #[test]
    fn the_number_of_grants_is_limited() {
        let mut table = Rendezvous::<u32>::default();
        for number in 0..GRANTS_MAX {
            assert!(table.grant(CopyGrant { key: number.to_string(), ..grant("d") }, T(0)).is_ok());
        }
        assert_eq!(table.grant(grant("d"), T(0)).err(), Some(GrantRefusal::Full));
    }
}
