//! [`RevocationList`]: the serial numbers that an authority has revoked.

use super::certificate::{GridCertificate, full_names, key_usage, read_time};
use super::der::{DerReader, MalformedDer, tag};
use super::name::DistinguishedName;
use super::signature::SignedData;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use std::cmp::Ordering;
use std::time::SystemTime;

/// The extension with the number of a list, which grows with each list of an authority.
const NUMBER: &[u8] = &[0x55, 0x1d, 20];
/// Extensions that do not restrict a list: `cRLNumber`, `authorityKeyIdentifier`.
const HARMLESS: [&[u8]; 2] = [NUMBER, &[0x55, 0x1d, 35]];
/// The extension of a list that covers only a part of the certificates.
const DISTRIBUTION_POINT: &[u8] = &[0x55, 0x1d, 28];
/// The extension of a list that has only changes.
const DELTA: &[u8] = &[0x55, 0x1d, 27];

/// A revocation list. Its signature is verified where the issuer is known.
pub struct RevocationList {
    encoded: Vec<u8>,
    issuer: DistinguishedName,
    this_update: SystemTime,
    next_update: Option<SystemTime>,
    /// Content of the number.
    number: Option<Box<[u8]>>,
    /// Offset and length of each serial number in `encoded`, ordered by the numbers. Lists have up to
    /// some hundred thousand.
    serials: Vec<(u32, u8)>,
    scope: ListScope,
}

/// The certificates that a list covers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct ListScope {
    /// Only those that name one of these places.
    places: Option<Vec<Box<[u8]>>>,
    /// Only those of authorities, or only the others.
    of_authorities: Option<bool>,
}

impl ListScope {
    /// Reads the value of `issuingDistributionPoint`. Lists of some reasons, of other issuers or of
    /// attribute certificates are not supported.
    fn read(value: &[u8]) -> Result<Self, MalformedDer> {
        let mut fields = DerReader::of_element(value, tag::SEQUENCE)?;
        let mut scope = Self::default();
        while !fields.is_empty() {
            let field = fields.next()?;
            match (field.tag, field.content) {
                (tag::CONTEXT_0, name) => scope.places = Some(full_names(name)?),
                (0x81, [0xff]) => scope.of_authorities = Some(false),
                (0x82, [0xff]) => scope.of_authorities = Some(true),
                _ => return Err(MalformedDer),
            }
        }
        Ok(scope)
    }

    fn covers(&self, certificate: &GridCertificate) -> bool {
        let own = &certificate.extensions;
        let has_place =
            |places: &Vec<Box<[u8]>>| places.iter().any(|one| own.distribution_points.contains(one));
        self.places.as_ref().is_none_or(has_place)
            && self.of_authorities.is_none_or(|of_authorities| of_authorities == own.is_authority())
    }
}

impl std::fmt::Debug for RevocationList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { issuer, this_update, next_update, serials, .. } = self;
        f.debug_struct("RevocationList")
            .field("issuer", &issuer.text())
            .field("this_update", this_update)
            .field("next_update", next_update)
            .field("serials", &serials.len())
            .finish_non_exhaustive()
    }
}

