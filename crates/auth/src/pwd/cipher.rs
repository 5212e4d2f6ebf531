//! The cipher of the inner messages: Blowfish in CBC mode with the secret of the key agreement.
//!
//! The initialization vector on the wire has 16 bytes, of which the first 8 are used. The key schedule
//! is that of `sss`, because keys of up to 64 bytes are longer than the constructors of the library
//! accept.

use crate::gsi::without_leading_zeros;
use crate::random::SystemRng;
use crate::secret::Secret;
use base::Rng;
use blowfish::Blowfish;
use blowfish::cipher::{BlockDecrypt, BlockEncrypt};

const BLOCK_BYTES: usize = 8;

/// Length of the initialization vector in front of encrypted bytes.
const IV_BYTES: usize = 16;

/// Maximum length of the key in bytes.
const KEY_BYTES_MAX: usize = 64;

/// A cipher with its key.
pub(super) struct PwdCipher(Box<Blowfish>);

impl PwdCipher {
    /// Takes the key from the secret of a key agreement. Peers strip its zeros in front; `None` if
    /// nothing is left.
    pub(super) fn new(secret: &Secret) -> Option<Self> {
        let stripped = without_leading_zeros(secret.expose());
        if stripped.is_empty() {
            return None;
        }
        let mut state = Box::new(Blowfish::bc_init_state());
        state.bc_expand_key(stripped.get(..KEY_BYTES_MAX).unwrap_or(stripped));
        Some(Self(state))
    }

    /// Encrypts with a random initialization vector, which precedes the result.
    pub(super) fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let mut iv = [0; IV_BYTES];
        SystemRng.fill(&mut iv);
        self.seal_with(iv, plain)
    }

    pub(super) fn seal_with(&self, iv: [u8; IV_BYTES], plain: &[u8]) -> Vec<u8> {
        let padding = BLOCK_BYTES - plain.len() % BLOCK_BYTES;
        let mut padded = plain.to_vec();
        padded.resize(plain.len() + padding, u8::try_from(padding).unwrap_or(0));
        let mut chain = iv.first_chunk().copied().unwrap_or_default();
        for block in padded.as_chunks_mut::<BLOCK_BYTES>().0 {
            block.iter_mut().zip(chain).for_each(|(byte, chained)| *byte ^= chained);
            let mut encrypted = (*block).into();
            self.0.encrypt_block(&mut encrypted);
            *block = encrypted.into();
            chain = *block;
        }
        [iv.as_slice(), &padded].concat()
    }

    /// Decrypts what [`PwdCipher::seal`] has made; `None` if it is something else.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<Secret> {
        let (iv, encrypted) = sealed.split_at_checked(IV_BYTES)?;
        let (blocks, []) = encrypted.as_chunks::<BLOCK_BYTES>() else { return None };
        let mut chain: [u8; BLOCK_BYTES] = *iv.first_chunk()?;
        let mut plain = Vec::with_capacity(encrypted.len());
        for block in blocks {
            let mut decrypted = (*block).into();
            self.0.decrypt_block(&mut decrypted);
            plain.extend(decrypted.iter().zip(chain).map(|(byte, chained)| byte ^ chained));
            chain = *block;
        }
        let padding = usize::from(*plain.last()?);
        let length = plain.len().checked_sub(padding)?;
        let is_padding = (1..=BLOCK_BYTES).contains(&padding)
            && plain.get(length..)?.iter().all(|byte| usize::from(*byte) == padding);
        let mut plain = zeroize::Zeroizing::new(plain);
        plain.truncate(length);
        is_padding.then(|| Secret::from(plain.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_not_opened() {
        let cipher = PwdCipher::new(&Secret::new(vec![7; 384])).unwrap();
        for length in [0, 1, 7, 8, 9, 64] {
            let plain = vec![3; length];
            let sealed = cipher.seal(&plain);
            assert_eq!(sealed.len(), IV_BYTES + (length / 8 + 1) * 8);
            assert!(cipher.open(&sealed).unwrap().is_equal(&plain));
            for end in 0..sealed.len() {
                let part = cipher.open(&sealed[..end]);
                assert!(!part.is_some_and(|part| part.is_equal(&plain)), "{end} of {}", sealed.len());
            }
        }
        // The key ends after 64 bytes, and begins after zeros.
        let longer = [vec![0; 5], vec![7; 64], vec![9; 64]].concat();
        let sealed = PwdCipher::new(&Secret::new(longer)).unwrap().seal(b"text");
        assert!(cipher.open(&sealed).unwrap().is_equal(b"text"));
        let other = PwdCipher::new(&Secret::new(vec![8; 384])).unwrap();
        assert!(!other.open(&sealed).is_some_and(|plain| plain.is_equal(b"text")));
        assert!(PwdCipher::new(&Secret::new(vec![0; 64])).is_none());
    }
}
