//! [`BlindedKey`]: the private operation of an RSA key on blinded numbers.
//!
//! The client chooses the challenge that the server signs. So the operation, which is in constant
//! time, is applied to a number that the client does not know: the challenge times `r^e`. The result
//! is divided by `r`.

use super::modular::Modulus;
use super::rsa_keys::KeyRng;
use crate::random::SystemRng;
use base::Rng;
use crypto_bigint::BoxedUint;
use rsa::PrivateKey;
use rsa::hazmat::rsa_decrypt;
use rsa::traits::PublicKeyParts;
use std::sync::{Mutex, PoisonError};
use zeroize::{Zeroize, Zeroizing};

/// Number of operations after which the blinding is chosen again. In between it is squared, because
/// its choice takes as long as a third of an operation.
const USES_MAX: u32 = 32;

/// Number of choices of a blinding. One fails only for numbers that are not prime to the modulus.
const CHOICES_MAX: usize = 8;

/// A private key with its blinding. The library wipes the key when it is dropped.
pub(super) struct BlindedKey {
    key: PrivateKey,
    modulus: Modulus,
    exponent: Vec<u8>,
    blinding: Mutex<Option<Blinding>>,
}

/// Numbers for the next operation.
struct Blinding {
    /// `r^e`
    factor: Zeroizing<Vec<u8>>,
    /// `1 / r`
    inverse: Zeroizing<Vec<u8>>,
    uses: u32,
}

impl BlindedKey {
    /// Prepares a key; `None` if its modulus is even or too large.
    pub(super) fn new(key: PrivateKey) -> Option<Self> {
        let modulus = Modulus::new(&key.n().to_be_bytes())?;
        let exponent = key.e().to_be_bytes().into_vec();
        Some(Self { key, modulus, exponent, blinding: Mutex::default() })
    }

    /// Returns the key.
    pub(super) fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// Applies the key to a number with as many bytes as the modulus; `None` if the number is too
    /// large, or after an error in the computation, which could reveal the key.
    pub(super) fn apply(&self, number: &[u8]) -> Option<Vec<u8>> {
        let Blinding { factor, inverse, .. } = self.next_blinding()?;
        let blinded = self.modulus.product(number, &factor)?;
        let blinded = BoxedUint::from_be_slice(&blinded, self.key.n_bits_precision()).ok()?;
        let mut result = rsa_decrypt(None::<&mut KeyRng>, &self.key, &blinded).ok()?;
        let bytes = Zeroizing::new(result.to_be_bytes().into_vec());
        result.zeroize();
        let surplus = bytes.len().checked_sub(number.len())?;
        let result = self.modulus.product(bytes.get(surplus..)?, &inverse)?;
        (self.modulus.public_power(&result, &self.exponent)? == number).then_some(result)
    }

    /// Returns a blinding that no other operation uses.
    fn next_blinding(&self) -> Option<Blinding> {
        let mut kept = self.blinding.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match kept.take().filter(|blinding| blinding.uses < USES_MAX) {
            Some(last) => Blinding {
                factor: self.modulus.product(&last.factor, &last.factor)?.into(),
                inverse: self.modulus.product(&last.inverse, &last.inverse)?.into(),
                uses: last.uses + 1,
            },
            None => self.choose_blinding()?,
        };
        *kept =
            Some(Blinding { factor: next.factor.clone(), inverse: next.inverse.clone(), uses: next.uses });
        Some(next)
    }

    fn choose_blinding(&self) -> Option<Blinding> {
        (0..CHOICES_MAX).find_map(|_| {
            let mut number = Zeroizing::new(vec![0; self.modulus.bytes()]);
            // Below the modulus, because its first byte is 0.
            SystemRng.fill(number.get_mut(1..)?);
            let inverse = self.modulus.inverse(&number)?.into();
            let factor = self.modulus.public_power(&number, &self.exponent)?.into();
            Some(Blinding { factor, inverse, uses: 1 })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gsi::rsa_keys::tests::host_key;

    #[test]
    fn results_are_those_without_blinding() {
        let signer = host_key();
        let key = signer.blinded();
        let mut factors = Vec::new();
        for number in 0..=USES_MAX + 1 {
            let mut plain = vec![3; 256];
            plain[0] = 0;
            plain[255] = u8::try_from(number).unwrap();
            let result = key.apply(&plain).unwrap();
            assert_eq!(key.modulus.public_power(&result, &key.exponent), Some(plain));
            let kept = key.blinding.lock().unwrap();
            let Blinding { factor, inverse, .. } = kept.as_ref().unwrap();
            let product =
                key.modulus.product(&key.modulus.public_power(inverse, &key.exponent).unwrap(), factor);
            assert_eq!(product, key.modulus.product(&[1], &[1]));
            factors.push(factor.to_vec());
        }
        factors.sort();
        factors.dedup();
        assert_eq!(factors.len() as u32, USES_MAX + 2);
        // A number that is not below the modulus has no result.
        assert!(key.apply(&[0xff; 256]).is_none());
        assert!(key.apply(&[1; 257]).is_none());
    }
}
