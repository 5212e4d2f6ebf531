//! Incremental computation of checksums, and their values.
//!
//! All types share one interface, because clients choose the type at run time.

use crate::Algorithm;
use crc_fast::{CrcAlgorithm, Digest as Crc};
use sha1::Digest as _;
use std::fmt;

/// Length of the longest value in bytes.
pub const CHECKSUM_BYTES_MAX: usize = 32;

/// The value of a checksum. Its text is lower-case hexadecimal without a prefix, two digits for
/// each byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum {
    algorithm: Algorithm,
    /// Bytes behind the length of the value are 0.
    bytes: [u8; CHECKSUM_BYTES_MAX],
}

impl Checksum {
    /// Creates a value from its bytes, in the order of its text. Returns `None` if the length does
    /// not fit the type.
    pub fn from_bytes(algorithm: Algorithm, value: &[u8]) -> Option<Self> {
        let mut bytes = [0; CHECKSUM_BYTES_MAX];
        let own = bytes.get_mut(..algorithm.bytes())?;
        if own.len() != value.len() {
            return None;
        }
        own.copy_from_slice(value);
        Some(Self { algorithm, bytes })
    }

    /// Parses the text of a value in either case. Returns `None` if it is not exactly a value of
    /// that type.
    pub fn from_hex(algorithm: Algorithm, text: &str) -> Option<Self> {
        let digit = |d: u8| char::from(d).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let value: Option<Vec<u8>> = pairs.iter().map(|&[h, l]| Some(digit(h)? << 4 | digit(l)?)).collect();
        if rest.is_empty() { Self::from_bytes(algorithm, &value?) } else { None }
    }

    fn from_crc(algorithm: Algorithm, value: u64) -> Self {
        let mut bytes = [0; CHECKSUM_BYTES_MAX];
        // The state of a 32-bit CRC has no higher bits.
        let value = (value & 0xffff_ffff) as u32;
        bytes[..4].copy_from_slice(&value.to_be_bytes());
        Self { algorithm, bytes }
    }

    /// Returns the type.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the bytes, in the order of the text.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.algorithm.bytes()).unwrap_or(&self.bytes)
    }

    /// Returns the text.
    pub fn hex(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {self}", self.algorithm)
    }
}

/// A checksum under computation, which receives the bytes in order. A clone continues
/// independently, so an intermediate value costs one clone.
#[derive(Clone)]
pub struct RunningChecksum(AlgorithmState);

#[derive(Clone)]
enum AlgorithmState {
    Adler32(simd_adler32::Adler32),
    /// The second field is the number of bytes so far, which is part of the checksum.
    Crc32(Crc, u64),
    Crc32c(Crc),
    Zcrc32(Crc),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
}

