//! The addresses of a child that clients are redirected to.
//!
//! They are derived here from the connection of the child and the addresses of its host, because a
//! node does not always report addresses that its clients can use.

use crate::cell::Interface;
use crate::tree::ClusterMember;
use std::net::IpAddr;
use std::sync::Arc;

/// The name and addresses of this host for other hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnHost {
    /// Its name; `None`: the loopback address, which only clients on this host can use.
    pub name: Option<Arc<str>>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl OwnHost {
    /// Returns the name for clients of a peer that has connected from this address.
    pub fn peer_name(&self, ip: IpAddr) -> String {
        match &self.name {
            Some(name) if ip.is_loopback() => name.to_string(),
            _ => ip.to_string(),
        }
    }

    /// Returns the addresses of a child: the one of its connection, and one of the other family.
    /// `others` are further known addresses of its host.
    ///
    /// A child that connected over the loopback is on this host, so it has this host's addresses.
    pub fn interfaces(&self, child: &ClusterMember, others: &[IpAddr]) -> Vec<Interface> {
        let ip = child.identity.ip;
        let host: Arc<str> = child.data.written_host().into();
        let is_local = ip.is_loopback() && self.name.is_some();
        let others = if is_local { &self.addresses } else { others };
        let mut reachable = others.iter().copied().filter(|other| !other.is_loopback());
        let first = if is_local { reachable.clone().next().unwrap_or(ip) } else { ip };
        let second = reachable.find(|other| other.is_ipv4() != first.is_ipv4());
        let second_host = |ip: IpAddr| -> Arc<str> {
            match ip {
                _ if is_local => host.clone(),
                IpAddr::V4(ip) => ip.to_string().into(),
                IpAddr::V6(ip) => format!("[{ip}]").into(),
            }
        };
        let second = second.map(|ip| Interface { host: second_host(ip), ip, private: false });
        [Interface { host: host.clone(), ip: first, private: false }].into_iter().chain(second).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::testing::member;
    use crate::tree::{NodeIdentity, Role};

    fn child(ip: &str) -> ClusterMember {
        let child = member("disk1", Role::Server);
        ClusterMember {
            identity: NodeIdentity { ip: ip.parse().unwrap(), ..child.identity.clone() },
            ..child
        }
    }

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    fn named(addresses: &[&str]) -> OwnHost {
        OwnHost { name: Some("own.org".into()), addresses: ips(addresses) }
    }

    fn shown(interfaces: &[Interface]) -> Vec<(String, String)> {
        interfaces.iter().map(|one| (one.host.to_string(), one.ip.to_string())).collect()
    }

    fn pair(host: &str, ip: &str) -> (String, String) {
        (host.to_owned(), ip.to_owned())
    }

    #[test]
    fn a_child_elsewhere_has_its_address_and_one_of_the_other_family() {
        let own = named(&["192.0.2.9"]);
        let others = ips(&["192.0.2.2", "::1", "2001:db8::1", "2001:db8::2"]);
        let found = own.interfaces(&child("192.0.2.1"), &others);
        assert_eq!(shown(&found), [pair("disk1", "192.0.2.1"), pair("[2001:db8::1]", "2001:db8::1")]);
        let found = own.interfaces(&child("2001:db8::1"), &others);
        assert_eq!(shown(&found), [pair("disk1", "2001:db8::1"), pair("192.0.2.2", "192.0.2.2")]);
        assert_eq!(own.interfaces(&child("192.0.2.1"), &[]).len(), 1);
    }

    #[test]
    fn a_child_on_this_host_has_the_addresses_of_this_host() {
        let found = named(&["127.0.0.1", "192.0.2.9", "2001:db8::9"]).interfaces(&child("127.0.0.1"), &[]);
        assert_eq!(shown(&found), [pair("disk1", "192.0.2.9"), pair("disk1", "2001:db8::9")]);
        // A host that has no other address, and one that has no name.
        let found = named(&["127.0.0.1"]).interfaces(&child("127.0.0.1"), &ips(&["192.0.2.9"]));
        assert_eq!(shown(&found), [pair("disk1", "127.0.0.1")]);
        let found = OwnHost::default().interfaces(&child("127.0.0.1"), &[]);
        assert_eq!(shown(&found), [pair("disk1", "127.0.0.1")]);
        assert_eq!(named(&[]).peer_name([127, 0, 0, 1].into()), "own.org");
        assert_eq!(named(&[]).peer_name([192, 0, 2, 1].into()), "192.0.2.1");
    }
}
