//! Grid certificates: chains with proxies (RFC 3820), authorities of hashed directories, grid maps.
//!
//! TLS libraries refuse proxies, because a proxy is issued by an end entity. Here the path from the end
//! entity to the authority is validated by the library (RFC 5280), and the proxies and the rules of
//! grids by this module. See decision 038.
//!
//! | file | contents |
//! |---|---|
//! | `attribute_certificate` | attribute certificates of VOMS |
//! | `certificate` | a certificate and its extensions |
//! | `der` | reader of DER |
//! | `directory` | the files of a directory of authorities |
//! | `downloaded_lists` | revocation lists that were downloaded, and their addresses |
//! | `fault` | [`ChainFault`], [`GridTrustError`] |
//! | `fqan` | [`Fqan`]: names of groups |
//! | `glob` | patterns of names |
//! | `limits` | limits on chains and files |
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
//! | `voms` | verification of attributes |
//! | `voms_columns` | [`VomsSelection`]: the groups that count |
//! | `voms_directory` | [`VomsDirectory`]: signers of attributes |
//! | `voms_map` | [`VomsMap`]: users of groups |

mod attribute_certificate;
mod certificate;
mod der;
mod directory;
mod downloaded_lists;
mod fault;
mod fqan;
mod glob;
mod limits;
mod map;
mod name;
mod namespaces;
#[cfg(test)]
mod oracle;
mod path;
mod pem;
mod proxy;
mod revocation;
mod settings;
mod signature;
mod signing_policy;
#[cfg(test)]
mod test_certificates;
#[cfg(test)]
mod test_chains;
#[cfg(test)]
mod tests;
mod trust;
mod verified;
mod voms;
mod voms_columns;
mod voms_directory;
mod voms_map;
#[cfg(test)]
mod voms_tests;

pub(crate) use glob::Glob;
pub(crate) use map::is_user;
pub(crate) use proxy::{INHERIT_ALL_POLICY, LEGACY_FULL, LEGACY_LIMITED, LIMITED_POLICY};

pub use downloaded_lists::{CrlSource, DownloadedList, ListRefusal};
pub use fault::{ChainFault, ChainFaultReason, GridTrustError};
pub use fqan::Fqan;
pub use limits::{
    CERTIFICATE_BYTES_MAX, CERTIFICATES_MAX, CHAIN_BYTES_MAX, LIST_BYTES_MAX, LISTS_OF_AUTHORITY_MAX,
};
pub use map::GridMap;
pub use name::DistinguishedName;
pub use namespaces::Namespaces;
pub use pem::certificates_of_pem;
pub use revocation::RevocationList;
pub use settings::{
    AUTHORITY_DIRECTORY, AuthorityLevel, ChainRole, CrlLevel, GridTrustSettings, RSA_BITS_MIN,
};
pub use signing_policy::SigningPolicy;
pub use trust::GridTrust;
pub use verified::VerifiedChain;
pub use voms::{VomsMembership, unverified_groups};
pub use voms_columns::{GroupChoice, VomsColumns, VomsSelection};
pub use voms_directory::{VOMS_DIRECTORY, VomsDirectory, signer_names};
pub use voms_map::VomsMap;
