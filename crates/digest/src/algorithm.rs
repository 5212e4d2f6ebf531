//! The supported checksum types and their names on the wire.

use std::fmt;
use std::str::FromStr;

/// A type of checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Algorithm {
    /// Adler-32 of RFC 1950.
    Adler32,
    /// CRC of POSIX `cksum`: polynomial 04c11db7, not reflected, length appended. It differs from
    /// the CRC-32 of zlib.
    Crc32,
    /// CRC-32C (Castagnoli, reflected), which page checksums use.
    Crc32c,
    /// CRC-32 of zlib with its four bytes in little-endian order.
    Zcrc32,
    /// MD5 of RFC 1321.
    Md5,
    /// SHA-1 of FIPS 180.
    Sha1,
    /// SHA-256 of FIPS 180.
    Sha256,
}

impl Algorithm {
    /// All types.
    pub const ALL: [Self; 7] =
        [Self::Adler32, Self::Crc32, Self::Crc32c, Self::Zcrc32, Self::Md5, Self::Sha1, Self::Sha256];

    /// Returns the name on the wire, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "adler32",
            Self::Crc32 => "crc32",
            Self::Crc32c => "crc32c",
            Self::Zcrc32 => "zcrc32",
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// Returns the type with this name, ignoring case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// Returns the length of a value in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Adler32 | Self::Crc32 | Self::Crc32c | Self::Zcrc32 => 4,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for an unknown type name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownAlgorithm;

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        Self::from_name(name).ok_or(UnknownAlgorithm)
    }
}

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown checksum type; known are")?;
        Algorithm::ALL.iter().try_for_each(|algorithm| write!(f, " {algorithm}"))
    }
}

impl std::error::Error for UnknownAlgorithm {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_in_any_case_and_written_in_lower_case() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().to_uppercase().parse(), Ok(algorithm));
        }
        assert_eq!(Algorithm::from_name("crc64"), None);
        assert_eq!(Algorithm::from_name("crc32 "), None);
    }
}
