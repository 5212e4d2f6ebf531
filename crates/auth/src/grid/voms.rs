//! Verification of the attributes in proxies: [`VomsMembership`]. See decision 043.

use super::attribute_certificate::AttributeCertificate;
use super::certificate::{GridCertificate, key_usage};
use super::directory::AuthorityStore;
use super::fqan::Fqan;
use super::path::{PathPurpose, SignatureBudget, find_path};
use super::settings::GridTrustSettings;
use super::voms_directory::VomsDirectory;
use std::time::SystemTime;

/// Maximum number of attribute certificates of a chain whose signatures are verified.
const VERIFIED_MAX: usize = 8;

/// The groups of a user in a virtual organization, verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VomsMembership {
    /// The organization.
    pub organization: String,
    /// The groups, in the order of the attribute certificate. All are of the organization.
    pub names: Vec<Fqan>,
    /// The end of the validity.
    pub expires: SystemTime,
}

/// Returns the names in the attributes of a certificate, to show them to the user of a proxy. Nothing of
/// them is verified. There is none if they are malformed.
#[must_use]
pub fn unverified_groups(certificate: &[u8]) -> Vec<Fqan> {
    let parsed = GridCertificate::parse(certificate).ok();
    let value = parsed.as_ref().and_then(|certificate| certificate.extensions.attributes.as_deref());
    let attributes = value.and_then(|value| AttributeCertificate::read_all(value).ok());
    attributes.unwrap_or_default().into_iter().flat_map(|one| one.names).collect()
}

/// What attributes are verified by.
pub(super) struct AttributeVerifier<'a> {
    pub(super) store: &'a AuthorityStore,
    pub(super) settings: &'a GridTrustSettings,
    pub(super) directory: &'a VomsDirectory,
    pub(super) now: SystemTime,
}

impl AttributeVerifier<'_> {
    /// Returns the memberships in the proxies of a verified chain, those of the last proxy first.
    /// Attributes that are not valid are left out, with the reason in the debug log.
    pub(super) fn memberships(
        &self,
        proxies: &[GridCertificate],
        end_entity: &GridCertificate,
    ) -> Vec<VomsMembership> {
        let (mut found, mut verified, mut signatures) = (Vec::new(), 0, SignatureBudget::default());
        for proxy in proxies {
            let Some(value) = &proxy.extensions.attributes else { continue };
            let Ok(certificates) = AttributeCertificate::read_all(value) else {
                self.leave_out(end_entity, "they are malformed");
                continue;
            };
            for certificate in certificates {
                verified += 1;
                if verified > VERIFIED_MAX {
                    self.leave_out(end_entity, "there are more than 8 attribute certificates");
                    return found;
                }
                match self.verify(&certificate, end_entity, &mut signatures) {
                    Ok(membership) => found.push(membership),
                    Err(reason) => self.leave_out(end_entity, &reason),
                }
            }
        }
        found
    }

    fn leave_out(&self, end_entity: &GridCertificate, reason: &str) {
        tracing::debug!("VOMS attributes of {:?} are not used: {reason}", end_entity.subject().text());
    }

    fn verify(
        &self,
        attributes: &AttributeCertificate<'_>,
        end_entity: &GridCertificate,
        signatures: &mut SignatureBudget,
    ) -> Result<VomsMembership, String> {
        let organization = attributes.organization;
        if attributes.restricts_otherwise {
            return Err("a critical extension is not supported".to_owned());
        }
        if self.now < attributes.not_before || self.now > attributes.not_after {
            return Err(format!("those of {organization:?} are not within their time"));
        }
        // Servers name the issuer of the certificate of the holder, or the holder itself.
        let is_holder = attributes.holder_serial == end_entity.serial()
            && [end_entity.issuer(), end_entity.subject()].contains(&&attributes.holder);
        if !is_holder {
            return Err(format!("those of {organization:?} are of another holder"));
        }
        if attributes.names.is_empty()
            || attributes.names.iter().any(|name| name.organization() != organization)
        {
            return Err(format!("a name is not one of {organization:?}"));
        }
        let signed_until = self.verify_signer(attributes, signatures)?;
        Ok(VomsMembership {
            organization: organization.to_owned(),
            names: attributes.names.clone(),
            expires: attributes.not_after.min(signed_until),
        })
    }

    /// Verifies the signature and the signer. Returns the end of the validity of the signer.
    fn verify_signer(
        &self,
        attributes: &AttributeCertificate<'_>,
        signatures: &mut SignatureBudget,
    ) -> Result<SystemTime, String> {
        let (organization, host) = (attributes.organization, &attributes.host);
        let content = self.directory.content();
        let signers = content
            .get(organization)
            .filter(|signers| signers.may_trust(host, &attributes.issuer))
            .ok_or_else(|| {
                format!(
                    "the signer {:?} of {organization:?} at {host:?} is not in the directory of VOMS; add {organization}/{host}.lsc",
                    attributes.issuer.text()
                )
            })?;
        let (sent, above) = match attributes.signers.split_first() {
            Some((first, above)) if *first.subject() == attributes.issuer => (Some(first), above),
            _ => (None, attributes.signers.as_slice()),
        };
        let is_signer = |one: &&GridCertificate| attributes.is_signed_by(one);
        let signer = sent.into_iter().chain(signers.of_name(&attributes.issuer)).find(is_signer);
        let signer =
            signer.ok_or_else(|| format!("the signature of those of {organization:?} is not valid"))?;
        if signer.extensions.is_authority() || !signer.extensions.allows(key_usage::DIGITAL_SIGNATURE) {
            return Err("the certificate of the signer is not one for signatures".to_owned());
        }
        let path =
            find_path(self.store, signer, above, self.now, signatures).map_err(|fault| fault.to_string())?;
        path.check(self.store, self.settings, PathPurpose::AttributeSigner, self.now)
            .map_err(|fault| fault.to_string())?;
        if !signers.trusts(host, signer, &path.names()) {
            return Err(format!("the names in {organization}/{host}.lsc are not those above the signer"));
        }
        Ok(path.valid_until().unwrap_or(self.now))
    }
}
