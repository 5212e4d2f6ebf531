//! Grants, and destinations that wait for one. Time is an argument; names of hosts are resolved by others.
//!
//! A grant is for one key, one path, one client and one destination. The client is told by `user.pid@host` as both
//! servers see it, and the destination by the name the client gave; hosts are the same when a name or any address is.

use base::{Identity, LogicalPath, written_ip};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Grants that may be open at once.
pub(crate) const GRANTS_MAX: usize = 10_000;
/// Destinations that may wait at once.
pub(crate) const WAITING_MAX: usize = 10_000;

/// A host as far as it is known.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Host {
    /// Its names, and its addresses in whatever form they were written.
    pub(crate) names: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Host {
    /// A host by the text that names it.
    pub(crate) fn named(text: &str) -> Self {
        Self { names: vec![text.to_owned()], addresses: written_ip(text).into_iter().collect() }
    }

    /// The host of a connection.
    pub(crate) fn of(who: &Identity) -> Self {
        let address = who.address.map(|address| address.to_canonical());
        Self { names: vec![who.host().to_owned()], addresses: address.into_iter().collect() }
    }

    /// Could it be the same host?
    fn is(&self, other: &Self) -> bool {
        let same_name = |a: &String| other.names.iter().any(|b| a.eq_ignore_ascii_case(b));
        // A host that is reached through its loopback has several addresses there.
        let same_address =
            |a: &IpAddr| other.addresses.iter().any(|b| a == b || (a.is_loopback() && b.is_loopback()));
        self.names.iter().any(same_name) || self.addresses.iter().any(same_address)
    }
}

/// What a client granted.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) key: String,
    pub(crate) path: LogicalPath,
    /// `user.pid` of the client.
    pub(crate) client: String,
    pub(crate) client_host: Host,
    pub(crate) destination: Host,
    pub(crate) expires: Duration,
}

/// Who asks for a grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asker {
    pub(crate) key: String,
    pub(crate) path: LogicalPath,
    /// `user.pid` of the client that arranged it.
    pub(crate) client: String,
    pub(crate) client_host: Host,
    /// The destination, as this server sees it.
    pub(crate) host: Host,
}

impl Asker {
    /// `origin` is `user.pid@host` as the destination sees the client.
    pub(crate) fn new(key: &str, path: &LogicalPath, origin: &str, who: &Identity) -> Self {
        let (client, host) = origin.rsplit_once('@').unwrap_or((origin, ""));
        Self {
            key: key.to_owned(),
            path: path.clone(),
            client: client.to_owned(),
            client_host: Host::named(host),
            host: Host::of(who),
        }
    }

    /// The same question, asked again?
    fn is(&self, other: &Self) -> bool {
        let first = |host: &Host| host.names.first().cloned();
        (&self.key, &self.path, &self.client) == (&other.key, &other.path, &other.client)
            && first(&self.client_host) == first(&other.client_host)
            && first(&self.host) == first(&other.host)
    }
}

impl Grant {
    fn is_for(&self, asker: &Asker) -> bool {
        self.concerns(asker) && self.client_host.is(&asker.client_host) && self.destination.is(&asker.host)
    }

    /// All but the hosts fits.
    fn concerns(&self, asker: &Asker) -> bool {
        self.key == asker.key && self.path == asker.path && self.client == asker.client
    }
}

/// Names a grant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct GrantNumber(u64);

/// Names one who waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct WaitNumber(u64);

/// What one who asks is told.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// It may have the file, and the grant is used up.
    Granted,
    /// It waits. With `unclear` there is a grant which differs by the hosts alone, as far as they are known: more about
    /// them is to be found out.
    Waits { number: WaitNumber, unclear: bool },
    /// Too many wait.
    Full,
}

/// Why a grant was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotGranted {
    /// There is one of the same key, path, client and destination.
    Duplicate,
    /// There are too many.
    Full,
}

/// Who is to be told of a new grant.
pub(crate) struct Granted<W> {
    pub(crate) number: GrantNumber,
    /// They may come again and have it.
    pub(crate) woken: Vec<W>,
    /// These differ by hosts alone, as far as they are known.
    pub(crate) unclear: Vec<WaitNumber>,
}

