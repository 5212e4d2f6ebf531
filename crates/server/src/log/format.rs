//! A line for people: `YYMMDD HH:MM:SS THREAD room: message key=value`.
//!
//! Date, time and thread stand as in XRootD's logs, so that sites' log filters keep working. JSON lines carry RFC 3339
//! times with the offset of local time.

use jiff::Zoned;
use std::cell::Cell;
use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Lines for people.
pub(super) struct Text {
    /// Microseconds in the time stamp.
    pub(super) precise: bool,
    /// Colour the level.
    pub(super) colours: bool,
}

impl<S, N> FormatEvent<S, N> for Text
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
        // No spans are opened anywhere: ids are fields of the events.
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// `YYMMDD HH:MM:SS[.micro]` in local time.
fn stamp(writer: &mut impl fmt::Write, now: &Zoned, precise: bool) -> fmt::Result {
    let (year, month, day) = (now.year().rem_euclid(100), now.month(), now.day());
    let (hour, minute, second) = (now.hour(), now.minute(), now.second());
    write!(writer, "{year:02}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}")?;
    if precise {
        write!(writer, ".{:06}", now.subsec_nanosecond() / 1000)?;
    }
    Ok(())
}

/// The system's number of this thread, asked for once.
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

/// Times of JSON lines.
pub(super) struct JsonTime;

impl FormatTime for JsonTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%.6f%:z"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_is_the_one_that_log_filters_know() {
        let now: Zoned = "2026-11-21T09:05:07.012345678+01:00[Europe/Zurich]".parse().unwrap();
        let mut text = String::new();
        stamp(&mut text, &now, false).unwrap();
        assert_eq!(text, "261121 09:05:07");
        text.clear();
        stamp(&mut text, &now, true).unwrap();
        assert_eq!(text, "261121 09:05:07.012345");
    }
}
