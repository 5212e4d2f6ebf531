//! Limits on chains and on files of authorities.

/// Maximum number of certificates in a chain of a peer.
pub const CERTIFICATES_MAX: usize = 20;
/// Maximum size of a certificate in bytes. Proxies with attribute certificates are the largest.
pub const CERTIFICATE_BYTES_MAX: usize = 48 << 10;
/// Maximum size of all certificates of a chain in bytes.
pub const CHAIN_BYTES_MAX: usize = 128 << 10;
