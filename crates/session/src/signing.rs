//! kXR_sigver: verification of signed requests.
//!
//! A signature is the SHA-256 of its sequence number, the header of the next request, and the
//! payload of that request. It is encrypted with the session key, if authentication gave one.
//! Without a key, and only if the server requires it, clients send the bare hash. That detects
//! reordering and corruption only, because an attacker can compute the hash.
//!
//! The payload of writes is written while it arrives. Clients leave it out of the signature and flag
//! this, unless the server requires signatures over data (`kXR_secOData`). The flag is accepted for no
//! other request. A signature that covers the payload is verified after its last byte
//! ([`PayloadSignature`]), so a wrong one is noticed after the data was written. Where signatures must
//! cover data, requests that write data without that possibility are refused.

use crate::settings::Signing;
use auth::{RequestHash, Secret, SignatureCipher, request_hash};
use std::sync::Arc;
use wire::FixedLayout;
use wire::xroot::codes::RequestCode;
use wire::xroot::flags::{SigverCrypto, SigverFlags};
use wire::xroot::header::{RequestHeader, StreamId};
use wire::xroot::limits::SIGNATURE_BYTES_MAX;
use wire::xroot::request::{Request, Sigver};

/// Reports whether a signature can have this length.
pub(crate) fn is_signature_length(bytes: usize) -> bool {
    (1..=SIGNATURE_BYTES_MAX).contains(&bytes)
}

/// A signature that waits for the request it signs.
struct PendingSignature {
    streamid: StreamId,
    request: RequestCode,
    sequence: u64,
    without_payload: bool,
    hash: [u8; 32],
}

/// The signature of a request whose payload has not arrived completely. The driver adds each piece of
/// the payload in the order of arrival.
#[derive(Debug)]
pub struct PayloadSignature {
    hash: RequestHash,
    expected: [u8; 32],
}

impl PayloadSignature {
    /// Adds the next bytes of the payload as they arrived, page checksums included.
    pub fn update(&mut self, payload: &[u8]) {
        self.hash.update(payload);
    }

    /// Reports whether the signature is that of the request with the whole payload, which has arrived.
    pub(crate) fn verify(self) -> bool {
        let hash = self.hash.finish();
        Secret::from(hash.as_slice()).is_equal(&self.expected)
    }
}

/// State of signature verification of one session whose client must sign.
pub(crate) struct Verifier {
    /// The requests that must be signed.
    signing: Arc<Signing>,
    /// The cipher with the session key; `None` if signatures are bare hashes.
    cipher: Option<Arc<dyn SignatureCipher>>,
    pending: Option<PendingSignature>,
    /// The sequence number of the last verified request.
    last_sequence: u64,
}

impl Verifier {
    pub(crate) fn new(signing: Arc<Signing>, cipher: Option<Arc<dyn SignatureCipher>>) -> Self {
        Self { signing, cipher, pending: None, last_sequence: 0 }
    }

    /// Reports whether each open must be signed with a key that only the peers of the session know.
    pub(crate) fn protects_opens(&self) -> bool {
        self.cipher.is_some() && self.signing.requirements.signs_all(RequestCode::OPEN)
    }

    /// Takes a signature for the next request. Fails with the reason to refuse it, for the log.
    pub(crate) fn take(&mut self, streamid: StreamId, m: &Sigver<'_>) -> Result<(), &'static str> {
        if m.seqno <= self.last_sequence {
            return Err("incorrect sequence number");
        }
        if m.version != 0 {
            return Err("unsupported version");
        }
        if m.crypto.contains(SigverCrypto::RSA_KEY) {
            return Err("unsupported kind of key");
        }
        if m.crypto.0 != SigverCrypto::SHA256.0 {
            return Err("unsupported hash");
        }
        if self.pending.is_some() {
            return Err("it follows another signature");
        }
        let hash = self.hash_in(m.signature).ok_or("it contains no hash")?;
        self.pending = Some(PendingSignature {
            streamid,
            request: m.expectrid,
            sequence: m.seqno,
            without_payload: m.flags.contains(SigverFlags::NODATA),
            hash,
        });
        Ok(())
    }

    /// Reports whether the next request has a signature before it.
    pub(crate) fn has_signature(&self) -> bool {
        self.pending.is_some()
    }

    /// Verifies a request against the signature before it. Returns the signature if it also covers
    /// data that follows the request. Fails with the reason to refuse it, for the log.
    pub(crate) fn verify(
        &mut self,
        header: &RequestHeader,
        payload: &[u8],
    ) -> Result<Option<PayloadSignature>, &'static str> {
        if header.code == RequestCode::SIGVER {
            return Ok(None);
        }
        let Some(signature) = self.pending.take() else {
            let is_needed = self.signing.requirements.needs_signature(header, payload);
            return if is_needed { Err("it is missing") } else { Ok(None) };
        };
        if let Some(fault) = mismatch(&signature, header) {
            return Err(fault);
        }
        let is_data = is_file_data(header);
        if is_data && signature.without_payload && self.signing.covers_data() {
            return Err("it leaves out the data, which must be signed");
        }
        self.last_sequence = signature.sequence;
        if is_data && !signature.without_payload {
            let hash = RequestHash::new(signature.sequence, &header.to_bytes());
            return Ok(Some(PayloadSignature { hash, expected: signature.hash }));
        }
        let hash = request_hash(signature.sequence, &header.to_bytes(), payload);
        let is_equal = Secret::from(hash.as_slice()).is_equal(&signature.hash);
        if is_equal { Ok(None) } else { Err("it has another hash") }
    }

    /// Reports whether data must be signed, and a request writes data that no signature covers: vector
    /// writes, clones of ranges, and writes under a checkpoint.
    pub(crate) fn forbids(&self, header: &RequestHeader, payload: &[u8]) -> bool {
        if !self.signing.covers_data() {
            return false;
        }
        match header.code {
            RequestCode::WRITEV | RequestCode::CLONE => true,
            RequestCode::CHKPOINT => match Request::decode(header, payload) {
                Ok(Request::Chkpoint(m)) => m.embedded.is_some_and(|embedded| {
                    // The size of a file is in the header.
                    embedded.code != RequestCode::TRUNCATE
                }),
                _ => false,
            },
            _ => false,
        }
    }

    /// Consumes the signature of a request that is refused before verification.
    pub(crate) fn skip(&mut self, code: RequestCode) {
        if code != RequestCode::SIGVER {
            self.pending = None;
        }
    }

    /// Returns the hash in a signature: decrypted, or as sent by a client without a key.
    fn hash_in(&self, signature: &[u8]) -> Option<[u8; 32]> {
        match &self.cipher {
            Some(cipher) => cipher.decrypt(signature),
            None => signature.try_into().ok(),
        }
    }
}

/// Reports whether the payload of a request is file data that arrives after it.
fn is_file_data(header: &RequestHeader) -> bool {
    matches!(header.code, RequestCode::WRITE | RequestCode::PGWRITE) && header.dlen != 0
}

/// Returns the reason why a signature is not that of a request, whatever its hash is.
fn mismatch(signature: &PendingSignature, header: &RequestHeader) -> Option<&'static str> {
    if signature.streamid != header.streamid {
        return Some("it has another stream id");
    }
    if signature.request != header.code {
        return Some("it is for another request");
    }
    // Clients also flag requests that have no payload.
    (signature.without_payload && header.dlen != 0 && !is_file_data(header))
        .then_some("it leaves out the payload")
}
