//! The cipher of `sss`: Blowfish in 64-bit cipher feedback with an initialization vector of zeros.
//!
//! The constructors of the library stop at keys of 56 bytes, but peers use up to 72, so the key
//! schedule is made by the state expansion of bcrypt without a salt, which is the standard one.

use crate::secret::Secret;
use blowfish::Blowfish;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a key that enter the key schedule; the rest of a longer key has no effect.
const SCHEDULE_BYTES: usize = 72;
const BLOCK_BYTES: usize = 8;
/// Maximum number of key schedules that a server keeps. Each has 4 KiB.
const SCHEDULES_MAX: usize = 64;

/// A key schedule.
pub(super) struct FeedbackCipher(Blowfish);

impl FeedbackCipher {
    /// Creates the schedule of a key. An empty key is taken for a single zero.
    pub(super) fn new(key: &[u8]) -> Self {
        let used = key.get(..SCHEDULE_BYTES).unwrap_or(key);
        let mut state = Blowfish::bc_init_state();
        state.bc_expand_key(if used.is_empty() { &[0] } else { used });
        Self(state)
    }

    /// Encrypts in place.
    pub(super) fn encrypt(&self, data: &mut [u8]) {
        let mut feedback = [0; BLOCK_BYTES];
        for block in data.chunks_mut(BLOCK_BYTES) {
            let stream = self.keystream(feedback);
            for (index, (byte, key)) in block.iter_mut().zip(stream).enumerate() {
                *byte ^= key;
                if let Some(next) = feedback.get_mut(index) {
                    *next = *byte;
                }
            }
        }
    }

    /// Decrypts in place.
    pub(super) fn decrypt(&self, data: &mut [u8]) {
        let mut feedback = [0; BLOCK_BYTES];
        for block in data.chunks_mut(BLOCK_BYTES) {
            let stream = self.keystream(feedback);
            for (index, (byte, key)) in block.iter_mut().zip(stream).enumerate() {
                if let Some(next) = feedback.get_mut(index) {
                    *next = *byte;
                }
                *byte ^= key;
            }
        }
    }

    fn keystream(&self, [a, b, c, d, e, f, g, h]: [u8; BLOCK_BYTES]) -> [u8; BLOCK_BYTES] {
        let halves = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])];
        let [left, right] = self.0.bc_encrypt(halves).map(u32::to_be_bytes);
        let ([a, b, c, d], [e, f, g, h]) = (left, right);
        [a, b, c, d, e, f, g, h]
    }
}

/// The key schedules that were used last. A schedule takes longer than all the rest of a login.
#[derive(Default)]
pub(super) struct KeySchedules(Mutex<VecDeque<(Secret, Arc<FeedbackCipher>)>>);

impl KeySchedules {
    /// Returns the cipher with a key.
    pub(super) fn cipher(&self, key: &Secret) -> Arc<FeedbackCipher> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of = |(known, _): &(Secret, _)| known.is_equal(key.expose());
        if let Some((_, cipher)) = lock().iter().find(|entry| is_of(entry)) {
            return cipher.clone();
        }
        let cipher = Arc::new(FeedbackCipher::new(key.expose()));
        let mut schedules = lock();
        schedules.push_front((key.clone(), cipher.clone()));
        schedules.truncate(SCHEDULES_MAX);
        cipher
    }

    /// Forgets all, after a change of the keys.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_belong_to_their_keys_and_are_bounded() {
        let schedules = KeySchedules::default();
        let key = |number: u8| Secret::new(vec![number; 32]);
        let encrypted = |cipher: &FeedbackCipher| {
            let mut data = *b"some bytes of a packet";
            cipher.encrypt(&mut data);
            data
        };
        let first = schedules.cipher(&key(0));
        assert!(Arc::ptr_eq(&first, &schedules.cipher(&key(0))));
        for number in 0..=u8::MAX {
            let expected = FeedbackCipher::new(key(number).expose());
            assert_eq!(encrypted(&schedules.cipher(&key(number))), encrypted(&expected));
        }
        assert_eq!(schedules.0.lock().unwrap().len(), SCHEDULES_MAX);
        assert!(!Arc::ptr_eq(&first, &schedules.cipher(&key(0))));
        schedules.clear();
        assert!(schedules.0.lock().unwrap().is_empty());
    }
}