impl RevocationList {
    /// Parses PEM or DER.
    ///
    /// # Errors
    /// The reason why the list cannot be used, as the end of a sentence.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let is_der = text.first() == Some(&tag::SEQUENCE);
        let encoded = if is_der {
            text.to_vec()
        } else {
            let list = CertificateRevocationListDer::from_pem_slice(text);
            list.map_err(|_| "is neither PEM nor DER")?.as_ref().to_vec()
        };
        Self::read(encoded)
    }

    fn read(encoded: Vec<u8>) -> Result<Self, &'static str> {
        const MALFORMED: &str = "is malformed";
        let (signed, algorithm) = SignedData::read(&encoded).map_err(|_| MALFORMED)?;
        let malformed = |_: MalformedDer| MALFORMED;
        let mut fields = DerReader::of_element(signed.data, tag::SEQUENCE).map_err(malformed)?;
        let version = fields.optional(&[tag::INTEGER]).map_err(malformed)?;
        if version.is_some_and(|version| version.content != [1])
            || fields.read_as(tag::SEQUENCE).map_err(malformed)?.whole != algorithm
        {
            return Err(MALFORMED);
        }
        let issuer = fields.read_as(tag::SEQUENCE).map_err(malformed)?.whole;
        let issuer = DistinguishedName::read(issuer).map_err(malformed)?;
        let this_update = read_time(&mut fields).map_err(malformed)?;
        let next_update = match fields.content().first() {
            Some(&(tag::UTC_TIME | tag::GENERALIZED_TIME)) => {
                Some(read_time(&mut fields).map_err(malformed)?)
            }
            _ => None,
        };
        let entries = fields.optional(&[tag::SEQUENCE]).map_err(malformed)?;
        let entries = entries.map(|entries| entries.content).unwrap_or_default();
        let (mut scope, mut number) = (ListScope::default(), None);
        if let Some(extensions) = fields.optional(&[tag::CONTEXT_0]).map_err(malformed)? {
            let list = DerReader::of_element(extensions.content, tag::SEQUENCE).map_err(malformed)?;
            let found = check_extensions(list)?;
            number = found.number;
            if let Some(value) = found.scope {
                scope = ListScope::read(value).map_err(|_| "covers a part that is not supported")?;
            }
        }
        fields.end().map_err(malformed)?;
        let serials = serials(&encoded, entries)?;
        Ok(Self { issuer, this_update, next_update, number, serials, encoded, scope })
    }

    /// Returns the name of the authority.
    #[must_use]
    pub fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    /// Returns the time at which the authority made the list.
    #[must_use]
    pub fn issued(&self) -> SystemTime {
        self.this_update
    }

    /// Returns the time until which the authority makes the next list, if the list has it.
    #[must_use]
    pub fn next_update(&self) -> Option<SystemTime> {
        self.next_update
    }

    /// Returns the DER.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// Reports whether two lists cover the same certificates, so that the newer one replaces the
    /// older one.
    pub(super) fn has_scope_of(&self, other: &Self) -> bool {
        self.scope == other.scope
    }

    /// Reports whether the list covers all certificates of the authority.
    pub(super) fn is_whole(&self) -> bool {
        self.scope == ListScope::default()
    }

    /// Compares the ages of two lists of one authority: the newer one is greater. The number decides
    /// between lists of the same second, if both have one.
    pub(super) fn compare_age(&self, other: &Self) -> Ordering {
        let numbers = || match (&self.number, &other.number) {
            (Some(own), Some(other)) => (own.len(), own).cmp(&(other.len(), other)),
            _ => Ordering::Equal,
        };
        self.this_update.cmp(&other.this_update).then_with(numbers)
    }

    /// Reports whether the list is within its time.
    #[must_use]
    pub fn is_current(&self, now: SystemTime) -> bool {
        self.this_update <= now && self.next_update.is_some_and(|next| now <= next)
    }

    /// Reports whether the list tells about a certificate of its issuer.
    pub(super) fn covers(&self, certificate: &GridCertificate) -> bool {
        self.scope.covers(certificate)
    }

    /// Reports whether the list covers certificates of authorities, or those of others.
    pub(super) fn covers_kind(&self, of_authorities: bool) -> bool {
        self.scope.of_authorities.is_none_or(|only| only == of_authorities)
    }

    /// Reports whether an authority has signed the list.
    pub(super) fn is_signed_by(&self, authority: &GridCertificate) -> bool {
        let Ok((signed, _)) = SignedData::read(&self.encoded) else { return false };
        authority.extensions.allows(key_usage::CRL_SIGN)
            && authority.key().is_ok_and(|key| signed.is_of(&key, false))
    }

    /// Reports whether the content of a serial number is in the list.
    #[must_use]
    pub fn has(&self, serial: &[u8]) -> bool {
        self.serials.binary_search_by(|place| slice(&self.encoded, *place).cmp(serial)).is_ok()
    }
}

fn slice(encoded: &[u8], (offset, length): (u32, u8)) -> &[u8] {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    encoded.get(offset..).and_then(|rest| rest.get(..usize::from(length))).unwrap_or_default()
}

fn serials(encoded: &[u8], entries: &[u8]) -> Result<Vec<(u32, u8)>, &'static str> {
    let mut found = Vec::new();
    let mut entries = DerReader::new(entries);
    while !entries.is_empty() {
        let mut entry = entries.sequence().map_err(|_| "has a malformed entry")?;
        let serial = entry.read_as(tag::INTEGER).map_err(|_| "has a malformed entry")?.content;
        read_time(&mut entry).map_err(|_| "has a malformed entry")?;
        if let Some(extensions) = entry.optional(&[tag::SEQUENCE]).map_err(|_| "has a malformed entry")?
            && check_extensions(DerReader::new(extensions.content))?.scope.is_some()
        {
            return Err("has a malformed entry");
        }
        entry.end().map_err(|_| "has a malformed entry")?;
        let offset = serial.as_ptr() as usize - encoded.as_ptr() as usize;
        let place = u32::try_from(offset).ok().zip(u8::try_from(serial.len()).ok());
        found.push(place.ok_or("has a malformed entry")?);
    }
    found.sort_unstable_by(|one, other| slice(encoded, *one).cmp(slice(encoded, *other)));
    Ok(found)
}

/// The extensions of a list that are used.
#[derive(Default)]
struct ListExtensions<'a> {
    /// The value of the extension that restricts the list.
    scope: Option<&'a [u8]>,
    number: Option<Box<[u8]>>,
}

