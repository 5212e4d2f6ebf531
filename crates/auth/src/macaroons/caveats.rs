//! [`Caveat`]: one restriction of a macaroon, `key:value`.

use super::activity::Activity;
use crate::tokens::OperationSet;
use base::LogicalPath;
use std::time::SystemTime;
use time::{Date, Month, OffsetDateTime, Time, UtcOffset};

/// A restriction of a macaroon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caveat {
    /// The name of the client for which it was issued.
    Name(Box<str>),
    /// The allowed operations.
    Activity(OperationSet),
    /// The path; the macaroon is for it and everything below.
    Path(LogicalPath),
    /// The time of expiry.
    Before(SystemTime),
}

impl Caveat {
    /// Parses a caveat.
    ///
    /// # Errors
    /// The reason why it is not understood. A macaroon with such a caveat is refused, because the
    /// restriction cannot be checked.
    pub(super) fn parse(caveat: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(caveat).map_err(|_| "it is not text")?;
        let (key, value) = text.split_once(':').unwrap_or((text, ""));
        match key {
            "name" => Ok(Self::Name(value.into())),
            "activity" => Ok(Self::Activity(Activity::operations_of(value))),
            "path" => {
                let path = LogicalPath::parse(value.as_bytes());
                let path = path.map_err(|_| "it is not an absolute path without '..'")?;
                Ok(Self::Path(path.without_slash()))
            }
            "before" => {
                let time = parse_time(value).ok_or("it is not a time in the form 2026-11-21T12:00:00Z")?;
                Ok(Self::Before(time.into()))
            }
            _ => Err("it is unknown"),
        }
    }
}

/// Parses `YYYY-MM-DDTHH:MM:SSZ`.
fn parse_time(text: &str) -> Option<OffsetDateTime> {
    let bytes: &[u8; 20] = text.as_bytes().try_into().ok()?;
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
    if separators.iter().any(|(at, separator)| bytes.get(*at) != Some(separator)) {
        return None;
    }
    let number = |at: usize, length: usize| -> Option<u16> {
        let digits = text.get(at..at + length).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse().ok()
    };
    let small = |at| u8::try_from(number(at, 2)?).ok();
    let month = Month::try_from(small(5)?).ok()?;
    let date = Date::from_calendar_date(number(0, 4)?.into(), month, small(8)?).ok()?;
    let time = Time::from_hms(small(11)?, small(14)?, small(17)?).ok()?;
    Some(date.with_time(time).assume_utc())
}

/// Returns the caveat of an expiry. Fractions of a second are dropped.
pub(super) fn before(time: SystemTime) -> String {
    let at = OffsetDateTime::from(time).to_offset(UtcOffset::UTC);
    let (date, (hour, minute, second)) = (at.date(), at.to_hms());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("before:{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_have_one_form() {
        let time = |text: &str| Caveat::parse(format!("before:{text}").as_bytes());
        let expected = UNIX_EPOCH + Duration::from_secs(1_795_262_400);
        assert_eq!(time("2026-11-21T12:00:00Z"), Ok(Caveat::Before(expected)));
        assert_eq!(before(expected), "before:2026-11-21T12:00:00Z");
        assert_eq!(before(expected + Duration::from_millis(1999)), "before:2026-11-21T12:00:01Z");
        for malformed in [
            "",
            "2026-11-21T12:00:00",
            "2026-11-21T12:00:00+00:00",
            "2026-11-21 12:00:00Z",
            "2026-13-21T12:00:00Z",
            "2026-02-29T12:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T12:00:60Z",
            "+026-11-21T12:00:00Z",
            "2026-11-21T12:00:0 Z",
            "2026-11-21T12:00:00.5Z",
            "2026-11-2\u{664}T1:00:00Z",
        ] {
            assert!(time(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn caveats_that_are_not_understood_are_errors() {
        let parse = |text: &str| Caveat::parse(text.as_bytes());
        assert_eq!(parse("name:a:b"), Ok(Caveat::Name("a:b".into())));
        let path = LogicalPath::parse(b"/a/b").unwrap();
        for text in ["path:/a/b", "path:/a//b/"] {
            assert_eq!(parse(text), Ok(Caveat::Path(path.clone())), "{text}");
        }
        for text in
            ["", "path", "path:", "path:a", "path:/a/../b", "ip:192.0.2.1", "Path:/a", " path:/a", "test = x"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(Caveat::parse(b"path:/\xff"), Err("it is not text"));
    }
}
