//! [`GridTrustSettings`]: places of authorities and the rules by which chains are verified.

use std::path::PathBuf;
use std::time::Duration;

/// The smallest RSA key that is ever accepted, in bits.
pub const RSA_BITS_MIN: u32 = 2048;

/// The default directory of authorities.
pub const AUTHORITY_DIRECTORY: &str = "/etc/grid-security/certificates";

/// How revocation lists are used (`-crl`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum CrlLevel {
    /// They are not used.
    Ignore,
    /// They are used where they exist.
    #[default]
    Try,
    /// Each authority must have one. One past its time is still used.
    Use,
    /// Each authority must have one that is within its time.
    Require,
}

impl CrlLevel {
    /// Parses a word or its number. `12` and `13` (download of lists) are not levels of this type.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "ignore" | "0" => Self::Ignore,
            "try" | "1" => Self::Try,
            "use" | "2" => Self::Use,
            "require" | "3" => Self::Require,
            _ => return None,
        })
    }
}

/// How certificates of local authorities are checked (`-ca`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum AuthorityLevel {
    /// The signatures of self-signed authorities are not checked.
    NoVerify,
    /// The signatures of self-signed authorities are checked. A local authority whose issuer is not
    /// in the directory may end a chain.
    #[default]
    SelfSigned,
    /// A chain ends at a self-signed local authority.
    Full,
}

impl AuthorityLevel {
    /// Parses a word or its number.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "noverify" | "0" => Self::NoVerify,
            "verifyss" | "1" => Self::SelfSigned,
            "verify" | "2" => Self::Full,
            _ => return None,
        })
    }
}

/// The side whose chain is verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainRole {
    /// A client, with or without a proxy.
    Client,
    /// A client, whose first certificate it has just signed in its own session. This one may have a
    /// signature of SHA-1, which clients of XRootD 5.5 make, because nobody else gains by a collision.
    Delegation,
    /// A server. Its certificate is an end entity, never a proxy.
    Server,
}

/// Places of authorities and rules for chains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridTrustSettings {
    /// Directories with authorities (`HASH.0`) and their signing policies.
    pub directories: Vec<PathBuf>,
    /// Files with authorities of any names.
    pub files: Vec<PathBuf>,
    /// Use of revocation lists.
    pub crl_level: CrlLevel,
    /// Whether lists above [`CrlLevel::Try`] are demanded for end entities only, and not for authorities.
    pub crl_of_end_entity_only: bool,
    /// Checks of local authorities.
    pub authority_level: AuthorityLevel,
    /// Directories with revocation lists; those of the authorities if there is none.
    pub crl_directories: Vec<PathBuf>,
    /// Extension of the names of revocation lists, with its dot.
    pub crl_extension: String,
    /// Whether the owner of these settings downloads revocation lists. The files with their addresses
    /// (`HASH.crl_url`) are then read.
    pub downloads_lists: bool,
    /// Time between two reads of the directories. The owner of the timer waits it.
    pub refresh: Duration,
    /// Whether proxies of the form before RFC 3820 (`CN=proxy`) are accepted.
    pub allow_legacy: bool,
    /// Smallest RSA key; values below [`RSA_BITS_MIN`] count as that.
    pub rsa_bits_min: u32,
}

impl Default for GridTrustSettings {
    fn default() -> Self {
        Self {
            directories: vec![AUTHORITY_DIRECTORY.into()],
            files: Vec::new(),
            crl_level: CrlLevel::default(),
            crl_of_end_entity_only: false,
            authority_level: AuthorityLevel::default(),
            crl_directories: Vec::new(),
            crl_extension: ".r0".to_owned(),
            downloads_lists: false,
            refresh: Duration::from_secs(86_400),
            allow_legacy: false,
            rsa_bits_min: RSA_BITS_MIN,
        }
    }
}

impl GridTrustSettings {
    /// Returns the use of revocation lists for a certificate with this number of others below it.
    pub(super) fn crl_level_at(&self, below: usize) -> CrlLevel {
        match self.crl_of_end_entity_only && below > 0 {
            true => self.crl_level.min(CrlLevel::Try),
            false => self.crl_level,
        }
    }

    /// Returns the directories with revocation lists.
    pub(super) fn crl_places(&self) -> &[PathBuf] {
        if self.crl_directories.is_empty() { &self.directories } else { &self.crl_directories }
    }

    /// Returns the size of the smallest RSA key in bits.
    pub(super) fn rsa_bits(&self) -> u32 {
        self.rsa_bits_min.max(RSA_BITS_MIN)
    }
}
