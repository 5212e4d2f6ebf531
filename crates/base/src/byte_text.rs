//! Text for bytes that need not be UTF-8, without loss (decision 032).
//!
//! Names of files are bytes, and mostly UTF-8. In text, a byte that is not part of UTF-8 is
//! represented by a private character, U+10FF00 plus its value, so `text_of` and `bytes_of` are
//! inverse. Bytes of a character from this range are represented one by one, otherwise two names
//! would have one text. PEP 383 does the same with characters that strings of Rust cannot hold.

use std::borrow::Cow;

/// The character of byte 0.
const FIRST: u32 = 0x10_ff00;

/// The character that represents a byte.
fn char_of(byte: u8) -> char {
    char::from_u32(FIRST + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Returns the byte that a character represents; `None` for all others.
#[must_use]
pub fn byte_of(c: char) -> Option<u8> {
    u32::from(c).checked_sub(FIRST).and_then(|byte| u8::try_from(byte).ok()).filter(|byte| *byte >= 0x80)
}

/// Returns bytes as text.
#[must_use]
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|c| byte_of(c).is_some()) => return Cow::Borrowed(text),
        _ => {}
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte_of(c) {
                None => text.push(c),
                Some(_) => text.extend(c.encode_utf8(&mut [0; 4]).bytes().map(char_of)),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| char_of(*byte)));
    }
    Cow::Owned(text)
}

/// Returns the bytes of a text.
#[must_use]
pub fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(|c| byte_of(c).is_some()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_text_and_gets_its_bytes_back() {
        let own = "\u{10ff80}\u{10ffff}";
        let names: [&[u8]; 9] = [
            b"",
            b"a",
            "ä\u{fffd}".as_bytes(),
            b"a\xff",
            b"\x80\xff\xc3",
            "\u{10ff7f}\u{10fe80}".as_bytes(),
            own.as_bytes(),
            b"\xf4\x8f\xbe",
            b"\xed\xa0\x80",
        ];
        for (index, name) in names.iter().enumerate() {
            assert_eq!(bytes_of(&text_of(name)), *name, "{name:?}");
            assert!(names.iter().skip(index + 1).all(|other| text_of(name) != text_of(other)));
        }
        assert_eq!(text_of(b"a\xff"), "a\u{10ffff}");
        assert!(text_of(own.as_bytes()) != own);
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        assert_eq!(bytes_of(&text_of(&all)), all);
    }
}
