//! The values of authorization as text.

use super::lines::{EffectiveLines, Reload, time, trace};
use crate::effective::{
    AuthorizationConfig, AuthorizationLayers, CredentialLayer, MacaroonConfig, RulePathMatch,
};
use crate::setting::Setting;

/// Shows the values. All except the rules themselves need a restart, so that no reload of a
/// configuration can disable a restriction unnoticed.
pub(super) fn show(values: &AuthorizationConfig, lines: &mut EffectiveLines) {
    lines.add(Reload::Restart, "ofs.authorize", &values.enabled, |on| on.then(String::new));
    if !*values.enabled {
        return;
    }
    layers(&values.layers, lines);
    if values.layers.has_macaroons() {
        macaroons(&values.macaroons, lines);
    }
    lines.add(Reload::Restart, "acc.authdb", &values.authdb, |path| {
        path.as_ref().map(|path| path.display().to_string())
    });
    lines.restart("acc.authrefresh", &values.refresh, time);
    lines.restart("acc.audit", &values.audit, |audit| match (audit.denials, audit.grants) {
        (true, true) => "deny grant".to_owned(),
        (true, false) => "deny".to_owned(),
        (false, true) => "grant".to_owned(),
        (false, false) => "none".to_owned(),
    });
    lines.add(Reload::Restart, "acc.encoding", &values.encoding, |encoding| {
        let space = encoding.space.map(|byte| format!("space {}", char::from(byte)));
        let words: Vec<String> =
            space.into_iter().chain(encoding.decode_paths.then(|| "pct path".to_owned())).collect();
        (!words.is_empty()).then(|| words.join(" "))
    });
    lines.restart("acc.pathmatch", &values.path_match, |matching| match matching {
        RulePathMatch::Component => "component".to_owned(),
        RulePathMatch::Prefix => "prefix".to_owned(),
    });
    lines.restart("acc.gidlifetime", &values.lookup_lifetime, time);
    lines.add(Reload::Restart, "acc.nisdomain", &values.netgroup_domain, Clone::clone);
}

/// Shows the layers, the last one first, because each line is on top of those before.
fn layers(layers: &Setting<AuthorizationLayers>, lines: &mut EffectiveLines) {
    let mut is_on_top = layers.rules;
    for layer in layers.credentials.iter().rev() {
        let library = match layer {
            CredentialLayer::Macaroons => "libXrdMacaroons.so".to_owned(),
            CredentialLayer::Tokens(file) => format!("libXrdAccSciTokens.so config={}", file.display()),
        };
        let stacked = if is_on_top { "++ " } else { "" };
        let line = Setting::new(format!("{stacked}{library}"), layers.origin.clone());
        lines.restart("ofs.authlib", &line, Clone::clone);
        is_on_top = true;
    }
}

fn macaroons(values: &MacaroonConfig, lines: &mut EffectiveLines) {
    lines.add(Reload::Restart, "macaroons.secretkey", &values.secret, |path| {
        path.as_ref().map(|path| path.display().to_string())
    });
    lines.add(Reload::Restart, "macaroons.sitename", &values.site, Clone::clone);
    lines.restart("macaroons.maxduration", &values.lifetime_max, |lifetime| {
        lifetime.as_ref().map_or_else(|| "0".to_owned(), time)
    });
    lines.restart("macaroons.onmissing", &values.on_missing, |missing| missing.name().to_owned());
    lines.safe("macaroons.trace", &values.trace, trace);
}
