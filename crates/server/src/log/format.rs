//! The format of text lines: `YYMMDD HH:MM:SS THREAD room: message key=value`.
//!
//! Date, time and thread have the positions of XRootD's logs, so that log filters of sites keep
//! working. JSON lines have RFC 3339 times with the offset of local time. Messages and fields
//! contain text of clients and other servers, so control characters are escaped here in all of
//! them: otherwise a text could end its line or send commands to a terminal.

use base::Escape;
use jiff::Zoned;
use std::cell::Cell;
use std::fmt::{self, Write};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The format of text lines.
pub(super) struct TextFormat {
    /// Writes microseconds in the time stamp.
    pub(super) precise: bool,
    /// Colours the level.
    pub(super) colours: bool,
}

impl<S, N> FormatEvent<S, N> for TextFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        stamp(&mut writer, &Zoned::now(), self.precise)?;
        write!(writer, " {} ", thread_id())?;
        let word = match *metadata.level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        if self.colours && !word.is_empty() {
            let colour = if *metadata.level() == Level::ERROR { 31 } else { 33 };
            write!(writer, "\x1b[{colour}m{word}\x1b[0m")?;
        } else {
            writer.write_str(word)?;
        }
        let room = metadata.target().split("::").next().unwrap_or_default();
        write!(writer, "{room}: ")?;
        // Spans are not used: ids are fields of the events.
        context.format_fields(Writer::new(&mut Escape(writer.by_ref())), event)?;
        writeln!(writer)
    }
}

/// The format of JSON lines. It escapes control characters itself, because JSON escapes only some
/// of those that control terminals.
pub(super) struct JsonFormat<F>(pub(super) F);

impl<S, N, F> FormatEvent<S, N> for JsonFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        write!(Escape(writer.by_ref()), "{}", line.trim_end_matches('\n'))?;
        writeln!(writer)
    }
}

/// Writes `YYMMDD HH:MM:SS[.micro]` in local time.
fn stamp(writer: &mut impl fmt::Write, now: &Zoned, precise: bool) -> fmt::Result {
    let (year, month, day) = (now.year().rem_euclid(100), now.month(), now.day());
    let (hour, minute, second) = (now.hour(), now.minute(), now.second());
    write!(writer, "{year:02}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}")?;
    if precise {
        write!(writer, ".{:06}", now.subsec_nanosecond() / 1000)?;
    }
    Ok(())
}

/// Returns the thread id of the system, which is cached.
fn thread_id() -> i32 {
    thread_local! {
        static ID: Cell<i32> = const { Cell::new(0) };
    }
    ID.with(|id| {
        if id.get() == 0 {
            id.set(rustix::thread::gettid().as_raw_nonzero().get());
        }
        id.get()
    })
}

/// The times of JSON lines.
pub(super) struct JsonTime;

impl FormatTime for JsonTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%.6f%:z"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn the_stamp_has_the_format_that_log_filters_expect() {
        let now: Zoned = "2026-11-21T09:05:07.012345678+01:00[Europe/Zurich]".parse().unwrap();
        let mut text = String::new();
        stamp(&mut text, &now, false).unwrap();
        assert_eq!(text, "261121 09:05:07");
        text.clear();
        stamp(&mut text, &now, true).unwrap();
        assert_eq!(text, "261121 09:05:07.012345");
    }

    /// Returns the output of one event with `text` in its message and in fields of each kind.
    fn logged(json: bool, text: &str) -> String {
        let (sink, lines) = std::sync::mpsc::channel::<Vec<u8>>();
        let writer = move || Sender(sink.clone());
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
        let layer = match json {
            false => layer.event_format(TextFormat { precise: false, colours: false }).boxed(),
            true => {
                layer.json().flatten_event(true).with_timer(JsonTime).map_event_format(JsonFormat).boxed()
            }
        };
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(path = %text, source = text, other = ?text, "copy of {text} failed");
        });
        let bytes: Vec<u8> = lines.iter().flatten().collect();
        String::from_utf8(bytes).unwrap()
    }

    struct Sender(std::sync::mpsc::Sender<Vec<u8>>);

    impl std::io::Write for Sender {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn foreign_text_cannot_end_a_line_or_control_a_terminal() {
        let bad = "/x\n261123 01:02:03 4242 error: storage: forged\r\x1b[31m\x07\x7f\u{9b}2J\u{85}\u{2028}\u{202e}y\0";
        for json in [false, true] {
            let text = logged(json, bad);
            let line = text.strip_suffix('\n').unwrap();
            let raw = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}');
            assert!(!line.contains(raw), "{line:?}");
            assert!(line.contains("\\n261123 01:02:03"), "{line}");
        }
        let json: serde_json::Value = serde_json::from_str(&logged(true, bad)).unwrap();
        assert_eq!(json["path"], bad);
        assert_eq!(json["source"], bad);
    }
}
