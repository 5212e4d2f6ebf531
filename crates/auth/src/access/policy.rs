//! [`AccessPolicy`]: the layers that decide about a request, in their order: macaroons and tokens, then
//! the rules of a file.

use super::authorizer::{AccessClient, AuditField, AuditedDecisions, Authorizer};
use super::principal::RequestIdentity;
use super::privileges::AccessOperation;
use crate::macaroons::{MacaroonFault, MacaroonPolicy, MacaroonVerdict, VerifiedMacaroon};
use crate::tokens::{
    KeyWaiter, KeyWaiterOwner, OnMissing, ScopeGrant, TokenFault, TokenPolicy, TokenVerdict, VerifiedToken,
};
use base::LogicalPath;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// A layer that decides by the credential of a request.
#[derive(Clone)]
pub enum CredentialLayer {
    /// Macaroons of this site.
    Macaroons(Arc<MacaroonPolicy>),
    /// Tokens of issuers.
    Tokens(Arc<TokenPolicy>),
}

/// The kind of a [`CredentialLayer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CredentialKind {
    /// Macaroons of this site.
    Macaroon,
    /// Tokens of issuers.
    Token,
}

/// The layers of authorization. At least one of them exists; otherwise everything is denied.
pub struct AccessPolicy {
    /// The first one decides first. There is at most one of each kind.
    credentials: Vec<CredentialLayer>,
    rules: Option<Arc<Authorizer>>,
    audit: AuditedDecisions,
}

/// Where the credential of a request comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenOrigin {
    /// The request has it.
    Request,
    /// The client logged in with it, and the login verified it. The name that it gives its bearer is
    /// that of the client.
    Login,
}

/// The results of each layer for the credential of a request.
#[derive(Clone, Debug)]
pub struct RequestToken {
    /// The result as a macaroon; `None` without such a layer.
    pub macaroon: Option<MacaroonVerdict>,
    /// The result as a token; `None` without such a layer.
    pub token: Option<TokenVerdict>,
    /// Where it comes from.
    pub origin: TokenOrigin,
}

impl RequestToken {
    fn valid_token(&self) -> Option<&VerifiedToken> {
        match &self.token {
            Some(TokenVerdict::Valid(token)) => Some(token),
            _ => None,
        }
    }

    fn valid_macaroon(&self) -> Option<&VerifiedMacaroon> {
        match &self.macaroon {
            Some(MacaroonVerdict::Valid(macaroon)) => Some(macaroon),
            _ => None,
        }
    }
}

/// The client of a request with the credential of the request.
#[derive(Clone, Copy)]
pub struct AccessRequest<'a> {
    pub(super) policy: &'a AccessPolicy,
    pub(super) client: AccessClient<'a>,
    pub(super) token: Option<&'a RequestToken>,
}

