//! The format of libmacaroons, version 1: packets in base64 with the alphabet of URLs.
//!
//! A packet is `LLLLkey value\n`, where `LLLL` is its whole length as four hexadecimal digits. The
//! order is `location`, `identifier`, one `cid` for each caveat, `signature`. `vid` and `cl` behind a
//! `cid` belong to caveats that other services check.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// Maximum length of the text of a macaroon in bytes.
pub const MACAROON_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of caveats. Servers issue four, and each one costs an authentication code.
pub const CAVEATS_MAX: usize = 64;
/// Length of a signature in bytes.
pub(super) const SIGNATURE_BYTES: usize = 32;

/// Digits of the length of a packet.
const LENGTH_BYTES: usize = 4;
/// Maximum length of a packet in bytes.
const PACKET_BYTES_MAX: usize = 0xffff;
/// Characters that show the begin of the first packet: 12 bytes.
const BEGIN_CHARACTERS: usize = 16;

/// Padding is not needed, but accepted.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A macaroon that is not verified.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Macaroon {
    pub(super) location: Vec<u8>,
    pub(super) identifier: Vec<u8>,
    pub(super) caveats: Vec<Vec<u8>>,
    /// Another service must check one of the caveats.
    pub(super) has_third_party: bool,
    pub(super) signature: [u8; SIGNATURE_BYTES],
}

/// Reports whether a text begins like a macaroon. The rest may be malformed.
#[must_use]
pub fn is_macaroon_text(text: &[u8]) -> bool {
    let begin = text.get(..BEGIN_CHARACTERS).and_then(|begin| BASE64.decode(begin).ok());
    begin.is_some_and(|begin| {
        begin.get(LENGTH_BYTES..).is_some_and(|key| key == b"location") && begin.starts_with(b"0")
    })
}

impl Macaroon {
    /// Decodes a macaroon.
    ///
    /// # Errors
    /// The violation of the format.
    pub(super) fn decode(text: &[u8]) -> Result<Self, &'static str> {
        if text.len() > MACAROON_BYTES_MAX {
            return Err("it is too long");
        }
        let bytes = BASE64.decode(text).map_err(|_| "it is not base64url")?;
        let mut rest = bytes.as_slice();
        let location = value(packet(&mut rest)?, "location")?.to_vec();
        let identifier = value(packet(&mut rest)?, "identifier")?.to_vec();
        let (mut caveats, mut has_third_party) = (Vec::new(), false);
        let signature = loop {
            match packet(&mut rest)? {
                (b"cid", caveat) => caveats.push(caveat.to_vec()),
                (b"vid" | b"cl", _) if !caveats.is_empty() => has_third_party = true,
                last => break value(last, "signature")?,
            }
        };
        let signature = signature.try_into().map_err(|_| "its signature does not have 32 bytes")?;
        if !rest.is_empty() {
            return Err("bytes follow the signature");
        }
        Ok(Self { location, identifier, caveats, has_third_party, signature })
    }

    /// Encodes the macaroon. `None` if a value is too long for a packet.
    pub(super) fn encode(&self) -> Option<String> {
        let mut bytes = Vec::new();
        put(&mut bytes, "location", &self.location)?;
        put(&mut bytes, "identifier", &self.identifier)?;
        for caveat in &self.caveats {
            put(&mut bytes, "cid", caveat)?;
        }
        put(&mut bytes, "signature", &self.signature)?;
        Some(BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// Removes the first packet and returns its key and value.
fn packet<'a>(rest: &mut &'a [u8]) -> Result<(&'a [u8], &'a [u8]), &'static str> {
    let digits = rest.get(..LENGTH_BYTES).ok_or("it is cut off")?;
    let length = digits.iter().try_fold(0, |length, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return Err("the length of a packet is not hexadecimal"),
        };
        Ok(length << 4 | usize::from(digit))
    })?;
    let (packet, behind) = rest.split_at_checked(length).ok_or("it is cut off")?;
    *rest = behind;
    let line = packet.get(LENGTH_BYTES..).and_then(|line| line.strip_suffix(b"\n"));
    let line = line.ok_or("a packet has no newline at its end")?;
    let blank = line.iter().position(|byte| *byte == b' ').ok_or("a packet has no value")?;
    let (key, value) = line.split_at_checked(blank).ok_or("a packet has no value")?;
    Ok((key, value.get(1..).unwrap_or_default()))
}

/// Returns the value of a packet that must have a key.
fn value<'a>((found, value): (&[u8], &'a [u8]), key: &str) -> Result<&'a [u8], &'static str> {
    if found == key.as_bytes() { Ok(value) } else { Err("its packets are not those of a macaroon") }
}

