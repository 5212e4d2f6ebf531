//! [`GridCertificate`]: a certificate with the extensions that decide about chains.

use super::der::{DerReader, MalformedDer, tag};
use super::fault::ChainFaultReason;
use super::limits::CERTIFICATE_BYTES_MAX;
use super::name::DistinguishedName;
use super::proxy::ProxyExtension;
use super::signature::{PublicKey, SignedData};
use std::time::{SystemTime, UNIX_EPOCH};
use x509_cert::der::Decode;

/// Maximum number of extensions and of extended key usages.
const ITEMS_MAX: usize = 64;

/// Bits of the extension `keyUsage`.
pub(super) mod key_usage {
    pub(in crate::grid) const DIGITAL_SIGNATURE: u16 = 0x8000;
    pub(in crate::grid) const KEY_ENCIPHERMENT: u16 = 0x2000;
    pub(in crate::grid) const KEY_CERT_SIGN: u16 = 0x0400;
    pub(in crate::grid) const CRL_SIGN: u16 = 0x0200;
}

/// Object identifiers of extensions.
mod extension {
    pub(super) const SUBJECT_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 14];
    pub(super) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
    pub(super) const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 17];
    pub(super) const ISSUER_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 18];
    pub(super) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
    pub(super) const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 30];
    pub(super) const DISTRIBUTION_POINTS: &[u8] = &[0x55, 0x1d, 31];
    pub(super) const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 35];
    pub(super) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
    pub(super) const PROXY: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 14];
    /// Attributes of VOMS.
    pub(super) const ATTRIBUTES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 5];
    /// Before RFC 3820.
    pub(super) const PROXY_DRAFT: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 0x81, 0x5e];
}

/// The tag of an e-mail address among alternative names.
const EMAIL_TAG: u8 = 0x81;
/// The tag of an address (URI) among alternative names.
const ADDRESS_TAG: u8 = 0x86;

/// The extensions that decide about chains.
#[derive(Clone, Default, Debug)]
pub(super) struct CertificateExtensions {
    /// Whether the certificate is one of an authority, with the path length.
    authority: Option<Option<u32>>,
    key_usage: Option<u16>,
    /// Object identifiers of the extended key usage.
    pub(super) purposes: Option<Vec<Box<[u8]>>>,
    pub(super) proxy: Option<ProxyExtension>,
    /// Attributes of VOMS, not parsed.
    pub(super) attributes: Option<Box<[u8]>>,
    pub(super) has_alternative_name: bool,
    pub(super) has_name_constraints: bool,
    pub(super) has_unknown_critical: bool,
    email: Option<String>,
    /// Names of the places of revocation lists, each as its DER.
    pub(super) distribution_points: Vec<Box<[u8]>>,
}

impl CertificateExtensions {
    pub(super) fn is_authority(&self) -> bool {
        self.authority.is_some()
    }

    /// Returns the maximum number of intermediate authorities below this one.
    pub(super) fn path_length(&self) -> Option<u32> {
        self.authority.flatten()
    }

    /// Reports whether the key may be used so. Without the extension it may be used for everything.
    pub(super) fn allows(&self, usage: u16) -> bool {
        self.key_usage.is_none_or(|usages| usages & usage != 0)
    }

    /// Reports whether the extension allows a use explicitly.
    pub(super) fn has(&self, usage: u16) -> bool {
        self.key_usage.is_some_and(|usages| usages & usage != 0)
    }

    fn read(list: &[u8]) -> Result<Self, MalformedDer> {
        let (mut found, mut identifiers) = (Self::default(), Vec::new());
        let mut list = DerReader::of_element(list, tag::SEQUENCE)?;
        while !list.is_empty() {
            let mut fields = list.sequence()?;
            let identifier = fields.read_as(tag::OBJECT_IDENTIFIER)?.content;
            let is_critical = fields.flag()?;
            let value = fields.read_as(tag::OCTET_STRING)?.content;
            fields.end()?;
            if identifiers.contains(&identifier) || identifiers.len() >= ITEMS_MAX {
                return Err(MalformedDer);
            }
            identifiers.push(identifier);
            found.read_one(identifier, is_critical, value)?;
        }
        Ok(found)
    }

