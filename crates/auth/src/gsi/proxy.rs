//! Certificates of proxies, which the owner of a certificate issues.
//!
//! Source: security facts, sections 2.6.10 and 2.6.12; RFC 3820.

use super::certificate::{GridCertificate, PROXY_INFORMATION};
use super::rsa_keys::{RsaSigner, RsaVerifier};
use crate::grid::{INHERIT_ALL_POLICY, LEGACY_FULL, LEGACY_LIMITED, LIMITED_POLICY};
use crate::random::SystemRng;
use base::Rng;
use std::time::{Duration, SystemTime};
use x509_cert::certificate::Rfc5280;
use x509_cert::der::asn1::{BitStringRef, UintRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{AnyRef, Decode, Encode};
use x509_cert::request::CertReq;
use x509_cert::time::{Time, Validity};

/// Minimum size of the keys of proxies in bits.
pub const PROXY_BITS_MIN: usize = 2048;

/// Time by which the validity of a proxy begins earlier, because clocks differ.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// The extensions that a proxy takes over: usage of the key.
const KEY_USAGES: [ObjectIdentifier; 2] =
    [ObjectIdentifier::new_unwrap("2.5.29.15"), ObjectIdentifier::new_unwrap("2.5.29.37")];

/// The algorithm of signatures, encoded: sha256WithRSAEncryption.
const SHA256_WITH_RSA: [u8; 15] =
    [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b, 0x05, 0x00];
/// The attribute of a name, encoded: commonName.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];

/// Tags of the encoding.
const SEQUENCE_TAG: u8 = 0x30;
const SET_TAG: u8 = 0x31;
const OCTETS_TAG: u8 = 0x04;
const IDENTIFIER_TAG: u8 = 0x06;
const TEXT_TAG: u8 = 0x0c;
const VERSION_TAG: u8 = 0xa0;
const EXTENSIONS_TAG: u8 = 0xa3;
const ATTRIBUTES_TAG: u8 = 0xa0;

/// The attribute of a request with the extensions of the certificate: 1.2.840.113549.1.9.14.
const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");

/// The properties of a new proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyRequest {
    /// Size of its key in bits.
    pub bits: usize,
    /// Validity from now on. It does not last beyond that of the issuer.
    pub valid: Duration,
    /// Maximum number of proxies below it; `None` for any number.
    pub path_length: Option<u32>,
}

impl Default for ProxyRequest {
    fn default() -> Self {
        Self { bits: PROXY_BITS_MIN, valid: Duration::from_secs(12 * 3600), path_length: Some(0) }
    }
}

/// The information of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProxyInformation {
    pub(super) path_length: Option<u32>,
    pub(super) is_limited: bool,
}

impl ProxyInformation {
    /// Returns the information of a certificate; `None` if it is not a proxy of RFC 3820.
    pub(super) fn of(certificate: &GridCertificate) -> Option<Self> {
        let (_, value) = certificate.extension(PROXY_INFORMATION)?;
        let mut rest = AnyRef::from_der(value).ok()?.value();
        let path_length = match rest.first() {
            Some(2) => {
                let (number, after) = UintRef::from_der_partial(rest).ok()?;
                rest = after;
                let bytes = number.as_bytes();
                Some(
                    bytes
                        .iter()
                        .fold(0_u32, |all, byte| all.saturating_mul(256).saturating_add(u32::from(*byte))),
                )
            }
            _ => None,
        };
        let policy = AnyRef::from_der(rest).ok()?;
        let (language, _) = AnyRef::from_der_partial(policy.value()).ok()?;
        Some(Self { path_length, is_limited: language.value() == LIMITED_POLICY })
    }

    fn encode(self) -> Result<Vec<u8>, String> {
        let policy = if self.is_limited { LIMITED_POLICY } else { INHERIT_ALL_POLICY };
        let mut content = Vec::new();
        if let Some(length) = self.path_length {
            content.extend(number(&length.to_be_bytes())?);
        }
        content.extend(sequence(&[&encode(IDENTIFIER_TAG, &[policy])?])?);
        sequence(&[&content])
    }
}

