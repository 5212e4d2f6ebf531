//! The server's side of `ztn`.

use super::{HEADER_BYTES, PREFIX, TOKEN_FOLLOWS, VERSION, ZTN, ZTN_TOKEN_BYTES_DEFAULT};
use crate::access::CredentialLayer;
use crate::entity::{Entity, EntityFields, TOKEN_ISSUER, TOKEN_SUBJECT};
use crate::macaroons::{self, MacaroonFault, MacaroonPolicy, MacaroonVerdict};
use crate::secret::Secret;
use crate::server::{LoginPeer, RefusedLogin, ServerLogin, ServerProtocol, ServerStep, StepCost};
use crate::tokens::{self, TokenPolicy, TokenVerdict};
use std::time::SystemTime;

/// The reason for a login with a long token.
const TOO_LONG: &str = "the token is longer than -maxsz allows";

/// The treatment of the expiry of tokens that the login does not verify.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ExpiryCheck {
    /// It is not looked at.
    Ignore,
    /// A token with an expiry must not have expired.
    Optional,
    /// A token must have an expiry and must not have expired.
    #[default]
    Required,
}

/// The settings of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZtnServerSettings {
    /// Maximum length of a token in bytes.
    pub token_bytes_max: usize,
    /// The treatment of the expiry, if the login does not verify tokens.
    pub expiry: ExpiryCheck,
}

impl Default for ZtnServerSettings {
    fn default() -> Self {
        Self { token_bytes_max: ZTN_TOKEN_BYTES_DEFAULT, expiry: ExpiryCheck::default() }
    }
}

/// `ztn` as a server offers it.
#[derive(Clone)]
pub struct ZtnServer {
    settings: ZtnServerSettings,
    /// Verifies tokens or macaroons; `None` to leave the verification to each request.
    tokens: Option<CredentialLayer>,
}

impl ZtnServer {
    /// Creates the protocol. Without `tokens` a login verifies nothing and gives no name, and each
    /// request is decided by its token.
    #[must_use]
    pub fn new(settings: ZtnServerSettings, tokens: Option<CredentialLayer>) -> Self {
        Self { settings, tokens }
    }

    /// Returns the identity of a client of `host` that logs in with a token over an encrypted
    /// connection. Computes for up to 1 ms.
    ///
    /// # Errors
    /// The reason why the login is refused.
    pub fn identity(&self, token: &[u8], host: &str, now: SystemTime) -> Result<Entity, String> {
        if token.len() > self.settings.token_bytes_max {
            return Err(TOO_LONG.to_owned());
        }
        self.verified(token, host, now)
    }

    /// As [`Self::identity`] for a token whose length was checked.
    fn verified(&self, token: &[u8], host: &str, now: SystemTime) -> Result<Entity, String> {
        let bearer = match &self.tokens {
            None => Bearer { expires: self.check_expiry(token, now)?, ..Bearer::default() },
            Some(CredentialLayer::Tokens(tokens)) => of_token(tokens, token, now)?,
            Some(CredentialLayer::Macaroons(macaroons)) => of_macaroon(macaroons, token, now)?,
        };
        Ok(Entity::new(EntityFields {
            protocol: ZTN.into(),
            name: bearer.name,
            host: host.into(),
            credentials: Some(Secret::from(token)),
            attributes: bearer.attributes,
            expires: bearer.expires,
            ..EntityFields::default()
        }))
    }

    /// Returns the expiry of a token that is not verified, if it counts.
    fn check_expiry(&self, token: &[u8], now: SystemTime) -> Result<Option<SystemTime>, String> {
        if self.settings.expiry == ExpiryCheck::Ignore {
            return Ok(None);
        }
        let claimed = match macaroons::claimed_expiry(token) {
            Some(claimed) => claimed,
            None => tokens::claimed_expiry(token).map_err(|fault| fault.to_string())?,
        };
        match claimed {
            Some(expires) if expires > now => Ok(Some(expires)),
            Some(_) => Err("the token has expired".to_owned()),
            None if self.settings.expiry == ExpiryCheck::Optional => Ok(None),
            None => Err("the token has no expiry (exp)".to_owned()),
        }
    }
}

impl ServerProtocol for ZtnServer {
    fn id(&self) -> &'static str {
        ZTN
    }

    fn parameters(&self) -> String {
        format!("{VERSION}:{}:", self.settings.token_bytes_max)
    }

    fn credential_bytes_min(&self) -> usize {
        HEADER_BYTES + 2
    }

    fn needs_tls(&self) -> bool {
        true
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        Box::new(ZtnServerLogin { server: self.clone(), host: peer.host.clone(), is_tls: peer.is_tls })
    }
}

struct ZtnServerLogin {
    server: ZtnServer,
    host: String,
    is_tls: bool,
}

impl ServerLogin for ZtnServerLogin {
    fn cost(&self) -> StepCost {
        StepCost::Expensive
    }

    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep {
        match self.entity(credentials, now) {
            Ok(entity) => ServerStep::Done(entity),
            Err(reason) => ServerStep::Refused(RefusedLogin::new(ZTN, reason)),
        }
    }
}

