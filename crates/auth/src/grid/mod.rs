//! Grid certificates: chains with proxies (RFC 3820), authorities of hashed directories, grid maps.
//!
//! TLS libraries refuse proxies, because a proxy is issued by an end entity. Here the path from the end
//! entity to the authority is validated by the library (RFC 5280), and the proxies and the rules of
//! grids by this module. See decision 040.
//!
//! | file | contents |
//! |---|---|
//! | `certificate` | a certificate and its extensions |
//! | `der` | reader of DER |
//! | `directory` | the files of a directory of authorities |
//! | `fault` | [`ChainFault`], [`GridTrustError`] |
//! | `map` | [`GridMap`]: users of names |
//! | `name` | [`DistinguishedName`]: text and hashes of names |
//! | `namespaces` | the files `HASH.namespaces` |
//! | `path` | the path from an end entity to an authority |
//! | `pem` | [`certificates_of_pem`] |
//! | `proxy` | rules of proxies |
//! | `revocation` | revocation lists |
//! | `settings` | [`GridTrustSettings`] |
//! | `signature` | keys and signatures |
//! | `signing_policy` | the files `HASH.signing_policy` |
//! | `trust` | [`GridTrust`]: verification of chains |
//! | `verified` | [`VerifiedChain`] |

#[expect(dead_code, reason = "the verification that reads DER follows")]
mod der;
mod fault;
mod limits;
mod map;
mod pem;
mod settings;
mod trust;
mod verified;

pub use fault::{ChainFault, ChainFaultReason, GridTrustError};
pub use limits::{CERTIFICATE_BYTES_MAX, CERTIFICATES_MAX, CHAIN_BYTES_MAX};
pub use map::GridMap;
pub use pem::certificates_of_pem;
pub use settings::{
    AUTHORITY_DIRECTORY, AuthorityLevel, ChainRole, CrlLevel, GridTrustSettings, RSA_BITS_MIN,
};
pub use trust::GridTrust;
pub use verified::VerifiedChain;
