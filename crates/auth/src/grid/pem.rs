//! [`certificates_of_pem`]: certificates of a PEM text, within limits.

use super::fault::{ChainFault, ChainFaultReason};
use super::limits::{CERTIFICATE_BYTES_MAX, CERTIFICATES_MAX, CHAIN_BYTES_MAX};
use rustls::pki_types::pem::{self, SectionKind};

/// Returns the DER of the certificates of a PEM text, in their order. Text between them is skipped.
///
/// # Errors
/// There is no certificate, something else than certificates (a private key is refused with any other
/// certificates), malformed Base64, or too much of it.
pub fn certificates_of_pem(text: &[u8]) -> Result<Vec<Vec<u8>>, ChainFault> {
    let refused = |reason: ChainFaultReason| Err(reason.of(""));
    // Base64 and line ends add less than this to the DER.
    if text.len() > 2 * CHAIN_BYTES_MAX {
        return refused(ChainFaultReason::Size("too much PEM text"));
    }
    // The reader skips sections whose labels it does not know, such as those of encrypted keys.
    const KEY_LABEL: &[u8] = b"PRIVATE KEY-----";
    if text.windows(KEY_LABEL.len()).any(|part| part == KEY_LABEL) {
        return refused(ChainFaultReason::Malformed("a PEM section is not a certificate"));
    }
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((kind, certificate)) =
        pem::from_buf(&mut rest).map_err(|_| ChainFaultReason::Malformed("it is not PEM").of(""))?
    {
        if kind != SectionKind::Certificate {
            return refused(ChainFaultReason::Malformed("a PEM section is not a certificate"));
        }
        if found.len() >= CERTIFICATES_MAX || certificate.len() > CERTIFICATE_BYTES_MAX {
            return refused(ChainFaultReason::Size("too many or too large certificates"));
        }
        found.push(certificate);
    }
    if found.is_empty() {
        return refused(ChainFaultReason::Size("there is no certificate"));
    }
    Ok(found)
}
