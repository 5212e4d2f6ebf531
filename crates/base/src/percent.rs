//! Percent-encoding, the escapes of URLs. Source: RFC 3986, section 2.1.

/// Digits of escapes.
const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Appends bytes in percent-encoding. Letters, digits, `-._~` and the bytes of `kept` stay.
pub fn percent_encode(out: &mut String, bytes: &[u8], kept: &[u8]) {
    for &byte in bytes {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte);
        if is_plain {
            out.push(char::from(byte));
        } else {
            let digit = |half: u8| char::from(DIGITS.get(usize::from(half)).copied().unwrap_or(b'0'));
            out.push('%');
            out.push(digit(byte >> 4));
            out.push(digit(byte & 15));
        }
    }
}

/// Returns the bytes of a percent-encoded text. `None` if an escape is not two digits.
pub fn percent_decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = text.iter().copied();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
            decoded.push(u8::try_from(value).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_two_digits() {
        assert_eq!(percent_decode(b"a%20%C3%bc").as_deref(), Some("a ü".as_bytes()));
        for text in [&b"%"[..], b"%1", b"%2", b"%zz", b"%+1", b"a%2"] {
            assert_eq!(percent_decode(text), None, "{text:?}");
        }
    }

    #[test]
    fn all_but_plain_and_kept_bytes_are_escaped() {
        let mut out = String::new();
        percent_encode(&mut out, b"/a-b %\xc3\n", b"/");
        assert_eq!(out, "/a-b%20%25%C3%0A");
    }
}
