//! The decision after a login with a token (`ztn`), which can differ from that for a request with it: a
//! login may refuse the token, and the rules see the name of a client that logged in.

use super::AccessDecision;
use auth::access::{AccessClient, AccessOperation, AccessPolicy, TokenOrigin};
use base::LogicalPath;
use config::Effective;
use serde_json::{Value, json};
use std::time::SystemTime;

/// The result of a login with a token.
pub(super) enum TokenLogin {
    /// The login is refused, for this reason.
    Refused(String),
    /// The client is logged in.
    LoggedIn {
        /// Its name, if it has one.
        name: Option<String>,
        /// Whether its requests without another token may perform the operation.
        is_allowed: bool,
    },
}

impl TokenLogin {
    /// Decides about an operation of a client of a host that logged in with a token; `None` if the
    /// configuration has no logins by tokens.
    pub(super) fn of(
        effective: &Effective,
        policy: &AccessPolicy,
        (token, host): (&[u8], &str),
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> anyhow::Result<Option<Self>> {
        let Some(login) = server::token_login(effective, policy)? else { return Ok(None) };
        let now = SystemTime::now();
        let entity = match login.identity(token, host, now) {
            Ok(entity) => entity,
            Err(reason) => return Ok(Some(Self::Refused(reason))),
        };
        let named = server::named_entity(effective, &entity, &entity.protocol, host)?;
        let entity = match named.map(|named| named.entity) {
            None => entity,
            Some(Ok(named)) => named,
            Some(Err(reason)) => return Ok(Some(Self::Refused(reason))),
        };
        let is_verified = entity.verified_bearer().is_some();
        let origin = if is_verified { TokenOrigin::Login } else { TokenOrigin::Request };
        let verified = policy.verify(token, origin, now);
        let request = policy.request(AccessClient::Entity(&entity), Some(&verified));
        let decision = AccessDecision::of(&effective.authorization, request, operation, path)?;
        let name = entity.name.as_deref().map(str::to_owned);
        Ok(Some(Self::LoggedIn { name, is_allowed: decision.is_allowed }))
    }

    /// Describes the result if it differs from that for a request with the token.
    pub(super) fn difference(&self, is_allowed_by_request: bool) -> Option<String> {
        match self {
            Self::Refused(reason) => Some(format!("a login with it (ztn) is refused: {reason}")),
            Self::LoggedIn { is_allowed, .. } if *is_allowed == is_allowed_by_request => None,
            Self::LoggedIn { name, is_allowed } => {
                let answer = if *is_allowed { "allowed" } else { "denied" };
                let name = name.as_ref().map_or("without a name".to_owned(), |name| format!("as {name}"));
                Some(format!("after a login with it (ztn), {name}, it is {answer}"))
            }
        }
    }

    /// Returns the result as JSON.
    pub(super) fn as_json(&self) -> Value {
        match self {
            Self::Refused(reason) => json!({"accepted": false, "fault": reason}),
            Self::LoggedIn { name, is_allowed } => {
                json!({"accepted": true, "name": name, "allowed": is_allowed})
            }
        }
    }
}
