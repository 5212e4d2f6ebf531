//! [`SummaryReport`]: a report as a tree of sections, as XML and as JSON.

use std::borrow::Cow;
use std::fmt::Write;

/// What identifies a server and a moment: the attributes of a report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SummaryHeader {
    /// Time of the report, in seconds since 1970.
    pub time: u64,
    /// Version of the program.
    pub version: String,
    /// Host and port of the server.
    pub source: String,
    /// Time of the start of the server, in seconds since 1970.
    pub started: u64,
    /// Name of the program: `xrootd` or `cmsd`.
    pub program: &'static str,
    /// Name of the instance; `anon` if none is configured.
    pub instance: String,
    /// Number of the process.
    pub process: u32,
    /// Name of the site; empty if none is configured.
    pub site: String,
}

/// A value of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReportValue {
    /// A number.
    Number(u64),
    /// A word or name.
    Text(String),
    /// A path. It is in quotation marks.
    Quoted(String),
    /// A number, and figures about it.
    Counted(u64, Vec<(Cow<'static, str>, ReportValue)>),
    /// Several figures, by name.
    Group(Vec<(Cow<'static, str>, ReportValue)>),
    /// Several groups. Their number comes first.
    List(Vec<Vec<(Cow<'static, str>, ReportValue)>>),
}

impl From<u64> for ReportValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// Figures with their names.
pub type NamedFigures = Vec<(Cow<'static, str>, ReportValue)>;

/// Returns numbers with their names.
pub fn numbers<const N: usize>(named: [(&'static str, u64); N]) -> NamedFigures {
    named.map(|(name, number)| (Cow::Borrowed(name), ReportValue::Number(number))).into()
}

/// Returns a group of numbers.
pub fn number_group<const N: usize>(named: [(&'static str, u64); N]) -> ReportValue {
    ReportValue::Group(numbers(named))
}

/// A part of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportSection {
    /// Its name.
    pub id: Cow<'static, str>,
    /// An attribute beside the name, if it has one: `v`, the version of its form, or `type`.
    pub attribute: Option<(&'static str, &'static str)>,
    /// Its figures.
    pub figures: Vec<(Cow<'static, str>, ReportValue)>,
}

impl ReportSection {
    /// Creates a section without another attribute.
    pub fn new(id: &'static str, figures: Vec<(Cow<'static, str>, ReportValue)>) -> Self {
        Self { id: Cow::Borrowed(id), attribute: None, figures }
    }
}

/// A report about a server at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SummaryReport {
    /// What identifies it.
    pub header: SummaryHeader,
    /// Its sections, in the order of the format.
    pub sections: Vec<ReportSection>,
}

// Writing to a string cannot fail.
impl SummaryReport {
    /// Returns the report as XML.
    pub fn xml(&self) -> String {
        let SummaryHeader { time, version, source, started, program, instance, process, site } = &self.header;
        let mut text = format!("<statistics tod=\"{time}\" ver=\"");
        escape(&mut text, version);
        text.push_str("\" src=\"");
        escape(&mut text, source);
        let _ = write!(text, "\" tos=\"{started}\" pgm=\"{program}\" ins=\"");
        escape(&mut text, instance);
        let _ = write!(text, "\" pid=\"{process}\" site=\"");
        escape(&mut text, site);
        text.push_str("\">");
        for section in &self.sections {
            let _ = write!(text, "<stats id=\"{}\"", section.id);
            if let Some((name, value)) = section.attribute {
                let _ = write!(text, " {name}=\"{value}\"");
            }
            text.push('>');
            group_xml(&mut text, &section.figures);
            text.push_str("</stats>");
        }
        text.push_str("</statistics>");
        text
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> String {
        let SummaryHeader { time, version, source, started, program, instance, process, site } = &self.header;
        let mut text = format!("{{\"statistics\":{{\"tod\":{time},\"ver\":");
        quote(&mut text, version);
        text.push_str(",\"src\":");
        quote(&mut text, source);
        let _ = write!(text, ",\"tos\":{started},\"pgm\":\"{program}\",\"ins\":");
        quote(&mut text, instance);
        let _ = write!(text, ",\"pid\":{process},\"site\":");
        quote(&mut text, site);
        for section in &self.sections {
            text.push(',');
            quote(&mut text, &section.id);
            text.push(':');
            group_json(&mut text, &section.figures);
        }
        text.push_str("}}");
        text
    }
}

fn group_xml(text: &mut String, figures: &[(Cow<'static, str>, ReportValue)]) {
    for (name, figure) in figures {
        let _ = write!(text, "<{name}>");
        match figure {
            ReportValue::Number(number) => {
                let _ = write!(text, "{number}");
            }
            ReportValue::Text(value) => escape(text, value),
            ReportValue::Quoted(value) => {
                text.push('"');
                escape(text, value);
                text.push('"');
            }
            ReportValue::Counted(number, figures) => {
                let _ = write!(text, "{number}");
                group_xml(text, figures);
            }
            ReportValue::Group(figures) => group_xml(text, figures),
            ReportValue::List(groups) => {
                let _ = write!(text, "{}", groups.len());
                for (number, figures) in groups.iter().enumerate() {
                    let _ = write!(text, "<stats id=\"{number}\">");
                    group_xml(text, figures);
                    text.push_str("</stats>");
                }
            }
        }
        let _ = write!(text, "</{name}>");
    }
}

fn group_json(text: &mut String, figures: &[(Cow<'static, str>, ReportValue)]) {
    text.push('{');
    for (index, (name, figure)) in figures.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        quote(text, name);
        text.push(':');
        match figure {
            ReportValue::Number(number) => {
                let _ = write!(text, "{number}");
            }
            ReportValue::Text(value) | ReportValue::Quoted(value) => quote(text, value),
            ReportValue::Counted(number, figures) => {
                let mut all = vec![(Cow::Borrowed("all"), ReportValue::Number(*number))];
                all.extend(figures.iter().cloned());
                group_json(text, &all);
            }
            ReportValue::Group(figures) => group_json(text, figures),
            ReportValue::List(groups) => {
                text.push('[');
                for (number, figures) in groups.iter().enumerate() {
                    if number > 0 {
                        text.push(',');
                    }
                    group_json(text, figures);
                }
                text.push(']');
            }
        }
    }
    text.push('}');
}

/// Appends text escaped for XML. Names come from configurations and file systems and may contain any character.
/// Those that XML cannot contain are replaced.
fn escape(out: &mut String, text: &str) {
    out.push_str(&quick_xml::escape::escape(&*text.replace(is_no_xml, "\u{fffd}")));
}

fn is_no_xml(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Appends text as a string of JSON.
fn quote(out: &mut String, text: &str) {
    let _ = write!(out, "{}", serde_json::Value::from(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report(name: &str) -> SummaryReport {
        let header = SummaryHeader {
            time: 1_795_188_870,
            version: "v1".to_owned(),
            source: "vm:24011".to_owned(),
            started: 1_795_188_226,
            program: "xrootd",
            instance: name.to_owned(),
            process: 30677,
            site: name.to_owned(),
        };
        let path =
            vec![("lp".into(), ReportValue::Quoted(name.to_owned())), ("tot".into(), ReportValue::Number(7))];
        let storage = vec![
            ("paths".into(), ReportValue::List(vec![path])),
            ("space".into(), ReportValue::List(Vec::new())),
        ];
        let ops = ReportValue::Group(vec![("open".into(), ReportValue::Number(14))]);
        let sections = vec![
            ReportSection::new("xrootd", vec![("num".into(), ReportValue::Number(51)), ("ops".into(), ops)]),
            ReportSection { attribute: Some(("v", "2")), ..ReportSection::new("oss", storage) },
        ];
        SummaryReport { header, sections }
    }

    /// The form that XRootD 5.5.3 sends.
    #[test]
    fn xml_has_the_form_that_collectors_know() {
        assert_eq!(
            report("/a").xml(),
            "<statistics tod=\"1795188870\" ver=\"v1\" src=\"vm:24011\" tos=\"1795188226\" pgm=\"xrootd\" ins=\"/a\" \
             pid=\"30677\" site=\"/a\"><stats id=\"xrootd\"><num>51</num><ops><open>14</open></ops></stats>\
             <stats id=\"oss\" v=\"2\"><paths>1<stats id=\"0\"><lp>\"/a\"</lp><tot>7</tot></stats></paths>\
             <space>0</space></stats></statistics>"
        );
    }

    proptest! {
        #[test]
        fn any_name_is_kept_in_json_and_xml(name in ".{0,20}") {
            let json: serde_json::Value = serde_json::from_str(&report(&name).json()).unwrap();
            let found = &json["statistics"];
            prop_assert_eq!(&found["ins"], &name);
            prop_assert_eq!(&found["oss"]["paths"][0]["lp"], &name);
            prop_assert_eq!(&found["xrootd"]["ops"]["open"], 14);
            let shown = name.replace(is_no_xml, "\u{fffd}");
            let xml = report(&name).xml();
            let mut reader = quick_xml::Reader::from_str(&xml);
            let mut quoted = None;
            loop {
                match reader.read_event().unwrap() {
                    quick_xml::events::Event::Eof => break,
                    quick_xml::events::Event::Start(tag) if tag.name().as_ref() == "lp" => {
                        let text = reader.read_text(tag.name()).unwrap();
                        quoted = Some(quick_xml::escape::unescape(&text).unwrap().into_owned());
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(quoted, Some(format!("\"{shown}\"")));
        }
    }
}
