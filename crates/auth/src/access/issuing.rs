//! The rights that a client can pass on in a macaroon of this site.
//!
//! The layer of macaroons is not asked: a macaroon never serves to get another one, and
//! `macaroons.onmissing` is about the use of rights. The layers below decide, with the credential of the
//! request. A macaroon is for a path and everything below, so an activity can be passed on only if the
//! client has all of its operations on all of these paths.
//!
//! A macaroon counts from anywhere and at all servers of the site, over their rules. So only the rights of the
//! client itself are passed on: of the scopes of its token, and of rules for the name and the groups that
//! the token gives it. Those that an `onmissing`, a rule for everybody or one for a host gives are those of a
//! place.

use super::authorizer::AccessClient;
use super::policy::{AccessRequest, LayerDecision};
use super::privileges::{AccessOperation as Op, Privileges};
use crate::macaroons::{Activity, MacaroonVerdict};
use crate::tokens::{ScopeGrant, TokenFault, TokenVerdict, VerifiedToken};
use base::LogicalPath;
use std::cell::OnceCell;
use std::time::SystemTime;

/// Maximum length of a name in a macaroon, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// The rights that a client can pass on in a macaroon for a path and everything below.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassedOnRights {
    /// The name of the client, for logs.
    pub name: Option<String>,
    /// The activities, in the order of [`Activity::ALL`].
    pub activities: Vec<Activity>,
    /// The time at which the rights of the client end.
    pub expires: SystemTime,
}

/// The reason why a client can pass no rights on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MacaroonDenial {
    /// The request has no credential that counts.
    #[error("a macaroon is issued only to clients with a token that counts here")]
    NoCredential,
    /// The credential of the request is a macaroon.
    #[error("a macaroon does not serve to get another one; its holder can append caveats")]
    Macaroon,
    /// The token of the request is not valid.
    #[error("the token is not valid: {0}")]
    InvalidToken(TokenFault),
}

impl AccessRequest<'_> {
    /// Returns the rights that the client can pass on in a macaroon.
    ///
    /// # Errors
    /// [`MacaroonDenial`].
    pub fn passed_on(&self, path: &LogicalPath) -> Result<PassedOnRights, MacaroonDenial> {
        let path = path.without_slash();
        let token = self.token_for_macaroon()?;
        let by_rules = OnceCell::new();
        let may = |operation| self.has_throughout(operation, &path, &by_rules);
        let activities = Activity::ALL.into_iter().map(|(_, activity)| activity);
        let login = match self.client {
            AccessClient::Entity(entity) => entity.expires,
            _ => None,
        };
        Ok(PassedOnRights {
            name: self.name_for_macaroon(token, &path),
            activities: activities.filter(|activity| is_covered(*activity, may)).collect(),
            expires: login.map_or(token.expires(), |login| login.min(token.expires())),
        })
    }

    /// Returns the token of the request.
    fn token_for_macaroon(&self) -> Result<&VerifiedToken, MacaroonDenial> {
        let verdicts = self.token.ok_or(MacaroonDenial::NoCredential)?;
        if let Some(MacaroonVerdict::Valid(_) | MacaroonVerdict::Refused(_)) = verdicts.macaroon {
            return Err(MacaroonDenial::Macaroon);
        }
        match &verdicts.token {
            Some(TokenVerdict::Valid(token)) => Ok(token),
            Some(TokenVerdict::Refused(fault)) => Err(MacaroonDenial::InvalidToken(*fault)),
            Some(TokenVerdict::NotRecognized(_)) | None => Err(MacaroonDenial::NoCredential),
        }
    }

    /// Reports whether the client has an operation on a path and everything below. `by_rules` are the
    /// privileges that the rules give it there, which are the same for all operations.
    fn has_throughout(&self, operation: Op, path: &LogicalPath, by_rules: &OnceCell<Privileges>) -> bool {
        match self.layer_below_macaroons(operation, path) {
            // A scope also allows to look at the directories above its path, but not at all that is below them.
            LayerDecision::Scope(token, _) => {
                let covers =
                    |grant: &ScopeGrant| grant.operations.contains(operation) && path.is_within(&grant.path);
                token.grants().iter().any(covers)
            }
            LayerDecision::Rules(client) => {
                let found = || match self.policy.rules() {
                    // Another name below the path can have fewer rights.
                    Some(rules) if !self.is_renamed_below(path) => rules.privileges_to_pass_on(client, path),
                    _ => Privileges::NONE,
                };
                operation.is_granted_by(*by_rules.get_or_init(found))
            }
            LayerDecision::OnMissing { .. }
            | LayerDecision::InvalidToken(_)
            | LayerDecision::Macaroon { .. }
            | LayerDecision::InvalidMacaroon(_) => false,
        }
    }

    fn name_for_macaroon(&self, token: &VerifiedToken, path: &LogicalPath) -> Option<String> {
        let name = match self.layer_below_macaroons(Op::Stat, path) {
            LayerDecision::Rules(client) => client.principal().name,
            _ => token.name(path),
        };
        let is_text = |name: &&str| {
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
        };
        name.filter(is_text).map(str::to_owned)
    }
}

/// Reports whether a client that may do some operations has all of an activity.
fn is_covered(activity: Activity, may: impl Fn(Op) -> bool) -> bool {
    let operations = activity.operations();
    let has = |operation| match operation {
        // No rule grants only the creation of new names.
        Op::ExclusiveCreate => may(Op::ExclusiveCreate) || may(Op::Create),
        Op::ExclusiveInsert => may(Op::ExclusiveInsert) || may(Op::Insert),
        // No request of any protocol locks a file.
        Op::Lock => true,
        operation => may(operation),
    };
    // `any` is no operation of its own.
    let mut own = Op::ALL.into_iter().filter(|op| *op != Op::Any && operations.contains(*op));
    // XRootD asks for the privileges of a change of the owner, which include the removal.
    own.all(has) && (activity != Activity::Manage || may(Op::Delete))
}
