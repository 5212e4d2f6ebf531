//! [`KeySet`]: the public keys of an issuer (JWKS, RFC 7517), and the verification of signatures.

use super::fault::TokenFault;
use super::json::JsonObject;
use super::jwt::{KEY_ID_BYTES_MAX, TokenAlgorithm};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;

/// Maximum size of a key set in bytes.
pub const JWKS_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of keys in a key set.
pub const JWKS_KEYS_MAX: usize = 64;
/// Sizes of accepted RSA moduli in bytes.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Maximum size of a public exponent of RSA in bytes.
const EXPONENT_BYTES_MAX: usize = 4;
/// Size of a coordinate on P-256 in bytes.
const COORDINATE_BYTES: usize = 32;

/// The public keys of an issuer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeySet {
    keys: Vec<IssuerKey>,
    /// Number of keys that cannot be used for signatures of tokens.
    unusable: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct IssuerKey {
    id: Option<String>,
    key: PublicKey,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum PublicKey {
    /// Modulus and exponent, big-endian, without leading zeros.
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    /// A point on P-256, uncompressed.
    P256(Vec<u8>),
}

/// The reason why a key set is not used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeySetError {
    /// The set is larger than [`JWKS_BYTES_MAX`] or has more keys than [`JWKS_KEYS_MAX`].
    #[error("the key set is larger than {JWKS_BYTES_MAX} bytes or has more than {JWKS_KEYS_MAX} keys")]
    TooLarge,
    /// The text is not a key set.
    #[error("not a JSON key set: {0}")]
    Malformed(String),
    /// No key can be used.
    #[error("no key of the set is for RS256 (2048 bits or more) or ES256")]
    NoUsableKey,
}

/// A key set as in the file. Other members are ignored.
#[derive(Deserialize)]
struct KeySetText {
    keys: Vec<JsonObject>,
}

impl KeySet {
    /// Parses a key set. Keys of other kinds, and keys that are malformed, are skipped.
    ///
    /// # Errors
    /// [`KeySetError`].
    pub fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        if text.len() > JWKS_BYTES_MAX {
            return Err(KeySetError::TooLarge);
        }
        let parsed: KeySetText =
            serde_json::from_slice(text).map_err(|error| KeySetError::Malformed(error.to_string()))?;
        if parsed.keys.len() > JWKS_KEYS_MAX {
            return Err(KeySetError::TooLarge);
        }
        let keys: Vec<IssuerKey> = parsed.keys.iter().filter_map(IssuerKey::parse).collect();
        if keys.is_empty() {
            return Err(KeySetError::NoUsableKey);
        }
        let unusable = parsed.keys.len() - keys.len();
        Ok(Self { keys, unusable })
    }

    /// Returns the number of usable keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Reports whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the number of keys that were skipped.
    #[must_use]
    pub fn unusable(&self) -> usize {
        self.unusable
    }

    /// Returns the key for a token. A token without an id of a key needs a set with a single key.
    fn find(&self, algorithm: TokenAlgorithm, id: Option<&str>) -> Option<&PublicKey> {
        let mut fitting = self.keys.iter().filter(|known| known.key.fits(algorithm));
        match id {
            Some(id) => fitting.find(|known| known.id.as_deref() == Some(id)).map(|known| &known.key),
            None => fitting.next().filter(|_| self.keys.len() == 1).map(|known| &known.key),
        }
    }

    /// Verifies a signature. Computes for up to 1 ms, depending on the size of the key.
    pub(super) fn verify(
        &self,
        algorithm: TokenAlgorithm,
        id: Option<&str>,
        signed: &[u8],
        signature: &[u8],
    ) -> Result<(), TokenFault> {
        let verified = match self.find(algorithm, id).ok_or(TokenFault::UnknownKey)? {
            PublicKey::Rsa { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }
                .verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature),
            PublicKey::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
        };
        verified.map_err(|_| TokenFault::Signature)
    }
}

impl PublicKey {
    fn fits(&self, algorithm: TokenAlgorithm) -> bool {
        match self {
            Self::Rsa { .. } => algorithm == TokenAlgorithm::Rs256,
            Self::P256(_) => algorithm == TokenAlgorithm::Es256,
        }
    }
}

