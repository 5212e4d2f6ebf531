//! [`TokenFault`]: the reason why a token is refused.

/// The reason why a token is refused. It contains no part of the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenFault {
    /// The token is longer than [`super::TOKEN_BYTES_MAX`].
    #[error("the token is too long")]
    TooLong,
    /// The text is not a JSON Web Token.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// The issuer is not in the issuer file.
    #[error("the issuer is not in the issuer file")]
    UnknownIssuer,
    /// The algorithm is none of those that are accepted.
    #[error("the algorithm is not RS256 or ES256")]
    Algorithm,
    /// The keys of the issuer are missing.
    #[error("the keys of the issuer are not known")]
    NoKeys,
    /// The issuer has no key with the id in the token.
    #[error("the issuer has no such key")]
    UnknownKey,
    /// The signature does not verify.
    #[error("the signature is invalid")]
    Signature,
    /// The time of expiry is missing.
    #[error("the token has no expiry (exp)")]
    NoExpiry,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet (nbf)")]
    NotYetValid,
    /// The version of the profile is unknown.
    #[error("the version of the token (wlcg.ver, ver) is not supported")]
    Version,
    /// The profile requires an audience, but the token has none.
    #[error("the token has no audience (aud)")]
    NoAudience,
    /// The token is for other services.
    #[error("the token is for another audience (aud)")]
    Audience,
    /// The subject is missing.
    #[error("the token has no subject (sub)")]
    NoSubject,
    /// The token has more scopes or groups than are accepted.
    #[error("the token has too many {0}")]
    TooMany(&'static str),
}
