//! [`GStreamHead`]: the first line of packets in text form, and the text that identifies the server.

use super::super::transfer_records::{RecordSender, line, sender_id};
use crate::streams::Seconds;
use config::{GStream, GStreamForm, GStreamHeader};
use serde_json::Value;

/// Maximum of the sequence numbers of packets in text form.
pub(super) const SEQUENCE_MAX: u16 = 999;

/// The names of the server in the texts of one stream.
pub(super) struct GStreamHead {
    stream: char,
    started: Seconds,
    server: u64,
    /// The name and the value of each field, in the order of the headers.
    fields: Vec<(GStreamHeader, &'static str, Value)>,
}

impl GStreamHead {
    pub(super) fn new(stream: GStream, sender: &RecordSender, release: &str) -> Self {
        let text = |text: &str| Value::from(line(text).into_owned());
        let fields = vec![
            (GStreamHeader::Site, "site", text(&sender.site)),
            (GStreamHeader::Host, "host", text(&sender.host)),
            (GStreamHeader::Instance, "port", Value::from(sender.port)),
            (GStreamHeader::Instance, "inst", text(&sender.instance)),
            (GStreamHeader::Full, "pgm", text(&sender.program)),
            (GStreamHeader::Full, "ver", text(release)),
        ];
        Self {
            stream: char::from(stream.code()),
            // The field has 32 bits.
            started: (sender.started & u64::from(u32::MAX)) as u32,
            server: sender_id(sender),
            fields,
        }
    }

    /// Returns the text that identifies the server. A NUL ends it.
    pub(super) fn identification(&self, form: GStreamForm) -> Vec<u8> {
        let Self { started, server, .. } = self;
        let mut text = match form {
            GStreamForm::Cgi => {
                format!("code==&pseq=1&stod={started}&sid={server}{}", self.cgi(GStreamHeader::Full))
            }
            _ => format!(
                "{{\"code\":\"=\",\"pseq\":1,\"stod\":{started},\"sid\":{server}{}}}",
                self.json(GStreamHeader::Full)
            ),
        };
        text.push('\0');
        text.into_bytes()
    }

    /// Returns the first line of a packet with records from `begin` to `end`.
    pub(super) fn line(
        &self,
        form: GStreamForm,
        header: GStreamHeader,
        sequence: u16,
        (begin, end): (Seconds, Seconds),
    ) -> String {
        let Self { stream, started, server, .. } = self;
        match form {
            GStreamForm::Json => format!(
                "{{\"code\":\"g\",\"pseq\":{sequence:3},\"stod\":{started},\"sid\":{server}{},\
                 \"gs\":{{\"type\":\"{stream}\",\"tbeg\":{begin},\"tend\":{end}}}}}\n",
                self.json(header)
            ),
            GStreamForm::Cgi => {
                // A blank is a plus sign.
                let sequence = format!("{sequence:3}").replace(' ', "+");
                let names = self.cgi(header);
                format!(
                    "code=g&pseq={sequence}&stod={started}&sid={server}{names}\
                     &gs.type={stream}&gs.tbeg={begin}&gs.tend={end}\n"
                )
            }
            GStreamForm::Bare => String::new(),
        }
    }

    fn fields(&self, header: GStreamHeader) -> impl Iterator<Item = (&'static str, &Value)> {
        self.fields.iter().filter(move |(least, ..)| *least <= header).map(|(_, name, value)| (*name, value))
    }

    fn json(&self, header: GStreamHeader) -> String {
        let fields: Vec<_> = self.fields(header).map(|(name, value)| format!("\"{name}\":{value}")).collect();
        if fields.is_empty() { String::new() } else { format!(",\"src\":{{{}}}", fields.join(",")) }
    }

    fn cgi(&self, header: GStreamHeader) -> String {
        let value = |value: &Value| match value {
            Value::String(text) => text.replace('&', "%26"),
            other => other.to_string(),
        };
        self.fields(header).map(|(name, field)| format!("&{name}={}", value(field))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> GStreamHead {
        let sender = RecordSender {
            site: "SITE".to_owned(),
            host: "vm".to_owned(),
            instance: "anon".to_owned(),
            program: "xrootd".to_owned(),
            port: 24363,
            user: "daemon".to_owned(),
            process: 1,
            started: 1_796_041_210,
        };
        let head = GStreamHead::new(GStream::ThirdPartyCopies, &sender, "v5.5.3");
        GStreamHead { server: 100_921_639_607_810, ..head }
    }

    /// Packets of XRootD 5.5.3, with these times.
    #[test]
    fn lines_have_the_recorded_form() {
        let line = |header| head().line(GStreamForm::Json, header, 1, (1_796_041_213, 1_796_041_215));
        let expected = |names: &str| {
            format!(
                "{{\"code\":\"g\",\"pseq\":  1,\"stod\":1796041210,\"sid\":100921639607810{names},\
                 \"gs\":{{\"type\":\"P\",\"tbeg\":1796041213,\"tend\":1796041215}}}}\n"
            )
        };
        assert_eq!(line(GStreamHeader::Default), expected(""));
        assert_eq!(line(GStreamHeader::Site), expected(",\"src\":{\"site\":\"SITE\"}"));
        assert_eq!(line(GStreamHeader::Host), expected(",\"src\":{\"site\":\"SITE\",\"host\":\"vm\"}"));
        let names = ",\"src\":{\"site\":\"SITE\",\"host\":\"vm\",\"port\":24363,\"inst\":\"anon\"}";
        assert_eq!(line(GStreamHeader::Instance), expected(names));
        let full = names.replace('}', ",\"pgm\":\"xrootd\",\"ver\":\"v5.5.3\"}");
        assert_eq!(line(GStreamHeader::Full), expected(&full));
        let names = "&site=SITE&host=vm&port=24363&inst=anon&pgm=xrootd&ver=v5.5.3";
        let line = head().line(GStreamForm::Cgi, GStreamHeader::Full, 12, (5, 6));
        let begin = "code=g&pseq=+12&stod=1796041210&sid=100921639607810";
        assert_eq!(line, format!("{begin}{names}&gs.type=P&gs.tbeg=5&gs.tend=6\n"));
        assert_eq!(
            head().identification(GStreamForm::Cgi),
            format!("code==&pseq=1&stod=1796041210&sid=100921639607810{names}\0").into_bytes()
        );
        assert_eq!(
            head().identification(GStreamForm::Json),
            format!("{{\"code\":\"=\",\"pseq\":1,\"stod\":1796041210,\"sid\":100921639607810{full}}}\0")
                .into_bytes()
        );
        assert_eq!(head().line(GStreamForm::Bare, GStreamHeader::Default, 1, (5, 6)), "");
    }

    #[test]
    fn names_of_a_configuration_end_neither_texts_nor_fields() {
        let sender = RecordSender {
            site: "a\"b\n&ver=1".to_owned(),
            host: "h".to_owned(),
            instance: "i".to_owned(),
            program: "p".to_owned(),
            port: 1,
            user: String::new(),
            process: 1,
            started: 1,
        };
        let head = GStreamHead::new(GStream::Http, &sender, "v1");
        let json = head.identification(GStreamForm::Json);
        let found: Value = serde_json::from_slice(json.strip_suffix(&[0]).unwrap()).unwrap();
        assert_eq!(found["src"]["site"], "a\"b?&ver=1");
        let cgi = String::from_utf8(head.identification(GStreamForm::Cgi)).unwrap();
        assert!(cgi.contains("&site=a\"b?%26ver=1&host=h&"), "{cgi}");
    }
}
