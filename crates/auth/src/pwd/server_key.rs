//! [`ServerKey`]: the static key of a server for the key agreement, and its entry in the file.
//!
//! ```text
//! buffer = 3 * 0(i32)  4 * length(i32)  prime  generator  public value  private exponent
//! ```
//!
//! The lengths are little-endian, and the numbers hexadecimal text.

use super::file::{EntryStatus, PwdEntry, PwdFile};
use crate::gsi::agreement::{DhGroup, KeyAgreement, PRIME_BITS_MIN, PeerAgreement};
use crate::secret::Secret;
use base::Rng;
use zeroize::Zeroizing;

/// The name of the entry with the id of a server.
pub const SERVER_ID: &str = "+++SrvID";

/// The name of the entry with the key of a server.
pub const SERVER_KEY: &str = "+++SrvPuk_1";

/// Number of lengths in front of the numbers.
const LENGTHS: usize = 7;

/// Maximum length of a number as text.
const DIGITS_MAX: usize = 2048;

/// The key of a server.
pub struct ServerKey {
    agreement: KeyAgreement,
}

impl ServerKey {
    /// Makes a key in the group of all our servers; `None` if that group is malformed.
    #[must_use]
    pub fn generate(rng: &mut dyn Rng) -> Option<Self> {
        Some(Self { agreement: KeyAgreement::generate(DhGroup::named()?, rng)? })
    }

    /// Reads the key of a file.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn of_file(file: &PwdFile, rng: &mut dyn Rng) -> Result<Self, String> {
        let entry = file.find(SERVER_KEY).ok_or("it has no key of the server")?;
        let [buffer, ..] = &entry.buffers;
        Self::decode(buffer.expose(), rng)
    }

    fn decode(buffer: &[u8], rng: &mut dyn Rng) -> Result<Self, String> {
        let malformed = || "the key of the server is malformed".to_owned();
        let (lengths, mut rest) = buffer.split_at_checked(4 * LENGTHS).ok_or_else(malformed)?;
        let mut numbers = Vec::with_capacity(LENGTHS);
        for length in lengths.as_chunks().0 {
            let length = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| malformed())?;
            let (digits, after) =
                rest.split_at_checked(length).filter(|_| length <= DIGITS_MAX).ok_or_else(malformed)?;
            numbers.push(digits);
            rest = after;
        }
        let [_, _, _, prime, generator, _, exponent] = numbers.as_slice() else { return Err(malformed()) };
        let number = |digits: &[u8]| {
            let text = std::str::from_utf8(digits).ok()?;
            crate::gsi::agreement::number_of_hex(text).map(Zeroizing::new)
        };
        let (prime, generator) =
            (number(prime).ok_or_else(malformed)?, number(generator).ok_or_else(malformed)?);
        let exponent = number(exponent).ok_or_else(malformed)?;
        let group = DhGroup::of_numbers(&prime, &generator).ok_or_else(malformed)?;
        let group = group.safe(PRIME_BITS_MIN, rng).map_err(|error| {
            format!("{error}; make a key by xrdpwdadmin -changepuk, and let clients forget the old one")
        })?;
        let agreement = KeyAgreement::with_exponent(group, Secret::from(exponent.as_slice()));
        agreement.map(|agreement| Self { agreement }).ok_or_else(malformed)
    }

    /// Returns the entry for a file. `now` is the time in seconds since 1970.
    #[must_use]
    pub fn entry(&self, now: u32) -> PwdEntry {
        let numbers = self.agreement.hex_numbers();
        let mut buffer = Zeroizing::new(vec![0; 4 * (LENGTHS - numbers.len())]);
        for number in &numbers {
            buffer.extend_from_slice(&u32::try_from(number.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
        numbers.iter().for_each(|number| buffer.extend_from_slice(number.as_bytes()));
        let buffers =
            [Secret::from(buffer.as_slice()), Secret::default(), Secret::default(), Secret::default()];
        PwdEntry {
            name: SERVER_KEY.to_owned(),
            status: EntryStatus::SPECIAL,
            count: 2,
            changed: now,
            buffers,
        }
    }

    /// Returns the text for clients.
    pub(super) fn text(&self) -> String {
        self.agreement.text()
    }

    /// Returns the common secret with the public key of a client.
    pub(super) fn agree(&self, client: &[u8]) -> Result<Secret, String> {
        let peer = PeerAgreement::decode(client).map_err(|error| error.to_string())?;
        self.agreement.agree(&peer).map_err(|error| error.to_string())
    }
}

impl PwdFile {
    /// Creates the file of a server without users; `None` if no key can be made. `now` is the time in
    /// seconds since 1970.
    #[must_use]
    pub fn of_new_server(id: &str, rng: &mut dyn Rng, now: u32) -> Option<Self> {
        let mut file = Self::default();
        file.set_server_id(id, now);
        file.set(ServerKey::generate(rng)?.entry(now));
        Some(file)
    }

    /// Sets the id of the server.
    pub fn set_server_id(&mut self, id: &str, now: u32) {
        let text = Secret::new([id.as_bytes(), b"\0"].concat());
        let buffers = [text, Secret::default(), Secret::default(), Secret::default()];
        let (name, status) = (SERVER_ID.to_owned(), EntryStatus::SPECIAL);
        self.set(PwdEntry { name, status, count: 1, changed: now, buffers });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRng;

    #[test]
    fn a_key_survives_encoding() {
        let key = ServerKey::generate(&mut SystemRng).unwrap();
        let mut file = PwdFile::default();
        assert!(ServerKey::of_file(&file, &mut SystemRng).is_err());
        file.set(key.entry(7));
        let again = ServerKey::of_file(&PwdFile::decode(&file.encode(7)).unwrap(), &mut SystemRng).unwrap();
        assert_eq!(again.text(), key.text());
        let client = KeyAgreement::generate(DhGroup::named().unwrap(), &mut SystemRng).unwrap();
        let secret = key.agree(client.text().as_bytes()).unwrap();
        assert!(secret.is_equal(again.agree(client.text().as_bytes()).unwrap().expose()));
        let [buffer, ..] = key.entry(7).buffers;
        for length in 0..buffer.expose().len() {
            assert!(ServerKey::decode(&buffer.expose()[..length], &mut SystemRng).is_err(), "{length}");
        }
    }

    #[test]
    fn a_key_in_a_small_group_is_refused() {
        let prime = "A52EB435BF6214D51C8E7EBADFFA4571ACCB9A8716B23E19E54B78A8F0B8B8158382A7287558C072BD\
                     93470146CCCA66A67BF4B32298523B85279A95FD5050F7";
        let prime: String = prime.split_whitespace().collect();
        let lengths =
            [0, 0, 0, prime.len(), 2, 2, 2].map(|length| u32::try_from(length).unwrap().to_le_bytes());
        let buffer = [&lengths.concat()[..], prime.as_bytes(), b"05", b"02", b"07"].concat();
        let error = ServerKey::decode(&buffer, &mut SystemRng).map(drop).unwrap_err();
        assert!(error.contains("512 bits") && error.contains("-changepuk"), "{error}");
    }
}
