//! Hashes of passwords. A client sends a hash of the password, and a server stores a hash of that hash
//! with a salt.

use crate::secret::Secret;
use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA1, derive, verify};
use base::Rng;
use std::num::NonZeroU32;

/// Maximum length of a password in bytes.
pub const PASSWORD_BYTES_MAX: usize = 256;

/// Length of the hashes in bytes.
pub(super) const HASH_BYTES: usize = 24;

/// Number of iterations, unless the salt has another one.
pub(super) const ITERATIONS: NonZeroU32 = NonZeroU32::new(10_000).unwrap();

/// Maximum number of iterations. More would occupy a thread of logins for seconds.
const ITERATIONS_MAX: u32 = 1_000_000;

/// Length of the salts that are made here in bytes.
const SALT_BYTES: usize = 8;

/// The mark around a number of iterations in front of a salt.
const ITERATIONS_MARK: &[u8] = b"$$";

/// Returns the hash that a client sends for a password.
pub(super) fn credentials_of(password: &[u8]) -> Secret {
    let mut hash = vec![0; HASH_BYTES];
    derive(PBKDF2_HMAC_SHA1, ITERATIONS, password, password, &mut hash);
    Secret::new(hash)
}

/// The hash of a password as a server stores it.
#[derive(Clone, Debug)]
pub struct StoredPassword {
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl StoredPassword {
    /// Hashes a password with a random salt.
    #[must_use]
    pub fn of_password(password: &Secret, rng: &mut dyn Rng) -> Self {
        Self::of_credentials(credentials_of(password.expose()).expose(), rng)
    }

    /// Hashes the hash that a client has sent with a random salt.
    pub(super) fn of_credentials(credentials: &[u8], rng: &mut dyn Rng) -> Self {
        let mut random = [0; SALT_BYTES];
        rng.fill(&mut random);
        let salt: Vec<u8> = random.iter().map(|byte| crate::challenge::letter(*byte)).collect();
        let mut hash = vec![0; HASH_BYTES];
        derive(PBKDF2_HMAC_SHA1, ITERATIONS, &salt, credentials, &mut hash);
        Self { salt, hash }
    }

    /// Takes the buffers of an entry; `None` if they are not a salt and a hash.
    pub(super) fn of_buffers(salt: &[u8], hash: &[u8]) -> Option<Self> {
        let stored = Self { salt: salt.to_vec(), hash: hash.to_vec() };
        (hash.len() == HASH_BYTES && !salt.is_empty() && stored.parameters().is_some()).then_some(stored)
    }

    /// Returns the buffers of an entry: the salt and the hash.
    #[must_use]
    pub fn buffers(&self) -> [&[u8]; 2] {
        [&self.salt, &self.hash]
    }

    /// Returns the number of iterations and the salt without it.
    fn parameters(&self) -> Option<(NonZeroU32, &[u8])> {
        let Some(rest) = self.salt.strip_prefix(ITERATIONS_MARK) else {
            return Some((ITERATIONS, &self.salt));
        };
        let end = rest.iter().position(|byte| *byte == b'$')?;
        let (number, salt) = rest.split_at_checked(end)?;
        let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
        let number = NonZeroU32::new(number).filter(|number| number.get() <= ITERATIONS_MAX)?;
        Some((number, salt.get(1..)?))
    }

    /// Reports whether a client sent the hash of this password. It computes for milliseconds.
    pub(super) fn is_password_of(&self, credentials: &[u8]) -> bool {
        self.parameters().is_some_and(|(iterations, salt)| {
            verify(PBKDF2_HMAC_SHA1, iterations, salt, credentials, &self.hash).is_ok()
        })
    }

    /// Returns the cost of a check.
    pub(super) fn iterations(&self) -> u32 {
        self.parameters().map_or(0, |(iterations, _)| iterations.get())
    }
}

/// Computes as long as a check with this number of iterations.
pub(super) fn spend(iterations: u32) {
    if let Some(iterations) = NonZeroU32::new(iterations) {
        let mut hash = [0; HASH_BYTES];
        derive(PBKDF2_HMAC_SHA1, iterations, b"", b"", &mut hash);
        std::hint::black_box(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRng;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn a_hash_of_the_real_program_is_verified() {
        let hash = hex("a210084a25ab88519e59b08df8ed9f576aca8cc1ffcfd88c");
        let stored = StoredPassword::of_buffers(b"MywE1N00", &hash).unwrap();
        assert!(stored.is_password_of(credentials_of(b"SLitcLPA").expose()));
        assert!(!stored.is_password_of(credentials_of(b"SLitcLPB").expose()));
        assert!(!stored.is_password_of(b"") && !stored.is_password_of(b"SLitcLPA"));
    }

    #[test]
    fn a_password_is_hashed_with_a_salt() {
        let password = Secret::from(&b"secret12"[..]);
        let (one, other) = (
            StoredPassword::of_password(&password, &mut SystemRng),
            StoredPassword::of_password(&password, &mut SystemRng),
        );
        assert_ne!(one.buffers(), other.buffers());
        assert!(one.is_password_of(credentials_of(b"secret12").expose()));
        assert_eq!(one.iterations(), ITERATIONS.get());
    }

    #[test]
    fn a_salt_can_set_the_iterations() {
        let mut hash = vec![0; HASH_BYTES];
        let two = NonZeroU32::new(2).unwrap();
        derive(PBKDF2_HMAC_SHA1, two, b"salt", credentials_of(b"p").expose(), &mut hash);
        let stored = StoredPassword::of_buffers(b"$$2$salt", &hash).unwrap();
        assert!(stored.is_password_of(credentials_of(b"p").expose()) && stored.iterations() == 2);
        for malformed in [&b""[..], b"$$", b"$$x$salt", b"$$0$salt", b"$$1000001$salt", b"$$2"] {
            assert!(StoredPassword::of_buffers(malformed, &hash).is_none(), "{malformed:?}");
        }
        assert!(StoredPassword::of_buffers(b"salt", &hash[1..]).is_none());
    }
}
