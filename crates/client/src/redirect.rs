//! The target of a redirect, and the parts of a request that it may change.
//!
//! A redirect names another server and its cgi, or a complete URL. It never chooses credentials:
//! its user and its elements `xrd.…` and `xrdcl.…` are dropped, because they are instructions for
//! the client, which only its user may give. Source: xroot protocol 5.2.0, sections 3.4 and 5.2.

use wire::xroot::reply::RedirectTarget;

use crate::channel::ServerReply;
use crate::credentials::is_for_client;
use crate::failure::Cause;
use crate::url::{Scheme, Url, cgi_elements};

/// Keys with the servers that were tried, which redirects and the client extend.
const TRIED_KEYS: [&str; 2] = ["tried", "triedrc"];
/// Prefix of the keys of a third-party copy.
const COPY_PREFIX: &str = "tpc.";

/// The elements of cgi that are taken from a redirect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CgiMerge {
    All,
    OnlyTried,
}

/// The parts of a request that redirects may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RedirectScope {
    /// The server, the path, and elements of the cgi.
    Request,
    /// The server. Elements of cgi are only added, and none of a third-party copy.
    Place,
}

/// Returns the destination of a redirect from `at`.
pub(crate) fn target(
    at: &Url,
    port: i32,
    host: &[u8],
    merge: CgiMerge,
    scope: RedirectScope,
) -> Result<Url, Cause> {
    let bad = || Cause::BadRedirect(String::from_utf8_lossy(host).into_owned());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| bad());
    let redirect = ServerReply::redirect(port, host);
    let mut next = at.clone();
    match redirect.target().map_err(|_| bad())? {
        RedirectTarget::Host { host, port, cgi, token } => {
            next.set_place(&text(host)?, port).map_err(|_| bad())?;
            merge_cgi(&mut next, cgi_elements(&text(cgi)?), merge);
            if !token.is_empty() {
                next.token = Some(text(token)?);
            }
        }
        RedirectTarget::Url { url, .. } => {
            let there = Url::parse(&text(url)?).map_err(|_| bad())?;
            if !matches!(there.scheme, Scheme::Root | Scheme::Roots) {
                return Err(bad());
            }
            // A request made with TLS is never repeated without TLS.
            next.scheme = if at.scheme == Scheme::Roots { Scheme::Roots } else { there.scheme };
            next.host.clone_from(&there.host);
            next.port = there.port;
            if !there.path.is_empty() {
                next.path.clone_from(&there.path);
            }
            next.token = there.token.clone().or(next.token);
            merge_cgi(&mut next, there.cgi, CgiMerge::All);
        }
    }
    if scope == RedirectScope::Place {
        restore(&mut next, at);
    }
    Ok(next)
}

/// Requires TLS of the next server for a secret that was sent encrypted to this one.
pub(crate) fn keep_secret(next: Url, was_encrypted: bool) -> Url {
    let scheme = if was_encrypted && next.carries_secret() { Scheme::Roots } else { next.scheme };
    Url { scheme, ..next }
}

/// Takes elements of cgi from a redirect.
fn merge_cgi(next: &mut Url, given: impl IntoIterator<Item = (String, String)>, merge: CgiMerge) {
    let taken = |key: &str| match merge {
        CgiMerge::All => !is_for_client(key),
        CgiMerge::OnlyTried => TRIED_KEYS.contains(&key),
    };
    next.cgi.extend(given.into_iter().filter(|(key, _)| taken(key)));
}

