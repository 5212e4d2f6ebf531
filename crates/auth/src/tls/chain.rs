//! Verification of servers: their chain must end at a self-signed authority.
//!
//! Directories of grids hold intermediate authorities too. They complete the chains of servers that do
//! not send them, and are never the end of a chain: the revocation list of their own authority would
//! not be consulted otherwise.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use std::collections::HashMap;
use std::sync::Arc;
use x509_cert::der::{Decode, Encode};

/// Maximum number of intermediate authorities that are added to a chain.
const ADDED_MAX: usize = 16;

/// Returns the encoded names of issuer and subject, or `None` for something else than a certificate.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let parsed = x509_cert::Certificate::from_der(certificate).ok()?;
    let parsed = parsed.tbs_certificate();
    Some((parsed.issuer().to_der().ok()?, parsed.subject().to_der().ok()?))
}

/// Intermediate authorities by their names.
#[derive(Default, Debug)]
pub(super) struct Intermediates(HashMap<Vec<u8>, Vec<CertificateDer<'static>>>);

impl Intermediates {
    pub(super) fn add(&mut self, subject: Vec<u8>, certificate: CertificateDer<'static>) {
        self.0.entry(subject).or_default().push(certificate);
    }

    /// Returns the certificates of a chain and those that may complete it.
    fn completed<'a>(
        &'a self,
        end_entity: &CertificateDer<'_>,
        sent: &'a [CertificateDer<'a>],
    ) -> Vec<CertificateDer<'a>> {
        let borrowed = |certificate: &'a CertificateDer<'_>| CertificateDer::from(certificate.as_ref());
        let mut all: Vec<CertificateDer<'a>> = sent.iter().map(borrowed).collect();
        let mut issuers: Vec<Vec<u8>> =
            std::iter::once(end_entity).chain(sent).filter_map(|one| Some(names(one)?.0)).collect();
        let limit = all.len() + ADDED_MAX;
        while let Some(issuer) = issuers.pop() {
            for found in self.0.get(&issuer).into_iter().flatten() {
                if all.len() < limit && !all.contains(found) {
                    issuers.extend(names(found).map(|(issuer, _)| issuer));
                    all.push(borrowed(found));
                }
            }
        }
        all
    }
}

/// Verifies servers by the library, with the intermediate authorities that are known.
#[derive(Debug)]
pub(super) struct ChainVerifier {
    pub(super) library: Arc<WebPkiServerVerifier>,
    pub(super) intermediates: Intermediates,
}

impl ServerCertVerifier for ChainVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = self.intermediates.completed(end_entity, intermediates);
        self.library.verify_server_cert(end_entity, &chain, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.library.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.library.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.library.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