/// Issues a proxy for a public key. `issuer` is the certificate of `signer`.
pub(super) fn issue(
    issuer: &GridCertificate,
    signer: &RsaSigner,
    public_key: &[u8],
    request: ProxyRequest,
    now: SystemTime,
) -> Result<GridCertificate, String> {
    issue_with_serial(issuer, signer, public_key, request, random_serial(), now)
}

fn random_serial() -> u32 {
    let mut random = [0; 4];
    SystemRng.fill(&mut random);
    u32::from_be_bytes(random) & 0x7fff_ffff | 1
}

/// A request for a proxy, for which this side has made the key.
pub(super) struct RequestedProxy {
    /// The request, encoded.
    pub(super) request: Vec<u8>,
    /// The subject of the proxy, encoded.
    subject: Vec<u8>,
    /// The key of the proxy.
    pub(super) signer: RsaSigner,
}

impl RequestedProxy {
    /// Creates the request for a proxy of this key, which `issuer` signs.
    ///
    /// # Errors
    /// The reason, such as an issuer that allows no proxies below it.
    pub(super) fn new(issuer: &GridCertificate, signer: RsaSigner) -> Result<Self, String> {
        let subject = with_common_name(&issuer.subject()?, &random_serial().to_string())?;
        let extensions = proxy_extensions(issuer, information(issuer, None)?)?;
        let extensions = encode(SET_TAG, &[&sequence(&[&extensions])?])?;
        let identifier = EXTENSION_REQUEST.to_der().map_err(|error| error.to_string())?;
        let attributes = encode(ATTRIBUTES_TAG, &[&sequence(&[&identifier, &extensions])?])?;
        let contents = sequence(&[&number(&[0])?, &subject, &signer.public_key()?, &attributes])?;
        let request = signed(&contents, &signer)?;
        Ok(Self { request, subject, signer })
    }

    /// Checks that a certificate is the requested one.
    ///
    /// # Errors
    /// The difference.
    pub(super) fn check(&self, issuer: &GridCertificate, proxy: &GridCertificate) -> Result<(), String> {
        if proxy.public_key()? != self.signer.public_key()? {
            return Err("the key of the signed proxy is not that of the request".to_owned());
        }
        if proxy.subject()? != self.subject {
            return Err("the subject of the signed proxy is not that of the request".to_owned());
        }
        if proxy.issuer()? != issuer.subject()? {
            return Err("the issuer of the signed proxy is not the client".to_owned());
        }
        Ok(())
    }
}

fn issue_with_serial(
    issuer: &GridCertificate,
    signer: &RsaSigner,
    public_key: &[u8],
    request: ProxyRequest,
    serial: u32,
    now: SystemTime,
) -> Result<GridCertificate, String> {
    let subject = with_common_name(&issuer.subject()?, &serial.to_string())?;
    let information = information(issuer, request.path_length)?;
    let new = NewProxy { subject: &subject, serial, public_key, information };
    certificate(issuer, signer, &new, request.valid, now)
}

/// Signs the request of a server for a proxy below `issuer`, whose key the server keeps.
pub(super) fn sign_request(
    issuer: &GridCertificate,
    signer: &RsaSigner,
    request: &[u8],
    properties: ProxyRequest,
    now: SystemTime,
) -> Result<GridCertificate, String> {
    let request = CertReq::from_der(request).map_err(|error| format!("the request is malformed: {error}"))?;
    let encoded = |error: x509_cert::der::Error| error.to_string();
    let subject = request.info.subject.to_der().map_err(encoded)?;
    let public_key = request.info.public_key.to_der().map_err(encoded)?;
    let key = RsaVerifier::from_public_key(&public_key).ok_or("the request has no RSA key")?;
    if key.bits() < PROXY_BITS_MIN {
        return Err(format!("the key of the request has {} bits", key.bits()));
    }
    let serial = serial_of_subject(&issuer.subject()?, &subject);
    let serial = serial.ok_or("the subject of the request is not that of the proxy with a number")?;
    let information = information(issuer, properties.path_length)?;
    let new = NewProxy { subject: &subject, serial, public_key: &public_key, information };
    certificate(issuer, signer, &new, properties.valid, now)
}

