//! [`ReceivedReport`]: a report of any server, as flat or CGI text.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::fmt::Write;

/// Maximum number of elements around another one.
const DEPTH_MAX: usize = 16;
/// Maximum length of the name of a value in bytes. Without a limit, a datagram with long names around many values
/// would become output of a thousand times its size.
const NAME_BYTES_MAX: usize = 256;
/// Attributes of a report that are in the flat forms.
const ATTRIBUTES: [&str; 7] = ["tod", "ver", "src", "tos", "pgm", "ins", "pid"];

/// The reason why a text is not a report.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidReport {
    /// It does not begin with the element of reports.
    #[error("it is not a summary report")]
    NotStatistics,
    /// It ends too early.
    #[error("it is incomplete")]
    Incomplete,
    /// It is no XML, or elements lie too deep in others.
    #[error("it is not valid XML: {0}")]
    Xml(String),
    /// A name is too long, or has characters that would look like another name or value in the flat forms.
    #[error("the name of an element is longer than {NAME_BYTES_MAX} bytes, or has blanks, '&' or '='")]
    Name,
}

/// A report, as names with values in its order. Names are those of the elements around the value, with dots.
/// Values have the form of the report: characters that XML escapes are not decoded. Control characters, which would
/// begin another value or report in the flat forms, are replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedReport {
    /// Values of the report itself.
    pub attributes: Vec<(String, String)>,
    /// Values of the sections.
    pub figures: Vec<(String, String)>,
}

impl ReceivedReport {
    /// Decodes a report. Names of elements need not be valid in XML.
    ///
    /// # Errors
    /// [`InvalidReport`].
    pub fn decode(text: &str) -> Result<Self, InvalidReport> {
        let invalid = |error: &dyn std::fmt::Display| InvalidReport::Xml(error.to_string());
        let mut reader = Reader::from_str(text);
        let mut report: Option<Self> = None;
        let (mut around, mut value): (Vec<String>, String) = Default::default();
        loop {
            let event = reader.read_event().map_err(|error| invalid(&error))?;
            let Some(report) = &mut report else {
                match event {
                    Event::Start(tag) if tag.name().as_ref() == "statistics" => {
                        report = Some(Self::new(&tag)?)
                    }
                    Event::Start(_) | Event::Eof => return Err(InvalidReport::NotStatistics),
                    Event::Text(text) if !text.trim().is_empty() => return Err(InvalidReport::NotStatistics),
                    _ => {}
                }
                continue;
            };
            match event {
                Event::Text(part) => value.push_str(&part),
                Event::GeneralRef(reference) => {
                    let reference = format!("&{};", &*reference);
                    // The reader takes anything up to the next semicolon for a reference.
                    quick_xml::escape::unescape(&reference).map_err(|error| invalid(&error))?;
                    value.push_str(&reference);
                }
                Event::Start(tag) => {
                    report.add(&around, &mut value);
                    if around.len() >= DEPTH_MAX {
                        return Err(invalid(&"elements lie too deep in others"));
                    }
                    around.push(element_name(&tag)?);
                    if name_bytes(&around) > NAME_BYTES_MAX {
                        return Err(InvalidReport::Name);
                    }
                }
                Event::End(_) => {
                    report.add(&around, &mut value);
                    if around.pop().is_none() {
                        return Ok(std::mem::replace(
                            report,
                            Self { attributes: Vec::new(), figures: Vec::new() },
                        ));
                    }
                }
                Event::Eof => return Err(InvalidReport::Incomplete),
                _ => {}
            }
        }
    }

    fn new(tag: &BytesStart<'_>) -> Result<Self, InvalidReport> {
        let mut attributes = Vec::new();
        for name in ATTRIBUTES {
            attributes.extend(attribute(tag, name)?.map(|value| (name.to_owned(), without_control(&value))));
        }
        Ok(Self { attributes, figures: Vec::new() })
    }

