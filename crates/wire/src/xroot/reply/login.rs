//! The body of the `kXR_ok` to `kXR_login`.
//!
//! | bytes | field    | type   | meaning                                                    |
//! |-------|----------|--------|------------------------------------------------------------|
//! | 0..16 | sessid   | opaque | session id; absent for clients of generation 0             |
//! | 16..  | security | text   | `&P=protocol[,parameters]` repeated, no NUL; may be absent |
//!
//! Without a security text no authentication is needed. Parameters are opaque here, because each
//! authentication protocol parses its own.
//!
//! Source: xroot protocol 5.2.0, section 1.7. Recorded: `fs_stat`, `auth_unix_sigver`.

use crate::codec::{Decode, Encode};
use crate::error::WireError;
use crate::xroot::header::SessionId;
use crate::xroot::limits::SESSION_ID_BYTES;

/// The reply to a successful login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginReply<'a> {
    /// Id of the session.
    pub sessid: Option<SessionId>,
    /// Security text; empty if no authentication is needed.
    pub security: &'a [u8],
}

impl Encode for LoginReply<'_> {
    /// Appends the body. Without a session id there cannot be a security text.
    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(sessid) = self.sessid {
            out.extend_from_slice(&sessid.0);
            out.extend_from_slice(self.security);
        }
    }
}

impl<'a> Decode<'a> for LoginReply<'a> {
    /// Decodes the body and removes a NUL at the end of the security text.
    ///
    /// # Errors
    /// [`WireError::Short`] for an incomplete session id.
    fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        match body.split_first_chunk::<SESSION_ID_BYTES>() {
            Some((sessid, security)) => Ok(Self {
                sessid: Some(SessionId(*sessid)),
                security: security.split(|&byte| byte == 0).next().unwrap_or_default(),
            }),
            None if body.is_empty() => Ok(Self { sessid: None, security: &[] }),
            None => Err(WireError::Short { field: "sessid", need: SESSION_ID_BYTES, have: body.len() }),
        }
    }
}

impl<'a> LoginReply<'a> {
    /// Returns the authentication protocols in the server's order of preference.
    #[must_use]
    pub fn protocols(&self) -> SecurityProtocols<'a> {
        SecurityProtocols { rest: self.security }
    }
}

/// An authentication protocol that the server offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecurityProtocol<'a> {
    /// Name of the protocol.
    pub name: &'a [u8],
    /// Parameters for the client's side of the protocol; opaque here.
    pub parameters: &'a [u8],
}

/// An iterator over the protocols of a security text.
#[derive(Clone, Debug)]
pub struct SecurityProtocols<'a> {
    rest: &'a [u8],
}

const TAG: &[u8] = b"&P=";

impl<'a> Iterator for SecurityProtocols<'a> {
    type Item = SecurityProtocol<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = find_tag(self.rest)? + TAG.len();
        let text = self.rest.get(start..)?;
        let (text, rest) = text.split_at_checked(find_tag(text).unwrap_or(text.len()))?;
        self.rest = rest;
        let mut parts = text.splitn(2, |&byte| byte == b',');
        let name = parts.next().unwrap_or_default();
        Some(SecurityProtocol { name, parameters: parts.next().unwrap_or_default() })
    }
}

fn find_tag(text: &[u8]) -> Option<usize> {
    text.windows(TAG.len()).position(|part| part == TAG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_returned_in_order_with_opaque_parameters() {
        let security = b"&P=gsi,v:10600,c:ssl&x&P=ztn,&P=unix";
        let reply = LoginReply { sessid: Some(SessionId([7; 16])), security };
        let names: Vec<_> = reply.protocols().map(|p| (p.name, p.parameters)).collect();
        assert_eq!(names, [(&b"gsi"[..], &b"v:10600,c:ssl&x"[..]), (b"ztn", b""), (b"unix", b"")]);
        let out = reply.encoded();
        assert_eq!(LoginReply::decode(&out), Ok(reply));
        assert!(LoginReply::decode(&out[..15]).is_err());
        assert_eq!(LoginReply::decode(&[]), Ok(LoginReply { sessid: None, security: &[] }));
    }
}
