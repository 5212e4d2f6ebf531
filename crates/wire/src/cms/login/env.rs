//! The text at the end of a login and of its reply: `key=value` elements.
//!
//! `myHN`: the sender's name, by which a manager calls it if the address has none; `site`: its site. Readers skip the
//! other keys, so [`Extensions`] are offered and granted here too, and our own nodes say their version (`sw`). Source: cms protocol version 3, section 2.2.

use std::io::Write as _;

use crate::cms::extensions::{self, Extensions};
use crate::xroot::cgi::Cgi;

/// The key of [`Env::door`], behind that of the extensions.
const DOOR: &str = "door";

/// What the text says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Env<'a> {
    /// The sender's host name.
    pub host: Option<&'a [u8]>,
    /// The sender's site.
    pub site: Option<&'a [u8]>,
    /// Name and version of its program: for people, and only from our own nodes.
    pub software: Option<&'a [u8]>,
    /// `host:port` where clients of the cluster begin; own nodes only.
    pub door: Option<&'a [u8]>,
    /// What it can do beyond the protocol.
    pub extensions: Extensions,
}

impl<'a> Env<'a> {
    /// Reads the text. Keys nobody knows are skipped.
    #[must_use]
    pub fn parse(text: Cgi<'a>) -> Self {
        let extensions = Extensions::in_env(text);
        Self {
            host: text.get("myHN"),
            site: text.get("site"),
            software: text.get("sw"),
            door: text.get(DOOR).filter(|_| extensions.is_own()),
            extensions,
        }
    }

    /// Appends the text; nothing when there is nothing to say. A value must not hold `&` or NUL.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut separator: &[u8] = b"";
        for (key, value) in [("myHN", self.host), ("site", self.site), ("sw", self.software)] {
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
    fn recorded_texts_and_our_own_both_ways() {
        let texts = [
            &b""[..],
            b"myHN=vm",
            b"myHN=vm&site=alpha",
            b"site=alpha",
            b"scalla=7",
            b"myHN=vm&site=a&scalla=5",
            b"myHN=vm&sw=scalla v1&scalla=5",
            b"site=a&scalla=5&door=vm:1094",
        ];
        for text in texts {
            let env = Env::parse(Cgi::new(text));
            let mut out = Vec::new();
            env.encode(&mut out);
            assert_eq!(out, text);
        }
        let env = Env::parse(Cgi::new(b"myHN=vm&future=1&scalla=5"));
        assert_eq!(env.host, Some(&b"vm"[..]));
        assert_eq!(env.extensions, Extensions::NOT_HERE | Extensions::INVENTORY);
        let stranger = Env::parse(Cgi::new(b"myHN=vm&door=vm:1094"));
        assert_eq!(stranger.door, None, "only our own nodes say where clients begin");
    }
}
