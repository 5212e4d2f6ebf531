//! The values of HTTP as text.

use super::lines::{EffectiveLines, Reload, time};
use crate::effective::{Effective, HttpConfig, HttpCopyNetworks, HttpPort, PageReaders, ServerPages};
use std::path::PathBuf;

pub(super) fn show(effective: &Effective, lines: &mut EffectiveLines) {
    let values = &effective.http;
    for (index, port) in values.ports.iter().enumerate() {
        let is_added = values.ports.iter().take(index).any(|earlier| earlier.protocol == port.protocol);
        lines.restart("xrd.protocol", port, |HttpPort { protocol, number }| {
            let number = number.map(|number| format!(":{number}")).unwrap_or_default();
            let library = match protocol.as_str() {
                _ if is_added => "+port",
                "http" | "https" => "*",
                _ => "libXrdHttp.so",
            };
            format!("{protocol}{number} {library}")
        });
    }
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    lines.add(Reload::Restart, "http.cert", &values.certificate, path);
    lines.add(Reload::Restart, "http.key", &values.key, path);
    for rule in &values.headers_to_cgi {
        lines.restart("http.header2cgi", rule, |rule| {
            let strip = if rule.strip_on_redirect { " strip-on-redirect" } else { "" };
            format!("{} {}{strip}", rule.header, rule.key)
        });
    }
    for rule in &values.static_headers {
        lines.restart("http.staticheader", rule, |rule| {
            let method = rule.method.as_ref().map(|method| format!("-verb={method} ")).unwrap_or_default();
            format!("{method}{} {}", rule.name, rule.value)
        });
    }
    let yes = |value: &bool| if *value { "yes" } else { "no" }.to_owned();
    if !values.redirects_to_https.origin.is_default() {
        lines.restart("http.desthttps", &values.redirects_to_https, yes);
    }
    lines.restart("http.listingdeny", &values.denies_listings, yes);
    lines.add(Reload::Restart, "http.listingredir", &values.listing_redirect, Clone::clone);
    if !values.cors.origin.is_default() {
        lines.restart("http.cors", &values.cors, |_| "libXrdHttpCors.so".to_owned());
    }
    for origin in &values.cors_origins {
        lines.restart("cors.origin", origin, Clone::clone);
    }
    show_certificates(values, lines);
    lines.restart("http.maxdelay", &values.delay_max, time);
    if *values.copies {
        let option = if values.copies_without_tls { "+notls " } else { "" };
        lines.restart("http.exthandler", &values.copies, |_| format!("xrdtpc {option}libXrdHttpTPC.so"));
    }
    if *values.macaroons {
        let option = if values.macaroons_without_tls { "+notls " } else { "" };
        lines.restart("http.exthandler", &values.macaroons, |_| {
            format!("xrdmacaroons {option}libXrdMacaroons.so")
        });
    }
    let HttpCopyNetworks { local, private } = *values.copy_networks;
    for (allows, network) in [(local, "local"), (private, "private")] {
        let name = if allows == Some(true) { "tpc.allow" } else { "tpc.deny" };
        if allows.is_some() {
            lines.restart(name, &values.copy_networks, |_| network.to_owned());
        }
    }
    lines.restart("tpc.timeout", &values.copy_times, |times| {
        format!("{} {}", time(&times.stall), time(&times.first))
    });
    lines.add(Reload::Restart, "http.cadir", &values.authority_directory, path);
    lines.add(Reload::Restart, "http.cafile", &values.authority_file, path);
    lines.restart("scalla.http", &values.pages, pages);
}

fn pages(pages: &ServerPages) -> String {
    let mut words = Vec::new();
    if !pages.http2 {
        words.push("nohttp2".to_owned());
    }
    if pages.status {
        words.push("status".to_owned());
    }
    for (page, readers) in [("metrics", &pages.metrics), ("dashboard", &pages.dashboard)] {
        match readers {
            PageReaders::Nobody => {}
            PageReaders::Local => words.push(page.to_owned()),
            PageReaders::All => words.push(format!("{page} all")),
            PageReaders::Networks(ranges) => {
                words.push(page.to_owned());
                words.extend(ranges.iter().map(ToString::to_string));
            }
        }
    }
    if let Some(prefix) = &pages.tape {
        words.push(format!("taperest {prefix}"));
    }
    if words.is_empty() { "off".to_owned() } else { words.join(" ") }
}

/// Shows the values about certificates of clients.
fn show_certificates(values: &HttpConfig, lines: &mut EffectiveLines) {
    if !values.asks_for_certificates.origin.is_default() {
        let on = |on: &bool| if *on { "on" } else { "off" }.to_owned();
        lines.restart("http.tlsclientauth", &values.asks_for_certificates, on);
    }
    let required = |is_required: bool| if is_required { "required " } else { "" };
    lines.add(Reload::Restart, "http.gridmap", &values.grid_map, |map| {
        map.as_ref().map(|map| format!("{}{}", required(map.is_required), map.path.display()))
    });
    lines.add(Reload::Restart, "http.secxtractor", &values.voms, |voms| {
        voms.map(|is_required| format!("{}libXrdVoms.so", required(is_required)))
    });
}
