//! XML of replies, and of the bodies of requests.

use crate::reply::{self, ReplyBody, RequestReply};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use jiff::Timestamp;
use quick_xml::Reader;
use quick_xml::events::Event;
use std::fmt::Write;

/// The begin of each document.
pub(super) const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
/// The type of documents.
pub(super) const TYPE: &str = "application/xml";
/// The name space of documents, as an attribute.
pub(super) const NAME_SPACE: &str = " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

/// Maximum depth of elements of a request.
const DEPTH_MAX: usize = 8;

/// Appends text. Characters that XML cannot have become references to them, as at other servers of S3; clients of
/// names with such characters ask for `encoding-type=url`.
pub(super) fn append(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                // Writing to a string cannot fail.
                let _ = write!(out, "&#x{:X};", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// Appends an element with a text.
pub(super) fn element(out: &mut String, name: &str, text: &str) {
    let _ = write!(out, "<{name}>");
    append(out, text);
    let _ = write!(out, "</{name}>");
}

/// Returns a time in the form of S3: `2009-10-12T17:50:30.000Z`.
pub(super) fn time(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{}.000Z", time.to_string().trim_end_matches('Z'))
}

/// Returns the reply with a document.
pub(super) fn reply(document: String) -> RequestReply {
    let mut replied = reply::with_body(StatusCode::OK, ReplyBody::Whole(Bytes::from(document)));
    reply::set(&mut replied, CONTENT_TYPE, TYPE);
    replied
}

/// A piece of a document: the path of element names, and the text of the innermost one at its end.
pub(super) struct Leaf<'a> {
    pub(super) path: &'a [String],
    pub(super) text: &'a str,
}

/// Reads a document. `at_end` gets each element at its end, with the text directly in it.
///
/// Returns `None` if it is not well-formed, has a document type, or `at_end` refuses an element.
pub(super) fn read(document: &[u8], mut at_end: impl FnMut(&Leaf<'_>) -> Option<()>) -> Option<()> {
    let document = std::str::from_utf8(document).ok()?;
    let mut reader = Reader::from_str(document);
    let (mut path, mut text, mut has_root) = (Vec::<String>::new(), String::new(), false);
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                if path.len() >= DEPTH_MAX || (path.is_empty() && has_root) {
                    return None;
                }
                has_root = true;
                path.push(start.local_name().as_ref().to_owned());
                text.clear();
            }
            Event::Empty(empty) => {
                if path.is_empty() {
                    return None;
                }
                path.push(empty.local_name().as_ref().to_owned());
                at_end(&Leaf { path: &path, text: "" })?;
                path.pop();
                text.clear();
            }
            Event::Text(part) => text.push_str(&part),
            Event::CData(part) => text.push_str(&part),
            Event::GeneralRef(reference) => text.push(referenced(&reference)?),
            Event::End(_) => {
                at_end(&Leaf { path: &path, text: &text })?;
                path.pop()?;
                text.clear();
            }
            Event::Decl(_) | Event::Comment(_) => {}
            // Entities of a document type could be large.
            Event::DocType(_) | Event::PI(_) => return None,
            Event::Eof => return (path.is_empty() && has_root).then_some(()),
        }
    }
}

/// Returns the character of a reference: one of the five names, or a number.
fn referenced(reference: &quick_xml::events::BytesRef<'_>) -> Option<char> {
    if let Some(c) = reference.resolve_char_ref().ok()? {
        return Some(c);
    }
    match &**reference {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(document: &str) -> Option<Vec<String>> {
        let mut found = Vec::new();
        read(document.as_bytes(), |leaf| {
            found.push(format!("{}={}", leaf.path.join("/"), leaf.text));
            Some(())
        })?;
        Some(found)
    }

    #[test]
    fn documents_are_read_with_their_references() {
        let text = "<?xml version=\"1.0\"?><!-- x --><D xmlns=\"u\"><k:O xmlns:k=\"v\"><Key>a&amp;&#x3c;&lt;<![CDATA[&b]]> </Key><V/></k:O></D>";
        let expected = ["D/O/Key=a&<<&b ", "D/O/V=", "D/O=", "D="];
        assert_eq!(leaves(text).unwrap(), expected);
        for malformed in [
            "",
            "x",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<a></a><b></b>",
            "<a>&x;</a>",
            "<a>&#xFFFFFFFF;</a>",
            "<a",
            "<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>",
            "<a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></a>",
        ] {
            assert_eq!(leaves(malformed), None, "{malformed}");
        }
        assert!(read(b"<a>\xff</a>", |_| Some(())).is_none());
    }

    #[test]
    fn texts_are_escaped() {
        let mut out = String::new();
        element(&mut out, "Key", "<a & \"b\">\u{1}\n\u{fffe}ü");
        assert_eq!(out, "<Key>&lt;a &amp; &quot;b&quot;&gt;&#x1;&#xA;&#xFFFE;ü</Key>");
        assert_eq!(time(1_255_369_830), "2009-10-12T17:50:30.000Z");
        assert_eq!(time(i64::MAX), "1970-01-01T00:00:00.000Z");
    }
}
