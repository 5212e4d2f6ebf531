//! The verification of chains and the names of users, as an exchange needs them.

use crate::grid::{ChainRole, GridMap, GridTrust, VerifiedChain, VomsMembership};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A chain that was verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridIdentity {
    /// Name of the end entity: `/C=.../CN=...`.
    pub subject: String,
    /// Hash of this name, 8 hexadecimal digits.
    pub subject_hash: String,
    /// Set if a proxy of the chain is limited.
    pub is_limited: bool,
    /// Number of further proxies that the path lengths allow below the chain; `None` for any number.
    pub proxy_path_left: Option<u32>,
    /// The earliest end of the validity of its certificates.
    pub expires: SystemTime,
    /// Memberships in virtual organizations, verified.
    pub memberships: Vec<VomsMembership>,
}

impl From<&VerifiedChain> for GridIdentity {
    fn from(verified: &VerifiedChain) -> Self {
        Self {
            subject: verified.end_entity().to_owned(),
            subject_hash: verified.end_entity_hash().to_owned(),
            is_limited: verified.is_limited(),
            proxy_path_left: verified.proxy_path_left(),
            expires: verified.valid_until(),
            memberships: verified.memberships().to_vec(),
        }
    }
}

/// Authorities, by which chains are verified.
pub trait ChainTrust: Send + Sync {
    /// Reports whether there is an authority with this hash of its name.
    fn has_authority(&self, hash: &str) -> bool;

    /// Returns the hashes, new and old, of the authority that has issued a certificate.
    ///
    /// # Errors
    /// The certificate is malformed, or its authority is not known.
    fn authority_hashes(&self, certificate: &[u8]) -> Result<[String; 2], String>;

    /// Verifies a chain, whose first certificate is the one whose key is used.
    ///
    /// # Errors
    /// The reason.
    fn verify(&self, chain: &[Vec<u8>], role: ChainRole, now: SystemTime) -> Result<GridIdentity, String>;

    /// Reads the authorities again. Blocks.
    ///
    /// # Errors
    /// The reason why the earlier ones stay in force.
    fn refresh(&self) -> Result<(), String>;

    /// Describes the authorities in force.
    fn state(&self) -> String;

    /// Returns reasons for attention: files that are not used, authorities that expire in less than
    /// `soon`, revocation lists that are missing or out of date.
    fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        let _ = (now, soon);
        Vec::new()
    }
}

/// Names of users by the names in their certificates.
pub trait NameMap: Send + Sync {
    /// Returns the names that a subject may use; the first is its default.
    fn names_for(&self, subject: &str) -> Vec<String>;

    /// Reads the file again. Blocks.
    ///
    /// # Errors
    /// The reason why the earlier content stays in force.
    fn refresh(&self) -> Result<(), String>;

    /// Returns the reason why it has no names at all, if it has none.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// Several sources of names. The names of the first one come first.
pub struct NameMapList(pub Vec<Arc<dyn NameMap>>);

impl NameMap for NameMapList {
    fn names_for(&self, subject: &str) -> Vec<String> {
        self.0.iter().flat_map(|map| map.names_for(subject)).collect()
    }

    fn refresh(&self) -> Result<(), String> {
        let failures: Vec<String> = self.0.iter().filter_map(|map| map.refresh().err()).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    fn warning(&self) -> Option<String> {
        let warnings: Option<Vec<String>> = self.0.iter().map(|map| map.warning()).collect();
        warnings.filter(|warnings| !warnings.is_empty()).map(|warnings| warnings.join("; "))
    }
}

impl ChainTrust for GridTrust {
    fn has_authority(&self, hash: &str) -> bool {
        self.has_authority(hash)
    }

    fn authority_hashes(&self, certificate: &[u8]) -> Result<[String; 2], String> {
        let hashes = self.authority_hashes(certificate);
        hashes.map(|(new, old)| [new, old]).map_err(|fault| fault.to_string())
    }

    fn verify(&self, chain: &[Vec<u8>], role: ChainRole, now: SystemTime) -> Result<GridIdentity, String> {
        let verified = self.verify(chain, role, now).map_err(|fault| fault.to_string())?;
        Ok(GridIdentity::from(&verified))
    }

    fn refresh(&self) -> Result<(), String> {
        self.refresh().map_err(|error| error.to_string())
    }

    fn state(&self) -> String {
        self.state()
    }

    fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        self.warnings(now, soon)
    }
}

impl NameMap for GridMap {
    fn names_for(&self, subject: &str) -> Vec<String> {
        self.names_for(subject)
    }

    fn refresh(&self) -> Result<(), String> {
        self.refresh().map(drop).map_err(|error| error.to_string())
    }

    fn warning(&self) -> Option<String> {
        self.is_empty().then(|| format!("the grid map {} is missing or empty", self.path().display()))
    }
}
