//! [`AttributeCertificate`]: an attribute certificate (RFC 5755) as VOMS issues it.

use super::certificate::{GridCertificate, read_time};
use super::der::{DerReader, MalformedDer, tag};
use super::fqan::Fqan;
use super::name::DistinguishedName;
use super::signature::SignedData;
use std::time::SystemTime;

/// Maximum number of attribute certificates of a proxy.
const CERTIFICATES_MAX: usize = 8;
/// Maximum number of names of an attribute certificate.
const NAMES_MAX: usize = 256;
/// Maximum number of certificates of the signer and its authorities.
const SIGNERS_MAX: usize = 8;
/// Maximum number of attributes and of extensions.
const ITEMS_MAX: usize = 32;

/// The attribute with the names of groups.
const NAMES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 4];
/// The extension with the certificate of the signer.
const SIGNERS: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 10];
/// The extension with further attributes, which are not used.
const TAGS: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 11];
/// The extension that restricts the attributes to named servers.
const TARGETS: &[u8] = &[0x55, 0x1d, 55];
/// The extension of certificates that are never revoked.
const NO_REVOCATION: &[u8] = &[0x55, 0x1d, 56];
/// The extension that names the key of the signer.
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 35];

/// Tag of a URI among general names.
const URI_TAG: u8 = 0x86;
/// Tag of a name of X.500 among general names.
const DIRECTORY_NAME_TAG: u8 = 0xa4;

/// An attribute certificate. Nothing of it is verified.
pub(super) struct AttributeCertificate<'a> {
    signed: SignedData<'a>,
    /// Name and serial number that identify the certificate of the holder.
    pub(super) holder: DistinguishedName,
    pub(super) holder_serial: &'a [u8],
    pub(super) issuer: DistinguishedName,
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
    pub(super) organization: &'a str,
    /// Host of the server of the organization, in lower case.
    pub(super) host: String,
    pub(super) names: Vec<Fqan>,
    /// The certificate of the signer, then of its authorities; may be empty.
    pub(super) signers: Vec<GridCertificate>,
    /// Set if an extension that is not supported may restrict the attributes: one that is critical,
    /// or the list of servers for which they are meant.
    pub(super) restricts_otherwise: bool,
}

impl<'a> AttributeCertificate<'a> {
    /// Reads the value of the extension of a proxy.
    pub(super) fn read_all(value: &'a [u8]) -> Result<Vec<Self>, MalformedDer> {
        let mut outer = DerReader::of_element(value, tag::SEQUENCE)?;
        let mut list = outer.sequence()?;
        outer.end()?;
        let mut found = Vec::new();
        while !list.is_empty() {
            if found.len() >= CERTIFICATES_MAX {
                return Err(MalformedDer);
            }
            found.push(Self::read(list.read_as(tag::SEQUENCE)?.whole)?);
        }
        Ok(found)
    }

    fn read(encoded: &'a [u8]) -> Result<Self, MalformedDer> {
        let (signed, algorithm) = SignedData::read(encoded)?;
        let mut fields = DerReader::of_element(signed.data, tag::SEQUENCE)?;
        // Version 2.
        if fields.number()? != 1 {
            return Err(MalformedDer);
        }
        let (holder, holder_serial) = read_holder(fields.sequence()?)?;
        let issuer = read_issuer(fields.read_as(tag::CONTEXT_0)?.content)?;
        if fields.read_as(tag::SEQUENCE)?.whole != algorithm {
            return Err(MalformedDer);
        }
        // The serial number.
        fields.read_as(tag::INTEGER)?;
        let mut validity = fields.sequence()?;
        let (not_before, not_after) = (read_time(&mut validity)?, read_time(&mut validity)?);
        validity.end()?;
        let (organization, host, names) = read_attributes(fields.sequence()?)?;
        // The unique identifier of the issuer is not used.
        fields.optional(&[tag::BIT_STRING])?;
        let (signers, restricts_otherwise) = match fields.optional(&[tag::SEQUENCE])? {
            Some(list) => read_extensions(DerReader::new(list.content))?,
            None => (Vec::new(), false),
        };
        fields.end()?;
        Ok(Self {
            signed,
            holder,
            holder_serial,
            issuer,
            not_before,
            not_after,
            organization,
            host,
            names,
            signers,
            restricts_otherwise,
        })
    }

    /// Reports whether this certificate has signed the attributes, with SHA-2.
    pub(super) fn is_signed_by(&self, signer: &GridCertificate) -> bool {
        self.signed.kind.is_sha2() && signer.key().is_ok_and(|key| self.signed.is_of(&key, false))
    }
}