impl RunningChecksum {
    /// Creates the state for no bytes.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Adler32 => AlgorithmState::Adler32(simd_adler32::Adler32::new()),
            Algorithm::Crc32 => AlgorithmState::Crc32(Crc::new(CrcAlgorithm::Crc32Cksum), 0),
            Algorithm::Crc32c => AlgorithmState::Crc32c(Crc::new(CrcAlgorithm::Crc32Iscsi)),
            Algorithm::Zcrc32 => AlgorithmState::Zcrc32(Crc::new(CrcAlgorithm::Crc32IsoHdlc)),
            Algorithm::Md5 => AlgorithmState::Md5(md5::Md5::new()),
            Algorithm::Sha1 => AlgorithmState::Sha1(sha1::Sha1::new()),
            Algorithm::Sha256 => AlgorithmState::Sha256(sha2::Sha256::new()),
        })
    }

    /// Returns the type.
    pub fn algorithm(&self) -> Algorithm {
        match self.0 {
            AlgorithmState::Adler32(_) => Algorithm::Adler32,
            AlgorithmState::Crc32(..) => Algorithm::Crc32,
            AlgorithmState::Crc32c(_) => Algorithm::Crc32c,
            AlgorithmState::Zcrc32(_) => Algorithm::Zcrc32,
            AlgorithmState::Md5(_) => Algorithm::Md5,
            AlgorithmState::Sha1(_) => Algorithm::Sha1,
            AlgorithmState::Sha256(_) => Algorithm::Sha256,
        }
    }

    /// Adds the next bytes. The result does not depend on how the data is split.
    pub fn update(&mut self, data: &[u8]) {
        match &mut self.0 {
            AlgorithmState::Adler32(state) => state.write(data),
            AlgorithmState::Crc32(state, length) => {
                state.update(data);
                *length += data.len() as u64;
            }
            AlgorithmState::Crc32c(state) | AlgorithmState::Zcrc32(state) => state.update(data),
            AlgorithmState::Md5(state) => state.update(data),
            AlgorithmState::Sha1(state) => state.update(data),
            AlgorithmState::Sha256(state) => state.update(data),
        }
    }

    /// Returns the value for all bytes added.
    pub fn finish(self) -> Checksum {
        let algorithm = self.algorithm();
        let mut bytes = [0; CHECKSUM_BYTES_MAX];
        match self.0 {
            AlgorithmState::Adler32(state) => {
                return Checksum::from_crc(algorithm, u64::from(state.finish()));
            }
            AlgorithmState::Crc32(mut state, length) => {
                // The length follows the data, least significant byte first, without trailing zero
                // bytes.
                let significant = 8 - (length.leading_zeros() / 8) as usize;
                state.update(length.to_le_bytes().get(..significant).unwrap_or_default());
                return Checksum::from_crc(algorithm, state.finalize());
            }
            AlgorithmState::Crc32c(state) => return Checksum::from_crc(algorithm, state.finalize()),
            AlgorithmState::Zcrc32(state) => {
                let value = (state.finalize() & 0xffff_ffff) as u32;
                return Checksum::from_crc(algorithm, u64::from(value.swap_bytes()));
            }
            AlgorithmState::Md5(state) => bytes[..16].copy_from_slice(&state.finalize()),
            AlgorithmState::Sha1(state) => bytes[..20].copy_from_slice(&state.finalize()),
            AlgorithmState::Sha256(state) => bytes[..32].copy_from_slice(&state.finalize()),
        }
        Checksum { algorithm, bytes }
    }

    /// Computes the value of `data` in one call.
    pub fn of(algorithm: Algorithm, data: &[u8]) -> Checksum {
        let mut running = Self::new(algorithm);
        running.update(data);
        running.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computes one bit at a time, reflected.
    fn naive_reflected(polynomial: u32, data: &[u8]) -> u32 {
        let mut crc = !0_u32;
        for &byte in data {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
            }
        }
        !crc
    }

    /// Computes one bit at a time, directly by the definition of POSIX.
    fn naive_cksum(data: &[u8]) -> u32 {
        let mut length = data.len();
        let mut tail = Vec::new();
        while length > 0 {
            tail.push((length & 0xff) as u8);
            length >>= 8;
        }
        let mut crc = 0_u32;
        for byte in data.iter().chain(&tail) {
            crc ^= u32::from(*byte) << 24;
            for _ in 0..8 {
                crc = if crc >> 31 == 1 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 };
            }
        }
        !crc
    }

    fn naive_adler(data: &[u8]) -> u32 {
        let (a, b) = data.iter().fold((1_u32, 0_u32), |(a, b), &byte| {
            let a = (a + u32::from(byte)) % 65521;
            (a, (b + a) % 65521)
        });
        b << 16 | a
    }

    fn value(algorithm: Algorithm, data: &[u8]) -> u32 {
        u32::from_be_bytes(RunningChecksum::of(algorithm, data).bytes().try_into().unwrap())
    }

    #[test]
    fn values_match_the_protocol() {
        for (algorithm, want) in [
            (Algorithm::Adler32, "091e01de"),
            (Algorithm::Crc32, "377a6011"),
            (Algorithm::Crc32c, "e3069283"),
            (Algorithm::Zcrc32, "2639f4cb"),
            (Algorithm::Md5, "25f9e794323b453885f5181f1b624d0b"),
            (Algorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            (Algorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
        ] {
            let got = RunningChecksum::of(algorithm, b"123456789");
            assert_eq!(got.hex(), want, "{algorithm}");
            assert_eq!(Checksum::from_hex(algorithm, &want.to_uppercase()), Some(got));
            assert_eq!(Checksum::from_bytes(algorithm, got.bytes()), Some(got));
            assert_eq!(Checksum::from_hex(algorithm, &want[1..]), None);
            assert_eq!(Checksum::from_hex(algorithm, &format!("{want}00")), None);
        }
        assert_eq!(Checksum::from_hex(Algorithm::Adler32, "0x91e01d"), None);
        assert_eq!(Checksum::from_hex(Algorithm::Adler32, "+91e01de"), None);
    }

    #[test]
    fn values_of_empty_data() {
        for (algorithm, want) in [
            (Algorithm::Adler32, "00000001"),
            (Algorithm::Crc32, "ffffffff"),
            (Algorithm::Crc32c, "00000000"),
            (Algorithm::Zcrc32, "00000000"),
            (Algorithm::Md5, "d41d8cd98f00b204e9800998ecf8427e"),
        ] {
            assert_eq!(RunningChecksum::new(algorithm).finish().hex(), want, "{algorithm}");
        }
    }

    proptest! {
        #[test]
        fn fast_implementations_equal_naive_ones(data in prop::collection::vec(any::<u8>(), 0..9000)) {
            prop_assert_eq!(value(Algorithm::Adler32, &data), naive_adler(&data));
            prop_assert_eq!(value(Algorithm::Crc32, &data), naive_cksum(&data));
            prop_assert_eq!(value(Algorithm::Crc32c, &data), naive_reflected(0x82f6_3b78, &data));
            prop_assert_eq!(crate::crc32c(&data), naive_reflected(0x82f6_3b78, &data));
            let zlib = naive_reflected(0xedb8_8320, &data);
            prop_assert_eq!(value(Algorithm::Zcrc32, &data), zlib.swap_bytes());
        }

        #[test]
        fn the_split_of_the_data_does_not_matter(
            data in prop::collection::vec(any::<u8>(), 0..3000),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
            cuts.sort_unstable();
            for algorithm in Algorithm::ALL {
                let mut running = RunningChecksum::new(algorithm);
                let mut from = 0;
                for &cut in &cuts {
                    running.update(&data[from..cut]);
                    // An intermediate value does not affect the further computation.
                    prop_assert_eq!(running.clone().finish(), RunningChecksum::of(algorithm, &data[..cut]));
                    from = cut;
                }
                running.update(&data[from..]);
                prop_assert_eq!(running.finish(), RunningChecksum::of(algorithm, &data));
            }
        }
    }
}
