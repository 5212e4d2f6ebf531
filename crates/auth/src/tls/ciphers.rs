//! Cipher suites by their names of OpenSSL, as in `xrd.tlsciphers`.

use super::TlsError;
use rustls::{CipherSuite, ProtocolVersion, SupportedCipherSuite};

/// Suites of TLS 1.2 with authenticated encryption and forward secrecy.
const NAMES: [(&str, CipherSuite); 6] = [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Reports whether a suite has AES with a key of 128 bits.
pub(super) fn is_aes_128(suite: &SupportedCipherSuite) -> bool {
    matches!(
        suite.suite(),
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

/// Restricts the suites of TLS 1.2 to those of a list, which names at least one of them. Suites of
/// TLS 1.3 are not restricted: the list does not name them, and all of them are strong.
///
/// # Errors
/// The list has none of the suites.
pub(super) fn restrict(
    suites: &[SupportedCipherSuite],
    list: &str,
) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let names: Vec<&str> = list.split([':', ',', ' ']).filter(|name| !name.is_empty()).collect();
    let is_allowed = |suite: &SupportedCipherSuite| {
        suite.version().version == ProtocolVersion::TLSv1_3
            || NAMES.iter().any(|(name, known)| *known == suite.suite() && names.contains(name))
    };
    let kept: Vec<SupportedCipherSuite> = suites.iter().copied().filter(is_allowed).collect();
    let has_any = kept.iter().any(|suite| suite.version().version == ProtocolVersion::TLSv1_2);
    if has_any {
        return Ok(kept);
    }
    let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    Err(TlsError::Setting(format!(
        "none of the ciphers '{list}' is supported; name some of {}",
        known.join(":")
    )))
}

/// Returns the names of a list that are not supported.
#[must_use]
pub fn unsupported_ciphers(list: &str) -> Vec<&str> {
    let is_known = |name: &&str| NAMES.iter().any(|(known, _)| known == name);
    list.split([':', ',', ' ']).filter(|name| !name.is_empty() && !is_known(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_restricts_tls_1_2_and_keeps_tls_1_3() {
        let all = super::super::provider().cipher_suites;
        let kept = restrict(&all, "ECDHE-RSA-AES256-GCM-SHA384:AES128-SHA").unwrap();
        let old: Vec<_> =
            kept.iter().filter(|suite| suite.version().version == ProtocolVersion::TLSv1_2).collect();
        assert_eq!(old.len(), 1);
        assert_eq!(old[0].suite(), CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384);
        assert!(kept.len() > 1, "TLS 1.3 stays");
        let error = restrict(&all, "AES128-SHA").unwrap_err();
        assert!(error.to_string().contains("name some of ECDHE-ECDSA-AES128-GCM-SHA256"), "{error}");
        assert_eq!(unsupported_ciphers("ECDHE-RSA-AES128-GCM-SHA256:RC4-MD5"), ["RC4-MD5"]);
    }
}
