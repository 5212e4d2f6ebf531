//! [`ClientCertificates`]: certificates of clients in TLS handshakes, for servers that ask for them.
//!
//! Clients of grids send proxies, which TLS libraries refuse. So chains are verified by [`GridTrust`], with
//! the policies and revocation lists of its directory, and the signatures of handshakes by the bare key of
//! the first certificate. A client without a certificate passes: it has no identity.

use super::provider;
use crate::grid::{
    AuthorityLevel, ChainFault, ChainFaultReason, ChainRole, CrlLevel, GridTrust, GridTrustError,
    GridTrustSettings, VerifiedChain, VomsDirectory,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, SignatureScheme,
};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use webpki::RawPublicKeyEntity;
use x509_cert::der::{Decode, Encode};

/// Use of revocation lists (`crlcheck` of `xrd.tlsca`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RevocationDemand {
    /// Lists are used where they exist.
    #[default]
    Present,
    /// The authority of the client must have a current list. Others are used where they exist.
    Last,
    /// Each authority of the chain must have a current list.
    All,
}

/// Rules for certificates of clients, as `xrd.tlsca` names them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCertificateSettings {
    /// A directory with authorities (`HASH.0`), their policies and revocation lists (`HASH.r0`).
    pub directory: Option<PathBuf>,
    /// A file with authorities.
    pub file: Option<PathBuf>,
    /// Demanded revocation lists.
    pub revocation: RevocationDemand,
    /// Whether proxies are accepted.
    pub accepts_proxies: bool,
    /// Maximum number of authorities between the end entity and the root.
    pub intermediates_max: usize,
}

impl Default for ClientCertificateSettings {
    fn default() -> Self {
        Self {
            directory: None,
            file: None,
            revocation: RevocationDemand::default(),
            accepts_proxies: true,
            intermediates_max: 9,
        }
    }
}

impl ClientCertificateSettings {
    /// Returns the settings of the verification of chains. They end at self-signed authorities.
    fn trust(&self) -> GridTrustSettings {
        let is_demanded = self.revocation != RevocationDemand::Present;
        GridTrustSettings {
            directories: self.directory.iter().cloned().collect(),
            files: self.file.iter().cloned().collect(),
            crl_level: if is_demanded { CrlLevel::Require } else { CrlLevel::Try },
            crl_of_end_entity_only: self.revocation == RevocationDemand::Last,
            authority_level: AuthorityLevel::Full,
            ..GridTrustSettings::default()
        }
    }
}

/// The rules by which certificates of clients are verified, and the authorities.
#[derive(Debug)]
pub struct ClientCertificates {
    settings: ClientCertificateSettings,
    trust: Arc<GridTrust>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertificates {
    /// Reads the authorities. Blocks.
    ///
    /// # Errors
    /// A file or directory cannot be read, or no authority is usable.
    pub fn open(settings: ClientCertificateSettings) -> Result<Self, GridTrustError> {
        Self::open_with(settings, None)
    }

    /// Reads the authorities, as [`Self::open`] does. Attributes of VOMS are verified with these signers.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with(
        settings: ClientCertificateSettings,
        signers: Option<VomsDirectory>,
    ) -> Result<Self, GridTrustError> {
        let trust = GridTrust::open(settings.trust())?;
        let trust = match signers {
            Some(signers) => trust.with_attributes(signers),
            None => trust,
        };
        Ok(Self::with_trust(settings, Arc::new(trust)))
    }

    /// Returns rules that refuse all certificates until [`Self::refresh`] succeeds.
    #[must_use]
    pub fn unread(settings: ClientCertificateSettings) -> Self {
        let trust = GridTrust::unread(settings.trust());
        Self::with_trust(settings, Arc::new(trust))
    }