    fn read_one(&mut self, identifier: &[u8], is_critical: bool, value: &[u8]) -> Result<(), MalformedDer> {
        match identifier {
            extension::BASIC_CONSTRAINTS => self.authority = basic_constraints(value)?,
            extension::KEY_USAGE => self.key_usage = Some(key_usages(value)?),
            extension::EXTENDED_KEY_USAGE => self.purposes = Some(purposes(value)?),
            extension::PROXY | extension::PROXY_DRAFT => {
                if self.proxy.is_some() {
                    return Err(MalformedDer);
                }
                self.proxy = Some(ProxyExtension::read(value, is_critical)?);
            }
            extension::SUBJECT_ALTERNATIVE_NAME => {
                self.has_alternative_name = true;
                self.email = email(value)?;
            }
            extension::ISSUER_ALTERNATIVE_NAME => self.has_alternative_name = true,
            extension::NAME_CONSTRAINTS => self.has_name_constraints = true,
            extension::DISTRIBUTION_POINTS => {
                // Without the names, lists that cover only a part do not cover this certificate.
                self.distribution_points = distribution_points(value).unwrap_or_default();
                self.has_unknown_critical |= is_critical;
            }
            extension::ATTRIBUTES => {
                self.attributes = Some(value.into());
                self.has_unknown_critical |= is_critical;
            }
            extension::SUBJECT_KEY_IDENTIFIER | extension::AUTHORITY_KEY_IDENTIFIER => {}
            _ => self.has_unknown_critical |= is_critical,
        }
        Ok(())
    }
}

fn basic_constraints(value: &[u8]) -> Result<Option<Option<u32>>, MalformedDer> {
    let mut fields = DerReader::of_element(value, tag::SEQUENCE)?;
    let is_authority = fields.flag()?;
    let length = if fields.is_empty() { None } else { Some(fields.number()?) };
    fields.end()?;
    Ok(is_authority.then_some(length))
}

fn key_usages(value: &[u8]) -> Result<u16, MalformedDer> {
    let bits = DerReader::of_element(value, tag::BIT_STRING)?;
    let mut bits = bits.content().iter();
    let unused = bits.next().ok_or(MalformedDer)?;
    if *unused > 7 {
        return Err(MalformedDer);
    }
    let byte = |byte: Option<&u8>| u16::from(byte.copied().unwrap_or(0));
    Ok(byte(bits.next()) << 8 | byte(bits.next()))
}

fn purposes(value: &[u8]) -> Result<Vec<Box<[u8]>>, MalformedDer> {
    let mut list = DerReader::of_element(value, tag::SEQUENCE)?;
    let mut found = Vec::new();
    while !list.is_empty() && found.len() < ITEMS_MAX {
        found.push(list.read_as(tag::OBJECT_IDENTIFIER)?.content.into());
    }
    list.end()?;
    Ok(found)
}

fn distribution_points(value: &[u8]) -> Result<Vec<Box<[u8]>>, MalformedDer> {
    let mut points = DerReader::of_element(value, tag::SEQUENCE)?;
    let mut found = Vec::new();
    while !points.is_empty() && found.len() < ITEMS_MAX {
        if let Some(name) = points.sequence()?.optional(&[tag::CONTEXT_0])? {
            found.extend(full_names(name.content)?);
        }
    }
    Ok(found)
}

/// Returns the names in the content of a `DistributionPointName`, each as its DER. Names relative to
/// the issuer are not supported.
pub(super) fn full_names(name: &[u8]) -> Result<Vec<Box<[u8]>>, MalformedDer> {
    let mut names = DerReader::of_element(name, tag::CONTEXT_0)?;
    let mut found = Vec::new();
    while !names.is_empty() && found.len() < ITEMS_MAX {
        found.push(names.next()?.whole.into());
    }
    Ok(found)
}

/// Returns the address in the DER of a name, if it is an address (URI).
pub(super) fn address_in(name: &[u8]) -> Option<&str> {
    let name = DerReader::new(name).next().ok()?;
    (name.tag == ADDRESS_TAG).then(|| std::str::from_utf8(name.content).ok())?
}

