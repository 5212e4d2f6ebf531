//! The times of pins: `[+]N[d|h|m|s]`, `mm/dd/yyyy` and `forever`.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use storage::FilePin;

/// Units with their seconds, and the greatest number of seconds that is shown in a smaller one.
const DAY: i64 = 86_400;
const HOUR: i64 = 3600;
const MINUTE: i64 = 60;
const SECONDS_SHOWN: i64 = 180;
const MINUTES_SHOWN: i64 = 5459;
const HOURS_SHOWN: i64 = 165_599;
/// Pins that end later are shown with their date.
const DAYS_SHOWN: i64 = 7 * DAY;

/// Two digits of a year count from here.
const CENTURY: i16 = 2000;

/// Parses a time at `now`, in seconds since the epoch. `Ok(None)` ends a pin.
pub(super) fn parse(text: &str, now: i64) -> Result<Option<FilePin>, String> {
    if text == "forever" {
        return Ok(Some(FilePin::Forever));
    }
    if text.contains('/') {
        let time = date(text).ok_or_else(|| format!("Invalid pin keep date - {text}"))?;
        return Ok(Some(FilePin::Until(time)));
    }
    let (is_idle, number) = text.strip_prefix('+').map_or((false, text), |rest| (true, rest));
    let units = [('d', DAY), ('h', HOUR), ('m', MINUTE), ('s', 1)];
    let with_unit = units.iter().find_map(|(letter, unit)| Some((number.strip_suffix(*letter)?, *unit)));
    let (number, unit) = with_unit.unwrap_or((number, 1));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let seconds =
        number.parse::<i64>().ok().filter(|_| is_number).and_then(|number| number.checked_mul(unit));
    match (seconds, is_idle) {
        (None, _) => Err(format!("Invalid pin keep time - {text}")),
        (Some(0), _) => Ok(None),
        (Some(seconds), true) => Ok(Some(FilePin::Idle(seconds.unsigned_abs()))),
        (Some(seconds), false) => Ok(Some(FilePin::Until(now.saturating_add(seconds)))),
    }
}

/// Parses `mm/dd/yy` or `mm/dd/yyyy`, and returns the begin of that day here.
fn date(text: &str) -> Option<i64> {
    let mut parts = text.split('/');
    let (month, day, year) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || ![2, 4].contains(&year.len()) {
        return None;
    }
    let two_digits = year.len() == 2;
    let year = year.parse::<i16>().ok()?;
    let year = if two_digits { CENTURY.checked_add(year)? } else { year };
    let date = Date::new(year, month.parse().ok()?, day.parse().ok()?).ok()?;
    Some(date.to_zoned(TimeZone::system()).ok()?.timestamp().as_second())
}

/// Formats a pin as the value of `-k`. `None` if it has ended at `now`.
pub(super) fn shown(pin: FilePin, now: i64) -> Option<String> {
    match pin {
        FilePin::Forever => Some("forever".to_owned()),
        FilePin::Idle(seconds) => Some(format!("+{}", duration(i64::try_from(seconds).unwrap_or(i64::MAX)))),
        FilePin::Until(time) if time <= now => None,
        FilePin::Until(time) if time.saturating_sub(now) > DAYS_SHOWN => {
            let date = Timestamp::from_second(time).ok().map(|time| time.to_zoned(TimeZone::system()));
            Some(date.map_or_else(|| "forever".to_owned(), |date| date.strftime("%m/%d/%Y").to_string()))
        }
        FilePin::Until(time) => Some(duration(time.saturating_sub(now))),
    }
}

fn duration(seconds: i64) -> String {
    if seconds <= SECONDS_SHOWN {
        format!("{seconds}s")
    } else if seconds <= MINUTES_SHOWN {
        format!("{}m", seconds / MINUTE)
    } else if seconds <= HOURS_SHOWN {
        format!("{}h", seconds / HOUR)
    } else {
        format!("{}d", seconds / DAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_xrootd() {
        let now = 1_000_000;
        for (text, pin) in [
            ("forever", Some(FilePin::Forever)),
            ("0", None),
            ("+2d", Some(FilePin::Idle(172_800))),
            ("+30", Some(FilePin::Idle(30))),
            ("90m", Some(FilePin::Until(now + 5400))),
            ("1h", Some(FilePin::Until(now + 3600))),
            ("100s", Some(FilePin::Until(now + 100))),
        ] {
            assert_eq!(parse(text, now), Ok(pin), "{text}");
        }
        for bad in [
            "",
            "x",
            "1x",
            "-5",
            "13/45/2030",
            "1/1",
            "1/1/1/1",
            "1/1/203",
            "99999999999999999999",
            "+",
            "d",
            "1dd2",
            "/",
        ] {
            assert!(parse(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn two_digits_of_a_year_are_in_this_century() {
        let short = parse("12/31/30", 0);
        assert_eq!(short, parse("12/31/2030", 0));
        let Ok(Some(pin)) = short else { panic!("{short:?}") };
        assert_eq!(shown(pin, 0).as_deref(), Some("12/31/2030"));
    }

    #[test]
    fn a_pin_is_shown_as_its_option() {
        for (seconds, text) in [
            (180, "180s"),
            (181, "3m"),
            (5459, "90m"),
            (5460, "1h"),
            (165_599, "45h"),
            (165_600, "1d"),
            (3 * DAY, "3d"),
        ] {
            assert_eq!(shown(FilePin::Until(seconds), 0).as_deref(), Some(text));
            assert_eq!(shown(FilePin::Idle(seconds.unsigned_abs()), 0), Some(format!("+{text}")));
        }
        assert_eq!(shown(FilePin::Until(5), 5), None);
        assert!(shown(FilePin::Until(8 * DAY), 0).is_some_and(|text| text.contains("/1970")));
    }
}
