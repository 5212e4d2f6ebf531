//! [`Size`]: a number of bytes for people.

use std::fmt;

/// Parses a number of bytes: `500`, `1.5g`, `2T`; `None` for anything else.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, shift) = size_parts(text);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // More digits of a fraction are less than a byte.
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 15 {
        return None;
    }
    scaled(whole.parse().ok()?, fraction, shift)
}

/// Splits a size into its number and the power of two of its unit.
#[must_use]
pub fn size_parts(text: &str) -> (&str, u32) {
    let Some((at, unit)) = text.char_indices().last() else { return (text, 0) };
    let shift = match unit.to_ascii_lowercase() {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => return (text, 0),
    };
    (text.get(..at).unwrap_or_default(), shift)
}

/// Returns `whole.fraction << shift` without the rest below one; `None` if it is too large, or if
/// `fraction` is not empty and no number.
#[must_use]
pub fn scaled(whole: u64, fraction: &str, shift: u32) -> Option<u64> {
    let part = match fraction {
        "" => 0,
        digits => {
            let scale = 10_u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
            (u128::from(digits.parse::<u64>().ok()?) << shift) / scale
        }
    };
    u64::try_from((u128::from(whole) << shift) + part).ok()
}

/// A number of bytes in the largest unit that it reaches: `24 B`, `1.50 KiB`, `19.07 MiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shift = 0;
        let mut unit = None;
        for name in UNITS {
            if self.0 >> (shift + 10) == 0 {
                break;
            }
            shift += 10;
            unit = Some(name);
        }
        match unit {
            None => write!(f, "{} B", self.0),
            Some(unit) => {
                let hundredths = (u128::from(self.0) * 100) >> shift;
                write!(f, "{}.{:02} {unit}", hundredths / 100, hundredths % 100)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_exactly() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("500", Some(500)),
            ("4k", Some(4096)),
            ("1.5m", Some(1_572_864)),
            ("2T", Some(2 << 40)),
            ("0.3k", Some(307)),
            ("16777215t", Some(16_777_215 << 40)),
            ("16777216t", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("k", None),
            ("-5", None),
            ("+5", None),
            ("1.", None),
            (".5k", None),
            ("1.5.5", None),
            ("zz", None),
            ("5é", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }

    #[test]
    fn sizes_have_the_largest_unit() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (20_000_000, "19.07 MiB"),
            ((1 << 30) - 1, "1023.99 MiB"),
            (u64::MAX, "15.99 EiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