/// The layer that decides about an operation, and its decision.
#[derive(Clone, Copy, Debug)]
pub enum LayerDecision<'a> {
    /// The caveats of the macaroon decide.
    Macaroon {
        /// They allow it.
        is_allowed: bool,
        /// The macaroon.
        macaroon: &'a VerifiedMacaroon,
    },
    /// The macaroon is not valid, so nothing is allowed.
    InvalidMacaroon(&'a MacaroonFault),
    /// A scope of the token allows it.
    Scope(&'a VerifiedToken, &'a ScopeGrant),
    /// The token is not valid, so nothing is allowed.
    InvalidToken(TokenFault),
    /// No credential of this kind authorizes it, and the layer allows or denies such requests.
    OnMissing {
        /// The layer.
        kind: CredentialKind,
        /// It is allowed.
        is_allowed: bool,
        /// The token, if there is a valid one.
        token: Option<&'a VerifiedToken>,
    },
    /// The rules decide, for this client.
    Rules(AccessClient<'a>),
}

/// The result of one layer.
enum LayerStep<'a> {
    Decided(LayerDecision<'a>),
    /// The next layer decides, for this client.
    Next(AccessClient<'a>),
}

impl AccessPolicy {
    /// Creates the policy of the configured layers; the first of `credentials` decides first.
    #[must_use]
    pub fn new(
        credentials: Vec<CredentialLayer>,
        rules: Option<Arc<Authorizer>>,
        audit: AuditedDecisions,
    ) -> Self {
        Self { credentials, rules, audit }
    }

    /// Reports whether the credential of a request counts.
    #[must_use]
    pub fn uses_credentials(&self) -> bool {
        !self.credentials.is_empty()
    }

    /// Returns the layer of macaroons.
    #[must_use]
    pub fn macaroons(&self) -> Option<&Arc<MacaroonPolicy>> {
        self.credentials.iter().find_map(|layer| match layer {
            CredentialLayer::Macaroons(macaroons) => Some(macaroons),
            CredentialLayer::Tokens(_) => None,
        })
    }

    /// Returns the layer of tokens.
    #[must_use]
    pub fn tokens(&self) -> Option<&Arc<TokenPolicy>> {
        self.credentials.iter().find_map(|layer| match layer {
            CredentialLayer::Tokens(tokens) => Some(tokens),
            CredentialLayer::Macaroons(_) => None,
        })
    }

    /// Returns the layer of rules.
    #[must_use]
    pub fn rules(&self) -> Option<&Arc<Authorizer>> {
        self.rules.as_ref()
    }

    /// Reports whether denied operations are logged.
    #[must_use]
    pub fn audits_denials(&self) -> bool {
        self.audit.denials
    }

    /// Returns the results for a credential if they are known without long computation.
    #[must_use]
    pub fn recall(&self, text: &[u8], origin: TokenOrigin, now: SystemTime) -> Option<RequestToken> {
        let token = match self.tokens() {
            Some(tokens) => Some(tokens.recall(text, now)?),
            None => None,
        };
        Some(RequestToken { macaroon: self.verify_macaroon(text, now), token, origin })
    }

    /// Verifies a credential. Computes for up to 1 ms.
    #[must_use]
    pub fn verify(&self, text: &[u8], origin: TokenOrigin, now: SystemTime) -> RequestToken {
        let token = self.tokens().map(|tokens| tokens.verify(text, now));
        RequestToken { macaroon: self.verify_macaroon(text, now), token, origin }
    }

    /// Returns the issuer of a token that a new key could make valid.
    #[must_use]
    pub fn issuer_of_missing_key(&self, text: &[u8], verified: &RequestToken) -> Option<String> {
        match &verified.token {
            Some(TokenVerdict::Refused(fault)) => self.tokens()?.issuer_of_missing_key(text, *fault),
            _ => None,
        }
    }

    /// Makes a request of a client wait for the keys of an issuer. `waiter` verifies its token again, once.
    ///
    /// # Errors
    /// `waiter`, if nobody fetches keys, or if too many requests wait.
    pub fn wait_for_keys(
        &self,
        issuer: &str,
        owner: KeyWaiterOwner,
        waiter: KeyWaiter,
    ) -> Result<(), KeyWaiter> {
        match self.tokens() {
            Some(tokens) => tokens.wait_for_keys(issuer, owner, waiter),
            None => Err(waiter),
        }
    }

    fn verify_macaroon(&self, text: &[u8], now: SystemTime) -> Option<MacaroonVerdict> {
        self.macaroons().map(|macaroons| macaroons.verify(text, now))
    }

    /// Returns a request of a client. `token` are the results for the credential of the request.
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
        self.first_decision(operation, path, true)
    }

    /// Returns the layer that decides about an operation if macaroons do not count.
    pub(super) fn layer_below_macaroons(
        &self,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> LayerDecision<'a> {
        self.first_decision(operation, path, false)
    }

    fn first_decision(
        &self,
        operation: AccessOperation,
        path: &LogicalPath,
        with_macaroons: bool,
    ) -> LayerDecision<'a> {
        let mut client = self.client;
        for layer in &self.policy.credentials {
            let step = match layer {
                CredentialLayer::Macaroons(_) if !with_macaroons => continue,
                CredentialLayer::Macaroons(macaroons) => self.by_macaroon(macaroons, client, operation, path),
                CredentialLayer::Tokens(tokens) => self.by_token(tokens, client, operation, path),
            };
            match step {
                LayerStep::Decided(decision) => return decision,
                LayerStep::Next(next) => client = next,
            }
        }
        LayerDecision::Rules(client)
    }

    fn by_macaroon(
        &self,
        macaroons: &MacaroonPolicy,
        client: AccessClient<'a>,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> LayerStep<'a> {
        match self.token.and_then(|token| token.macaroon.as_ref()) {
            // A macaroon must not serve to get another one, which could allow more.
            Some(MacaroonVerdict::Valid(_)) if operation == AccessOperation::Any => LayerStep::Next(client),
            Some(MacaroonVerdict::Valid(macaroon)) => {
                let is_allowed = macaroon.allows(operation, path);
                LayerStep::Decided(LayerDecision::Macaroon { is_allowed, macaroon })
            }
            Some(MacaroonVerdict::Refused(fault)) => {
                LayerStep::Decided(LayerDecision::InvalidMacaroon(fault))
            }
            Some(MacaroonVerdict::OtherSite) => LayerStep::Next(client),
            Some(MacaroonVerdict::NotRecognized(_)) | None => {
                unauthorized(CredentialKind::Macaroon, macaroons.on_missing(), client, None)
            }
        }
    }

    fn by_token(
        &self,
        tokens: &TokenPolicy,
        client: AccessClient<'a>,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> LayerStep<'a> {
        let missing = |token| unauthorized(CredentialKind::Token, tokens.on_missing(), client, token);
        let Some(RequestToken { token: Some(verdict), origin, .. }) = self.token else {
            return missing(None);
        };
        let token = match verdict {
            TokenVerdict::Refused(fault) => return LayerStep::Decided(LayerDecision::InvalidToken(*fault)),
            TokenVerdict::Valid(token) => &**token,
            TokenVerdict::NotRecognized(_) => return missing(None),
        };
        if let Some(grant) = token.grant(operation, path) {
            return LayerStep::Decided(LayerDecision::Scope(token, grant));
        }
        let name = match origin {
            TokenOrigin::Request => token.mapped_name(path).map(|(name, _)| name),
            TokenOrigin::Login => token.name_for_rules(path),
        };
        let groups = token.groups();
        if name.is_none() && groups.is_empty() {
            return missing(Some(token));
        }
        let identity = RequestIdentity {
            name,
            organizations: Some(token.issuer().url.as_str()).filter(|_| !groups.is_empty()),
            groups: Some(groups).filter(|groups| !groups.is_empty()),
            subject: token.subject(),
            issuer: &token.issuer().url,
        };
        LayerStep::Next(client.with(identity))
    }

    /// Returns the name that the token of this request gives its bearer for an operation; `None` if
    /// the client's own name counts. A macaroon gives no name, because its bearer can add one.
    #[must_use]
    pub fn bearer_name(&self, operation: AccessOperation, path: &LogicalPath) -> Option<&'a str> {
        match self.layer(operation, path) {
            LayerDecision::Scope(token, _) => token.name(path),
            LayerDecision::Rules(AccessClient::Bearer(_, identity)) => identity.name,
            LayerDecision::OnMissing { token: Some(token), .. } => match self.token?.origin {
                TokenOrigin::Request => token.mapped_name(path).map(|(name, _)| name),
                TokenOrigin::Login => token.name_for_rules(path),
            },
            _ => None,
        }
    }

    /// Reports whether the client may perform an operation, without logging the decision.
    #[must_use]
    pub fn permits(&self, operation: AccessOperation, path: &LogicalPath) -> bool {
        match self.layer(operation, path) {
            LayerDecision::Rules(client) => {
                let rules = self.policy.rules.as_ref();
                rules.is_some_and(|rules| operation.is_granted_by(rules.privileges(client, path)))
            }
            decision => decision.allows_by_credential(),
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
        let is_allowed = layer.allows_by_credential();
        let audit = &self.policy.audit;
        if if is_allowed { audit.grants } else { audit.denials } {
            tracing::info!("{trace} {}", self.audit_text(is_allowed, layer, operation, path));
        }
        is_allowed
    }

    /// Decides as [`Self::allows`] where a credential decides. Where rules decide, the operation `by_rules`
    /// must be allowed, with the identity that the credentials give the client.
    #[must_use]
    pub fn allows_by_rules_as(
        &self,
        (operation, by_rules): (AccessOperation, AccessOperation),
        path: &LogicalPath,
        trace: &dyn fmt::Display,
    ) -> bool {
        if let (LayerDecision::Rules(client), Some(rules)) = (self.layer(operation, path), &self.policy.rules)
        {
            return rules.allows(client, by_rules, path, trace);
        }
        self.allows(operation, path, trace)
    }

    /// Returns the text of an audit line about a decision of a layer of credentials.
    fn audit_text(
        &self,
        is_allowed: bool,
        layer: LayerDecision<'_>,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> String {
        let name = match layer {
            LayerDecision::Scope(token, _) => token.name(path),
            LayerDecision::Macaroon { is_allowed: true, macaroon } => macaroon.name(),
            _ => None,
        };
        let reason = layer.reason(operation, path);
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
        if let Some(token) = self.token.and_then(RequestToken::valid_token)
            && !token.grants().is_empty()
        {
            return true;
        }
        if self.token.and_then(RequestToken::valid_macaroon).is_some_and(VerifiedMacaroon::grants_any) {
            return true;
        }
        match self.layer(AccessOperation::Any, &LogicalPath::root()) {
            LayerDecision::Rules(client) => {
                self.policy.rules.as_ref().is_some_and(|rules| rules.grants_any(client))
            }
            decision => decision.allows_by_credential(),
        }
    }

    /// Reports whether rules for paths below `directory` apply to the client, or rules of a map file
    /// give it another name there, so that its privileges may differ. Scopes and caveats do not differ
    /// below their paths.
    #[must_use]
    pub fn has_rule_below(&self, operation: AccessOperation, directory: &LogicalPath) -> bool {
        let renames = || self.is_renamed_below(directory);
        match self.layer(operation, directory) {
            LayerDecision::Rules(client) => {
                let rules = self.policy.rules.as_ref();
                rules.is_some_and(|rules| rules.has_pair_below(client, directory)) || renames()
            }
            LayerDecision::OnMissing { .. } => renames(),
            LayerDecision::Scope(..)
            | LayerDecision::InvalidToken(_)
            | LayerDecision::Macaroon { .. }
            | LayerDecision::InvalidMacaroon(_) => false,
        }
    }

    /// Reports whether rules of a map file can give the bearer another name below `directory`.
    pub(super) fn is_renamed_below(&self, directory: &LogicalPath) -> bool {
        let token = self.token.and_then(RequestToken::valid_token);
        token.is_some_and(|token| token.has_map_rule_below(directory))
    }
}

/// Returns the step after a request that no credential of a kind authorizes.
fn unauthorized<'a>(
    kind: CredentialKind,
    on_missing: OnMissing,
    client: AccessClient<'a>,
    token: Option<&'a VerifiedToken>,
) -> LayerStep<'a> {
    let is_allowed = match on_missing {
        OnMissing::PassThrough => return LayerStep::Next(client),
        OnMissing::Allow => true,
        OnMissing::Deny => false,
    };
    LayerStep::Decided(LayerDecision::OnMissing { kind, is_allowed, token })
}