/// Returns the key of a request.
#[cfg(test)]
pub(super) fn requested_key(request: &[u8]) -> Option<Vec<u8>> {
    CertReq::from_der(request).ok()?.info.public_key.to_der().ok()
}

/// Returns the number in the common name that a subject has in addition to its issuer.
fn serial_of_subject(issuer: &[u8], subject: &[u8]) -> Option<u32> {
    let text = added_common_name(issuer, subject)?;
    text.parse().ok().filter(|serial: &u32| *serial > 0 && serial.to_string() == text)
}

/// Returns the common name that a subject has in addition to its issuer.
fn added_common_name<'a>(issuer: &[u8], subject: &'a [u8]) -> Option<&'a str> {
    let issuer = AnyRef::from_der(issuer).ok()?.value();
    common_name_of(AnyRef::from_der(subject).ok()?.value().strip_prefix(issuer)?)
}

/// Returns the common name that one encoded part of a name has.
fn common_name_of(part: &[u8]) -> Option<&str> {
    let attribute = AnyRef::from_der(AnyRef::from_der(part).ok()?.value()).ok()?.value();
    let value = AnyRef::from_der(attribute.strip_prefix(&COMMON_NAME)?).ok()?.value();
    std::str::from_utf8(value).ok()
}

/// Reports whether a proxy is a limited one of the form before RFC 3820, or is below one. Each proxy
/// adds a common name to the subject of its issuer.
fn is_limited_legacy(certificate: &GridCertificate) -> bool {
    let is_legacy = |name: &str| [LEGACY_FULL, LEGACY_LIMITED].contains(&name);
    let names = certificate.issuer().and_then(|issuer| Ok((issuer, certificate.subject()?)));
    names.is_ok_and(|(issuer, subject)| {
        let is_proxy = certificate.extension(PROXY_INFORMATION).is_some()
            || added_common_name(&issuer, &subject).is_some_and(is_legacy);
        is_proxy && names_of_proxies(&subject).contains(&LEGACY_LIMITED.to_owned())
    })
}

/// Returns the common names that proxies may have added to the subject of an end entity.
fn names_of_proxies(subject: &[u8]) -> Vec<String> {
    let parts = Vec::<AnyRef<'_>>::from_der(subject).unwrap_or_default();
    let names = parts.iter().rev().map_while(|part| Some(common_name_of(&part.to_der().ok()?)?.to_owned()));
    let is_of_proxy = |name: &String| {
        [LEGACY_FULL, LEGACY_LIMITED].contains(&name.as_str())
            || name.bytes().all(|byte| byte.is_ascii_digit())
    };
    names.take_while(is_of_proxy).collect()
}

/// The subject of a new proxy, and what belongs to it.
struct NewProxy<'a> {
    subject: &'a [u8],
    serial: u32,
    public_key: &'a [u8],
    information: ProxyInformation,
}

fn certificate(
    issuer: &GridCertificate,
    signer: &RsaSigner,
    new: &NewProxy<'_>,
    valid: Duration,
    now: SystemTime,
) -> Result<GridCertificate, String> {
    let begin =
        now.checked_sub(CLOCK_SKEW).map_or(issuer.not_before(), |begin| begin.max(issuer.not_before()));
    let end = now.checked_add(valid).map_or(issuer.not_after(), |end| end.min(issuer.not_after()));
    let extensions = proxy_extensions(issuer, new.information)?;
    let contents = sequence(&[
        &encode(VERSION_TAG, &[&[2, 1, 2]])?,
        &number(&new.serial.to_be_bytes())?,
        &SHA256_WITH_RSA,
        &issuer.subject()?,
        &validity(begin, end)?,
        new.subject,
        new.public_key,
        &encode(EXTENSIONS_TAG, &[&sequence(&[&extensions])?])?,
    ])?;
    GridCertificate::decode(&signed(&contents, signer)?)
}

/// Appends the signature of encoded contents.
fn signed(contents: &[u8], signer: &RsaSigner) -> Result<Vec<u8>, String> {
    let signature = signer.sign_sha256(contents)?;
    let signature = BitStringRef::from_bytes(&signature).and_then(|bits| bits.to_der());
    let signature = signature.map_err(|error| error.to_string())?;
    sequence(&[contents, &SHA256_WITH_RSA, &signature])
}

