//! The `key=value` text at the end of a login and of its reply.
//!
//! `myHN` is the host name of the sender, which a manager uses if the address has none; `site` is
//! its site. Receivers skip unknown keys, so Scalla nodes use the text to negotiate [`Extensions`]
//! and to send their version (`sw`) and the name of their instance (`inst`).
//!
//! Source: cms protocol version 3, section 2.2.

use std::io::Write as _;

use crate::cms::extensions::{self, Extensions};
use crate::codec::Encode;
use crate::xroot::cgi::CgiText;

/// The key of [`Env::door`], sent after the extensions.
const DOOR: &str = "door";

/// The key of [`Env::instance`].
const INSTANCE: &str = "inst";

/// The elements of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Env<'a> {
    /// Host name of the sender.
    pub host: Option<&'a [u8]>,
    /// Site of the sender.
    pub site: Option<&'a [u8]>,
    /// Name and version of the sender's program, for display; sent by Scalla nodes only.
    pub software: Option<&'a [u8]>,
    /// Instance name of the sender, for display; sent by Scalla nodes only.
    pub instance: Option<&'a [u8]>,
    /// Entry point for clients of the cluster, `host:port`; sent by Scalla nodes only.
    pub door: Option<&'a [u8]>,
    /// Extensions of the protocol that the sender supports.
    pub extensions: Extensions,
}

impl<'a> Env<'a> {
    /// Parses the text and skips unknown keys.
    #[must_use]
    pub fn parse(text: CgiText<'a>) -> Self {
        let extensions = Extensions::in_env(text);
        Self {
            host: text.get("myHN"),
            site: text.get("site"),
            software: text.get("sw"),
            instance: text.get(INSTANCE),
            door: text.get(DOOR).filter(|_| extensions.is_own()),
            extensions,
        }
    }
}

impl Encode for Env<'_> {
    /// Appends the text, which may be empty. A value must not contain `&` or NUL.
    fn encode(&self, out: &mut Vec<u8>) {
        let mut separator: &[u8] = b"";
        let texts =
            [("myHN", self.host), ("site", self.site), ("sw", self.software), (INSTANCE, self.instance)];
        for (key, value) in texts {
            let Some(value) = value else { continue };
            out.extend_from_slice(separator);
            out.extend_from_slice(key.as_bytes());
            out.push(b'=');
            out.extend_from_slice(value);
            separator = b"&";
        }
        if self.extensions.is_own() {
            out.extend_from_slice(separator);
            // Writing to memory cannot fail.
            let _ = write!(out, "{}={:x}", extensions::KEY, self.extensions.0);
            if let Some(door) = self.door {
                let _ = write!(out, "&{DOOR}=");
                out.extend_from_slice(door);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_and_extended_texts_parse_and_encode() {
        let texts = [
            &b""[..],
            b"myHN=vm",
            b"myHN=vm&site=alpha",
            b"site=alpha",
            b"scalla=7",
            b"myHN=vm&site=a&scalla=5",
            b"myHN=vm&sw=scalla v1&scalla=5",
            b"myHN=vm&sw=scalla v1&inst=disk1&scalla=5",
            b"site=a&scalla=5&door=vm:1094",
        ];
        for text in texts {
            let env = Env::parse(CgiText::new(text));
            let mut out = Vec::new();
            env.encode(&mut out);
            assert_eq!(out, text);
        }
        let env = Env::parse(CgiText::new(b"myHN=vm&future=1&scalla=5"));
        assert_eq!(env.host, Some(&b"vm"[..]));
        assert_eq!(env.extensions, Extensions::NOT_HERE | Extensions::INVENTORY);
        let stranger = Env::parse(CgiText::new(b"myHN=vm&door=vm:1094"));
        assert_eq!(stranger.door, None, "only Scalla nodes send an entry point for clients");
    }
}
