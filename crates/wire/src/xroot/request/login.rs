//! `kXR_login` (3007): identity and abilities of the client.
//!
//! | bytes  | field     | type   | meaning                                      |
//! |--------|-----------|--------|----------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                        |
//! | 2..4   | requestid | u16    | 3007                                         |
//! | 4..8   | pid       | i32    | process id of the client                     |
//! | 8..16  | username  | text   | NUL padded, cut at 8                         |
//! | 16     | ability2  | u8     | [`Ability2`]                                 |
//! | 17     | ability   | u8     | [`Ability`]                                  |
//! | 18     | capver    | u8     | low 6 bits generation, 0x80 accepts waitresp |
//! | 19     | reserved  |        |                                              |
//! | 20..24 | dlen      | i32    | bytes of cgi                                 |
//! | 24..   | cgi       | text   | see [`login_cgi`](crate::xroot::login_cgi)   |
//!
//! Reply: `kXR_ok` with the session id and the security text, see
//! [`reply::login`](crate::xroot::reply::login). The abilities determine which replies the server
//! may send, because older clients do not support all of them.
//!
//! Source: xroot protocol 5.2.0, section 1.7.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::flags::{Ability, Ability2};

/// Starts a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Login<'a> {
    /// Process id of the client.
    pub pid: i32,
    /// User name, padded with NUL; it need not be terminated or be text.
    pub username: [u8; 8],
    /// Further abilities of the client.
    pub ability2: Ability2,
    /// Abilities of the client.
    pub ability: Ability,
    /// Generation of the client, and whether it accepts deferred answers.
    pub capver: u8,
    /// The login CGI and the login token.
    pub cgi: &'a [u8],
}

impl<'a> RequestBody<'a> for Login<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self {
            pid: header.i32::<4>(),
            username: header.field::<8, 8>(),
            ability2: Ability2(header.u8::<16>()),
            ability: Ability(header.u8::<17>()),
            capver: header.u8::<18>(),
            cgi: payload,
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 4>(self.pid.to_be_bytes())
            .with::<8, 8>(self.username)
            .with::<16, 1>([self.ability2.0])
            .with::<17, 1>([self.ability.0])
            .with::<18, 1>([self.capver])
            .finish(self.cgi, out);
    }
}

impl Login<'_> {
    /// Returns the generation of the client, 0 (before 2005) to 5 (TLS).
    #[must_use]
    pub const fn generation(&self) -> u8 {
        self.capver & 0x3f
    }

    /// Reports whether the client accepts `kXR_waitresp` and deferred answers.
    #[must_use]
    pub const fn accepts_deferred(&self) -> bool {
        self.capver & 0x80 != 0
    }

    /// Returns the user name without its padding.
    #[must_use]
    pub fn username_bytes(&self) -> &[u8] {
        self.username.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}
