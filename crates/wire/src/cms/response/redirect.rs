//! The `redirect` response: the server to which a client is sent.
//!
//! The value is the port, and the text is the host without a port, with an optional `?cgi` behind
//! it. Otherwise the value is -1 and the text is a whole URL. A host is a name, an IPv4 address, or
//! an address in brackets (`[2001:db8::1]`, `[::10.0.0.1]`). [`EncodedRedirect`] keeps the encoded
//! form, so that a redirector can pass it on unchanged; [`ParsedRedirect`] is the parsed form.
//!
//! Source: cms protocol version 3, sections 1.6, 5.8. Recorded: 03, 22.

use crate::cms::error::EncodeError;
use crate::cms::pup::Packer;

/// The target of a redirect in its encoded form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodedRedirect<'a> {
    /// The port; -1 if the text is a URL.
    pub port: i32,
    /// The text without its NUL.
    pub text: &'a [u8],
}

/// The parsed target of an [`EncodedRedirect`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParsedRedirect<'a> {
    /// A server.
    Host {
        /// Name or address; an IPv6 address in brackets.
        host: &'a [u8],
        /// Port of the server.
        port: u16,
        /// CGI that the client adds to its request.
        cgi: Option<&'a [u8]>,
    },
    /// A URL.
    Url(&'a [u8]),
}

impl<'a> EncodedRedirect<'a> {
    /// Creates a redirect to a host: a name or an address, an IPv6 address in brackets. A `?cgi`
    /// may follow.
    #[must_use]
    pub fn host(host: &'a [u8], port: u16) -> Self {
        Self { port: port.into(), text: host }
    }

    /// Creates a redirect to a URL.
    #[must_use]
    pub const fn url(url: &'a [u8]) -> Self {
        Self { port: -1, text: url }
    }

    pub(super) const fn decode(port: u32, text: &'a [u8]) -> Self {
        Self { port: port.cast_signed(), text }
    }

    /// Returns the parsed target; `None` if it is invalid, which a redirector treats as an error.
    #[must_use]
    pub fn target(&self) -> Option<ParsedRedirect<'a>> {
        if self.port == -1 {
            let scheme = self.text.windows(3).position(|bytes| bytes == b"://");
            return scheme.filter(|&at| at > 0).map(|_| ParsedRedirect::Url(self.text));
        }
        let port = u16::try_from(self.port).ok().filter(|&port| port != 0)?;
        let mut parts = self.text.splitn(2, |&byte| byte == b'?');
        let host = parts.next().filter(|host| is_host(host))?;
        Some(ParsedRedirect::Host { host, port, cgi: parts.next() })
    }

    pub(super) fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        if self.target().is_none() || self.text.contains(&0) {
            return Err(EncodeError::Malformed { field: "redirect" });
        }
        packer.bytes(&self.port.to_be_bytes());
        packer.bytes(self.text);
        packer.bytes(&[0]);
        Ok(())
    }
}

/// Reports whether the text is a name or an address without a port.
fn is_host(host: &[u8]) -> bool {
    let inner = match host {
        [b'[', address @ .., b']'] => address,
        name if name.contains(&b':') => return false,
        name => name,
    };
    let bad = |&byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'[' | b']' | b'/' | 0);
    !inner.is_empty() && !inner.iter().any(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_urls_are_parsed() {
        let host = |host, port, cgi| Some(ParsedRedirect::Host { host, port, cgi });
        assert_eq!(EncodedRedirect::host(b"127.0.0.1", 22021).target(), host(b"127.0.0.1", 22021, None));
        assert_eq!(EncodedRedirect::host(b"[::127.0.0.1]", 1).target(), host(b"[::127.0.0.1]", 1, None));
        assert_eq!(EncodedRedirect::host(b"vm?a=b?c", 1).target(), host(b"vm", 1, Some(b"a=b?c")));
        let url = b"root://vm:1094//f?x=1";
        assert_eq!(EncodedRedirect::url(url).target(), Some(ParsedRedirect::Url(url)));
    }

    #[test]
    fn redirects_without_a_valid_target_are_not_sent() {
        let nowhere = [
            EncodedRedirect::host(b"vm", 0),
            EncodedRedirect::host(b"", 1094),
            EncodedRedirect::host(b"?x=1", 1094),
            EncodedRedirect::host(b"vm:1095", 1094),
            EncodedRedirect::host(b"::1", 1094),
            EncodedRedirect::host(b"[]", 1094),
            EncodedRedirect::host(b"v m", 1094),
            EncodedRedirect::host(b"vm?a\0b", 1094),
            EncodedRedirect::url(b""),
            EncodedRedirect::url(b"vm"),
            EncodedRedirect::url(b"://vm"),
            EncodedRedirect { port: -2, text: b"vm" },
            EncodedRedirect { port: 65_536, text: b"vm" },
        ];
        for redirect in nowhere {
            let mut out = Vec::new();
            let packed = redirect.pack(&mut Packer::new(&mut out));
            assert_eq!(packed, Err(EncodeError::Malformed { field: "redirect" }), "{redirect:?}");
        }
    }
}
