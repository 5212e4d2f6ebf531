//! The values of a proxy as text.

use super::lines::{EffectiveLines, Reload};
use crate::effective::{OriginPermit, ProxyOrigin, ProxyServer, ProxySettings};

/// Shows the values of a proxy. They need a restart, because open files belong to an origin.
pub(super) fn show(values: &ProxySettings, lines: &mut EffectiveLines) {
    if !*values.enabled {
        return;
    }
    lines.restart("ofs.osslib", &values.enabled, |_| "libXrdPss.so".to_owned());
    lines.add(Reload::Restart, "pss.origin", &values.origin, |origin| origin.as_ref().map(self::origin));
    for setting in &values.permits {
        lines.restart("pss.permit", setting, permit);
    }
    lines.add(Reload::Restart, "pss.localroot", &values.local_root, Clone::clone);
    lines.add(Reload::Restart, "pss.hostarena", &values.host_arena, Clone::clone);
    for setting in &values.options {
        lines.restart("pss.setopt", setting, |option| format!("{} {}", option.name, option.number));
    }
    lines.restart("pss.inetmode", &values.only_ipv4, |v4| if *v4 { "v4" } else { "v6" }.to_owned());
}

fn origin(origin: &ProxyOrigin) -> String {
    let forwards = origin.forwards.then(|| "=".to_owned());
    let server = origin.fixed.as_ref().map(server);
    forwards.into_iter().chain(server).collect::<Vec<_>>().join(" ")
}

fn server(server: &ProxyServer) -> String {
    let ProxyServer { encrypted, host, port } = server;
    let scheme = if *encrypted { "roots" } else { "root" };
    if host.contains(':') {
        format!("{scheme}://[{host}]:{port}")
    } else {
        format!("{scheme}://{host}:{port}")
    }
}

fn permit(permit: &OriginPermit) -> String {
    format!("{}{}", if permit.paths { "" } else { "* " }, permit.host.as_str())
}
