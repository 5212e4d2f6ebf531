//! Authorization by macaroons (`libXrdMacaroons.so`).
//!
//! A macaroon is a list of caveats with a chain of authentication codes that begins with a secret of
//! the site. Everybody who has one can append caveats, which restrict it further, but nobody without
//! the secret can remove or change one. All servers of a site share the secret and the site name.
//!
//! | file        | contents                                                                     |
//! |-------------|------------------------------------------------------------------------------|
//! | `activity`  | activities and the operations that they allow                                |
//! | `caveats`   | [`Caveat`]: one restriction                                                  |
//! | `fault`     | [`MacaroonFault`]: the reason why a macaroon is refused                      |
//! | `issue`     | [`MacaroonRequest`]: new macaroons; caveats that holders append              |
//! | `packets`   | the format of libmacaroons, version 1                                        |
//! | `policy`    | [`MacaroonPolicy`]: site name and secret in force, verification, renewal     |
//! | `secret`    | [`MacaroonSecret`]: the secret of a site, and chains of authentication codes |
//! | `verified`  | [`VerifiedMacaroon`]: decisions with a verified macaroon                     |
//!
//! Source: security facts, section 3.8.

mod activity;
mod caveats;
mod fault;
mod issue;
mod packets;
mod policy;
mod secret;
#[cfg(test)]
mod tests;
mod verified;

pub use activity::Activity;
pub use caveats::Caveat;
pub use fault::MacaroonFault;
pub use issue::{MacaroonRequest, MacaroonRequestError, NamedMacaroon, VALIDITY_FORM, validity, with_caveat};
pub use packets::{CAVEATS_MAX, MACAROON_BYTES_MAX, is_macaroon_text};
pub(crate) use policy::claimed_expiry;
pub use policy::{MacaroonPolicy, MacaroonSettings, SecretRefresh};
pub use secret::{MACAROON_SECRET_BYTES_MIN, MacaroonSecret, MacaroonSecretError};
pub use verified::{MacaroonVerdict, VerifiedMacaroon};