    /// Adds the value of an element, if it has one.
    fn add(&mut self, around: &[String], value: &mut String) {
        let value = std::mem::take(value);
        let value = value.trim().trim_matches('"');
        if !value.is_empty() && !around.is_empty() {
            self.figures.push((around.join("."), without_control(value)));
        }
    }

    /// Adds the address of the sender, after the values of the report itself.
    pub fn set_sender(&mut self, address: &str) {
        self.attributes.push(("host".to_owned(), address.to_owned()));
    }

    /// Returns the report in lines of a name and a value, with an empty line at the end.
    pub fn flat(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.values() {
            let _ = writeln!(text, "{name} {value}");
        }
        text.push('\n');
        text
    }

    /// Returns the report as one line of names and values.
    pub fn cgi(&self) -> String {
        let values: Vec<_> = self.values().map(|(name, value)| format!("{name}={value}")).collect();
        values.join("&") + "\n"
    }

    fn values(&self) -> impl Iterator<Item = &(String, String)> {
        self.attributes.iter().chain(&self.figures)
    }
}

/// Returns the name of an element in flat forms: for sections that of the section.
fn element_name(tag: &BytesStart<'_>) -> Result<String, InvalidReport> {
    let id = if tag.name().as_ref() == "stats" { attribute(tag, "id")? } else { None };
    let name = id.unwrap_or_else(|| tag.name().as_ref().to_owned());
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '&' | '=');
    if name.contains(is_odd) { Err(InvalidReport::Name) } else { Ok(name) }
}

/// Returns the length of the name of a value, with the dots.
fn name_bytes(around: &[String]) -> usize {
    around.iter().map(|name| name.len() + 1).sum()
}

fn without_control(value: &str) -> String {
    value.replace(char::is_control, "\u{fffd}")
}

