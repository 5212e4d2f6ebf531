//! Fuzz target for texts `path?key=value&key=value`.
//!
//! `wire` and `base` each have a parser of this text; both must return the same elements, because
//! authorization uses one and the protocol the other.

use wire::xroot::cgi::{CgiText, PathArgument};
use wire::xroot::login_cgi::{self, LoginCgi};

/// Checks `data` as an argument `path[?cgi]` and as a login text.
pub fn target(data: &[u8]) {
    let target = PathArgument::parse(data);
    let text = data.split(|&byte| byte == 0).next().unwrap_or_default();
    let (path, cgi) = base::Cgi::split(text);
    assert_eq!(target.path, path);
    assert_eq!(target.cgi.text(), cgi.as_bytes());
    assert!(target.cgi.iter().eq(cgi.pairs()));
    for (key, _) in target.cgi.iter() {
        let Ok(key) = std::str::from_utf8(key) else { continue };
        assert!(target.cgi.get(key).is_some());
        assert_eq!(target.cgi.get(key), cgi.get(key), "{key}");
        assert_eq!(target.cgi.get_str(key), cgi.text(key), "{key}");
        assert!(cgi.has_prefix(key));
    }
    let login = LoginCgi::parse(data);
    let mut out = Vec::new();
    login_cgi::encode(&mut out, &login);
    let again = LoginCgi::parse(&out);
    assert_eq!(LoginCgi { cgi: CgiText::default(), ..again }, LoginCgi { cgi: CgiText::default(), ..login });
}