/// Reads extensions. Returns an error for those that restrict a list and are not supported.
fn check_extensions(mut list: DerReader<'_>) -> Result<ListExtensions<'_>, &'static str> {
    let mut found = ListExtensions::default();
    while !list.is_empty() {
        let mut read = || {
            let mut fields = list.sequence()?;
            let identifier = fields.read_as(tag::OBJECT_IDENTIFIER)?.content;
            let is_critical = fields.flag()?;
            let value = fields.read_as(tag::OCTET_STRING)?.content;
            fields.end()?;
            Ok((identifier, is_critical, value))
        };
        let (identifier, is_critical, value) =
            read().map_err(|_: MalformedDer| "has a malformed extension")?;
        match identifier {
            DELTA => return Err("has only the changes since another list"),
            DISTRIBUTION_POINT => found.scope = Some(value),
            NUMBER => {
                let number = DerReader::new(value).read_as(tag::INTEGER);
                found.number = number.ok().map(|number| number.content.into());
            }
            _ if is_critical && !HARMLESS.contains(&identifier) => {
                return Err("has a critical extension that is not supported");
            }
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::test_certificates::{DAY, DraftList, NOW, TestKey, element, extension, name, now, pem};

    fn list(extensions: &[Vec<u8>], of_entries: &[Vec<u8>], next: Option<i64>) -> Vec<u8> {
        let draft = DraftList {
            issuer: &name(&[("CN", "A")]),
            times: (NOW - DAY, next),
            serials: &[0x8001, 3, 0x0100_0000, 200],
            extensions: extensions.to_vec(),
            extensions_of_entries: of_entries.to_vec(),
        };
        draft.sign(&TestKey::p256())
    }

    #[test]
    fn serial_numbers_are_found_in_pem_and_der() {
        let encoded = list(&[], &[], Some(NOW + DAY));
        for text in [encoded.clone(), pem("X509 CRL", &encoded).into_bytes()] {
            let list = RevocationList::parse(&text).unwrap();
            for serial in [&[0, 0x80, 1][..], &[3], &[1, 0, 0, 0], &[0, 200]] {
                assert!(list.has(serial), "{serial:x?}");
            }
            for other in [&[][..], &[0], &[200], &[0x80, 1], &[1, 0, 0]] {
                assert!(!list.has(other), "{other:x?}");
            }
            assert!(list.is_current(now()) && list.issuer().text() == "/CN=A");
        }
        assert!(!RevocationList::parse(&list(&[], &[], Some(NOW - 60))).unwrap().is_current(now()));
        assert!(!RevocationList::parse(&list(&[], &[], None)).unwrap().is_current(now()));
    }

    /// A list that covers only a part of the certificates would hide revocations.
    #[test]
    fn partial_lists_are_refused() {
        let number = extension(HARMLESS[0], false, &[2, 1, 1]);
        let reason = extension(&[0x55, 0x1d, 21], false, &[10, 1, 1]);
        let next = Some(NOW + DAY);
        assert!(RevocationList::parse(&list(&[number], &[reason], next)).is_ok());
        let fault = |extensions: &[Vec<u8>], of_entries: &[Vec<u8>]| {
            RevocationList::parse(&list(extensions, of_entries, next)).unwrap_err()
        };
        // Lists of some reasons, indirect lists, lists of attribute certificates.
        for field in [&[0x83, 2, 0, 2][..], &[0x84, 1, 0xff], &[0x85, 1, 0xff], &[0xa0, 2, 0xa1, 0]] {
            let value = element(tag::SEQUENCE, &[field]);
            let part = extension(DISTRIBUTION_POINT, true, &value);
            assert_eq!(fault(&[part], &[]), "covers a part that is not supported", "{field:x?}");
        }
        let issuer_of_entry = extension(&[0x55, 0x1d, 29], true, &[0x30, 0]);
        let unknown = extension(&[0x55, 0x1d, 99], true, &[0x30, 0]);
        assert_eq!(fault(&[unknown], &[]), "has a critical extension that is not supported");
        assert_eq!(fault(&[], &[issuer_of_entry]), "has a critical extension that is not supported");
        // A delta list is never a whole one, critical or not.
        assert_eq!(
            fault(&[extension(DELTA, false, &[2, 1, 1])], &[]),
            "has only the changes since another list"
        );
    }

    #[test]
    fn malformed_lists_are_refused() {
        let encoded = list(&[], &[], Some(NOW + DAY));
        for end in 0..encoded.len() {
            assert!(RevocationList::parse(&encoded[..end]).is_err(), "{end}");
        }
        let longer = [encoded, vec![0]].concat();
        assert_eq!(RevocationList::parse(&longer).unwrap_err(), "is malformed");
    }
}
