//! Times in the local time zone.

use client::local_zone;
use jiff::Timestamp;

/// Formats the seconds since 1970 in the local time zone; `None` outside of the range of dates.
pub(crate) fn local_time(seconds: i64, format: &str) -> Option<String> {
    let time = Timestamp::from_second(seconds).ok()?;
    Some(time.to_zoned(local_zone()).strftime(format).to_string())
}
