//! [`VerifiedChain`]: the result of a verification.

use super::voms::VomsMembership;
use std::time::SystemTime;

/// The identity that a verified chain proves. Only a verification makes one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifiedChain {
    pub(super) end_entity: String,
    pub(super) end_entity_hash: String,
    pub(super) common_name: Option<String>,
    pub(super) email: Option<String>,
    pub(super) leaf: String,
    pub(super) is_limited: bool,
    pub(super) proxies: usize,
    pub(super) intermediates: usize,
    pub(super) proxy_path_left: Option<u32>,
    pub(super) valid_until: SystemTime,
    pub(super) memberships: Vec<VomsMembership>,
    pub(super) leaf_key: Vec<u8>,
}

impl VerifiedChain {
    /// Returns the name of the end entity, the text that is mapped: `/C=.../CN=...`.
    #[must_use]
    pub fn end_entity(&self) -> &str {
        &self.end_entity
    }

    /// Returns the hash of the name of the end entity, eight hexadecimal digits.
    #[must_use]
    pub fn end_entity_hash(&self) -> &str {
        &self.end_entity_hash
    }

    /// Returns the last common name of the end entity.
    #[must_use]
    pub fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }

    /// Returns the e-mail address of the end entity, of its alternative names or of its subject.
    #[must_use]
    pub fn email(&self) -> Option<&str> {
        self.email.as_deref()
    }

    /// Returns the name of the leaf: that of the last proxy, or of the end entity.
    #[must_use]
    pub fn leaf(&self) -> &str {
        &self.leaf
    }

    /// Reports whether a proxy of the chain is limited.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Returns the number of proxies.
    #[must_use]
    pub fn proxies(&self) -> usize {
        self.proxies
    }

    /// Returns the number of authorities between the end entity and the root.
    #[must_use]
    pub fn intermediates(&self) -> usize {
        self.intermediates
    }

    /// Returns the number of further proxies that the path lengths allow below the leaf; `None` if
    /// there is no limit.
    #[must_use]
    pub fn proxy_path_left(&self) -> Option<u32> {
        self.proxy_path_left
    }

    /// Returns the end of the validity: the earliest of all certificates.
    #[must_use]
    pub fn valid_until(&self) -> SystemTime {
        self.valid_until
    }

    /// Returns the memberships in virtual organizations, those of the last proxy first. The chain may
    /// be valid for longer.
    #[must_use]
    pub fn memberships(&self) -> &[VomsMembership] {
        &self.memberships
    }

    /// Returns the public key of the leaf as DER of `SubjectPublicKeyInfo`.
    #[must_use]
    pub fn leaf_key(&self) -> &[u8] {
        &self.leaf_key
    }
}