/// What is over.
pub(crate) struct Over<W> {
    /// Paths of grants that nobody used.
    pub(crate) grants: Vec<LogicalPath>,
    /// Those who waited in vain.
    pub(crate) waiting: Vec<W>,
}

struct Held {
    grant: Grant,
    /// It was found that this one means it, though the hosts do not show it.
    admits: Option<Asker>,
}

struct Waiting<W> {
    asker: Asker,
    expires: Duration,
    who: W,
}

/// All grants, and all who wait for one.
pub(crate) struct Rendezvous<W> {
    grants: HashMap<GrantNumber, Held>,
    grants_by_key: HashMap<String, Vec<GrantNumber>>,
    waiting: HashMap<WaitNumber, Waiting<W>>,
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

/// Takes a number out of those of a key.
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

    /// The grant of this key that holds now and fits.
    fn find(&self, key: &str, now: Duration, fits: impl Fn(&Held) -> bool) -> Option<GrantNumber> {
        let held = |number: &&GrantNumber| {
            self.grants.get(number).is_some_and(|held| held.grant.expires > now && fits(held))
        };
        self.grants_by_key.get(key)?.iter().find(held).copied()
    }

    fn take_grant(&mut self, number: GrantNumber) -> Option<Held> {
        let held = self.grants.remove(&number)?;
        forget(&mut self.grants_by_key, &held.grant.key, &number);
        Some(held)
    }

    fn take_waiting(&mut self, number: WaitNumber) -> Option<Waiting<W>> {
        let waiting = self.waiting.remove(&number)?;
        forget(&mut self.waiting_by_key, &waiting.asker.key, &number);
        Some(waiting)
    }

    /// A client grants.
    pub(crate) fn grant(&mut self, grant: Grant, now: Duration) -> Result<Granted<W>, NotGranted> {
        let same = |held: &Held| {
            let other = &held.grant;
            (&other.path, &other.client) == (&grant.path, &grant.client)
                && other.client_host.is(&grant.client_host)
                && other.destination.names == grant.destination.names
        };
        if self.find(&grant.key, now, same).is_some() {
            return Err(NotGranted::Duplicate);
        }
        if self.grants.len() >= GRANTS_MAX {
            return Err(NotGranted::Full);
        }
        let number = GrantNumber(self.number());
        let fits = self.those_who(&grant.key, |asker| grant.is_for(asker));
        let woken: Vec<W> = fits.into_iter().filter_map(|n| self.take_waiting(n)).map(|w| w.who).collect();
        let unclear = match woken.is_empty() {
            true => self.those_who(&grant.key, |asker| grant.concerns(asker)),
            false => Vec::new(),
        };
        self.grants_by_key.entry(grant.key.clone()).or_default().push(number);
        self.grants.insert(number, Held { grant, admits: None });
        Ok(Granted { number, woken, unclear })
    }

    fn those_who(&self, key: &str, fits: impl Fn(&Asker) -> bool) -> Vec<WaitNumber> {
        let waits =
            |number: &&WaitNumber| self.waiting.get(number).is_some_and(|waiting| fits(&waiting.asker));
        self.waiting_by_key
            .get(key)
            .map(|numbers| numbers.iter().filter(waits).copied().collect())
            .unwrap_or_default()
    }

    /// A destination asks. If it has to wait, it does so until `expires`.
    pub(crate) fn ask(
        &mut self,
        asker: Asker,
        who: impl FnOnce() -> W,
        now: Duration,
        expires: Duration,
    ) -> Asked {
        let is_for = |held: &Held| {
            held.grant.is_for(&asker) || held.admits.as_ref().is_some_and(|admitted| admitted.is(&asker))
        };
        if let Some(number) = self.find(&asker.key, now, is_for) {
            self.take_grant(number);
            return Asked::Granted;
        }
        if self.waiting.len() >= WAITING_MAX {
            return Asked::Full;
        }
        let unclear = self.find(&asker.key, now, |held| held.grant.concerns(&asker)).is_some();
        let number = WaitNumber(self.number());
        self.waiting_by_key.entry(asker.key.clone()).or_default().push(number);
        self.waiting.insert(number, Waiting { asker, expires, who: who() });
        Asked::Waits { number, unclear }
    }

