//! The CGI of `kXR_login`: information of the client about itself.
//!
//! | key          | meaning                                    |
//! |--------------|--------------------------------------------|
//! | xrd.cc       | country of the client                      |
//! | xrd.tz       | hours its clock is ahead of UTC, -12 to 14 |
//! | xrd.appname  | name of the program                        |
//! | xrd.info     | text set by the owner of the program       |
//! | xrd.hostname | fully qualified host name                  |
//! | xrd.rn       | release, `vX.Y.Z`                          |
//!
//! The login token of the URL may follow after another `&`. A leading `?` or `&` is skipped,
//! because clients of release 4 send a `?`. All elements are informational, so an invalid one never
//! refuses a login.
//!
//! Source: xroot protocol 5.2.0, section 1.7.

use super::cgi::CgiText;

/// The information of a client about itself. Texts need not be UTF-8 and must not be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoginCgi<'a> {
    /// Country.
    pub country: Option<&'a [u8]>,
    /// Hours ahead of UTC, -12 to 14; `None` if missing or out of range.
    pub timezone_hours: Option<i8>,
    /// Name of the program.
    pub appname: Option<&'a [u8]>,
    /// Text of the program's owner.
    pub info: Option<&'a [u8]>,
    /// Host name.
    pub hostname: Option<&'a [u8]>,
    /// Release, `vX.Y.Z`.
    pub release: Option<&'a [u8]>,
    /// The whole text, for other elements such as a login token.
    pub cgi: CgiText<'a>,
}

impl<'a> LoginCgi<'a> {
    /// Parses the text; invalid elements are ignored.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Self {
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let cgi = CgiText::new(match text.split_first() {
            Some((b'?' | b'&', rest)) => rest,
            _ => text,
        });
        Self {
            country: cgi.get("xrd.cc"),
            timezone_hours: cgi.number("xrd.tz").filter(|hours| (-12..=14).contains(hours)),
            appname: cgi.get("xrd.appname"),
            info: cgi.get("xrd.info"),
            hostname: cgi.get("xrd.hostname"),
            release: cgi.get("xrd.rn"),
            cgi,
        }
    }
}

/// Appends the text of a client.
pub fn encode(out: &mut Vec<u8>, login: &LoginCgi<'_>) {
    let timezone = login.timezone_hours.map(|hours| hours.to_string());
    let elements = [
        ("xrd.cc", login.country),
        ("xrd.tz", timezone.as_deref().map(str::as_bytes)),
        ("xrd.appname", login.appname),
        ("xrd.info", login.info),
        ("xrd.hostname", login.hostname),
        ("xrd.rn", login.release),
    ];
    let mut separator: &[u8] = b"";
    for (key, value) in elements {
        let Some(value) = value else { continue };
        out.extend_from_slice(separator);
        out.extend_from_slice(key.as_bytes());
        out.push(b'=');
        out.extend_from_slice(value);
        separator = b"&";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &[u8] =
        b"xrd.cc=us&xrd.tz=0&xrd.appname=xrdfs&xrd.info=&xrd.hostname=vm&xrd.rn=v6.1.0-1-g4ec63a24e";

    #[test]
    fn the_recorded_text_parses_and_encodes() {
        let login = LoginCgi::parse(RECORDED);
        assert_eq!(login.country, Some(&b"us"[..]));
        assert_eq!(login.timezone_hours, Some(0));
        assert_eq!(login.info, Some(&b""[..]));
        assert_eq!(login.release, Some(&b"v6.1.0-1-g4ec63a24e"[..]));
        let mut out = Vec::new();
        encode(&mut out, &login);
        assert_eq!(out, RECORDED);
    }

    #[test]
    fn a_leading_separator_is_skipped_and_an_invalid_zone_ignored() {
        assert_eq!(LoginCgi::parse(b"?xrd.cc=ch").country, Some(&b"ch"[..]));
        assert_eq!(LoginCgi::parse(b"&xrd.cc=ch").country, Some(&b"ch"[..]));
        assert_eq!(LoginCgi::parse(b"xrd.tz=15").timezone_hours, None);
        assert_eq!(LoginCgi::parse(b"xrd.tz=-12").timezone_hours, Some(-12));
        assert_eq!(LoginCgi::parse(b""), LoginCgi::default());
    }
}
