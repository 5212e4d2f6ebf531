//! RSA keys: signatures without a digest, by which both sides prove their keys, and their recovery.
//!
//! The data is padded as by PKCS #1 (block type 1), without a digest and its prefix. Data that is
//! longer than a block is signed in pieces. Private keys sign only challenges, the own values of key
//! agreements, and certificates of proxies.
//!
//! Source: security facts, section 2.6.4.

use super::blinding::BlindedKey;
use super::modular::{MODULUS_BYTES_MAX, Modulus, without_leading_zeros};
use super::pem;
use crate::random::SystemRng;
use base::Rng;
use rsa::PrivateKey;
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::pkcs8::{DecodePrivateKey, EncodePrivateKey, EncodePublicKey};
use rsa::rand_core::{TryCryptoRng, TryRng};
use rsa::traits::PublicKeyParts;
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::sync::Arc;
use x509_cert::der::asn1::{BitStringRef, UintRef};
use x509_cert::der::{AnyRef, Decode, Reader, SliceReader};
use zeroize::Zeroizing;

/// Bytes of the padding: two at the beginning, at least eight, and one at the end.
const PADDING_BYTES: usize = 11;

/// Maximum number of blocks of a signature.
const BLOCKS_MAX: usize = 32;

/// Maximum size of a public exponent in bytes.
const EXPONENT_BYTES_MAX: usize = 8;

/// Maximum size of a private key in bits. The signatures of larger ones take too long.
const PRIVATE_BITS_MAX: usize = 8192;

/// The digest in a signature of a certificate: the prefix of PKCS #1 for SHA-256.
const SHA256_PREFIX: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
    0x04, 0x20,
];

/// The identifier of RSA keys, encoded: 1.2.840.113549.1.1.1.
const RSA_ENCRYPTION: [u8; 11] = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// The random numbers of the system, as the library takes them.
pub(super) struct KeyRng;

impl TryRng for KeyRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        SystemRng.fill(&mut bytes);
        Ok(u32::from_ne_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        SystemRng.fill(&mut bytes);
        Ok(u64::from_ne_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), Infallible> {
        SystemRng.fill(into);
        Ok(())
    }
}

impl TryCryptoRng for KeyRng {}

/// A private key. The library wipes it when it is dropped.
#[derive(Clone)]
pub(super) struct RsaSigner(Arc<BlindedKey>);

impl std::fmt::Debug for RsaSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RsaSigner({} bits)", self.bits())
    }
}

impl RsaSigner {
    /// Reads the first private key of PEM text.
    pub(super) fn from_pem(text: &str) -> Result<Self, String> {
        let sections = pem::sections(text)?;
        let section = sections.iter().find(|section| section.label.ends_with(pem::PRIVATE_KEY));
        let section = section.ok_or("no private key found")?;
        let key = match section.label {
            "PRIVATE KEY" => PrivateKey::from_pkcs8_der(&section.content).ok(),
            "RSA PRIVATE KEY" => PrivateKey::from_pkcs1_der(&section.content).ok(),
            "ENCRYPTED PRIVATE KEY" => return Err("the private key is encrypted".to_owned()),
            label => return Err(format!("{label} is not an RSA key")),
        };
        let key = key.ok_or("the private key is malformed, or not an RSA key")?;
        if key.size() * 8 > PRIVATE_BITS_MAX {
            return Err(format!("the private key has more than {PRIVATE_BITS_MAX} bits"));
        }
        Self::of(key).ok_or_else(|| "the private key is malformed".to_owned())
    }

    fn of(key: PrivateKey) -> Option<Self> {
        BlindedKey::new(key).map(|key| Self(Arc::new(key)))
    }

    /// Makes a key.
    pub(super) fn generate(bits: usize) -> Result<Self, String> {
        if bits > PRIVATE_BITS_MAX {
            return Err(format!("keys have at most {PRIVATE_BITS_MAX} bits"));
        }
        let key = PrivateKey::new(&mut KeyRng, bits).map_err(|error| error.to_string())?;
        Self::of(key).ok_or_else(|| "the key is malformed".to_owned())
    }

