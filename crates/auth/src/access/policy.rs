//! [`AccessPolicy`]: the layers that decide about a request, in their order: tokens, then the rules
//! of a file.

use super::authorizer::{AccessClient, AuditField, AuditedDecisions, Authorizer};
use super::principal::RequestIdentity;
use super::privileges::AccessOperation;
use crate::tokens::{OnMissing, ScopeGrant, TokenFault, TokenPolicy, TokenVerdict, VerifiedToken};
use base::LogicalPath;
use std::fmt;
use std::sync::Arc;

/// The layers of authorization. At least one of them exists; otherwise everything is denied.
pub struct AccessPolicy {
    tokens: Option<Arc<TokenPolicy>>,
    rules: Option<Arc<Authorizer>>,
    audit: AuditedDecisions,
}

/// Where the token of a request comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenOrigin {
    /// The request has it.
    Request,
    /// The client logged in with it, and the login verified it. The name that it gives its bearer is
    /// that of the client.
    Login,
}

/// The result for the token of a request.
#[derive(Clone, Debug)]
pub struct RequestToken {
    /// The result of its verification for this request.
    pub verdict: TokenVerdict,
    /// Where it comes from.
    pub origin: TokenOrigin,
}

/// The client of a request with the credential of the request.
#[derive(Clone, Copy)]
pub struct AccessRequest<'a> {
    policy: &'a AccessPolicy,
    client: AccessClient<'a>,
    token: Option<&'a RequestToken>,
}

/// The layer that decides about an operation, and its decision.
#[derive(Clone, Copy, Debug)]
pub enum LayerDecision<'a> {
    /// A scope of the token allows it.
    Scope(&'a VerifiedToken, &'a ScopeGrant),
    /// The token is not valid, so nothing is allowed.
    InvalidToken(TokenFault),
    /// No token authorizes it, and the issuer file allows or denies such requests.
    OnMissing {
        /// It is allowed.
        is_allowed: bool,
        /// The token, if there is a valid one.
        token: Option<&'a VerifiedToken>,
    },
    /// The rules decide, for this client.
    Rules(AccessClient<'a>),
}

impl AccessPolicy {
    /// Creates the policy of the configured layers.
    #[must_use]
    pub fn new(
        tokens: Option<Arc<TokenPolicy>>,
        rules: Option<Arc<Authorizer>>,
        audit: AuditedDecisions,
    ) -> Self {
        Self { tokens, rules, audit }
    }

    /// Returns the layer of tokens.
    #[must_use]
    pub fn tokens(&self) -> Option<&Arc<TokenPolicy>> {
        self.tokens.as_ref()
    }

    /// Returns the layer of rules.
    #[must_use]
    pub fn rules(&self) -> Option<&Arc<Authorizer>> {
        self.rules.as_ref()
    }

    /// Returns a request of a client. `token` is the result for the token of the request.
    #[must_use]
    pub fn request<'a>(
        &'a self,
        client: AccessClient<'a>,
        token: Option<&'a RequestToken>,
    ) -> AccessRequest<'a> {
        AccessRequest { policy: self, client, token }
    }
}

