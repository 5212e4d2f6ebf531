//! The values of authorization as text.

use super::lines::{EffectiveLines, Reload, time};
use crate::effective::{AuthorizationConfig, RulePathMatch};

/// Shows the values. All except the rules themselves need a restart, so that no reload of a
/// configuration can disable a restriction unnoticed.
pub(super) fn show(values: &AuthorizationConfig, lines: &mut EffectiveLines) {
    lines.add(Reload::Restart, "ofs.authorize", &values.enabled, |on| on.then(String::new));
    if !*values.enabled {
        return;
    }
    lines.add(Reload::Restart, "ofs.authlib", &values.layers, |layers| {
        let stacked = if layers.rules { "++ " } else { "" };
        let file = layers.tokens.as_ref()?;
        Some(format!("{stacked}libXrdAccSciTokens.so config={}", file.display()))
    });
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
