//! [`DistinguishedName`]: text and hashes of names of certificates.
//!
//! The text is that of grids: `/C=../O=../CN=..`. Characters of values that have a meaning in the text
//! are escaped (`\/`, `\+`, `\\`) and bytes outside of ASCII are written as `\xHH`, so that a value
//! cannot look like another attribute. Hashes are those of OpenSSL, by which files of authorities are
//! named.

use super::der::{DerReader, MalformedDer, dotted, tag, write_element};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use md5::{Digest, Md5};
use std::fmt::Write;

/// Maximum size of a name in bytes.
const NAME_BYTES_MAX: usize = 8 << 10;
/// Maximum number of its attributes.
const ATTRIBUTES_MAX: usize = 64;

/// Object identifier of common names.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// Object identifier of e-mail addresses in names.
const EMAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

/// Usual names of attribute types, by their object identifiers.
pub(super) const ATTRIBUTE_TYPES: [(&[u8], &str); 28] = [
    (COMMON_NAME, "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 13], "description"),
    (&[0x55, 4, 15], "businessCategory"),
    (&[0x55, 4, 17], "postalCode"),
    (&[0x55, 4, 20], "telephoneNumber"),
    (&[0x55, 4, 41], "name"),
    (&[0x55, 4, 42], "GN"),
    (&[0x55, 4, 43], "initials"),
    (&[0x55, 4, 44], "generationQualifier"),
    (&[0x55, 4, 46], "dnQualifier"),
    (&[0x55, 4, 65], "pseudonym"),
    (&[0x55, 4, 97], "organizationIdentifier"),
    (EMAIL_ADDRESS, "emailAddress"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2], "unstructuredName"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 8], "unstructuredAddress"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 3], "mail"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 3], "jurisdictionC"),
];

/// A name of a certificate.
#[derive(Clone, Debug)]
pub struct DistinguishedName {
    encoded: Box<[u8]>,
    text: Box<str>,
    /// Each relative name in the form that OpenSSL compares and hashes.
    canonical: Vec<Box<[u8]>>,
    /// The last relative name if it is one common name.
    last_common_name: Option<Box<str>>,
    email: Option<Box<str>>,
}

/// Names are equal if they differ only in case of ASCII, blanks, and kind of strings (RFC 5280, 7.1).
impl PartialEq for DistinguishedName {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for DistinguishedName {}

impl DistinguishedName {
    /// Parses the DER of a name.
    #[must_use]
    pub fn parse(encoded: &[u8]) -> Option<Self> {
        Self::read(encoded).ok()
    }

    pub(super) fn read(encoded: &[u8]) -> Result<Self, MalformedDer> {
        if encoded.len() > NAME_BYTES_MAX {
            return Err(MalformedDer);
        }
        let mut relative_names = DerReader::of_element(encoded, tag::SEQUENCE)?;
        let (mut text, mut canonical, mut count) = (String::new(), Vec::new(), 0);
        let (mut last_common_name, mut email) = (None, None);
        while !relative_names.is_empty() {
            let mut set = DerReader::new(relative_names.read_as(tag::SET)?.content);
            let mut parts = Vec::new();
            last_common_name = None;
            while !set.is_empty() {
                let attribute = Attribute::read(&mut set)?;
                count += 1;
                if count > ATTRIBUTES_MAX {
                    return Err(MalformedDer);
                }
                text.push(if parts.is_empty() { '/' } else { '+' });
                attribute.write_text(&mut text)?;
                let value = || String::from_utf8_lossy(&attribute.text()).into_owned().into_boxed_str();
                if attribute.kind == COMMON_NAME && parts.is_empty() && set.is_empty() {
                    last_common_name = Some(value());
                }
                if attribute.kind == EMAIL_ADDRESS {
                    email = Some(value());
                }
                parts.push(attribute.canonical());
            }
            if parts.is_empty() {
                return Err(MalformedDer);
            }
            // The elements of a set are in the order of their encodings.
            parts.sort();
            let mut relative_name = Vec::new();
            write_element(tag::SET, &parts.concat(), &mut relative_name);
            canonical.push(relative_name.into_boxed_slice());
        }
        Ok(Self { encoded: encoded.into(), text: text.into(), canonical, last_common_name, email })
    }