    /// The hosts of one who waits, if it still does.
    pub(crate) fn asker(&self, number: WaitNumber) -> Option<Asker> {
        self.waiting.get(&number).map(|waiting| waiting.asker.clone())
    }

    /// More is known of the hosts of one who waits: `asker` has them. If there is a grant for it now, it is to come again,
    /// and waits no more.
    pub(crate) fn clear_up(&mut self, number: WaitNumber, asker: &Asker, now: Duration) -> Option<W> {
        let grant = self.find(&asker.key, now, |held| held.grant.is_for(asker))?;
        let waiting = self.take_waiting(number)?;
        self.grants.get_mut(&grant)?.admits = Some(waiting.asker);
        Some(waiting.who)
    }

    /// A grant is taken back, unless it was used.
    pub(crate) fn withdraw(&mut self, number: GrantNumber) {
        self.take_grant(number);
    }

    /// What is over by now.
    pub(crate) fn expire(&mut self, now: Duration) -> Over<W> {
        let old: Vec<_> =
            self.grants.iter().filter(|(_, held)| held.grant.expires <= now).map(|(n, _)| *n).collect();
        let grants = old.into_iter().filter_map(|n| self.take_grant(n)).map(|held| held.grant.path).collect();
        let vain: Vec<_> = self.waiting.iter().filter(|(_, w)| w.expires <= now).map(|(n, _)| *n).collect();
        let waiting = vain.into_iter().filter_map(|n| self.take_waiting(n)).map(|w| w.who).collect();
        Over { grants, waiting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Told;

    const T: fn(u64) -> Duration = Duration::from_secs;

    fn path() -> LogicalPath {
        LogicalPath::parse(b"/data/f").unwrap()
    }

    fn grant(destination: &str) -> Grant {
        Grant {
            key: "k".to_owned(),
            path: path(),
            client: "u.7".to_owned(),
            client_host: Host {
                names: vec!["10.0.0.1".to_owned()],
                addresses: vec!["10.0.0.1".parse().unwrap()],
            },
            destination: Host::named(destination),
            expires: T(10),
        }
    }

    fn asker(origin: &str, address: &str) -> Asker {
        let who = Identity::new(&Told { host: address, ..Told::default() }, 1, address.parse().ok(), "host");
        Asker::new("k", &path(), origin, &who)
    }

    fn ask(table: &mut Rendezvous<u32>, asker: Asker) -> Asked {
        table.ask(asker, || 1, T(1), T(8))
    }

    #[test]
    fn a_grant_is_used_once() {
        let mut table = Rendezvous::default();
        assert!(table.grant(grant("10.0.0.2"), T(0)).is_ok());
        assert_eq!(ask(&mut table, asker("u.7@10.0.0.1", "10.0.0.2")), Asked::Granted);
        assert!(matches!(
            ask(&mut table, asker("u.7@10.0.0.1", "10.0.0.2")),
            Asked::Waits { unclear: false, .. }
        ));
    }

    #[test]
    fn all_of_it_must_fit() {
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
                matches!(ask(&mut table, asker(origin, address)), Asked::Waits { .. }),
                "{origin} {address}"
            );
        }
        let mut table = Rendezvous::default();
        assert!(table.grant(grant("10.0.0.2"), T(0)).is_ok());
        let other = Asker { key: "z".to_owned(), ..asker("u.7@10.0.0.1", "10.0.0.2") };
        assert!(matches!(ask(&mut table, other), Asked::Waits { unclear: false, .. }));
    }

    #[test]
    fn hosts_are_known_by_any_form_of_their_address() {
        for origin in ["u.7@10.0.0.1", "u.7@[::ffff:10.0.0.1]", "u.7@[::10.0.0.1]"] {
            let mut table = Rendezvous::default();
            assert!(table.grant(grant("[::ffff:10.0.0.2]"), T(0)).is_ok());
            assert_eq!(ask(&mut table, asker(origin, "10.0.0.2")), Asked::Granted, "{origin}");
        }
        assert_eq!(written_ip("[::1]"), Some("::1".parse().unwrap()));
        assert_eq!(written_ip("localhost"), None);
    }

