//! Certificates, proxies and revocation lists for tests. `rcgen` cannot make proxies, whose names have
//! several common names.

use super::certificate::GridCertificate;
use super::certificate::key_usage::{CRL_SIGN, DIGITAL_SIGNATURE, KEY_CERT_SIGN};
use super::der::{tag, write_element};
use super::name::{ATTRIBUTE_TYPES, DistinguishedName};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_cert::der::Encode;

/// The time at which chains are verified, in seconds.
pub(super) const NOW: i64 = 1_800_000_000;
pub(super) const DAY: i64 = 86_400;

pub(super) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW.unsigned_abs())
}

pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut encoded = Vec::new();
    write_element(tag, &parts.concat(), &mut encoded);
    encoded
}

pub(super) type Name = Vec<(&'static str, String)>;

/// Returns a name with these attributes.
pub(super) fn name(parts: &[(&'static str, &str)]) -> Name {
    parts.iter().map(|(kind, value)| (*kind, (*value).to_owned())).collect()
}

pub(super) fn name_of(parts: &[(&str, &str)]) -> Vec<u8> {
    let relative_name = |(kind, value): &(&str, &str)| {
        let (identifier, _) = ATTRIBUTE_TYPES.iter().find(|(_, name)| name == kind).unwrap();
        let string = if ["DC", "emailAddress"].contains(kind) { 0x16 } else { 0x0c };
        let kind = element(tag::OBJECT_IDENTIFIER, &[identifier]);
        let attribute = element(tag::SEQUENCE, &[&kind, &element(string, &[value.as_bytes()])]);
        element(tag::SET, &[&attribute])
    };
    element(tag::SEQUENCE, &[&parts.iter().map(relative_name).collect::<Vec<_>>().concat()])
}

pub(super) fn encoded_name(name: &Name) -> Vec<u8> {
    name_of(&name.iter().map(|(kind, value)| (*kind, value.as_str())).collect::<Vec<_>>())
}

fn hash_of(name: &Name) -> String {
    DistinguishedName::parse(&encoded_name(name)).unwrap().hash()
}

fn vectors() -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/security/gsi.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns a text of the recorded keys and certificates.
pub(super) fn vector_text(key: &str) -> String {
    vectors()["keys"][key].as_str().unwrap().to_owned()
}

pub(super) fn vector_certificate(key: &str) -> GridCertificate {
    let encoded = CertificateDer::from_pem_slice(vector_text(key).as_bytes()).unwrap();
    GridCertificate::parse(&encoded).unwrap()
}

enum Signer {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
    /// The file of an RSA key with which `openssl` signs SHA-1.
    Sha1(PathBuf),
    /// A key that signs nothing.
    None,
}

/// A key with its public form.
pub(super) struct TestKey {
    signer: Signer,
    public_key: Vec<u8>,
}

const RSA_ALGORITHM: &[u8] = &[0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
const EC_ALGORITHM: &[u8] =
    &[0x30, 19, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const RSA_SHA256: &[u8] = &[0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11, 5, 0];
/// `sha1WithRSAEncryption`.
pub(super) const RSA_SHA1: &[u8] = &[0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5, 5, 0];
const EC_SHA256: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

fn public_key(algorithm: &[u8], bits: &[u8]) -> Vec<u8> {
    element(tag::SEQUENCE, &[algorithm, &element(tag::BIT_STRING, &[&[0], bits])])
}

impl TestKey {
    pub(super) fn p256() -> Self {
        let rng = SystemRandom::new();
        let encoded = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &rng).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, encoded.as_ref()).unwrap();
        let public_key = public_key(EC_ALGORITHM, key.public_key().as_ref());
        Self { signer: Signer::Ec(key), public_key }
    }

    /// Returns a recorded key of RSA with 2048 bits.
    pub(super) fn rsa(vector: &str) -> Self {
        let encoded = PrivatePkcs8KeyDer::from_pem_slice(vector_text(vector).as_bytes()).unwrap();
        let key = RsaKeyPair::from_pkcs8(encoded.secret_pkcs8_der()).unwrap();
        let public_key = public_key(RSA_ALGORITHM, key.public_key().as_ref());
        Self { signer: Signer::Rsa(key), public_key }
    }

    /// Returns a recorded key of RSA that signs with SHA-1. The file of the key is in `directory`.
    pub(super) fn sha1(vector: &str, directory: &TestDirectory) -> Self {
        directory.put("sha1-key.pem", vector_text(vector));
        Self { signer: Signer::Sha1(directory.0.join("sha1-key.pem")), ..Self::rsa(vector) }
    }

    /// Returns a public key of RSA with 1024 bits.
    pub(super) fn weak() -> Self {
        let modulus = [&[0, 0xc5][..], &[0x3b; 127]].concat();
        let numbers = [element(tag::INTEGER, &[&modulus]), vec![2, 3, 1, 0, 1]].concat();
        let public_key = public_key(RSA_ALGORITHM, &element(tag::SEQUENCE, &[&numbers]));
        Self { signer: Signer::None, public_key }
    }

    pub(super) fn algorithm(&self) -> &'static [u8] {
        match self.signer {
            Signer::Ec(_) => EC_SHA256,
            Signer::Sha1(_) => RSA_SHA1,
            Signer::Rsa(_) | Signer::None => RSA_SHA256,
        }
    }

    fn sign(&self, data: &[u8]) -> Vec<u8> {
        let rng = SystemRandom::new();
        match &self.signer {
            Signer::Ec(key) => key.sign(&rng, data).unwrap().as_ref().to_vec(),
            Signer::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &rng, data, &mut signature).unwrap();
                signature
            }
            Signer::Sha1(file) => {
                let signature = file.with_extension("signature");
                let (file, out) = (file.to_str().unwrap(), signature.to_str().unwrap());
                assert_eq!(openssl(&["dgst", "-sha1", "-sign", file, "-out", out], data), "");
                std::fs::read(signature).unwrap()
            }
            Signer::None => vec![7; 128],
        }
    }
}

