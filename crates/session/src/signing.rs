//! kXR_sigver: verification of signed requests from clients without a key.
//!
//! If the server requires it, such a client signs with a bare SHA-256. The hash covers its sequence
//! number, the header of the next request, and its payload unless the flags exclude it. Without a
//! key this detects accidental reordering and corruption only, because an attacker can compute the
//! hash. Protection against attackers requires a key from authentication.

use crate::ids::PathId;
use crate::state::{ReplyOutputs, Session};
use crate::step::DriverTask;
use crate::verifier::Signature;
use auth::{SigningRequirements, request_hash};
use wire::FixedLayout;
use wire::xroot::codes::{ErrorCode, RequestCode, SecurityLevel};
use wire::xroot::flags::{SecurityOptions, SigverCrypto, SigverFlags};
use wire::xroot::header::{RequestHeader, StreamId};
use wire::xroot::limits::SIGNATURE_BYTES_MAX;
use wire::xroot::request::Sigver;

impl Session {
    /// Reports whether clients without a key must sign.
    fn demands_signatures(&self) -> bool {
        let demanded = self.settings.signing;
        demanded.force && demanded.level != SecurityLevel::NONE
    }

    fn needs_signature(&self, header: &RequestHeader, payload: &[u8]) -> bool {
        let level = self.settings.signing.level;
        SigningRequirements::of_level(level, SecurityOptions::FORCE).needs_signature(header, payload)
    }

    /// Takes a signature for the next request.
    pub(crate) fn signature(
        &mut self,
        header: &RequestHeader,
        m: &Sigver<'_>,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let id = header.streamid;
        if m.signature.is_empty() || m.signature.len() > SIGNATURE_BYTES_MAX {
            return self.bad_signature_length(id, out);
        }
        if !self.demands_signatures() {
            // A signature that is not required is accepted and ignored.
            return DriverTask::Nothing;
        }
        let fault = if m.version != 0 {
            "Unsupported signature version"
        } else if m.crypto.contains(SigverCrypto::RSA_KEY) {
            "Unsupported signature key"
        } else if m.crypto.0 != SigverCrypto::SHA256.0 {
            "Unsupported signature hash"
        } else if m.seqno <= self.verifier.last_sequence {
            "Incorrect signature sequence"
        } else {
            match <[u8; 32]>::try_from(m.signature) {
                Ok(hash) => {
                    self.verifier.last_sequence = m.seqno;
                    self.verifier.pending = Some(Box::new(Signature {
                        streamid: id,
                        request: m.expectrid,
                        sequence: m.seqno,
                        without_payload: m.flags.contains(SigverFlags::NODATA),
                        hash,
                    }));
                    return DriverTask::Nothing;
                }
                Err(_) => "Invalid signature hash length",
            }
        };
        self.unsigned(id, fault, out)
    }

    /// Refuses a signature of invalid length and ends the session.
    pub(crate) fn bad_signature_length(&mut self, id: StreamId, out: &mut dyn ReplyOutputs) -> DriverTask {
        self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, "Invalid signature data length", out);
        self.violated()
    }

    /// Verifies a request against the signature before it, if signatures are required. Returns the
    /// refusal, if any.
    pub(crate) fn verify(
        &mut self,
        header: &RequestHeader,
        payload: &[u8],
        out: &mut dyn ReplyOutputs,
    ) -> Option<DriverTask> {
        if !self.demands_signatures() || !self.is_active() || header.code == RequestCode::SIGVER {
            return None;
        }
        let id = header.streamid;
        let fault = match self.verifier.pending.take() {
            None if self.needs_signature(header, payload) => "Request not signed",
            None => return None,
            Some(signature) if signature.streamid != id => "Signature streamid mismatch",
            Some(signature) if signature.request != header.code => "Signature requestid mismatch",
            Some(signature) => {
                let streamed = matches!(header.code, RequestCode::WRITE | RequestCode::PGWRITE);
                if streamed && !signature.without_payload && header.dlen != 0 {
                    // File data is not held back to be hashed, and the options of the level do not
                    // request it.
                    "Unsupported signature hash"
                } else {
                    let covered = if signature.without_payload { &[] } else { payload };
                    if request_hash(signature.sequence, &header.to_bytes(), covered) == signature.hash {
                        return None;
                    }
                    "Signature hash mismatch"
                }
            }
        };
        Some(self.unsigned(id, fault, out))
    }

    /// Consumes the signature of a request that is refused before verification.
    pub(crate) fn unsign(&mut self, code: RequestCode) {
        if code != RequestCode::SIGVER {
            self.verifier.pending = None;
        }
    }

    fn unsigned(&mut self, id: StreamId, fault: &str, out: &mut dyn ReplyOutputs) -> DriverTask {
        self.refuse(id, PathId::CONTROL, ErrorCode::SIGVER_ERR, fault, out);
        self.violated()
    }
}