    /// Returns the text: `/C=../CN=..`.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the hash of OpenSSL 1.0 and later: eight hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> String {
        first_word(digest(&SHA1_FOR_LEGACY_USE_ONLY, &self.canonical.concat()).as_ref())
    }

    /// Returns the hash of OpenSSL before 1.0: eight hexadecimal digits.
    #[must_use]
    pub fn old_hash(&self) -> String {
        first_word(&Md5::digest(&self.encoded))
    }

    /// Returns the last relative name if it is one common name.
    #[must_use]
    pub fn last_common_name(&self) -> Option<&str> {
        self.last_common_name.as_deref()
    }

    pub(super) fn email(&self) -> Option<&str> {
        self.email.as_deref()
    }

    /// Returns the form of the name that is equal for equal names.
    pub(super) fn key(&self) -> Vec<u8> {
        self.canonical.concat()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.canonical.is_empty()
    }

    /// Reports whether this name is `issuer` and exactly one common name.
    pub(super) fn is_proxy_of(&self, issuer: &Self) -> bool {
        let prefix = self.canonical.split_last().map(|(_, prefix)| prefix);
        self.last_common_name.is_some() && prefix == Some(issuer.canonical.as_slice())
    }
}

/// Returns the first four bytes, the last first.
fn first_word(digest: &[u8]) -> String {
    digest.iter().take(4).rev().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An attribute of a name.
struct Attribute<'a> {
    whole: &'a [u8],
    kind: &'a [u8],
    tag: u8,
    value: &'a [u8],
}

/// Tags of strings.
mod string {
    pub(super) const UTF8: u8 = 0x0c;
    pub(super) const PRINTABLE: u8 = 0x13;
    pub(super) const T61: u8 = 0x14;
    pub(super) const IA5: u8 = 0x16;
    pub(super) const VISIBLE: u8 = 0x1a;
    pub(super) const UNIVERSAL: u8 = 0x1c;
    pub(super) const BMP: u8 = 0x1e;
}

impl<'a> Attribute<'a> {
    fn read(set: &mut DerReader<'a>) -> Result<Self, MalformedDer> {
        let whole = set.read_as(tag::SEQUENCE)?;
        let mut fields = DerReader::new(whole.content);
        let kind = fields.read_as(tag::OBJECT_IDENTIFIER)?.content;
        let value = fields.next()?;
        fields.end()?;
        Ok(Self { whole: whole.whole, kind, tag: value.tag, value: value.content })
    }

    /// Returns the value for texts: UTF-8, or the bytes of kinds that have no wide characters.
    fn text(&self) -> Vec<u8> {
        match self.tag {
            string::BMP | string::UNIVERSAL => self.utf8().unwrap_or_else(|| self.value.to_vec()),
            _ => self.value.to_vec(),
        }
    }

    /// Returns the value as UTF-8 if it is a string.
    fn utf8(&self) -> Option<Vec<u8>> {
        let wide = |bytes: usize| -> Option<Vec<u8>> {
            let units = self.value.chunks_exact(bytes);
            if !units.remainder().is_empty() {
                return None;
            }
            let code = |unit: &[u8]| unit.iter().fold(0, |code, byte| code << 8 | u32::from(*byte));
            units.map(|unit| char::from_u32(code(unit))).collect::<Option<String>>().map(String::into_bytes)
        };
        match self.tag {
            string::UTF8 => Some(self.value.to_vec()),
            string::PRINTABLE | string::T61 | string::IA5 | string::VISIBLE => {
                Some(self.value.iter().copied().map(char::from).collect::<String>().into_bytes())
            }
            string::BMP => wide(2),
            string::UNIVERSAL => wide(4),
            _ => None,
        }
    }

    /// Returns the encoding that OpenSSL compares: UTF-8, lower case, blanks at the ends removed and
    /// others made one space. Values that are not strings stay as they are.
    fn canonical(&self) -> Vec<u8> {
        let Some(value) = self.utf8() else { return self.whole.to_vec() };
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
        let words = value.split(is_blank).filter(|word| !word.is_empty());
        let value = words.collect::<Vec<_>>().join(&b' ').to_ascii_lowercase();
        let mut fields = Vec::new();
        write_element(tag::OBJECT_IDENTIFIER, self.kind, &mut fields);
        write_element(string::UTF8, &value, &mut fields);
        let mut whole = Vec::new();
        write_element(tag::SEQUENCE, &fields, &mut whole);
        whole
    }