    /// Returns the private key as PEM text.
    pub(super) fn to_pem(&self) -> Result<Zeroizing<String>, String> {
        let der = self.0.key().to_pkcs8_der().map_err(|error| error.to_string())?;
        Ok(Zeroizing::new(pem::encode(pem::PRIVATE_KEY, der.as_bytes())))
    }

    /// Returns the size in bits.
    pub(super) fn bits(&self) -> usize {
        self.bytes() * 8
    }

    /// Returns the public key as a SubjectPublicKeyInfo.
    pub(super) fn public_key(&self) -> Result<Vec<u8>, String> {
        let der = self.0.key().to_public_key().to_public_key_der().map_err(|error| error.to_string())?;
        Ok(der.as_bytes().to_vec())
    }

    fn bytes(&self) -> usize {
        self.0.key().size()
    }

    /// Returns the number of bytes of data in each block of a signature without a digest.
    pub(super) fn block_data_bytes(&self) -> Result<usize, String> {
        let bytes = self.bytes().checked_sub(PADDING_BYTES).filter(|bytes| *bytes > 0);
        bytes.ok_or_else(|| "the key is short".to_owned())
    }

    /// Signs data without a digest.
    pub(super) fn sign_raw(&self, data: &[u8]) -> Result<Vec<u8>, String> {
        let mut signature = Vec::new();
        for piece in data.chunks(self.block_data_bytes()?) {
            let mut block = vec![0xff; self.bytes() - piece.len()];
            if let [zero, kind, .., end] = block.as_mut_slice() {
                (*zero, *kind, *end) = (0, 1, 0);
            }
            block.extend_from_slice(piece);
            signature.extend(self.0.apply(&block).ok_or("the private key is not usable")?);
        }
        Ok(signature)
    }

    /// Signs data by PKCS #1 with SHA-256.
    pub(super) fn sign_sha256(&self, data: &[u8]) -> Result<Vec<u8>, String> {
        self.sign_raw(&[SHA256_PREFIX.as_slice(), Sha256::digest(data).as_slice()].concat())
    }
}

/// A public key.
pub(super) struct RsaVerifier {
    modulus: Modulus,
    bytes: usize,
    bits: usize,
    exponent: Vec<u8>,
}

impl RsaVerifier {
    /// Decodes a SubjectPublicKeyInfo; `None` for keys of other algorithms, and unusable ones.
    pub(super) fn from_public_key(der: &[u8]) -> Option<Self> {
        let mut reader = SliceReader::new(der).ok()?;
        let key = reader.sequence(|outer| {
            let algorithm = AnyRef::decode(outer)?;
            let key = BitStringRef::decode(outer)?;
            x509_cert::der::Result::Ok((algorithm, key))
        });
        let (algorithm, key) = key.ok().filter(|_| reader.is_finished())?;
        if !algorithm.value().starts_with(&RSA_ENCRYPTION) {
            return None;
        }
        let key = key.as_bytes()?;
        let mut reader = SliceReader::new(key).ok()?;
        let numbers = reader.sequence(|inner| {
            let modulus = UintRef::decode(inner)?.as_bytes().to_vec();
            let exponent = UintRef::decode(inner)?.as_bytes().to_vec();
            x509_cert::der::Result::Ok((modulus, exponent))
        });
        let (modulus, exponent) = numbers.ok().filter(|_| reader.is_finished())?;
        Self::new(&modulus, &exponent)
    }

    fn new(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let (number, exponent) = (without_leading_zeros(modulus), without_leading_zeros(exponent));
        let is_odd = exponent.last().is_some_and(|last| last & 1 == 1);
        if !is_odd
            || exponent == [1]
            || exponent.len() > EXPONENT_BYTES_MAX
            || number.len() > MODULUS_BYTES_MAX
        {
            return None;
        }
        let unused = number.first().map_or(0, |first| first.leading_zeros() as usize);
        Some(Self {
            modulus: Modulus::new(number)?,
            bytes: number.len(),
            bits: number.len() * 8 - unused,
            exponent: exponent.to_vec(),
        })
    }

