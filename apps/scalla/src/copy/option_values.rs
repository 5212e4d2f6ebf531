//! Parsers of option values.

use crate::named_servers;
use client::RemotePath;
use client::copy::{Against, ChecksumWish, Place};
use client::digest::Algorithm;

/// Parses `TYPE`, `TYPE:print`, `TYPE:source` or `TYPE:VALUE`. The type may be `auto`.
pub(crate) fn parse_checksum(text: &str) -> Result<ChecksumWish, String> {
    let (kind, against) = text.split_once(':').map_or((text, None), |(kind, against)| (kind, Some(against)));
    let algorithm = match kind {
        "auto" => None,
        kind => Some(Algorithm::from_name(kind).ok_or_else(|| {
            let known: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
            format!("`{kind}` is no type of checksum; there are auto, {}", known.join(", "))
        })?),
    };
    let against = match against {
        None => Against::EachOther,
        Some("print") => Against::PrintTarget,
        Some("source") => Against::PrintSource,
        Some(value) => {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_hexdigit());
            let fits = algorithm.is_some_and(|algorithm| value.len() <= algorithm.bytes() * 2);
            if !digits || !fits {
                return Err(format!("`{value}` is no value of {kind}; `print` and `source` go too"));
            }
            Against::Value(value.to_ascii_lowercase())
        }
    };
    Ok(ChecksumWish { algorithm, against })
}

/// Parses bytes per second, with an optional suffix `k`, `m` or `g`.
pub(super) fn parse_rate(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => (text.len() - 1, 10),
        Some(b'm') => (text.len() - 1, 20),
        Some(b'g') => (text.len() - 1, 30),
        _ => (text.len(), 0),
    };
    let number = text.get(..digits).and_then(|digits| digits.parse::<u64>().ok());
    let rate = number.and_then(|number| number.checked_mul(1 << shift)).filter(|rate| *rate > 0);
    rate.ok_or_else(|| "bytes a second: a number, with k, m or g behind it".to_owned())
}

/// Parses a path, a URL or `-`. A URL without a path is the root directory of its server. A path
/// that looks like a server is rejected unless it exists, because a copy to it would stay on this
/// machine.
pub(crate) fn parse_place(text: &str) -> Result<Place, String> {
    if let Some(url) = named_servers::resolve_named(text) {
        return url.map(Place::Remote);
    }
    match Place::parse(text).map_err(|error| error.to_string())? {
        Place::Remote(url) if url.path.is_empty() => Ok(Place::Remote(url.at(RemotePath::root()))),
        Place::Local(path) if !text.contains("://") && std::fs::symlink_metadata(&path).is_err() => {
            match url_meant_by(text) {
                Some(url) => Err(format!(
                    "it looks like a server; write {url}, or ./{text} for a file of this machine"
                )),
                None => Ok(Place::Local(path)),
            }
        }
        place => Ok(place),
    }
}

/// Returns the URL that a text was probably meant to be: `HOST:PORT`, with or without a path, or
/// `root:` with too few slashes.
fn url_meant_by(text: &str) -> Option<String> {
    let (place, path) = text.split_once('/').map_or((text, ""), |(place, path)| (place, path));
    let path = path.trim_start_matches('/');
    if let "root:" | "roots:" | "xroot:" | "xroots:" = place {
        let (host, path) = path.split_once('/').unwrap_or((path, ""));
        return (!host.is_empty()).then(|| format!("root://{host}//{}", path.trim_start_matches('/')));
    }
    let (host, port) = place.rsplit_once(':')?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let is_host = !host.is_empty() && (is_bracketed || !host.contains(':'));
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (is_host && is_port).then(|| format!("root://{place}//{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!((parse_rate("7"), parse_rate("10k"), parse_rate("2G")), (Ok(7), Ok(10_240), Ok(2 << 30)));
        for bad in ["", "k", "0", "-1", "1x", "1.5m", "99999999999999999999", "18446744073709551615k", "1é"]
        {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_looks_like_a_server_is_no_file_of_this_machine() {
        for (text, url) in [
            ("h:1094", "root://h:1094//"),
            ("h.example.org:1094/a/b", "root://h.example.org:1094//a/b"),
            ("h:1094//a", "root://h:1094//a"),
            ("[::1]:1094", "root://[::1]:1094//"),
            ("root:/h/a", "root://h//a"),
            ("root:/h", "root://h//"),
        ] {
            let error = parse_place(text).unwrap_err();
            assert!(error.contains(&format!("write {url},")), "{text}: {error}");
            assert_eq!(parse_place(&format!("./{text}")), Ok(Place::Local(format!("./{text}").into())));
        }
        for text in ["/tmp/h:1094", "dir/h:1094", "h:x", "h:", "h", "a::1", ":1094", "root:"] {
            assert_eq!(parse_place(text), Ok(Place::Local(text.into())), "{text}");
        }
        assert_eq!(parse_place("root://h").unwrap().to_string(), "root://h:1094//");
        assert!(parse_place("root://h").unwrap().ends_with_slash());
    }

    #[test]
    fn checksums() {
        let wish = |text: &str| parse_checksum(text).map(|wish| (wish.algorithm, wish.against));
        assert_eq!(wish("adler32"), Ok((Some(Algorithm::Adler32), Against::EachOther)));
        assert_eq!(wish("auto:print"), Ok((None, Against::PrintTarget)));
        assert_eq!(wish("md5:source"), Ok((Some(Algorithm::Md5), Against::PrintSource)));
        assert_eq!(wish("crc32c:0AF"), Ok((Some(Algorithm::Crc32c), Against::Value("0af".into()))));
        for bad in ["foo", "adler32:xyz", "adler32:", "adler32:123456789", "auto:12"] {
            assert!(wish(bad).is_err(), "{bad}");
        }
    }
}