pub(super) fn signed(data: &[u8], algorithm: &[u8], key: &TestKey) -> Vec<u8> {
    let signature = element(tag::BIT_STRING, &[&[0], &key.sign(data)]);
    element(tag::SEQUENCE, &[data, algorithm, &signature])
}

fn time(seconds: i64) -> Vec<u8> {
    let seconds = Duration::from_secs(seconds.unsigned_abs());
    x509_cert::der::asn1::UtcTime::from_unix_duration(seconds).unwrap().to_der().unwrap()
}

pub(super) fn integer(number: u64) -> Vec<u8> {
    let digits = number.to_be_bytes();
    let zeros = digits.iter().take_while(|digit| **digit == 0).count().min(7);
    let sign: &[u8] = if digits[zeros] >= 0x80 { &[0] } else { &[] };
    element(tag::INTEGER, &[sign, &digits[zeros..]])
}

/// Object identifiers of extensions.
pub(super) mod oid {
    pub(in crate::grid) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
    pub(in crate::grid) const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 17];
    pub(in crate::grid) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
    pub(in crate::grid) const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 30];
    pub(in crate::grid) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
    pub(in crate::grid) const PROXY: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 14];
    pub(in crate::grid) const PROXY_DRAFT: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 0x81, 0x5e];
    /// An identifier that nobody knows.
    pub(in crate::grid) const UNKNOWN: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xa5, 0x7f, 1];
    pub(in crate::grid) const INHERIT_ALL: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 1];
    pub(in crate::grid) const INDEPENDENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 2];
    pub(in crate::grid) const LIMITED: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];
}

pub(super) fn extension(identifier: &[u8], is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
    let identifier = element(tag::OBJECT_IDENTIFIER, &[identifier]);
    element(tag::SEQUENCE, &[&identifier, critical, &element(tag::OCTET_STRING, &[value])])
}

pub(super) fn key_usage(usage: u16) -> Vec<u8> {
    extension(oid::KEY_USAGE, true, &[&[3, 3, 0][..], &usage.to_be_bytes()].concat())
}

pub(super) fn basic_constraints(is_authority: bool, length: Option<u32>) -> Vec<u8> {
    let flag: &[u8] = if is_authority { &[1, 1, 0xff] } else { &[] };
    let length = length.map(|length| integer(length.into())).unwrap_or_default();
    extension(oid::BASIC_CONSTRAINTS, true, &element(tag::SEQUENCE, &[flag, &length]))
}

pub(super) fn server_auth_only() -> Vec<u8> {
    let purpose = element(tag::OBJECT_IDENTIFIER, &[&[0x2b, 6, 1, 5, 5, 7, 3, 1]]);
    extension(oid::EXTENDED_KEY_USAGE, false, &element(tag::SEQUENCE, &[&purpose]))
}

pub(super) fn dns_name(host: &str) -> Vec<u8> {
    extension(oid::ALTERNATIVE_NAME, false, &element(tag::SEQUENCE, &[&element(0x82, &[host.as_bytes()])]))
}

/// Returns name constraints that permit only hosts below a domain.
pub(super) fn permitted_hosts(domain: &str) -> Vec<u8> {
    let subtree = element(tag::SEQUENCE, &[&element(0x82, &[domain.as_bytes()])]);
    let value = element(tag::SEQUENCE, &[&element(0xa0, &[&subtree])]);
    extension(oid::NAME_CONSTRAINTS, true, &value)
}

/// Returns the value of `proxyCertInfo`.
pub(super) fn proxy_info(limit: Option<u32>, language: &[u8]) -> Vec<u8> {
    let limit = limit.map(|limit| integer(limit.into())).unwrap_or_default();
    let policy = element(tag::SEQUENCE, &[&element(tag::OBJECT_IDENTIFIER, &[language])]);
    element(tag::SEQUENCE, &[&limit, &policy])
}

/// A certificate before it is signed.
#[derive(Clone)]
pub(super) struct DraftCertificate {
    pub(super) subject: Name,
    pub(super) issuer: Name,
    pub(super) serial: u64,
    /// Begin and end of the validity in seconds.
    pub(super) validity: (i64, i64),
    pub(super) extensions: Vec<Vec<u8>>,
    /// Another algorithm than that of the key.
    pub(super) algorithm: Option<&'static [u8]>,
}

