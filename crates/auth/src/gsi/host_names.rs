//! The name of a server: whether its certificate is for the host of the URL.
//!
//! Source: security facts, section 2.6.8.

use super::certificate::GridCertificate;
use crate::grid::Glob;

/// A server whose certificate is accepted for the host of the URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AcceptedServer {
    /// A proxy may be delegated to it: it is one of the servers that the user lists, if there is a list.
    pub(super) may_have_proxy: bool,
}

/// Checks that the certificate of a server is one for `host`. `patterns` are the names that the user
/// accepts in addition (`XrdSecGSISRVNAMES`).
pub(super) fn check(
    certificate: &GridCertificate,
    host: &str,
    patterns: Option<&str>,
) -> Result<AcceptedServer, String> {
    let names = names(certificate);
    let verdict = |name: &String| patterns.and_then(|patterns| accepted_by(patterns, name, host));
    let is_denied = names.iter().any(|name| verdict(name) == Some(false));
    let is_listed = names.iter().any(|name| verdict(name) == Some(true));
    if !is_denied && (is_listed || names.iter().any(|name| matches(name, host))) {
        return Ok(AcceptedServer { may_have_proxy: is_listed || patterns.is_none() });
    }
    let shown = if names.is_empty() { "no host".to_owned() } else { names.join(", ") };
    Err(format!("the certificate of the server is for {shown}, not for {host}"))
}

/// Returns the names of hosts in a certificate: the DNS names, or the last common name if there are no
/// alternative names at all.
fn names(certificate: &GridCertificate) -> Vec<String> {
    if certificate.has_alternative_names() {
        return certificate.dns_names().unwrap_or_default();
    }
    let name = certificate.common_name();
    // `host/name` of older authorities.
    let name = name.map(|name| name.split_once('/').map(|(_, rest)| rest.to_owned()).unwrap_or(name));
    name.into_iter().collect()
}

/// Reports whether a name, whose whole left label may be `*`, is that of the host.
fn matches(name: &str, host: &str) -> bool {
    let (name, host) = (without_root(name), without_root(host));
    if let Some(domain) = name.strip_prefix("*.") {
        let rest = host.split_once('.').map(|(_, rest)| rest);
        return domain.contains('.') && rest.is_some_and(|rest| rest.eq_ignore_ascii_case(domain));
    }
    !name.contains('*') && name.eq_ignore_ascii_case(host)
}

fn without_root(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Returns the verdict of the last pattern that matches; `None` if none does.
fn accepted_by(patterns: &str, name: &str, host: &str) -> Option<bool> {
    let name = name.to_ascii_lowercase();
    let verdict = |pattern: &str| {
        let pattern = pattern.trim();
        let (accepts, pattern) = match pattern.strip_prefix('-') {
            Some(pattern) => (false, pattern),
            None => (true, pattern),
        };
        let pattern = pattern.trim().replace("<host>", host).replace("<fqdn>", host).to_ascii_lowercase();
        (!pattern.is_empty() && Glob::with_star(&pattern).matches(&name)).then_some(accepts)
    };
    patterns.split('|').rev().find_map(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(common_name: &str, names: &[&str]) -> GridCertificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        GridCertificate::decode(params.self_signed(&key).unwrap().der()).unwrap()
    }

    /// S087.
    #[test]
    fn a_server_must_have_the_name_of_its_host() {
        let cases: [(&str, &[&str], &str, bool); 14] = [
            ("h.example.org", &[], "h.example.org", true),
            ("h.example.org", &[], "H.Example.org.", true),
            ("host/h.example.org", &[], "h.example.org", true),
            ("h.example.org", &[], "x.example.org", false),
            ("h.example.org", &["other.example.org"], "h.example.org", false),
            ("x", &["a.example.org", "h.example.org"], "h.example.org", true),
            ("x", &["*.example.org"], "h.example.org", true),
            ("x", &["*.example.org"], "a.h.example.org", false),
            ("x", &["*.example.org"], "example.org", false),
            ("x", &["h*.example.org"], "h1.example.org", false),
            ("x", &["*.org"], "example.org", false),
            ("x", &["a.*.org"], "a.b.org", false),
            ("*", &[], "h.example.org", false),
            ("127.0.0.1", &["127.0.0.1"], "127.0.0.1", false),
        ];
        for (common_name, names, host, expected) in cases {
            let found = check(&certificate(common_name, names), host, None);
            assert_eq!(found.is_ok(), expected, "{common_name} {names:?} {host}");
        }
    }

    #[test]
    fn the_user_accepts_other_names() {
        let server = certificate("x", &["door.example.org"]);
        for (patterns, expected) in [
            ("door.example.org", true),
            ("other", false),
            ("*.example.org", true),
            ("*|-door.*", false),
            ("-door.*|*", true),
            ("* | -door.* ", false),
            ("*|-*example*", false),
            ("d*.ex*.org", true),
            ("d*.ex*.net", false),
            ("<host>", false),
            ("", false),
        ] {
            assert_eq!(check(&server, "h", Some(patterns)).is_ok(), expected, "{patterns}");
        }
        // A server outside of the list gets no proxy, whether or not it has the name of the host.
        let has_proxy = |host, patterns| check(&server, host, patterns).map(|server| server.may_have_proxy);
        assert_eq!(has_proxy("door.example.org", Some("other")), Ok(false));
        assert_eq!(has_proxy("door.example.org", Some("other|<host>")), Ok(true));
        assert_eq!(has_proxy("h", Some("door.*")), Ok(true));
        assert_eq!(has_proxy("door.example.org", None), Ok(true));
        let text = check(&server, "h", None).unwrap_err();
        assert_eq!(text, "the certificate of the server is for door.example.org, not for h");
    }
}
