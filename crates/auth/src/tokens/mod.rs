//! Authorization by bearer tokens of the profiles WLCG and SciTokens (`libXrdAccSciTokens.so`).
//!
//! A token is a JSON Web Token that an issuer has signed. The issuer file names the issuers, their
//! keys, and where their paths are in the name space of the server. A token is verified once and
//! kept for a while; the decisions about operations use the verified token.
//!
//! | file          | contents                                                                   |
//! |---------------|----------------------------------------------------------------------------|
//! | `claims`      | the claims of a token: validity, audience, profile, scopes, groups         |
//! | `fault`       | [`TokenFault`]: the reason why a token is refused                          |
//! | `ini`         | the parser of the syntax of issuer files                                   |
//! | `issue`       | [`SigningKey`]: the key by which a site issues tokens of its own           |
//! | `issuer_file` | [`IssuerFile`]: the issuers and their settings                             |
//! | `json`        | JSON objects without duplicate members                                     |
//! | `jwt`         | the compact form of signed tokens                                          |
//! | `keys`        | [`KeySet`]: public keys of an issuer (JWKS), and signatures                |
//! | `map_file`    | names of clients by subject, group and path                                |
//! | `map_paths`   | the map rules of one bearer, by their paths                                |
//! | `missing_keys` | issuers of tokens with unknown keys, and the requests that wait for them  |
//! | `policy`      | [`TokenPolicy`]: the issuers in force, verification, cache, renewal        |
//! | `scopes`      | scopes and the operations that they allow                                  |
//! | `verified`    | [`VerifiedToken`]: decisions with a verified token                         |
//! | `verified_cache` | tokens that were verified recently                                      |

mod claims;
mod fault;
mod ini;
mod issue;
mod issuer_file;
mod json;
mod jwt;
mod keys;
mod map_file;
mod map_paths;
mod missing_keys;
mod policy;
mod scopes;
#[cfg(test)]
pub(crate) mod test_issuer;
#[cfg(test)]
mod tests;
mod verified;
mod verified_cache;

/// The key of the element of cgi that carries a token.
pub const TOKEN_KEY: &str = "authz";

pub use fault::TokenFault;
pub use issue::{NewToken, SigningKey};
pub use issuer_file::{
    ISSUER_FILE_BYTES_MAX, ISSUERS_MAX, Issuer, IssuerFile, IssuerFileError, IssuerFileProblem, OnMissing,
    Strategies,
};
pub use jwt::{TOKEN_BYTES_MAX, is_token_text};
pub use keys::{JWKS_BYTES_MAX, JWKS_KEYS_MAX, KeySet, KeySetError};
pub use map_file::{MAP_FILE_BYTES_MAX, MAP_RULES_MAX};
pub use missing_keys::{
    HOST_KEY_WAITERS_MAX, KEY_WAITERS_MAX, KeyWaiter, KeyWaiterOwner, SESSION_KEY_WAITERS_MAX,
};
pub(crate) use policy::claimed_expiry;
pub use policy::{IssuersRefresh, TokenPolicy, TokenPolicySource, claimed_issuer};
pub use scopes::{OperationSet, SCOPES_MAX, ScopeGrant};
pub use verified::{TokenVerdict, VerifiedToken};
