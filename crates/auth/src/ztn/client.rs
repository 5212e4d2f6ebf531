//! The client's side of `ztn`.

use super::discovery::TokenPlaces;
use super::{HEADER_BYTES, PREFIX, TOKEN_FOLLOWS, TRAILER, VERSION, ZTN, ZTN_TOKEN_BYTES_MAX};
use crate::age::age;
use crate::client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
use crate::offers::OfferedProtocol;
use crate::secret::Secret;
use crate::tokens::claimed_expiry;
use std::time::SystemTime;

/// `ztn` as a client supports it.
#[derive(Clone, Debug)]
pub struct ZtnClient {
    places: TokenPlaces,
}

impl ZtnClient {
    /// Creates the protocol of a user with tokens in these places.
    #[must_use]
    pub fn new(places: TokenPlaces) -> Self {
        Self { places }
    }
}

impl ClientProtocol for ZtnClient {
    fn id(&self) -> &'static str {
        ZTN
    }

    fn needs_tls(&self) -> bool {
        true
    }

    fn begin(
        &self,
        offer: &OfferedProtocol,
        context: &ClientContext,
    ) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
        if !context.is_tls {
            return Err(ClientAuthError::NoCredentials {
                reason: "a token is not sent over a connection without encryption".to_owned(),
                remedy: "use roots://".to_owned(),
            });
        }
        let bytes_max =
            token_bytes_max(&offer.parameters).ok_or(ClientAuthError::BadChallenge("offer of ztn"))?;
        let found = self.places.find(context.token_file.as_deref(), bytes_max);
        let token = found.map_err(|(reason, remedy)| ClientAuthError::NoCredentials { reason, remedy })?;
        Ok(Box::new(ZtnClientLogin { token }))
    }
}

/// Returns the maximum length of tokens in the parameters `<flags>:<maximum>:` of a server. The low byte
/// of the flags is the version.
fn token_bytes_max(parameters: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(parameters).ok()?;
    let (flags, rest) = text.split_once(':')?;
    let flags: u32 = flags.parse().ok()?;
    let bytes_max: usize = rest.split(':').next()?.parse().ok()?;
    (flags & 0xff == u32::from(VERSION)).then_some(bytes_max.min(ZTN_TOKEN_BYTES_MAX))
}

/// Returns the credentials of a client with this token; `None` if it is too long.
#[must_use]
pub fn credentials(token: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(token.len() + 1).ok()?;
    let mut credentials = Vec::with_capacity(HEADER_BYTES + token.len() + 1 + TRAILER.len());
    credentials.extend_from_slice(PREFIX);
    credentials.extend_from_slice(&[VERSION, TOKEN_FOLLOWS, 0, 0]);
    credentials.extend_from_slice(&length.to_be_bytes());
    credentials.extend_from_slice(token);
    credentials.push(0);
    credentials.extend_from_slice(&TRAILER);
    Some(credentials)
}

struct ZtnClientLogin {
    token: Secret,
}

impl ClientLogin for ZtnClientLogin {
    fn step(&mut self, challenge: Option<&[u8]>, _now: SystemTime) -> Result<Vec<u8>, ClientAuthError> {
        if challenge.is_some() {
            return Err(ClientAuthError::TooManySteps);
        }
        // Longer tokens are not found.
        let credentials = credentials(self.token.expose()).ok_or(ClientAuthError::TooManySteps)?;
        Ok(credentials)
    }

    /// The token is sent even if its time seems to be over, because the clock of the server counts.
    fn explain_refusal(&self, now: SystemTime) -> Option<String> {
        let expires = claimed_expiry(self.token.expose()).ok()??;
        let since = now.duration_since(expires).ok()?;
        Some(format!("the token expired {} ago; get a new one", age(since.as_secs())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offer_limits_the_length() {
        assert_eq!(token_bytes_max(b"0:4096:"), Some(4096));
        assert_eq!(token_bytes_max(b"256:70000:x"), Some(ZTN_TOKEN_BYTES_MAX));
        for malformed in [&b""[..], b"0", b"1:4096:", b"x:4096:", b"0::", b"0:-1:", b"\xff:1:"] {
            assert_eq!(token_bytes_max(malformed), None, "{malformed:?}");
        }
    }
}
