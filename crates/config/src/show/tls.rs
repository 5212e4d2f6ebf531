//! The values of TLS as text.

use super::lines::{EffectiveLines, Reload, time};
use crate::effective::{Effective, ProtocolConfig, TlsAuthorities, TlsCertificate, TlsRevocation};
use crate::setting::Setting;

pub(super) fn network(effective: &Effective, lines: &mut EffectiveLines) {
    let network = &effective.network;
    let certificate = |value: &Option<TlsCertificate>| {
        // Its own line shows that of HTTP.
        let value = value.as_ref().filter(|_| !effective.has_certificate_of_http())?;
        let key = value.key.as_ref().map(|key| format!("{} ", key.display())).unwrap_or_default();
        Some(format!("{} {key}hsto {}", value.certificate.display(), time(&value.handshake_time)))
    };
    lines.add(Reload::Restart, "xrd.tls", &network.tls, certificate);
    let authorities = |value: &Option<TlsAuthorities>| {
        let value = value.as_ref()?;
        let directory = value.directory.as_ref().map(|path| format!("certdir {}", path.display()));
        let file = value.file.as_ref().map(|path| format!("certfile {}", path.display()));
        let words: Vec<String> = directory.into_iter().chain(file).collect();
        let words: Vec<String> = match words.is_empty() {
            true => words,
            false => words.into_iter().chain(client_rules(value)).collect(),
        };
        Some(if words.is_empty() { "noverify".to_owned() } else { words.join(" ") })
    };
    lines.add(Reload::Restart, "xrd.tlsca", &network.tls_authorities, authorities);
    lines.add(Reload::Restart, "xrd.tlsciphers", &network.tls_ciphers, Clone::clone);
}

/// Returns the rules for certificates of clients that are not the default.
fn client_rules(value: &TlsAuthorities) -> Vec<String> {
    let default = TlsAuthorities::default();
    let revocation = match value.revocation {
        TlsRevocation::Present => None,
        TlsRevocation::Last => Some("crlcheck last".to_owned()),
        TlsRevocation::All => Some("crlcheck all".to_owned()),
    };
    let proxies = (!value.accepts_proxies).then(|| "noproxies".to_owned());
    let refresh = (value.refresh != default.refresh).then(|| format!("refresh {}", time(&value.refresh)));
    let depth = (value.depth_max != default.depth_max).then(|| format!("verdepth {}", value.depth_max));
    [revocation, proxies, refresh, depth].into_iter().flatten().collect()
}

pub(super) fn protocol(protocol: &ProtocolConfig, lines: &mut EffectiveLines) {
    let Setting { value, origin } = &protocol.tls;
    if value.is_empty() {
        lines.restart("xrootd.tls", &protocol.tls, |_| "none".to_owned());
    }
    for (scope, operations) in [("", value.all), ("capable ", value.capable)] {
        if !operations.is_empty() {
            let line = Setting::new(operations, origin.clone());
            lines.restart("xrootd.tls", &line, |line| format!("{scope}{}", line.words().join(" ")));
        }
    }
    let switch = |on: &bool| if *on { "on" } else { "off" }.to_owned();
    lines.restart("xrootd.tlsreuse", &protocol.tls_reuse, switch);
}
