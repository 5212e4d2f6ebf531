//! Checksums of files in replies: `Want-Digest` (RFC 3230) and `Want-Repr-Digest` (RFC 9530).

use crate::reply::{self, RequestRefusal, RequestReply};
use crate::service::RequestContext;
use base::Cgi;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::HeaderName;
use vfs::{Operation, Target, Value};

const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");
const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");
const DIGEST: HeaderName = HeaderName::from_static("digest");
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// Names in headers, and the types of the server. Types that are not listed have no name.
const NAMES: [(&str, &str); 10] = [
    ("adler32", "adler32"),
    ("adler", "adler32"),
    ("md5", "md5"),
    ("sha", "sha1"),
    ("sha1", "sha1"),
    ("sha-1", "sha1"),
    ("sha256", "sha256"),
    ("sha-256", "sha256"),
    ("crc32", "crc32"),
    ("crc32c", "crc32c"),
];

/// The checksum that a request wants.
#[derive(Clone, PartialEq, Eq, Debug)]
struct WantedDigest {
    /// Its name in the reply.
    name: String,
    /// Its type at the server.
    kind: String,
    /// The reply is that of RFC 9530.
    is_repr: bool,
}

/// Adds the checksum that the request wants, if the server computes any.
pub(crate) async fn add(context: &RequestContext, replied: &mut RequestReply) -> Result<(), RequestRefusal> {
    let header = |name| crate::conditions::text(context.headers(), name);
    let offered = &context.shared().config.checksums;
    let Some(wanted) = wanted(header(WANT_DIGEST).as_deref(), header(WANT_REPR_DIGEST).as_deref(), offered)
    else {
        return Ok(());
    };
    let own = String::from_utf8_lossy(context.target.cgi.without("cks.type").as_bytes()).into_owned();
    let separator = if own.is_empty() { "" } else { "&" };
    let cgi = Cgi::new(format!("{own}{separator}cks.type={}", wanted.kind).as_bytes());
    let target = Target { path: context.target.path.clone(), cgi };
    let value = context.run(|| Operation::Checksum(target.clone())).await?;
    let Value::Checksum { hex, .. } = value else {
        return Err(RequestRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "there is no checksum"));
    };
    if let Some(value) = shown(&wanted, &hex) {
        reply::set(replied, if wanted.is_repr { REPR_DIGEST } else { DIGEST }, &value);
    }
    Ok(())
}

/// Returns the checksum that the headers ask for. `Want-Digest` takes precedence.
fn wanted(digest: Option<&str>, repr: Option<&str>, offered: &[String]) -> Option<WantedDigest> {
    let kind_of = |name: &str| {
        let (_, kind) = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        offered.iter().find(|offer| offer == kind).cloned()
    };
    if let Some(list) = digest {
        let names = list.split(',').map(|one| one.split(';').next().unwrap_or_default().trim());
        let known = names.filter_map(|name| Some((name.to_owned(), kind_of(name)?))).next();
        let (name, kind) =
            known.or_else(|| offered.iter().find_map(|offer| Some((offer.clone(), kind_of(offer)?))))?;
        return Some(WantedDigest { name, kind, is_repr: false });
    }
    let preferences = repr?.split(',').filter_map(|one| {
        let (name, preference) = one.trim().split_once('=')?;
        let preference: u8 = preference.trim().parse().ok().filter(|preference| *preference > 0)?;
        Some((preference, name.trim().to_owned(), kind_of(name.trim())?))
    });
    // The first of equal preferences counts.
    let best = preferences.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, name, kind)| WantedDigest { name: name.to_ascii_lowercase(), kind, is_repr: true })
}

/// Returns the value of the header; `None` if `hex` is not hexadecimal.
fn shown(wanted: &WantedDigest, hex: &str) -> Option<String> {
    let digits =
        hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let bytes: Vec<u8> = digits.collect::<Option<_>>().filter(|_| hex.len().is_multiple_of(2))?;
    let (name, encoded) = (&wanted.name, || STANDARD.encode(&bytes));
    Some(match (wanted.is_repr, wanted.kind.as_str()) {
        (true, _) => format!("{name}=:{}:", encoded()),
        (false, "md5" | "sha1" | "sha256") => format!("{name}={}", encoded()),
        (false, _) => format!("{name}={hex}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_known_checksum_is_chosen() {
        let offered = ["crc32c", "adler32", "md5"].map(str::to_owned);
        let choose = |digest, repr| {
            wanted(digest, repr, &offered).map(|wanted| (wanted.name, wanted.kind, wanted.is_repr))
        };
        let some = |name: &str, kind: &str, is_repr| Some((name.to_owned(), kind.to_owned(), is_repr));
        assert_eq!(choose(Some("adler32"), None), some("adler32", "adler32", false));
        assert_eq!(choose(Some("sha-256;q=1, MD5;q=0.1, adler32"), None), some("MD5", "md5", false));
        assert_eq!(choose(Some("unknown"), None), some("crc32c", "crc32c", false), "the default");
        assert_eq!(choose(Some("md5"), Some("adler32=9")), some("md5", "md5", false));
        assert_eq!(choose(None, Some("adler=1, md5=5, crc32c=5, sha-256=9")), some("md5", "md5", true));
        assert_eq!(choose(None, Some("md5=0, unknown=1, x")), None);
        assert_eq!(choose(None, None), None);
        assert_eq!(wanted(Some("md5"), None, &[]), None);
    }

    #[test]
    fn values_are_in_the_form_of_their_header() {
        let value = |name: &str, kind: &str, is_repr, hex| {
            shown(&WantedDigest { name: name.to_owned(), kind: kind.to_owned(), is_repr }, hex)
        };
        assert_eq!(value("adler32", "adler32", false, "1e720467").unwrap(), "adler32=1e720467");
        assert_eq!(value("crc32c", "crc32c", true, "f0c3fca4").unwrap(), "crc32c=:8MP8pA==:");
        let md5 = "6f5902ac237024bdd0c176cb93063dc4";
        assert_eq!(value("md5", "md5", false, md5).unwrap(), "md5=b1kCrCNwJL3QwXbLkwY9xA==");
        assert_eq!(value("md5", "md5", false, "xyz"), None);
    }
}
