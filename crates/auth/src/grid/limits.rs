//! Limits on chains and on files of authorities.

/// Maximum number of certificates in a chain of a peer.
pub const CERTIFICATES_MAX: usize = 20;
/// Maximum size of a certificate in bytes. Proxies with attribute certificates are the largest.
pub const CERTIFICATE_BYTES_MAX: usize = 48 << 10;
/// Maximum size of all certificates of a chain in bytes.
pub const CHAIN_BYTES_MAX: usize = 128 << 10;
/// Maximum size of a revocation list in bytes.
pub const LIST_BYTES_MAX: usize = 16 << 20;
/// Maximum size of a file of a directory of authorities in bytes.
pub(super) const FILE_BYTES_MAX: u64 = LIST_BYTES_MAX as u64;
/// Maximum size of all revocation lists that were downloaded, in bytes.
pub(super) const DOWNLOADED_BYTES_MAX: usize = 256 << 20;
/// Maximum number of downloaded revocation lists of an authority, each of another part of its certificates.
pub const LISTS_OF_AUTHORITY_MAX: usize = 4;
/// Maximum number of addresses of the revocation list of an authority.
pub(super) const LIST_ADDRESSES_MAX: usize = 8;
/// Maximum length of an address of a revocation list in bytes.
pub(super) const ADDRESS_BYTES_MAX: usize = 2048;
/// Maximum size of all files that are read from the directories in bytes.
pub(super) const DIRECTORIES_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of files in a directory of authorities.
pub(super) const FILES_MAX: usize = 10_000;
/// Maximum size of a policy file in bytes.
pub(super) const POLICY_BYTES_MAX: usize = 256 << 10;
/// Maximum number of rules in a policy file.
pub(super) const POLICY_RULES_MAX: usize = 1_000;
