//! [`OriginHosts`]: the hosts to which the connections of one origin may lead.
//!
//! It exists because a web server can redirect to any address, and the proxy reaches hosts that its clients do not.

use config::HostPattern;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The hosts to which the connections of one origin may lead: the host of a web server, and those that
/// `pss.permit` permits. Without permits these are all hosts, but a web server does not lead into a special
/// network that it is not in.
#[derive(Clone, Default)]
pub(crate) struct OriginHosts {
    permits: Option<Arc<[HostPattern]>>,
    web_server: Option<Arc<WebServer>>,
}

/// A fixed origin that speaks HTTP.
struct WebServer {
    host: String,
    /// The special networks of its addresses, as far as there were connections: bits of [`SpecialNetwork`].
    networks: AtomicU8,
}

/// A kind of network whose hosts are not those of other sites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SpecialNetwork {
    Loopback = 1,
    LinkLocal = 2,
    Private = 4,
}

impl fmt::Display for SpecialNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Private => "an address of a private network",
        })
    }
}

impl SpecialNetwork {
    /// Returns the network of an address; `None` for public addresses.
    fn of(address: IpAddr) -> Option<Self> {
        let address = plain(address);
        let is_link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        // Addresses between a provider and its customers.
        let is_shared = matches!(address, IpAddr::V4(v4) if matches!(v4.octets(), [100, 64..=127, ..]));
        // A connection to no address leads to this host.
        if address.is_loopback() || address.is_unspecified() {
            Some(Self::Loopback)
        } else if is_link_local {
            Some(Self::LinkLocal)
        } else {
            (is_shared || base::is_private(address)).then_some(Self::Private)
        }
    }
}

/// Returns an address without the IPv6 forms of IPv4 addresses.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let v4 = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => v4(high, low),
        _ => address.to_canonical(),
    }
}

impl OriginHosts {
    /// Creates the hosts of a server that clients have named.
    pub(crate) const fn permitted(permits: Option<Arc<[HostPattern]>>) -> Self {
        Self { permits, web_server: None }
    }

    /// Creates the hosts of a fixed web server.
    pub(crate) fn of_web_server(host: &str, permits: Option<Arc<[HostPattern]>>) -> Self {
        let server = WebServer { host: host.to_owned(), networks: AtomicU8::new(0) };
        Self { permits, web_server: Some(Arc::new(server)) }
    }

    /// Checks a connection to an address of a host. The error is the reason of a refusal.
    pub(crate) fn check(&self, host: &str, address: IpAddr) -> Result<(), String> {
        let network = SpecialNetwork::of(address);
        if let Some(server) = self.web_server.as_ref().filter(|server| server.host.eq_ignore_ascii_case(host))
        {
            server.networks.fetch_or(network.map_or(0, |network| network as u8), Ordering::Relaxed);
            return Ok(());
        }
        if let Some(permits) = &self.permits {
            let text = address.to_string();
            let is_permitted = permits.iter().any(|pattern| pattern.matches(host) || pattern.matches(&text));
            return if is_permitted { Ok(()) } else { Err(format!("{host} is not permitted (pss.permit)")) };
        }
        let (Some(server), Some(network)) = (&self.web_server, network) else { return Ok(()) };
        match server.networks.load(Ordering::Relaxed) & network as u8 {
            0 => Err(format!("{host} is {network}, and the origin is not; permit it by pss.permit")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(hosts: &OriginHosts, host: &str, address: &str) -> bool {
        hosts.check(host, address.parse().unwrap()).is_ok()
    }

    #[test]
    fn a_public_web_server_leads_to_no_internal_host() {
        let hosts = OriginHosts::of_web_server("Web.example.org", None);
        for address in [
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "169.254.169.254",
            "fe80::1",
            "10.0.0.1",
            "100.64.0.1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
        ] {
            assert!(!allows(&hosts, "other.example.org", address), "{address}");
        }
        assert!(allows(&hosts, "other.example.org", "192.0.2.1"));
        assert!(allows(&hosts, "other.example.org", "2001:db8::1"));
    }

    #[test]
    fn an_internal_web_server_leads_into_its_own_networks() {
        let hosts = OriginHosts::of_web_server("web", None);
        assert!(!allows(&hosts, "other", "10.0.0.2"), "no address of the origin is known");
        assert!(allows(&hosts, "WEB", "10.0.0.1"));
        assert!(allows(&hosts, "other", "192.168.0.1") && allows(&hosts, "other", "192.0.2.1"));
        let why = hosts.check("other", "169.254.169.254".parse().unwrap()).unwrap_err();
        assert!(why.contains("a link-local address") && why.contains("pss.permit"), "{why}");
        assert!(!allows(&hosts, "localhost", "127.0.0.1"));
    }

    #[test]
    fn permits_limit_the_other_hosts() {
        let permits: Arc<[HostPattern]> = Arc::new([HostPattern::parse("*.example.org").unwrap()]);
        let hosts = OriginHosts::of_web_server("web.example.com", Some(permits.clone()));
        assert!(allows(&hosts, "web.example.com", "192.0.2.1"), "the origin itself");
        assert!(allows(&hosts, "a.example.org", "10.0.0.1") && !allows(&hosts, "b.example.com", "192.0.2.1"));
        let named = OriginHosts::permitted(Some(permits));
        assert!(
            allows(&named, "a.example.org", "10.0.0.1") && !allows(&named, "web.example.com", "192.0.2.1")
        );
        assert!(allows(&OriginHosts::default(), "x", "127.0.0.1"));
    }
}
