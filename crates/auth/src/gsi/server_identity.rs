//! [`ServerIdentity`]: the certificate and the key by which a server proves its name.

use super::agreement::{DhGroup, KeyAgreement};
use super::certificate::GridCertificate;
use super::pem;
use super::rsa_keys::RsaSigner;
use super::settings::GsiServerSettings;
use super::trust::ChainTrust;
use crate::trusted_file::{FileTrust, NO_SHARED_WRITE, TrustedOwner, read_trusted};
use std::path::Path;
use std::time::SystemTime;

/// Maximum size of the file of a certificate or key in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The demands on the file of a key.
pub(super) const KEY_TRUST: FileTrust = FileTrust::private(TrustedOwner::Own, "read the key", FILE_BYTES_MAX);

/// The demands on the file of a certificate.
const CERTIFICATE_TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "replace the certificate",
    bytes_max: FILE_BYTES_MAX,
};

/// Reads a file with the demands on it.
pub(super) fn read_file(path: &Path, trust: &FileTrust) -> Result<zeroize::Zeroizing<String>, String> {
    let (bytes, _) = read_trusted(path, trust).map_err(|error| error.text_of(path))?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(zeroize::Zeroizing::new(text.to_owned())),
        Err(_) => Err(format!("{} is not a PEM file", path.display())),
    }
}

/// Certificate and key of the server.
pub(super) struct ServerIdentity {
    /// The certificate as text.
    pub(super) pem: String,
    pub(super) signer: RsaSigner,
    /// The beginning of the signature of all key agreements, with whole blocks.
    agreement_prefix: Vec<u8>,
    /// The number of bytes that this part signs.
    agreement_prefix_data: usize,
    /// Hashes of its authority.
    pub(super) authorities: Vec<String>,
    pub(super) not_before: SystemTime,
    pub(super) expires: SystemTime,
}

impl ServerIdentity {
    pub(super) fn read(settings: &GsiServerSettings, trust: &dyn ChainTrust) -> Result<Self, String> {
        let shown = settings.certificate.display();
        let text = read_file(&settings.certificate, &CERTIFICATE_TRUST)?;
        let chain = GridCertificate::chain_of_pem(&text).map_err(|error| format!("{shown}: {error}"))?;
        let certificate = chain.first().ok_or_else(|| format!("{shown}: no certificate found"))?;
        let text = read_file(&settings.key, &KEY_TRUST)?;
        let signer =
            RsaSigner::from_pem(&text).map_err(|error| format!("{}: {error}", settings.key.display()))?;
        Self::new(certificate, signer, settings.new_hash_only, trust)
            .map_err(|error| format!("{shown}: {error}"))
    }

    pub(super) fn new(
        certificate: &GridCertificate,
        signer: RsaSigner,
        new_hash_only: bool,
        trust: &dyn ChainTrust,
    ) -> Result<Self, String> {
        if certificate.public_key()? != signer.public_key()? {
            return Err("the key is not that of the certificate".to_owned());
        }
        let hashes = trust.authority_hashes(&certificate.der)?;
        let [new, old] = hashes;
        let group = DhGroup::named().ok_or("the group of the key agreement is malformed")?;
        let constant = group.text_prefix();
        let signed = constant.len() - constant.len() % signer.block_data_bytes()?;
        let (constant, _) = constant.as_bytes().split_at(signed);
        Ok(Self {
            pem: pem::encode(pem::CERTIFICATE, &certificate.der),
            agreement_prefix: signer.sign_raw(constant)?,
            agreement_prefix_data: signed,
            signer,
            authorities: if new_hash_only { vec![new] } else { vec![new, old] },
            not_before: certificate.not_before(),
            expires: certificate.not_after(),
        })
    }

    /// Signs the text of a key agreement. A signature has no random part, so that of the group is the same
    /// in all logins.
    pub(super) fn sign_agreement(&self, agreement: &KeyAgreement) -> Result<Vec<u8>, String> {
        let text = agreement.text();
        let rest = text.as_bytes().get(self.agreement_prefix_data..).unwrap_or_default();
        Ok([self.agreement_prefix.as_slice(), &self.signer.sign_raw(rest)?].concat())
    }
}