    /// Returns the size in bits.
    pub(super) const fn bits(&self) -> usize {
        self.bits
    }

    /// Returns the data of a signature without a digest; `None` if this key has not signed it.
    pub(super) fn recover(&self, signature: &[u8]) -> Option<Vec<u8>> {
        let blocks = signature.chunks_exact(self.bytes);
        if !blocks.remainder().is_empty() || signature.len() > self.bytes * BLOCKS_MAX {
            return None;
        }
        let mut data = Vec::new();
        for block in blocks {
            let padded = self.modulus.public_power(block, &self.exponent)?;
            let rest = padded.strip_prefix(&[0, 1])?;
            let padding = rest.iter().take_while(|byte| **byte == 0xff).count();
            let rest = rest.get(padding..)?.strip_prefix(&[0])?;
            if padding < PADDING_BYTES - 3 {
                return None;
            }
            data.extend_from_slice(rest);
        }
        Some(data)
    }
}

#[cfg(test)]
impl RsaSigner {
    pub(super) fn blinded(&self) -> &BlindedKey {
        &self.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::gsi::vectors::{bytes, list, load, text};

    pub(in crate::gsi) fn host_key() -> RsaSigner {
        RsaSigner::from_pem(text(&load("gsi.json")["keys"], "host_key_pem")).unwrap()
    }

    #[test]
    fn the_computed_signatures() {
        let key = host_key();
        let verifier = RsaVerifier::from_public_key(&key.public_key().unwrap()).unwrap();
        assert_eq!((key.bits(), verifier.bits()), (2048, 2048));
        for case in list(&load("primitives.json")["rsa_type1_raw"]) {
            let (data, expected) = (bytes(text(case, "data_hex")), bytes(text(case, "out_hex")));
            assert_eq!(key.sign_raw(&data).unwrap(), expected);
            assert_eq!(verifier.recover(&expected), Some(data));
            let mut changed = expected.clone();
            changed[20] ^= 1;
            assert_eq!(verifier.recover(&changed), None);
            assert_eq!(verifier.recover(&expected[1..]), None);
        }
        assert_eq!(format!("{key:?}"), "RsaSigner(2048 bits)");
    }

    #[test]
    fn a_new_key_survives_its_text() {
        let key = RsaSigner::generate(1024).unwrap();
        let again = RsaSigner::from_pem(&key.to_pem().unwrap()).unwrap();
        assert_eq!(key.public_key(), again.public_key());
        let verifier = RsaVerifier::from_public_key(&key.public_key().unwrap()).unwrap();
        assert_eq!(
            verifier.recover(&again.sign_raw(b"abcdefgh").unwrap()).as_deref(),
            Some(&b"abcdefgh"[..])
        );
        assert_eq!(host_key().sign_raw(b"").unwrap(), b"");
        for (text, expected) in [
            ("", "no private key"),
            (&pem::encode("EC PRIVATE KEY", b"x"), "is not an RSA key"),
            (&pem::encode("ENCRYPTED PRIVATE KEY", b"x"), "encrypted"),
            (&pem::encode("PRIVATE KEY", b"x"), "malformed"),
        ] {
            assert!(RsaSigner::from_pem(text).unwrap_err().contains(expected), "{text}");
        }
    }

    #[test]
    fn unusable_public_keys_are_refused() {
        let number = [0xff; 128];
        assert_eq!(RsaVerifier::new(&number, &[1, 0, 1]).unwrap().bits(), 1024);
        for (modulus, exponent) in
            [(&number[..], &[1][..]), (&number, &[2]), (&number, &[]), (&number, &[3; 9]), (&[0xfe], &[3])]
        {
            assert!(RsaVerifier::new(modulus, exponent).is_none(), "{modulus:?} {exponent:?}");
        }
        assert!(RsaVerifier::new(&[0xff; MODULUS_BYTES_MAX + 1], &[3]).is_none());
        for length in 0..40 {
            assert!(RsaVerifier::from_public_key(&host_key().public_key().unwrap()[..length]).is_none());
        }
    }
}
