//! Keys and signatures of certificates: RSA of at least 2048 bits, P-256, P-384, with SHA-2.

use super::der::{DerReader, MalformedDer, tag};
use super::fault::ChainFaultReason;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1,
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};

/// Largest RSA key in bits.
const RSA_BITS_MAX: usize = 8192;

const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 34];
const RSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5];
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11];
const RSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12];
const RSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13];
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3];

/// The algorithm of a signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SignatureKind {
    RsaSha1,
    RsaSha256,
    RsaSha384,
    RsaSha512,
    EcdsaSha256,
    EcdsaSha384,
    /// One that is never accepted: MD5, ECDSA with SHA-1, and so on.
    Other,
}

impl SignatureKind {
    /// Returns the algorithm of the content of an `AlgorithmIdentifier`.
    pub(super) fn read(mut algorithm: DerReader<'_>) -> Result<Self, MalformedDer> {
        let kind = match algorithm.read_as(tag::OBJECT_IDENTIFIER)?.content {
            RSA_SHA1 => Self::RsaSha1,
            RSA_SHA256 => Self::RsaSha256,
            RSA_SHA384 => Self::RsaSha384,
            RSA_SHA512 => Self::RsaSha512,
            ECDSA_SHA256 => Self::EcdsaSha256,
            ECDSA_SHA384 => Self::EcdsaSha384,
            _ => Self::Other,
        };
        Ok(kind)
    }

    /// Reports whether the hash is SHA-2.
    pub(super) fn is_sha2(self) -> bool {
        !matches!(self, Self::RsaSha1 | Self::Other)
    }
}

#[cfg(test)]
thread_local! {
    static VERIFICATIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns how many signatures this thread has verified.
#[cfg(test)]
pub(super) fn verifications() -> usize {
    VERIFICATIONS.get()
}

/// Data with a signature: a certificate or a revocation list.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignedData<'a> {
    pub(super) data: &'a [u8],
    pub(super) kind: SignatureKind,
    pub(super) signature: &'a [u8],
}

impl<'a> SignedData<'a> {
    /// Reads the parts of signed data. The algorithm inside the data must be the one outside; `data`
    /// is the first element with its header.
    pub(super) fn read(encoded: &'a [u8]) -> Result<(Self, &'a [u8]), MalformedDer> {
        let mut parts = DerReader::of_element(encoded, tag::SEQUENCE)?;
        let data = parts.read_as(tag::SEQUENCE)?;
        let algorithm = parts.read_as(tag::SEQUENCE)?;
        let signature = parts.bytes_of_bits()?;
        parts.end()?;
        let kind = SignatureKind::read(DerReader::new(algorithm.content))?;
        Ok((Self { data: data.whole, kind, signature }, algorithm.whole))
    }

    /// Returns data with a signature that no key has made.
    pub(super) fn empty() -> Self {
        Self { data: &[], kind: SignatureKind::Other, signature: &[] }
    }

    /// Reports whether the signature is that of a key. `with_sha1` also accepts SHA-1 with RSA, which
    /// authorities that are trusted already have on themselves.
    pub(super) fn is_of(&self, key: &PublicKey<'_>, with_sha1: bool) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match (self.kind, key.kind) {
            (SignatureKind::RsaSha1, KeyKind::Rsa(_)) if with_sha1 => {
                &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY
            }
            (SignatureKind::RsaSha256, KeyKind::Rsa(_)) => &RSA_PKCS1_2048_8192_SHA256,
            (SignatureKind::RsaSha384, KeyKind::Rsa(_)) => &RSA_PKCS1_2048_8192_SHA384,
            (SignatureKind::RsaSha512, KeyKind::Rsa(_)) => &RSA_PKCS1_2048_8192_SHA512,
            (SignatureKind::EcdsaSha256, KeyKind::P256) => &ECDSA_P256_SHA256_ASN1,
            (SignatureKind::EcdsaSha384, KeyKind::P256) => &ECDSA_P256_SHA384_ASN1,
            (SignatureKind::EcdsaSha256, KeyKind::P384) => &ECDSA_P384_SHA256_ASN1,
            (SignatureKind::EcdsaSha384, KeyKind::P384) => &ECDSA_P384_SHA384_ASN1,
            _ => return false,
        };
        #[cfg(test)]
        VERIFICATIONS.set(VERIFICATIONS.get() + 1);
        UnparsedPublicKey::new(algorithm, key.bits).verify(self.data, self.signature).is_ok()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeyKind {
    /// Size of the modulus in bits.
    Rsa(usize),
    P256,
    P384,
    Other,
}

/// A public key of a certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublicKey<'a> {
    kind: KeyKind,
    bits: &'a [u8],
}

impl<'a> PublicKey<'a> {
    /// Reads the DER of `SubjectPublicKeyInfo`.
    pub(super) fn read(encoded: &'a [u8]) -> Result<Self, MalformedDer> {
        let mut parts = DerReader::of_element(encoded, tag::SEQUENCE)?;
        let mut algorithm = parts.sequence()?;
        let bits = parts.bytes_of_bits()?;
        parts.end()?;
        let kind = match algorithm.read_as(tag::OBJECT_IDENTIFIER)?.content {
            RSA_ENCRYPTION => KeyKind::Rsa(modulus_bits(bits)?),
            EC_PUBLIC_KEY => match algorithm.optional(&[tag::OBJECT_IDENTIFIER])?.map(|one| one.content) {
                Some(P256) => KeyKind::P256,
                Some(P384) => KeyKind::P384,
                _ => KeyKind::Other,
            },
            _ => KeyKind::Other,
        };
        Ok(Self { kind, bits })
    }

    /// Returns an error if the key is too small or of an unsupported kind.
    pub(super) fn check_strength(&self, rsa_bits_min: u32) -> Result<(), ChainFaultReason> {
        let smallest = usize::try_from(rsa_bits_min).unwrap_or(usize::MAX);
        match self.kind {
            KeyKind::Rsa(bits) if (smallest..=RSA_BITS_MAX).contains(&bits) => Ok(()),
            KeyKind::P256 | KeyKind::P384 => Ok(()),
            KeyKind::Rsa(_) | KeyKind::Other => Err(ChainFaultReason::Key(rsa_bits_min)),
        }
    }
}

fn modulus_bits(key: &[u8]) -> Result<usize, MalformedDer> {
    let mut parts = DerReader::of_element(key, tag::SEQUENCE)?;
    let modulus = parts.read_as(tag::INTEGER)?.content;
    let digits = modulus.iter().skip_while(|digit| **digit == 0);
    let first = digits.clone().next().map_or(8, |digit| digit.leading_zeros());
    Ok((digits.count() * 8).saturating_sub(usize::try_from(first).unwrap_or(0)))
}
