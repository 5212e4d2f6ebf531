//! The cipher with the session key: it encrypts the inner messages, and signatures of requests.
//!
//! Source: security facts, section 2.6.5.

use super::modular::without_leading_zeros;
use crate::random::SystemRng;
use crate::secret::Secret;
use crate::signing::SignatureCipher;
use aes::{Aes128, Aes256};
use base::Rng;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};

/// Length of the initialization vector in front of encrypted bytes.
pub(super) const IV_BYTES: usize = 16;

/// A cipher of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GsiCipher {
    /// AES with keys of 256 bits.
    Aes256,
    /// AES with keys of 128 bits.
    Aes128,
}

impl GsiCipher {
    /// All ciphers with their names, in the order of preference.
    pub const ALL: [(&'static str, Self); 2] = [("aes-256-cbc", Self::Aes256), ("aes-128-cbc", Self::Aes128)];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes256 => "aes-256-cbc",
            Self::Aes128 => "aes-128-cbc",
        }
    }

    /// Returns the cipher with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, cipher)| *cipher)
    }

    const fn key_bytes(self) -> usize {
        match self {
            Self::Aes256 => 32,
            Self::Aes128 => 16,
        }
    }
}

/// A cipher with its key.
pub(super) struct SessionCipher {
    cipher: GsiCipher,
    key: Secret,
    /// Encrypted bytes begin with a random initialization vector. Without it, that is zero.
    has_iv: bool,
}

impl SessionCipher {
    /// Takes the key from the secret of a key agreement; `None` if that is too short.
    pub(super) fn new(cipher: GsiCipher, secret: &Secret) -> Option<Self> {
        let key = secret.expose().get(..cipher.key_bytes())?;
        Some(Self { cipher, key: Secret::from(key), has_iv: true })
    }

    /// Takes the key from the secret of an old key agreement, which has no zeros in front.
    pub(super) fn of_old_agreement(cipher: GsiCipher, secret: &Secret) -> Option<Self> {
        let key = without_leading_zeros(secret.expose()).get(..cipher.key_bytes())?;
        Some(Self { cipher, key: Secret::from(key), has_iv: false })
    }

    /// Encrypts with a random initialization vector, which precedes the result.
    pub(super) fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let mut iv = [0; IV_BYTES];
        if self.has_iv {
            SystemRng.fill(&mut iv);
        }
        self.seal_with(iv, plain)
    }

    fn seal_with(&self, iv: [u8; IV_BYTES], plain: &[u8]) -> Vec<u8> {
        let key = self.key.expose();
        let encrypted = match self.cipher {
            GsiCipher::Aes256 => cbc::Encryptor::<Aes256>::new_from_slices(key, &iv)
                .map(|cipher| cipher.encrypt_padded_vec::<Pkcs7>(plain)),
            GsiCipher::Aes128 => cbc::Encryptor::<Aes128>::new_from_slices(key, &iv)
                .map(|cipher| cipher.encrypt_padded_vec::<Pkcs7>(plain)),
        };
        // The length of the key is that of the cipher.
        let encrypted = encrypted.unwrap_or_default();
        if self.has_iv { [iv.as_slice(), &encrypted].concat() } else { encrypted }
    }

    /// Decrypts what [`SessionCipher::seal`] has made; `None` if it is something else.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<Secret> {
        let (iv, encrypted) =
            if self.has_iv { sealed.split_at_checked(IV_BYTES)? } else { ([0; IV_BYTES].as_slice(), sealed) };
        let key = self.key.expose();
        let plain = match self.cipher {
            GsiCipher::Aes256 => cbc::Decryptor::<Aes256>::new_from_slices(key, iv)
                .ok()?
                .decrypt_padded_vec::<Pkcs7>(encrypted),
            GsiCipher::Aes128 => cbc::Decryptor::<Aes128>::new_from_slices(key, iv)
                .ok()?
                .decrypt_padded_vec::<Pkcs7>(encrypted),
        };
        plain.ok().map(Secret::new)
    }
}

impl SignatureCipher for SessionCipher {
    fn encrypt(&self, hash: &[u8; 32]) -> Vec<u8> {
        self.seal(hash)
    }

    fn decrypt(&self, signature: &[u8]) -> Option<[u8; 32]> {
        self.open(signature)?.expose().try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gsi::vectors::{bytes, list, load, text};

    #[test]
    fn recorded_messages_and_signatures() {
        let vector = load("gsi.json");
        let (mut messages, mut signatures) = (0, 0);
        for connection in list(&vector["connections"]) {
            let Some(secret) = connection["secrets"]["shared_secret"].as_str() else { continue };
            let cipher = SessionCipher::new(GsiCipher::Aes128, &Secret::new(bytes(secret))).unwrap();
            for decoded in list(&connection["decoded"]) {
                let Some(iv) = decoded["main_iv_hex"].as_str() else { continue };
                let plain = bytes(text(decoded, "main_plain_hex"));
                let sealed = cipher.seal_with(bytes(iv).try_into().unwrap(), &plain);
                let main = list(&decoded["buckets"]).iter().find(|bucket| bucket["bucket"] == "main");
                assert_eq!(sealed.len() as u64, main.unwrap()["len"].as_u64().unwrap());
                assert!(cipher.open(&sealed).unwrap().is_equal(&plain));
                messages += 1;
            }
            for signature in list(&connection["signatures"]) {
                let hash: [u8; 32] = bytes(text(signature, "hash_hex")).try_into().unwrap();
                assert_eq!(cipher.decrypt(&bytes(text(signature, "sig_hex"))), Some(hash));
                signatures += 1;
            }
        }
        assert_eq!((messages, signatures), (8, 3));
    }

    #[test]
    fn other_bytes_are_not_opened() {
        for (_, kind) in GsiCipher::ALL {
            let cipher = SessionCipher::new(kind, &Secret::new(vec![7; 384])).unwrap();
            let sealed = cipher.seal(&[1; 32]);
            assert_eq!(sealed.len(), 64);
            assert!(cipher.open(&sealed).unwrap().is_equal(&[1; 32]));
            for length in 0..sealed.len() {
                assert!(cipher.decrypt(&sealed[..length]).is_none(), "{length}");
            }
            let other = SessionCipher::new(kind, &Secret::new(vec![8; 384])).unwrap();
            assert!(!other.open(&sealed).is_some_and(|plain| plain.is_equal(&[1; 32])));
            assert_eq!(GsiCipher::from_name(kind.name()), Some(kind));
        }
        assert!(SessionCipher::new(GsiCipher::Aes256, &Secret::new(vec![7; 31])).is_none());
        assert!(GsiCipher::from_name("bf-cbc").is_none());
    }
}
