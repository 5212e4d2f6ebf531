//! The decision about a client that logs in: with a grid proxy (`gsi`), or by a protocol whose identities
//! the map or the program of the site completes (`sec.entitymap`, `sec.entityprogram`).

use super::AccessDecision;
use crate::usage_error::UsageError;
use anyhow::Context;
use auth::access::{AccessClient, AccessOperation, AccessPolicy, Principal};
use auth::gsi::GridCredential;
use auth::{Entity, EntityAttributes, EntityNames};
use base::LogicalPath;
use config::{AuthProtocol, Effective};
use serde_json::{Value, json};
use server::NamedEntity;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// Lets root continue as the owner of the key of the server, who is the user of the server: a server
/// reads only files of its own user and of root.
fn become_user_of_server(effective: &Effective) -> anyhow::Result<()> {
    let key = effective.security.protocols.iter().find_map(|protocol| match &protocol.value {
        AuthProtocol::Gsi(options) => Some(&options.key),
        _ => None,
    });
    let owner = key.and_then(|key| key.metadata().ok()).map_or(0, |found| found.uid());
    if owner != 0 && server::User::is_root() {
        server::User::find(&owner.to_string())?.switch()?;
    }
    Ok(())
}

/// The result of a login.
pub(super) struct CheckedLogin {
    protocol: String,
    outcome: LoginOutcome,
}

enum LoginOutcome {
    /// The login is refused, for this reason.
    Refused(String),
    /// The client has this identity.
    LoggedIn {
        entity: Box<Entity>,
        /// The name by the protocol, if the server gives the identity.
        replaced: Option<String>,
        /// The directives that give it.
        sources: Vec<String>,
    },
}

impl CheckedLogin {
    /// Verifies a proxy as a server with this configuration.
    pub(super) fn of_proxy(
        effective: &Effective,
        proxy: &GridCredential,
        host: &str,
    ) -> anyhow::Result<Self> {
        become_user_of_server(effective)?;
        let identity = server::grid_identity(effective, proxy, host, SystemTime::now())?;
        let identity = identity.context(
            "the configuration has no logins by proxies; add xrootd.seclib default and sec.protocol gsi",
        )?;
        let protocol = "gsi".to_owned();
        let entity = match identity {
            Ok(entity) => entity,
            Err(reason) => return Ok(Self { protocol, outcome: LoginOutcome::Refused(reason) }),
        };
        let named = server::named_entity(effective, &entity, &protocol, host)?;
        Ok(Self { protocol, outcome: LoginOutcome::of(entity, named) })
    }

    /// Lets the map and the program name a client with these names by its protocol.
    pub(super) fn of_names(
        effective: &Effective,
        protocol: &str,
        principal: &Principal<'_>,
    ) -> anyhow::Result<Self> {
        if !effective.security.protocols.iter().any(|known| known.id() == protocol) {
            return Err(UsageError(format!("the configuration has no sec.protocol {protocol}")).into());
        }
        let Principal { organizations, roles, groups, .. } = principal;
        let attributes = EntityAttributes::new(organizations, roles, groups)
            .ok_or_else(|| UsageError("the numbers of organizations, roles and groups differ".to_owned()))?;
        let names = EntityNames { name: principal.name.map(Into::into), attributes: Some(attributes) };
        let entity = Entity::of_host(principal.host).renamed(names);
        let named = server::named_entity(effective, &entity, protocol, principal.host)?.ok_or_else(|| {
            let what = "--protocol is for a configuration with sec.entitymap or sec.entityprogram";
            UsageError(what.to_owned())
        })?;
        Ok(Self { protocol: protocol.to_owned(), outcome: LoginOutcome::of(entity, Some(named)) })
    }

    /// Decides about an operation; `None` if the login is refused.
    pub(super) fn decide<'a>(
        &'a self,
        effective: &Effective,
        policy: &'a AccessPolicy,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> anyhow::Result<Option<AccessDecision<'a>>> {
        let LoginOutcome::LoggedIn { entity, .. } = &self.outcome else { return Ok(None) };
        let request = policy.request(AccessClient::Entity(entity), None);
        let mut decision = AccessDecision::of(&effective.authorization, request, operation, path)?;
        decision.is_allowed &= !self.forbids(operation);
        Ok(Some(decision))
    }

    /// Reports whether the proxy is a limited one, with which nothing may be changed.
    fn forbids(&self, operation: AccessOperation) -> bool {
        matches!(&self.outcome, LoginOutcome::LoggedIn { entity, .. } if entity.only_reads)
            && !server::only_reads(operation)
    }

    /// Describes the login, and the effect of a limited proxy on an operation.
    pub(super) fn lines(&self, operation: AccessOperation) -> Vec<String> {
        let protocol = &self.protocol;
        let (entity, replaced, sources) = match &self.outcome {
            LoginOutcome::Refused(reason) => {
                return vec![format!("the login ({protocol}) is refused: {reason}")];
            }
            LoginOutcome::LoggedIn { entity, replaced, sources } => (entity, replaced, sources),
        };
        let mut lines = vec![format!("logs in by {protocol} as {}", shown(entity))];
        let by = sources.join(", then ");
        lines.extend(replaced.as_ref().map(|name| format!("{by} gives this identity to {name}")));
        let columns = [("organizations", &entity.vorg), ("groups", &entity.groups), ("roles", &entity.role)];
        for (column, value) in columns {
            lines.extend(value.as_deref().map(|value| format!("{column}: {value}")));
        }
        if self.forbids(operation) {
            lines.push("the proxy is a limited one, which may only read (gsi.limited)".to_owned());
        }
        lines
    }

    /// Returns the login as JSON.
    pub(super) fn as_json(&self) -> Value {
        match &self.outcome {
            LoginOutcome::Refused(reason) => json!({"accepted": false, "fault": reason}),
            LoginOutcome::LoggedIn { entity, replaced, sources } => json!({
                "accepted": true,
                "replaced": replaced,
                "sources": sources,
                "name": entity.name.as_deref(),
                "organizations": entity.vorg.as_deref(),
                "groups": entity.groups.as_deref(),
                "roles": entity.role.as_deref(),
                "limited": entity.only_reads,
            }),
        }
    }
}

impl LoginOutcome {
    /// Returns the outcome for an identity by a protocol and that by the map and the program.
    fn of(entity: Entity, named: Option<NamedEntity>) -> Self {
        match named {
            None => Self::LoggedIn { entity: Box::new(entity), replaced: None, sources: Vec::new() },
            Some(NamedEntity { sources, entity: Ok(named) }) => {
                let replaced = Some(shown(&entity).to_owned());
                Self::LoggedIn { entity: Box::new(named), replaced, sources }
            }
            Some(NamedEntity { entity: Err(reason), .. }) => Self::Refused(reason),
        }
    }
}

fn shown(entity: &Entity) -> &str {
    entity.name.as_deref().unwrap_or("a client without a name")
}
