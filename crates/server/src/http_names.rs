//! The names by which clients of HTTP address the server.

use crate::tls::ServerTls;
use config::Effective;
use std::sync::Arc;

/// Returns whether a header `Host` has a name of the server.
pub(crate) fn own_names(
    effective: &Effective,
    tls: Option<&Arc<ServerTls>>,
) -> Arc<dyn Fn(&str) -> bool + Send + Sync> {
    let (own, tls) = (effective.host.clone(), tls.cloned());
    Arc::new(move |host: &str| {
        let names = tls.as_ref().map(|tls| tls.names()).unwrap_or_default();
        names.iter().chain([&own]).any(|name| is_host_name(host, name))
    })
}

/// Returns whether a header `Host` has a name of the server, for pages that anyone on this host may read, also without
/// TLS. Whoever can create names in a domain could lead one of them here, so names with `*.` do not count. A name
/// without a domain is not that of another site.
pub(crate) fn page_names(
    effective: &Effective,
    tls: Option<&Arc<ServerTls>>,
) -> Arc<dyn Fn(&str) -> bool + Send + Sync> {
    let (own, tls) = (effective.host.clone(), tls.cloned());
    Arc::new(move |host: &str| {
        let names = tls.as_ref().map(|tls| tls.names()).unwrap_or_default();
        let short = own.split_once('.').map(|(first, _)| first.to_owned());
        let names = names.iter().filter(|name| !name.starts_with("*.")).chain([&own]).chain(&short);
        names.into_iter().any(|name| is_host_name(host, name) || is_host_name(host, &format!("{name}.")))
    })
}

/// Reports whether the value of a header `Host` is a name, with or without a port. A name of a certificate can
/// begin with `*.`, which stands for one label.
fn is_host_name(host: &str, name: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let host = match host.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => host,
    };
    let is_label = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    match name.strip_prefix("*.") {
        Some(domain) => host
            .split_once('.')
            .is_some_and(|(label, rest)| is_label(label) && rest.eq_ignore_ascii_case(domain)),
        None => host.eq_ignore_ascii_case(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_names_of_the_host() {
        let request = config::ConfigInput { file: Some("f".to_owned()), ..Default::default() };
        let mut effective = config::load(&request, &config::MemorySource::new().with("f", "")).effective;
        effective.host = "h.example.org".to_owned();
        let is_own = page_names(&effective, None);
        for host in ["h.example.org", "h.example.org.:1094", "h", "h:1094", "H."] {
            assert!(is_own(host), "{host}");
        }
        for host in ["", ".", "example.org", "h.example", "evil.example.org", "h.evil.example"] {
            assert!(!is_own(host), "{host}");
        }
    }

    #[test]
    fn hosts_are_compared_with_names() {
        for (host, name) in [
            ("h.example.org", "h.example.org"),
            ("H.example.org:1094", "h.example.org"),
            ("h.example.org:443", "*.example.org"),
            ("[2001:db8::1]:1094", "[2001:db8::1]"),
        ] {
            assert!(is_host_name(host, name), "{host} {name}");
        }
        for (host, name) in [
            ("", "h.example.org"),
            ("example.org", "h.example.org"),
            ("h.example.org.evil", "h.example.org"),
            ("h.example.org:", "h.example.org"),
            ("h.example.org:1/x", "h.example.org"),
            ("h.example.org:65536", "h.example.org"),
            ("h.example.org:+1", "h.example.org"),
            ("u@h.example.org", "h.example.org"),
            ("a.b.example.org", "*.example.org"),
            (".example.org", "*.example.org"),
            ("example.org", "*.example.org"),
            ("evil/.example.org", "*.example.org"),
            ("evil:1@h.example.org", "*.example.org"),
        ] {
            assert!(!is_host_name(host, name), "{host} {name}");
        }
    }
}