fn put(bytes: &mut Vec<u8>, key: &str, value: &[u8]) -> Option<()> {
    // The digits, a blank and a newline.
    let length = LENGTH_BYTES + key.len() + 1 + value.len() + 1;
    if length > PACKET_BYTES_MAX {
        return None;
    }
    bytes.extend_from_slice(format!("{length:04x}{key} ").as_bytes());
    bytes.extend_from_slice(value);
    bytes.push(b'\n');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Macaroon {
        Macaroon {
            location: b"Test-Site".to_vec(),
            identifier: b"some id".to_vec(),
            caveats: vec![b"path:/a".to_vec(), b"x y\n".to_vec()],
            has_third_party: false,
            // Bytes that have a meaning in packets.
            signature: *b"0010cid \n \n\n    \xff\0 0123456789012",
        }
    }

    fn fault(bytes: &[u8]) -> Option<&'static str> {
        Macaroon::decode(BASE64_URL_SAFE_NO_PAD.encode(bytes).as_bytes()).err()
    }

    #[test]
    fn an_encoded_macaroon_is_decoded_again() {
        let text = sample().encode().unwrap();
        assert!(Macaroon::decode(text.as_bytes()).is_ok_and(|decoded| decoded == sample()));
        let padded = text.clone() + &"=".repeat((4 - text.len() % 4) % 4);
        assert!(Macaroon::decode(padded.as_bytes()).is_ok_and(|decoded| decoded == sample()));
        assert!(is_macaroon_text(text.as_bytes()) && is_macaroon_text(&text.as_bytes()[..16]));
        for other in ["", "MDAx", "abc.def.ghi", "alice", "MDAxN2xvY2F0aW9x"] {
            assert!(!is_macaroon_text(other.as_bytes()), "{other}");
        }
        let long = Macaroon { caveats: vec![vec![b'x'; PACKET_BYTES_MAX]], ..sample() };
        assert_eq!(long.encode(), None);
    }

    #[test]
    fn no_part_of_a_macaroon_is_one() {
        let text = sample().encode().unwrap();
        for end in 0..text.len() {
            assert!(Macaroon::decode(&text.as_bytes()[..end]).is_err(), "{end}");
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
        for end in 0..bytes.len() {
            assert!(fault(&bytes[..end]).is_some(), "{end}");
        }
    }

    #[test]
    fn violations_of_the_format_are_found() {
        let good = b"000flocation x\n0011identifier y\n0010cid path:/a\n".to_vec();
        let signature = [b"002fsignature ".as_slice(), &[7; 32], b"\n"].concat();
        let with = |parts: &[&[u8]]| fault(&parts.concat());
        assert_eq!(with(&[&good, &signature]), None);
        assert_eq!(with(&[&good, b"0007vid \n", &signature]), Some("a packet has no newline at its end"));
        let cases: &[(&[&[u8]], &str)] = &[
            (&[&good, &signature, b"x"], "bytes follow the signature"),
            (&[&good, &signature, &signature], "bytes follow the signature"),
            (&[&good], "it is cut off"),
            (&[b"000Flocation x\n", &good[15..], &signature], "the length of a packet is not hexadecimal"),
            (&[b"+00flocation x\n", &good[15..], &signature], "the length of a packet is not hexadecimal"),
            (&[b"0000", &good, &signature], "a packet has no newline at its end"),
            (&[b"0003", &good, &signature], "a packet has no newline at its end"),
            (&[b"ffffx", &good, &signature], "it is cut off"),
            (&[b"000dlocation\n", &good[15..], &signature], "a packet has no value"),
            (&[&good[15..], &good[..15], &signature], "its packets are not those of a macaroon"),
            (&[&good[..15], &signature], "its packets are not those of a macaroon"),
            (&[&good, &good, &signature], "its packets are not those of a macaroon"),
            (&[&good, b"0009key x\n", &signature], "a packet has no newline at its end"),
            (&[&good, b"000akey x\n", &signature], "its packets are not those of a macaroon"),
            (&[&good[..32], b"0009cl x\n", &signature], "its packets are not those of a macaroon"),
            (&[&good, b"0010signature x\n"], "its signature does not have 32 bytes"),
        ];
        for (parts, expected) in cases {
            assert_eq!(with(parts), Some(*expected), "{parts:?}");
        }
        let third = [good.as_slice(), b"000avid x\n", b"0009cl x\n", &signature].concat();
        let text = BASE64_URL_SAFE_NO_PAD.encode(third);
        assert!(Macaroon::decode(text.as_bytes()).is_ok_and(|found| found.has_third_party));
        let long = "A".repeat(MACAROON_BYTES_MAX + 1);
        assert_eq!(Macaroon::decode(long.as_bytes()).err(), Some("it is too long"));
        for text in ["MDAx!", "MDAx=A==", "abc.def.ghi", "MDAx+/"] {
            assert_eq!(Macaroon::decode(text.as_bytes()).err(), Some("it is not base64url"), "{text}");
        }
    }
}
