//! Modular exponentiation in constant time, for the key agreement and for RSA.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::Zeroize;

/// Maximum size of a modulus in bytes: 8192 bits. Larger ones would occupy a thread for seconds.
pub(super) const MODULUS_BYTES_MAX: usize = 1024;

/// An odd modulus. Numbers are big-endian bytes.
pub(super) struct Modulus {
    parameters: BoxedMontyParams,
    bits: u32,
    bytes: usize,
}

impl Modulus {
    /// Prepares computations modulo an odd number; `None` if it is even or too large.
    pub(super) fn new(modulus: &[u8]) -> Option<Self> {
        let modulus = without_leading_zeros(modulus);
        let bytes = modulus.len();
        if bytes == 0 || bytes > MODULUS_BYTES_MAX {
            return None;
        }
        let bits = u32::try_from(bytes).ok()?.checked_mul(8)?;
        let modulus = BoxedUint::from_be_slice(modulus, bits).ok()?;
        let modulus: Option<Odd<BoxedUint>> = Odd::new(modulus).into();
        Some(Self { parameters: BoxedMontyParams::new_vartime(modulus?), bits, bytes })
    }

    /// Returns `base` to the power of `exponent`, with as many bytes as the modulus; `None` if `base`
    /// has more. The time depends on the lengths only.
    pub(super) fn power(&self, base: &[u8], exponent: &[u8]) -> Option<Vec<u8>> {
        let exponent_bits = u32::try_from(exponent.len()).ok()?.checked_mul(8)?;
        let mut exponent = BoxedUint::from_be_slice(exponent, exponent_bits).ok()?;
        let power = self.residue(base)?.pow_bounded_exp(&exponent, exponent_bits);
        exponent.zeroize();
        self.encode(power)
    }

    /// Returns `base` to the power of an exponent that is not secret, such as that of a public key: the
    /// time depends on the exponent.
    pub(super) fn public_power(&self, base: &[u8], exponent: &[u8]) -> Option<Vec<u8>> {
        let base = self.residue(base)?;
        let mut power: Option<BoxedMontyForm> = None;
        for byte in without_leading_zeros(exponent) {
            for bit in (0..8).rev() {
                power = power.map(|power| power.square());
                if byte >> bit & 1 == 1 {
                    power = Some(power.map_or_else(|| base.clone(), |power| power * &base));
                }
            }
        }
        self.encode(power.unwrap_or_else(|| BoxedMontyForm::one(&self.parameters)))
    }

    /// Returns the product of two numbers.
    pub(super) fn product(&self, one: &[u8], other: &[u8]) -> Option<Vec<u8>> {
        self.encode(self.residue(one)? * &self.residue(other)?)
    }

    /// Returns the inverse of a number; `None` if it has none.
    pub(super) fn inverse(&self, number: &[u8]) -> Option<Vec<u8>> {
        let inverse: Option<BoxedMontyForm> = self.residue(number)?.invert().into();
        self.encode(inverse?)
    }

    /// Returns the size of the modulus in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a number as one that is computed with; `None` if it has more bytes than the modulus.
    pub(super) fn residue(&self, number: &[u8]) -> Option<BoxedMontyForm> {
        let number = BoxedUint::from_be_slice(number, self.bits).ok()?;
        Some(BoxedMontyForm::new(number, &self.parameters))
    }

    /// Returns a number of which this is the representation by which numbers are multiplied.
    pub(super) fn residue_of_representation(&self, representation: BoxedUint) -> BoxedMontyForm {
        BoxedMontyForm::from_montgomery(representation, &self.parameters)
    }

    /// Encodes a number with as many bytes as the modulus, and wipes it.
    pub(super) fn encode(&self, mut number: BoxedMontyForm) -> Option<Vec<u8>> {
        let mut plain = number.retrieve();
        number.zeroize();
        let encoded = plain.to_be_bytes();
        plain.zeroize();
        // The number can have more limbs than the modulus has bytes.
        let mut encoded = zeroize::Zeroizing::new(encoded.into_vec());
        let surplus = encoded.len().checked_sub(self.bytes)?;
        Some(encoded.split_off(surplus))
    }
}

/// Returns a number without the zeros in front.
pub(crate) fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// Compares two numbers.
pub(super) fn compare(one: &[u8], other: &[u8]) -> std::cmp::Ordering {
    let (one, other) = (without_leading_zeros(one), without_leading_zeros(other));
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    #[test]
    fn small_powers() {
        let modulus = Modulus::new(&[0, 1, 1]).unwrap();
        assert_eq!(modulus.power(&[3], &[5]), Some(vec![0, 243]));
        assert_eq!(modulus.power(&[2], &[9]), Some(vec![0, 255]));
        assert_eq!(modulus.power(&[2], &[0, 0]), Some(vec![0, 1]));
        assert!(modulus.power(&[1, 2, 3], &[1]).is_none());
        for exponent in [&[5][..], &[9], &[0, 0], &[], &[1, 0, 1], &[0, 0x80]] {
            assert_eq!(modulus.public_power(&[3], exponent), modulus.power(&[3], exponent), "{exponent:?}");
        }
        assert!(modulus.public_power(&[1, 2, 3], &[1]).is_none());
        assert_eq!(modulus.product(&[2], &[200]), Some(vec![0, 143]));
        assert_eq!(modulus.inverse(&[2]), Some(vec![0, 129]));
        assert_eq!(modulus.inverse(&[0]), None);
        assert!(Modulus::new(&[4]).is_none() && Modulus::new(&[0, 0]).is_none());
        assert!(Modulus::new(&[1; MODULUS_BYTES_MAX + 1]).is_none());
        assert_eq!(compare(&[0, 2], &[1]), Ordering::Greater);
        assert_eq!(compare(&[1, 0], &[255]), Ordering::Greater);
        assert_eq!(compare(&[0], &[]), Ordering::Equal);
    }
}
