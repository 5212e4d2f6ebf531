//! The authentication that a front end requires: which protocols it offers to a host, and which it
//! accepts from it.
//!
//! Both are decided once, at login, by the rules of `sec.protbind`.

use auth::gsi::GSI;
use auth::host::HOST;
use auth::ztn::ZTN;
use auth::{OFFERS_BYTES_MAX, ServerProtocol, encode_offer};
use base::{Error, ErrorKind};
use config::{AUTH_PROTOCOLS_MAX, AuthBinding};
use std::fmt;
use std::sync::Arc;

/// The pattern that stands for all hosts without a pattern of their own.
const ANY_HOST: &str = "*";

/// The pattern that stands for the host of the server.
const OWN_HOST: &str = "localhost";

/// The authentication that a front end requires.
pub struct LoginPolicy {
    /// The configured protocols, each once.
    protocols: Vec<Arc<dyn ServerProtocol>>,
    /// The protocols of hosts without a binding.
    default: ProtocolList,
    bindings: Vec<BoundProtocols>,
    /// A list without `only` is an offer, and any other protocol is accepted.
    binding_offers: bool,
    /// Protocols that the configuration limits to encrypted connections.
    tls_only: ProtocolSet,
    own_host: String,
}

/// The protocols of the hosts that match a pattern.
struct BoundProtocols {
    binding: AuthBinding,
    list: ProtocolList,
}

/// The protocols that one directive names. `host` is not a protocol of a policy, because it has no
/// credentials to check. Only the list that applies to a peer can permit it.
#[derive(PartialEq, Eq, Debug)]
enum ProtocolList {
    /// `none`.
    Nothing,
    /// A list with `host`, which makes all other protocols unnecessary.
    Host,
    /// Indices of protocols, in the order of preference. Not empty.
    Protocols(Vec<usize>),
}

impl ProtocolList {
    fn indices(&self) -> &[usize] {
        match self {
            Self::Protocols(indices) => indices,
            Self::Nothing | Self::Host => &[],
        }
    }
}

/// A set of protocols, by their index in the policy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ProtocolSet(u64);

const _: () = assert!(AUTH_PROTOCOLS_MAX < u64::BITS as usize);

impl ProtocolSet {
    fn with(self, indices: &[usize]) -> Self {
        Self(indices.iter().fold(self.0, |set, index| set | (1 << index)))
    }

    pub(crate) fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }
}

/// The authentication required of one host.
pub(crate) enum HostRequirement {
    /// None. Credentials are not accepted either.
    Nothing,
    /// The host suffices. Credentials of the protocol `host` are accepted and change nothing.
    Host,
    /// One of these protocols.
    Protocols(RequiredProtocols),
}

/// The login of a client that can only send a token.
#[derive(Clone)]
pub enum BearerLogin {
    /// The host suffices.
    NotNeeded,
    /// The token is verified by this protocol.
    Token(Arc<dyn ServerProtocol>),
    /// Tokens are accepted on encrypted connections only.
    NeedsTls,
    /// Only protocols without tokens are accepted.
    Impossible,
}

/// The protocols by which a client must authenticate. `host` is never among them.
pub(crate) struct RequiredProtocols {
    /// Indices of the protocols to offer.
    pub(crate) offered: Vec<usize>,
    /// The protocols that are accepted.
    pub(crate) accepted: ProtocolSet,
}

impl BearerLogin {
    /// Reports whether a token logs the client in.
    #[must_use]
    pub fn is_token(&self) -> bool {
        matches!(self, Self::Token(_))
    }
}

