//! Explanations of decisions of the layer of macaroons.

use auth::access::{AccessOperation, CredentialKind, LayerDecision, RequestToken};
use auth::macaroons::{MacaroonPolicy, MacaroonVerdict, VerifiedMacaroon};
use auth::tokens::TokenVerdict;
use base::LogicalPath;
use serde_json::{Value, json};
use std::time::SystemTime;

/// Describes a macaroon and the decision with it, one text per line.
pub(super) fn lines(
    token: Option<&RequestToken>,
    layer: LayerDecision<'_>,
    (operation, path): (AccessOperation, &LogicalPath),
    macaroons: &MacaroonPolicy,
) -> Vec<String> {
    let mut lines = Vec::new();
    let is_token = token
        .is_some_and(|token| matches!(token.token, Some(TokenVerdict::Valid(_) | TokenVerdict::Refused(_))));
    let secret = macaroons.path().display();
    match token.and_then(|token| token.macaroon.as_ref()) {
        Some(MacaroonVerdict::Valid(macaroon)) => lines.push(format!("{secret}: {}", describe(macaroon))),
        Some(MacaroonVerdict::Refused(fault)) => {
            lines.push(format!("{secret}: nothing is allowed with the macaroon: {fault}"));
        }
        Some(MacaroonVerdict::OtherSite) => {
            lines.push(format!(
                "it is a macaroon of another site than {}: it counts as none",
                macaroons.site()
            ));
        }
        Some(MacaroonVerdict::NotRecognized(fault)) if !is_token => {
            lines.push(format!("it counts as no credential: {fault}"));
        }
        Some(MacaroonVerdict::NotRecognized(_)) | None => {}
    }
    match layer {
        LayerDecision::Macaroon { is_allowed: true, .. } => lines.push("its caveats allow it".to_owned()),
        LayerDecision::Macaroon { macaroon, .. } => {
            lines.push(match macaroon.denying_caveat(operation, path) {
                Some(caveat) => format!("the caveat {caveat:?} does not allow it"),
                None => "the paths of its caveats have nothing in common, so nothing is allowed".to_owned(),
            });
        }
        LayerDecision::OnMissing { kind: CredentialKind::Macaroon, is_allowed, .. } => {
            let value = if is_allowed { "allow" } else { "deny" };
            lines.push(format!("there is no macaroon, and macaroons.onmissing is {value}"));
        }
        _ => {}
    }
    lines
}

fn describe(macaroon: &VerifiedMacaroon) -> String {
    let left = macaroon.expires().duration_since(SystemTime::now()).unwrap_or_default().as_secs();
    let caveats: Vec<String> = macaroon.caveats().map(|caveat| format!("{caveat:?}")).collect();
    format!(
        "the signature of the macaroon {:?} of {} is right, and it expires in {left} s: {}",
        macaroon.identifier(),
        macaroon.site(),
        caveats.join(" "),
    )
}

/// Returns the macaroon as JSON.
pub(super) fn as_json(token: Option<&RequestToken>) -> Value {
    match token.and_then(|token| token.macaroon.as_ref()) {
        None => Value::Null,
        Some(MacaroonVerdict::NotRecognized(fault)) => {
            json!({"recognized": false, "fault": fault.to_string()})
        }
        Some(MacaroonVerdict::OtherSite) => json!({"recognized": false, "fault": "another site"}),
        Some(MacaroonVerdict::Refused(fault)) => json!({"recognized": true, "fault": fault.to_string()}),
        Some(MacaroonVerdict::Valid(macaroon)) => json!({
            "recognized": true,
            "site": macaroon.site(),
            "identifier": macaroon.identifier(),
            "name": macaroon.name(),
            "caveats": macaroon.caveats().collect::<Vec<_>>(),
        }),
    }
}
