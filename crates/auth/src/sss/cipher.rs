//! The cipher of `sss`: Blowfish in 64-bit cipher feedback with an initialization vector of zeros.
//!
//! The constructors of the library stop at keys of 56 bytes, but peers use up to 72, so the key
//! schedule is made by the state expansion of bcrypt without a salt, which is the standard one.

use blowfish::Blowfish;

/// Bytes of a key that enter the key schedule; the rest of a longer key has no effect.
const SCHEDULE_BYTES: usize = 72;
const BLOCK_BYTES: usize = 8;

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
