//! [`Secret`]: bytes that are wiped when they are dropped and that no message can contain.

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Secret bytes. They are wiped on drop, `Debug` does not show them, and comparison takes the same
/// time for all values of one length.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of the bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the bytes. The caller must not copy them into memory that is not wiped.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Reports whether both have the same bytes, without revealing by the time where they differ.
    #[must_use]
    pub fn is_equal(&self, other: &[u8]) -> bool {
        self.0.ct_eq(other).into()
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes.to_vec())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed_and_compares_whole() {
        let secret = Secret::from(&b"hunter2"[..]);
        assert_eq!(format!("{secret:?}"), "Secret(7 bytes)");
        assert!(secret.is_equal(b"hunter2"));
        assert!(!secret.is_equal(b"hunter3") && !secret.is_equal(b"hunter") && !secret.is_equal(b""));
    }
}