impl ZtnServerLogin {
    fn entity(&self, credentials: &[u8], now: SystemTime) -> Result<Entity, String> {
        // The framework checks this as well. A token on an open connection is known to others.
        if !self.is_tls {
            return Err("the connection is not encrypted".to_owned());
        }
        let token = parse(credentials, self.server.settings.token_bytes_max)?;
        self.server.verified(token, &self.host, now)
    }
}

/// The identity that a token gives its bearer.
#[derive(Default)]
struct Bearer {
    name: Option<Box<str>>,
    attributes: Vec<(Box<str>, Box<str>)>,
    expires: Option<SystemTime>,
}

impl Bearer {
    /// Returns the identity. `issuer` and `subject` together identify the bearer.
    fn new(name: Option<&str>, issuer: &str, subject: &str, expires: SystemTime) -> Self {
        let attributes = [(TOKEN_ISSUER, issuer), (TOKEN_SUBJECT, subject)];
        let attributes = attributes.map(|(key, value)| (key.into(), value.into())).into();
        Self { name: name.map(Into::into), attributes, expires: Some(expires) }
    }
}

fn of_token(tokens: &TokenPolicy, token: &[u8], now: SystemTime) -> Result<Bearer, String> {
    match tokens.verify(token, now) {
        TokenVerdict::Valid(verified) => {
            let (issuer, subject) = (&verified.issuer().url, verified.subject());
            Ok(Bearer::new(verified.login_name(), issuer, subject, verified.expires()))
        }
        TokenVerdict::Refused(fault) | TokenVerdict::NotRecognized(fault) => {
            Err(format!("token verification failed: {fault}"))
        }
    }
}

/// Returns the identity of the bearer of a macaroon. Its name is for logs only, because rules would
/// apply to it without the caveats.
fn of_macaroon(macaroons: &MacaroonPolicy, token: &[u8], now: SystemTime) -> Result<Bearer, String> {
    match macaroons.verify(token, now) {
        MacaroonVerdict::Valid(verified) => {
            let issuer = format!("macaroons of {}", verified.site());
            let subject = match verified.name() {
                Some(name) => format!("name:{name}"),
                None => format!("identifier:{}", verified.identifier()),
            };
            Ok(Bearer::new(verified.name(), &issuer, &subject, verified.expires()))
        }
        MacaroonVerdict::Refused(fault) | MacaroonVerdict::NotRecognized(fault) => {
            Err(format!("token verification failed: {fault}"))
        }
        MacaroonVerdict::OtherSite => Err(format!("token verification failed: {}", MacaroonFault::OtherSite)),
    }
}

/// Returns the token in credentials.
fn parse(credentials: &[u8], token_bytes_max: usize) -> Result<&[u8], &'static str> {
    let (header, rest) = credentials.split_at_checked(HEADER_BYTES).ok_or("the credentials are too short")?;
    let header = header.strip_prefix(PREFIX).ok_or("the credentials are malformed")?;
    let [version, operation, _, _, high, low] = header else { return Err("the credentials are malformed") };
    if *version != VERSION {
        return Err("'ztn' token malformed; version mismatch");
    }
    if *operation != TOKEN_FOLLOWS {
        return Err("the client sends no token");
    }
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let text = rest.get(..length).ok_or("'ztn' token malformed; respdata > credsize")?;
    let token = text.strip_suffix(b"\0").ok_or("'ztn' token malformed; missing null byte")?.trim_ascii();
    if token.is_empty() {
        return Err("'ztn' token malformed; null token");
    }
    if token.contains(&0) {
        return Err("'ztn' token malformed; it contains a null byte");
    }
    if token.len() > token_bytes_max {
        return Err(TOO_LONG);
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(version: u8, operation: u8, length: u16, rest: &[u8]) -> Vec<u8> {
        [&[b'z', b't', b'n', 0, version, operation, 0, 0][..], &length.to_be_bytes(), rest].concat()
    }

    #[test]
    fn malformed_credentials_are_refused() {
        assert_eq!(parse(&credentials(0, b'T', 4, b"abc\0\0\0"), 3), Ok(&b"abc"[..]));
        assert_eq!(parse(&credentials(0, b'T', 6, b" abc\n\0"), 3), Ok(&b"abc"[..]));
        for (credentials, expected) in [
            (credentials(1, b'T', 2, b"x\0"), "version mismatch"),
            (credentials(0, b'T', 0xffff, b"x\0"), "respdata > credsize"),
            (credentials(0, b'T', 2, b"xy"), "missing null byte"),
            (credentials(0, b'T', 1, b"\0"), "null token"),
            (credentials(0, b'T', 3, b"  \0"), "null token"),
            (credentials(0, b'T', 4, b"  \0\0"), "contains a null byte"),
            (credentials(0, b'T', 0, b""), "missing null byte"),
            (credentials(0, b'T', 4, b"a\0b\0"), "contains a null byte"),
            (credentials(0, b'S', 2, b"x\0"), "sends no token"),
            (credentials(0, b'X', 2, b"x\0"), "sends no token"),
            (credentials(0, b'T', 5, b"abcd\0"), "longer than -maxsz"),
            (b"ztn\0\0S\0\0".to_vec(), "too short"),
            (b"ztm\0\0T\0\0\0\x02x\0".to_vec(), "malformed"),
        ] {
            let found = parse(&credentials, 3);
            assert!(found.is_err_and(|reason| reason.contains(expected)), "{expected}: {found:?}");
        }
    }
}