    /// Returns reasons for attention, such as authorities that expire and revocation lists that are missing.
    #[must_use]
    pub fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        self.trust.warnings(now, soon)
    }

    /// Verifies by the authorities and revocation lists of another protocol. Those of the settings do not count.
    #[must_use]
    pub fn with_trust(settings: ClientCertificateSettings, trust: Arc<GridTrust>) -> Self {
        Self { settings, trust, algorithms: provider().signature_verification_algorithms }
    }

    /// Reads the authorities and revocation lists again. Handshakes after it use them. Blocks.
    ///
    /// # Errors
    /// As for [`Self::open`]; the earlier ones stay in force.
    pub fn refresh(&self) -> Result<(), GridTrustError> {
        self.trust.refresh()
    }

    /// Returns the identity that the certificates of a connection prove at this time. A session can be
    /// resumed after they were revoked or have expired, so this is asked for each connection. Computes for
    /// some milliseconds.
    ///
    /// # Errors
    /// A rule is violated.
    pub fn identity(
        &self,
        certificates: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> Result<VerifiedChain, ChainFault> {
        let chain: Vec<Vec<u8>> = certificates.iter().map(|one| one.to_vec()).collect();
        let verified = self.trust.verify(&chain, ChainRole::Client, now)?;
        let fault =
            |reason: ChainFaultReason| Err(ChainFault { subject: verified.leaf().to_owned(), reason });
        if verified.proxies() > 0 && !self.settings.accepts_proxies {
            return fault(ChainFaultReason::Proxy("proxies are not accepted (noproxies)"));
        }
        if verified.intermediates() > self.settings.intermediates_max {
            return fault(ChainFaultReason::Size("more authorities than verdepth allows"));
        }
        Ok(verified)
    }
}

thread_local! {
    /// The fault of the last chain that was refused on this thread.
    static REFUSED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Takes the reason why a handshake that has just failed on this thread was refused, with the subject. The error of
/// the library has only its kind.
pub fn take_refused_chain() -> Option<String> {
    REFUSED.take()
}

/// Returns the error of a handshake, from which the library makes the alert.
fn refusal(fault: ChainFault) -> Error {
    REFUSED.set(Some(fault.to_string()));
    Error::InvalidCertificate(match &fault.reason {
        ChainFaultReason::Expired => CertificateError::Expired,
        ChainFaultReason::NotValidYet => CertificateError::NotValidYet,
        ChainFaultReason::Revoked => CertificateError::Revoked,
        ChainFaultReason::UnknownAuthority(_) => CertificateError::UnknownIssuer,
        ChainFaultReason::Signature => CertificateError::BadSignature,
        ChainFaultReason::Malformed(_) => CertificateError::BadEncoding,
        // The reason is part of the error of the connection.
        _ => CertificateError::Other(rustls::OtherError(Arc::new(fault))),
    })
}

/// Returns the key of a certificate as DER.
fn key_of(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let malformed = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
    let parsed = x509_cert::Certificate::from_der(certificate).map_err(malformed)?;
    let key = parsed.tbs_certificate().subject_public_key_info().to_der().map_err(malformed)?;
    Ok(SubjectPublicKeyInfoDer::from(key))
}

impl ClientCertVerifier for ClientCertificates {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let borrowed = |one: &'_ CertificateDer<'_>| CertificateDer::from(one.to_vec());
        let chain: Vec<CertificateDer<'static>> =
            std::iter::once(end_entity).chain(intermediates).map(borrowed).collect();
        let now = UNIX_EPOCH + Duration::from_secs(now.as_secs());
        self.identity(&chain, now).map_err(refusal)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let wrong = Error::InvalidCertificate(CertificateError::BadSignature);
        let key = key_of(certificate)?;
        let key = RawPublicKeyEntity::try_from(&key).map_err(|_| wrong.clone())?;
        let algorithms = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
        let (_, algorithms) = algorithms.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        // With TLS 1.2 a scheme of ECDSA names no curve, so there are several algorithms.
        let is_valid = |algorithm: &&dyn rustls::pki_types::SignatureVerificationAlgorithm| {
            key.verify_signature(*algorithm, message, signature.signature()).is_ok()
        };
        if !algorithms.iter().any(is_valid) {
            return Err(wrong);
        }
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(message, &key_of(certificate)?, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