impl LoginPolicy {
    /// Creates a policy. `order` names the protocols that are offered to hosts without a binding.
    /// `order` may contain `host`; `protocols` may not. `own_host` replaces `localhost` in the
    /// patterns of the bindings.
    ///
    /// # Errors
    /// A protocol in `order` or in a binding is missing, a list of protocols is too long for the
    /// reply to a login, or `host` is among the protocols.
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
        if protocols.iter().any(|protocol| protocol.id() == HOST) {
            return Err(invalid("host is not a protocol with credentials".to_owned()));
        }
        let (own_host, default) = (own_host.to_owned(), ProtocolList::Nothing);
        let tls_only = ProtocolSet::default();
        let mut policy =
            Self { protocols, default, bindings: Vec::new(), binding_offers, tls_only, own_host };
        policy.default = policy.list(order.iter().copied())?;
        for mut binding in bindings {
            if binding.hosts.as_str() == OWN_HOST
                && let Some(own) = config::HostPattern::parse(&policy.own_host)
            {
                binding.hosts = own;
            }
            let list = policy.list(binding.protocols.iter().map(String::as_str))?;
            policy.bindings.push(BoundProtocols { binding, list });
        }
        match policy.lists().map(|list| policy.token(list.indices(), true).len()).max() {
            Some(bytes) if bytes > OFFERS_BYTES_MAX => {
                let what = "the parameters of all authentication protocols";
                Err(invalid(format!("{what} have {bytes} bytes; at most {OFFERS_BYTES_MAX} can be sent")))
            }
            _ => Ok(policy),
        }
    }

    /// Limits protocols to encrypted connections, in addition to those that always need them.
    ///
    /// # Errors
    /// No protocol of the policy has this id.
    pub fn limit_to_tls<'a>(&mut self, ids: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        for id in ids {
            let missing = || Error::new(ErrorKind::ArgInvalid, format!("no authentication protocol '{id}'"));
            self.tls_only = self.tls_only.with(&[self.find(id.as_bytes()).ok_or_else(missing)?]);
        }
        Ok(())
    }

    /// Reports whether a protocol may be offered and used on encrypted connections only.
    pub(crate) fn needs_tls(&self, index: usize) -> bool {
        self.tls_only.contains(index) || self.protocol(index).is_some_and(|protocol| protocol.needs_tls())
    }

    /// Reports whether any protocol may be used on encrypted connections only.
    pub fn has_tls_protocols(&self) -> bool {
        (0..self.protocols.len()).any(|index| self.needs_tls(index))
    }

    /// Returns the lists of all directives.
    fn lists(&self) -> impl Iterator<Item = &ProtocolList> {
        self.bindings.iter().map(|bound| &bound.list).chain([&self.default])
    }

    fn list<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Result<ProtocolList, Error> {
        let missing = |id| Error::new(ErrorKind::ArgInvalid, format!("no authentication protocol '{id}'"));
        let (mut has_host, mut indices) = (false, Vec::new());
        for id in ids {
            if id == HOST {
                has_host = true;
            } else {
                indices.push(self.find(id.as_bytes()).ok_or_else(|| missing(id))?);
            }
        }
        Ok(match (has_host, indices.is_empty()) {
            (true, _) => ProtocolList::Host,
            (false, true) => ProtocolList::Nothing,
            (false, false) => ProtocolList::Protocols(indices),
        })
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

    /// Reports whether the name of a host decides about its protocols or about the identity of its clients, so that
    /// no client can log in while names cannot be looked up.
    pub fn needs_host_name(&self) -> bool {
        self.bindings.iter().any(|bound| bound.binding.hosts.as_str() != ANY_HOST)
            || self.protocols.iter().any(|protocol| protocol.needs_host_name())
    }

    /// Reports whether the name of a host is used.
    pub fn wants_host_name(&self) -> bool {
        self.needs_host_name() || self.protocols.iter().any(|protocol| protocol.wants_host_name())
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
        let (list, only) = bound.map_or((&self.default, false), |b| (&b.list, b.binding.only));
        let offered = match list {
            ProtocolList::Nothing => return HostRequirement::Nothing,
            ProtocolList::Host => return HostRequirement::Host,
            ProtocolList::Protocols(offered) => offered.clone(),
        };
        let accepted = if self.binding_offers && !only {
            self.lists().fold(ProtocolSet::default(), |set, list| set.with(list.indices()))
        } else {
            ProtocolSet::default().with(&offered)
        };
        HostRequirement::Protocols(RequiredProtocols { offered, accepted })
    }

    /// Returns the login of a client of a host that can only send a token, as over HTTP.
    #[must_use]
    pub fn bearer_login(&self, host: &str, is_tls: bool) -> BearerLogin {
        let required = match self.require(host) {
            HostRequirement::Nothing | HostRequirement::Host => return BearerLogin::NotNeeded,
            HostRequirement::Protocols(required) => required,
        };
        let ztn = self.find(ZTN.as_bytes()).filter(|index| required.accepted.contains(*index));
        match ztn.and_then(|index| Some((index, self.protocol(index)?))) {
            None => BearerLogin::Impossible,
            Some((index, _)) if self.needs_tls(index) && !is_tls => BearerLogin::NeedsTls,
            Some((_, protocol)) => BearerLogin::Token(protocol.clone()),
        }
    }

    /// Reports whether a client of a host may log in with a certificate that it shows in a handshake of TLS: it
    /// need not authenticate, or may do so by `gsi`.
    #[must_use]
    pub fn accepts_certificates(&self, host: &str) -> bool {
        match self.require(host) {
            HostRequirement::Nothing | HostRequirement::Host => true,
            HostRequirement::Protocols(required) => {
                self.find(GSI.as_bytes()).is_some_and(|index| required.accepted.contains(index))
            }
        }
    }

    /// Returns the security text of the reply to a login that offers these protocols. Protocols that
    /// need an encrypted connection are left out on others.
    pub(crate) fn token(&self, offered: &[usize], is_tls: bool) -> Vec<u8> {
        let mut token = Vec::new();
        let usable = offered.iter().filter(|index| is_tls || !self.needs_tls(**index));
        for protocol in usable.filter_map(|index| self.protocol(*index)) {
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
