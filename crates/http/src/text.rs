//! Escapes of URLs and of XML, and dates.

use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};
use std::fmt::Write;

/// Appends bytes as the path of a URL: all but unreserved characters, `/` and some that have no
/// meaning in paths are escaped.
pub(crate) fn append_url_path(path: &[u8], out: &mut String) {
    base::percent_encode(out, path, b"/+=@,:");
}

/// Returns a value for an element of the CGI: bytes that would end the value are escaped.
pub(crate) fn cgi_value(value: &[u8]) -> String {
    let mut out = String::with_capacity(value.len());
    for &byte in value {
        match byte {
            b'&' | b'?' | b'#' | b'%' | 0..=b' ' | 0x7f.. => _ = write!(out, "%{byte:02X}"),
            _ => out.push(char::from(byte)),
        }
    }
    out
}

/// Appends text to XML or HTML. Characters that XML does not allow become the replacement character.
pub(crate) fn append_xml(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// Returns text for XML or HTML.
pub(crate) fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    append_xml(text, &mut out);
    out
}

/// Returns a time as HTTP shows it: `Sun, 06 Nov 1994 08:49:37 GMT`. Times that it cannot show become
/// the epoch.
pub(crate) fn http_date(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
    DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default()
}

/// Returns the seconds since the epoch of a date of HTTP.
pub(crate) fn parse_http_date(text: &str) -> Option<i64> {
    DateTimeParser::new().parse_timestamp(text).ok().map(|time| time.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::percent_decode;

    #[test]
    fn urls_are_escaped_and_decoded() {
        let mut out = String::new();
        append_url_path(b"/a b/%c?\xc3\xa9#\r\n<", &mut out);
        assert_eq!(out, "/a%20b/%25c%3F%C3%A9%23%0D%0A%3C");
        assert_eq!(percent_decode(out.as_bytes()).unwrap(), b"/a b/%c?\xc3\xa9#\r\n<");
        for malformed in [&b"%"[..], b"%1", b"%zz", b"%+1", b"a%2"] {
            assert_eq!(percent_decode(malformed), None, "{malformed:?}");
        }
        assert_eq!(cgi_value(b"Bearer a.b-c_d="), "Bearer%20a.b-c_d=");
        assert_eq!(cgi_value(b"x&y=1%41\xff"), "x%26y=1%2541%FF");
    }

    #[test]
    fn xml_has_no_markup_of_names() {
        assert_eq!(
            xml("<a href='x'>&\"\u{1}\u{fffe}é"),
            "&lt;a href=&apos;x&apos;&gt;&amp;&quot;\u{fffd}\u{fffd}é"
        );
    }

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(http_date(i64::MAX), "Thu, 01 Jan 1970 00:00:00 GMT");
        for other in ["", "yesterday", "Sun, 99 Nov 1994 08:49:37 GMT"] {
            assert_eq!(parse_http_date(other), None, "{other}");
        }
    }
}
