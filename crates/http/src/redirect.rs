//! Redirects to other servers, and the CGI that they have.

use crate::config::HeaderToCgi;
use crate::reply::{self, RequestReply};
use crate::text;
use base::Cgi;
use hyper::header::LOCATION;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use vfs::RedirectAnswer;

/// The key of tokens in the CGI.
const TOKEN_KEY: &str = "authz";

/// The key of the host of a MOVE that a manager has redirected. Its `Destination` names the manager.
const FIRST_HOST_KEY: &str = "scalla.host";

/// Returns the host that the client of a redirected MOVE has addressed first. A client that makes this up
/// deceives nobody but itself: its `Destination` is on this server in any case.
pub(crate) fn first_host(cgi: &Cgi) -> Option<String> {
    String::from_utf8(base::percent_decode(cgi.get(FIRST_HOST_KEY)?)?).ok()
}

/// Adds the host of a MOVE to its redirect, if it is the first one.
pub(crate) fn with_first_host(to: RedirectAnswer, host: Option<&str>, cgi: &Cgi) -> RedirectAnswer {
    let Some(host) = host.filter(|_| cgi.get(FIRST_HOST_KEY).is_none()) else { return to };
    let separator = if to.cgi.is_empty() { "" } else { "&" };
    let cgi = format!("{}{separator}{FIRST_HOST_KEY}={}", to.cgi, text::cgi_value(host.as_bytes()));
    RedirectAnswer { cgi, ..to }
}

/// An element of the CGI that a header has added.
struct AddedElement {
    text: String,
    strip_on_redirect: bool,
}

/// The CGI of a request, as redirects have it.
pub(crate) struct ForwardedCgi {
    added: Vec<AddedElement>,
    /// The CGI of the URL.
    own: Vec<u8>,
    /// The keys of elements that are made of headers, and that of tokens. Each could be a secret.
    secret_keys: Vec<String>,
}

impl ForwardedCgi {
    /// Returns the CGI of a request. Headers add elements whose keys the URL does not have.
    pub(crate) fn new(head: &Parts, own: &Cgi, rules: &[HeaderToCgi]) -> Self {
        let mut added = Vec::new();
        for HeaderToCgi { header, key, strip_on_redirect } in rules {
            let Some(value) = head.headers.get(header.as_str()).filter(|_| own.get(key).is_none()) else {
                continue;
            };
            let text = format!("{key}={}", text::cgi_value(value.as_bytes()));
            added.push(AddedElement { text, strip_on_redirect: *strip_on_redirect });
        }
        let secret_keys = rules.iter().map(|rule| rule.key.clone()).chain([TOKEN_KEY.to_owned()]).collect();
        Self { added, own: own.as_bytes().to_vec(), secret_keys }
    }

    /// Returns the elements that headers have added, each behind a `&`.
    pub(crate) fn added(&self) -> String {
        self.added.iter().map(|element| format!("&{}", element.text)).collect()
    }

    /// Returns a CGI with the elements that headers have added.
    pub(crate) fn whole(&self, cgi: &Cgi) -> String {
        let own = String::from_utf8_lossy(cgi.as_bytes());
        format!("{own}{}", self.added()).trim_start_matches('&').to_owned()
    }

    fn of_redirect(&self, first: &str, keeps_secrets: bool) -> String {
        let added = self.added.iter().filter(|element| !element.strip_on_redirect);
        let own = String::from_utf8_lossy(&self.own);
        let parts = std::iter::once(first.trim_start_matches(['?', '&']))
            .chain(added.map(|element| element.text.as_str()))
            .chain(std::iter::once(&*own))
            .filter(|part| !part.is_empty());
        let joined = parts.collect::<Vec<_>>().join("&");
        if keeps_secrets {
            return joined;
        }
        let mut cgi = Cgi::new(joined.as_bytes());
        for key in &self.secret_keys {
            cgi = cgi.without(key);
        }
        String::from_utf8_lossy(cgi.as_bytes()).into_owned()
    }
}

/// Returns the scheme of redirects from a connection, and whether they may have secrets, which must not
/// leave an encrypted connection in clear text. `https` is what the configuration asks for, if it does.
pub(crate) fn scheme(https: Option<bool>, is_tls: bool) -> (&'static str, bool) {
    match https.unwrap_or(is_tls) {
        true => ("https", true),
        false => ("http", !is_tls),
    }
}

/// Returns the redirect of a request for `path`. Without `keeps_secrets` it has no element that a header
/// has made or could have made, and no token.
pub(crate) fn reply(
    method: &Method,
    to: &RedirectAnswer,
    scheme: &str,
    path: &[u8],
    cgi: &ForwardedCgi,
    keeps_secrets: bool,
) -> RequestReply {
    let status = match *method {
        Method::GET => StatusCode::FOUND,
        _ => StatusCode::TEMPORARY_REDIRECT,
    };
    let Some(location) = location(to, scheme, path, &cgi.of_redirect(&to.cgi, keeps_secrets)) else {
        return reply::refused(StatusCode::BAD_GATEWAY, "Invalid redirect host");
    };
    let mut redirect = reply::empty(status);
    reply::set(&mut redirect, LOCATION, &location);
    redirect
}