/// Returns the extensions of a proxy with this information below this issuer, encoded.
fn proxy_extensions(issuer: &GridCertificate, information: ProxyInformation) -> Result<Vec<u8>, String> {
    let mut extensions = Vec::new();
    for identifier in KEY_USAGES {
        if let Some((is_critical, value)) = issuer.extension(identifier) {
            extensions.extend(extension(identifier, is_critical, value)?);
        }
    }
    extensions.extend(extension(PROXY_INFORMATION, true, &information.encode()?)?);
    Ok(extensions)
}

/// Returns the information of a proxy below this issuer.
fn information(issuer: &GridCertificate, path_length: Option<u32>) -> Result<ProxyInformation, String> {
    let above = ProxyInformation::of(issuer);
    let path_length = match above.and_then(|above| above.path_length) {
        Some(0) => return Err("the proxy does not allow proxies below it (its path length is 0)".to_owned()),
        Some(length) => Some(path_length.map_or(length - 1, |wanted| wanted.min(length - 1))),
        None => path_length,
    };
    let is_limited = above.is_some_and(|above| above.is_limited) || is_limited_legacy(issuer);
    Ok(ProxyInformation { path_length, is_limited })
}

/// Appends a common name to an encoded name.
fn with_common_name(name: &[u8], common_name: &str) -> Result<Vec<u8>, String> {
    let parts = AnyRef::from_der(name).map_err(|error| error.to_string())?;
    let value = encode(TEXT_TAG, &[common_name.as_bytes()])?;
    let attribute = sequence(&[&COMMON_NAME, &value])?;
    sequence(&[parts.value(), &encode(SET_TAG, &[&attribute])?])
}

fn validity(begin: SystemTime, end: SystemTime) -> Result<Vec<u8>, String> {
    let time = |time: SystemTime| Time::try_from(time).map_err(|error| error.to_string());
    let validity = Validity::<Rfc5280>::new(time(begin)?, time(end)?);
    validity.to_der().map_err(|error| error.to_string())
}

fn extension(identifier: ObjectIdentifier, is_critical: bool, value: &[u8]) -> Result<Vec<u8>, String> {
    let identifier = identifier.to_der().map_err(|error| error.to_string())?;
    let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
    sequence(&[&identifier, critical, &encode(OCTETS_TAG, &[value])?])
}

fn number(bytes: &[u8]) -> Result<Vec<u8>, String> {
    UintRef::new(bytes).and_then(|number| number.to_der()).map_err(|error| error.to_string())
}

fn sequence(parts: &[&[u8]]) -> Result<Vec<u8>, String> {
    encode(SEQUENCE_TAG, parts)
}

