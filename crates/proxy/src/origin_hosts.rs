//! [`OriginHosts`]: the hosts to which the connections of one origin may lead.
//!
//! It exists because a web server can redirect to any address, and the proxy reaches hosts that its clients do not.

use base::AddressClass;
use config::HostPattern;
use std::net::IpAddr;
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
    /// The special networks of its addresses, as far as there were connections: bits of [`special_network`].
    networks: AtomicU8,
}

/// Returns the bit of a special network, and what its addresses are called; `None` for public addresses.
fn special_network(address: IpAddr) -> Option<(u8, &'static str)> {
    match AddressClass::of(address) {
        AddressClass::Public => None,
        AddressClass::Loopback => Some((1, "a loopback address")),
        AddressClass::LinkLocal => Some((2, "a link-local address")),
        AddressClass::Private(_) => Some((4, "an address of a private network")),
        // Some of these lead to this host.
        AddressClass::Nobody => Some((8, "no address of a host")),
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
        let network = special_network(address);
        if let Some(server) = self.web_server.as_ref().filter(|server| server.host.eq_ignore_ascii_case(host))
        {
            server.networks.fetch_or(network.map_or(0, |(bit, _)| bit), Ordering::Relaxed);
            return Ok(());
        }
        if let Some(permits) = &self.permits {
            let text = address.to_string();
            let is_permitted = permits.iter().any(|pattern| pattern.matches(host) || pattern.matches(&text));
            return if is_permitted { Ok(()) } else { Err(format!("{host} is not permitted (pss.permit)")) };
        }
        let (Some(server), Some((bit, name))) = (&self.web_server, network) else { return Ok(()) };
        match server.networks.load(Ordering::Relaxed) & bit {
            0 => Err(format!("{host} is {name}, and the origin is not; permit it by pss.permit")),
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
            "::10.0.0.1",
            "::169.254.169.254",
            "64:ff9b:1::a00:1",
            "0.1.2.3",
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