impl IssuerKey {
    /// Parses a key; `None` if it is not for signatures with an accepted algorithm.
    fn parse(text: &JsonObject) -> Option<Self> {
        let member = |name: &str| text.get(name).and_then(|value| value.as_str());
        if text.get("use").is_some() && member("use") != Some("sig") {
            return None;
        }
        let id = match text.get("kid") {
            None => None,
            Some(id) => Some(id.as_str().filter(|id| id.len() <= KEY_ID_BYTES_MAX)?.to_owned()),
        };
        let number = |name| BASE64_URL_SAFE_NO_PAD.decode(member(name)?).ok();
        let key = match member("kty")? {
            "RSA" => rsa(&number("n")?, &number("e")?)?,
            "EC" if member("crv") == Some("P-256") => p256(&number("x")?, &number("y")?)?,
            _ => return None,
        };
        let fits = |name| TokenAlgorithm::of_name(name).is_some_and(|algorithm| key.fits(algorithm));
        if text.get("alg").is_some() && !member("alg").is_some_and(fits) {
            return None;
        }
        Some(Self { id, key })
    }
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<PublicKey> {
    let without_zeros = |number: &[u8]| {
        let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
        number.get(first..).unwrap_or_default().to_vec()
    };
    let (modulus, exponent) = (without_zeros(modulus), without_zeros(exponent));
    // An exponent of 1 would accept every signature.
    let is_odd_above_one = exponent.last().is_some_and(|byte| byte % 2 == 1) && exponent != [1];
    let fits = MODULUS_BYTES.contains(&modulus.len())
        && modulus.last().is_some_and(|byte| byte % 2 == 1)
        && exponent.len() <= EXPONENT_BYTES_MAX;
    (fits && is_odd_above_one).then_some(PublicKey::Rsa { modulus, exponent })
}

fn p256(x: &[u8], y: &[u8]) -> Option<PublicKey> {
    let fits = x.len() == COORDINATE_BYTES && y.len() == COORDINATE_BYTES;
    fits.then(|| PublicKey::P256([&[4], x, y].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(bytes: &[u8]) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    fn set(keys: &[String]) -> Result<KeySet, KeySetError> {
        KeySet::parse(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes())
    }

    fn rsa_key(bits: usize, exponent: &[u8], more: &str) -> String {
        let mut modulus = vec![0xff; bits / 8];
        modulus.insert(0, 0);
        let (n, e) = (encode(&modulus), encode(exponent));
        format!(r#"{{"kty":"RSA","n":"{n}","e":"{e}"{more}}}"#)
    }

    fn ec_key(length: usize, more: &str) -> String {
        let part = encode(&vec![1; length]);
        format!(r#"{{"kty":"EC","crv":"P-256","x":"{part}","y":"{part}"{more}}}"#)
    }

    #[test]
    fn keys_for_other_purposes_are_skipped() {
        let usable = [rsa_key(2048, &[1, 0, 1], ""), ec_key(32, r#","alg":"ES256","use":"sig","kid":"k""#)];
        let found = set(&usable).unwrap();
        assert_eq!((found.len(), found.unusable()), (2, 0));
        let unusable = [
            rsa_key(1024, &[1, 0, 1], ""),
            rsa_key(16_384, &[1, 0, 1], ""),
            rsa_key(2048, &[1], ""),
            rsa_key(2048, &[2], ""),
            rsa_key(2048, &[], ""),
            rsa_key(2048, &[1, 0, 0, 0, 1], ""),
            rsa_key(2048, &[1, 0, 1], r#","alg":"RS512""#),
            rsa_key(2048, &[1, 0, 1], r#","alg":"ES256""#),
            rsa_key(2048, &[1, 0, 1], r#","use":"enc""#),
            ec_key(31, ""),
            ec_key(32, r#","kid":7"#),
            ec_key(32, "").replace("P-256", "P-384"),
            r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned(),
            "{}".to_owned(),
        ];
        for key in &unusable {
            assert_eq!(set(std::slice::from_ref(key)), Err(KeySetError::NoUsableKey), "{key}");
        }
        let mixed = set(&[&usable[..], &unusable[..]].concat()).unwrap();
        assert_eq!((mixed.len(), mixed.unusable()), (2, unusable.len()));
    }

    #[test]
    fn a_key_set_is_limited_and_well_formed() {
        let most = vec![ec_key(32, ""); JWKS_KEYS_MAX];
        assert_eq!(set(&most).map(|set| set.len()), Ok(JWKS_KEYS_MAX));
        assert_eq!(set(&[&most[..], &most[..1]].concat()), Err(KeySetError::TooLarge));
        assert_eq!(KeySet::parse(&vec![b' '; JWKS_BYTES_MAX + 1]), Err(KeySetError::TooLarge));
        for text in
            ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[7]}"#, r#"{"keys":[{"kty":"EC","kty":"EC"}]}"#]
        {
            let found = KeySet::parse(text.as_bytes());
            assert!(matches!(found, Err(KeySetError::Malformed(_))), "{text}: {found:?}");
        }
        assert_eq!(set(&[]), Err(KeySetError::NoUsableKey));
    }

    #[test]
    fn a_key_is_found_by_its_id_and_kind() {
        let keys =
            [ec_key(32, r#","kid":"a""#), rsa_key(2048, &[3], r#","kid":"a""#), ec_key(32, r#","kid":"b""#)];
        let all = set(&keys).unwrap();
        let is_found = |set: &KeySet, algorithm, id| set.find(algorithm, id).map(|key| key.fits(algorithm));
        assert_eq!(is_found(&all, TokenAlgorithm::Rs256, Some("a")), Some(true));
        assert_eq!(is_found(&all, TokenAlgorithm::Es256, Some("a")), Some(true));
        assert_eq!(is_found(&all, TokenAlgorithm::Rs256, Some("b")), None);
        assert_eq!(is_found(&all, TokenAlgorithm::Es256, None), None, "several keys");
        let one = set(&keys[..1]).unwrap();
        assert_eq!(is_found(&one, TokenAlgorithm::Es256, None), Some(true));
        assert_eq!(is_found(&one, TokenAlgorithm::Rs256, None), None);
        assert_eq!(is_found(&one, TokenAlgorithm::Es256, Some("")), None);
    }
}
