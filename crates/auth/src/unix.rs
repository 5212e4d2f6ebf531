//! `unix`: the client asserts its user and group, nothing is proved.
//!
//! Credentials: `unix` NUL user [ blank group ] NUL. Source: security facts, section 2.2.

use std::time::SystemTime;

use crate::client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
use crate::entity::{Entity, EntityFields};
use crate::offers::OfferedProtocol;
use crate::server::{LoginPeer, RefusedLogin, ServerLogin, ServerProtocol, ServerStep, StepCost};

/// The id of the protocol.
pub const UNIX: &str = "unix";
/// Maximum length of a user or group name.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum number of groups.
pub const GROUPS_MAX: usize = 64;

const PREFIX: &[u8] = b"unix\0";
/// Sent by a client whose user id has no name.
const NO_NAME: &str = "*";

/// `unix` as a server offers it.
#[derive(Clone, Copy, Debug)]
pub struct UnixServer;

impl ServerProtocol for UnixServer {
    fn id(&self) -> &'static str {
        UNIX
    }

    fn parameters(&self) -> String {
        String::new()
    }

    fn credential_bytes_min(&self) -> usize {
        PREFIX.len() + 1
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        Box::new(UnixServerLogin { host: peer.host.clone() })
    }
}

struct UnixServerLogin {
    host: String,
}

impl ServerLogin for UnixServerLogin {
    fn cost(&self) -> StepCost {
        StepCost::Cheap
    }

    fn step(&mut self, credentials: &[u8], _now: SystemTime) -> ServerStep {
        match parse(credentials) {
            Ok((name, groups)) => ServerStep::Done(Entity::new(EntityFields {
                protocol: UNIX.into(),
                name: name.map(Into::into),
                groups: groups.map(Into::into),
                host: self.host.as_str().into(),
                ..EntityFields::default()
            })),
            Err(reason) => ServerStep::Refused(RefusedLogin::new(UNIX, reason)),
        }
    }
}

/// Returns the name, unless it is `*`, and the groups.
fn parse(credentials: &[u8]) -> Result<(Option<&str>, Option<String>), &'static str> {
    let text = credentials.strip_prefix(PREFIX).ok_or("the credentials are malformed")?;
    // Credentials that were cut could name another user.
    let end = text.iter().position(|byte| *byte == 0).ok_or("the credentials are incomplete")?;
    let text = text.get(..end).unwrap_or_default();
    let text = std::str::from_utf8(text).map_err(|_| "the names are not text")?;
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let name = words.next().ok_or("there is no user")?;
    if name != NO_NAME && !is_name(name) {
        return Err("the user is not a valid name");
    }
    let groups: Vec<&str> = words.collect();
    if groups.len() > GROUPS_MAX || !groups.iter().all(|group| is_name(group)) {
        return Err("a group is not a valid name");
    }
    let groups = Some(groups.join(" ")).filter(|groups| !groups.is_empty());
    Ok((Some(name).filter(|name| *name != NO_NAME), groups))
}

/// Reports whether a name consists of letters, digits and `._@-`; one `$` may follow.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    let body = name.strip_suffix('$').unwrap_or(name);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !body.is_empty() && body.bytes().all(is_plain)
}

/// `unix` as a client supports it.
#[derive(Clone, Debug)]
pub struct UnixClient {
    /// Name of the effective user; `None` for a user id without a name.
    pub user: Option<String>,
    /// Name of the effective group.
    pub group: Option<String>,
}

impl ClientProtocol for UnixClient {
    fn id(&self) -> &'static str {
        UNIX
    }

    fn begin(&self, _: &OfferedProtocol, _: &ClientContext) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
        Ok(Box::new(UnixClientLogin(self.clone())))
    }
}

struct UnixClientLogin(UnixClient);

impl ClientLogin for UnixClientLogin {
    fn step(&mut self, challenge: Option<&[u8]>, _now: SystemTime) -> Result<Vec<u8>, ClientAuthError> {
        if challenge.is_some() {
            return Err(ClientAuthError::TooManySteps);
        }
        let UnixClient { user, group } = &self.0;
        let mut credentials = PREFIX.to_vec();
        credentials.extend_from_slice(user.as_deref().unwrap_or(NO_NAME).as_bytes());
        if let Some(group) = group {
            credentials.push(b' ');
            credentials.extend_from_slice(group.as_bytes());
        }
        credentials.push(0);
        Ok(credentials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_the_user() {
        assert_eq!(parse(b"unix\0  root root\0"), Ok((Some("root"), Some("root".to_owned()))));
        assert_eq!(parse(b"unix\0me a  b\0junk"), Ok((Some("me"), Some("a b".to_owned()))));
        assert_eq!(parse(b"unix\0host$\0"), Ok((Some("host$"), None)));
        assert_eq!(parse(b"unix\0* users\0"), Ok((None, Some("users".to_owned()))));
    }

    /// Recorded: `unix.json`.
    #[test]
    fn the_client_sends_the_bytes_of_the_stock_client() {
        let client = UnixClient { user: Some("root".to_owned()), group: Some("root".to_owned()) };
        let mut login = UnixClientLogin(client);
        assert_eq!(login.step(None, SystemTime::UNIX_EPOCH), Ok(b"unix\0root root\0".to_vec()));
        let again = login.step(Some(b""), SystemTime::UNIX_EPOCH);
        assert_eq!(again, Err(ClientAuthError::TooManySteps));
        let nameless = UnixClient { user: None, group: None };
        assert_eq!(UnixClientLogin(nameless).step(None, SystemTime::UNIX_EPOCH), Ok(b"unix\0*\0".to_vec()));
    }

    #[test]
    fn invalid_names_are_refused() {
        let long = [b"unix\0".to_vec(), vec![b'a'; NAME_BYTES_MAX + 1]].concat();
        let many = format!("unix\0u{}", " g".repeat(GROUPS_MAX + 1));
        for bytes in [
            b"unix\0".as_slice(),
            b"unix\0root",
            b"unix\0    \0",
            b"unix\0ro\x01ot\0",
            b"unix\0../x grp\0",
            b"unix\0a $\0",
            b"unix\0a$b\0",
            b"unix\0\xff\0",
            b"unix a",
            &long,
            many.as_bytes(),
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