/// Reads the name among general names. There must be exactly one.
fn directory_name(names: &[u8]) -> Result<DistinguishedName, MalformedDer> {
    let mut names = DerReader::new(names);
    let name = names.read_as(DIRECTORY_NAME_TAG)?.content;
    names.end()?;
    DistinguishedName::read(name)
}

/// Reads a holder that is identified by its certificate.
fn read_holder(mut holder: DerReader<'_>) -> Result<(DistinguishedName, &[u8]), MalformedDer> {
    let mut identifier = DerReader::new(holder.read_as(tag::CONTEXT_0)?.content);
    holder.end()?;
    let name = directory_name(identifier.read_as(tag::SEQUENCE)?.content)?;
    let serial = identifier.read_as(tag::INTEGER)?.content;
    identifier.optional(&[tag::BIT_STRING])?;
    identifier.end()?;
    Ok((name, serial))
}

fn read_issuer(issuer: &[u8]) -> Result<DistinguishedName, MalformedDer> {
    let mut fields = DerReader::new(issuer);
    let name = directory_name(fields.read_as(tag::SEQUENCE)?.content)?;
    fields.end()?;
    Ok(name)
}

/// The organization, the host of its server, and the names of a holder.
type Membership<'a> = (&'a str, String, Vec<Fqan>);

fn read_attributes(mut list: DerReader<'_>) -> Result<Membership<'_>, MalformedDer> {
    let mut found = None;
    for _ in 0..ITEMS_MAX {
        if list.is_empty() {
            break;
        }
        let mut attribute = list.sequence()?;
        let kind = attribute.read_as(tag::OBJECT_IDENTIFIER)?.content;
        let values = attribute.read_as(tag::SET)?.content;
        attribute.end()?;
        if kind == NAMES && found.replace(read_names(values)?).is_some() {
            return Err(MalformedDer);
        }
    }
    list.end()?;
    found.ok_or(MalformedDer)
}

/// Reads the names of one organization: its address `VO://HOST:PORT`, then the names.
fn read_names(values: &[u8]) -> Result<Membership<'_>, MalformedDer> {
    let mut syntax = DerReader::of_element(values, tag::SEQUENCE)?;
    let mut authority = DerReader::new(syntax.read_as(tag::CONTEXT_0)?.content);
    let address = text(authority.read_as(URI_TAG)?.content)?;
    authority.end()?;
    let (organization, address) = address.split_once("://").ok_or(MalformedDer)?;
    let host = address.split_once(':').map_or(address, |(host, _)| host).to_ascii_lowercase();
    let mut list = syntax.sequence()?;
    syntax.end()?;
    let mut names = Vec::new();
    while !list.is_empty() {
        if names.len() >= NAMES_MAX {
            return Err(MalformedDer);
        }
        let name = text(list.read_as(tag::OCTET_STRING)?.content)?;
        names.push(Fqan::parse(name).ok_or(MalformedDer)?);
    }
    Ok((organization, host, names))
}

fn text(bytes: &[u8]) -> Result<&str, MalformedDer> {
    std::str::from_utf8(bytes).map_err(|_| MalformedDer)
}

/// Returns the certificates of the signer, and [`AttributeCertificate::restricts_otherwise`].
fn read_extensions(mut list: DerReader<'_>) -> Result<(Vec<GridCertificate>, bool), MalformedDer> {
    let (mut signers, mut restricts_otherwise) = (None, false);
    for _ in 0..ITEMS_MAX {
        if list.is_empty() {
            break;
        }
        let mut extension = list.sequence()?;
        let kind = extension.read_as(tag::OBJECT_IDENTIFIER)?.content;
        let is_critical = extension.flag()?;
        let value = extension.read_as(tag::OCTET_STRING)?.content;
        extension.end()?;
        match kind {
            SIGNERS => {
                if signers.replace(read_signers(value)?).is_some() {
                    return Err(MalformedDer);
                }
            }
            TAGS | NO_REVOCATION | AUTHORITY_KEY => {}
            // RFC 5755 demands that it is critical. An issuer that forgets this means it nevertheless.
            TARGETS => restricts_otherwise = true,
            _ => restricts_otherwise |= is_critical,
        }
    }
    list.end()?;
    Ok((signers.unwrap_or_default(), restricts_otherwise))
}

fn read_signers(value: &[u8]) -> Result<Vec<GridCertificate>, MalformedDer> {
    let mut outer = DerReader::of_element(value, tag::SEQUENCE)?;
    let mut list = outer.sequence()?;
    outer.end()?;
    let mut found = Vec::new();
    while !list.is_empty() {
        let certificate = list.read_as(tag::SEQUENCE)?.whole;
        if found.len() >= SIGNERS_MAX {
            return Err(MalformedDer);
        }
        found.push(GridCertificate::parse(certificate).map_err(|_| MalformedDer)?);
    }
    Ok(found)
}
