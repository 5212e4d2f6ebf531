//! [`MacaroonFault`]: the reason why a macaroon is refused.

use std::fmt;

/// Maximum length of a caveat in a message, in characters.
const SHOWN_CHARACTERS_MAX: usize = 100;

/// The reason why a macaroon is refused. Caveats in it are not secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MacaroonFault {
    /// The text is not a macaroon.
    #[error("it is not a macaroon: {0}")]
    Malformed(&'static str),
    /// The macaroon is for another site.
    #[error("the macaroon is of another site (all.sitename)")]
    OtherSite,
    /// A caveat must be checked by another service.
    #[error("the macaroon has a caveat of a third party")]
    ThirdParty,
    /// The macaroon has more than [`super::CAVEATS_MAX`] caveats.
    #[error("the macaroon has too many caveats")]
    TooMany,
    /// The signature does not belong to the caveats, or was made with another secret.
    #[error("the signature of the macaroon is invalid")]
    Signature,
    /// A caveat is not understood.
    #[error("the caveat {} is not accepted: {reason}", Shown(.caveat))]
    Caveat {
        /// The caveat.
        caveat: Box<str>,
        /// The reason.
        reason: &'static str,
    },
    /// The macaroon has several names.
    #[error("the macaroon has more than one name caveat")]
    SecondName,
    /// A caveat is missing that each macaroon must have.
    #[error("the macaroon has no caveat {0}")]
    Missing(&'static str),
    /// The macaroon has expired.
    #[error("the macaroon has expired")]
    Expired,
    /// The expiry is later than the configuration allows.
    #[error("the macaroon expires later than macaroons.maxduration allows")]
    TooLong,
}

impl MacaroonFault {
    pub(super) fn caveat(caveat: &[u8], reason: &'static str) -> Self {
        Self::Caveat { caveat: String::from_utf8_lossy(caveat).into(), reason }
    }
}

/// A caveat in a message: quoted and short, because the holder of a macaroon can append any text.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: String = self.0.chars().take(SHOWN_CHARACTERS_MAX).collect();
        let rest = if short.len() < self.0.len() { "…" } else { "" };
        write!(f, "{short:?}{rest}")
    }
}