/// Encodes a value with its tag and length.
fn encode(tag: u8, parts: &[&[u8]]) -> Result<Vec<u8>, String> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let length = u32::try_from(length).map_err(|_| "a certificate is too large")?.to_be_bytes();
            let zeros = length.iter().take_while(|byte| **byte == 0).count();
            let length = length.get(zeros..).unwrap_or_default();
            out.push(0x80 | u8::try_from(length.len()).unwrap_or(4));
            out.extend_from_slice(length);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gsi::vectors::{load, text};

    fn user() -> (GridCertificate, RsaSigner) {
        let keys = load("gsi.json")["keys"].clone();
        let certificate = GridCertificate::chain_of_pem(text(&keys, "user_cert_pem")).unwrap().remove(0);
        (certificate, RsaSigner::from_pem(text(&keys, "user_key_pem")).unwrap())
    }

    #[test]
    fn the_recorded_proxy_has_the_same_parts() {
        let (user, signer) = user();
        let recorded =
            GridCertificate::chain_of_pem(text(&load("gsi.json")["keys"], "user_proxy_pem")).unwrap();
        assert_eq!(recorded.len(), 2);
        let recorded = &recorded[0];
        let found = ProxyInformation::of(recorded).unwrap();
        assert_eq!(found, ProxyInformation { path_length: Some(0), is_limited: false });
        let serial = recorded.common_name().unwrap().parse().unwrap();
        let now = user.not_before() + Duration::from_secs(3600);
        let key = recorded.public_key().unwrap();
        let ours = issue_with_serial(&user, &signer, &key, ProxyRequest::default(), serial, now).unwrap();
        assert_eq!(ours.subject(), recorded.subject());
        assert_eq!((ours.issuer(), ours.public_key()), (recorded.issuer(), recorded.public_key()));
        assert_eq!(ours.extension(PROXY_INFORMATION), recorded.extension(PROXY_INFORMATION));
        assert!(ours.is_proxy() && !ours.is_authority());
        assert_eq!(ours.not_after(), (now + Duration::from_secs(12 * 3600)).min(user.not_after()));
    }

    #[test]
    fn proxies_of_proxies_are_limited_by_their_path_length() {
        let (user, signer) = user();
        let now = user.not_before() + Duration::from_secs(3600);
        let key = signer.public_key().unwrap();
        let below = |issuer: &GridCertificate, path_length| {
            let request = ProxyRequest { path_length, ..ProxyRequest::default() };
            issue(issuer, &signer, &key, request, now)
        };
        let length = |proxy: &GridCertificate| ProxyInformation::of(proxy).unwrap().path_length;
        let first = below(&user, Some(300)).unwrap();
        assert_eq!(length(&first), Some(300));
        assert_eq!(length(&below(&first, None).unwrap()), Some(299));
        assert_eq!(length(&below(&user, None).unwrap()), None);
        let last = below(&first, Some(0)).unwrap();
        assert_eq!(length(&last), Some(0));
        assert!(below(&last, None).unwrap_err().contains("path length is 0"));
        assert!(ProxyInformation::of(&user).is_none());
        assert_eq!(last.not_before(), user.not_before().max(now - CLOCK_SKEW));
    }

    #[test]
    fn a_proxy_below_a_limited_one_is_limited() {
        let (user, signer) = user();
        let now = user.not_before() + Duration::from_secs(3600);
        let (key, valid) = (signer.public_key().unwrap(), Duration::from_secs(3600));
        let subject = with_common_name(&user.subject().unwrap(), "7").unwrap();
        let information = ProxyInformation { path_length: None, is_limited: true };
        let new = NewProxy { subject: &subject, serial: 7, public_key: &key, information };
        let limited = certificate(&user, &signer, &new, valid, now).unwrap();
        // The object identifier 1.3.6.1.4.1.3536.1.1.1.9 as other tools write it.
        let language = [0x06, 0x0b, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x9b, 0x50, 0x01, 0x01, 0x01, 0x09];
        let value = [&[0x30, 0x0f, 0x30, 0x0d], language.as_slice()].concat();
        assert_eq!(limited.extension(PROXY_INFORMATION), Some((true, value.as_slice())));
        assert_eq!(ProxyInformation::of(&limited), Some(information));
        let properties = ProxyRequest { path_length: Some(1), ..ProxyRequest::default() };
        let below = issue(&limited, &signer, &key, properties, now).unwrap();
        let found = ProxyInformation { path_length: Some(1), is_limited: true };
        assert_eq!(ProxyInformation::of(&below), Some(found));
        let full = issue(&user, &signer, &key, properties, now).unwrap();
        assert!(!ProxyInformation::of(&full).unwrap().is_limited);
    }

    /// In the form before RFC 3820 the common name marks a limited proxy.
    #[test]
    fn a_proxy_below_a_limited_one_of_the_old_form_is_limited() {
        let (user, signer) = user();
        let now = user.not_before() + Duration::from_secs(3600);
        let key = signer.public_key().unwrap();
        let legacy = |names: &[&str]| {
            let above = names[..names.len() - 1].iter();
            let above =
                above.fold(user.subject().unwrap(), |name, added| with_common_name(&name, added).unwrap());
            let subject = with_common_name(&above, names.last().unwrap()).unwrap();
            let contents = sequence(&[
                &encode(VERSION_TAG, &[&[2, 1, 2]]).unwrap(),
                &number(&[7]).unwrap(),
                &SHA256_WITH_RSA,
                &above,
                &validity(now, now + Duration::from_secs(3600)).unwrap(),
                &subject,
                &key,
            ]);
            GridCertificate::decode(&signed(&contents.unwrap(), &signer).unwrap()).unwrap()
        };
        for (names, is_limited) in [
            (&["limited proxy"][..], true),
            (&["proxy", "limited proxy"], true),
            (&["proxy"], false),
            (&["limited proxy", "proxy"], true),
            (&["limited proxy", "proxy", "proxy"], true),
            (&["limited proxy", "Robot", "proxy"], false),
            (&["no limited proxy"], false),
        ] {
            let below = issue(&legacy(names), &signer, &key, ProxyRequest::default(), now).unwrap();
            assert_eq!(ProxyInformation::of(&below).unwrap().is_limited, is_limited, "{names:?}");
        }
    }

    /// A validity of the environment or the command line can be any number of hours.
    #[test]
    fn a_proxy_does_not_outlive_its_issuer_whatever_validity_is_wanted() {
        let (user, signer) = user();
        let now = user.not_before() + Duration::from_secs(3600);
        for valid in [Duration::from_secs(u64::MAX), Duration::MAX, Duration::from_secs(1 << 50)] {
            let request = ProxyRequest { valid, ..ProxyRequest::default() };
            let proxy = issue(&user, &signer, &signer.public_key().unwrap(), request, now).unwrap();
            assert_eq!(proxy.not_after(), user.not_after(), "{valid:?}");
        }
    }

    /// S085 at the client: a request is signed only if it is one for a proxy of this proxy.
    #[test]
    fn requests_of_servers_are_signed_below_the_own_proxy() {
        let (user, signer) = user();
        let now = user.not_before() + Duration::from_secs(3600);
        let key = signer.public_key().unwrap();
        let request = |subject: &[u8], key: &[u8]| {
            let info = sequence(&[&[2, 1, 0], subject, key, &[0xa0, 0]]).unwrap();
            sequence(&[&info, &SHA256_WITH_RSA, &[3, 1, 0]]).unwrap()
        };
        let properties = ProxyRequest { path_length: None, ..ProxyRequest::default() };
        let own = issue(&user, &signer, &key, properties, now).unwrap();
        let sign = |request: &[u8]| sign_request(&own, &signer, request, properties, now);
        let subject = with_common_name(&own.subject().unwrap(), "4711").unwrap();
        let signed = sign(&request(&subject, &key)).unwrap();
        assert_eq!(
            (signed.subject().unwrap(), signed.common_name()),
            (subject.clone(), Some("4711".to_owned()))
        );
        assert_eq!(signed.issuer(), own.subject());
        let twice = with_common_name(&subject, "1").unwrap();
        let other = with_common_name(&user.subject().unwrap(), "1").unwrap();
        let name = with_common_name(&own.subject().unwrap(), "proxy").unwrap();
        let padded = with_common_name(&own.subject().unwrap(), "01").unwrap();
        for subject in [twice, other, name, padded, own.subject().unwrap()] {
            assert!(sign(&request(&subject, &key)).unwrap_err().contains("the subject of the request"));
        }
        assert!(sign(&request(&subject, &[0x30, 0])).is_err() && sign(b"").is_err());
        let small = RsaSigner::generate(1024).unwrap().public_key().unwrap();
        assert!(sign(&request(&subject, &small)).unwrap_err().contains("1024 bits"));
        // The recorded one is for a proxy with the path length 0.
        let recorded = load("gsi.json");
        let main = recorded["connections"][5]["decoded"].as_array().unwrap().iter();
        let main = main.clone().find(|decoded| decoded["step"] == 2002).unwrap();
        let text_of_request = main["main_buckets"][1]["pem"].as_str().unwrap();
        let sections = crate::gsi::pem::sections(text_of_request).unwrap();
        let proxy =
            GridCertificate::chain_of_pem(text(&recorded["keys"], "user_proxy_pem")).unwrap().remove(0);
        let refused = sign_request(&proxy, &signer, &sections[0].content, properties, now);
        assert!(refused.unwrap_err().contains("path length is 0"));
    }
}
