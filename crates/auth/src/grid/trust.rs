//! [`GridTrust`]: verification of chains by the authorities of directories.

use super::fault::{ChainFault, ChainFaultReason, GridTrustError};
use super::settings::{ChainRole, GridTrustSettings};
use super::verified::VerifiedChain;
use std::time::SystemTime;

/// The authorities of directories, and the rules by which chains are verified.
#[derive(Debug)]
pub struct GridTrust {
    settings: GridTrustSettings,
}

impl GridTrust {
    /// Reads the directories. Blocks.
    ///
    /// # Errors
    /// A directory cannot be read, or there is no authority that can be used.
    pub fn open(settings: GridTrustSettings) -> Result<Self, GridTrustError> {
        Ok(Self { settings })
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &GridTrustSettings {
        &self.settings
    }

    /// Reads the directories again. The earlier content stays in force after an error. Blocks.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn refresh(&self) -> Result<(), GridTrustError> {
        Ok(())
    }

    /// Reports whether there is an authority of this hash: eight hexadecimal digits of the new or the
    /// old form, which `.0` may follow.
    #[must_use]
    pub fn has_authority(&self, _hash: &str) -> bool {
        false
    }

    /// Returns the number of authorities and of revocation lists, for reports.
    #[must_use]
    pub fn state(&self) -> String {
        String::new()
    }

    /// Verifies a chain: `chain` is the DER of the leaf first, then of its issuers up to the end
    /// entity, then of intermediate authorities in any order. Computes for some milliseconds.
    ///
    /// # Errors
    /// A rule is violated.
    pub fn verify(
        &self,
        _chain: &[Vec<u8>],
        _role: ChainRole,
        _now: SystemTime,
    ) -> Result<VerifiedChain, ChainFault> {
        Err(ChainFaultReason::Malformed("verification is not finished").of(""))
    }

    /// Returns the hashes of the authority that ends the path of a certificate, new and old form, as
    /// peers name it (`ca:` of a server, `issuer_hash` of a client).
    ///
    /// # Errors
    /// The certificate is malformed, or its issuer is unknown.
    pub fn authority_hashes(&self, _certificate: &[u8]) -> Result<(String, String), ChainFault> {
        Err(ChainFaultReason::Malformed("verification is not finished").of(""))
    }
}