impl DraftCertificate {
    pub(super) fn new(subject: &Name, issuer: &Name, serial: u64) -> Self {
        Self {
            subject: subject.clone(),
            issuer: issuer.clone(),
            serial,
            validity: (NOW - DAY, NOW + DAY),
            extensions: Vec::new(),
            algorithm: None,
        }
    }

    /// Adds the extensions of an authority.
    pub(super) fn of_authority(mut self, limit: Option<u32>) -> Self {
        self.extensions = vec![basic_constraints(true, limit), key_usage(KEY_CERT_SIGN | CRL_SIGN)];
        self
    }

    /// Adds the extensions of an end entity.
    pub(super) fn of_end_entity(mut self) -> Self {
        self.extensions = vec![key_usage(DIGITAL_SIGNATURE)];
        self
    }

    pub(super) fn sign(&self, key: &TestKey, signer: &TestKey) -> Vec<u8> {
        let algorithm = self.algorithm.unwrap_or_else(|| signer.algorithm());
        let validity = element(tag::SEQUENCE, &[&time(self.validity.0), &time(self.validity.1)]);
        let mut extensions = Vec::new();
        if !self.extensions.is_empty() {
            let list = element(tag::SEQUENCE, &[&self.extensions.concat()]);
            extensions = element(tag::CONTEXT_3, &[&list]);
        }
        let fields = element(
            tag::SEQUENCE,
            &[
                &[tag::CONTEXT_0, 3, 2, 1, 2],
                &integer(self.serial),
                algorithm,
                &encoded_name(&self.issuer),
                &validity,
                &encoded_name(&self.subject),
                &key.public_key,
                &extensions,
            ],
        );
        signed(&fields, algorithm, signer)
    }
}

/// A revocation list before it is signed.
pub(super) struct DraftList<'a> {
    pub(super) issuer: &'a Name,
    /// Both times in seconds; the second may be missing.
    pub(super) times: (i64, Option<i64>),
    pub(super) serials: &'a [u64],
    pub(super) extensions: Vec<Vec<u8>>,
    pub(super) extensions_of_entries: Vec<Vec<u8>>,
}

impl DraftList<'_> {
    pub(super) fn sign(&self, signer: &TestKey) -> Vec<u8> {
        let list = |extensions: &[Vec<u8>]| match extensions {
            [] => Vec::new(),
            some => element(tag::SEQUENCE, &[&some.concat()]),
        };
        let of_entries = list(&self.extensions_of_entries);
        let entry =
            |serial: &u64| element(tag::SEQUENCE, &[&integer(*serial), &time(NOW - 2 * DAY), &of_entries]);
        let entries: Vec<Vec<u8>> = self.serials.iter().map(entry).collect();
        let extensions = match list(&self.extensions) {
            none if none.is_empty() => none,
            some => element(tag::CONTEXT_0, &[&some]),
        };
        let fields = element(
            tag::SEQUENCE,
            &[
                &[2, 1, 1],
                signer.algorithm(),
                &encoded_name(self.issuer),
                &time(self.times.0),
                &self.times.1.map(time).unwrap_or_default(),
                &list(&entries),
                &extensions,
            ],
        );
        signed(&fields, signer.algorithm(), signer)
    }
}

/// Returns a revocation list without extensions. Both times are in seconds.
pub(super) fn revocation_list(
    issuer: &Name,
    times: (i64, i64),
    serials: &[u64],
    signer: &TestKey,
) -> Vec<u8> {
    let times = (times.0, Some(times.1));
    DraftList { issuer, times, serials, extensions: Vec::new(), extensions_of_entries: Vec::new() }
        .sign(signer)
}

pub(super) fn self_signed_authority(parts: &[(&str, &str)]) -> Vec<u8> {
    let key = TestKey::p256();
    let subject = parts
        .iter()
        .map(|(kind, value)| {
            let (_, kind) = ATTRIBUTE_TYPES.iter().find(|(_, name)| name == kind).unwrap();
            (*kind, (*value).to_owned())
        })
        .collect();
    DraftCertificate::new(&subject, &subject, 1).of_authority(None).sign(&key, &key)
}

pub(super) fn pem(label: &str, encoded: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(encoded);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

pub(super) fn pem_of(certificate: &[u8]) -> String {
    pem("CERTIFICATE", certificate)
}

/// Runs `openssl` and returns its output.
pub(super) fn openssl(arguments: &[&str], input: &[u8]) -> String {
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program openssl is needed for this test");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// A directory of authorities, removed at the end.
pub(super) struct TestDirectory(pub(super) PathBuf);

impl TestDirectory {
    pub(super) fn new(name: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("auth-grid-{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn put(&self, file: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(file), content).unwrap();
    }

    /// Writes a file whose name is the hash of an authority and an extension.
    pub(super) fn put_hashed(&self, authority: &Name, extension: &str, content: impl AsRef<[u8]>) {
        self.put(&format!("{}.{extension}", hash_of(authority)), content);
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