/// Returns the URL of a redirect; `None` if it does not lead to a server of HTTP.
fn location(to: &RedirectAnswer, scheme: &str, path: &[u8], cgi: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_graphic();
    if to.port < 0 {
        let is_known = ["http://", "https://", "file://"].iter().any(|scheme| to.host.starts_with(scheme));
        return (is_known && to.host.chars().all(is_plain)).then(|| to.host.to_string());
    }
    let in_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']' | '%');
    if to.host.is_empty() || !to.host.chars().all(in_host) {
        return None;
    }
    let host = match to.host.contains(':') && !to.host.starts_with('[') {
        true => format!("[{}]", to.host),
        false => to.host.to_string(),
    };
    let mut url = match to.port {
        0 => format!("{scheme}://{host}"),
        port => format!("{scheme}://{host}:{port}"),
    };
    text::append_url_path(path, &mut url);
    if !cgi.is_empty() {
        if !cgi.chars().all(is_plain) {
            return None;
        }
        url.push('?');
        url.push_str(cgi);
    }
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn cgi(own: &str) -> ForwardedCgi {
        let rule = |header: &str, key: &str, strip_on_redirect| HeaderToCgi {
            header: header.to_owned(),
            key: key.to_owned(),
            strip_on_redirect,
        };
        let request =
            Request::get("/").header("Authorization", "Bearer a&b").header("X-Tag", "1").header("X-Own", "2");
        let (head, ()) = request.body(()).unwrap().into_parts();
        let rules =
            [rule("authorization", "authz", false), rule("x-tag", "tag", true), rule("x-own", "own", false)];
        ForwardedCgi::new(&head, &Cgi::new(own.as_bytes()), &rules)
    }

    #[test]
    fn headers_become_elements_unless_the_url_has_them() {
        assert_eq!(cgi("").whole(&Cgi::new(b"")), "authz=Bearer%20a%26b&tag=1&own=2");
        assert_eq!(cgi("own=3").whole(&Cgi::new(b"own=3")), "own=3&authz=Bearer%20a%26b&tag=1");
    }

    #[test]
    fn redirects_have_the_cgi_without_what_must_stay() {
        let cgi = cgi("own=3&authz=t");
        assert_eq!(cgi.of_redirect("?&x=1", true), "x=1&own=3&authz=t");
        assert_eq!(cgi.of_redirect("", false), "");
        assert_eq!(super::tests::cgi("").of_redirect("x=1", true), "x=1&authz=Bearer%20a%26b&own=2");
        assert_eq!(super::tests::cgi("").of_redirect("x=1", false), "x=1");
        // Keys of the URL that headers could have made.
        assert_eq!(super::tests::cgi("tag=1&y=2&tag=3").of_redirect("", false), "y=2");
    }

    #[test]
    fn a_move_keeps_the_first_host() {
        let to = |cgi: &str| RedirectAnswer { host: "s".into(), port: 1, cgi: cgi.to_owned() };
        let first = |to: &RedirectAnswer, own: &str| {
            with_first_host(to.clone(), Some("m&n:1094"), &Cgi::new(own.as_bytes())).cgi
        };
        assert_eq!(first(&to(""), "x=1"), "scalla.host=m%26n:1094");
        assert_eq!(first(&to("&a=1"), ""), "&a=1&scalla.host=m%26n:1094");
        assert_eq!(first(&to("a=1"), "scalla.host=top"), "a=1", "another manager was first");
        assert_eq!(with_first_host(to("a=1"), None, &Cgi::new(b"")).cgi, "a=1");
        assert_eq!(first_host(&Cgi::new(b"a=1&scalla.host=m%26n:1094")).unwrap(), "m&n:1094");
        assert_eq!(first_host(&Cgi::new(b"a=1")), None);
    }

    #[test]
    fn encrypted_connections_stay_encrypted_unless_configured() {
        assert_eq!(scheme(None, true), ("https", true));
        assert_eq!(scheme(None, false), ("http", true));
        assert_eq!(scheme(Some(false), true), ("http", false));
        assert_eq!(scheme(Some(false), false), ("http", true));
        assert_eq!(scheme(Some(true), false), ("https", true));
        assert_eq!(scheme(Some(true), true), ("https", true));
    }

    #[test]
    fn redirects_lead_to_servers_of_http() {
        let to = |host: &str, port| RedirectAnswer { host: host.into(), port, cgi: String::new() };
        let url = |host: &str, port| location(&to(host, port), "http", b"/a b", "x=1");
        assert_eq!(url("h", 1094).unwrap(), "http://h:1094/a%20b?x=1");
        assert_eq!(url("2001:db8::1", 1094).unwrap(), "http://[2001:db8::1]:1094/a%20b?x=1");
        assert_eq!(url("[::1]", 0).unwrap(), "http://[::1]/a%20b?x=1");
        assert_eq!(url("https://h/p?y", -1).unwrap(), "https://h/p?y");
        assert_eq!(url("file:///p", -1).unwrap(), "file:///p");
        for (host, port) in
            [("h\r\nX: y", 1), ("h/p", 1), ("", 1), ("u@h", 1), ("root://h//p", -1), ("http://h/\r\n", -1)]
        {
            assert_eq!(url(host, port), None, "{host}");
        }
        assert_eq!(location(&to("h", 1), "http", b"/a", "x=\r\ny"), None);
    }
}
