//! Parsing and formatting of sizes and times.

use std::time::Duration;

/// Parses a number of bytes: `24`, `2k`, `64KiB`, `1M`, `2g`. Prefixes are powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err("not a size: a number with k, M, G or T, such as 64k".to_owned()),
    };
    let number: u64 =
        number.parse().map_err(|_| "not a size: a number with k, M, G or T, such as 64k".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

/// Parses the size of a request: 1 byte to 2 GiB - 1.
pub(super) fn request_bytes(text: &str) -> Result<u32, String> {
    match bytes(text)? {
        0 => Err("a request has at least 1 byte".to_owned()),
        size if size > i32::MAX as u64 => Err("a request has less than 2 GiB".to_owned()),
        size => u32::try_from(size).map_err(|error| error.to_string()),
    }
}

/// Parses a time: `5`, `5s`, `500ms`, `2m`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "not a time: a number with ms, s or m, such as 500ms".to_owned();
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" => number * 60.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Parses a time in the syntax of configuration files: `90`, `10m`, `2h`, `1d`.
pub(super) fn configured_time(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let unit = units.into_iter().find_map(|(letter, seconds)| Some((text.strip_suffix(letter)?, seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1));
    let count: Option<u64> = number.parse().ok();
    let time = count.and_then(|count| count.checked_mul(seconds)).map(Duration::from_secs);
    time.ok_or_else(|| "it is no time, as 90, 10m or 2h".to_owned())
}

/// Formats a size: `2 KiB`, `1.5 GiB`, `24 B`.
pub(super) fn show_bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// Formats a time in nanoseconds: `290 us`, `1.5 ms`, `2.1 s`.
pub(super) fn show_time(nanoseconds: f64) -> String {
    scaled(nanoseconds, 1000.0, &[" ns", " us", " ms", " s"])
}

/// Formats a value with three significant digits and a suitable unit.
fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    while value >= step
        && let Some(next) = units.next()
    {
        value /= step;
        unit = next;
    }
    let decimals = match value {
        value if value.fract() < 0.005 || value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}{unit}")
}

/// Formats an integer with commas between thousands.
pub(super) fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_type_them() {
        let table = [("24", 24), ("2k", 2048), ("64KiB", 65536), ("1M", 1 << 20), ("2g", 2 << 30), ("0", 0)];
        for (text, expected) in table {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "k", "-1", "1x", "1.5k", "99999999999999999999", "99999999999T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert!(request_bytes("0").is_err());
        assert_eq!(request_bytes("2147483647"), Ok(i32::MAX as u32));
        assert!(request_bytes("2g").is_err());
    }

    #[test]
    fn times_as_people_type_them() {
        assert_eq!(time("5"), Ok(Duration::from_secs(5)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "s", "-1s", "5h", "1..2s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_are_shown_with_three_digits() {
        assert_eq!(show_bytes(24.0), "24 B");
        assert_eq!(show_bytes(2048.0), "2 KiB");
        assert_eq!(show_bytes(1_610_612_736.0), "1.50 GiB");
        assert_eq!(show_bytes(1e18), "909495 TiB");
        assert_eq!(show_time(290_400.0), "290 us");
        assert_eq!(show_time(12_345.0), "12.3 us");
        assert_eq!(show_time(2.1e12), "2100 s");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(999), "999");
    }
}
