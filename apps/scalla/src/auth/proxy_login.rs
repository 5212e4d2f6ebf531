//! The decision about a client that logs in with a grid proxy (`gsi`).

use super::AccessDecision;
use anyhow::Context;
use auth::Entity;
use auth::access::{AccessClient, AccessOperation, AccessPolicy};
use auth::gsi::GridCredential;
use base::LogicalPath;
use config::{AuthProtocol, Effective};
use serde_json::{Value, json};
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

/// The result of a login with a proxy.
pub(super) enum ProxyLogin {
    /// The login is refused, for this reason.
    Refused(String),
    /// The client has this identity.
    LoggedIn(Box<Entity>),
}

impl ProxyLogin {
    /// Verifies a proxy as a server with this configuration.
    pub(super) fn of(effective: &Effective, proxy: &GridCredential, host: &str) -> anyhow::Result<Self> {
        become_user_of_server(effective)?;
        let identity = server::grid_identity(effective, proxy, host, SystemTime::now())?;
        let identity = identity.context(
            "the configuration has no logins by proxies; add xrootd.seclib default and sec.protocol gsi",
        )?;
        Ok(match identity {
            Ok(entity) => Self::LoggedIn(Box::new(entity)),
            Err(reason) => Self::Refused(reason),
        })
    }

    /// Decides about an operation; `None` if the login is refused.
    pub(super) fn decide<'a>(
        &'a self,
        effective: &Effective,
        policy: &'a AccessPolicy,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> anyhow::Result<Option<AccessDecision<'a>>> {
        let Self::LoggedIn(entity) = self else { return Ok(None) };
        let request = policy.request(AccessClient::Entity(entity), None);
        let mut decision = AccessDecision::of(&effective.authorization, request, operation, path)?;
        decision.is_allowed &= !self.forbids(operation);
        Ok(Some(decision))
    }

    /// Reports whether the proxy is a limited one, with which nothing may be changed.
    fn forbids(&self, operation: AccessOperation) -> bool {
        matches!(self, Self::LoggedIn(entity) if entity.only_reads) && !server::only_reads(operation)
    }

    /// Describes the login, and the effect of a limited proxy on an operation.
    pub(super) fn lines(&self, operation: AccessOperation) -> Vec<String> {
        let entity = match self {
            Self::Refused(reason) => return vec![format!("the login (gsi) is refused: {reason}")],
            Self::LoggedIn(entity) => entity,
        };
        let name = entity.name.as_deref().unwrap_or("a client without a name");
        let mut lines = vec![format!("logs in by gsi as {name}")];
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
        match self {
            Self::Refused(reason) => json!({"accepted": false, "fault": reason}),
            Self::LoggedIn(entity) => json!({
                "accepted": true,
                "name": entity.name.as_deref(),
                "organizations": entity.vorg.as_deref(),
                "groups": entity.groups.as_deref(),
                "roles": entity.role.as_deref(),
                "limited": entity.only_reads,
            }),
        }
    }
}
