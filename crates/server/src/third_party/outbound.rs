//! The policy for outgoing connections on behalf of clients: sources of third-party copies. Downloads of
//! revocation lists follow it too, with lists of their own.
//!
//! It exists because a client outside of a firewall must not reach hosts inside through this
//! server. So addresses of special networks (loopback, link-local, private) are refused unless a
//! directive allows them, or the server or the client is in that network itself. The policy applies
//! to the resolved address of each connection, so a name that resolves differently the next time,
//! or a redirect, gains nothing.
//!
//! `/etc/hosts` of many systems gives the host's own name a loopback address (Debian: `127.0.1.1`).
//! Such a source is another server of this host, so the connection goes to the address that other
//! hosts would use. A remote client therefore cannot reach a service that listens on the loopback
//! interface only.

use crate::host_lookups::HostLookups;
use base::AddressClass;
use client::Resolver;
use config::{CopySource, CopySources, HttpCopyNetworks};
use std::net::IpAddr;
use std::sync::Arc;

/// The policy of `scalla.tpcsource` or of `gsi.crlsource`.
#[derive(Clone)]
pub(crate) struct Outbound {
    /// The directive with the rules, for messages.
    directive: &'static str,
    rules: CopySources,
    own_name: OwnName,
    /// Special networks that other directives name.
    networks: HttpCopyNetworks,
    look_ups: HostLookups,
}

/// The name of this host.
#[derive(Clone, Default)]
struct OwnName(Arc<str>);

impl OwnName {
    /// Reports whether a name is this host's full name or the first part of it.
    fn is(&self, host: &str) -> bool {
        let (own, host) = (&*self.0, host.trim_end_matches('.'));
        let short = own.split('.').next().unwrap_or_default();
        !host.is_empty() && (host.eq_ignore_ascii_case(own) || host.eq_ignore_ascii_case(short))
    }
}

impl Outbound {
    /// Creates the policy of a server on the host with this name.
    pub(crate) fn new(rules: CopySources, own_name: &str) -> Self {
        let (own_name, look_ups) = (OwnName(own_name.into()), HostLookups::default());
        Self {
            directive: "scalla.tpcsource",
            rules,
            own_name,
            networks: HttpCopyNetworks::default(),
            look_ups,
        }
    }

    /// Returns the policy with rules of another directive.
    pub(crate) fn of_directive(self, directive: &'static str) -> Self {
        Self { directive, ..self }
    }

    /// Returns the policy with the networks of `tpc.allow` and `tpc.deny`.
    pub(crate) fn with_networks(self, networks: HttpCopyNetworks) -> Self {
        Self { networks, ..self }
    }

    /// Returns the policy for one client, with the current interfaces of this host.
    pub(crate) fn for_client(&self, client: Option<IpAddr>) -> ClientOutbound {
        let own =
            nix::ifaddrs::getifaddrs().map(|all| all.filter_map(address_of).collect()).unwrap_or_default();
        ClientOutbound::new(self.clone(), own, client)
    }
}