    #[test]
    fn loopback_is_one_host() {
        let mut local = grant("::1");
        local.client_host = Host::named("127.0.0.1");
        let mut table = Rendezvous::default();
        assert!(table.grant(local, T(0)).is_ok());
        assert_eq!(ask(&mut table, asker("u.7@[::1]", "127.0.0.1")), Asked::Granted);
    }

    #[test]
    fn who_came_first_is_woken_and_comes_again() {
        let mut table = Rendezvous::default();
        assert!(matches!(
            ask(&mut table, asker("u.7@10.0.0.1", "10.0.0.2")),
            Asked::Waits { unclear: false, .. }
        ));
        let granted = table.grant(grant("10.0.0.2"), T(2)).ok().unwrap();
        assert_eq!(granted.woken, [1]);
        assert_eq!(ask(&mut table, asker("u.7@10.0.0.1", "10.0.0.2")), Asked::Granted);
    }

    #[test]
    fn names_are_found_out_where_only_they_differ() {
        let mut table = Rendezvous::default();
        assert!(table.grant(grant("d.example.org"), T(0)).is_ok());
        let first = asker("u.7@c.example.org", "10.0.0.2");
        let Asked::Waits { number, unclear: true } = ask(&mut table, first.clone()) else { panic!() };
        let mut resolved = table.asker(number).unwrap();
        assert_eq!(table.clear_up(number, &resolved, T(2)), None);
        resolved.client_host.addresses.push("10.0.0.1".parse().unwrap());
        resolved.host.names.push("D.example.org".to_owned());
        assert_eq!(table.clear_up(number, &resolved, T(2)), Some(1));
        assert_eq!(ask(&mut table, first), Asked::Granted);
    }

    #[test]
    fn the_unclear_are_named_when_the_grant_comes_second() {
        let mut table = Rendezvous::default();
        let Asked::Waits { number, .. } = ask(&mut table, asker("u.7@c.example.org", "10.0.0.2")) else {
            panic!()
        };
        let granted = table.grant(grant("d.example.org"), T(2)).ok().unwrap();
        assert!(granted.woken.is_empty());
        assert_eq!(granted.unclear, [number]);
    }

    #[test]
    fn duplicates_are_refused_until_the_first_is_over() {
        let mut table = Rendezvous::<u32>::default();
        let first = table.grant(grant("d"), T(0)).ok().unwrap();
        assert_eq!(table.grant(grant("d"), T(1)).err(), Some(NotGranted::Duplicate));
        assert!(table.grant(grant("e"), T(1)).is_ok());
        table.withdraw(first.number);
        assert!(table.grant(grant("d"), T(1)).is_ok());
        assert!(table.grant(grant("d"), T(11)).is_ok(), "one whose time is over does not count");
    }

    #[test]
    fn both_sides_wait_only_so_long() {
        let mut table = Rendezvous::default();
        assert!(matches!(ask(&mut table, asker("u.7@10.0.0.1", "10.0.0.2")), Asked::Waits { .. }));
        assert!(table.grant(grant("d"), T(0)).is_ok());
        let over = table.expire(T(7));
        assert!(over.grants.is_empty() && over.waiting.is_empty());
        assert_eq!(table.expire(T(8)).waiting, [1]);
        assert_eq!(table.expire(T(10)).grants, [path()]);
        assert!(table.grants.is_empty() && table.waiting.is_empty());
        assert!(table.grants_by_key.is_empty() && table.waiting_by_key.is_empty());
    }

    #[test]
    fn a_grant_counts_no_longer_than_its_time() {
        let mut table = Rendezvous::default();
        assert!(table.grant(grant("10.0.0.2"), T(0)).is_ok());
        let late = table.ask(asker("u.7@10.0.0.1", "10.0.0.2"), || 1, T(10), T(20));
        assert!(matches!(late, Asked::Waits { unclear: false, .. }));
    }

    #[test]
    fn tables_have_an_end() {
        let mut table = Rendezvous::<u32>::default();
        for number in 0..GRANTS_MAX {
            assert!(table.grant(Grant { key: number.to_string(), ..grant("d") }, T(0)).is_ok());
        }
        assert_eq!(table.grant(grant("d"), T(0)).err(), Some(NotGranted::Full));
    }
}
