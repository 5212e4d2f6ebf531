//! The values of authentication and signing as text.

use super::grid::gsi_text;
use super::lines::{EffectiveLines, Reload, trace};
use crate::effective::{
    AuthBinding, AuthProtocol, EntityMapFile, EntityProgram, Krb5Options, SecurityConfig, SigningRule,
    SssOptions, ZtnOptions,
};
use crate::setting::Setting;

const MINUTE: u64 = 60;

pub(super) fn show(security: &SecurityConfig, lines: &mut EffectiveLines) {
    let on = |on: &bool| on.then(|| "default".to_owned());
    lines.add(Reload::Restart, "xrootd.seclib", &security.enabled, on);
    for protocol in &security.protocols {
        lines.restart("sec.protocol", protocol, protocol_text);
    }
    for binding in &security.bindings {
        lines.restart("sec.protbind", binding, binding_text);
    }
    let mode = |offers: &bool| if *offers { "offer" } else { "enforce" }.to_owned();
    lines.restart("sec.bindmode", &security.binding_offers, mode);
    for id in &security.tls_protocols {
        lines.restart("sec.bindtls", id, String::clone);
    }
    let Setting { value, origin } = &security.signing;
    if value.local == value.remote {
        lines.restart("sec.level", &security.signing, |levels| format!("all {}", rule_text(levels.local)));
    } else {
        for (scope, rule) in [("local", value.local), ("remote", value.remote)] {
            let rule = Setting::new(rule, origin.clone());
            lines.restart("sec.level", &rule, |rule| format!("{scope} {}", rule_text(*rule)));
        }
    }
    let signed = |signed: &bool| if *signed { "on" } else { "off" }.to_owned();
    lines.restart("sec.signdata", &security.signed_data, signed);
    lines.restart("gsi.limited", &security.grid_limited, |limited| limited.name().to_owned());
    let types = |legacy: &bool| if *legacy { "rfc legacy" } else { "rfc" }.to_owned();
    lines.restart("gsi.proxytypes", &security.grid_legacy, types);
    lines.restart("gsi.minrsa", &security.grid_key_bits, u32::to_string);
    lines.add(
        Reload::Restart,
        "gsi.crlsource",
        &security.grid_list_sources,
        super::third_party::show_sources,
    );
    for pattern in security.grid_old_clients.iter() {
        let shown = Setting::new(format!("olddh {pattern}"), security.grid_old_clients.origin.clone());
        lines.restart("gsi.compat", &shown, String::clone);
    }
    lines.add(Reload::Restart, "voms.mapfile", &security.voms_map, |path| {
        path.as_ref().map(|path| path.display().to_string())
    });
    lines.add(Reload::Restart, "sec.entitymap", &security.entity_map, |map| {
        let EntityMapFile { path, refuses_others } = map.as_ref()?;
        let others = if *refuses_others { "refuse" } else { "keep" };
        Some(format!("{} {others}", path.display()))
    });
    lines.add(Reload::Restart, "sec.entityprogram", &security.entity_program, |program| {
        let EntityProgram { path, arguments } = program.as_ref()?;
        let words = std::iter::once(path.display().to_string()).chain(arguments.iter().cloned());
        Some(words.collect::<Vec<_>>().join(" "))
    });
    lines.safe("sec.trace", &security.trace, trace);
}

fn rule_text(rule: SigningRule) -> String {
    let relaxed = if rule.relaxed { "relaxed " } else { "" };
    let force = if rule.force { " force" } else { "" };
    format!("{relaxed}{}{force}", rule.level.name())
}

fn binding_text(binding: &AuthBinding) -> String {
    let hosts = binding.hosts.as_str();
    let only = if binding.only { "only " } else { "" };
    match binding.protocols.as_slice() {
        [] => format!("{hosts} none"),
        protocols => format!("{hosts} {only}{}", protocols.join(" ")),
    }
}

fn protocol_text(protocol: &AuthProtocol) -> String {
    match protocol {
        AuthProtocol::Sss(options) => format!("sss {}", sss_text(options)),
        AuthProtocol::Ztn(options) => ztn_text(options),
        AuthProtocol::Gsi(options) => gsi_text(options),
        AuthProtocol::Krb5(options) => krb5_text(options),
        AuthProtocol::Pwd(options) => {
            let directory = options.directory.as_ref().map(|path| format!(" -dir:{}", path.display()));
            format!("pwd{} -maxfail:{}", directory.unwrap_or_default(), options.failures_max)
        }
        AuthProtocol::Host | AuthProtocol::Unix => protocol.id().to_owned(),
    }
}

fn ztn_text(options: &ZtnOptions) -> String {
    let library = options.library.name();
    format!("ztn -maxsz {} -expiry {} -tokenlib {library}", options.token_bytes_max, options.expiry.name())
}

fn krb5_text(options: &Krb5Options) -> String {
    let mut words = vec!["krb5".to_owned()];
    words.extend(options.keytab.as_ref().map(|path| path.display().to_string()));
    words.extend(options.checks_addresses.then(|| "-ipchk".to_owned()));
    words.extend(options.ticket_file.as_ref().map(|template| format!("-exptkn:{template}")));
    words.push(options.principal.clone());
    words.join(" ")
}

fn sss_text(options: &SssOptions) -> String {
    let mut words = Vec::new();
    words.extend(options.server_keytab.as_ref().map(|path| format!("-s {}", path.display())));
    words.extend(options.client_keytab.as_ref().map(|path| format!("-c {path}")));
    words.extend(options.wants_credentials.then(|| "-g".to_owned()));
    words.extend(options.checks_key_name.then(|| "-k".to_owned()));
    // A lifetime that is not a whole number of minutes is the default.
    let lifetime = options.lifetime.as_secs();
    words.extend(lifetime.is_multiple_of(MINUTE).then(|| format!("-l {}", lifetime / MINUTE)));
    if !options.forwarded_protocols.is_empty() {
        words.push(format!("-p {}", options.forwarded_protocols.join(":")));
    }
    words.push(format!("-r {}", options.refresh.as_secs() / MINUTE));
    words.join(" ")
}
