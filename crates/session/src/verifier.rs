//! State of signature verification: the last signature, and the request for which it waits.

use crate::settings::Signing;
use auth::SignatureCipher;
use std::sync::Arc;
use wire::xroot::codes::RequestCode;
use wire::xroot::header::StreamId;

/// A signature that waits for the request it signs.
pub(crate) struct PendingSignature {
    pub(crate) streamid: StreamId,
    pub(crate) request: RequestCode,
    pub(crate) sequence: u64,
    pub(crate) without_payload: bool,
    pub(crate) hash: [u8; 32],
}

/// State of signature verification of one session whose client must sign.
pub(crate) struct Verifier {
    /// The requests that must be signed.
    pub(crate) signing: Arc<Signing>,
    /// The cipher with the session key; `None` if signatures are bare hashes.
    pub(crate) cipher: Option<Arc<dyn SignatureCipher>>,
    pub(crate) pending: Option<PendingSignature>,
    /// The sequence number of the last verified request.
    pub(crate) last_sequence: u64,
}

impl Verifier {
    pub(crate) fn new(signing: Arc<Signing>, cipher: Option<Arc<dyn SignatureCipher>>) -> Self {
        Self { signing, cipher, pending: None, last_sequence: 0 }
    }

    /// Returns the hash in a signature: decrypted, or as sent by a client without a key.
    pub(crate) fn hash_in(&self, signature: &[u8]) -> Option<[u8; 32]> {
        match &self.cipher {
            Some(cipher) => cipher.decrypt(signature),
            None => signature.try_into().ok(),
        }
    }
}
