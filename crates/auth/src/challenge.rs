//! [`Challenge`]: text of `gsi` and `pwd` by which the peer proves that it has a key.

use crate::sut::{SutField, SutMessage};
use base::Rng;

const CHALLENGE_BYTES: usize = 8;
const LETTERS: [u8; 64] = *b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A challenge, which the peer signs or encrypts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenge(pub(crate) [u8; CHALLENGE_BYTES]);

impl Challenge {
    pub(crate) fn random(rng: &mut dyn Rng) -> Self {
        let mut random = [0; CHALLENGE_BYTES];
        rng.fill(&mut random);
        Self(random.map(letter))
    }

    /// Takes the challenge of a peer; `None` for other text, which is never signed or encrypted.
    pub(crate) fn of_peer(message: &SutMessage<'_>) -> Option<Self> {
        let text: [u8; CHALLENGE_BYTES] = message.field(SutField::CHALLENGE)?.try_into().ok()?;
        text.iter().all(|letter| LETTERS.contains(letter)).then_some(Self(text))
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the letter of a random byte.
pub(crate) fn letter(random: u8) -> u8 {
    LETTERS.get(usize::from(random & 63)).copied().unwrap_or(b'.')
}
