//! `kXR_redirect` (4004): a redirect to another server.
//!
//! | bytes | field | type | meaning                                                    |
//! |-------|-------|------|------------------------------------------------------------|
//! | 0..4  | port  | i32  | positive: port of the host; 0: default port; negative: URL |
//! | 4..   | host  | text | `host[?cgi[?token]]`, or a URL; no NUL, not empty          |
//!
//! With a negative port, `!port` contains flags. A URL is sent only to clients with the ability
//! fullurl, and flags only to those with redirflags; without flags the port of a URL is -1.
//! [`Redirect`] keeps the encoded form, so that it can be relayed unchanged.
//!
//! Source: xroot protocol 5.2.0, section 3.4. Recorded: `redirect_open`, `manager_open`.

use super::frame::frame;
use crate::codec::{Decode, Encode};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;
use crate::xroot::codes::Status;
use crate::xroot::flags::ServerFlags;
use crate::xroot::header::StreamId;
use crate::xroot::limits::DEFAULT_PORT;

/// Appends a `kXR_redirect` frame.
pub fn redirect(out: &mut Vec<u8>, streamid: StreamId, to: &Redirect<'_>) {
    frame(out, streamid, Status::REDIRECT, to);
}

/// The target of a redirect in its encoded form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redirect<'a> {
    /// Port or flags as sent.
    pub port: i32,
    /// Host or URL as sent.
    pub host: &'a [u8],
}

/// The parsed target of a [`Redirect`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RedirectTarget<'a> {
    /// Another xroot server.
    Host {
        /// Name or address; an IPv6 address in brackets.
        host: &'a [u8],
        /// Port of the server.
        port: u16,
        /// CGI to merge into that of the request; its keys replace those of the request.
        cgi: &'a [u8],
        /// Login token for the new host.
        token: &'a [u8],
    },
    /// A complete URL.
    Url {
        /// The URL.
        url: &'a [u8],
        /// Only [`ServerFlags::RECOVER_WRTS`], [`ServerFlags::COLLAPSE_REDIR`] and
        /// [`ServerFlags::EC_REDIR`].
        flags: ServerFlags,
    },
}

impl Encode for Redirect<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        FieldWriter::new(out).i32(self.port).bytes(self.host);
    }
}

impl<'a> Decode<'a> for Redirect<'a> {
    /// # Errors
    /// [`WireError::Short`] without a host.
    fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = FieldReader::new(body);
        let port = reader.i32("port")?;
        let host = reader.take_rest();
        if host.is_empty() {
            return Err(WireError::Short { field: "host", need: 1, have: 0 });
        }
        Ok(Self { port, host })
    }
}

impl<'a> Redirect<'a> {
    /// Creates a redirect to another server.
    #[must_use]
    pub fn to_host(host: &'a [u8], port: u16) -> Self {
        Self { port: port.into(), host }
    }

    /// Creates a redirect to a URL. `flags` are only for clients that support them.
    #[must_use]
    pub const fn to_url(url: &'a [u8], flags: ServerFlags) -> Self {
        // The flags are below bit 15, so the complement is negative.
        Self { port: !((flags.0 & 0x7fff) as i32), host: url }
    }

    /// Parses the target.
    ///
    /// # Errors
    /// [`WireError::BadValue`] for a port above 65535.
    pub fn target(&self) -> Result<RedirectTarget<'a>, WireError> {
        if self.port < 0 {
            let flags = ServerFlags(u32::from_be_bytes((!self.port).to_be_bytes()));
            return Ok(RedirectTarget::Url { url: self.host, flags });
        }
        if self.port == 0 && self.host.windows(3).any(|part| part == b"://") {
            return Ok(RedirectTarget::Url { url: self.host, flags: ServerFlags::NONE });
        }
        let port = u16::try_from(self.port)
            .map_err(|_| WireError::BadValue { field: "redirect port", value: self.port.into() })?;
        let mut parts = self.host.splitn(3, |&byte| byte == b'?');
        let mut part = || parts.next().unwrap_or_default();
        let (host, cgi, token) = (part(), part(), part());
        Ok(RedirectTarget::Host { host, port: if port == 0 { DEFAULT_PORT } else { port }, cgi, token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_cgi_and_token_are_parsed() {
        let target = Redirect::to_host(b"h?tried=a&x=1?tok?en", 1095).target();
        let expected = RedirectTarget::Host { host: b"h", port: 1095, cgi: b"tried=a&x=1", token: b"tok?en" };
        assert_eq!(target, Ok(expected));
        let expected = RedirectTarget::Host { host: b"[::1]", port: DEFAULT_PORT, cgi: b"", token: b"" };
        assert_eq!(Redirect { port: 0, host: b"[::1]" }.target(), Ok(expected));
        assert!(Redirect { port: 65536, host: b"h" }.target().is_err());
    }

    #[test]
    fn urls_carry_flags_in_the_complement_of_the_port() {
        let plain = Redirect::to_url(b"root://h:1//p", ServerFlags::NONE);
        assert_eq!(plain.port, -1);
        assert_eq!(
            plain.target(),
            Ok(RedirectTarget::Url { url: b"root://h:1//p", flags: ServerFlags::NONE })
        );
        let flagged = Redirect::to_url(b"root://h:1//p", ServerFlags::COLLAPSE_REDIR);
        assert_eq!(flagged.port, !0x2000);
        assert!(matches!(
            flagged.target(),
            Ok(RedirectTarget::Url { flags: ServerFlags::COLLAPSE_REDIR, .. })
        ));
    }
}