impl<'a> AccessRequest<'a> {
    /// Returns the layer that decides about an operation.
    #[must_use]
    pub fn layer(&self, operation: AccessOperation, path: &LogicalPath) -> LayerDecision<'a> {
        let Some(tokens) = &self.policy.tokens else { return LayerDecision::Rules(self.client) };
        let Some(RequestToken { verdict, origin }) = self.token else {
            return self.unauthorized(tokens, None);
        };
        let token = match verdict {
            TokenVerdict::Refused(fault) => return LayerDecision::InvalidToken(*fault),
            TokenVerdict::Valid(token) => &**token,
            TokenVerdict::NotRecognized(_) => return self.unauthorized(tokens, None),
        };
        if let Some(grant) = token.grant(operation, path) {
            return LayerDecision::Scope(token, grant);
        }
        let name = match origin {
            TokenOrigin::Request => token.mapped_name(path).map(|(name, _)| name),
            TokenOrigin::Login => token.name_for_rules(path),
        };
        let groups = token.groups();
        if name.is_none() && groups.is_empty() {
            return self.unauthorized(tokens, Some(token));
        }
        let identity = RequestIdentity {
            name,
            organizations: Some(token.issuer().url.as_str()).filter(|_| !groups.is_empty()),
            groups: Some(groups).filter(|groups| !groups.is_empty()),
            subject: token.subject(),
            issuer: &token.issuer().url,
        };
        LayerDecision::Rules(self.client.with(identity))
    }

    /// Returns the decision about a request that no token authorizes.
    fn unauthorized(&self, tokens: &TokenPolicy, token: Option<&'a VerifiedToken>) -> LayerDecision<'a> {
        match tokens.on_missing() {
            OnMissing::PassThrough => LayerDecision::Rules(self.client),
            OnMissing::Allow => LayerDecision::OnMissing { is_allowed: true, token },
            OnMissing::Deny => LayerDecision::OnMissing { is_allowed: false, token },
        }
    }

    /// Reports whether the client may perform an operation, without logging the decision.
    #[must_use]
    pub fn permits(&self, operation: AccessOperation, path: &LogicalPath) -> bool {
        match self.layer(operation, path) {
            LayerDecision::Scope(..) => true,
            LayerDecision::InvalidToken(_) => false,
            LayerDecision::OnMissing { is_allowed, .. } => is_allowed,
            LayerDecision::Rules(client) => {
                let rules = self.policy.rules.as_ref();
                rules.is_some_and(|rules| operation.is_granted_by(rules.privileges(client, path)))
            }
        }
    }

    /// Decides whether the client may perform an operation, and logs the decision if configured.
    /// `trace` names the session in the log.
    #[must_use]
    pub fn allows(&self, operation: AccessOperation, path: &LogicalPath, trace: &dyn fmt::Display) -> bool {
        let layer = self.layer(operation, path);
        if let (LayerDecision::Rules(client), Some(rules)) = (layer, &self.policy.rules) {
            return rules.allows(client, operation, path, trace);
        }
        let is_allowed = match layer {
            LayerDecision::Scope(..) => true,
            LayerDecision::OnMissing { is_allowed, .. } => is_allowed,
            LayerDecision::InvalidToken(_) | LayerDecision::Rules(_) => false,
        };
        let audit = &self.policy.audit;
        if if is_allowed { audit.grants } else { audit.denials } {
            tracing::info!("{trace} {}", self.audit_text(is_allowed, layer, operation, path));
        }
        is_allowed
    }

    /// Returns the text of an audit line about a decision of the layer of tokens.
    fn audit_text(
        &self,
        is_allowed: bool,
        layer: LayerDecision<'_>,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> String {
        let reason = match layer {
            LayerDecision::Scope(token, grant) => format!("{}: {}", bearer(token), AuditField(&grant.scope)),
            LayerDecision::InvalidToken(fault) => format!("token: {fault}"),
            LayerDecision::OnMissing { token: Some(token), .. } => format!("{}: onmissing", bearer(token)),
            LayerDecision::OnMissing { token: None, .. } => "no token: onmissing".to_owned(),
            LayerDecision::Rules(_) => "no layer grants it".to_owned(),
        };
        let name = match layer {
            LayerDecision::Scope(token, _) => token.name(path),
            _ => None,
        };
        let principal = self.client.principal();
        let decision = if is_allowed { "grant" } else { "deny" };
        let host = if principal.host.is_empty() { "?" } else { principal.host };
        let name = name.or(principal.name).unwrap_or("*");
        format!(
            "{decision} {} {}@{} {} {} ({reason})",
            AuditField(principal.protocol),
            AuditField(name),
            AuditField(host),
            operation.name(),
            path.shown(),
        )
    }

    /// Reports whether anything is granted to the client on any path.
    #[must_use]
    pub fn grants_any(&self) -> bool {
        if let Some(TokenVerdict::Valid(token)) = self.token.map(|token| &token.verdict)
            && self.policy.tokens.is_some()
            && !token.grants().is_empty()
        {
            return true;
        }
        match self.layer(AccessOperation::Any, &LogicalPath::root()) {
            LayerDecision::Scope(..) => true,
            LayerDecision::InvalidToken(_) => false,
            LayerDecision::OnMissing { is_allowed, .. } => is_allowed,
            LayerDecision::Rules(client) => {
                self.policy.rules.as_ref().is_some_and(|rules| rules.grants_any(client))
            }
        }
    }

    /// Reports whether rules for paths below `directory` apply to the client, or rules of a map file
    /// give it another name there, so that its privileges may differ. Scopes do not differ below their
    /// paths.
    #[must_use]
    pub fn has_rule_below(&self, operation: AccessOperation, directory: &LogicalPath) -> bool {
        let renames = || match self.token {
            Some(RequestToken { verdict: TokenVerdict::Valid(token), .. }) => {
                token.has_map_rule_below(directory)
            }
            _ => false,
        };
        match self.layer(operation, directory) {
            LayerDecision::Rules(client) => {
                let rules = self.policy.rules.as_ref();
                rules.is_some_and(|rules| rules.has_pair_below(client, directory)) || renames()
            }
            LayerDecision::OnMissing { .. } => renames(),
            LayerDecision::Scope(..) | LayerDecision::InvalidToken(_) => false,
        }
    }
}

/// Describes the bearer of a token.
fn bearer(token: &VerifiedToken) -> String {
    format!("token of {} from {}", AuditField(token.subject()), AuditField(&token.issuer().url))
}