fn address_of(interface: nix::ifaddrs::InterfaceAddress) -> Option<IpAddr> {
    let address = interface.address?;
    let v4 = || address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4().or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// The addresses to which this server may connect on behalf of one client.
pub(crate) struct ClientOutbound {
    policy: Outbound,
    client: Option<IpAddr>,
    /// Networks that the client reaches without this server, or that contain this server.
    near: Vec<AddressClass>,
    /// Addresses at which other hosts reach this one.
    outside: Vec<IpAddr>,
}

impl ClientOutbound {
    fn new(policy: Outbound, own: Vec<IpAddr>, client: Option<IpAddr>) -> Self {
        let client = client.map(|address| address.to_canonical());
        let is_here = client.is_some_and(|client| client.is_loopback() || own.contains(&client));
        let mut near: Vec<AddressClass> = client.into_iter().map(AddressClass::of).collect();
        // Each host has loopback addresses, and with IPv6 link-local addresses, so they grant no
        // access.
        let is_local = |address: &IpAddr| {
            matches!(AddressClass::of(*address), AddressClass::Loopback | AddressClass::LinkLocal)
        };
        let (local, outside): (Vec<_>, Vec<_>) = own.into_iter().partition(is_local);
        near.extend(outside.iter().map(|address| AddressClass::of(*address)));
        if is_here {
            near.push(AddressClass::Loopback);
            near.extend(local.into_iter().map(AddressClass::of));
        }
        Self { policy, client, near, outside }
    }

    /// Returns the resolver for hosts that this client names.
    pub(crate) fn resolver(&self) -> Arc<dyn Resolver> {
        self.policy.look_ups.for_client(self.client)
    }

    /// Returns the addresses to connect to for `address`, which was resolved from `host`, or the
    /// reason of a refusal.
    pub(crate) fn choose(&self, host: &str, address: IpAddr) -> Result<Vec<IpAddr>, String> {
        let Err(refused) = self.check(host, address) else { return Ok(vec![address]) };
        if AddressClass::of(address) != AddressClass::Loopback || !self.policy.own_name.is(host) {
            return Err(refused);
        }
        let outside = self.outside.iter().copied().filter(|own| self.check(host, *own).is_ok());
        let outside: Vec<_> = outside.collect();
        if outside.is_empty() { Err(refused) } else { Ok(outside) }
    }

    /// Checks whether a connection to `address`, resolved from `host`, is permitted. The error
    /// contains the reason.
    fn check(&self, host: &str, address: IpAddr) -> Result<(), String> {
        let network = AddressClass::of(address);
        let text = address.to_canonical().to_string();
        let fits = |rule: &CopySource| match rule {
            CopySource::Loopback => network == AddressClass::Loopback,
            CopySource::LinkLocal => network == AddressClass::LinkLocal,
            CopySource::Private => matches!(network, AddressClass::Private(_)),
            CopySource::Host(pattern) => pattern.matches(host) || pattern.matches(&text),
        };
        let refused = |why: &str| Err(format!("{text} {why} ({})", self.policy.directive));
        if network == AddressClass::Nobody {
            return refused("is no address of a host");
        }
        if self.policy.rules.deny.iter().any(fits) {
            return refused("is denied as a source");
        }
        let by_network = match network {
            AddressClass::Loopback | AddressClass::LinkLocal => self.policy.networks.local,
            AddressClass::Private(_) => self.policy.networks.private,
            _ => None,
        };
        if by_network == Some(false) {
            return Err(format!("{text} is in a network that is denied (tpc.deny)"));
        }
        if self.policy.rules.allow.iter().any(fits) {
            return Ok(());
        }
        if !self.policy.rules.allow.is_empty() {
            return refused("is not among the allowed sources");
        }
        match network {
            AddressClass::Public => Ok(()),
            near if by_network == Some(true) || self.near.contains(&near) => Ok(()),
            AddressClass::Loopback => refused("is a loopback address"),
            AddressClass::LinkLocal => refused("is a link-local address"),
            _ => refused("is in a private network that this server is not in"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::HostPattern;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn policy(allow: &[CopySource], deny: &[CopySource], own: &[&str], client: &str) -> ClientOutbound {
        let rules = CopySources { allow: allow.to_vec(), deny: deny.to_vec() };
        let policy = Outbound::new(rules, "own.example.org");
        ClientOutbound::new(policy, own.iter().map(|text| address(text)).collect(), Some(address(client)))
    }

    fn allows(policy: &ClientOutbound, host: &str, to: &str) -> bool {
        policy.choose(host, address(to)).is_ok()
    }

    const OWN: [&str; 4] = ["127.0.0.1", "::1", "192.0.2.7", "fe80::7"];

    #[test]
    fn special_networks_are_refused_in_every_form() {
        let policy = policy(&[], &[], &OWN, "198.51.100.1");
        for to in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "169.254.169.254",
            "fe80::1",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
        ] {
            assert!(!allows(&policy, "source.example.org", to), "{to}");
        }
        for to in ["192.0.2.1", "172.32.0.1", "8.8.8.8", "2001:db8::1", "100.128.0.1"] {
            assert!(allows(&policy, "source.example.org", to), "{to}");
        }
    }

    #[test]
    fn a_network_is_open_to_its_own_hosts() {
        let inside = policy(&[], &[], &["127.0.0.1", "10.0.0.7"], "198.51.100.1");
        assert!(allows(&inside, "s", "10.200.0.1"));
        assert!(!allows(&inside, "s", "192.168.0.1") && !allows(&inside, "s", "127.0.0.1"));
        for client in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "192.0.2.7"] {
            let here = policy(&[], &[], &OWN, client);
            assert!(allows(&here, "s", "127.0.0.1") && allows(&here, "s", "::1"), "{client}");
            assert!(!allows(&here, "s", "10.0.0.1"), "{client}");
        }
        assert!(allows(&policy(&[], &[], &OWN, "10.1.1.1"), "s", "10.0.0.1"));
    }

    #[test]
    fn this_hosts_own_name_leads_to_its_external_address() {
        let choose = |policy: &ClientOutbound, host: &str, to: &str| {
            policy.choose(host, address(to)).map(|to| to.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let remote = policy(&[], &[], &OWN, "198.51.100.1");
        for host in ["own.example.org", "own", "OWN.Example.org."] {
            for to in ["127.0.1.1", "127.0.0.1", "::1"] {
                assert_eq!(choose(&remote, host, to).unwrap(), ["192.0.2.7"], "{host} {to}");
            }
            assert_eq!(choose(&remote, host, "192.0.2.7").unwrap(), ["192.0.2.7"]);
            assert!(
                choose(&remote, host, "169.254.1.1").is_err() && choose(&remote, host, "10.0.0.1").is_err()
            );
        }
        for host in ["localhost", "other.example.org", "own.example.com", "", ".", "127.0.1.1"] {
            let why = choose(&remote, host, "127.0.1.1").unwrap_err();
            assert_eq!(why, "127.0.1.1 is a loopback address (scalla.tpcsource)", "{host}");
        }
        let here = policy(&[], &[], &OWN, "127.0.0.1");
        assert_eq!(choose(&here, "own", "127.0.1.1").unwrap(), ["127.0.1.1"]);
        let private = policy(&[], &[], &["127.0.0.1", "10.0.0.7"], "198.51.100.1");
        assert_eq!(choose(&private, "own", "127.0.1.1").unwrap(), ["10.0.0.7"]);
        let denied = [CopySource::Host(HostPattern::parse("192.0.2.*").unwrap())];
        assert!(choose(&policy(&[], &denied, &OWN, "198.51.100.1"), "own", "127.0.1.1").is_err());
        assert!(choose(&policy(&[], &[], &["127.0.0.1"], "198.51.100.1"), "own", "127.0.1.1").is_err());
    }

    #[test]
    fn networks_of_copies_over_http_add_to_the_rules() {
        let with = |local, private, allow: &[CopySource]| {
            let rules = CopySources { allow: allow.to_vec(), deny: Vec::new() };
            let policy =
                Outbound::new(rules, "own.example.org").with_networks(HttpCopyNetworks { local, private });
            let own = vec![address("127.0.0.1"), address("10.0.0.7")];
            ClientOutbound::new(policy, own, Some(address("10.0.0.9")))
        };
        let found = |policy: &ClientOutbound| {
            ["127.0.0.1", "169.254.1.1", "10.0.0.1", "192.168.0.1", "0.0.0.0"]
                .map(|to| allows(policy, "s", to))
        };
        assert_eq!(found(&with(None, None, &[])), [false, false, true, false, false]);
        assert_eq!(found(&with(Some(true), Some(true), &[])), [true, true, true, true, false]);
        assert_eq!(found(&with(Some(false), Some(false), &[])), [false; 5]);
        // Addresses that the lists exclude stay excluded.
        let lists = with(Some(true), None, &[CopySource::Private]);
        assert_eq!(found(&lists), [false, false, true, true, false]);
        assert_eq!(found(&with(None, Some(false), &[CopySource::Private])), [false; 5]);
    }

    #[test]
    fn lists_override_the_defaults_and_deny_has_precedence() {
        let host = |text: &str| CopySource::Host(HostPattern::parse(text).unwrap());
        let lists =
            policy(&[host("*.example.org"), CopySource::Private], &[host("10.0.0.*")], &OWN, "198.51.100.1");
        assert!(allows(&lists, "a.example.org", "192.0.2.1") && allows(&lists, "x", "192.168.0.1"));
        assert!(!allows(&lists, "a.example.com", "192.0.2.1"), "another host");
        assert!(!allows(&lists, "a.example.org", "10.0.0.1"), "denied by address");
        let denied = policy(&[], &[CopySource::Loopback], &OWN, "127.0.0.1");
        let why = denied.choose("s", address("127.0.0.1")).unwrap_err();
        assert_eq!(why, "127.0.0.1 is denied as a source (scalla.tpcsource)");
    }
}
