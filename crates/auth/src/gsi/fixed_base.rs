//! [`FixedBase`]: powers of one number, in constant time, by a table of some of them.
//!
//! A server raises the generator of its group to a new exponent in each login. With the table this
//! takes one multiplication for each digit of the exponent and no squaring.

use super::modular::Modulus;
use crypto_bigint::modular::BoxedMontyForm;
use crypto_bigint::{BoxedUint, CtAssign, CtEq};

/// Number of values of a digit of the exponent: four bits.
const DIGITS: usize = 16;

/// The powers of a base by exponents of a fixed length.
pub(super) struct FixedBase {
    /// For each digit of the exponent, from the lowest one: the powers for its values, as
    /// representations of their modulus.
    table: Vec<[BoxedUint; DIGITS]>,
}

impl FixedBase {
    /// Computes the table for exponents of this number of bytes, which takes as long as some powers;
    /// `None` if the base has more bytes than the modulus.
    pub(super) fn new(modulus: &Modulus, base: &[u8], exponent_bytes: usize) -> Option<Self> {
        let mut unit = modulus.residue(base)?;
        let one = modulus.residue(&[1])?;
        let mut table = Vec::new();
        for _ in 0..exponent_bytes * 2 {
            let mut next = one.clone();
            let powers = std::array::from_fn(|_| {
                let power = next.to_montgomery();
                next = &next * &unit;
                power
            });
            table.push(powers);
            unit = next;
        }
        Some(Self { table })
    }

    /// Returns the power, with as many bytes as the modulus, which is that of the table; `None` if the
    /// exponent has another length. The time does not depend on the exponent.
    pub(super) fn power(&self, modulus: &Modulus, exponent: &[u8]) -> Option<Vec<u8>> {
        if exponent.len() * 2 != self.table.len() {
            return None;
        }
        let digits = exponent.iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
        let mut power: Option<BoxedMontyForm> = None;
        for (powers, digit) in self.table.iter().zip(digits) {
            let factor = modulus.residue_of_representation(select(powers, digit));
            power = Some(match power {
                Some(power) => power * &factor,
                None => factor,
            });
        }
        modulus.encode(power?)
    }
}

/// Returns the power for a digit. All of them are read, so that the cache does not show which.
fn select(powers: &[BoxedUint; DIGITS], digit: u8) -> BoxedUint {
    let [first, others @ ..] = powers;
    let mut selected = first.clone();
    for (power, value) in others.iter().zip(1u8..) {
        selected.ct_assign(power, digit.ct_eq(&value));
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_powers_of_the_modulus() {
        let modulus = Modulus::new(&[0x83; 40]).unwrap();
        let base = FixedBase::new(&modulus, &[5], 3).unwrap();
        for exponent in [[0, 0, 0], [0, 0, 1], [0, 0, 0x10], [0x80, 0, 0], [0xff; 3], [0x12, 0x34, 0x56]] {
            let power = modulus.power(&[5], &exponent);
            assert!(power.is_some());
            assert_eq!(base.power(&modulus, &exponent), power, "{exponent:?}");
        }
        assert!(base.power(&modulus, &[1, 2]).is_none() && base.power(&modulus, &[1, 2, 3, 4]).is_none());
        assert!(FixedBase::new(&modulus, &[5; 41], 3).is_none());
    }
}