    fn write_text(&self, into: &mut String) -> Result<(), MalformedDer> {
        match ATTRIBUTE_TYPES.iter().find(|(kind, _)| *kind == self.kind) {
            Some((_, name)) => into.push_str(name),
            None => into.push_str(&dotted(self.kind)?),
        }
        into.push('=');
        for byte in self.text() {
            match byte {
                b'/' | b'+' | b'\\' => into.extend(['\\', char::from(byte)]),
                b' '..=b'~' => into.push(char::from(byte)),
                // Writing to a string does not fail.
                _ => drop(write!(into, "\\x{byte:02X}")),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::test_certificates::{
        name_of, openssl, pem_of, self_signed_authority, vector_certificate,
    };

    #[test]
    fn the_recorded_authority_has_its_hashes() {
        let authority = vector_certificate("ca_cert_pem");
        let subject = authority.subject();
        assert_eq!((subject.hash().as_str(), subject.old_hash().as_str()), ("5cdab576", "606cb0fc"));
    }

    #[test]
    fn a_value_cannot_look_like_another_attribute() {
        let name = |parts: &[(&str, &str)]| DistinguishedName::parse(&name_of(parts)).unwrap();
        assert_eq!(name(&[("O", "x/CN=root"), ("CN", "a")]).text(), r"/O=x\/CN=root/CN=a");
        assert_eq!(name(&[("O", r"x\"), ("CN", "a+b\n\u{e9}")]).text(), r"/O=x\\/CN=a\+b\x0A\xC3\xA9");
        assert_eq!(name(&[("DC", "org"), ("emailAddress", "a@b")]).text(), "/DC=org/emailAddress=a@b");
    }

    #[test]
    fn names_are_equal_without_regard_to_case_and_blanks() {
        let name = |parts: &[(&str, &str)]| DistinguishedName::parse(&name_of(parts)).unwrap();
        assert_eq!(name(&[("O", " A  b "), ("CN", "x")]), name(&[("O", "a B"), ("CN", "X")]));
        assert_ne!(name(&[("O", "ab")]), name(&[("OU", "ab")]));
        let (issuer, proxy) = (name(&[("CN", "x")]), name(&[("CN", "x"), ("CN", "1")]));
        assert!(proxy.is_proxy_of(&issuer) && !issuer.is_proxy_of(&issuer));
        assert!(!name(&[("CN", "x"), ("OU", "1")]).is_proxy_of(&issuer));
        assert!(!name(&[("CN", "x"), ("CN", "1"), ("CN", "2")]).is_proxy_of(&issuer));
    }

    #[test]
    fn text_and_hashes_are_those_of_openssl() {
        let cases: [&[(&str, &str)]; 6] = [
            &[("C", "DE"), ("O", "GermanGrid"), ("OU", "x"), ("CN", "Some Body")],
            &[("DC", "org"), ("DC", "test"), ("CN", "host/data.example.org")],
            &[("O", "  Two   Blanks "), ("CN", "\u{dc}ml\u{e4}ut \u{4e2d}"), ("emailAddress", "A@B.org")],
            &[("UID", "u1"), ("CN", "a+b"), ("serialNumber", "12")],
            &[("CN", "tab\there"), ("title", "x"), ("GN", "g"), ("SN", "s"), ("street", "1")],
            &[("O", ""), ("CN", "x")],
        ];
        for parts in cases {
            let certificate = self_signed_authority(parts);
            let arguments =
                ["x509", "-noout", "-subject_hash", "-subject_hash_old", "-subject", "-nameopt", "compat"];
            let found = openssl(&arguments, pem_of(&certificate).as_bytes());
            let name = DistinguishedName::parse(&name_of(parts)).unwrap();
            let mut lines = found.lines();
            assert_eq!(lines.next(), Some(name.hash().as_str()), "{parts:?}");
            assert_eq!(lines.next(), Some(name.old_hash().as_str()), "{parts:?}");
            assert_eq!(lines.next(), Some(format!("subject={}", name.text()).as_str()), "{parts:?}");
        }
    }
}
