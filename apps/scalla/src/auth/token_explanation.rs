//! Explanations of decisions of the layer of tokens.

use auth::access::{CredentialKind, LayerDecision, RequestToken};
use auth::macaroons::MacaroonVerdict;
use auth::tokens::{TokenVerdict, VerifiedToken};
use base::LogicalPath;
use serde_json::{Value, json};
use std::path::Path;
use std::time::SystemTime;

/// Describes a token and the decision with it, one text per line. `file` is the issuer file.
pub(super) fn lines(
    token: Option<&RequestToken>,
    layer: LayerDecision<'_>,
    path: &LogicalPath,
    file: &Path,
) -> Vec<String> {
    let mut lines = Vec::new();
    let macaroon = token.and_then(|token| token.macaroon.as_ref());
    let is_macaroon = !matches!(macaroon, None | Some(MacaroonVerdict::NotRecognized(_)));
    let verdict = token.and_then(|token| token.token.as_ref());
    match verdict {
        Some(TokenVerdict::Valid(token)) => lines.push(describe(token, file)),
        Some(TokenVerdict::NotRecognized(_)) if is_macaroon => {}
        Some(TokenVerdict::NotRecognized(fault)) => {
            lines.push(format!("{}: it counts as no credential: {fault}", file.display()));
        }
        Some(TokenVerdict::Refused(fault)) => {
            lines.push(format!("{}: nothing is allowed with the token: {fault}", file.display()));
        }
        None => {}
    }
    match layer {
        LayerDecision::Scope(token, grant) => {
            lines.push(format!("the scope {} allows it on {} and below", grant.scope, grant.path.shown()));
            if let Some(name) = token.name(path) {
                lines.push(format!("the name of the client is {name}"));
            }
        }
        LayerDecision::InvalidToken(_)
        | LayerDecision::Macaroon { .. }
        | LayerDecision::InvalidMacaroon(_)
        | LayerDecision::OnMissing { kind: CredentialKind::Macaroon, .. } => {}
        LayerDecision::OnMissing { is_allowed, token, .. } => {
            let what =
                if token.is_some() { "the token does not authorize it" } else { "no token authorizes it" };
            let value = if is_allowed { "allow" } else { "deny" };
            lines.push(format!("{}: {what}, and onmissing is {value}", file.display()));
        }
        LayerDecision::Rules(client) => {
            if let Some(TokenVerdict::Valid(token)) = verdict {
                lines.push(match token.grants().is_empty() {
                    true => "no scope of the token counts, so the rules decide".to_owned(),
                    false => "no scope of the token allows it, so the rules decide".to_owned(),
                });
                let principal = client.principal();
                let identity = [("name", principal.name.unwrap_or_default()), ("groups", principal.groups)];
                let identity = identity.into_iter().filter(|(_, value)| !value.is_empty());
                let identity: Vec<String> = identity.map(|(what, value)| format!("{what} {value}")).collect();
                if !identity.is_empty() {
                    lines.push(format!("the rules see the client with {}", identity.join(", ")));
                }
            }
        }
    }
    lines
}

fn describe(token: &VerifiedToken, file: &Path) -> String {
    let issuer = token.issuer();
    let left = token.expires().duration_since(SystemTime::now()).unwrap_or_default().as_secs();
    format!(
        "{}:{}: [Issuer {}] accepts it: subject {:?} of {}, expires in {left} s",
        file.display(),
        issuer.line,
        issuer.section,
        token.subject(),
        issuer.url,
    )
}

/// Returns the token and the decision with it as JSON.
pub(super) fn as_json(token: Option<&RequestToken>, layer: LayerDecision<'_>, path: &LogicalPath) -> Value {
    let token = match token.and_then(|token| token.token.as_ref()) {
        None => Value::Null,
        Some(TokenVerdict::NotRecognized(fault)) => json!({"recognized": false, "fault": fault.to_string()}),
        Some(TokenVerdict::Refused(fault)) => json!({"recognized": true, "fault": fault.to_string()}),
        Some(TokenVerdict::Valid(token)) => json!({
            "recognized": true,
            "issuer": token.issuer().url,
            "line": token.issuer().line,
            "subject": token.subject(),
            "groups": token.groups(),
            "name": token.name(path),
        }),
    };
    let (decided_by, scope) = match layer {
        LayerDecision::Scope(_, grant) => ("scope", Some(&*grant.scope)),
        LayerDecision::InvalidToken(_) => ("token", None),
        LayerDecision::Macaroon { .. } | LayerDecision::InvalidMacaroon(_) => ("macaroon", None),
        LayerDecision::OnMissing { .. } => ("onmissing", None),
        LayerDecision::Rules(_) => ("rules", None),
    };
    json!({"decided_by": decided_by, "scope": scope, "token": token})
}
