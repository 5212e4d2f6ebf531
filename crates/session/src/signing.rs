//! kXR_sigver: verification of signed requests.
//!
//! A signature is the SHA-256 of its sequence number, the header of the next request, and the
//! payload of that request. It is encrypted with the session key, if authentication gave one.
//! Without a key, and only if the server requires it, clients send the bare hash. That detects
//! reordering and corruption only, because an attacker can compute the hash.
//!
//! The payload of writes is not covered, because it is written while it arrives. Clients flag this
//! in the signature, and the flag is accepted for no other request.

use crate::ids::PathId;
use crate::state::{ReplyOutputs, Session};
use crate::step::DriverTask;
use crate::verifier::PendingSignature;
use auth::{Secret, request_hash};
use wire::FixedLayout;
use wire::xroot::codes::{ErrorCode, RequestCode};
use wire::xroot::flags::{SigverCrypto, SigverFlags};
use wire::xroot::header::{RequestHeader, StreamId};
use wire::xroot::limits::SIGNATURE_BYTES_MAX;
use wire::xroot::request::Sigver;

impl Session {
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
        let Some(verifier) = self.verifier_mut() else {
            // A signature that is not required is accepted and ignored.
            return DriverTask::Nothing;
        };
        let fault = if m.seqno <= verifier.last_sequence {
            "incorrect sequence number"
        } else if m.version != 0 {
            "unsupported version"
        } else if m.crypto.contains(SigverCrypto::RSA_KEY) {
            "unsupported kind of key"
        } else if m.crypto.0 != SigverCrypto::SHA256.0 {
            "unsupported hash"
        } else if verifier.pending.is_some() {
            "it follows another signature"
        } else {
            match verifier.hash_in(m.signature) {
                Some(hash) => {
                    verifier.pending = Some(PendingSignature {
                        streamid: id,
                        request: m.expectrid,
                        sequence: m.seqno,
                        without_payload: m.flags.contains(SigverFlags::NODATA),
                        hash,
                    });
                    return DriverTask::Nothing;
                }
                None => "it contains no hash",
            }
        };
        self.unsigned(id, fault, out)
    }

    /// Refuses a signature of invalid length and ends the session.
    pub(crate) fn bad_signature_length(&mut self, id: StreamId, out: &mut dyn ReplyOutputs) -> DriverTask {
        self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, "Invalid signature data length", out);
        self.violated()
    }

    /// Verifies a request against the signature before it, if the client must sign. Returns the
    /// refusal, if any.
    pub(crate) fn verify(
        &mut self,
        header: &RequestHeader,
        payload: &[u8],
        out: &mut dyn ReplyOutputs,
    ) -> Option<DriverTask> {
        let verifier = self.verifier_mut()?;
        if header.code == RequestCode::SIGVER {
            return None;
        }
        let fault = match verifier.pending.take() {
            None if verifier.signing.requirements.needs_signature(header, payload) => "it is missing",
            None => return None,
            Some(signature) => match mismatch(&signature, header, payload) {
                None => {
                    verifier.last_sequence = signature.sequence;
                    return None;
                }
                Some(fault) => fault,
            },
        };
        Some(self.unsigned(header.streamid, fault, out))
    }

    /// Consumes the signature of a request that is refused before verification.
    pub(crate) fn unsign(&mut self, code: RequestCode) {
        if code != RequestCode::SIGVER
            && let Some(verifier) = self.verifier_mut()
        {
            verifier.pending = None;
        }
    }

    /// Refuses a request and ends the session. The reason is for the log, because the client needs
    /// only one text.
    fn unsigned(&mut self, id: StreamId, reason: &str, out: &mut dyn ReplyOutputs) -> DriverTask {
        let client = &self.caller.identity;
        tracing::warn!(%client, "a request is refused, and its connection closed, for its signature: {reason}");
        let text = "Request signature not verified";
        self.refuse(id, PathId::CONTROL, ErrorCode::SIGVER_ERR, text, out);
        self.violated()
    }
}

/// Returns the reason why a signature is not that of a request, if it is not.
fn mismatch(signature: &PendingSignature, header: &RequestHeader, payload: &[u8]) -> Option<&'static str> {
    let streams = matches!(header.code, RequestCode::WRITE | RequestCode::PGWRITE);
    if signature.streamid != header.streamid {
        return Some("it has another stream id");
    }
    if signature.request != header.code {
        return Some("it is for another request");
    }
    // Clients also flag requests that have none.
    if signature.without_payload && !streams && header.dlen != 0 {
        return Some("it leaves out the payload");
    }
    if streams && !signature.without_payload && header.dlen != 0 {
        return Some("it covers data that is written while it arrives");
    }
    let hash = request_hash(signature.sequence, &header.to_bytes(), payload);
    (!Secret::from(hash.as_slice()).is_equal(&signature.hash)).then_some("it has another hash")
}
