//! Formatting of sizes, times and permissions as XRootD's client programs do it.

use super::status::system_text;
use client::StatInfo;
use client::xroot::flags::StatFlags;

/// Formats a size as `1.177MB`: four significant digits, in units of 1024.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    #[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value >= 1000.0 {
        0
    } else if value >= 100.0 {
        1
    } else if value >= 10.0 {
        2
    } else {
        3
    };
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{}", UNITS.get(unit).unwrap_or(&"B"))
}

/// Formats a time as `2026-11-20 15:24:12`, in UTC.
pub(crate) fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds)
        .map_or_else(|_| seconds.to_string(), |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// Formats the mode as `drwxr-x---`, or `dr-x` if the server does not report permissions.
pub(crate) fn mode(stat: &StatInfo) -> String {
    let mut text = String::from(if stat.is_dir() { "d" } else { "-" });
    let mut bit = |set: bool, letter| text.push(if set { letter } else { '-' });
    match &stat.more {
        Some(more) => {
            for shift in [6, 3, 0] {
                let bits = more.mode >> shift;
                bit(bits & 4 != 0, 'r');
                bit(bits & 2 != 0, 'w');
                bit(bits & 1 != 0, 'x');
            }
        }
        None => {
            bit(stat.flags.contains(StatFlags::READABLE), 'r');
            bit(stat.flags.contains(StatFlags::WRITABLE), 'w');
            bit(stat.flags.contains(StatFlags::XSET), 'x');
        }
    }
    text
}

/// Parses `rwxr-x---`: three letters each for owner, group and others, in any order within the
/// three.
pub(crate) fn mode_bits(text: &str) -> Option<u16> {
    let letters = text.as_bytes();
    if letters.len() != 9 {
        return None;
    }
    letters.chunks(3).try_fold(0, |mode, three| {
        three.iter().try_fold(mode << 3, |mode, letter| {
            Some(
                mode | match letter {
                    b'r' => 4,
                    b'w' => 2,
                    b'x' => 1,
                    b'-' => 0,
                    _ => return None,
                },
            )
        })
    })
}

/// Returns the system's text for an error, beginning in lower case.
pub(crate) fn system(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), system_text)
}

/// Returns a number without leading zeros.
pub(crate) fn without_zeros(digits: &str) -> &str {
    let cut = digits.trim_start_matches('0');
    if cut.is_empty() { "0" } else { cut }
}

/// The names of the state flags, in display order.
pub(crate) const FLAGS: [(&str, StatFlags); 8] = [
    ("XBitSet", StatFlags::XSET),
    ("IsDir", StatFlags::IS_DIR),
    ("Other", StatFlags::OTHER),
    ("Offline", StatFlags::OFFLINE),
    ("POSCPending", StatFlags::POSCPEND),
    ("IsReadable", StatFlags::READABLE),
    ("IsWritable", StatFlags::WRITABLE),
    ("BackUpExists", StatFlags::BKPEXIST),
];

/// Parses an integer as C does: decimal, `0x…` or `0…`, with a sign. An empty text is 0. Large
/// values saturate.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let (radix, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if digits.len() > 1 && digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    if digits.is_empty() {
        return text.is_empty().then_some(0);
    }
    digits.chars().try_fold(0_i64, |value, digit| {
        let digit = i64::from(digit.to_digit(radix)?);
        Some(value.saturating_mul(radix.into()).saturating_add(if negative { -digit } else { digit }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_four_digits() {
        let table = [
            (0, "0B"),
            (10, "10B"),
            (1023, "1023B"),
            (1024, "1kB"),
            (1_234_567, "1.177MB"),
            (8 << 20, "8MB"),
            (25_000_000, "23.84MB"),
            (5 << 40, "5TB"),
        ];
        for (bytes, expected) in table {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn permissions() {
        assert_eq!(mode_bits("rwxr-x---"), Some(0o750));
        assert_eq!(mode_bits("xwrxwrxwr"), Some(0o777));
        for bad in ["", "rwxr-x--", "rwxr-x----", "rwxr-x--z", "644"] {
            assert_eq!(mode_bits(bad), None, "{bad}");
        }
    }

    #[test]
    fn numbers_as_c_reads_them() {
        let table = [
            ("", Some(0)),
            (" 7", Some(7)),
            ("0x10", Some(16)),
            ("010", Some(8)),
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("99999999999999999999", Some(i64::MAX)),
            ("1x", None),
            ("x", None),
            ("-", None),
        ];
        for (text, expected) in table {
            assert_eq!(integer(text), expected, "{text}");
        }
    }
}