/// Restores everything but the place. It is the last step, so that no merge can undo it.
fn restore(next: &mut Url, at: &Url) {
    next.path.clone_from(&at.path);
    next.user.clone_from(&at.user);
    next.password.clone_from(&at.password);
    next.cgi.retain(|key, _| !key.starts_with(COPY_PREFIX));
    let given = at.cgi.iter().filter(|(key, _)| !TRIED_KEYS.contains(&key.as_str()));
    next.cgi.extend(given.map(|(key, value)| (key.clone(), value.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_redirect_keeps_user_path_and_cgi() {
        let at = url("root://me:pw@m:1//a?x=1&tried=old");
        let next =
            target(&at, 7, b"s?tried=old,m&y=2?secret", CgiMerge::All, RedirectScope::Request).unwrap();
        assert_eq!((next.authority().as_str(), next.user.as_deref()), ("s:7", Some("me")));
        assert_eq!(next.target(), "/a?tried=old,m&x=1&y=2");
        assert_eq!(next.token.as_deref(), Some("secret"));
        let next = target(&at, 0, b"[::1]", CgiMerge::All, RedirectScope::Request).unwrap();
        assert_eq!(next.authority(), "[::1]:1094");
        let next = target(&at, 7, b"s?tried=m&y=2", CgiMerge::OnlyTried, RedirectScope::Request).unwrap();
        assert_eq!(next.target(), "/a?tried=m&x=1");
    }

    #[test]
    fn a_secret_that_was_encrypted_is_never_sent_in_clear_text() {
        let secrets = ["root://s//a?authz=t", "root://me:pw@s//a", "root://s//a?x=1?token"];
        for text in secrets {
            assert_eq!(keep_secret(url(text), true).scheme, Scheme::Roots, "{text}");
            assert_eq!(keep_secret(url(text), false).scheme, Scheme::Root, "{text}");
        }
        assert_eq!(keep_secret(url("root://me@s//a?x=authz"), true).scheme, Scheme::Root);
    }

    #[test]
    fn a_redirect_to_a_url_may_change_the_path_and_never_drops_tls() {
        let next =
            target(&url("roots://m//a?x=1"), -1, b"root://s:5//b?x=2", CgiMerge::All, RedirectScope::Request)
                .unwrap();
        assert_eq!((next.scheme, &*next.target().text()), (Scheme::Roots, "/b?x=2"));
        let next = target(&url("root://m//a?x=1"), -1, b"root://s:5", CgiMerge::All, RedirectScope::Request)
            .unwrap();
        assert_eq!((next.authority().as_str(), &*next.target().text()), ("s:5", "/a?x=1"));
        for bad in ["http://s/a", "file:///a", "nonsense://"] {
            assert!(matches!(
                target(&url("root://m//a"), -1, bad.as_bytes(), CgiMerge::All, RedirectScope::Request),
                Err(Cause::BadRedirect(_))
            ));
        }
        assert!(matches!(
            target(&url("root://m//a"), 70_000, b"s", CgiMerge::All, RedirectScope::Request),
            Err(Cause::BadRedirect(_))
        ));
    }

    #[test]
    fn a_redirect_chooses_no_credentials() {
        let at = url("root://me:pw@m//a?xrd.wantprot=unix");
        let bad = "xrd.sss=/k&xrd.wantprot=sss&xrdcl.secuid=0&y=2";
        for host in [format!("root://alice:x@s:5//b?{bad}"), format!("s?{bad}")] {
            let port = if host.starts_with("root") { -1 } else { 5 };
            let next = target(&at, port, host.as_bytes(), CgiMerge::All, RedirectScope::Request).unwrap();
            assert_eq!((next.user.as_deref(), next.password.as_deref()), (Some("me"), Some("pw")));
            let cgi: Vec<_> = next.cgi.iter().map(|(key, value)| format!("{key}={value}")).collect();
            assert_eq!(cgi, ["xrd.wantprot=unix", "y=2"]);
        }
        let next =
            target(&url("root://m//a"), -1, b"root://alice@s//b", CgiMerge::All, RedirectScope::Request);
        assert_eq!(next.unwrap().user, None);
    }

    #[test]
    fn a_redirect_of_a_server_s_request_changes_only_the_place() {
        let at = url("root://m//a?authz=t&tpc.key=k&tpc.org=o&tried=x");
        let bad = "authz=&tpc.key=&tpc.org=&tpc.dst=h&tried=x,m&y=2";
        for host in [format!("root://alice@s:5//b?{bad}"), format!("s?{bad}")] {
            let port = if host.starts_with("root") { -1 } else { 5 };
            let next = target(&at, port, host.as_bytes(), CgiMerge::All, RedirectScope::Place).unwrap();
            assert_eq!((next.authority().as_str(), next.user.as_deref()), ("s:5", None));
            assert_eq!(next.target(), "/a?authz=t&tpc.key=k&tpc.org=o&tried=x,m&y=2");
        }
    }
}
