//! The authentication that a front end requires: which protocols it offers to a host, and which it
//! accepts from it.
//!
//! Both are decided once, at login, by the rules of `sec.protbind`.

use crate::settings::AUTH_PROTOCOLS_MAX;
use auth::{OFFERS_BYTES_MAX, ServerProtocol, encode_offer};
use base::{Error, ErrorKind};
use config::AuthBinding;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The id of the protocol that identifies a client by its host alone.
const HOST: &str = "host";

/// The pattern that stands for all hosts without a pattern of their own.
const ANY_HOST: &str = "*";

/// The pattern that stands for the host of the server.
const OWN_HOST: &str = "localhost";

/// The authentication that a front end requires.
pub struct LoginPolicy {
    /// The configured protocols, each once.
    protocols: Vec<Arc<dyn ServerProtocol>>,
    /// Indices of the protocols in the order in which they are offered by default.
    offered: Vec<usize>,
    bindings: Vec<BoundProtocols>,
    /// A list without `only` is an offer, and any other protocol is accepted.
    binding_offers: bool,
    own_host: String,
}

/// The protocols of the hosts that match a pattern.
struct BoundProtocols {
    binding: AuthBinding,
    protocols: Vec<usize>,
}

/// A set of protocols, by their index in the policy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ProtocolSet(u64);

const _: () = assert!(AUTH_PROTOCOLS_MAX < u64::BITS as usize);

impl ProtocolSet {
    fn of(indices: &[usize]) -> Self {
        Self(indices.iter().fold(0, |set, index| set | (1 << index)))
    }

    pub(crate) fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }
}

/// The authentication required of one host.
pub(crate) struct HostRequirement {
    /// Indices of the protocols to offer. Empty if the host needs no authentication.
    pub(crate) offered: Vec<usize>,
    /// The protocols that are accepted.
    pub(crate) accepted: ProtocolSet,
}

impl LoginPolicy {
    /// Creates a policy. `order` names the protocols that are offered to hosts without a binding.
    /// `own_host` replaces `localhost` in the patterns of the bindings.
    ///
    /// # Errors
    /// A protocol in `order` or in a binding is missing, or a list of protocols is too long for the
    /// reply to a login.
    pub fn new(
        protocols: Vec<Arc<dyn ServerProtocol>>,
        order: &[&str],
        bindings: Vec<AuthBinding>,
        binding_offers: bool,
        own_host: &str,
    ) -> Result<Self, Error> {
        let invalid = |what: String| Error::new(ErrorKind::ArgInvalid, what);
        if protocols.len() > AUTH_PROTOCOLS_MAX {
            return Err(invalid(format!("more than {AUTH_PROTOCOLS_MAX} authentication protocols")));
        }
        let own_host = own_host.to_owned();
        let mut policy =
            Self { protocols, offered: Vec::new(), bindings: Vec::new(), binding_offers, own_host };
        policy.offered = policy.indices(order.iter().copied())?;
        for mut binding in bindings {
            if binding.hosts.as_str() == OWN_HOST
                && let Some(own) = config::HostPattern::parse(&policy.own_host)
            {
                binding.hosts = own;
            }
            let protocols = policy.indices(binding.protocols.iter().map(String::as_str))?;
            policy.bindings.push(BoundProtocols { binding, protocols });
        }
        let lists = policy.bindings.iter().map(|bound| &bound.protocols).chain([&policy.offered]);
        match lists.map(|list| policy.token(list, true).len()).max() {
            Some(bytes) if bytes > OFFERS_BYTES_MAX => {
                let what = "the parameters of all authentication protocols";
                Err(invalid(format!("{what} have {bytes} bytes; at most {OFFERS_BYTES_MAX} can be sent")))
            }
            _ => Ok(policy),
        }
    }

    fn indices<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Result<Vec<usize>, Error> {
        let missing = |id| Error::new(ErrorKind::ArgInvalid, format!("no authentication protocol '{id}'"));
        ids.map(|id| self.find(id.as_bytes()).ok_or_else(|| missing(id))).collect()
    }

    /// Returns the index of the protocol with this id.
    pub(crate) fn find(&self, id: &[u8]) -> Option<usize> {
        self.protocols.iter().position(|protocol| protocol.id().as_bytes() == id)
    }

    pub(crate) fn protocol(&self, index: usize) -> Option<&Arc<dyn ServerProtocol>> {
        self.protocols.get(index)
    }

    /// Returns the configured protocols.
    pub fn protocols(&self) -> &[Arc<dyn ServerProtocol>] {
        &self.protocols
    }

    /// Reports whether the name of a host decides about its protocols.
    pub fn needs_host_name(&self) -> bool {
        self.bindings.iter().any(|bound| bound.binding.hosts.as_str() != ANY_HOST)
    }

    /// Returns the authentication required of a host.
    pub(crate) fn require(&self, host: &str) -> HostRequirement {
        // The name of the loopback address.
        let host = if host.eq_ignore_ascii_case(OWN_HOST) { &self.own_host } else { host };
        let named = |bound: &&BoundProtocols| {
            bound.binding.hosts.as_str() != ANY_HOST && bound.binding.hosts.matches(host)
        };
        let default = |bound: &&BoundProtocols| bound.binding.hosts.as_str() == ANY_HOST;
        let bound = self.bindings.iter().find(named).or_else(|| self.bindings.iter().find(default));
        let (list, only) = bound.map_or((&self.offered, false), |b| (&b.protocols, b.binding.only));
        let is_host = |index: &usize| self.protocol(*index).is_some_and(|p| p.id() == HOST);
        // In a list, host makes all other protocols unnecessary.
        let host_only: Vec<usize> = list.iter().copied().filter(is_host).take(1).collect();
        let offers = self.binding_offers && !only && !list.is_empty();
        let all = || ProtocolSet::of(&(0..self.protocols.len()).collect::<Vec<_>>());
        let accepted = match (offers, host_only.is_empty()) {
            (true, _) => all(),
            (false, true) => ProtocolSet::of(list),
            (false, false) => ProtocolSet::of(&host_only),
        };
        let offered = if host_only.is_empty() { list.clone() } else { Vec::new() };
        HostRequirement { offered, accepted }
    }

    /// Returns the security text of the reply to a login that offers these protocols. Protocols that
    /// need an encrypted connection are left out on others.
    pub(crate) fn token(&self, offered: &[usize], is_tls: bool) -> Vec<u8> {
        let mut token = Vec::new();
        let protocols = offered.iter().filter_map(|index| self.protocol(*index));
        for protocol in protocols.filter(|protocol| is_tls || !protocol.needs_tls()) {
            encode_offer(protocol.id(), &protocol.parameters(), &mut token);
        }
        token
    }
}

impl fmt::Debug for LoginPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.protocols.iter().map(|protocol| protocol.id()).collect();
        f.debug_struct("LoginPolicy").field("protocols", &ids).finish_non_exhaustive()
    }
}

/// Returns the text of an address that stands for a host without a name: `[::ffff:192.0.2.7]`,
/// `[2001:db8::1]`.
pub(crate) fn address_text(address: IpAddr) -> String {
    let address = match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    format!("[{address}]")
}

/// Reports whether an address is not reachable from other sites.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    address.is_loopback() || address.is_private() || address.is_link_local()
}
