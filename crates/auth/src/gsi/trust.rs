//! The verification of chains and the names of users, as an exchange needs them.

use std::time::SystemTime;

/// The side of the owner of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainOwner {
    /// A client, which may use proxies.
    Client,
    /// A server.
    Server,
}

/// A chain that was verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridIdentity {
    /// Name of the end entity: `/C=.../CN=...`.
    pub subject: String,
    /// Hash of this name, 8 hexadecimal digits.
    pub subject_hash: String,
    /// Set if a proxy of the chain is limited.
    pub is_limited: bool,
    /// The earliest end of the validity of its certificates.
    pub expires: SystemTime,
}

/// Authorities, by which chains are verified.
pub trait ChainTrust: Send + Sync {
    /// Reports whether there is an authority with this hash of its name.
    fn has_authority(&self, hash: &str) -> bool;

    /// Returns both hashes of the issuer of a certificate; `None` if it is malformed.
    fn issuer_hashes(&self, certificate: &[u8]) -> Option<[String; 2]>;

    /// Verifies a chain, whose first certificate is the one whose key is used.
    ///
    /// # Errors
    /// The reason.
    fn verify(&self, chain: &[Vec<u8>], owner: ChainOwner, now: SystemTime) -> Result<GridIdentity, String>;

    /// Reads the authorities again. Blocks.
    ///
    /// # Errors
    /// The reason why the earlier ones stay in force.
    fn refresh(&self) -> Result<(), String>;

    /// Describes the authorities in force.
    fn state(&self) -> String;
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
}
