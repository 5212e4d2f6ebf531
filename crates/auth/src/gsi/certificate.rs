//! [`GridCertificate`]: the parts of a certificate that an exchange uses. It verifies nothing.

use super::pem;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_cert::Certificate;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, SubjectAltName};

/// The extension that makes a certificate a proxy.
pub(super) const PROXY_INFORMATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.14");
/// The form of that extension before RFC 3820.
const PROXY_INFORMATION_DRAFT: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3536.1.222");
/// The attribute of a name.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Maximum number of certificates of a chain.
pub(super) const CHAIN_MAX: usize = 16;

/// A decoded certificate.
#[derive(Clone, Debug)]
pub(super) struct GridCertificate {
    /// The certificate as it was encoded.
    pub(super) der: Vec<u8>,
    parsed: Certificate,
}

impl GridCertificate {
    /// Decodes a certificate.
    pub(super) fn decode(der: &[u8]) -> Result<Self, String> {
        let parsed =
            Certificate::from_der(der).map_err(|error| format!("a certificate is malformed: {error}"))?;
        Ok(Self { der: der.to_vec(), parsed })
    }

    /// Decodes the certificates of PEM text, in their order. Other sections are skipped.
    pub(super) fn chain_of_pem(text: &str) -> Result<Vec<Self>, String> {
        let sections = pem::sections(text)?;
        let certificates: Vec<_> =
            sections.iter().filter(|section| section.label == pem::CERTIFICATE).collect();
        if certificates.len() > CHAIN_MAX {
            return Err(format!("there are more than {CHAIN_MAX} certificates"));
        }
        certificates.into_iter().map(|section| Self::decode(&section.content)).collect()
    }

    /// Returns the encoded subject.
    pub(super) fn subject(&self) -> Result<Vec<u8>, String> {
        self.parsed.tbs_certificate().subject().to_der().map_err(|error| error.to_string())
    }

    /// Returns the encoded issuer.
    pub(super) fn issuer(&self) -> Result<Vec<u8>, String> {
        self.parsed.tbs_certificate().issuer().to_der().map_err(|error| error.to_string())
    }

    /// Returns the public key, encoded as SubjectPublicKeyInfo.
    pub(super) fn public_key(&self) -> Result<Vec<u8>, String> {
        self.parsed.tbs_certificate().subject_public_key_info().to_der().map_err(|error| error.to_string())
    }

    /// Returns the beginning of the validity.
    pub(super) fn not_before(&self) -> SystemTime {
        UNIX_EPOCH + self.parsed.tbs_certificate().validity().not_before.to_unix_duration()
    }

    /// Returns the end of the validity.
    pub(super) fn not_after(&self) -> SystemTime {
        UNIX_EPOCH + self.parsed.tbs_certificate().validity().not_after.to_unix_duration()
    }

    /// Reports whether it is one of an authority, or signed by itself.
    pub(super) fn is_authority(&self) -> bool {
        let tbs = self.parsed.tbs_certificate();
        let constraints = tbs.get_extension::<BasicConstraints>();
        constraints.is_ok_and(|found| found.is_some_and(|(_, constraints)| constraints.ca))
            || tbs.subject() == tbs.issuer()
    }

    /// Reports whether it has the extension of proxies.
    pub(super) fn is_proxy(&self) -> bool {
        self.extension(PROXY_INFORMATION).or_else(|| self.extension(PROXY_INFORMATION_DRAFT)).is_some()
    }

    /// Returns criticality and encoded value of an extension.
    pub(super) fn extension(&self, identifier: ObjectIdentifier) -> Option<(bool, &[u8])> {
        let extensions = self.parsed.tbs_certificate().extensions()?;
        let found = extensions.iter().find(|extension| extension.extn_id == identifier)?;
        Some((found.critical, found.extn_value.as_bytes()))
    }

    /// Returns the DNS names of the subject; `None` without names.
    pub(super) fn dns_names(&self) -> Option<Vec<String>> {
        let (_, names) = self.parsed.tbs_certificate().get_extension::<SubjectAltName>().ok()??;
        let dns = |name: &GeneralName| match name {
            GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
            _ => None,
        };
        Some(names.0.iter().filter_map(dns).collect())
    }

    /// Reports whether it has names of the subject at all, so that the subject does not count. Those
    /// that cannot be decoded count as well.
    pub(super) fn has_alternative_names(&self) -> bool {
        !matches!(self.parsed.tbs_certificate().get_extension::<SubjectAltName>(), Ok(None))
    }

    /// Returns the last common name of the subject.
    pub(super) fn common_name(&self) -> Option<String> {
        let names = self.parsed.tbs_certificate().subject().iter();
        let last = names.filter(|attribute| attribute.oid == COMMON_NAME).last()?;
        let value = &last.value;
        let text = value
            .decode_as::<Utf8StringRef<'_>>()
            .map(|text| text.as_str().to_owned())
            .or_else(|_| value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned()))
            .or_else(|_| value.decode_as::<Ia5StringRef<'_>>().map(|text| text.as_str().to_owned()));
        text.ok()
    }
}