/// Returns the value of an attribute as it is written. An `&` in it is part of an escape.
fn attribute(tag: &BytesStart<'_>, name: &str) -> Result<Option<String>, InvalidReport> {
    let invalid = |error: &dyn std::fmt::Display| InvalidReport::Xml(error.to_string());
    let found = tag.try_get_attribute(name).map_err(|error| invalid(&error))?;
    let Some(found) = found.map(|found| found.value.into_owned()) else { return Ok(None) };
    quick_xml::escape::unescape(&found).map_err(|error| invalid(&error))?;
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A report, and the output of mpxstats 5.5.3 about it.
    const REPORT: &str = "<statistics tod=\"1795188870\" ver=\"v6.1.0\" src=\"vm:24011\" tos=\"1795188226\" pgm=\"xrootd\" \
        ins=\"srv1\" pid=\"30677\" site=\"TEST\"><stats id=\"info\"><host>vm</host><port>24011</port></stats>\
        <stats id=\"xrootd\"><num>51</num><ops><open>14</open></ops></stats><stats id=\"oss\" v=\"2\"><paths>1\
        <stats id=\"0\"><lp>\"/data\"</lp><rp>\"/x/data\"</rp><tot>264212084</tot></stats></paths><space>0</space></stats>\
        <stats id=\"cache\" type=\"x\"><a>&amp;</a></stats><stats id=\"h\"><request><200>3</200></request></stats></statistics>";
    const CGI: &str = "tod=1795188870&ver=v6.1.0&src=vm:24011&tos=1795188226&pgm=xrootd&ins=srv1&pid=30677&info.host=vm\
        &info.port=24011&xrootd.num=51&xrootd.ops.open=14&oss.paths=1&oss.paths.0.lp=/data&oss.paths.0.rp=/x/data\
        &oss.paths.0.tot=264212084&oss.space=0&cache.a=&amp;&h.request.200=3\n";

    #[test]
    fn names_and_values_are_those_of_the_format() {
        let mut report = ReceivedReport::decode(REPORT).unwrap();
        assert_eq!(report.cgi(), CGI);
        report.set_sender("[::ffff:127.0.0.1]");
        let flat = report.flat();
        assert!(flat.contains("pid 30677\nhost [::ffff:127.0.0.1]\ninfo.host vm\n"), "{flat}");
        assert!(
            flat.contains("\noss.paths 1\noss.paths.0.lp /data\n") && flat.ends_with("h.request.200 3\n\n"),
            "{flat}"
        );
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let refused = |text: &str| ReceivedReport::decode(text).unwrap_err();
        assert_eq!(refused(""), InvalidReport::NotStatistics);
        assert_eq!(refused("garbage"), InvalidReport::NotStatistics);
        assert_eq!(refused("<other/><statistics>"), InvalidReport::Incomplete);
        assert_eq!(refused("<other></other>"), InvalidReport::NotStatistics);
        let end = REPORT.len() - "</statistics>".len();
        assert_eq!(refused(&REPORT[..end]), InvalidReport::Incomplete);
        assert!(matches!(refused("<statistics><a></b></statistics>"), InvalidReport::Xml(_)));
        let deep = format!("<statistics>{}", "<a>".repeat(20));
        assert!(refused(&deep).to_string().contains("too deep"));
    }

    #[test]
    fn a_sender_cannot_invent_lines_and_values() {
        let header = "<statistics tod=\"1\nhost [::9]\" pid=\"7\"><a>8\ntod 2\u{7f}</a></statistics>";
        let mut report = ReceivedReport::decode(header).unwrap();
        report.set_sender("[::1]");
        let flat = "tod 1\u{fffd}host [::9]\npid 7\nhost [::1]\na 8\u{fffd}tod 2\u{fffd}\n\n";
        assert_eq!(report.flat(), flat);
        let escaped = "<statistics><a>1&amp;host=&#91;&#x3a;&lt;</a></statistics>";
        let escaped = ReceivedReport::decode(escaped).unwrap();
        assert_eq!(escaped.cgi(), "a=1&amp;host=&#91;&#x3a;&lt;\n");
        for text in [
            "<statistics tod=\"1&host=[::9]\"></statistics>",
            "<statistics><a&host=x>1</a&host=x></statistics>",
            "<statistics><stats id=\"a=1&amp;host\">2</stats></statistics>",
            "<statistics><stats id=\"a 1\nhost\">2</stats></statistics>",
            "<statistics><a>1&host=[::9];</a></statistics>",
            "<statistics><a>1&a\nhost;</a></statistics>",
            "<statistics><a>1&;</a></statistics>",
            "<statistics><a>1&#38host=9;</a></statistics>",
        ] {
            assert!(ReceivedReport::decode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_output_is_not_much_larger_than_the_report() {
        let text = |name: usize| {
            let (name, values) = ("n".repeat(name), "<a>1</a>".repeat(3000));
            format!("<statistics><{name}>{values}</{name}></statistics>")
        };
        assert_eq!(ReceivedReport::decode(&text(40_000)), Err(InvalidReport::Name));
        let around = NAME_BYTES_MAX - "n.a.".len() + 1;
        assert_eq!(ReceivedReport::decode(&text(around + 1)), Err(InvalidReport::Name));
        assert_eq!(ReceivedReport::decode(&text(around)).unwrap().figures.len(), 3000);
    }

    proptest! {
        #[test]
        fn any_text_is_decoded_or_refused(text in "([<>/a-c0-9\"=&; \n]|&amp;|&[a=#1]{1,3};){0,60}") {
            let _ = ReceivedReport::decode(&text);
            let reports = [format!("<statistics>{text}</statistics>"), format!("<statistics><a>{text}</a></statistics>")];
            for report in reports.iter().filter_map(|report| ReceivedReport::decode(report).ok()) {
                // Nothing of a text adds to the lines or values.
                prop_assert_eq!(report.flat().lines().count(), report.figures.len() + 1);
                prop_assert!(report.cgi().lines().count() == 1);
                for (_, value) in &report.figures {
                    prop_assert!(quick_xml::escape::unescape(value).is_ok(), "{}", value);
                }
            }
        }
    }
}