/// Returns the first e-mail address of alternative names.
fn email(value: &[u8]) -> Result<Option<String>, MalformedDer> {
    let mut names = DerReader::of_element(value, tag::SEQUENCE)?;
    while !names.is_empty() {
        let name = names.next()?;
        if name.tag == EMAIL_TAG && name.content.iter().all(u8::is_ascii_graphic) {
            return Ok(Some(String::from_utf8_lossy(name.content).into_owned()));
        }
    }
    Ok(None)
}

/// A certificate.
#[derive(Clone, Debug)]
pub(super) struct GridCertificate {
    encoded: Vec<u8>,
    serial: Box<[u8]>,
    issuer: DistinguishedName,
    subject: DistinguishedName,
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
    public_key: Box<[u8]>,
    pub(super) extensions: CertificateExtensions,
}

impl GridCertificate {
    /// Parses DER. The error has no details, because nothing of the input can be trusted.
    pub(super) fn parse(encoded: &[u8]) -> Result<Self, ChainFaultReason> {
        if encoded.len() > CERTIFICATE_BYTES_MAX {
            return Err(ChainFaultReason::Size("a certificate is larger than 48 KiB"));
        }
        Ok(Self::read(encoded)?)
    }

    fn read(encoded: &[u8]) -> Result<Self, MalformedDer> {
        let (signed, algorithm) = SignedData::read(encoded)?;
        let mut fields = DerReader::of_element(signed.data, tag::SEQUENCE)?;
        let mut version = DerReader::new(fields.read_as(tag::CONTEXT_0)?.content);
        // Version 3. Others have no extensions, so that nothing tells authorities from users.
        if version.number()? != 2 {
            return Err(MalformedDer);
        }
        version.end()?;
        let serial = fields.read_as(tag::INTEGER)?.content.into();
        if fields.read_as(tag::SEQUENCE)?.whole != algorithm {
            return Err(MalformedDer);
        }
        let issuer = DistinguishedName::read(fields.read_as(tag::SEQUENCE)?.whole)?;
        let mut validity = fields.sequence()?;
        let (not_before, not_after) = (read_time(&mut validity)?, read_time(&mut validity)?);
        validity.end()?;
        let subject = DistinguishedName::read(fields.read_as(tag::SEQUENCE)?.whole)?;
        let public_key: Box<[u8]> = fields.read_as(tag::SEQUENCE)?.whole.into();
        PublicKey::read(&public_key)?;
        let extensions = match fields.optional(&[tag::CONTEXT_3])? {
            Some(list) => CertificateExtensions::read(list.content)?,
            None => CertificateExtensions::default(),
        };
        fields.end()?;
        let encoded = encoded.to_vec();
        Ok(Self { encoded, serial, issuer, subject, not_before, not_after, public_key, extensions })
    }

    pub(super) fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// Returns the content of the serial number.
    pub(super) fn serial(&self) -> &[u8] {
        &self.serial
    }

    pub(super) fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    pub(super) fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    pub(super) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Returns the DER of `SubjectPublicKeyInfo`.
    pub(super) fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    pub(super) fn key(&self) -> Result<PublicKey<'_>, MalformedDer> {
        PublicKey::read(&self.public_key)
    }

    /// Returns what is signed, and the signature.
    pub(super) fn signed(&self) -> SignedData<'_> {
        match SignedData::read(&self.encoded) {
            Ok((signed, _)) => signed,
            // It was read when this value was made.
            Err(MalformedDer) => SignedData::empty(),
        }
    }

    pub(super) fn email(&self) -> Option<&str> {
        self.extensions.email.as_deref().or_else(|| self.subject.email())
    }

    /// Returns an error if `now` is outside of the validity.
    pub(super) fn check_time(&self, now: SystemTime) -> Result<(), ChainFaultReason> {
        if now < self.not_before {
            return Err(ChainFaultReason::NotValidYet);
        }
        if now > self.not_after {
            return Err(ChainFaultReason::Expired);
        }
        Ok(())
    }
}

/// Reads a time of either form.
pub(super) fn read_time(fields: &mut DerReader<'_>) -> Result<SystemTime, MalformedDer> {
    let time = fields.optional(&[tag::UTC_TIME, tag::GENERALIZED_TIME])?.ok_or(MalformedDer)?;
    let time = x509_cert::time::Time::from_der(time.whole).map_err(|_| MalformedDer)?;
    UNIX_EPOCH.checked_add(time.to_unix_duration()).ok_or(MalformedDer)
}
