//! Headers of replies: ranges, versions of files, times.

use std::time::{Duration, SystemTime};

use hyper::header::{self, HeaderMap, HeaderName};
use jiff::fmt::rfc2822::DateTimeParser;

use crate::failure::Cause;

/// Maximum length of an entity tag.
const TAG_BYTES_MAX: usize = 1024;
/// The mark of a weak entity tag.
const WEAK: &str = "W/";

/// The value of `Content-Range` in a reply with a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentRange {
    /// Offsets of the first and the last byte; `None` if no byte is sent.
    pub bytes: Option<(u64, u64)>,
    /// The size of the file; `None` if the server does not know it.
    pub total: Option<u64>,
}

impl ContentRange {
    /// Parses `bytes FIRST-LAST/TOTAL`, where `*` stands for an unknown range or size.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (unit, rest) = text.trim().split_once(' ')?;
        let (range, total) = rest.trim().split_once('/')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let total = if total == "*" { None } else { Some(number(total)?) };
        if range == "*" {
            return Some(Self { bytes: None, total });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        let is_valid = first <= last && total.is_none_or(|total| last < total);
        is_valid.then_some(Self { bytes: Some((first, last)), total })
    }
}

/// Parses a decimal number without a sign.
fn number(text: &str) -> Option<u64> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_decimal.then(|| text.parse().ok()).flatten()
}

/// The version of a file, as far as the headers of a reply show it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct HttpVersion {
    /// The entity tag, without the mark of a weak one.
    pub(super) tag: Option<String>,
    /// Two files with the tag can differ in their bytes.
    pub(super) is_weak: bool,
    /// Time of the last change, in seconds since the epoch.
    pub(super) modified: Option<i64>,
}

impl HttpVersion {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let etag = text(headers, &header::ETAG);
        let is_weak = etag.is_some_and(|text| text.trim().starts_with(WEAK));
        Self {
            tag: etag.and_then(tag_of),
            is_weak,
            modified: text(headers, &header::LAST_MODIFIED).and_then(seconds_of),
        }
    }

    /// Reports whether two replies can be of one version: nothing that both show differs.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        let tags = self.tag.as_ref().zip(other.tag.as_ref());
        let times = self.modified.zip(other.modified);
        tags.is_none_or(|(one, other)| one == other) && times.is_none_or(|(one, other)| one == other)
    }

    /// Returns a number for the entity tag, which is the same in each process; 0 without a tag, and for a weak one,
    /// which does not identify the bytes.
    pub(super) fn id(&self) -> u64 {
        let hash = |tag: &String| siphasher::sip::SipHasher13::new().hash(tag.as_bytes());
        self.tag.as_ref().filter(|_| !self.is_weak).map_or(0, hash)
    }
}

/// Returns an entity tag without the mark of a weak one.
pub(super) fn tag_of(text: &str) -> Option<String> {
    let text = text.trim();
    let tag = text.strip_prefix(WEAK).unwrap_or(text);
    (!tag.is_empty() && tag.len() <= TAG_BYTES_MAX).then(|| tag.to_owned())
}

/// Returns the seconds since the epoch of an HTTP date.
pub(super) fn seconds_of(text: &str) -> Option<i64> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    Some(PARSER.parse_timestamp(text.trim()).ok()?.as_second())
}

/// Returns the text of a header. `None` also if it is there twice.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() {
        return None;
    }
    first.to_str().ok()
}

/// Returns the length of the body.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    text(headers, &header::CONTENT_LENGTH).and_then(|text| number(text.trim()))
}

/// Returns the pause that a server asks for.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = text(headers, &header::RETRY_AFTER)?.trim();
    if let Some(seconds) = number(text) {
        return Some(Duration::from_secs(seconds));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let at = u64::try_from(seconds_of(text)?).ok()?;
    Some(Duration::from_secs(at.saturating_sub(now)))
}

/// Checks that the body has the bytes of the file, and not a compressed form.
pub(super) fn check_encoding(headers: &HeaderMap) -> Result<(), Cause> {
    match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes().to_ascii_lowercase()) {
        None => Ok(()),
        Some(encoding) if encoding == b"identity" => Ok(()),
        Some(_) => Err(Cause::BadAnswer("it is compressed, which was not asked for".to_owned())),
    }
}

/// Returns the value of an algorithm in `Digest` (RFC 3230): `adler32=…,md5=…`.
pub(super) fn digest<'a>(headers: &'a HeaderMap, algorithm: &str) -> Option<&'a str> {
    let values = headers.get_all("digest").iter().filter_map(|value| value.to_str().ok());
    let mut each = values.flat_map(|value| value.split(','));
    each.find_map(|element| {
        let (name, value) = element.trim().split_once('=')?;
        name.eq_ignore_ascii_case(algorithm).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_an_order_and_lie_within_the_file() {
        let range = |bytes, total| Some(ContentRange { bytes, total });
        for (text, expected) in [
            ("bytes 0-9/12", range(Some((0, 9)), Some(12))),
            ("Bytes 3-3/*", range(Some((3, 3)), None)),
            ("bytes */12", range(None, Some(12))),
            ("bytes 0-12/12", None),
            ("bytes 9-0/12", None),
            ("bytes 0-9", None),
            ("bytes -9/12", None),
            ("bytes 0-/12", None),
            ("bytes +0-9/12", None),
            ("lines 0-9/12", None),
            ("bytes 0-99999999999999999999/*", None),
            ("", None),
        ] {
            assert_eq!(ContentRange::parse(text), expected, "{text}");
        }
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn versions_differ_if_something_that_both_show_differs() {
        let of = |tag: Option<&str>, modified| HttpVersion {
            tag: tag.map(str::to_owned),
            is_weak: false,
            modified,
        };
        let found = HttpVersion::of(&headers(&[
            ("etag", "W/\"x\""),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ]));
        assert_eq!(found, HttpVersion { is_weak: true, ..of(Some("\"x\""), Some(784_111_777)) });
        assert!(found.may_be(&of(Some("\"x\""), None)) && found.may_be(&of(None, None)));
        assert!(!found.may_be(&of(Some("\"y\""), None)) && !found.may_be(&of(None, Some(7))));
        let (x, y) = (of(Some("\"x\""), None).id(), of(Some("\"y\""), None).id());
        assert!(x != 0 && y != 0 && x != y);
        assert_eq!((of(None, None).id(), found.id()), (0, 0), "a weak tag does not identify bytes");
    }

    #[test]
    fn pauses_are_seconds_or_dates() {
        let pause = |text| retry_after(&headers(&[("retry-after", text)]));
        assert_eq!(pause("7"), Some(Duration::from_secs(7)));
        assert_eq!(pause("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(pause("soon"), None);
    }

    #[test]
    fn other_headers_are_read() {
        let found = headers(&[("digest", "md5=abc==, ADLER32=03da0195"), ("content-length", "12")]);
        assert_eq!((digest(&found, "adler32"), digest(&found, "crc32")), (Some("03da0195"), None));
        assert_eq!((digest(&found, "md5"), content_length(&found)), (Some("abc=="), Some(12)));
        assert_eq!(content_length(&headers(&[("content-length", "-1")])), None);
        assert!(check_encoding(&headers(&[("content-encoding", "gzip")])).is_err());
        assert!(check_encoding(&found).is_ok());
    }
}