impl LayerDecision<'_> {
    /// Reports whether a layer of credentials allows the operation. The rules behind are not asked.
    #[must_use]
    pub fn allows_by_credential(self) -> bool {
        match self {
            Self::Scope(..) => true,
            Self::Macaroon { is_allowed, .. } | Self::OnMissing { is_allowed, .. } => is_allowed,
            Self::InvalidToken(_) | Self::InvalidMacaroon(_) | Self::Rules(_) => false,
        }
    }

    /// Returns the reason of the decision, for audit lines.
    fn reason(self, operation: AccessOperation, path: &LogicalPath) -> String {
        match self {
            Self::Scope(token, grant) => format!("{}: {}", bearer(token), AuditField(&grant.scope)),
            Self::InvalidToken(fault) => format!("token: {fault}"),
            Self::Macaroon { is_allowed: true, macaroon } => {
                format!("macaroon {}", AuditField(macaroon.identifier()))
            }
            Self::Macaroon { macaroon, .. } => {
                let caveat = macaroon.denying_caveat(operation, path).unwrap_or("path caveats");
                format!("macaroon {}: {}", AuditField(macaroon.identifier()), AuditField(caveat))
            }
            Self::InvalidMacaroon(fault) => format!("macaroon: {fault}"),
            Self::OnMissing { token: Some(token), .. } => format!("{}: onmissing", bearer(token)),
            Self::OnMissing { kind: CredentialKind::Token, .. } => "no token: onmissing".to_owned(),
            Self::OnMissing { kind: CredentialKind::Macaroon, .. } => "no macaroon: onmissing".to_owned(),
            Self::Rules(_) => "no layer grants it".to_owned(),
        }
    }
}

/// Describes the bearer of a token.
fn bearer(token: &VerifiedToken) -> String {
    format!("token of {} from {}", AuditField(token.subject()), AuditField(&token.issuer().url))
}
