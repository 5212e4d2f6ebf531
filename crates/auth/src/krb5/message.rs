//! The framing of credentials: the id of the protocol and one DER message.
//!
//! The Kerberos library decodes the message. It ignores bytes after it, so the length is checked here.

use super::PREFIX;

/// The kind of a message by its tag, an application class of ASN.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KerberosMessage {
    /// The proof of the client's principal.
    ApReq = 0x6e,
    /// A ticket of the user.
    KrbCred = 0x76,
}

/// Bit of the first octet of a length that is longer than one octet.
const LONG_LENGTH: u8 = 0x80;
/// Maximum number of further octets of a length.
const LENGTH_OCTETS_MAX: usize = 4;

/// Returns the message in credentials, with its tag and length.
///
/// # Errors
/// The credentials are not exactly one message of this kind.
pub fn message(credentials: &[u8], kind: KerberosMessage) -> Result<&[u8], &'static str> {
    let message = credentials.strip_prefix(PREFIX).ok_or("the credentials are malformed")?;
    let (tag, rest) = message.split_first().ok_or("the credentials are empty")?;
    if *tag != kind as u8 {
        return Err(match kind {
            KerberosMessage::ApReq => "the credentials are not an AP-REQ",
            KerberosMessage::KrbCred => "the credentials are not a KRB-CRED",
        });
    }
    let (length, content) = length(rest).ok_or("the length of the credentials is malformed")?;
    if content.len() < length {
        return Err("the credentials are shorter than their length");
    }
    if content.len() > length {
        return Err("there are bytes after the credentials");
    }
    Ok(message)
}

/// Splits a length from the bytes behind it. DER has exactly one form of each length.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    if first & LONG_LENGTH == 0 {
        return Some((usize::from(*first), rest));
    }
    let count = usize::from(first & !LONG_LENGTH);
    let (octets, rest) = rest.split_at_checked(count).filter(|_| count <= LENGTH_OCTETS_MAX)?;
    let length = octets.iter().fold(0_usize, |length, octet| length << 8 | usize::from(*octet));
    let is_shortest = octets.first().is_some_and(|first| *first != 0) && length >= usize::from(LONG_LENGTH);
    is_shortest.then_some((length, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(length: &[u8], content: usize) -> Vec<u8> {
        [PREFIX, &[0x6e], length, &vec![7; content]].concat()
    }

    #[test]
    fn each_form_of_a_length_is_read() {
        for (length, content) in [
            (&[0_u8][..], 0),
            (&[127], 127),
            (&[0x81, 128], 128),
            (&[0x81, 255], 255),
            (&[0x82, 1, 0], 256),
            (&[0x83, 1, 0, 0], 65_536),
        ] {
            let credentials = framed(length, content);
            let found = message(&credentials, KerberosMessage::ApReq);
            assert_eq!(found.map(<[u8]>::len), Ok(1 + length.len() + content), "{length:x?}");
        }
    }

    /// S056: bytes after the message.
    #[test]
    fn the_length_must_be_that_of_the_credentials() {
        for (length, content, expected) in [
            (&[3_u8][..], 4, "bytes after"),
            (&[3], 2, "shorter"),
            (&[0x82, 1, 0], 255, "shorter"),
            (&[0x82, 1, 0], 257, "bytes after"),
            (&[0x84, 0xff, 0xff, 0xff, 0xff], 9, "shorter"),
        ] {
            let found = message(&framed(length, content), KerberosMessage::ApReq).unwrap_err();
            assert!(found.contains(expected), "{length:x?}: {found}");
        }
    }

    #[test]
    fn lengths_that_are_not_der_are_refused() {
        for length in [
            &[][..],
            // Indefinite.
            &[0x80],
            // Longer than necessary.
            &[0x81, 5],
            &[0x82, 0, 200],
            // Cut, and too long for any message.
            &[0x82, 1],
            &[0x85, 0, 0, 0, 0, 5],
            &[0xff],
        ] {
            let credentials = [PREFIX, &[0x6e], length].concat();
            assert!(message(&credentials, KerberosMessage::ApReq).is_err(), "{length:x?}");
        }
    }

    #[test]
    fn other_messages_and_protocols_are_refused() {
        let request = framed(&[1], 1);
        assert!(message(&request, KerberosMessage::KrbCred).unwrap_err().contains("not a KRB-CRED"));
        assert!(message(b"krb5\0\x76\x01\x07", KerberosMessage::ApReq).unwrap_err().contains("AP-REQ"));
        assert!(message(b"krb5\0", KerberosMessage::ApReq).unwrap_err().contains("empty"));
        assert!(message(b"krb6\0\x6e\x01\x07", KerberosMessage::ApReq).unwrap_err().contains("malformed"));
    }
}
